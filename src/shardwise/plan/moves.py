"""Moves: rounds of communication, enumerated for one device at a time as transfers between slots.

There are three. A direct move brings every device the boxes that it lacks, each from one holder. Where
partial values must be reduced, the devices that will need an element first share out the reducing (`Shares`):
a reduce move brings each share its contributions, and a spread move hands the shares on to the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from itertools import product

from shardwise.layout.axis import Axis, common, overlap
from shardwise.layout.tiling import Box, box_size, intersect, subtract
from shardwise.plan.crowd import CrowdMove
from shardwise.plan.holders import Holders, Tile
from shardwise.plan.movement import Movement, Reduction
from shardwise.plan.transfer import Transfer, portion

MANY = 1024  # boxes into which one target tile may be cut so that all its devices share the reducing evenly


@dataclass(frozen=True)
class Shares:
    """Who reduces which boxes, when the contributions over the axes `pending` are brought together.

    Each element is reduced by one device that needs it; by one that also contributes to it, if there is
    one. The devices that could do it share each box evenly. Along the axes of `batch` every position works
    by itself; along `fresh` axes, which become partial, one position is given the value.
    """

    src: Holders
    dst: Holders
    pending: tuple[Axis, ...]
    fresh: tuple[Axis, ...] = ()
    batch: tuple[Axis, ...] = ()

    def __str__(self) -> str:
        return f"shares of {self.dst.layout.resolved()}"

    def cells(self, tile: Tile) -> Iterator[tuple[Tile, Box]]:
        """Yield the source tiles that a target tile meets, with the common box."""
        box = self.dst.tiling.tile_box(tile)
        for other in self.src.tiling.over(box):
            common = intersect(box, self.src.tiling.tile_box(other))
            if common is not None:
                yield other, common

    def reducers(self, source: Tile, target: Tile, like: int) -> list[int]:
        """Return the slots that share the reducing of one cell."""
        key = (source, target, self.dst.position(like, self.batch) if self.batch else 0)
        if key not in self._reducers:
            giving = set(self.src.slots(source, self.batch, like))
            able = self._nearest(self.dst.slots(target, self.batch, like), giving)
            self._reducers[key] = [slot for slot in able if slot in giving] or self._some(able, source, target)
        return self._reducers[key]

    def _nearest(self, able: list[int], giving: set[int]) -> list[int]:
        # One position along the fresh axes is given the value: one of those where the fewest devices lack it.
        if not self.fresh or self.pending:
            return able
        lacking: dict[int, int] = {}
        for slot in able:
            at = self.dst.position(slot, self.fresh)
            lacking[at] = lacking.get(at, 0) + (slot not in giving)
        least = min(lacking.values())
        return [slot for slot in able if lacking[self.dst.position(slot, self.fresh)] == least]

    def _some(self, able: list[int], source: Tile, target: Tile) -> list[int]:
        # No contributor needs the cell. All who do share it, unless that makes very many small boxes; then
        # each is given cells of its own.
        index, count = 0, 1
        for dim, span, part in zip(self.src.tiling.dims, self.dst.tiling.tile_box(target), source, strict=True):
            parts = dim.over(*span)
            index, count = index * len(parts) + part - parts.start, count * len(parts)
        if count * len(able) <= MANY:
            return able
        if count >= len(able):
            return [able[index % len(able)]]
        return able[index * len(able) // count : (index + 1) * len(able) // count]

    @cached_property
    def _reducers(self) -> dict[tuple[Tile, Tile, int], list[int]]:
        return {}

    def of(self, slot: int) -> Iterator[tuple[Tile, Box]]:
        """Yield the boxes that a slot reduces, each with the source tile it lies in."""
        tile = self.dst.tile(slot)
        if tile is None:
            return
        for source, cell in self.cells(tile):
            able = self.reducers(source, tile, slot)
            if slot in able:
                box = portion(cell, len(able), able.index(slot))
                if box_size(box):
                    yield source, box

    def boxes_to_keep(self, slot: int) -> Iterator[Box]:
        """Yield the boxes whose value a slot holds in the end; with fresh axes, it has identities elsewhere."""
        tile = self.dst.tile(slot)
        if tile is None:
            return
        for source, cell in self.cells(tile):
            able = self.reducers(source, tile, slot)
            for index, other in enumerate(able):
                if self.dst.position(other, self.fresh) == self.dst.position(slot, self.fresh):
                    box = portion(cell, len(able), index)
                    if box_size(box):
                        yield box


@dataclass(frozen=True)
class DirectMove(Movement):
    """Every device receives exactly the boxes it lacks, each from one holder.

    Along the axes of `batch`, on which both sides are partial, every position moves by itself. With
    `shares`, a device needs only the boxes that it keeps the value of.
    """

    src: Holders
    dst: Holders
    batch: tuple[Axis, ...] = ()
    shares: Shares | None = None
    phase = "direct"

    @property
    def sides(self) -> tuple[Holders, Holders]:
        """Who holds what travels, and who is to hold it."""
        return self.src, self.dst

    @property
    def batch_axes(self) -> tuple[Axis, ...]:
        """The axes along which every position moves by itself, since both sides are partial."""
        return self.batch

    @property
    def is_counted(self) -> bool:
        """Whether a formula says how much each device receives, so that nothing has to be listed."""
        return self.shares is None

    def _own(self, slot: int) -> Iterator[Box]:
        own = self.src.box(slot)
        if own is not None:
            commons = (intersect(need, own) for need in self._needs(slot))
            yield from (common for common in commons if common is not None)

    def incoming(self, slot: int) -> Iterator[Transfer[int]]:
        """Yield the transfers whose target is `slot`."""
        own = self.src.box(slot)
        for need in self._needs(slot):
            for tile in self.src.tiling.over(need):
                for box in self._lacking(need, own, tile):
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
        return sum(map(box_size, self._needs(slot))) - sum(map(box_size, self._own(slot)))

    def _needs(self, slot: int) -> Iterable[Box]:
        if self.shares is not None:
            return self.shares.boxes_to_keep(slot)
        held = self.dst.box(slot)
        return () if held is None else (held,)

    def _boxes(self, tile: Tile, target: int) -> list[Box]:
        own = self.src.box(target)
        return [box for need in self._needs(target) for box in self._lacking(need, own, tile)]

    def _lacking(self, need: Box, own: Box | None, tile: Tile) -> list[Box]:
        common = intersect(need, self.src.tiling.tile_box(tile))
        return [] if common is None else subtract(common, own)

    @cached_property
    def is_symmetric(self) -> bool:
        """Whether taking everything from the nearest holder loads all holders alike.

        So it is unless the target splits a dim by an axis along which the source has replicas.
        """
        return self.src.is_on_common_mesh and not any(
            overlap(a, b) for a in self.src.layout.replicated_axes for b in self.dst.layout.sharded_axes
        )

    @cached_property
    def apart(self) -> tuple[Axis, ...]:
        """The axes along which every position moves by itself: `batch`, and those that neither side splits."""
        if not self.src.is_on_common_mesh:
            return self.batch
        return (*self.batch, *common(self.src.layout.replicated_axes, self.dst.layout.replicated_axes))

    def _candidates(self, tile: Tile, slot: int) -> Iterator[int]:
        # Who may need something of a tile from the holder `slot`.
        fixed = (*self.src.layout.replicated_axes, *self.batch) if self.is_symmetric else self.apart
        for other in self._tiles_over(tile):
            yield from self.dst.slots(other, fixed, slot)

    def _tiles_over(self, tile: Tile) -> Iterator[Tile]:
        box = self.src.tiling.tile_box(tile)
        if not box_size(box):
            return iter(())
        return product(*(dim.holding(*span) for dim, span in zip(self.dst.tiling.dims, box, strict=True)))

    def _source(self, tile: Tile, target: int) -> int:
        if self.is_symmetric:
            return self.src.sources(tile, target, ())[0]
        key = (tile, self.dst.position(target, self.apart) if self.apart else 0)
        if key not in self._assigned:
            self._assigned[key] = self._assign(tile, target)
        return self._assigned[key][target]

    @cached_property
    def _assigned(self) -> dict[tuple[Tile, int], dict[int, int]]:
        return {}

    def _assign(self, tile: Tile, like: int) -> dict[int, int]:
        # Each target takes from its nearest holder while that has sent less than its fair share, and from
        # the least loaded one otherwise: no holder ends more than one transfer above the fair share.
        targets = {}
        for target in self._candidates(tile, like):
            if size := sum(map(box_size, self._boxes(tile, target))):
                targets[target] = size
        holders = self.src.slots(tile, self.apart, like)
        fair = sum(targets.values()) / len(holders)
        loads = dict.fromkeys(holders, 0)
        least = [(0, i, holder) for i, holder in enumerate(holders)]
        out = {}
        for target, size in sorted(targets.items()):
            source = self.src.sources(tile, target, ())[0]
            if loads[source] >= fair:
                load, i, source = heappop(least)
                while load != loads[source]:  # an old entry: the holder has been given more since
                    heappush(least, (loads[source], i, source))
                    load, i, source = heappop(least)
                heappush(least, (load + size, i, source))
            loads[source] += size
            out[target] = source
        return out


@dataclass(frozen=True)
class LocalMove(DirectMove):
    """Every device makes its new shard of its old one, and nothing travels."""

    def incoming(self, slot: int) -> Iterator[Transfer[int]]:
        """Yield nothing."""
        return iter(())

    def outgoing(self, slot: int) -> Iterator[Transfer[int]]:
        """Yield nothing."""
        return iter(())


@dataclass(frozen=True)
class ReduceMove(Movement):
    """Every share receives its contributions, one box per contributor."""

    shares: Shares
    phase = "reduce"

    @property
    def sides(self) -> tuple[Holders, Holders]:
        """Who holds what travels, and who is to hold it."""
        return self.shares.src, self.shares.dst

    @property
    def batch_axes(self) -> tuple[Axis, ...]:
        """The axes along which every position moves by itself, since both sides are partial."""
        return self.shares.batch

    def boxes_to_reduce(self, slot: int) -> Iterator[tuple[Tile, Box]]:
        """Yield the boxes that a slot reduces, each with the source tile it lies in."""
        return self.shares.of(slot)

    def contributions(self, slot: int) -> Iterator[tuple[list[int], Box]]:
        """Yield the boxes that a slot reduces, each with the slots that contribute to it."""
        for tile, box in self.boxes_to_reduce(slot):
            yield self.shares.src.sources(tile, slot, self.shares.pending), box

    def _own(self, slot: int) -> Iterator[Box]:
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
        for target in shares.dst.tiling.over(shares.src.tiling.tile_box(tile)):
            cell = intersect(shares.src.tiling.tile_box(tile), shares.dst.tiling.tile_box(target))
            if cell is None:
                continue
            able = shares.reducers(tile, target, slot)
            for index, other in enumerate(able):
                box = portion(cell, len(able), index)
                if other != slot and box_size(box) and slot in shares.src.sources(tile, other, shares.pending):
                    yield Transfer(slot, other, box)

    def reductions(self, target: int) -> Iterator[Reduction]:
        """Yield what a slot reduces."""
        src, dst = self.sides
        for sources, box in self.contributions(dst.number(target)):
            yield Reduction(tuple(map(src.index, sources)), target, box)


@dataclass(frozen=True)
class SpreadMove(Movement):
    """Every share is handed on to the other devices that need it."""

    shares: Shares
    phase = "spread"

    @property
    def sides(self) -> tuple[Holders, Holders]:
        """Who holds what travels, and who is to hold it."""
        return self.shares.dst, self.shares.dst

    @property
    def batch_axes(self) -> tuple[Axis, ...]:
        """The axes along which every position moves by itself, since both sides are partial."""
        return self.shares.batch

    def incoming(self, slot: int) -> Iterator[Transfer[int]]:
        """Yield the transfers whose target is `slot`."""
        shares = self.shares
        tile = shares.dst.tile(slot)
        if tile is None:
            return
        for source, cell in shares.cells(tile):
            able = shares.reducers(source, tile, slot)
            for index, other in enumerate(able):
                box = portion(cell, len(able), index)
                if other != slot and box_size(box) and self._alike(slot, other):
                    yield Transfer(other, slot, box)

    def outgoing(self, slot: int) -> Iterator[Transfer[int]]:
        """Yield the transfers whose source is `slot`."""
        shares = self.shares
        tile = shares.dst.tile(slot)
        if tile is None:
            return
        others = shares.dst.slots(tile, shares.batch, slot)
        for _, box in shares.of(slot):
            for other in others:
                if other != slot and self._alike(slot, other):
                    yield Transfer(slot, other, box)

    def _alike(self, slot: int, other: int) -> bool:
        fresh, dst = self.shares.fresh, self.shares.dst
        return not fresh or dst.position(slot, fresh) == dst.position(other, fresh)


Move = DirectMove | ReduceMove | SpreadMove | CrowdMove
