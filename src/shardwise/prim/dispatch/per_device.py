"""Work: every device makes its array of a result from the arrays that it holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from shardwise.caches import cache
from shardwise.engine.arrays import Array, as_array, is_torch
from shardwise.engine.current import Engine
from shardwise.engine.local_shards import sample
from shardwise.engine.storage import Storage, storage_of
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.tiling import Box
from shardwise.prim.kernel import of_one_library
from shardwise.prim.tensor import Tensor


class Place(NamedTuple):
    """Where an array of a result is: one device that holds it, the box, halo included, that it holds, and its shape."""

    device: int
    box: Box
    shape: Shape


# What a device does with arrays of one operand or of two, given its place; or of any number of them.
Kernel = Callable[[Place, Array], Array] | Callable[[Place, Array, Array], Array]


def map_shards(
    kernel: Kernel,
    operands: Sequence[Tensor],
    layout: Layout,
    shape: Shape,
    dtype: np.dtype | None = None,
    view: bool = False,
) -> Tensor:
    """Return what devices make, each of its arrays of the operands: `kernel(place, *arrays)`.

    Devices that hold the same array of the result must make it alike. The dtype is that of the first operand
    unless it is given. A `view` takes no memory of its own.

    >>> from shardwise import DeviceMesh, P, shard
    >>> x = shard(np.arange(4), DeviceMesh((2,), ("x",)), P("x"))
    >>> map_shards(lambda place, a: a + 10 * place.device, [x], x.layout, x.shape)
    Tensor([ 0,  1, 12, 13], int64[4@x] on x=2)
    """
    base = operands[0].arrays if view else None
    return make_arrays(kernel, operands, layout, shape, dtype or operands[0].dtype, operands[0].engine, base)


def in_shape(place: Place, array: Array) -> Array:
    """Return an array of an operand in the shape that the array of the result has."""
    return array.reshape(place.shape)


def make_arrays(
    kernel: Callable[..., Array],
    operands: Sequence[Tensor],
    layout: Layout,
    shape: Shape,
    dtype: np.dtype,
    engine: Engine,
    base: Sequence[Array] | None = None,
) -> Tensor:
    """Return what devices of an engine make, also of nothing; views of `base` take no memory."""
    storage = storage_of(layout, shape)
    if len(operands) > 1 and len({is_torch(sample(x.arrays)) for x in operands}) > 1:
        kernel = of_one_library(kernel, dtype)
    if operands and engine.holds_all:  # often, so what is done where is worked out once
        works, sources = _works(storage, tuple([x.storage for x in operands])), [x.arrays for x in operands]
        engine.counters.own.kernel_calls += len(works)
        if len(sources) == 1:
            (source,) = sources
            arrays = [kernel(place, source[i]) for place, (i,) in works]
        else:
            arrays = [kernel(place, *[a[i] for a, i in zip(sources, at, strict=True)]) for place, at in works]
        if not shape:  # NumPy makes scalars of some 0-d arrays
            arrays = [as_array(array) for array in arrays]
        return Tensor(arrays, layout, shape, dtype, engine)
    lookups = [(x.arrays, x.storage.index) for x in operands]
    places = _places(storage)

    def make(index: int, device: int) -> Array:
        place = places.get(device)
        if place is None:
            place = places[device] = Place(device, storage.box(index), storage.local_shape(index))
        local = [arrays[which(device)] for arrays, which in lookups]
        array = engine.apply(partial(kernel, place), local, place.shape)
        return as_array(array)

    like = sample(operands[0].arrays) if operands else None
    return Tensor(engine.each(storage, dtype, make, base, like), layout, shape, dtype, engine)


@cache()
def _works(storage: Storage, operands: tuple[Storage, ...]) -> tuple[tuple[Place, tuple[int, ...]], ...]:
    # By array of the result: where it is, and which arrays of the operands it is made of.
    firsts = enumerate(storage.firsts)
    return tuple(
        (Place(device, storage.box(i), storage.local_shape(i)), tuple([own.index(device) for own in operands]))
        for i, device in firsts
    )


@cache()
def _places(storage: Storage) -> dict[int, Place]:
    # By device, filled as they are needed: on a large mesh most never are.
    return {}


def take_shards(x: Tensor, layout: Layout, shape: Shape, source: Callable[[int], int] | None = None) -> Tensor:
    """Return the tensor whose devices hold the very arrays that they (or `source(device)`) hold of another."""
    arrays, engine = x.arrays, x.engine
    if source is None and engine.holds_all:  # often, so the order is worked out once
        order = _order(x.layout, x.shape, layout, shape)
        return Tensor(arrays if order is None else [arrays[i] for i in order], layout, shape, x.dtype, engine)
    which = x.storage.index

    def make(index: int, device: int) -> Any:
        return arrays[which(device if source is None else source(device))]

    return Tensor(engine.each(storage_of(layout, shape), x.dtype, make, arrays), layout, shape, x.dtype, engine)


@cache()
def _order(layout: Layout, shape: Shape, new: Layout, new_shape: Shape) -> tuple[int, ...] | None:
    old = storage_of(layout, shape)
    order = tuple(map(old.index, storage_of(new, new_shape).firsts))
    return None if order == tuple(range(old.count)) else order
