"""Bounds: the least traffic that a transition can do with, whatever the plan."""

from __future__ import annotations

from shardwise.layout.tiling import box_size
from shardwise.plan.least import least
from shardwise.plan.moves import DirectMove
from shardwise.plan.search import Search
from shardwise.plan.steps import Bytes, missing


def lower_bound(search: Search) -> Bytes:
    """Return what each device needs and cannot have without receiving it.

    Without reductions that is the part of its new shard that it does not hold. Where contributions are
    brought together, every element of a new shard takes one message at least, and the total over all
    devices (which looks at every pair of tiles, so is for small meshes) is more than the sum of those.
    """
    src, dst, size = search.holders(search.src, 0), search.holders(search.dst, 1), search.itemsize
    if search.is_crowded:
        crowd = search.crowd(search.src, search.dst)
        return Bytes(search.ground, lambda slot: crowd.count_needed(slot) * size, whole=lambda: crowd.least * size)
    old, new = search.src, search.dst
    if old.partial == new.partial and old.reduce_op is new.reduce_op and not old.partial:
        move = DirectMove(src, dst)
        if src.is_on_common_mesh and dst.is_on_common_mesh:
            return Bytes(search.ground, lambda slot: move.count_received(slot) * size, lambda: missing(src, dst) * size)
        return Bytes(search.ground, lambda slot: move.count_received(slot) * size)
    # Where the target is partial, which device gets a value and which an identity is the plan's choice, so
    # that no single device must receive anything.
    needs = (lambda slot: 0) if new.partial else (lambda slot: box_size(dst.box(slot) or ((0, 0),)) * size)
    return Bytes(search.ground, needs, whole=lambda: least_total(search) * size)


def least_total(search: Search) -> int:
    """Return the least number of elements that must travel in all, with halos left out."""
    src, dst = search.holders(search.src.without_halo(), 0), search.holders(search.dst.without_halo(), 1)
    return min(least(src, dst, option) for option in search.options(src.layout, dst.layout))
