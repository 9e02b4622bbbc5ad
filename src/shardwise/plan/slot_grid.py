"""Slot grids: the slots along some axes of a mesh, as arithmetic: a million of them take no more than eight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import gcd, lcm, prod
from typing import cast, overload

import numpy as np

from shardwise.caches import cache
from shardwise.errors import seal

Digits = tuple[tuple[int, int], ...]  # (divisor, size) of axes, major to minor: a slot is at slot // divisor % size


@seal
@dataclass(frozen=True, slots=True, eq=False)
class SlotGrid(Sequence[int]):
    """The slots from `first`, which is at position 0, along the axes of `digits`; of these, those of a `window`.

    >>> grid = SlotGrid(2, ((8, 2), (1, 2)))
    >>> list(grid), grid[2], grid.index(11), 4 in grid, grid[1:3].array
    ([2, 3, 10, 11], 10, 3, False, array([ 3, 10]))
    >>> list(grid.intersect(SlotGrid(0, ((2, 8),))))
    [2, 10]
    """

    first: int
    digits: Digits = ()
    window: range | None = None

    def __len__(self) -> int:
        return prod([size for _, size in self.digits]) if self.window is None else len(self.window)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> SlotGrid: ...
    def __getitem__(self, index: int | slice) -> int | SlotGrid:
        if isinstance(index, slice):
            window = range(len(self)) if self.window is None else self.window
            return SlotGrid(self.first, self.digits, window[index])
        at = range(len(self))[index] if self.window is None else self.window[index]
        slot = self.first
        for divisor, size in reversed(self.digits):
            at, position = divmod(at, size)
            slot += position * divisor
        return slot

    def __iter__(self) -> Iterator[int]:
        if self.window is not None:
            return (self[index] for index in range(len(self)))
        if not self.digits:
            return iter((self.first,))
        (divisor, size), rest = self.digits[-1], self.digits[:-1]
        if not rest:
            return iter(range(self.first, self.first + size * divisor, divisor))
        steps = range(0, size * divisor, divisor)
        return (first + step for first in SlotGrid(self.first, rest) for step in steps)

    def __contains__(self, slot: object) -> bool:
        if not isinstance(slot, int) or slot - project(self.digits, slot) != self.first:
            return False
        return self.window is None or self._place(slot) in self.window

    def index(self, slot: int, start: int = 0, stop: int | None = None) -> int:
        """Return where a slot is in the grid."""
        if slot not in self:
            raise ValueError(f"slot {slot} is not in {self}.")
        place = self._place(slot)
        return place if self.window is None else self.window.index(place)

    def _place(self, slot: int) -> int:
        place = 0
        for divisor, size in self.digits:
            place = place * size + slot // divisor % size
        return place

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        slots = cast("Sequence[object]", other)
        return len(self) == len(slots) and all(a == b for a, b in zip(self, slots, strict=True))

    @property
    def array(self) -> np.ndarray:
        """The slots as an array."""
        out = np.array([self.first], dtype=np.int64)
        for divisor, size in self.digits:
            out = (out[:, None] + np.arange(size, dtype=np.int64) * divisor).ravel()
        return out if self.window is None else out[self.window.start : self.window.stop : self.window.step]

    def intersect(self, other: SlotGrid) -> Sequence[int]:
        """Return the slots that are in another grid too, in the same order; listed only where axes cross."""
        shared = common_digits(self.digits, other.digits)
        if shared is None or self.window is not None or other.window is not None:
            return [slot for slot in self if slot in other]
        first = self.first + project(self.digits, other.first)
        return SlotGrid(first, shared) if first in other else ()


def project(digits: Digits, slot: int) -> int:
    """Return the part of a slot that its positions along some axes make up.

    >>> project(((8, 2), (1, 2)), 15)
    9
    """
    total = 0
    for divisor, size in digits:
        total += slot // divisor % size * divisor
    return total


@cache()
def common_digits(a: Digits, b: Digits) -> Digits | None:
    """Return the factors that the axes of two grids share, in the order of the first; None where they cross.

    >>> common_digits(((2, 8),), ((8, 2), (1, 2))), common_digits(((1, 4),), ((1, 6),))
    (((8, 2),), None)
    """
    shared: list[tuple[int, int]] = []
    for one in a:
        inside = sorted(filter(None, (_common(one, other) for other in b)), reverse=True)
        rest = _without(one, inside)
        if any(_overlap(piece, other) for piece, other in product(rest, b)):
            return None
        shared += inside
    return tuple(shared)


def _common(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int] | None:
    low, high = lcm(a[0], b[0]), gcd(a[0] * a[1], b[0] * b[1])
    return (low, high // low) if low < high and high % low == 0 else None


def _without(whole: tuple[int, int], inside: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    # What is left of an axis without some factors of it, which are given major first.
    out: list[tuple[int, int]] = []
    divisor, end = whole[0], whole[0] * whole[1]
    for low, size in inside:
        if low * size < end:
            out.append((low * size, end // (low * size)))
        end = low
    return [*out, (divisor, end // divisor)] if divisor < end else out


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    minor, major = sorted((a, b))
    return major[0] % (minor[0] * minor[1]) != 0


def find_alike(slots: Sequence[int], digits: Digits, like: int) -> np.ndarray | None:
    """Return the indices of those slots that stand where `like` does along the axes of `digits`; None for all.

    >>> find_alike(SlotGrid(0, ((1, 6),)), ((1, 2),), 3), find_alike(SlotGrid(1, ((2, 3),)), ((1, 2),), 3)
    (array([1, 3, 5]), None)
    """
    if not digits:
        return None
    if isinstance(slots, SlotGrid) and common_digits(slots.digits, digits) == ():
        is_alike = project(digits, slots.first) == project(digits, like)
        return None if is_alike else np.empty(0, dtype=np.int64)
    array = slots.array if isinstance(slots, SlotGrid) else np.array(slots, dtype=np.int64)
    alike = np.ones(len(array), dtype=bool)
    for divisor, size in digits:
        alike &= array // divisor % size == like // divisor % size
    return np.flatnonzero(alike)
