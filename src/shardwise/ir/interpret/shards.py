"""Shards: whole arrays cut into what each device holds, and put together again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardwise.errors import ProgramError
from shardwise.ir.module.values import Value, check_defined, move, type_text
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.tiling import Box


def cut(array: np.ndarray, layout: Layout | None, devices: int) -> list[np.ndarray]:
    """Return what each device holds of a whole array; halos that reach outside are zero, and no layout is the whole.

    >>> from shardwise import DeviceMesh, Layout
    >>> [x.tolist() for x in cut(np.arange(3), Layout(DeviceMesh((2,), ("x",)), ["x"]), 2)]
    [[0, 1], [2]]
    """
    if layout is None:
        return [array] * devices
    return [_region(array, layout.held_box(array.shape, device)) for device in range(devices)]


def _region(array: np.ndarray, box: Box) -> np.ndarray:
    inside = tuple(slice(max(a, 0), min(b, n)) for (a, b), n in zip(box, array.shape, strict=True))
    outside = [(max(-a, 0), max(b - n, 0)) for (a, b), n in zip(box, array.shape, strict=True)]
    return np.pad(array[inside], outside) if any(map(any, outside)) else array[inside]


def own_part(value: Value, layout: Layout | None, shape: Sequence[int], device: int) -> Value:
    """Return the part of what a device holds that it owns: without the halo."""
    if layout is None:
        return value
    box, own = layout.held_box(shape, device), layout.box(shape, device)
    sizes = tuple(b - a for a, b in box)
    if value.shape != sizes:
        raise ProgramError(f"device {device} returns {type_text(value)}, but its shard has the shape {list(sizes)}.")
    where = tuple(slice(a - start, b - start) for (a, b), (start, _) in zip(own, box, strict=True))
    return move(lambda x: x[where], value)


def join(shards: Sequence[Value], layout: Layout | None, what: str) -> np.ndarray:
    """Return the whole of which devices hold shards.

    >>> from shardwise import DeviceMesh, Layout
    >>> join([np.array([0, 1]), np.array([2])], Layout(DeviceMesh((2,), ("x",)), ["x"]), "result 0")
    array([0, 1, 2])
    """
    if layout is None:
        return check_defined(shards[0], f"{what} on device 0")
    shape = _whole_shape([x.shape for x in shards], layout)
    out = np.empty(shape, shards[0].dtype)
    for device, shard in enumerate(shards):
        part = check_defined(own_part(shard, layout, shape, device), f"{what} on device {device}")
        out[tuple(slice(a, b) for a, b in layout.box(shape, device))] = part
    return out


def _whole_shape(shapes: Sequence[Shape], layout: Layout) -> Shape:
    # The sizes of what the devices along each dim own, added up.
    sizes: list[int] = []
    for dim, cut_ in enumerate(layout.dims):
        tiles = (tuple(part * (k == dim) for k in range(layout.rank)) for part in range(layout.parts(dim)))
        sizes.append(sum(shapes[layout.first_holder(tile)][dim] - sum(cut_.halo) for tile in tiles))
    return tuple(sizes)
