"""Caches: what functions remember of earlier calls, and values of which equal ones are one object.

Every cache of the package is made here, so that all can be seen, cleared and bounded together.
"""

# functools has no public name for the type of what lru_cache makes.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import functools
import gc
import sys
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import count
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakMethod, WeakValueDictionary

from shardwise.errors import seal
from shardwise.locks import make_lock

if TYPE_CHECKING:
    from functools import _lru_cache_wrapper

T = TypeVar("T")

BUDGET = 256 * 2**20  # bytes that all caches together may hold
CHECKED_EVERY = 1024  # misses after which the bytes are estimated again
SAMPLED = 4  # values of a cache, the latest, of which the size of all is estimated
ENTRY = 400  # bytes of an entry beside its value: the key, and its place in the table


def cache(*, entries: int = 4096, typed: bool = False) -> Callable[[Callable[..., T]], _lru_cache_wrapper[T]]:
    """Make a function of a module remember its latest results, as `functools.lru_cache` does and as fast.

    >>> from shardwise.layout.placement import accumulator
    >>> accumulator.cache_parameters()["maxsize"]
    256
    """

    def decorate(function: Callable[..., T]) -> _lru_cache_wrapper[T]:
        name = f"{function.__module__}.{function.__qualname__}"
        if "<locals>" in name:
            raise TypeError(f"{name} is no function of a module, so its cache would be one of very many.")
        samples: deque[T] = deque(maxlen=SAMPLED)

        @functools.wraps(function)
        def compute(*args: Any, **kwargs: Any) -> T:  # on a miss only
            value = function(*args, **kwargs)
            samples.append(value)
            # What one cache forgets another may still hold (a program its plan), so that all are cleared or none.
            if next(_misses) % CHECKED_EVERY == 0 and cache_info().bytes > BUDGET:
                _forget()
            return value

        remembering = functools.lru_cache(maxsize=entries, typed=typed)(compute)
        _caches[name.removeprefix("shardwise.")] = remembering, samples
        return remembering

    return decorate


if TYPE_CHECKING:
    cached_property = functools.cached_property
else:

    class cached_property(functools.cached_property):
        """A property that is worked out when it is first asked for; all threads see the same value.

        Before Python 3.12 that of `functools` holds a lock meanwhile, one for all objects of a class: threads wait for
        each other, and a forked child for one that is not there.

        >>> class Range:
        ...     @cached_property
        ...     def items(self):
        ...         return [1, 2]
        >>> one = Range()
        >>> one.items is one.items, Range.items.attrname
        (True, 'items')
        """

        def __get__(self, instance: object, owner: type | None = None) -> Any:
            if instance is None:
                return self
            return vars(instance).setdefault(self.attrname, self.func(instance))


_caches: dict[str, tuple[_lru_cache_wrapper[Any], deque[Any]]] = {}
_misses = count(1)


def clear_caches() -> None:
    """Forget what earlier calls have left in caches; what is asked again is worked out again.

    Engines give back the memory that they keep for their next arrays.

    >>> import numpy as np
    >>> from shardwise import DeviceMesh, P, cache_info, clear_caches, shard
    >>> x = shard(np.arange(4.0), DeviceMesh((2,), ("x",)), P("x"))
    >>> clear_caches()
    >>> cache_info().bytes, (x + x).numpy()
    (0, array([0., 2., 4., 6.]))
    """
    _forget()
    for reference in list(_followers):
        method = reference()
        if method is not None:
            method()


def _forget() -> None:
    for remembering, samples in _caches.values():
        remembering.cache_clear()
        samples.clear()


def call_when_cleared(method: Callable[[], None]) -> None:
    """Call a method whenever somebody clears the caches, as long as its object is there.

    >>> class Kept:
    ...     def forget(self):
    ...         print("gone")
    >>> kept = Kept()
    >>> call_when_cleared(kept.forget)
    >>> clear_caches()
    gone
    """
    _followers.append(WeakMethod(method, _followers.remove))


_followers: list[WeakMethod[Callable[[], None]]] = []


@seal
@dataclass(frozen=True, slots=True)
class CacheRow:
    """What one cache holds: the results of a function, and about how many bytes they take.

    >>> CacheRow("plan.plan.make_plan", 2, 4096, 8000, hits=7, misses=2).entries
    2
    """

    name: str
    entries: int
    most_entries: int
    bytes: int
    hits: int
    misses: int


@seal
@dataclass(frozen=True, slots=True)
class CacheInfo:
    """What all caches hold, the largest first; it prints as a table of those that hold something.

    >>> info = CacheInfo((CacheRow("plan.plan.make_plan", 2, 4096, 8000, hits=7, misses=2),))
    >>> info.entries, info.bytes
    (2, 8000)
    >>> print(info)
    cache                entries     bytes      hits    misses
    plan.plan.make_plan        2      8000         7         2
    all, of 268435456          2      8000         7         2
    """

    caches: tuple[CacheRow, ...]
    budget: int = BUDGET

    @property
    def bytes(self) -> int:
        """About how many bytes all of them take."""
        return sum(row.bytes for row in self.caches)

    @property
    def entries(self) -> int:
        """How many results they hold."""
        return sum(row.entries for row in self.caches)

    def __str__(self) -> str:
        numbers = [[row.entries, row.bytes, row.hits, row.misses] for row in self.caches if row.entries]
        total = [sum(column) for column in zip(*numbers, strict=True)] or [0] * 4
        names = ["cache", *(row.name for row in self.caches if row.entries), f"all, of {self.budget}"]
        cells = [["entries", "bytes", "hits", "misses"], *numbers, total]
        width = max(map(len, names))
        lines = zip(names, cells, strict=True)
        return "\n".join(f"{name:<{width}}" + "".join(f"{cell:>10}" for cell in line) for name, line in lines)


def cache_info() -> CacheInfo:
    """Return what the caches of the package hold: of each the entries, about how many bytes, the hits and the misses.

    The bytes are an estimate, from the latest results of each cache; what two caches share is counted once.

    >>> from shardwise import DeviceMesh, P, cache_info, plan_reshard
    >>> _ = plan_reshard(P("x"), P(), (8,), "int8", mesh=DeviceMesh((4,), ("x",)))
    >>> info = cache_info()
    >>> info.entries > 0, 0 < info.bytes < info.budget, info.caches[0].bytes >= info.caches[-1].bytes
    (True, True, True)
    """
    rows, seen = list[CacheRow](), set[int]()
    for name, (remembering, samples) in _caches.items():
        hits, misses, most, entries = remembering.cache_info()
        latest = list(samples)
        size = ENTRY + sum(_weigh(value, seen) for value in latest) // max(1, len(latest))
        rows.append(CacheRow(name, entries, most or 0, entries * size, hits, misses))
    return CacheInfo(tuple(sorted(rows, key=lambda row: -row.bytes)), BUDGET)


def _weigh(value: object, seen: set[int]) -> int:
    # The bytes of a value and of all that it refers to and nobody else owns.
    total, waiting = 0, [value]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, SHARED):
            continue
        seen.add(id(one))
        total += sys.getsizeof(one, ENTRY)
        waiting += gc.get_referents(one)
    return total


class Interned:
    """A value of which equal ones are the same object, for as long as somebody refers to it.

    No cache owns it: clearing caches forgets none that is in use, so that `is` says what `==` would.

    >>> from shardwise import DeviceMesh, clear_caches
    >>> mesh = DeviceMesh((2,), ("x",))
    >>> clear_caches()
    >>> DeviceMesh((2,), ("x",)) is mesh
    True
    """

    __slots__ = ()


SHARED = (Interned, type, ModuleType, FunctionType, BuiltinFunctionType)


def intern(cls: type[T], **values: Hashable) -> T:
    """Return the object of a class that has these values, made now if there is none that is in use.

    >>> class Name: ...
    >>> first = intern(Name, text="x")
    >>> intern(Name, text="x") is first, intern(Name, text="y") is first
    (True, False)
    """
    key = (cls, *values.values())
    with _lock:
        one = _interned.get(key)
        if one is None:
            one = object.__new__(cls)
            for name, value in values.items():
                object.__setattr__(one, name, value)
            # It goes in when it is whole: a fork may come at any moment. A finalizer may have made another meanwhile.
            one = _interned.setdefault(key, one)
    return one


_interned: WeakValueDictionary[Hashable, Any] = WeakValueDictionary()
_lock = make_lock()
