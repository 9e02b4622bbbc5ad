"""Mirroring: the elements of dims in reverse order; each one that changes device moves once."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace

from shardwise.caches import cache
from shardwise.engine.execute import program_of
from shardwise.layout.cut import Cut
from shardwise.layout.device import CPU
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.mesh import DeviceMesh
from shardwise.plan.plan import plan_reshard
from shardwise.prim.dispatch.operands import may_send
from shardwise.prim.dispatch.per_device import map_shards, take_shards
from shardwise.prim.forms import Form, reverse
from shardwise.prim.primitive import Primitive
from shardwise.prim.relayout import cut_as
from shardwise.prim.tensor import Tensor, move_to

Dims = tuple[int, ...]


def _mirror(x: Tensor, *, dims: Dims, layout: Layout | None = None) -> Tensor:
    x = move_to(x, x.layout.without_halo())
    layout, shape = layout or x.layout, x.shape
    is_apart = x.engine.has_values and not x.engine.holds_all
    if is_apart and len(set(x.mesh.devices)) < x.mesh.num_devices:
        # What follows tells slots apart by devices of its own, and no process holds what is theirs.
        whole = cut_as(x.layout, tuple(None if k in dims else cut for k, cut in enumerate(x.layout.dims)))
        return move_to(map_shards(lambda place, a: _flip(a, dims), [move_to(x, whole)], whole, shape), layout)
    if layout is not x.layout or any(layout.dims[k].axes for k in dims):
        # Device i needs, mirrored, what the device opposite to it has now. Seen on the mesh with the devices in
        # mirrored order that is a change of layout like any other, which the planner does with the fewest bytes.
        source, target, opposite = mirror_layout(x.layout, layout, shape, dims)
        plan = plan_reshard(source, target, shape, x.dtype)
        if plan.steps:
            may_send("flip", x, dims, plan)
            there = Tensor(x.engine.run(program_of(plan), x.kept), target, shape, x.dtype, x.engine)
            x = take_shards(there, layout, shape, opposite.__getitem__)
        else:
            x = take_shards(x, layout, shape)
    return map_shards(lambda place, a: _flip(a, dims), [x], layout, shape)


def _flip(array: Any, dims: Dims) -> Any:
    return array_namespace(array).flip(array, axis=dims)


@cache(entries=1024)
def mirror_layout(src: Layout, dst: Layout, shape: Shape, dims: Dims) -> tuple[Layout, Layout, tuple[int, ...]]:
    """Return a layout on a mesh of distinct devices, the mirror image of another, and the opposite of each device.

    >>> from shardwise import P
    >>> layout = P("x").to_layout(1, DeviceMesh((3,), ("x",)))
    >>> source, target, opposite = mirror_layout(layout, layout, (7,), (0,))
    >>> target.dims, opposite
    ((Cut('x', offsets=(0, 2, 4, 7)),), (2, 1, 0))
    """
    mesh = src.mesh
    count = mesh.num_devices
    devices = mesh.devices if len(set(mesh.devices)) == count else [CPU(i) for i in range(count)]
    plain = DeviceMesh(mesh.mesh_shape, mesh.axis_names, devices)
    device = np.arange(count)
    opposite = device.copy()
    for k in dims:
        for axis in dst.dims[k].axes:
            divisor = mesh.divisor(axis)
            opposite += (axis.size - 1 - 2 * (device // divisor % axis.size)) * divisor
    other = DeviceMesh(mesh.mesh_shape, mesh.axis_names, [plain.device(int(i)) for i in opposite])
    cuts = list(dst.dims)
    for k in dims:
        dim = dst.tiling(shape).dims[k]
        if cuts[k].axes:
            ends = [dim.size - dim.interval(part)[0] for part in reversed(range(dim.parts))]
            cuts[k] = Cut(cuts[k].axes, offsets=(0, *ends))
    image = Layout(mesh, cuts, dst.partial, dst.reduce_op or "sum")
    return src.to_mesh(plain), image.to_mesh(other), tuple(map(int, opposite))


def _mirror_vjp(ct: Tensor, out: Tensor, x: Tensor, *, dims: Dims, layout: Layout | None = None) -> tuple[Tensor, ...]:
    return (mirror(ct, dims=dims, layout=x.layout.resolved().without_halo()),)


def _form(out: Tensor, x: Tensor, *, dims: Dims, layout: Layout | None = None) -> Form:
    return reverse(x, dims)


# The value with the elements of some dims in reverse order, in this layout or its own.
mirror = Primitive("mirror", _mirror, _mirror_vjp, linear=True, lower=_form)
