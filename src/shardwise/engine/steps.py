"""Steps: the iterations of the user's loop, so that calls of different ones are told apart.

A process that skips an iteration, or enters one twice, comes to calls that look like those of the others, one off. So
each step has a number and is counted, within the step around it, and both travel with every call between processes.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import TracebackType
from typing import NamedTuple

from shardwise.engine.farewell import note_error
from shardwise.errors import ArgumentError, as_int

LIMIT = 1 << 63


class Place(NamedTuple):
    """The number that the user gave to a step, or its place among those that were entered; and this place, from 1."""

    number: int
    entry: int


class _Level:
    # Where a process is: in a step, or outside of all; and how many it has entered there.
    __slots__ = ("count", "path", "text")

    def __init__(self, path: tuple[Place, ...]) -> None:
        self.path, self.count = path, 0
        self.text = path_text(path)


_level: ContextVar[_Level | None] = ContextVar("step", default=None)


def step(number: int | None = None) -> AbstractContextManager[None]:
    """Mark an iteration of your loop, so that calls of different iterations never pair off between processes.

    `with sw.step(i):` around what an iteration does gives its number; without one, iterations are counted from 0. A
    process that skipped one, perhaps since it caught an error, would come to the calls of the next while others are
    still in this one: they look alike, and results would be wrong in silence. With steps it is a `CollectiveMismatch`
    that names both iterations. Steps nest; all processes enter the same ones.

    >>> import shardwise as sw
    >>> for i in range(100, 103):
    ...     with sw.step(i):
    ...         loss = sw.asarray([1.0 * i]).sum()
    >>> sw.step("5")
    Traceback (most recent call last):
    shardwise.ArgumentError: step takes the number of an iteration, an int, or nothing, got '5'.
    """
    whole = None if number is None else as_int(number)
    if number is not None and (whole is None or not -LIMIT <= whole < LIMIT):
        kind = "an int" if whole is None else "an int of 64 bits"
        raise ArgumentError(f"step takes the number of an iteration, {kind}, or nothing, got {number!r}.")
    return _Block(whole)


class _Block:
    __slots__ = ("_number", "_outer")

    def __init__(self, number: int | None) -> None:
        self._number, self._outer = number, list[_Level]()

    def __enter__(self) -> None:
        outer = _level.get() or _Level(())
        number = outer.count if self._number is None else self._number
        outer.count += 1
        self._outer.append(outer)
        _level.set(_Level((*outer.path, Place(number, outer.count))))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            note_error(error, f", out of {describe(current_path())}")
        _level.set(self._outer.pop())


def current_path() -> tuple[Place, ...]:
    """Return the steps that this thread is in, from the outermost on.

    >>> with step(7), step():
    ...     [place.number for place in current_path()]
    [7, 0]
    """
    level = _level.get()
    return () if level is None else level.path


def current_text() -> bytes:
    """Return the same as bytes that travel: two processes are in the same steps if these are equal."""
    level = _level.get()
    return b"" if level is None else level.text


def path_text(path: tuple[Place, ...]) -> bytes:
    """Return the bytes that travel for some steps.

    >>> path_text((Place(3, 4), Place(0, 1)))
    b'3 4 0 1'
    """
    return " ".join(f"{number} {entry}" for number, entry in path).encode()


def read_path(text: bytes) -> tuple[Place, ...]:
    """Return the steps that some bytes tell of; raise ValueError if they tell of none.

    >>> read_path(b"3 4 0 1")
    (Place(number=3, entry=4), Place(number=0, entry=1))
    """
    numbers = [int(word) for word in text.split()]
    if len(numbers) % 2:
        raise ValueError(f"not the numbers of steps: {text!r}")
    return tuple(map(Place, numbers[::2], numbers[1::2]))


def describe(path: tuple[Place, ...]) -> str:
    """Return the iteration in words.

    >>> describe((Place(5, 1),)), describe((Place(3, 4), Place(0, 1))), describe(())
    ('iteration 5 (entry 1)', 'iteration 3, 0 (entries 4, 1)', 'no iteration')
    """
    if not path:
        return "no iteration"
    numbers, entries = (", ".join(map(str, some)) for some in zip(*path, strict=True))
    return f"iteration {numbers} ({'entry' if len(path) == 1 else 'entries'} {entries})"
