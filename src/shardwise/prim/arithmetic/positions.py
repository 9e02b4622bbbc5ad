"""Positions: the index of every element, made where it is needed."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from shardwise.engine.current import Engine, current_engine
from shardwise.layout.layout import Layout, Shape
from shardwise.prim.dispatch.per_device import Place, make_arrays
from shardwise.prim.tensor import Tensor

INDEX = np.dtype(np.int64)


def iota(layout: Layout, shape: Shape, engine: Engine | None = None) -> Tensor:
    """Return the position of every element in row-major order, laid out as told.

    >>> from shardwise import DeviceMesh, P
    >>> iota(P("x").to_layout(2, DeviceMesh((2,), ("x",))), (2, 3)).local(1)
    array([[3, 4, 5]])
    """

    def kernel(place: Place) -> Any:
        out = np.zeros(place.shape, INDEX)
        for dim, (start, stop) in enumerate(place.box):
            steps = np.arange(start, stop, dtype=INDEX) * prod(shape[dim + 1 :])
            out += steps.reshape((-1, *(1,) * (len(shape) - dim - 1)))
        return out

    return make_arrays(kernel, [], layout, shape, INDEX, engine or current_engine())
