"""Meetings: where the tiles of two layouts on one mesh meet, and which slots have both, as arithmetic.

A position of a slot along an axis says which part of a dim it has, before or after. Where an axis splits a dim before
and after, a slot may have both of two tiles only if they agree about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from shardwise.caches import cached_property
from shardwise.layout.axis import Axis, common, has_crossing, without
from shardwise.layout.layout import Layout
from shardwise.layout.tiling import Box
from shardwise.plan.cells import Cells, Patch
from shardwise.plan.holders import Holders, Tile
from shardwise.plan.movement import Handover
from shardwise.plan.slot_grid import Digits, SlotGrid, find_alike, project
from shardwise.plan.span import Span

Marks = tuple[tuple[Digits, Digits], ...]  # per dim, the digits of parts and of slots that tell the same positions


@dataclass(frozen=True)
class Meeting:
    """The cells that tiles of two layouts have in common, for the slots that have both.

    >>> from shardwise import DeviceMesh
    >>> mesh = DeviceMesh((1024, 1024), ("x", "y"))
    >>> src, dst = (Holders(Layout(mesh, dims), (4096, 4096)) for dims in (["x", None], [None, None]))
    >>> meeting = Meeting(Handover(src, dst, (), ()))
    >>> meeting.is_regular, len(meeting.cells_of_target(5)), meeting.cells_of_target(5)[7]
    (True, 1048575, (8, ((0, 4), (32, 36))))
    """

    handover: Handover

    @cached_property
    def is_regular(self) -> bool:
        """Whether axes nest, so that all is arithmetic."""
        it = self.handover
        before, after = it.src.layout, it.dst.layout
        if not (it.src.is_on_common_mesh and it.dst.is_on_common_mesh) or before.has_halo or after.has_halo:
            return False
        return not has_crossing(
            (*before.sharded_axes, *it.pending, *it.batch), (*after.sharded_axes, *it.fresh, *it.batch)
        )

    def cells_of_target(self, slot: int) -> Cells | None:
        """Return what others have reduced of what a slot is to have; None where tiles do not agree throughout."""
        it = self.handover
        return self._cells(it.src, it.dst, slot, self._kept, it.fresh, self._inner_fresh)

    def cells_of_source(self, slot: int) -> Cells | None:
        """Return what others reduce of what a slot has; None where tiles do not agree throughout."""
        it = self.handover
        return self._cells(it.dst, it.src, slot, self._given, self.alike, self._inner_alike)

    def agrees(self, slot: int) -> bool:
        """Whether all tiles that meet the new tile of a slot have slots that have both."""
        it = self.handover
        box = it.dst.tiling.tile_box(it.dst.layout.tile_of(slot))
        return self._spans(it.src, box, slot, ()) is not None

    def _cells(
        self, far: Holders, near: Holders, slot: int, own: Digits, picked: tuple[Axis, ...], inner: Digits
    ) -> Cells | None:
        tile, far_tile = near.layout.tile_of(slot), far.layout.tile_of(slot)
        spans = self._spans(far, near.tiling.tile_box(tile), slot, picked)
        if spans is None:
            return None
        slots = SlotGrid(project(own, slot), self._free)
        picks = find_alike(slots, inner, slot)
        place, patches = find_place(spans, far_tile), tuple[Patch, ...]()
        if place is not None:
            patches = (Patch(place, slots.index(slot - find_offset(spans, place))),)
        return Cells(spans, slots, len(slots) > 1 or picks is not None, picks, patches)

    def cells_of_cell(self, box: Box, slots: SlotGrid, slot: int, axes: Digits) -> Cells:
        """Return the portions that others than a slot, at its position along some axes, have of one cell."""
        picks = find_alike(slots, axes, slot)
        patches = (Patch((0,) * len(box), slots.index(slot)),) if slot in slots else ()
        return Cells(tuple(map(Span.whole, box)), slots, len(slots) > 1 or picks is not None, picks, patches)

    def _spans(self, far: Holders, box: Box, slot: int, picked: tuple[Axis, ...]) -> tuple[Span, ...] | None:
        # The parts that meet a box, at the positions of the slot along the axes `picked`; None if some disagree with it
        # about an axis that splits a dim before and after.
        out: list[Span] = []
        agreeing, picking = self._marks(far, self._common), self._marks(far, picked)
        for dim, interval in enumerate(box):
            span = Span.over(far.tiling.dims[dim], *interval, far.tiling.radix[dim])
            marks, digits = agreeing[dim]
            if not span.is_alike(marks, _positions(digits, slot)):
                return None
            marks, digits = picking[dim]
            out.append(span.at(marks, _positions(digits, slot)))
        return tuple(out)

    # -- axes --------------------------------------------------------------------------------------

    @cached_property
    def _common(self) -> tuple[Axis, ...]:
        return common(self.handover.src.layout.sharded_axes, self.handover.dst.layout.sharded_axes)

    @cached_property
    def alike(self) -> tuple[Axis, ...]:
        """The axes along which a contribution goes to slots at the same position only."""
        layout = self.handover.src.layout
        return without(layout.mesh.rest((*layout.sharded_axes, *self.handover.pending)), self.handover.batch)

    @cached_property
    def alike_digits(self) -> Digits:
        """The digits of those axes."""
        return self._digits(self.alike)

    @cached_property
    def fresh_digits(self) -> Digits:
        """The digits of the axes that become partial."""
        return self._digits(self.handover.fresh)

    @cached_property
    def _inner_alike(self) -> Digits:
        return self._digits(without(self.alike, self.handover.dst.layout.sharded_axes))

    @cached_property
    def _inner_fresh(self) -> Digits:
        return self._digits(without(self.handover.fresh, self.handover.src.layout.sharded_axes))

    @cached_property
    def _free(self) -> Digits:
        # Along these axes the slots that have both tiles differ.
        it = self.handover
        mesh = it.src.layout.mesh
        before, after = (mesh.rest((*holders.layout.sharded_axes, *it.batch)) for holders in (it.src, it.dst))
        return self._digits(common(after, before))

    @cached_property
    def _kept(self) -> Digits:
        it = self.handover
        return self._digits((*without(it.dst.layout.sharded_axes, it.src.layout.sharded_axes), *it.batch))

    @cached_property
    def _given(self) -> Digits:
        it = self.handover
        return self._digits((*without(it.src.layout.sharded_axes, it.dst.layout.sharded_axes), *it.batch))

    def _digits(self, axes: Sequence[Axis]) -> Digits:
        mesh = self.handover.src.layout.mesh
        return tuple((mesh.divisor(axis), axis.size) for axis in axes)

    def _marks(self, holders: Holders, axes: tuple[Axis, ...]) -> Marks:
        key = holders is self.handover.src, axes
        if key not in self._all_marks:
            self._all_marks[key] = marks_of(holders.layout, axes)
        return self._all_marks[key]

    @cached_property
    def _all_marks(self) -> dict[tuple[bool, tuple[Axis, ...]], Marks]:
        return {}


def marks_of(layout: Layout, axes: Sequence[Axis]) -> Marks:
    """Return, per dim, the digits of parts that are positions along some of the axes, and those of slots.

    >>> from shardwise import DeviceMesh
    >>> mesh = DeviceMesh((2, 8), ("x", "y"))
    >>> marks_of(Layout(mesh, [("y", "x")]), [mesh.axis("y:(1)4")])
    ((((4, 4),), ((2, 4),)),)
    """
    out: list[tuple[Digits, Digits]] = []
    for cut in layout.dims:
        parts, slots = list[tuple[int, int]](), list[tuple[int, int]]()
        below = prod(axis.size for axis in cut.axes)
        for whole in cut.axes:
            below //= whole.size
            for axis in common([whole], axes):
                inside = whole.pre * whole.size // (axis.pre * axis.size)
                parts.append((below * inside, axis.size))
                slots.append((layout.mesh.divisor(axis), axis.size))
        out.append((tuple(parts), tuple(slots)))
    return tuple(out)


def _positions(digits: Digits, slot: int) -> tuple[int, ...]:
    return tuple(slot // divisor % size for divisor, size in digits)


def find_place(spans: Sequence[Span], tile: Tile) -> tuple[int, ...] | None:
    """Return where a tile is among the parts of every dim, or None if it is not.

    >>> from shardwise.layout.tiling import DimTiling
    >>> find_place([Span.over(DimTiling(8, 4), 2, 8)], (3,)), find_place([Span.over(DimTiling(8, 4), 2, 8)], (0,))
    ((2,), None)
    """
    place = [span.find(part) for span, part in zip(spans, tile, strict=True)]
    return None if None in place else tuple(k for k in place if k is not None)


def find_offset(spans: Sequence[Span], place: Sequence[int]) -> int:
    """Return the part of a slot that a tile makes up, given its place among the parts of every dim."""
    return sum(span.offset(k) for span, k in zip(spans, place, strict=True))
