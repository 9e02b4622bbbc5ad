"""Counters: what an engine really did, counted where it does it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from threading import get_ident, local
from typing import Any


def add_up(totals: dict[str, int], traffic: Iterable[tuple[str, int]]) -> None:
    """Add bytes by kind of step to totals.

    >>> totals = {"all_gather": 64}
    >>> add_up(totals, [("permute", 8), ("all_gather", 6)])
    >>> totals
    {'all_gather': 70, 'permute': 8}
    """
    for kind, size in traffic:
        totals[kind] = totals.get(kind, 0) + size


@dataclass
class Counters:
    """Bytes that devices here received by kind of step, copies made and their bytes, kernel calls, bytes allocated.

    >>> counters = Counters()
    >>> counters.count_moved("all_gather", 64)
    >>> counters.bytes_moved, counters.total
    ({'all_gather': 64}, 64)
    """

    bytes_moved: dict[str, int] = field(default_factory=dict[str, int])
    bytes_sent: int = 0  # to other processes
    copies: int = 0
    bytes_copied: int = 0
    kernel_calls: int = 0
    bytes_allocated: int = 0

    def count_moved(self, kind: str, size: int) -> None:
        """Count bytes that went from one device to another."""
        self.bytes_moved[kind] = self.bytes_moved.get(kind, 0) + size

    def count_traffic(self, traffic: Iterable[tuple[str, int]]) -> None:
        """Count bytes that went between devices, by kind of step."""
        for kind, size in traffic:
            self.bytes_moved[kind] = self.bytes_moved.get(kind, 0) + size

    @property
    def total(self) -> int:
        """All bytes between devices."""
        return sum(self.bytes_moved.values())

    def reset(self) -> None:
        """Start from zero."""
        self.bytes_moved.clear()
        self.bytes_sent = self.copies = self.bytes_copied = self.kernel_calls = self.bytes_allocated = 0

    def add(self, other: Counters, times: int = 1) -> None:
        """Add what was counted elsewhere, or take it away again (`times=-1`)."""
        add_up(self.bytes_moved, ((kind, times * size) for kind, size in other.bytes_moved.copy().items()))
        self.bytes_sent += times * other.bytes_sent
        self.copies += times * other.copies
        self.bytes_copied += times * other.bytes_copied
        self.kernel_calls += times * other.kernel_calls
        self.bytes_allocated += times * other.bytes_allocated

    def copy(self) -> Counters:
        """Return what has been counted."""
        out = Counters()
        out.add(self)
        return out

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Counters) and vars(self.copy()) == vars(other.copy())

    @property
    def own(self) -> Counters:
        """The counters that only this thread counts into: these, unless threads share them."""
        return self


def _sum_of(name: str) -> Any:
    def get(counters: SharedCounters) -> Any:
        return getattr(counters.copy(), name)

    def set_(counters: SharedCounters, value: int) -> None:
        own = counters.own
        setattr(own, name, getattr(own, name) + value - get(counters))

    return property(get, set_)


class SharedCounters(Counters):
    """Counters of an engine that threads share: each counts into its own, and who reads gets the sum.

    So no count is lost, and nobody waits.

    >>> from threading import Thread
    >>> counters = SharedCounters()
    >>> threads = [Thread(target=lambda: counters.own.count_moved("permute", 8)) for _ in range(3)]
    >>> for thread in threads:
    ...     thread.start(), thread.join()
    (None, None)
    (None, None)
    (None, None)
    >>> counters.bytes_moved, counters.own.total
    ({'permute': 24}, 0)
    """

    bytes_moved = _sum_of("bytes_moved")  # to read
    bytes_sent = _sum_of("bytes_sent")
    copies = _sum_of("copies")
    bytes_copied = _sum_of("bytes_copied")
    kernel_calls = _sum_of("kernel_calls")
    bytes_allocated = _sum_of("bytes_allocated")

    def __init__(self) -> None:
        """Start from zero."""
        self._parts: dict[int, Counters] = {}
        self._before = Counters()  # what had been counted at the last reset: nobody else writes into a thread's own
        self.of_thread = _OfThread(self._parts)

    @property
    def own(self) -> Counters:
        """The counters that only this thread counts into."""
        return self.of_thread.counters

    def copy(self) -> Counters:
        """Return what all threads have counted since the last reset."""
        out = self._all()
        out.add(self._before, -1)
        for kind in self._before.bytes_moved:
            if not out.bytes_moved[kind]:
                del out.bytes_moved[kind]
        return out

    def _all(self) -> Counters:
        out = Counters()
        for part in self._parts.copy().values():
            out.add(part)
        return out

    def count_moved(self, kind: str, size: int) -> None:
        """Count bytes that went from one device to another."""
        self.own.count_moved(kind, size)

    def count_traffic(self, traffic: Iterable[tuple[str, int]]) -> None:
        """Count bytes that went between devices, by kind of step."""
        self.own.count_traffic(traffic)

    def add(self, other: Counters, times: int = 1) -> None:
        """Add what was counted elsewhere."""
        self.own.add(other, times)

    def reset(self) -> None:
        """Start from zero."""
        self._before = self._all()


class _OfThread(local):
    # The counters of whichever thread looks. A thread that is gone leaves its to the next that gets its number, so that
    # there are never more than threads at a time.

    def __init__(self, parts: dict[int, Counters]) -> None:
        self.counters = parts.setdefault(get_ident(), Counters())
