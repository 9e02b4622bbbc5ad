"""The primitive that drops elements at random, by where they are in the global tensor."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from shardwise.engine.arrays import is_torch
from shardwise.layout.placement import ReduceOp
from shardwise.prim.dispatch.operands import fetch_operands
from shardwise.prim.dispatch.per_device import Place, map_shards
from shardwise.prim.kernel import alike
from shardwise.prim.primitive import Primitive
from shardwise.prim.random.creation import fill_beyond
from shardwise.prim.random.draws import below, fill_with
from shardwise.prim.random.generator import Key
from shardwise.prim.tensor import Tensor

# Dropping and scaling all contributions alike commutes with these.
PASSING = (None, ReduceOp.SUM, ReduceOp.AVG, ReduceOp.MAX, ReduceOp.MIN)


def _dropout(x: Tensor, *, key: Key, chance: int, batch: int = 0) -> Tensor:
    x = x if x.layout.reduce_op in PASSING else fetch_operands("dropout", [x], [x.layout.resolved()])[0]
    shape = x.shape[batch:]
    fill = fill_with(key, partial(below, chance=chance), shape)
    scale = 2**64 / chance if chance else 0.0

    def kernel(place: Place, array: Any) -> Any:
        keep = np.empty(place.shape[batch:], bool)
        fill_beyond(keep, place.box[batch:], shape, fill)
        if is_torch(array):
            return (array * scale).where(alike([array, keep], keep.dtype)[1], array.new_zeros(()))
        return _keep(np.multiply(array, array.dtype.type(scale), out=np.empty_like(array)), keep)

    return map_shards(kernel, [x], x.layout, x.shape)


def _dropout_vjp(ct: Tensor, out: Tensor, x: Tensor, **how: Any) -> tuple[Tensor, ...]:
    return (dropout(ct, **how),)


def _keep(array: np.ndarray, keep: np.ndarray) -> np.ndarray:
    # Zeros in place of what is not kept. NumPy is slow with masks, and fast with bits.
    if array.itemsize > 8:
        return np.where(keep, array, array.dtype.type(0))
    bits = array.view(f"i{array.itemsize}")
    bits &= np.negative(keep.view(np.int8))
    return array


def _batch(row: Primitive, lead: Any, mapped: Any, operands: Any, params: Any) -> Tensor:
    return dropout(*operands, **(params | {"batch": params.get("batch", 0) + lead.count}))


# Elements are kept with a probability of `chance` in 2**64 and scaled by its inverse. The same map takes tangents
# and cotangents, in whatever layout they come: where an element is decides whether it is kept. The first `batch` dims
# do not count: one key drops the same elements at each place of them.
dropout = Primitive("dropout", _dropout, _dropout_vjp, linear=True, batch=_batch)
