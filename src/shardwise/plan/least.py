"""The fewest messages that one way to treat partial axes needs, element by element."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from shardwise.errors import seal
from shardwise.layout.axis import Axis
from shardwise.layout.tiling import box_size
from shardwise.plan.holders import Holders


@seal
@dataclass(frozen=True, slots=True)
class Option:
    """One way to treat partial axes: those reduced, those that become partial, those left as they are."""

    pending: tuple[Axis, ...]
    fresh: tuple[Axis, ...]
    batch: tuple[Axis, ...]


def least(src: Holders, dst: Holders, option: Option) -> int:
    """Return the least number of elements that must travel in all.

    With c contributors and t targets an element takes c + t - 2 messages, one more where no contributor is
    a target: each contribution but one must leave its device, and each target but one must receive it. Where
    nothing is reduced it takes one message for each target that does not hold it.
    """
    total = 0
    takers = {tile: _by_position(dst, tile, option) for tile in dst.tiling.tiles()}
    for tile in src.tiling.tiles():
        givers = set(src.slots(tile, option.batch))
        for target, box in dst.tiling.cells(src.tiling.tile_box(tile)):
            total += box_size(box) * min(_count_messages(givers, slots, option) for slots in takers[target])
    return total * prod(axis.size for axis in option.batch)


def _by_position(dst: Holders, tile: tuple[int, ...], option: Option) -> list[list[int]]:
    positions: dict[int, list[int]] = {}
    for slot in dst.slots(tile, option.batch):
        positions.setdefault(dst.position(slot, option.fresh), []).append(slot)
    return list(positions.values())


def _count_messages(givers: set[int], takers: list[int], option: Option) -> int:
    if not option.pending:
        return sum(slot not in givers for slot in takers)
    return prod(axis.size for axis in option.pending) + len(takers) - 2 + givers.isdisjoint(takers)
