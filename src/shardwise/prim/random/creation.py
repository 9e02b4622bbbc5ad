"""Creation: each device fills its own array of a new tensor, whatever the layout; nothing moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.engine.arrays import Array, identity, is_torch
from shardwise.engine.current import Engine
from shardwise.engine.local_shards import sample
from shardwise.engine.storage import region
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.placement import ReduceOp
from shardwise.layout.tiling import Box
from shardwise.prim.dispatch.per_device import Place, make_arrays
from shardwise.prim.kernel import alike
from shardwise.prim.tensor import Tensor, lowest

Fill = Callable[[np.ndarray, Box], None]  # writes a box of the value into a contiguous array


def create(
    fill: Fill, shape: Shape, dtype: np.dtype, layout: Layout, engine: Engine, like: Tensor | None = None
) -> Tensor:
    """Return the tensor whose every box is what `fill(out, box)` writes, in the library of `like`.

    What a halo reaches over is filled like the rest, and what lies outside the tensor is zero, as after a
    halo exchange. Of a pending reduction the first device of a group contributes the value and the others
    nothing (or all the same, if it is an average).

    >>> from shardwise import Cut, DeviceMesh, Layout, LocalEngine
    >>> layout = Layout(DeviceMesh((2,), ("x",)), [Cut("x", halo=1)])
    >>> def count(out, box):
    ...     out[...] = np.arange(*box[0])
    >>> x = create(count, (6,), np.dtype(int), layout, LocalEngine())
    >>> x.local(0), x.local(1)
    (array([0, 1, 2, 3]), array([2, 3, 4, 5]))
    """
    layout.check_dtype(dtype)
    op, pending = layout.reduce_op, [(layout.mesh.divisor(axis), axis.size) for axis in layout.partial]

    def kernel(place: Place) -> Array:
        out: Any = engine.empty(place.shape, dtype)
        if op in (None, ReduceOp.AVG) or not any(place.device // step % size for step, size in pending):
            fill_beyond(out, place.box, shape, fill)
        else:
            out[...] = identity(op, dtype)
        return _beside(engine.place(out, layout.mesh.device(place.device)), like)

    return make_arrays(kernel, [], layout, shape, dtype, engine)


def fill_beyond(out: np.ndarray, box: Box, shape: Shape, fill: Fill) -> None:
    """Fill an array of a box that may reach outside the tensor, where it is zero."""
    inside = tuple([(max(a, 0), max(a, 0, min(b, n))) for (a, b), n in zip(box, shape, strict=True)])
    if inside == box:
        fill(out, box)
        return
    part = np.empty([stop - start for start, stop in inside], out.dtype)
    fill(part, inside)
    out[...] = 0
    out[region(inside, box)] = part


def _beside(array: Array, like: Tensor | None) -> Array:
    if like is None or is_torch(array) or not is_torch(first := sample(lowest(like).arrays)):
        return array
    return alike([first, array], array.dtype)[1]


# -- values --------------------------------------------------------------------------------------------

# Elements that are worked on at a time: what is needed on the way stays in cache, and below the 128 KiB from which on
# the C library asks for fresh pages each time.
BLOCK = 3 << 12


def constant(value: object) -> Fill:
    """Return what fills with one value."""

    def fill(out: np.ndarray, box: Box) -> None:
        out[...] = value

    return fill


def whole_progression(start: int, step: int) -> Fill:
    """Return what fills with start + i step in whole numbers, which wrap around as those of the dtype do."""
    first, by = np.uint64(start % 2**64), np.uint64(step % 2**64)
    return _in_blocks(lambda begin, end: np.arange(begin, end, dtype=np.uint64) * by + first)


def progression(start: complex, step: complex, last: tuple[int, complex] | None = None, down: bool = False) -> Fill:
    """Return what fills with start + i step, in float64 or complex128, except that the `last` one is given.

    `down` rounds downwards.
    """

    def values(begin: int, end: int) -> np.ndarray:
        out = np.arange(begin, end) * step + start
        if last is not None and begin <= last[0] < end:
            out[last[0] - begin] = last[1]
        return np.floor(out) if down else out

    return _in_blocks(values)


def _in_blocks(values: Callable[[int, int], np.ndarray]) -> Fill:
    # What fills a vector with its values from one place to another, some at a time.
    def fill(out: np.ndarray, box: Box) -> None:
        low, high = box[0]
        for begin in range(low, high, BLOCK):
            end = min(begin + BLOCK, high)
            np.copyto(out[begin - low : end - low], values(begin, end), casting="unsafe")

    return fill


def diagonal(k: int) -> Fill:
    """Return what fills with ones on the k-th diagonal and zeros elsewhere.

    >>> out = np.empty((2, 3), int)
    >>> diagonal(1)(out, ((2, 4), (1, 4)))
    >>> out
    array([[0, 0, 1],
           [0, 0, 0]])
    """

    def fill(out: np.ndarray, box: Box) -> None:
        (top, bottom), (left, right) = box
        out[...] = 0
        first, stop = max(top, left - k), min(bottom, right - k)
        width = right - left
        if first < stop:
            start = (first - top) * width + first + k - left
            out.reshape(-1)[start :: width + 1][: stop - first] = 1

    return fill
