"""Bounds: the least traffic that a transition needs, whatever the plan."""

from __future__ import annotations

from shardwise.layout.placement import ReduceOp
from shardwise.layout.tiling import box_size
from shardwise.plan.least import Option, least
from shardwise.plan.moves import DirectMove
from shardwise.plan.search import Search
from shardwise.plan.steps import Bytes, count_missing


def lower_bound(search: Search) -> Bytes:
    """Return what each device needs and cannot have without receiving it.

    Without reductions that is the part of its new shard that it does not hold. Where contributions are
    combined, every element of a new shard takes one message at least, and the total over all devices
    (which looks at every pair of tiles, so is for small meshes) is more than the sum of those.
    """
    src, dst, size = search.holders(search.src, 0), search.holders(search.dst, 1), search.itemsize
    if search.is_crowded:
        crowd = search.crowd(search.src, search.dst)
        return Bytes(search.slots, lambda slot: crowd.count_needed(slot) * size, None, lambda: crowd.least * size)
    old, new = search.src, search.dst
    if old.partial == new.partial and old.reduce_op is new.reduce_op and not old.partial:
        move = DirectMove(src, dst)
        is_counted = src.is_on_common_mesh and dst.is_on_common_mesh
        count_each = (lambda: count_missing(src, dst) * size) if is_counted else None
        return Bytes(search.slots, lambda slot: move.count_received(slot) * size, count_each)

    def count(slot: int) -> int:
        # Where the target is partial, which device gets a value and which an identity is the plan's choice, so
        # that no single device must receive anything.
        return 0 if new.partial else box_size(dst.box(slot) or ((0, 0),)) * size

    return Bytes(search.slots, count, None, lambda: least_total(search) * size)


def least_total(search: Search) -> int:
    """Return the least number of elements that must travel in all, with halos left out.

    Plans make an average pending by replicating. Whoever scales what each device has could do with the messages of a
    sum, so those are all that is surely needed.
    """
    src, dst = search.holders(search.src.without_halo(), 0), search.holders(search.dst.without_halo(), 1)
    options = list(search.options(src.layout, dst.layout))
    if dst.layout.reduce_op is ReduceOp.AVG:
        options = [Option(src.layout.partial, dst.layout.partial, (), keeps=src.layout.reduce_op is ReduceOp.AVG)]
    return min(least(src, dst, option) for option in options)
