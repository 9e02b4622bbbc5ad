"""Sequences of transfers: those of one device, of which there may be millions, worked out where they are looked at."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, NamedTuple, cast, overload

import numpy as np

from shardwise.caches import cached_property
from shardwise.plan.cells import Cells, Columns
from shardwise.plan.transfer import DeviceName, Transfer

SHOWN = 1000  # items up to which a sequence is written in full


class TransferArrays(NamedTuple):
    """Transfers as arrays, a row for each: who sends, who receives, and where the box starts and stops in every dim.

    Devices are numbers: the index in the mesh of the source layout or, where two meshes meet that say nothing about
    each other, the place among the devices of both, those of the source first.
    """

    sources: np.ndarray
    targets: np.ndarray
    starts: np.ndarray
    stops: np.ndarray


@dataclass(frozen=True)
class Segment:
    """Boxes that slot `slot` receives, or sends, with the slots at the other end."""

    slot: int
    is_inward: bool
    boxes: Cells | Sequence[tuple[int, Any]]

    def __len__(self) -> int:
        return len(self.boxes)

    @property
    def room(self) -> int:
        """How many rows `write` needs, of which it fills the first ones."""
        return self.boxes.room if isinstance(self.boxes, Cells) else len(self.boxes)

    @property
    def size(self) -> int:
        """How many elements the boxes have."""
        boxes = self.boxes
        return boxes.size if isinstance(boxes, Cells) else sum(Transfer(0, 0, box).size for _, box in boxes)

    def transfer(self, other: int, box: Any) -> Transfer[int]:
        """Return a box as a transfer from or to a slot."""
        return Transfer(other, self.slot, box) if self.is_inward else Transfer(self.slot, other, box)

    def write(self, out: Columns) -> None:
        """Write all boxes into the first rows of arrays, which have `room` for them."""
        if isinstance(self.boxes, Cells):
            self.boxes.write(out)
            return
        for k, (other, box) in enumerate(self.boxes):
            out.slots[k] = other
            for dim, (start, stop) in enumerate(box):
                out.starts[dim, k], out.stops[dim, k] = start, stop


def list_segment(slot: int, is_inward: bool, transfers: Iterator[Transfer[int]]) -> list[Segment]:
    """Return transfers of a slot, which are listed, as a segment."""
    return [Segment(slot, is_inward, [(t.source if is_inward else t.target, t.box) for t in transfers])]


@dataclass(frozen=True, eq=False, repr=False)
class Transfers(Sequence[Transfer[DeviceName]]):
    """The transfers that concern one device, in order: its length and any item are there at once, however many.

    It is like a list, and is equal to one with the same items. `arrays` has all of it at once, for millions.

    >>> from shardwise import DeviceMesh, P, plan_reshard
    >>> mesh = DeviceMesh((1024, 1024), ("x", "y"))
    >>> plan = plan_reshard(P(unreduced=["x", "y"]), P(), (2**21,), "float32", mesh=mesh)
    >>> (transfers,) = plan.transfers(5)
    >>> len(transfers), transfers[2_500_000]
    (4194300, Transfer(source=402851, target=5, box=((805702, 805704),)))
    >>> transfers.arrays().starts.shape
    (4194300, 1)
    """

    segments: tuple[Segment, ...]
    rank: int = 0
    dtype: type[np.signedinteger[Any]] = np.int64  # of the arrays: the smaller, the sooner they are there
    name: Callable[[int], DeviceName] | None = None
    reverses: bool = False

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(map(len, self.segments)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> Transfer[DeviceName]: ...
    @overload
    def __getitem__(self, index: slice) -> list[Transfer[DeviceName]]: ...
    def __getitem__(self, index: int | slice) -> Transfer[DeviceName] | list[Transfer[DeviceName]]:
        if isinstance(index, slice):
            return [self[at] for at in range(len(self))[index]]
        try:
            at = range(len(self))[index]
        except IndexError:
            raise IndexError(f"there are {len(self)} transfers, so no item {index}.") from None
        which = bisect_right(self._ends, at)
        segment = self.segments[which]
        return self._show(segment, *segment.boxes[at - self._ends[which] + len(segment)])

    def __iter__(self) -> Iterator[Transfer[DeviceName]]:
        return (self._show(segment, *item) for segment in self.segments for item in segment.boxes)

    def _show(self, segment: Segment, other: int, box: Any) -> Transfer[DeviceName]:
        source, target, _ = segment.transfer(other, box)
        if self.reverses:
            source, target = target, source
        name = self.name
        return Transfer(source, target, box) if name is None else Transfer(name(source), name(target), box)

    def arrays(self) -> TransferArrays:
        """Return all transfers as arrays: sources, targets, and the starts and stops of the boxes, a row for each."""
        rows, stop = len(self), 0
        ends_and_parts = zip(self._ends, self.segments, strict=True)
        room = max((end - len(part) + part.room for end, part in ends_and_parts), default=0)
        table = np.empty((2 + 2 * self.rank, room), dtype=self.dtype)
        ends, starts, stops = table[:2], table[2 : 2 + self.rank], table[2 + self.rank :]
        for segment in self.segments:
            start, stop = stop, stop + len(segment)
            own = int(segment.is_inward)
            ends[own, start:stop] = segment.slot
            segment.write(Columns(ends[1 - own, start:], starts[:, start:], stops[:, start:]))
        sources, targets = ends[::-1, :rows] if self.reverses else ends[:, :rows]
        return TransferArrays(sources, targets, starts[:, :rows].T, stops[:, :rows].T)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (Transfers, list)):
            return NotImplemented
        items = cast("Sequence[Any]", other)
        return len(self) == len(items) and all(a == b for a, b in zip(self, items, strict=True))

    def __repr__(self) -> str:
        if len(self) <= SHOWN:
            return repr(list(self))
        return f"[{', '.join(map(repr, self[:3]))}, ... {len(self)} in all]"


def chain(parts: Sequence[Transfers]) -> Transfers:
    """Return several sequences of one device, one after the other."""
    segments = tuple(segment for part in parts for segment in part.segments)
    return replace(parts[0], segments=segments) if parts else Transfers(())
