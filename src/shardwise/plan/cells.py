"""Cells: boxes in a grid, each with a grid of slots that it comes from or goes to, worked out where they are looked at.

A device talks about cells of the tensor: those that tiles of one layout have in common with its own tile of the other.
Of each cell either every slot of a grid gets, or has, all of it, or each has one of nearly equal portions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from shardwise.caches import cached_property
from shardwise.layout.tiling import Box, box_size
from shardwise.plan.portions import Portions
from shardwise.plan.slot_grid import SlotGrid
from shardwise.plan.span import Span


class Columns(NamedTuple):
    """Boxes as arrays, one row each: the slot at the other end, and where they start and stop in every dim.

    `starts` and `stops` have a row per dim, so that what is known of one dim lies together.
    """

    slots: np.ndarray
    starts: np.ndarray
    stops: np.ndarray


class Patch(NamedTuple):
    """What there is instead of one box: that of slot `slots[at]` in the cell with the `place`-th part of each dim."""

    place: tuple[int, ...]
    at: int
    boxes: tuple[Box, ...] = ()


@dataclass(frozen=True)
class Cells:
    """The boxes that one slot exchanges with others, cell by cell, and slot by slot within a cell.

    A cell is a part of every span. The slot at the other end is one of `slots` plus the offsets of the parts. With
    `shares` each has one portion of the cell, and `picks` are the indices of those that count; else each has all of it.

    >>> from shardwise.layout.tiling import DimTiling
    >>> some = Cells((Span.over(DimTiling(4, 2), 0, 4, ((2, 2),)),), SlotGrid(0, ((1, 2),)), shares=True)
    >>> len(some), list(some), some[2], some.size
    (4, [(0, ((0, 1),)), (1, ((1, 2),)), (2, ((2, 3),)), (3, ((3, 4),))], (2, ((2, 3),)), 4)
    >>> len(Cells(some.spans, some.slots, patches=(Patch((0,), 1),)))
    3
    """

    spans: tuple[Span, ...]
    slots: SlotGrid
    shares: bool = False
    picks: np.ndarray | None = None
    patches: tuple[Patch, ...] = ()

    @classmethod
    def of_box(cls, box: Box, slots: SlotGrid, without: int | None = None) -> Cells:
        """Return one box that every slot of a grid gets, or has, but one.

        >>> list(Cells.of_box(((3, 5),), SlotGrid(0, ((1, 3),)), without=1))
        [(0, ((3, 5),)), (2, ((3, 5),))]
        """
        patches = (Patch((0,) * len(box), slots.index(without)),) if without is not None and without in slots else ()
        return cls(tuple(map(Span.whole, box)), slots, patches=patches)

    # -- how many ----------------------------------------------------------------------------------

    @cached_property
    def _counts(self) -> tuple[int, ...]:
        return tuple(map(len, self.spans))

    @cached_property
    def _cells(self) -> int:
        return prod(self._counts)

    @cached_property
    def _kinds(self) -> dict[tuple[int, ...], Portions]:
        # The portions of cells, by the lengths that cells have.
        lengths = product(*(span.lengths for span in self.spans)) if self._cells else ()
        return {kind: Portions(kind, len(self.slots), self.picks) for kind in lengths}

    @cached_property
    def _each(self) -> int | None:
        # How many boxes every cell has; None if that differs.
        if not self.shares:
            return len(self.slots)
        counts = set(map(len, self._kinds.values()))
        return counts.pop() if len(counts) == 1 else None

    @cached_property
    def _ends(self) -> np.ndarray:
        # How many boxes there are up to the end of each cell, where cells have different numbers of them.
        out = np.zeros(self._cells, dtype=np.int64)
        for portions, cells in self._cells_by_kind:
            out[cells] = len(portions)
        return np.cumsum(out)

    @property
    def _cells_by_kind(self) -> Iterator[tuple[Portions, np.ndarray]]:
        lengths = self._spread([stops - starts for starts, stops in (span.intervals for span in self.spans)])
        for kind, portions in self._kinds.items():
            is_kind = np.ones(self._cells, dtype=bool)
            for own, length in zip(lengths, kind, strict=True):
                is_kind &= own == length
            yield portions, np.flatnonzero(is_kind)

    @cached_property
    def _total(self) -> int:
        # How many boxes there are, patches not counted.
        if not self._cells:
            return 0
        return int(self._ends[-1]) if self._each is None else self._cells * self._each

    @cached_property
    def _patches(self) -> list[tuple[int, tuple[Box, ...]]]:
        # Which box is replaced by which, in order.
        places = ((self._ordinal(patch), patch.boxes) for patch in self.patches)
        return sorted((at, boxes) for at, boxes in places if at is not None)

    def _ordinal(self, patch: Patch) -> int | None:
        cell = 0
        for k, count in zip(patch.place, self._counts, strict=True):
            cell = cell * count + k
        at = self._portions(patch.place).find(patch.at) if self.shares else patch.at
        return None if at is None else self._begin(cell) + at

    def _begin(self, cell: int) -> int:
        if self._each is not None:
            return cell * self._each
        return int(self._ends[cell - 1]) if cell else 0

    def __len__(self) -> int:
        return self._total + sum(len(boxes) - 1 for _, boxes in self._patches)

    @property
    def size(self) -> int:
        """How many elements the boxes have."""
        total = prod(span.size for span in self.spans)
        if not self.shares:
            total *= len(self.slots)
        elif self.picks is not None:
            total = sum(portions.size * len(cells) for portions, cells in self._cells_by_kind)
        return total + sum(sum(map(box_size, boxes)) - box_size(self._at(at)[1]) for at, boxes in self._patches)

    # -- one of them -------------------------------------------------------------------------------

    def __getitem__(self, index: int) -> tuple[int, Box]:
        """Return a slot and its box."""
        at = range(len(self))[index]
        for patched, boxes in self._patches:
            if at < patched:
                break
            if at < patched + len(boxes):
                return self._at(patched)[0], boxes[at - patched]
            at += 1 - len(boxes)
        return self._at(at)

    def _at(self, at: int) -> tuple[int, Box]:
        # As if there were no patches.
        if self._each is not None:
            cell, k = divmod(at, self._each)
        else:
            cell = int(np.searchsorted(self._ends, at, side="right"))
            k = at - self._begin(cell)
        place: list[int] = []
        for count in reversed(self._counts):
            cell, part = divmod(cell, count)
            place.append(part)
        place.reverse()
        first = sum(span.offset(part) for span, part in zip(self.spans, place, strict=True))
        box = tuple(span.interval(part) for span, part in zip(self.spans, place, strict=True))
        if not self.shares:
            return first + self.slots[k], box
        portions = self._kinds[tuple(stop - start for start, stop in box)]
        return first + self.slots[portions.index(k)], _shift(portions.box(k), box)

    def _portions(self, place: Sequence[int]) -> Portions:
        intervals = (span.interval(part) for span, part in zip(self.spans, place, strict=True))
        return self._kinds[tuple(stop - start for start, stop in intervals)]

    def __iter__(self) -> Iterator[tuple[int, Box]]:
        patches = iter([*self._patches, (self._total, ())])
        patched, boxes = next(patches)
        for at, (slot, box) in enumerate(self._walk()):
            if at == patched:
                yield from ((slot, own) for own in boxes)
                patched, boxes = next(patches)
            else:
                yield slot, box

    def _walk(self) -> Iterator[tuple[int, Box]]:
        # As if there were no patches.
        parts = [[(span.interval(k), span.offset(k)) for k in range(len(span))] for span in self.spans]
        slots = self.slots if len(self.slots) > 64 else list(self.slots)
        for cell in product(*parts):
            box, first = tuple(interval for interval, _ in cell), sum(offset for _, offset in cell)
            if self.shares:
                portions = self._kinds[tuple(stop - start for start, stop in box)]
                for k in range(len(portions)):
                    yield first + slots[portions.index(k)], _shift(portions.box(k), box)
            else:
                for slot in slots:
                    yield first + slot, box

    # -- all of them -------------------------------------------------------------------------------

    def _spread(self, tables: Iterable[np.ndarray]) -> list[np.ndarray]:
        # Per dim, what a table says of its parts, for every cell.
        rank, out = len(self._counts), list[np.ndarray]()
        for dim, table in enumerate(tables):
            shape = [1] * rank
            shape[dim] = len(table)
            out.append(np.broadcast_to(table.reshape(shape), self._counts).ravel())
        return out

    @property
    def room(self) -> int:
        """How many rows `write` needs, of which it fills the first ones."""
        return self._total + sum(max(0, len(boxes) - 1) for _, boxes in self._patches)

    def write(self, out: Columns) -> None:
        """Write all boxes into the first rows of arrays, which have `room` for them."""
        if not self._cells:
            return
        first = sum(self._spread([span.offsets for span in self.spans]), np.zeros(self._cells, dtype=np.int64))
        bounds = [span.intervals for span in self.spans]
        corners = [self._spread([pair[i] for pair in bounds]) for i in range(2)]
        if not self.shares:
            shape, same = (len(self.slots),), np.zeros(1, dtype=np.int64)
            self._fill(out.slots, shape, first, self.slots.array)
            for dim in range(len(self.spans)):
                self._fill(out.starts[dim], shape, corners[0][dim], same)
                self._fill(out.stops[dim], shape, corners[1][dim], same)
        elif self._each is not None and len(self._kinds) == 1:
            (portions,) = self._kinds.values()
            self._fill(out.slots, portions.shape, first, portions.choose(self.slots.array))
            for dim in range(len(self.spans)):
                for column, bound in zip((out.starts[dim], out.stops[dim]), portions.bounds(dim), strict=True):
                    self._fill(column, portions.shape, corners[0][dim], bound)
        else:
            self._write_kinds(out, first, corners[0])
        self._patch(out)

    def _fill(self, column: np.ndarray, shape: tuple[int, ...], firsts: np.ndarray, steps: np.ndarray) -> None:
        # Without arrays in between: touching fresh memory takes longer than all else.
        table = column[: self._total].reshape(self._cells, *shape)
        np.add(firsts.reshape(-1, *[1] * len(shape)), steps, out=table, casting="unsafe")

    def _write_kinds(self, out: Columns, first: np.ndarray, starts: Sequence[np.ndarray]) -> None:
        begins = np.arange(self._cells) * self._each if self._each is not None else np.append(0, self._ends[:-1])
        slots = self.slots.array
        for portions, cells in self._cells_by_kind:
            rows = begins[cells][:, None] + np.arange(len(portions))
            out.slots[rows] = first[cells][:, None] + portions.choose(slots).ravel()
            for dim in range(len(self.spans)):
                for column, bound in zip((out.starts[dim], out.stops[dim]), portions.bounds(dim), strict=True):
                    own = np.broadcast_to(bound, portions.shape).ravel()
                    column[rows] = starts[dim][cells][:, None] + own

    def _patch(self, out: Columns) -> None:
        # The last first, so that what comes before stays where it is.
        total = self._total
        for at, boxes in reversed(self._patches):
            slot, more = out.slots[at], len(boxes) - 1
            for column in (out.slots, *out.starts, *out.stops):
                if more:
                    column[at + 1 + more : total + more] = column[at + 1 : total]
            total += more
            out.slots[at : at + len(boxes)] = slot
            for k, box in enumerate(boxes):
                for dim, (start, stop) in enumerate(box):
                    out.starts[dim, at + k], out.stops[dim, at + k] = start, stop


def _shift(box: Box, by: Box) -> Box:
    return tuple((start + low, stop + low) for (start, stop), (low, _) in zip(box, by, strict=True))
