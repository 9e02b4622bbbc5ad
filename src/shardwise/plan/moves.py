"""Moves: rounds of communication, enumerated for one device at a time as transfers between slots.

There are three. A direct move brings every device the boxes that it lacks, each from one holder. Where
partial values must be reduced, the devices that will need an element first divide the work of reducing (`Shares`):
a reduce move brings each share its contributions, and a spread move sends the shares on to the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import product
from math import prod
from typing import NamedTuple

from shardwise.caches import cached_property
from shardwise.layout.axis import Axis, common, has_crossing, is_disjoint, overlap, without
from shardwise.layout.mesh import walk
from shardwise.layout.tiling import Box, DimTiling, Interval, box_size, intersect, subtract
from shardwise.plan.cells import Cells, Patch
from shardwise.plan.crowd import CrowdMove
from shardwise.plan.holders import Holders, Tile
from shardwise.plan.least import Option, count_moved, place_terms
from shardwise.plan.meeting import Meeting, find_offset, find_place
from shardwise.plan.movement import Handover, Movement, Reduction
from shardwise.plan.slot_grid import Digits, SlotGrid, find_alike
from shardwise.plan.span import Span
from shardwise.plan.transfer import Transfer, portion
from shardwise.plan.transfers import Segment

MANY = 1024  # boxes into which one target tile may be cut so that all its devices share the reducing evenly
FEW = 4  # source tiles that are all looked at, to find those that a device reduces


class Homes(NamedTuple):
    """The slots that are at home in a cell, each with the position of its contribution; those that keep it own it.

    Where equal copies are at several positions, one of these keeps the contribution, unless another reduces.
    """

    terms: dict[int, int]
    owners: frozenset[int]


NOWHERE = Homes({}, frozenset())


@dataclass(frozen=True)
class Shares(Handover):
    """Which device reduces which boxes, where contributions over the axes `pending` are combined.

    Each element is reduced by one device that needs it; by one that also contributes to it, if there is
    one. The devices that could do it share each box evenly.

    With `keeps`, where both layouts are partial, the contribution of a device is its new one wherever all devices that
    are to hold the same new one hold it already: they are at home there. What is left is combined into one of those.
    """

    keeps: bool = False

    @property
    def option(self) -> Option:
        """How the partial axes are treated."""
        return Option(self.pending, self.fresh, self.batch, self.keeps)

    def cells(self, tile: Tile) -> Iterator[tuple[Tile, Box]]:
        """Yield the source tiles that a target tile meets, with the common box."""
        return self.src.tiling.cells(self.dst.tiling.tile_box(tile))

    def reducers(self, source: Tile, target: Tile, like: int) -> Sequence[int]:
        """Return the slots that share the reducing of one cell."""
        key = (source, target, self.dst.position(like, self.batch) if self.batch else 0)
        if key not in self._reducers:
            self._reducers[key] = self._find_reducers(source, target, like)
        return self._reducers[key]

    def _find_reducers(self, source: Tile, target: Tile, like: int) -> Sequence[int]:
        candidates, contributors = self.dst.slots(target, self.batch, like), self.src.slots(source, self.batch, like)
        homes = self.homes(source, target, like)
        if homes.terms:
            return self._choose_beside(homes, candidates, set(contributors))
        if self.meeting.is_regular and isinstance(candidates, SlotGrid) and isinstance(contributors, SlotGrid):
            both = candidates.intersect(contributors)  # which are at the nearest position along the fresh axes
        else:
            able = set(contributors)
            candidates = self._nearest(candidates, able)
            both = [slot for slot in candidates if slot in able]
        return both or self._choose(candidates, source, target)

    @cached_property
    def meeting(self) -> Meeting:
        """Where the tiles of both layouts meet."""
        return Meeting(self)

    @cached_property
    def is_regular(self) -> bool:
        """Whether the devices that have a tile before and one after are those that reduce what these have in common."""
        return self.meeting.is_regular and not self.can_keep

    def _nearest(self, candidates: Sequence[int], contributors: set[int]) -> Sequence[int]:
        # One position along the fresh axes gets the value: one of those where the fewest devices lack it.
        if not self.fresh or self.pending:
            return candidates
        counts: dict[int, int] = {}
        for slot in candidates:
            at = self.dst.position(slot, self.fresh)
            counts[at] = counts.get(at, 0) + (slot not in contributors)
        least = min(counts.values())
        return [slot for slot in candidates if counts[self.dst.position(slot, self.fresh)] == least]

    def _choose(self, candidates: Sequence[int], source: Tile, target: Tile) -> Sequence[int]:
        # No contributor needs the cell. All who do share it, unless that makes very many small boxes; then
        # each gets cells of its own.
        index, count = 0, 1
        for dim, span, part in zip(self.src.tiling.dims, self.dst.tiling.tile_box(target), source, strict=True):
            parts = dim.over(*span)
            index, count = index * len(parts) + part - parts.start, count * len(parts)
        if count * len(candidates) <= MANY:
            return candidates
        if count >= len(candidates):
            at = index % len(candidates)
            return candidates[at : at + 1]
        return candidates[index * len(candidates) // count : (index + 1) * len(candidates) // count]

    @cached_property
    def _reducers(self) -> dict[tuple[Tile, Tile, int], Sequence[int]]:
        return {}

    def _choose_beside(self, homes: Homes, candidates: Sequence[int], contributors: set[int]) -> list[int]:
        # Who combines what does not stay: those that need it and have some of it, or else those that keep something.
        kept = set(homes.terms.values())
        if len(kept) == len(self._terms):
            return []
        near = [slot for slot in candidates if slot in contributors and slot not in homes.terms]
        return [slot for slot in near if self.src.position(slot, self.pending) not in kept] or list(homes.terms)

    def homes(self, source: Tile, target: Tile, like: int) -> Homes:
        """Return the slots that get one contribution to a cell, which most of them have."""
        if not self.can_keep:
            return NOWHERE
        key = (source, target, self.dst.position(like, self.batch) if self.batch else 0)
        if key not in self._homes:
            self._homes[key] = self._find_homes(source, target, like)
        return self._homes[key]

    def _find_homes(self, source: Tile, target: Tile, like: int) -> Homes:
        by_position: dict[int, list[int]] = {}
        for slot in self.dst.slots(target, self.batch, like):
            by_position.setdefault(self.dst.position(slot, self.fresh), []).append(slot)
        held = [
            [self.src.position(slot, self.pending) for slot in slots if self.src.tile(slot) == source]
            for slots in by_position.values()
        ]
        targets, terms, owners = len(next(iter(by_position.values()))), dict[int, int](), set[int]()
        places = place_terms(held, targets, self._terms)
        for some, place, slots in zip(held, places, by_position.values(), strict=True):
            if place is not None:
                owners |= set(slots)
                terms |= dict.fromkeys(slots, place)
            elif len(some) == targets and len(set(some)) == 1:  # another position has the same
                terms |= dict.fromkeys(slots, some[0])
        return Homes(terms, frozenset(owners))

    @cached_property
    def _homes(self) -> dict[tuple[Tile, Tile, int], Homes]:
        return {}

    @cached_property
    def can_keep(self) -> bool:
        """Whether anything may stay: on one mesh, whoever is to hold equal data must hold equal data already."""
        if not self.keeps:
            return False
        if not self.src.is_on_common_mesh or not self.dst.is_on_common_mesh:
            return True
        before, after = (holders.layout for holders in (self.src, self.dst))
        if has_crossing((*before.sharded_axes, *before.partial), (*after.sharded_axes, *after.partial)):
            return True
        return not without(after.replicated_axes, before.replicated_axes)

    @cached_property
    def _terms(self) -> list[int]:
        # The positions of the contributions to an element.
        return walk(self.src.layout.mesh, self.pending)

    def sources(self, source: Tile, target: Tile, reducer: int) -> Sequence[int]:
        """Return the slots whose contributions to a cell a slot reduces, in the order in which they are."""
        slots, homes = self.src.sources(source, reducer, self.pending), self.homes(source, target, reducer).terms
        if not homes:
            return slots
        others = {at for at in homes.values() if at != homes.get(reducer)}
        return [slot for slot in slots if self.src.position(slot, self.pending) not in others]

    def boxes_to_leave(self, slot: int) -> Iterator[tuple[int, Box]]:
        """Yield the boxes of which a slot gets one contribution and nothing else, each with the slot that has it."""
        tile = self.dst.tile(slot)
        if tile is None or not self.can_keep:
            return
        for source, cell in self.cells(tile):
            homes = self.homes(source, tile, slot)
            if slot not in homes.owners:
                continue
            reducers = self.reducers(source, tile, slot)
            if not reducers:
                yield self.giver(source, slot, homes.terms[slot]), cell
            for index, reducer in enumerate(reducers):
                box = portion(cell, len(reducers), index)
                if homes.terms.get(reducer) != homes.terms[slot] and box_size(box):
                    yield slot, box

    def giver(self, source: Tile, slot: int, term: int) -> int:
        """Return the slot from which another, or the same, has a contribution to a cell that is all it gets of it."""
        if self.src.tile(slot) == source and self.src.position(slot, self.pending) == term:
            return slot
        return self.src.sources(source, slot, self.pending)[self._terms.index(term)]

    def boxes_to_reduce(self, slot: int) -> Iterator[tuple[Tile, Box]]:
        """Yield the boxes that a slot reduces, each with the source tile it lies in."""
        tile = self.dst.tile(slot)
        if tile is None:
            return
        for source, cell in self._cells_to_reduce(tile, slot):
            reducers = self.reducers(source, tile, slot)
            if slot in reducers:
                box = portion(cell, len(reducers), reducers.index(slot))
                if box_size(box):
                    yield source, box

    def _cells_to_reduce(self, tile: Tile, slot: int) -> Iterable[tuple[Tile, Box]]:
        # Where those who have both tiles reduce, a slot reduces of its own old tile only. Few are sooner looked at.
        if self._has_few_tiles or not self.is_regular or not self.meeting.agrees(slot):
            return self.cells(tile)
        return self._cell(self.src.layout.tile_of(slot), tile)

    def _cell(self, source: Tile, target: Tile) -> Iterable[tuple[Tile, Box]]:
        # What two tiles have in common, if anything.
        box = intersect(self.src.tiling.tile_box(source), self.dst.tiling.tile_box(target))
        return () if box is None else ((source, box),)

    @cached_property
    def _has_few_tiles(self) -> bool:
        return prod([dim.parts for dim in self.src.tiling.dims]) <= FEW

    def boxes_to_keep(self, slot: int, within: Tile | None = None) -> Iterator[Box]:
        """Yield the boxes whose value a slot holds at the end; with fresh axes, it has identities elsewhere.

        With `within`, those that lie in one source tile.
        """
        tile = self.dst.tile(slot)
        if tile is None:
            return
        yield from (box for _, box in self.boxes_to_leave(slot))
        for source, cell in self.cells(tile) if within is None else self._cell(within, tile):
            reducers = self.reducers(source, tile, slot)
            for index in self._find_alike(reducers, slot):
                box = portion(cell, len(reducers), index)
                if box_size(box):
                    yield box

    def _find_alike(self, slots: Sequence[int], like: int) -> Iterable[int]:
        # Which of some slots stand where another does along the fresh axes.
        if not isinstance(slots, SlotGrid):
            position = self.dst.position
            return (i for i, slot in enumerate(slots) if position(slot, self.fresh) == position(like, self.fresh))
        indices = find_alike(slots, self.meeting.fresh_digits, like)
        return range(len(slots)) if indices is None else indices.tolist()


@dataclass(frozen=True)
class DirectMove(Movement):
    """Every device receives exactly the boxes it lacks, each from one holder.

    Along the axes of `batch`, on which both layouts are partial, every position moves by itself. With
    `shares`, a device needs only the boxes whose value it keeps.
    """

    src: Holders
    dst: Holders
    batch: tuple[Axis, ...] = ()
    shares: Shares | None = None
    phase = "direct"

    @property
    def holders(self) -> tuple[Holders, Holders]:
        """The holders of what travels, and those who are to hold it."""
        return self.src, self.dst

    @property
    def is_counted(self) -> bool:
        """Whether a formula says how much each device receives, so that nothing has to be listed."""
        return self.shares is None

    def count_moved(self) -> int | None:
        """Return how many elements travel in all, without listing them, or None where no formula says so."""
        fresh = () if self.shares is None else self.shares.fresh
        moved = count_moved(self.src, self.dst, Option((), fresh, self.batch))
        return moved and moved.first

    def _own_boxes(self, slot: int) -> Iterator[Box]:
        own = self.src.box(slot)
        if own is not None:
            commons = (intersect(target, own) for target in self._targets(slot))
            yield from (common for common in commons if common is not None)

    def incoming(self, slot: int) -> Iterator[Transfer[int]]:
        """Yield the transfers whose target is `slot`."""
        own = self.src.box(slot)
        for target in self._targets(slot):
            for tile, cell in self.src.tiling.cells(target):
                for box in subtract(cell, own):
                    yield Transfer(self._source(tile, slot), slot, box)

    def outgoing(self, slot: int) -> Iterator[Transfer[int]]:
        """Yield the transfers whose source is `slot`."""
        tile = self.src.tile(slot)
        if tile is None:
            return
        for target in self._candidates(tile, slot):
            boxes = self._boxes(tile, target)
            if boxes and self._source(tile, target) == slot:
                for box in boxes:
                    yield Transfer(slot, target, box)

    def count_received(self, slot: int) -> int:
        """Return how many elements `slot` receives, without listing them."""
        return sum(map(box_size, self._targets(slot))) - sum(map(box_size, self._own_boxes(slot)))

    def find_incoming(self, slot: int) -> list[Segment]:
        """Return what `incoming` yields as segments, which are not listed before they are looked at where axes nest."""
        if not self._is_regular:
            return super().find_incoming(slot)
        tiling, own = self.src.tiling, self.src.box_of(slot)
        dims = [DimTiling(dim.size, dim.parts, dim.split, dim.offsets) for dim in tiling.dims]
        box = self.dst.box_of(slot)
        spans = tuple(Span.over(*each) for each in _zip_spans(dims, box, tiling.radix))
        patches: list[Patch] = []
        for tile in product(*(dim.over(*interval) for dim, interval in zip(dims, _overlap_of(box, own), strict=True))):
            place = find_place(spans, tile)
            if place is not None:
                cell = tuple(span.interval(k) for span, k in zip(spans, place, strict=True))
                patches.append(Patch(place, 0, tuple(subtract(cell, own))))
        (nearest,) = self.src.sources((0,) * len(dims), slot, ())
        return [Segment(slot, True, Cells(spans, SlotGrid(nearest), patches=tuple(patches)))]

    def find_outgoing(self, slot: int) -> list[Segment]:
        """Return what `outgoing` yields as segments, which are not listed before they are looked at where axes nest."""
        if not self._is_regular:
            return super().find_outgoing(slot)
        tile, tiling = self.src.layout.tile_of(slot), self.dst.tiling
        box = self.src.tiling.tile_box(tile)
        spans = tuple(Span.over(*each) for each in _zip_spans(tiling.dims, box, tiling.radix))
        axes = (*self.src.layout.replicated_axes, *self.batch)
        slots = self.dst.slots((0,) * len(spans), axes, slot)
        assert isinstance(slots, SlotGrid), "so it is on the common mesh"
        patches: list[Patch] = []
        # Those who have something of the tile already are the slot itself and, with halos, its neighbours.
        near = (dim.holding(*interval) for dim, interval in zip(self.src.tiling.dims, box, strict=True))
        for neighbour in product(*near):
            (target,) = self.src.sources(neighbour, slot, ())
            place = find_place(spans, self.dst.layout.tile_of(target))
            if place is not None:
                at = slots.index(target - find_offset(spans, place))
                patches.append(Patch(place, at, tuple(self._boxes(tile, target))))
        return [Segment(slot, False, Cells(spans, slots, patches=tuple(patches)))]

    @cached_property
    def _is_regular(self) -> bool:
        # Whether all that a slot sends is for slots at its own position along all axes that do not split a dim.
        if self.shares is not None or not self.is_symmetric or not self.dst.is_on_common_mesh:
            return False
        return not without(self.src.layout.partial, self.batch) and is_disjoint(
            self.batch, self.dst.layout.sharded_axes
        )

    def _targets(self, slot: int, within: Tile | None = None) -> Iterable[Box]:
        # The boxes that a slot is to have; of those that it keeps, only what lies in one source tile matters there.
        if self.shares is not None:
            return self.shares.boxes_to_keep(slot, within)
        box = self.dst.box(slot)
        return () if box is None else (box,)

    def _boxes(self, tile: Tile, slot: int) -> list[Box]:
        # What a slot is to have of a tile and does not have yet.
        own, box = self.src.box(slot), self.src.tiling.tile_box(tile)
        commons = (intersect(target, box) for target in self._targets(slot, tile))
        return [part for common in commons if common is not None for part in subtract(common, own)]

    @cached_property
    def is_symmetric(self) -> bool:
        """Whether taking everything from the nearest holder loads all holders alike.

        So it is unless the target splits a dim by an axis along which the source has replicas.
        """
        return self.src.is_on_common_mesh and not any(
            overlap(a, b) for a in self.src.layout.replicated_axes for b in self.dst.layout.sharded_axes
        )

    @cached_property
    def separate_axes(self) -> tuple[Axis, ...]:
        """The axes along which every position moves by itself: `batch`, and those that neither layout splits."""
        if not self.src.is_on_common_mesh:
            return self.batch
        return (*self.batch, *common(self.src.layout.replicated_axes, self.dst.layout.replicated_axes))

    def _candidates(self, tile: Tile, slot: int) -> Iterator[int]:
        # Who may need something of a tile from the holder `slot`.
        axes = (*self.src.layout.replicated_axes, *self.batch) if self.is_symmetric else self.separate_axes
        for target in self._tiles_over(tile):
            yield from self.dst.slots(target, axes, slot)

    def _tiles_over(self, tile: Tile) -> Iterator[Tile]:
        box = self.src.tiling.tile_box(tile)
        if not box_size(box):
            return iter(())
        return product(*(dim.holding(*span) for dim, span in zip(self.dst.tiling.dims, box, strict=True)))

    def _source(self, tile: Tile, target: int) -> int:
        if self.is_symmetric:
            return self.src.sources(tile, target, ())[0]
        key = (tile, self.dst.position(target, self.separate_axes) if self.separate_axes else 0)
        if key not in self._sources:
            self._sources[key] = self._assign_sources(tile, target)
        return self._sources[key][target]

    @cached_property
    def _sources(self) -> dict[tuple[Tile, int], dict[int, int]]:
        return {}

    def _assign_sources(self, tile: Tile, like: int) -> dict[int, int]:
        # Each target takes from its nearest holder while that has sent less than its fair share, and from
        # the least loaded one otherwise: no holder ends more than one transfer above the fair share.
        candidates = self._candidates(tile, like)
        sizes = {slot: size for slot in candidates if (size := sum(map(box_size, self._boxes(tile, slot))))}
        holders = self.src.slots(tile, self.separate_axes, like)
        fair = sum(sizes.values()) / len(holders)
        loads = dict.fromkeys(holders, 0)
        least = [(0, i, holder) for i, holder in enumerate(holders)]
        out: dict[int, int] = {}
        for target, size in sorted(sizes.items()):
            source = self.src.sources(tile, target, ())[0]
            if loads[source] >= fair:
                load, i, source = heappop(least)
                while load != loads[source]:  # an old entry: the holder has got more to send since
                    heappush(least, (loads[source], i, source))
                    load, i, source = heappop(least)
                heappush(least, (load + size, i, source))
            loads[source] += size
            out[target] = source
        return out


@dataclass(frozen=True)
class LocalMove(DirectMove):
    """Every device makes its new shard from its old one, and nothing travels."""

    def count_moved(self) -> int:
        """Return 0."""
        return 0

    def incoming(self, slot: int) -> Iterator[Transfer[int]]:
        """Yield nothing."""
        return iter(())

    def outgoing(self, slot: int) -> Iterator[Transfer[int]]:
        """Yield nothing."""
        return iter(())

    def find_incoming(self, slot: int) -> list[Segment]:
        """Return nothing."""
        return []

    def find_outgoing(self, slot: int) -> list[Segment]:
        """Return nothing."""
        return []


@dataclass(frozen=True)
class SharesMove(Movement):
    """A round in which shares are reduced, or what they have become goes where it is needed."""

    shares: Shares

    @property
    def holders(self) -> tuple[Holders, Holders]:
        """The holders of what travels, and those who are to hold it."""
        return (self.shares.dst if self.spreads else self.shares.src), self.shares.dst

    @property
    def batch_axes(self) -> tuple[Axis, ...]:
        """The axes along which every position reduces by itself, since both layouts are partial."""
        return self.shares.batch

    def count_moved(self) -> int | None:
        """Return how many elements travel in all, without listing them, or None where no formula says so."""
        moved = count_moved(self.shares.src, self.shares.dst, self.shares.option)
        return moved and moved[self.spreads]


@dataclass(frozen=True)
class ReduceMove(SharesMove):
    """Every share receives its contributions, one box per contributor."""

    phase = "reduce"

    def boxes_to_reduce(self, slot: int) -> Iterator[tuple[Tile, Box]]:
        """Yield the boxes that a slot reduces, each with the source tile it lies in."""
        return self.shares.boxes_to_reduce(slot)

    def contributions(self, slot: int) -> Iterator[tuple[Sequence[int], Box]]:
        """Yield the boxes that a slot reduces, or keeps, each with the slots that contribute to it."""
        shares, target = self.shares, self.shares.dst.tile(slot)
        for tile, box in self.boxes_to_reduce(slot):
            yield shares.sources(tile, target or (), slot), box
        for source, box in shares.boxes_to_leave(slot):
            yield [source], box

    def _own_boxes(self, slot: int) -> Iterator[Box]:
        return (box for sources, box in self.contributions(slot) if slot in sources)

    def incoming(self, slot: int) -> Iterator[Transfer[int]]:
        """Yield the transfers whose target is `slot`."""
        for sources, box in self.contributions(slot):
            for source in sources:
                if source != slot:
                    yield Transfer(source, slot, box)

    def outgoing(self, slot: int) -> Iterator[Transfer[int]]:
        """Yield the transfers whose source is `slot`."""
        shares = self.shares
        tile = shares.src.tile(slot)
        if tile is None:
            return
        for target, cell in shares.dst.tiling.cells(shares.src.tiling.tile_box(tile)):
            reducers = shares.reducers(tile, target, slot)
            for index, reducer in enumerate(reducers):
                box = portion(cell, len(reducers), index)
                if reducer != slot and box_size(box) and slot in shares.sources(tile, target, reducer):
                    yield Transfer(slot, reducer, box)
            homes = shares.homes(tile, target, slot)
            for other in sorted(homes.owners) if not reducers else ():
                if other != slot and shares.giver(tile, other, homes.terms[other]) == slot:
                    yield Transfer(slot, other, cell)

    def find_incoming(self, slot: int) -> list[Segment]:
        """Return what `incoming` yields as segments, which are not listed before they are looked at where axes nest."""
        out: list[Segment] = []
        for sources, box in self.contributions(slot):
            is_grid = isinstance(sources, SlotGrid)
            boxes = Cells.of_box(box, sources, slot) if is_grid else [(s, box) for s in sources if s != slot]
            out.append(Segment(slot, True, boxes))
        return out

    def find_outgoing(self, slot: int) -> list[Segment]:
        """Return what `outgoing` yields as segments, which are not listed before they are looked at where axes nest."""
        shares, meeting = self.shares, self.shares.meeting
        if not shares.is_regular:
            return super().find_outgoing(slot)
        cells = meeting.cells_of_source(slot)
        if cells is not None:
            return [Segment(slot, False, cells)]
        tile, out = shares.src.layout.tile_of(slot), list[Segment]()
        for target, cell in shares.dst.tiling.cells(shares.src.tiling.tile_box(tile)):
            reducers = shares.reducers(tile, target, slot)
            assert isinstance(reducers, SlotGrid), "so it is where axes nest"
            out.append(Segment(slot, False, meeting.cells_of_cell(cell, reducers, slot, meeting.alike_digits)))
        return out

    def reductions(self, target: int) -> Iterator[Reduction]:
        """Yield what a slot reduces."""
        src, dst = self.holders
        for sources, box in self.contributions(dst.numbers[target]):
            yield Reduction(tuple(map(src.index, sources)), target, box)


@dataclass(frozen=True)
class SpreadMove(SharesMove):
    """Every share is sent on to the other devices that need it."""

    phase = "spread"

    def incoming(self, slot: int) -> Iterator[Transfer[int]]:
        """Yield the transfers whose target is `slot`."""
        shares = self.shares
        tile = shares.dst.tile(slot)
        if tile is None:
            return
        for source, cell in shares.cells(tile):
            reducers = shares.reducers(source, tile, slot)
            for index, reducer in enumerate(reducers):
                box = portion(cell, len(reducers), index)
                if reducer != slot and box_size(box) and self._is_alike(slot, reducer):
                    yield Transfer(reducer, slot, box)

    def outgoing(self, slot: int) -> Iterator[Transfer[int]]:
        """Yield the transfers whose source is `slot`."""
        shares = self.shares
        tile = shares.dst.tile(slot)
        if tile is None:
            return
        targets = shares.dst.slots(tile, shares.batch, slot)
        for _, box in shares.boxes_to_reduce(slot):
            for target in targets:
                if target != slot and self._is_alike(slot, target):
                    yield Transfer(slot, target, box)

    def find_incoming(self, slot: int) -> list[Segment]:
        """Return what `incoming` yields as segments, which are not listed before they are looked at where axes nest."""
        shares, meeting = self.shares, self.shares.meeting
        if not shares.is_regular:
            return super().find_incoming(slot)
        cells = meeting.cells_of_target(slot)
        if cells is not None:
            return [Segment(slot, True, cells)]
        tile, out = shares.dst.layout.tile_of(slot), list[Segment]()
        for source, cell in shares.cells(tile):
            reducers = shares.reducers(source, tile, slot)
            assert isinstance(reducers, SlotGrid), "so it is where axes nest"
            out.append(Segment(slot, True, meeting.cells_of_cell(cell, reducers, slot, meeting.fresh_digits)))
        return out

    def find_outgoing(self, slot: int) -> list[Segment]:
        """Return what `outgoing` yields as segments, which are not listed before they are looked at where axes nest."""
        shares = self.shares
        tile = shares.dst.tile(slot)
        if tile is None:
            return []
        targets = shares.dst.slots(tile, (*shares.batch, *shares.fresh), slot)
        if not isinstance(targets, SlotGrid):
            return super().find_outgoing(slot)
        return [Segment(slot, False, Cells.of_box(box, targets, slot)) for _, box in shares.boxes_to_reduce(slot)]

    def _is_alike(self, slot: int, other: int) -> bool:
        fresh, dst = self.shares.fresh, self.shares.dst
        return not fresh or dst.position(slot, fresh) == dst.position(other, fresh)


def _zip_spans(
    dims: Sequence[DimTiling], box: Box, radix: Sequence[Digits]
) -> Iterator[tuple[DimTiling, int, int, Digits]]:
    return ((dim, *interval, digits) for dim, interval, digits in zip(dims, box, radix, strict=True))


def _overlap_of(a: Box, b: Box) -> Iterator[Interval]:
    return ((max(low, start), min(high, stop)) for (low, high), (start, stop) in zip(a, b, strict=True))


Move = DirectMove | ReduceMove | SpreadMove | CrowdMove
