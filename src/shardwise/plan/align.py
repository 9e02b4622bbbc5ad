"""Alignment: a layout on another mesh, written in the axes of this one, where the devices allow it."""

from __future__ import annotations

from itertools import pairwise

from shardwise.layout.axis import Axis, merge
from shardwise.layout.cut import Cut
from shardwise.layout.device import Device
from shardwise.layout.device_order import RegularOrder
from shardwise.layout.layout import Layout
from shardwise.layout.mesh import DeviceMesh


def align_layout(layout: Layout, mesh: DeviceMesh) -> Layout | None:
    """Return the layout on `mesh` that puts the same boxes on the same devices, or None.

    It exists where both meshes have the same devices and one's axes are factors of the other's, in
    whatever order; its cost does not depend on the number of devices.

    >>> from shardwise import P
    >>> mesh = DeviceMesh((2, 4), ("dp", "tp"))
    >>> align_layout(P("row").to_layout(1, mesh.transpose("tp", "dp", names=("row", "col"))), mesh)
    Layout(mesh(dp=2, tp=4), ['tp'])
    """
    if layout.mesh is mesh:
        return layout
    theirs, ours = layout.mesh.order, mesh.order
    if not isinstance(theirs, RegularOrder) or not isinstance(ours, RegularOrder):
        return None
    if (theirs.label, theirs.start, layout.mesh.num_devices) != (ours.label, ours.start, mesh.num_devices):
        return None
    levels = [level for name in mesh.axis_names for level in _levels(mesh, name)]
    whole = [layout.mesh.axis(name) for name in layout.mesh.axis_names]
    axes = (*whole, *layout.sharded_axes, *layout.partial)
    translations = {axis: _translate(layout.mesh, axis, levels) for axis in axes}
    if not _is_distinct(levels) or None in translations.values():  # sub-axes may cut across, the whole axis not
        return None
    dims: list[Cut] = []
    for cut in layout.dims:
        axes = merge(a for axis in cut.axes for a in translations[axis] or ())
        dims.append(Cut(axes, split=cut.split, offsets=cut.offsets, halo=cut.halo, edge=cut.edge))
    partial = [a for axis in layout.partial for a in translations[axis] or ()]
    return Layout(mesh, dims, partial, layout.reduce_op or "sum")


def index_of(mesh: DeviceMesh, device: Device) -> int | None:
    """Return where a device stands in a mesh whose devices have a regular order of positive strides, or None.

    >>> from shardwise import CPU
    >>> index_of(DeviceMesh((2, 4), ("x", "y")).transpose(), CPU(6))
    5
    """
    if not isinstance(mesh.order, RegularOrder):
        return None
    levels = (level for name in mesh.axis_names for level in _levels(mesh, name))
    at = device.id - mesh.order.start
    index = sum(at // low % axis.size * mesh.divisor(axis) for low, _, axis in levels)
    return index if mesh.device(index) == device else None


Level = tuple[int, int, Axis]  # (lowest stride in ids, one past the highest, the sub-axis that runs over it)


def _levels(mesh: DeviceMesh, name: str) -> list[Level]:
    out: list[Level] = []
    pre, whole = 1, mesh.axis(name)
    for size, stride in mesh.factors(whole) or ():
        out.append((stride, stride * size, Axis(name, pre, size, whole.of)))
        pre *= size
    return out


def _is_distinct(levels: list[Level]) -> bool:
    # Positions give distinct ids when sorted strides do not run into each other.
    ordered = sorted(levels, key=lambda level: level[:2])
    return all(low > 0 for low, _, _ in levels) and all(a[1] <= b[0] and b[0] % a[1] == 0 for a, b in pairwise(ordered))


def _translate(mesh: DeviceMesh, axis: Axis, levels: list[Level]) -> list[Axis] | None:
    out: list[Axis] = []
    factors = mesh.factors(axis)
    if factors is None or any(stride <= 0 for _, stride in factors):
        return None
    for size, stride in factors:
        high = stride * size
        while high > stride:
            level_above = next((level for level in levels if level[0] < high <= level[1]), None)
            if level_above is None:
                return None
            bottom, top, part = level_above
            low = max(bottom, stride)
            if top % high or high % low or low % bottom:
                return None
            out.append(Axis(part.name, part.pre * (top // high), high // low, part.of))
            high = low
    return out
