"""Spans: parts of one dim between two bounds, as arithmetic or arrays, with the slots that have them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shardwise.errors import seal
from shardwise.layout.tiling import DimTiling, Interval
from shardwise.plan.slot_grid import Digits


@seal
@dataclass(frozen=True, slots=True)
class Span:
    """What some parts of a dim have of the interval from `low` to `high`; `digits` are those of the axes that split it.

    >>> span = Span.over(DimTiling(10, 4), 2, 7, ((6, 2), (1, 2)))
    >>> [span.interval(k) for k in range(len(span.parts))], [span.offset(k) for k in range(len(span.parts))]
    ([(2, 3), (3, 6), (6, 7)], [0, 1, 6])
    >>> span.intervals, span.offsets, span.find(2), span.find(3)
    ((array([2, 3, 6]), array([3, 6, 7])), array([0, 1, 6]), 2, None)
    """

    tiling: DimTiling
    parts: range | np.ndarray
    low: int
    high: int
    digits: Digits = ()

    @classmethod
    def over(cls, tiling: DimTiling, low: int, high: int, digits: Digits = ()) -> Span:
        """Return the parts that hold something of an interval."""
        parts = tiling.holding(low, high)
        if tiling.offsets is not None:  # some in between may be empty
            starts, stops = _extents(tiling, np.arange(parts.start, parts.stop))
            kept = np.flatnonzero(np.minimum(stops, high) > np.maximum(starts, low)) + parts.start
            return cls(tiling, kept, low, high, digits)
        while parts and not _meets(tiling.extent(parts[0]), low, high):
            parts = parts[1:]
        while parts and not _meets(tiling.extent(parts[-1]), low, high):
            parts = parts[:-1]
        return cls(tiling, parts, low, high, digits)

    @classmethod
    def whole(cls, interval: Interval) -> Span:
        """Return one part that is an interval, which everybody has.

        >>> Span.whole((3, 5)).interval(0)
        (3, 5)
        """
        return cls(DimTiling(interval[1], 1), range(1), *interval)

    def __len__(self) -> int:
        return len(self.parts)

    def interval(self, k: int) -> Interval:
        """Return what the k-th part has."""
        start, stop = self.tiling.extent(int(self.parts[k]))
        return max(start, self.low), min(stop, self.high)

    def offset(self, k: int) -> int:
        """Return the part of a slot that its positions along the axes of the dim make up, for the k-th part."""
        if not self.digits:
            return 0
        out, part = 0, int(self.parts[k])
        for divisor, size in reversed(self.digits):
            part, position = divmod(part, size)
            out += position * divisor
        return out

    def find(self, part: int) -> int | None:
        """Return which of the parts it is, or None."""
        if isinstance(self.parts, range):
            return part - self.parts.start if part in self.parts else None
        k = int(np.searchsorted(self.parts, part))
        return k if k < len(self.parts) and self.parts[k] == part else None

    # -- all of them -------------------------------------------------------------------------------

    @property
    def _array(self) -> np.ndarray:
        parts = self.parts
        return np.arange(parts.start, parts.stop, dtype=np.int64) if isinstance(parts, range) else parts

    @property
    def intervals(self) -> tuple[np.ndarray, np.ndarray]:
        """What the parts have, as starts and stops."""
        starts, stops = _extents(self.tiling, self._array)
        return np.maximum(starts, self.low), np.minimum(stops, self.high)

    @property
    def offsets(self) -> np.ndarray:
        """The `offset` of every part."""
        part = self._array
        out = np.zeros(len(part), dtype=np.int64)
        for divisor, size in reversed(self.digits):
            part, position = part // size, part % size
            out += position * divisor
        return out

    @property
    def size(self) -> int:
        """How many elements the parts have together, counted as often as they are held."""
        if len(self.parts) == 1:
            start, stop = self.interval(0)
            return stop - start
        if isinstance(self.parts, range) and self.tiling.halo == (0, 0):
            return self.interval(-1)[1] - self.interval(0)[0] if self.parts else 0
        starts, stops = self.intervals
        return int((stops - starts).sum())

    @property
    def lengths(self) -> tuple[int, ...]:
        """The different lengths of what the parts have."""
        if len(self.parts) == 1:
            return (self.size,)
        starts, stops = self.intervals
        return tuple(np.unique(stops - starts).tolist())

    # -- some of them ------------------------------------------------------------------------------

    def is_alike(self, marks: Digits, positions: tuple[int, ...]) -> bool:
        """Whether every part is at these positions along axes that split the dim, given as digits of parts."""
        if not len(self.parts):
            return True
        first, last = int(self.parts[0]), int(self.parts[-1])
        return all(
            first // below == last // below and first // below % size == position
            for (below, size), position in zip(marks, positions, strict=True)
        )

    def at(self, marks: Digits, positions: tuple[int, ...]) -> Span:
        """Return those parts that are at some positions along axes that split the dim, given as digits of parts.

        >>> Span.over(DimTiling(8, 8), 0, 8).at(((2, 2),), (1,)).parts
        array([2, 3, 6, 7])
        """
        if self.is_alike(marks, positions):
            return self
        parts = self._array
        for (below, size), position in zip(marks, positions, strict=True):
            parts = parts[parts // below % size == position]
        return Span(self.tiling, parts, self.low, self.high, self.digits)


def _meets(interval: Interval, low: int, high: int) -> bool:
    return max(interval[0], low) < min(interval[1], high)


def _extents(tiling: DimTiling, parts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # `DimTiling.extent` of many parts.
    starts, stops = _starts(tiling, parts), _starts(tiling, parts + 1)
    low, high = tiling.halo
    if tiling.edge == "pad":
        return starts - low, stops + high
    return starts - np.where(parts > 0, low, 0), stops + np.where(parts + 1 < tiling.parts, high, 0)


def _starts(tiling: DimTiling, parts: np.ndarray) -> np.ndarray:
    if tiling.offsets is not None:
        return np.array(tiling.offsets, dtype=np.int64)[parts]
    if tiling.split == "chunk":
        return np.minimum(parts * -(-tiling.size // tiling.parts), tiling.size)
    width, longer = divmod(tiling.size, tiling.parts)
    return parts * width + np.minimum(parts, longer)
