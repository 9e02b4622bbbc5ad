"""Crowds: movements between meshes where a device stands in several slots, worked out for all devices at once.

A device holds what each of its slots holds, and what several of its slots need it receives once. Slots of a mesh are
known by their index in it, devices by the numbers that the two sides share.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import TypeVar

from shardwise.layout.axis import Axis
from shardwise.layout.tiling import Box, box_size, intersect, subtract
from shardwise.plan.holders import Holders, Tile
from shardwise.plan.movement import LocalCopy, Movement, Phase, Reduction
from shardwise.plan.transfer import Transfer, portion

MANY = 1024  # boxes into which the cells of one target tile may be cut so that its devices share the reducing evenly
COVERED = 12  # contributions up to which the fewest devices that have them all are looked for


@dataclass
class Work:
    """All that is done: what is there already, what is sent, reduced, spread, and handed on within a device."""

    near: list[Transfer[int]] = field(default_factory=list)
    far: list[Transfer[int]] = field(default_factory=list)
    totals: list[Reduction] = field(default_factory=list)
    spread: list[Transfer[int]] = field(default_factory=list)  # between slots of the target
    handed: list[LocalCopy] = field(default_factory=list)
    kept: dict[int, list[Box]] = field(default_factory=dict)


Places = dict[int, list[int]]  # the slots of each device, in order


@dataclass(frozen=True)
class Crowd:
    """A transition between two sides of which one has a device in several slots.

    Contributions over the axes `pending` are brought together; along `fresh` axes, which become partial, one position
    is given the value; along the axes of `batch`, on which both sides are partial, every position moves by itself.
    """

    src: Holders
    dst: Holders
    pending: tuple[Axis, ...] = ()
    fresh: tuple[Axis, ...] = ()
    batch: tuple[Axis, ...] = ()

    def __str__(self) -> str:
        return f"shares of {self.dst.layout.resolved()}"

    @cached_property
    def work(self) -> Work:
        """What is done in all."""
        work = Work()
        if not self.pending and not self.fresh:
            self._move(work)
        else:
            for target in self.dst.tiling.tiles():
                self._make(work, target)
        return work

    def boxes_to_keep(self, slot: int) -> Iterator[Box]:
        """Yield the boxes whose value some slot of a device holds in the end."""
        boxes = (box for j, kept in self.work.kept.items() if self.dst.numbers[j] == slot for box in kept)
        return iter(dict.fromkeys(boxes))

    def of(self, slot: int) -> Iterator[tuple[int, Box]]:
        """Yield the boxes that a device reduces, each with the slot of the target that it is for."""
        return ((total.target, total.box) for total in self.work.totals if self.dst.numbers[total.target] == slot)

    # -- without reductions ------------------------------------------------------------------------

    def _move(self, work: Work) -> None:
        givers, takers = self._by_position(self.src, self.batch), self._by_position(self.dst, self.batch)
        loads: dict[int, int] = {}
        for at, places in takers.items():
            for device in places:
                self._fetch(work, givers[at], device, places[device], loads)

    def _fetch(self, work: Work, givers: Places, device: int, slots: Sequence[int], loads: dict[int, int]) -> None:
        own = {self.src.box_of(i): i for i in reversed(givers.get(device, []))}
        coming: list[Transfer[int]] = []
        for j in slots:
            need = self.dst.box_of(j)
            left = [need] if box_size(need) else []
            for box, i in own.items():
                work.near += [Transfer(i, j, part) for piece in left if (part := intersect(piece, box)) is not None]
                left = [rest for piece in left for rest in subtract(piece, box)]
            for i, giver, box in coming:
                handed = (LocalCopy(giver, j, part, i) for piece in left if (part := intersect(piece, box)) is not None)
                work.handed += handed
                left = [rest for piece in left for rest in subtract(piece, box)]
            for piece in left:
                for tile in self.src.tiling.over(piece):
                    part = intersect(piece, self.src.tiling.tile_box(tile))
                    if part is not None:
                        coming.append(Transfer(self._source(givers, tile, box_size(part), loads), j, part))
        work.far += coming

    def _source(self, givers: Places, tile: Tile, size: int, loads: dict[int, int]) -> int:
        found = [i for slots in givers.values() for i in slots if self.src.tile_at(i) == tile]
        return self._least_busy(found, size, loads)

    def _least_busy(self, slots: Sequence[int], size: int, loads: dict[int, int]) -> int:
        best = min(slots, key=lambda i: (loads.get(self.src.numbers[i], 0), i))
        loads[self.src.numbers[best]] = loads.get(self.src.numbers[best], 0) + size
        return best

    # -- with reductions ---------------------------------------------------------------------------

    def _make(self, work: Work, target: Tile) -> None:
        takers = self._takers(target)
        cells = list(self._cells(target))
        for index, (source, cell) in enumerate(cells):
            givers = self._givers(source)
            ways = self._ways(givers, takers)
            if len(ways) * len(cells) > MANY:
                ways = [ways[index % len(ways)]]
            for number, (reducer, at) in enumerate(ways):
                box = portion(cell, len(ways), number)
                if box_size(box):
                    self._give(work, givers, takers[at], reducer, box)

    def _give(self, work: Work, givers: dict[int, Places], takers: Places, reducer: int, box: Box) -> None:
        # Bring the value of a box to the devices that are given it: from one of them that reduces it, or from holders.
        loads = self._loads
        for device, slots in takers.items():
            first = slots[0]
            for j in slots:
                work.kept.setdefault(j, []).append(box)
            work.handed += [LocalCopy(first, j, box) for j in slots[1:]]
            if not self.pending:
                (holders,) = givers.values()
                if device in holders:
                    work.near.append(Transfer(holders[device][0], first, box))
                else:
                    every = [i for found in holders.values() for i in found]
                    work.far.append(Transfer(self._least_busy(every, box_size(box), loads), first, box))
            elif device == reducer:
                sources = []
                for holders in givers.values():
                    every = holders.get(device) or [i for found in holders.values() for i in found]
                    sources.append(every[0] if device in holders else self._least_busy(every, box_size(box), loads))
                work.totals.append(Reduction(tuple(sources), first, box))
            else:
                work.spread.append(Transfer(takers[reducer][0], first, box))

    @cached_property
    def _loads(self) -> dict[int, int]:
        return {}

    def _ways(self, givers: dict[int, Places], takers: dict[int, Places]) -> list[tuple[int, int]]:
        # The (device, position along the fresh axes) at which a cell is best reduced or, without reductions, kept.
        costs: dict[tuple[int, int], int] = {}
        for at, places in takers.items():
            if self.pending:
                for device in places:
                    missing = sum(device not in holders for holders in givers.values())
                    costs[device, at] = missing + len(places) - 1
            else:
                (holders,) = givers.values()
                costs[next(iter(places)), at] = sum(device not in holders for device in places)
        least = min(costs.values())
        return [way for way, cost in costs.items() if cost == least]

    def _cells(self, target: Tile) -> Iterator[tuple[Tile, Box]]:
        box = self.dst.tiling.tile_box(target)
        for source in self.src.tiling.over(box):
            cell = intersect(box, self.src.tiling.tile_box(source))
            if cell is not None:
                yield source, cell

    def _givers(self, tile: Tile) -> dict[int, Places]:
        # Per contribution the devices that hold it, each with its slots.
        return self._by_position(self.src, self.pending, tile)

    def _takers(self, tile: Tile) -> dict[int, Places]:
        return self._by_position(self.dst, self.fresh, tile)

    def _by_position(self, side: Holders, axes: Sequence[Axis], tile: Tile | None = None) -> dict[int, Places]:
        out: dict[int, Places] = {}
        for i, number in enumerate(side.numbers):
            if tile is None or side.tile_at(i) == tile:
                out.setdefault(side.position_at(i, axes), {}).setdefault(number, []).append(i)
        return out

    # -- bounds ------------------------------------------------------------------------------------

    @cached_property
    def least(self) -> int:
        """The least number of elements that must travel in all.

        The contributions of one device can be sent as one, so that what counts are the devices that have them.
        """
        if not self.pending and not self.fresh:
            return sum(box_size(pick.box) for pick in self.work.far)
        total = 0
        for target in self.dst.tiling.tiles():
            takers = self._takers(target)
            for source, cell in self._cells(target):
                givers = self._givers(source)
                total += box_size(cell) * min(self._messages(givers, places) for places in takers.values())
        return total

    def _messages(self, givers: dict[int, Places], takers: Places) -> int:
        if not self.pending:
            (holders,) = givers.values()
            return sum(device not in holders for device in takers)
        count, meets = _cover([set(holders) for holders in givers.values()], set(takers))
        return count + len(takers) - 2 + (not meets)

    def count_needed(self, slot: int) -> int:
        """Return how many elements a device must receive, whatever the plan."""
        if not self.pending and not self.fresh:
            return sum(box_size(pick.box) for pick in self.work.far if self.dst.numbers[pick.target] == slot)
        if self.fresh:  # which device gets a value and which an identity is the plan's choice
            return 0
        return sum(size for size, missing in self._lacks(slot) if missing)

    def count_fetched(self, slot: int) -> int:
        """Return how many elements a device receives that fetches every contribution to what it needs."""
        if not self.pending and not self.fresh:
            return self.count_needed(slot)
        return sum(size * missing for size, missing in self._lacks(slot))

    def _lacks(self, slot: int) -> Iterator[tuple[int, int]]:
        # The size of each cell that a device needs, and how many contributions to it the device lacks.
        tiles = {self.dst.tile_at(j) for j, number in enumerate(self.dst.numbers) if number == slot}
        for target in sorted(tiles):
            for source, cell in self._cells(target):
                yield box_size(cell), sum(slot not in holders for holders in self._givers(source).values())


def _cover(contributions: list[set[int]], takers: set[int]) -> tuple[int, bool]:
    # The fewest devices that have every contribution between them, and whether one that needs the value can be among
    # them. Where there are too many to try, what is surely needed.
    devices = sorted(set().union(*contributions))
    most = max(sum(device in holders for holders in contributions) for device in devices)
    if len(contributions) > COVERED or len(devices) > COVERED:
        return -(-len(contributions) // most), bool(takers & set(devices))
    for count in range(1, len(devices) + 1):
        found = [set(some) for some in combinations(devices, count) if all(h & set(some) for h in contributions)]
        if found:
            return count, any(some & takers for some in found)
    raise AssertionError("every contribution is somewhere")


@dataclass(frozen=True)
class CrowdMove(Movement):
    """One round of the work of a crowd: boxes go directly, to where they are reduced, or on from there."""

    crowd: Crowd
    phase: Phase
    shares = None

    @property
    def sides(self) -> tuple[Holders, Holders]:
        """Who holds what travels, and who is to hold it."""
        return (self.crowd.dst if self.spreads else self.crowd.src), self.crowd.dst

    @property
    def batch_axes(self) -> tuple[Axis, ...]:
        """The axes along which every position moves by itself, since both sides are partial."""
        return self.crowd.batch

    # -- by device ---------------------------------------------------------------------------------

    @cached_property
    def transfers(self) -> tuple[Transfer[int], ...]:
        """All that goes between devices."""
        src, dst = self.sides
        return tuple(
            Transfer(src.number(i), dst.number(j), box) for i, j, box in filter(self._is_far, self._between_arrays)
        )

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
        work = self.crowd.work
        if self.reduces:
            return [Transfer(i, j, box) for sources, j, box in work.totals for i in sources]
        return work.spread if self.spreads else [*work.near, *work.far]

    def _is_far(self, transfer: Transfer[int]) -> bool:
        src, dst = self.sides
        return src.number(transfer.source) != dst.number(transfer.target)

    def stays(self, target: int) -> Iterator[Transfer[int]]:
        """Yield what a slot takes from arrays of its own device."""
        return (transfer for transfer in self._taken.get(target, ()) if not self._is_far(transfer))

    def arrivals(self, target: int) -> Iterator[Transfer[int]]:
        """Yield what a slot receives from other devices."""
        return filter(self._is_far, self._taken.get(target, ()))

    def departures(self, source: int) -> Iterator[Transfer[int]]:
        """Yield what a slot sends to other devices."""
        return (transfer for transfer in self._between_arrays if transfer.source == source and self._is_far(transfer))

    def reductions(self, target: int) -> Iterator[Reduction]:
        """Yield what a slot reduces."""
        return iter(self._totals.get(target, ()))

    def local_copies(self, target: int) -> Iterator[LocalCopy]:
        """Yield what a slot copies from other slots of its device, when all has arrived."""
        return iter(self._copies.get(target, ()))

    @cached_property
    def _taken(self) -> dict[int, list[Transfer[int]]]:
        return _by_target(self._between_arrays)

    @cached_property
    def _totals(self) -> dict[int, list[Reduction]]:
        return _by_target(self.crowd.work.totals) if self.reduces else {}

    @cached_property
    def _copies(self) -> dict[int, list[LocalCopy]]:
        is_last = self.spreads or not self.crowd.work.spread
        return _by_target(self.crowd.work.handed) if is_last else {}

    @property
    def largest(self) -> tuple[int, ...]:
        """The longest that a box which travels is, per dim."""
        sizes = ([stop - start for start, stop in t.box] for t in self.transfers)
        return tuple(map(max, zip(*sizes, strict=True))) or (0,) * len(self.crowd.src.shape)

    @property
    def busiest(self) -> tuple[int, int]:
        """The most elements, and the most boxes, that one device receives."""
        sizes: dict[object, int] = {}
        boxes: dict[object, int] = {}
        for t in self.transfers:
            sizes[t.target] = sizes.get(t.target, 0) + t.size
            boxes[t.target] = boxes.get(t.target, 0) + 1
        return max(sizes.values(), default=0), max(boxes.values(), default=0)


Aimed = TypeVar("Aimed", Transfer[int], Reduction, LocalCopy)


def _by_target(items: Iterable[Aimed]) -> dict[int, list[Aimed]]:
    out: dict[int, list[Aimed]] = {}
    for item in items:
        out.setdefault(item.target, []).append(item)
    return out
