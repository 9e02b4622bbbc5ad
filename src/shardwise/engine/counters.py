"""Counters: what an engine really did, counted where it does it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


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

    @property
    def total(self) -> int:
        """All bytes between devices."""
        return sum(self.bytes_moved.values())

    def reset(self) -> None:
        """Start from zero."""
        self.bytes_moved.clear()
        self.bytes_sent = self.copies = self.bytes_copied = self.kernel_calls = self.bytes_allocated = 0

    def add(self, other: Counters) -> None:
        """Add what another thread counted."""
        add_up(self.bytes_moved, other.bytes_moved.items())
        self.bytes_sent += other.bytes_sent
        self.copies += other.copies
        self.bytes_copied += other.bytes_copied
        self.kernel_calls += other.kernel_calls
        self.bytes_allocated += other.bytes_allocated
