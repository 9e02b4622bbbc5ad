"""Crowds: movements between meshes where a device stands in several slots, worked out for all devices at once.

A device holds what each of its slots holds, and what several of its slots need it receives once. Slots of a mesh are
known by their index in it, devices by the numbers that the two meshes share.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TypeVar

from shardwise.caches import cached_property
from shardwise.layout.axis import Axis
from shardwise.layout.mesh import offset
from shardwise.layout.tiling import Box, box_size, intersect, subtract
from shardwise.plan.holders import Holders, Tile
from shardwise.plan.movement import Handover, LocalCopy, Movement, Phase, Reduction
from shardwise.plan.transfer import Transfer, portion

MANY = 1024  # boxes into which the cells of one target tile may be cut so that its devices share the reducing evenly
COVERED = 12  # contributions up to which the fewest devices that have them all are looked for


@dataclass
class Assignment:
    """Who does what: which boxes are there already, sent, reduced, spread, and copied within a device."""

    near: list[Transfer[int]] = field(default_factory=list[Transfer[int]])
    far: list[Transfer[int]] = field(default_factory=list[Transfer[int]])
    reductions: list[Reduction] = field(default_factory=list[Reduction])
    spread: list[Transfer[int]] = field(default_factory=list[Transfer[int]])  # between slots of the target
    copies: list[LocalCopy] = field(default_factory=list[LocalCopy])
    boxes: dict[int, list[Box]] = field(default_factory=dict[int, list[Box]])  # whose value a slot of the target keeps


SlotsByDevice = dict[int, list[int]]  # in order


@dataclass(frozen=True)
class Crowd(Handover):
    """A transition between two meshes of which one has a device in several slots."""

    @cached_property
    def assignment(self) -> Assignment:
        """Who does what in all rounds."""
        out = Assignment()
        if not self.pending and not self.fresh:
            self._assign_moves(out)
        else:
            for target in self.dst.tiling.tiles():
                self._assign_tile(out, target)
        return out

    def boxes_to_keep(self, slot: int) -> Iterator[Box]:
        """Yield the boxes whose value some slot of a device holds at the end."""
        items = self.assignment.boxes.items()
        return iter(dict.fromkeys(box for j, boxes in items if self.dst.numbers[j] == slot for box in boxes))

    def boxes_to_reduce(self, slot: int) -> Iterator[tuple[int, Box]]:
        """Yield the boxes that a device reduces, each with the slot of the target that it is for."""
        return ((j, box) for _, j, box in self.assignment.reductions if self.dst.numbers[j] == slot)

    # -- without reductions ------------------------------------------------------------------------

    def _assign_moves(self, out: Assignment) -> None:
        givers, takers = self._by_position(self.src, self.batch), self._by_position(self.dst, self.batch)
        for at, slots_by_device in takers.items():
            for device, slots in slots_by_device.items():
                self._assign_fetches(out, givers[at], device, slots)

    def _assign_fetches(self, out: Assignment, givers: SlotsByDevice, device: int, slots: Sequence[int]) -> None:
        own = {self.src.box_of(i): i for i in reversed(givers.get(device, []))}
        fetches: list[Transfer[int]] = []
        for j in slots:
            target = self.dst.box_of(j)
            missing = [target] if box_size(target) else []
            for box, i in own.items():
                parts, missing = _divide(missing, box)
                out.near += [Transfer(i, j, part) for part in parts]
            for i, giver, box in fetches:
                parts, missing = _divide(missing, box)
                out.copies += [LocalCopy(giver, j, part, i) for part in parts]
            for box in missing:
                for tile, part in self.src.tiling.cells(box):
                    sources = [i for group in givers.values() for i in group if self.src.tile_at(i) == tile]
                    fetches.append(Transfer(self._least_busy(sources, part), j, part))
        out.far += fetches

    def _least_busy(self, slots: Sequence[int], box: Box) -> int:
        # The slot whose device sends least so far; from now on it sends this box too.
        best = min(slots, key=lambda i: (self._loads.get(self.src.numbers[i], 0), i))
        self._loads[self.src.numbers[best]] = self._loads.get(self.src.numbers[best], 0) + box_size(box)
        return best

    @cached_property
    def _loads(self) -> dict[int, int]:
        return {}

    # -- with reductions ---------------------------------------------------------------------------

    def _assign_tile(self, out: Assignment, target: Tile) -> None:
        takers = self._takers(target)
        cells = list(self._cells(target))
        for index, (source, cell) in enumerate(cells):
            givers = self._givers(source)
            candidates = self._candidates(givers, takers)
            if len(candidates) * len(cells) > MANY:
                candidates = [candidates[index % len(candidates)]]
            for number, (reducer, at) in enumerate(candidates):
                box = portion(cell, len(candidates), number)
                if box_size(box):
                    self._assign_box(out, givers, takers[at], reducer, box)

    def _assign_box(
        self, out: Assignment, givers: dict[int, SlotsByDevice], takers: SlotsByDevice, reducer: int, box: Box
    ) -> None:
        # Bring the value of a box to the devices that take it: from the one of them that reduces it, or from holders.
        for device, slots in takers.items():
            first = slots[0]
            for j in slots:
                out.boxes.setdefault(j, []).append(box)
            out.copies += [LocalCopy(first, j, box) for j in slots[1:]]
            if not self.pending:
                (holders,) = givers.values()
                transfers = out.near if device in holders else out.far
                transfers.append(Transfer(self._source(holders, device, box), first, box))
            elif device == reducer:
                sources = tuple(self._source(holders, device, box) for holders in givers.values())
                out.reductions.append(Reduction(sources, first, box))
            else:
                out.spread.append(Transfer(takers[reducer][0], first, box))

    def _source(self, holders: SlotsByDevice, device: int, box: Box) -> int:
        # A slot of the device itself if it is a holder, or else the least busy one.
        if device in holders:
            return holders[device][0]
        return self._least_busy([i for slots in holders.values() for i in slots], box)

    def _candidates(self, givers: dict[int, SlotsByDevice], takers: dict[int, SlotsByDevice]) -> list[tuple[int, int]]:
        # The (device, position along the fresh axes) at which a cell is best reduced or, without reductions, kept.
        costs: dict[tuple[int, int], int] = {}
        for at, devices in takers.items():
            if self.pending:
                for device in devices:
                    missing = sum(device not in holders for holders in givers.values())
                    costs[device, at] = missing + len(devices) - 1
            else:
                (holders,) = givers.values()
                costs[next(iter(devices)), at] = sum(device not in holders for device in devices)
        least = min(costs.values())
        return [candidate for candidate, cost in costs.items() if cost == least]

    def _cells(self, target: Tile) -> Iterator[tuple[Tile, Box]]:
        return self.src.tiling.cells(self.dst.tiling.tile_box(target))

    def _givers(self, tile: Tile) -> dict[int, SlotsByDevice]:
        # Per contribution the devices that hold it, each with its slots.
        return self._by_position(self.src, self.pending, tile)

    def _takers(self, tile: Tile) -> dict[int, SlotsByDevice]:
        return self._by_position(self.dst, self.fresh, tile)

    def _by_position(
        self, holders: Holders, axes: Sequence[Axis], tile: Tile | None = None
    ) -> dict[int, SlotsByDevice]:
        out: dict[int, SlotsByDevice] = {}
        for i, number in enumerate(holders.numbers):
            if tile is None or holders.tile_at(i) == tile:
                out.setdefault(offset(holders.layout.mesh, axes, i), {}).setdefault(number, []).append(i)
        return out

    # -- bounds ------------------------------------------------------------------------------------

    @cached_property
    def least(self) -> int:
        """The least number of elements that must travel in all.

        The contributions of one device can be sent as one, so that what counts are the devices that have them. From
        pending to pending, where each device may keep some, it is not known.
        """
        if self.pending and self.fresh:
            return 0
        if not self.pending and not self.fresh:
            return sum(transfer.size for transfer in self.assignment.far)
        total = 0
        for target in self.dst.tiling.tiles():
            takers = self._takers(target)
            for source, cell in self._cells(target):
                givers = self._givers(source)
                total += box_size(cell) * min(self._count_messages(givers, devices) for devices in takers.values())
        return total

    def _count_messages(self, givers: dict[int, SlotsByDevice], takers: SlotsByDevice) -> int:
        if not self.pending:
            (holders,) = givers.values()
            return sum(device not in holders for device in takers)
        return _fewest([set(holders) for holders in givers.values()], set(takers))

    def count_needed(self, slot: int) -> int:
        """Return how many elements a device must receive, whatever the plan."""
        if not self.pending and not self.fresh:
            return sum(t.size for t in self.assignment.far if self.dst.numbers[t.target] == slot)
        if self.fresh:  # which device gets a value and which an identity is the plan's choice
            return 0
        return sum(size for size, missing in self._count_missing(slot) if missing)

    def count_fetched(self, slot: int) -> int:
        """Return how many elements a device receives that fetches every contribution to what it needs."""
        if not self.pending and not self.fresh:
            return self.count_needed(slot)
        return sum(size * missing for size, missing in self._count_missing(slot))

    def _count_missing(self, slot: int) -> Iterator[tuple[int, int]]:
        # The size of each cell that a device needs, and how many contributions to it the device lacks.
        tiles = {self.dst.tile_at(j) for j, number in enumerate(self.dst.numbers) if number == slot}
        for target in sorted(tiles):
            for source, cell in self._cells(target):
                yield box_size(cell), sum(slot not in holders for holders in self._givers(source).values())


def _divide(boxes: list[Box], box: Box) -> tuple[list[Box], list[Box]]:
    # The parts of boxes that lie inside one box, and the parts outside.
    parts = [part for each in boxes if (part := intersect(each, box)) is not None]
    return parts, [rest for each in boxes for rest in subtract(each, box)]


def _fewest(contributions: list[set[int]], takers: set[int]) -> int:
    # The fewest messages that bring the reduction to all who need it. Some device is the first that knows it: those
    # that have between them what it lacks send it something, and everybody else who needs it receives it later.
    whole = set[int].intersection(*contributions)
    if whole:
        return len(takers - whole)
    devices = takers.union(*contributions)
    return min(_cover([held for held in contributions if d not in held]) + len(takers - {d}) for d in devices)


def _cover(contributions: list[set[int]]) -> int:
    # The fewest devices that have these between them. Where there are too many to try, what is surely needed.
    devices = sorted(set[int]().union(*contributions))
    if len(contributions) > COVERED or len(devices) > COVERED:
        return -(-len(contributions) // max(sum(device in held for held in contributions) for device in devices))
    covers = (set(some) for count in range(len(devices) + 1) for some in combinations(devices, count))
    return next(len(some) for some in covers if all(held & some for held in contributions))


@dataclass(frozen=True)
class CrowdMove(Movement):
    """One round of a crowd: boxes go directly to where they are needed, to where they are reduced, or on from there."""

    crowd: Crowd
    phase: Phase
    shares = None

    @property
    def holders(self) -> tuple[Holders, Holders]:
        """The holders of what travels, and those who are to hold it."""
        return (self.crowd.dst if self.spreads else self.crowd.src), self.crowd.dst

    @property
    def batch_axes(self) -> tuple[Axis, ...]:
        """The axes along which every position reduces by itself, since both layouts are partial."""
        return self.crowd.batch

    # -- by device ---------------------------------------------------------------------------------

    @cached_property
    def transfers(self) -> tuple[Transfer[int], ...]:
        """All that goes between devices."""
        src, dst = self.holders
        return tuple(
            Transfer(src.numbers[i], dst.numbers[j], box) for i, j, box in filter(self._is_far, self._between_arrays)
        )

    def count_moved(self) -> int:
        """Return how many elements travel in all."""
        return sum(transfer.size for transfer in self.transfers)

    def incoming(self, slot: int) -> Iterator[Transfer[int]]:
        """Yield the transfers whose target is the device with number `slot`."""
        return (t for t in self.transfers if t.target == slot)

    def outgoing(self, slot: int) -> Iterator[Transfer[int]]:
        """Yield the transfers whose source is the device with number `slot`."""
        return (t for t in self.transfers if t.source == slot)

    # -- by index in the mesh ----------------------------------------------------------------------

    @cached_property
    def _between_arrays(self) -> list[Transfer[int]]:
        # All that some slot of the target takes, with what it has already.
        assignment = self.crowd.assignment
        if self.reduces:
            return [Transfer(i, j, box) for sources, j, box in assignment.reductions for i in sources]
        return assignment.spread if self.spreads else [*assignment.near, *assignment.far]

    def _is_far(self, transfer: Transfer[int]) -> bool:
        src, dst = self.holders
        return src.numbers[transfer.source] != dst.numbers[transfer.target]

    def stays(self, target: int) -> Iterator[Transfer[int]]:
        """Yield what a slot takes from arrays of its own device."""
        return (transfer for transfer in self._transfers_by_target.get(target, ()) if not self._is_far(transfer))

    def arrivals(self, target: int) -> Iterator[Transfer[int]]:
        """Yield what a slot receives from other devices."""
        return filter(self._is_far, self._transfers_by_target.get(target, ()))

    def departures(self, source: int) -> Iterator[Transfer[int]]:
        """Yield what a slot sends to other devices."""
        return (transfer for transfer in self._between_arrays if transfer.source == source and self._is_far(transfer))

    def reductions(self, target: int) -> Iterator[Reduction]:
        """Yield what a slot reduces."""
        return iter(self._reductions_by_target.get(target, ()))

    def local_copies(self, target: int) -> Iterator[LocalCopy]:
        """Yield what a slot copies from other slots of its device, when all has arrived."""
        return iter(self._copies_by_target.get(target, ()))

    @cached_property
    def _transfers_by_target(self) -> dict[int, list[Transfer[int]]]:
        return _by_target(self._between_arrays)

    @cached_property
    def _reductions_by_target(self) -> dict[int, list[Reduction]]:
        return _by_target(self.crowd.assignment.reductions) if self.reduces else {}

    @cached_property
    def _copies_by_target(self) -> dict[int, list[LocalCopy]]:
        is_last = self.spreads or not self.crowd.assignment.spread
        return _by_target(self.crowd.assignment.copies) if is_last else {}

    @property
    def largest(self) -> tuple[int, ...]:
        """The longest that a box which travels is, per dim."""
        sizes = ([stop - start for start, stop in t.box] for t in self.transfers)
        return tuple(map(max, zip(*sizes, strict=True))) or (0,) * len(self.crowd.src.shape)

    @property
    def busiest(self) -> tuple[int, int]:
        """The most elements, and the most boxes, that one device receives."""
        by_target = _by_target(self.transfers).values()
        sizes = (sum(transfer.size for transfer in transfers) for transfers in by_target)
        return max(sizes, default=0), max(map(len, by_target), default=0)


Item = TypeVar("Item", Transfer[int], Reduction, LocalCopy)


def _by_target(items: Iterable[Item]) -> dict[int, list[Item]]:
    out: dict[int, list[Item]] = {}
    for item in items:
        out.setdefault(item.target, []).append(item)
    return out
