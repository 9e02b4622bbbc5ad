"""The primitive that drops elements at random, by where they are in the global tensor."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from shardwise.engine.arrays import is_torch
from shardwise.layout.placement import ReduceOp
from shardwise.prim.creation import filled
from shardwise.prim.draws import below, drawn
from shardwise.prim.generator import Key
from shardwise.prim.kernel import alike
from shardwise.prim.needs import brought
from shardwise.prim.row import Row
from shardwise.prim.tensor import Tensor
from shardwise.prim.work import Place, worked

# Dropping and scaling all contributions alike commutes with these.
PASSING = (None, ReduceOp.SUM, ReduceOp.AVG, ReduceOp.MAX, ReduceOp.MIN)


def _dropout(x: Tensor, *, key: Key, chance: int) -> Tensor:
    x = x if x.layout.reduce_op in PASSING else brought("dropout", [x], [x.layout.resolved()])[0]
    fill = drawn(key, partial(below, chance=chance), x.shape)
    scale = 2**64 / chance if chance else 0.0

    def kernel(place: Place, array: Any) -> Any:
        keep = np.empty(place.shape, bool)
        filled(keep, place.box, x.shape, fill)
        if is_torch(array):
            return (array * scale).where(alike([array, keep], keep.dtype)[1], array.new_zeros(()))
        return np.multiply(array, array.dtype.type(scale), where=keep, out=np.zeros_like(array))

    return worked(kernel, [x], x.layout, x.shape)


# Elements are kept with a probability of `chance` in 2**64 and scaled by its inverse. The same map takes tangents
# and cotangents, in whatever layout they come: where an element is decides whether it is kept.
dropout = Row(
    "dropout",
    _dropout,
    lambda ct, out, x, *, key, chance: (dropout(ct, key=key, chance=chance),),
    linear=True,
)
