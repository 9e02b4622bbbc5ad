"""The largest elements of a dim: each device finds those of its shard, and only they are sent."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.engine.arrays import is_torch
from shardwise.layout.cut import Cut
from shardwise.prim.arithmetic.positions import INDEX
from shardwise.prim.dispatch.operands import carry, fetch_operands
from shardwise.prim.dispatch.per_device import Place, map_shards
from shardwise.prim.primitive import CONSTANT, Primitive
from shardwise.prim.relayout import cut_dim
from shardwise.prim.tensor import Tensor


def _largest(x: Tensor, *, k: int, dim: int) -> Tensor:
    (x,) = fetch_operands("topk", [x], [x.layout.resolved().without_halo()])
    tiling = x.layout.tiling(x.shape).dims[dim]
    counts = [min(k, stop - start) for start, stop in map(tiling.interval, range(tiling.parts))]
    cut = x.layout.dims[dim]
    some = cut_dim(x.layout, dim, Cut(cut.axes, offsets=np.cumsum([0, *counts]).tolist()) if cut.axes else Cut())
    shape = tuple(sum(counts) if i == dim else size for i, size in enumerate(x.shape))
    places = map_shards(
        lambda place, a: _order(a, dim)[_first(dim, k)] + _start(x, place, dim), [x], some, shape, INDEX
    )
    if not cut.axes:
        return places
    values = map_shards(lambda place, a: _along(a, _order(a, dim)[_first(dim, k)], dim), [x], some, shape)
    whole = cut_dim(x.layout, dim, Cut())
    out = tuple(k if i == dim else size for i, size in enumerate(x.shape))

    def best(place: Place, positions: Any, elements: Any) -> Any:
        return _along(positions, _order(elements, dim)[_first(dim, k)], dim)

    few = [carry("topk", x, (dim,), y, whole) for y in (places, values)]
    return map_shards(best, few, whole, out, INDEX)


def _start(x: Tensor, place: Place, dim: int) -> int:
    return x.layout.box(x.shape, place.device)[dim][0]


def _first(dim: int, k: int) -> tuple[slice, ...]:
    return (*(slice(None),) * dim, slice(0, k))


def _order(array: Any, dim: int) -> Any:
    # The positions from the largest to the smallest: the reverse of a stable order of the reverse, so that of
    # equal elements the first comes first.
    if is_torch(array):
        return array.flip(dim).argsort(dim=dim, stable=True).flip(dim).mul(-1).add(array.shape[dim] - 1)
    return array.shape[dim] - 1 - np.flip(np.argsort(np.flip(array, dim), dim, kind="stable"), dim)


def _along(array: Any, index: Any, dim: int) -> Any:
    return array.take_along_dim(index, dim) if is_torch(array) else np.take_along_axis(array, index, dim)


# Where the k largest elements along a dim are, largest first.
largest = Primitive("largest", _largest, **CONSTANT)
