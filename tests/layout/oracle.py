"""What the layout room must answer, worked out element by element with NumPy from the definitions."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import prod
from typing import Any

import numpy as np

from shardwise import DeviceMesh, Layout
from shardwise.layout.axis import Axis

Box = tuple[tuple[int, int], ...]


def lengths(size: int, parts: int, split: str, offsets: Sequence[int] | None = None) -> list[int]:
    """How many elements each part of a dim owns."""
    elements = np.arange(size)
    if split == "offsets":
        assert offsets is not None
        return [len(elements[a:b]) for a, b in pairwise(offsets)]
    if split == "chunk":
        width = -(-size // parts)
        return [len(elements[i * width : (i + 1) * width]) for i in range(parts)]
    return [len(piece) for piece in np.array_split(elements, parts)]


def digit(mesh: DeviceMesh, axis: Axis, device: int) -> int:
    """The position of a device along a mesh axis or sub-axis."""
    coord = np.unravel_index(device, mesh.mesh_shape)[mesh.axis_names.index(axis.name)]
    table = np.arange(axis.of).reshape(axis.pre, axis.size, -1)
    return int(np.argwhere(table == coord)[0][1])


def position(mesh: DeviceMesh, axes: Sequence[Axis], device: int) -> int:
    """The position of a device in several axes taken as one, major to minor."""
    if not axes:
        return 0
    return int(np.ravel_multi_index([digit(mesh, a, device) for a in axes], [a.size for a in axes]))


def owned_box(layout: Layout, shape: Sequence[int], device: int) -> Box:
    """The box that a device owns."""
    out = []
    for cut, size in zip(layout.dims, shape, strict=True):
        parts = prod(axis.size for axis in cut.axes)
        bounds = [0, *accumulate(lengths(size, parts, cut.split, cut.offsets))]
        at = position(layout.mesh, cut.axes, device)
        out.append((bounds[at], bounds[at + 1]))
    return tuple(out)


def held_box(layout: Layout, shape: Sequence[int], device: int) -> Box:
    """The box that a device holds: what it owns and the halo, inside the tensor unless it is padded."""
    out = []
    for (start, stop), cut, size in zip(owned_box(layout, shape, device), layout.dims, shape, strict=True):
        low, high = start - cut.halo[0], stop + cut.halo[1]
        out.append((low, high) if cut.edge == "pad" else (max(low, 0), min(high, size)))
    return tuple(out)


def slices(box: Box) -> tuple[slice, ...]:
    """A box as an index of an array."""
    return tuple(slice(start, stop) for start, stop in box)


def unfolded(mesh: DeviceMesh, axes: Sequence[Axis], values: Sequence[Any]) -> tuple[np.ndarray, list[int]]:
    """One value per device as an array with a dim per factor of the mesh, and which dims `axes` are.

    Axes of size one have no dim.
    """
    used = [axis for axis in axes if axis.size > 1]
    dims: list[tuple[str, int, int]] = []
    for name, of in zip(mesh.axis_names, mesh.mesh_shape, strict=True):
        ends = {end for a in used if a.name == name for end in (a.pre, a.pre * a.size)}
        dims += [(name, low, high // low) for low, high in pairwise(sorted({1, of} | ends))]
    array = np.empty(mesh.num_devices, dtype=object)
    array[:] = values
    return array.reshape([size for *_, size in dims]), [dims.index((a.name, a.pre, a.size)) for a in used]


def grouped(mesh: DeviceMesh, axes: Sequence[Axis], values: Sequence[Any]) -> np.ndarray:
    """The values of devices with one row per group over `axes`, members in the order of `axes`."""
    array, order = unfolded(mesh, axes, values)
    rest = [dim for dim in range(array.ndim) if dim not in order]
    return array.transpose([*rest, *order]).reshape(-1, prod(axis.size for axis in axes))
