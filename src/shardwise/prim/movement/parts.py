"""Primitives between a tensor over several devices and tensors on single ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from array_api_compat import array_namespace

from shardwise.engine.arrays import Array
from shardwise.engine.local_shards import sample
from shardwise.engine.storage import storage_of
from shardwise.layout.cut import Cut
from shardwise.layout.device import Device
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.mesh import DeviceMesh
from shardwise.prim import forms
from shardwise.prim.dispatch.per_device import Place, make_arrays, map_shards, take_shards
from shardwise.prim.kernel import zeros
from shardwise.prim.outline import blank_of
from shardwise.prim.primitive import Primitive, needs_nothing
from shardwise.prim.relayout import relayout
from shardwise.prim.tensor import Tensor


def on(device: Device, rank: int) -> Layout:
    """Return the layout of a tensor on a single device."""
    return Layout.replicated(DeviceMesh.single(device), rank)


def zeros_like(like: Tensor, shape: Shape, layout: Layout) -> Tensor:
    """Return a tensor of zeros of the dtype, library and engine of another."""
    source = blank_of(like)

    def kernel(place: Place) -> Array:
        return zeros(source, place.shape)

    return make_arrays(kernel, [], layout, shape, like.dtype, like.engine)


def zeros_for(x: Tensor) -> Tensor:
    """Return zeros that lie as a value does, with nothing pending: its derivative where there is none."""
    return zeros_like(x, x.shape, x.layout.resolved().without_halo())


def fill_tangents(tangents: Sequence[Tensor | None], operands: Sequence[Tensor]) -> list[Tensor]:
    """Return the tangents of operands, zeros in the place of those that are None."""
    return [zeros_for(x) if tangent is None else tangent for tangent, x in zip(tangents, operands, strict=True)]


def join_layouts(parts: Sequence[Shape], devices: Sequence[Device], dim: int) -> tuple[Layout, Shape]:
    """Return layout and shape of tensors on single devices seen as shards along a dim."""
    bounds = [0]
    for shape in parts:
        bounds.append(bounds[-1] + shape[dim])
    mesh = DeviceMesh((len(devices),), ("device",), devices)
    cuts = [Cut("device", offsets=bounds) if k == dim and len(devices) > 1 else None for k in range(len(parts[0]))]
    return Layout(mesh, cuts), tuple(bounds[-1] if k == dim else size for k, size in enumerate(parts[0]))


def _join(*parts: Tensor, dim: int) -> Tensor:
    devices = [part.mesh.device(0) for part in parts]
    layout, shape = join_layouts([part.shape for part in parts], devices, dim)
    engine, dtype, like = parts[0].engine, parts[0].dtype, sample(parts[0].arrays)
    base = [part.arrays for part in parts]
    arrays = engine.each(storage_of(layout, shape), dtype, lambda index, device: parts[device].arrays[0], base, like)
    return Tensor(arrays, layout, shape, dtype, engine)


def _join_vjp(ct: Tensor, out: Tensor, *parts: Tensor, dim: int) -> tuple[Tensor, ...]:
    shards = relayout(ct, layout=out.layout)
    return tuple(take_part(shards, part=i, dim=dim) for i in range(len(parts)))


def _join_jvp(tangents: Any, out: Tensor, *parts: Tensor, dim: int) -> Tensor:
    return join(*fill_tangents(tangents, parts), dim=dim)


def _take_part(x: Tensor, *, part: int, dim: int) -> Tensor:
    which = x.storage.index(part)
    return take_shards(x, on(x.mesh.device(part), x.ndim), x.storage.local_shape(which), lambda device: part)


def _take_part_vjp(ct: Tensor, out: Tensor, x: Tensor, *, part: int, dim: int) -> tuple[Tensor, ...]:
    here = relayout(ct, layout=out.layout)
    parts = [
        here if i == part else zeros_like(here, x.layout.local_shape(x.shape, i), on(x.mesh.device(i), x.ndim))
        for i in range(x.mesh.num_devices)
    ]
    return (join(*parts, dim=dim),)


def _stack(*parts: Tensor) -> Tensor:
    shape = (len(parts), *parts[0].shape)
    layout = on(parts[0].mesh.device(0), len(shape))

    def kernel(place: Place, *arrays: Array) -> Array:
        return array_namespace(arrays[0]).stack(arrays, axis=0)

    return map_shards(kernel, parts, layout, shape)


def _stack_vjp(ct: Tensor, out: Tensor, *parts: Tensor) -> tuple[Tensor, ...]:
    here = relayout(ct, layout=out.layout)
    return tuple(unstack_part(here, part=i, count=len(parts)) for i in range(len(parts)))


def _stack_jvp(tangents: Any, out: Tensor, *parts: Tensor) -> Tensor:
    return stack_parts(*fill_tangents(tangents, parts))


def _unstack(x: Tensor, *, part: int, count: int) -> Tensor:
    return map_shards(lambda place, a: a[part, ...], [x], on(x.mesh.device(0), x.ndim - 1), x.shape[1:])


def _unstack_vjp(ct: Tensor, out: Tensor, x: Tensor, *, part: int, count: int) -> tuple[Tensor, ...]:
    here = relayout(ct, layout=out.layout)
    return (stack_parts(*[here if i == part else zeros_like(here, out.shape, out.layout) for i in range(count)]),)


def _own(x: Tensor) -> Tensor:
    return map_shards(lambda place, a: array_namespace(a).asarray(a, copy=True), [x], x.layout, x.shape)


def _own_vjp(ct: Tensor, out: Tensor, x: Tensor) -> tuple[Tensor, ...]:
    return (relayout(ct, layout=x.layout.resolved()),)


def _own_form(out: Tensor, x: Tensor) -> forms.Form:
    return forms.as_form(x)


def _take_part_form(out: Tensor, x: Tensor, *, part: int, dim: int) -> forms.Form:
    return forms.take_slice(x, [start for start, _ in x.layout.box(x.shape, part)], out.shape)


def join_form(out: Tensor, *parts: Tensor, dim: int, layout: Layout | None = None) -> forms.Form:
    """Return values one after the other."""
    return forms.concat(parts, dim)


# Tensors on single devices seen as the shards of one along a dim; and one shard as a tensor on its device.
join = Primitive("join", _join, _join_vjp, _join_jvp, needs=needs_nothing, lower=join_form)
take_part = Primitive("take_part", _take_part, _take_part_vjp, linear=True, lower=_take_part_form)


def _batch_stack(row: Primitive, lead: Any, mapped: Any, operands: Any, params: Any) -> Tensor:
    return lead.in_front(stack_parts(*lead.spread_all(mapped, operands)), 1)


def _batch_unstack(row: Primitive, lead: Any, mapped: Any, operands: Any, params: Any) -> Tensor:
    return unstack_part(lead.behind(operands[0], 1), **params)


def _stack_form(out: Tensor, *parts: Tensor) -> forms.Form:
    return forms.concat([forms.reshape(x, (1, *x.shape)) for x in parts], 0)


def _unstack_form(out: Tensor, x: Tensor, *, part: int, count: int) -> forms.Form:
    one = forms.take_slice(x, [part, *[0] * len(out.shape)], (1, *out.shape))
    return forms.reshape(one, out.shape)


# Tensors on one device along a new leading dim; and one of them again.
stack_parts = Primitive(
    "stack_parts", _stack, _stack_vjp, _stack_jvp, batch=_batch_stack, needs=needs_nothing, lower=_stack_form
)
unstack_part = Primitive("unstack_part", _unstack, _unstack_vjp, linear=True, batch=_batch_unstack, lower=_unstack_form)
# The same value in arrays of its own.
own_copy = Primitive("own_copy", _own, _own_vjp, linear=True, lower=_own_form)
