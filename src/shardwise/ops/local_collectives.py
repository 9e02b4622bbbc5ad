"""Collectives in the local view: each by the names of mesh axes, each a function of the stack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, cast

import numpy as np

from shardwise.errors import ArgumentError, BindingError, LayoutError, as_int
from shardwise.layout.axis import Axis
from shardwise.layout.cut import Cut
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.mesh import DeviceMesh
from shardwise.layout.placement import ReduceOp
from shardwise.ops.local_view import Names, as_local, named_axes, position_along
from shardwise.ops.permutation import sources_of
from shardwise.prim.arithmetic.elementwise import add, narrow, widen
from shardwise.prim.interpreters.local import (
    LocalTensor,
    local_row,
    map_stack,
    reshape_array,
    stack_layout,
)
from shardwise.prim.kernel import transpose, zeros
from shardwise.prim.movement.shards import Sources, average, fold, permute_shards, relabel, unfold
from shardwise.prim.primitive import Primitive
from shardwise.prim.relayout import relayout, resolve
from shardwise.prim.tensor import Tensor, move_to
from shardwise.prim.views.reshaping import reshape


def axes_of(x: Tensor, names: Names | None, function: str) -> tuple[Axis, ...]:
    """Return the mesh axes of these names; all of them, if none is named."""
    return named_axes(x.mesh, x.mesh.axis_names if names is None else names, function)


def whole_axes(x: Tensor, names: Names | None, function: str) -> tuple[Axis, ...]:
    """Return the mesh axes of these names, which may not be sub-axes: a stack has dims for whole axes only."""
    axes = axes_of(x, names, function)
    if parts := [axis for axis in axes if not axis.is_whole]:
        raise LayoutError(f"{function} goes over whole mesh axes inside shard_map, got {parts[0]}.")
    return axes


def one_axis(x: Tensor, name: Names, function: str) -> Axis:
    """Return the mesh axis of a name; one and no more."""
    axes = whole_axes(x, name, function)
    if len(axes) != 1:
        raise LayoutError(f"{function} goes along one mesh axis, got {name!r}.")
    return axes[0]


def local_dim(x: Tensor, dim: int, function: str) -> int:
    """Return a dim of each device's array, checked."""
    number = as_int(dim)
    if number is None:
        raise ArgumentError(f"{function}: a dim is an int, got {dim!r}.")
    if not -x.ndim <= number < x.ndim:
        raise LayoutError(f"{function}: dim {number} is out of range for a local array with {x.ndim} dims.")
    return number % x.ndim


def same(array: Any) -> Any:
    """Return an array as it is: the kernel of what a layout alone does."""
    return array


def pending_stack(x: LocalTensor, axes: tuple[Axis, ...], op: ReduceOp) -> Tensor:
    """Return the stack summed over its dims of these axes, still to be reduced."""
    op.check_dtype(x.dtype)
    several = tuple(a for a in axes if a.size > 1)
    return fold(x.stack, axes=several, op=op) if several else x.stack


def all_reduce(x: Any, names: Names | None, op: ReduceOp | str) -> Tensor:
    """Reduce over the devices that differ in the named axes."""
    x = as_local(x, "all_reduce")
    axes, op = axes_of(x, names, "all_reduce"), ReduceOp.of(op)
    op.check_dtype(x.dtype)
    several = tuple(a for a in axes if a.size > 1)
    return _all_reduce(x, axes=several, op=op) if several else x


def _reduce_all(x: LocalTensor, *, axes: tuple[Axis, ...], op: ReduceOp) -> LocalTensor:
    if op is ReduceOp.AVG:
        return x.beside(average(resolve(x.stack), axes=axes))
    total = resolve(pending_stack(x, axes, op))
    return x.beside(unfold(total, layout=x.stack.layout, shape=x.stack.shape))


_all_reduce = local_row("all_reduce", _reduce_all)


def _without_lead(x: Tensor, mesh: DeviceMesh, axes: Sequence[Axis], dim: int | None) -> Tensor:
    # The stack with its dims of these axes whole, and dim `dim` of the local array split by them instead.
    names = {a.name for a in axes}
    lead = [None if n in names else n for n in mesh.axis_names]
    rest = [tuple(axes) if k == dim else None for k in range(x.ndim - mesh.ndim)]
    return relayout(x, layout=Layout(mesh, [*lead, *rest]))


def all_gather(x: Any, names: Names | None, dim: int) -> Tensor:
    """Concatenate what the group holds along dim `dim`."""
    x = as_local(x, "all_gather")
    axes = whole_axes(x, names, "all_gather")
    return _all_gather(x, axes=axes, dim=local_dim(x, dim, "all_gather"))


def _gather_all(x: LocalTensor, *, axes: tuple[Axis, ...], dim: int) -> LocalTensor:
    mesh, shape = x.mesh, x.shape
    whole = _without_lead(x.stack, mesh, axes, None)
    out = (*shape[:dim], prod(a.size for a in axes) * shape[dim], *shape[dim + 1 :])
    return x.beside(map_stack(whole, mesh, out, *gathering(mesh, axes, shape, dim, out)))


def gathering(
    mesh: DeviceMesh, axes: Sequence[Axis], shape: Shape, dim: int, out: Shape
) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return the kernel, and its transpose, that brings the dims of some axes of a stack together in front of a dim."""
    group, local = [mesh.axis_names.index(a.name) for a in axes], range(mesh.ndim, mesh.ndim + len(shape))
    rest = [i for i in range(mesh.ndim) if i not in group]
    order = (*rest, *local[:dim], *group, *local[dim:])

    def kernel(a: Any) -> Any:
        return reshape_array(transpose(a, order), (*[1] * mesh.ndim, *out))

    def take_apart(a: Any) -> Any:
        split = reshape_array(a, (*[1] * len(rest), *shape[:dim], *[a.size for a in axes], *shape[dim:]))
        return transpose(split, tuple(int(i) for i in np.argsort(order)))

    return kernel, take_apart


_all_gather = local_row("all_gather", _gather_all, linear=True)


def reduce_scatter(x: Any, names: Names | None, dim: int, op: ReduceOp | str) -> Tensor:
    """Reduce over the group, and leave each member its piece of dim `dim`."""
    x = as_local(x, "reduce_scatter")
    axes = whole_axes(x, names, "reduce_scatter")
    dim, count = local_dim(x, dim, "reduce_scatter"), prod(a.size for a in axes)
    if x.shape[dim] % count:
        raise BindingError(
            f"reduce_scatter needs equal pieces: dim {dim} of size {x.shape[dim]} is not a multiple of {count}.\n"
            "  use all_reduce and keep what you need."
        )
    op = ReduceOp.of(op)
    op.check_dtype(x.dtype)
    return _reduce_scatter(x, axes=axes, dim=dim, op=op)


def _reduce_and_scatter(x: LocalTensor, *, axes: tuple[Axis, ...], dim: int, op: ReduceOp) -> LocalTensor:
    piece = _without_lead(pending_stack(x, axes, op), x.mesh, axes, dim)
    shape = (*x.shape[:dim], x.shape[dim] // prod(a.size for a in axes), *x.shape[dim + 1 :])
    return x.beside(map_stack(piece, x.mesh, shape, same, same))


_reduce_scatter = local_row("reduce_scatter", _reduce_and_scatter)


def all_slice(x: Any, names: Names | None, dim: int) -> Tensor:
    """Keep of dim `dim` the piece that belongs to each device's position; nothing is sent."""
    x = as_local(x, "all_slice")
    axes = axes_of(x, names, "all_slice")
    dim, count = local_dim(x, dim, "all_slice"), prod(a.size for a in axes)
    if x.shape[dim] % count:
        raise BindingError(f"all_slice needs equal pieces: {x.shape[dim]} is not a multiple of {count}.")
    return _all_slice(x, axes=axes, dim=dim)


def _slice_all(x: LocalTensor, *, axes: tuple[Axis, ...], dim: int) -> LocalTensor:
    mesh, width = x.mesh, x.shape[dim] // prod(a.size for a in axes)

    def where(device: int) -> tuple[Any, ...]:
        at = position_along(mesh, axes, device)
        return (*[slice(None)] * (mesh.ndim + dim), slice(at * width, (at + 1) * width))

    def kernel(a: Any, device: int) -> Any:
        return a[where(device)]

    def back(a: Any, device: int) -> Any:
        out = zeros(a, (*[1] * mesh.ndim, *x.shape))
        out[where(device)] = a
        return out

    shape = (*x.shape[:dim], width, *x.shape[dim + 1 :])
    return x.beside(map_stack(x.stack, mesh, shape, kernel, back, positional=True))


_all_slice = local_row("all_slice", _slice_all, linear=True)


def all_to_all(x: Any, names: Names | None, split: int, concat: int, tiled: bool = True) -> Tensor:
    """Send piece i of dim `split` to member i, and join what comes along dim `concat`.

    Not `tiled`, dim `split` has the size of the group and disappears, and a new dim appears at `concat`.
    """
    x = as_local(x, "all_to_all")
    axes = whole_axes(x, names, "all_to_all")
    count = prod(a.size for a in axes)
    split = local_dim(x, split, "all_to_all")
    if x.shape[split] % count if tiled else x.shape[split] != count:
        wanted = f"a multiple of {count}" if tiled else f"{count}, the size of the group"
        raise BindingError(f"all_to_all: dim {split} has size {x.shape[split]}, but must be {wanted}.")
    concat = local_dim(x, concat, "all_to_all")
    return _all_to_all(x, axes=axes, split=split, concat=concat, tiled=tiled)


def _exchange_all(x: LocalTensor, *, axes: tuple[Axis, ...], split: int, concat: int, tiled: bool) -> LocalTensor:
    mesh, count = x.mesh, prod(a.size for a in axes)
    cut = reshape(x, shape=(*x.shape[:split], count, x.shape[split] // count, *x.shape[split + 1 :]))
    whole = _without_lead(cast(LocalTensor, cut).stack, mesh, axes, split)
    piece = cut.shape[:split] + cut.shape[split + 1 :]  # what one member sends to one other
    if not tiled:
        piece = piece[:split] + piece[split + 1 :]
    group = (count * piece[concat], *piece[concat + 1 :]) if tiled else (count, *piece[concat:])
    shape = (*piece[:concat], *group)
    join, take_apart = gathering(mesh, axes, piece, concat, shape)

    def kernel(a: Any) -> Any:
        return join(reshape_array(a, (*a.shape[: mesh.ndim], *piece)))

    def back(a: Any) -> Any:
        pieces = take_apart(a)
        return reshape_array(pieces, (*pieces.shape[: mesh.ndim], *cut.shape[:split], 1, *cut.shape[split + 1 :]))

    return x.beside(map_stack(whole, mesh, shape, kernel, back))


_all_to_all = local_row("all_to_all", _exchange_all, linear=True)


def ppermute(x: Any, name: Names, pairs: Sequence[tuple[int, int]]) -> Tensor:
    """Send from position to position along one axis; those that receive nothing get zeros."""
    x = as_local(x, "ppermute")
    return _ppermute(x, sources=sources_of(x.mesh, pairs, name))


def _permute_all(x: LocalTensor, *, sources: Sources) -> LocalTensor:
    return x.beside(permute_shards(x.stack, sources=sources))


_ppermute = local_row("ppermute", _permute_all, linear=True)


# -- halos -----------------------------------------------------------------------------------------------


def _haloed_run(x: Tensor, *, axis: Axis, dim: int, halo: tuple[int, int]) -> Tensor:
    # The stack as one tensor whose dim is split by the axis; its halo exchange; and that as a stack again.
    mesh, at = x.mesh, x.mesh.ndim + dim
    lead = [None if n == axis.name else n for n in mesh.axis_names]
    sizes = tuple(1 if n == axis.name else s for n, s in zip(mesh.axis_names, mesh.mesh_shape, strict=True))
    local = x.shape[mesh.ndim :]
    cuts = [Cut(axis) if k == dim else Cut() for k in range(len(local))]
    whole = (*sizes, *local[:dim], local[dim] * axis.size, *local[dim + 1 :])
    flat = relabel(x, Layout(mesh, [*lead, *cuts]), whole)
    cuts[dim] = Cut(axis, halo=halo, edge="pad")
    wide = move_to(flat, Layout(mesh, [*lead, *cuts]))
    shape = (*x.shape[:at], x.shape[at] + sum(halo), *x.shape[at + 1 :])
    return relabel(wide, stack_layout(mesh, len(local)), shape)


def _haloed_vjp(ct: Tensor, out: Tensor, x: Tensor, *, axis: Axis, dim: int, halo: tuple[int, int]) -> Any:
    # What the neighbours hold of a shard goes back to it and is added up.
    stack, mesh = relayout(ct, layout=out.layout), x.mesh
    (low, high), size = halo, x.shape[mesh.ndim + dim]
    total = widen(_span(stack, dim, low, low + size, 0, size))
    last = axis.size - 1
    for edge, start, at, pairs in (
        (low, 0, size - low, [(i + 1, i) for i in range(last)]),
        (high, low + size, 0, [(i, i + 1) for i in range(last)]),
    ):
        if edge:
            back = _span(stack, dim, start, start + edge, at, size)
            total = add(total, widen(permute_shards(back, sources=sources_of(mesh, pairs, axis.name))))
    return (narrow(total, ct.dtype),)


def _span(x: Tensor, dim: int, start: int, stop: int, at: int, size: int) -> Tensor:
    # Elements start to stop of a dim of a stack, put at position `at` of one of `size` elements, zero elsewhere.
    rank = x.mesh.ndim
    lead, local = (slice(None),) * (rank + dim), x.shape[rank:]
    new = (*local[:dim], size, *local[dim + 1 :])
    source, target = (*lead, slice(start, stop)), (*lead, slice(at, at + stop - start))

    def put(shape: Shape, into: tuple[slice, ...], out_of: tuple[slice, ...], a: Any) -> Any:
        out = zeros(a, (*[1] * rank, *shape))
        out[into] = a[out_of]
        return out

    return map_stack(x, x.mesh, new, partial(put, new, target, source), partial(put, local, source, target))


def _batch_haloed(row: Primitive, lead: Any, mapped: Any, operands: Any, params: Any) -> Tensor:
    # Dims that are mapped over are the first of what each device holds.
    rank = operands[0].mesh.ndim
    x = lead.behind(lead.unsplit(operands[0]), rank)
    return lead.in_front(haloed(x, **(params | {"dim": params["dim"] + lead.count})), rank)


haloed = Primitive("haloed", _haloed_run, _haloed_vjp, linear=True, batch=_batch_haloed)


def halo_exchange(x: Any, name: str, dim: int, halo: tuple[int, int]) -> Tensor:
    """Put the neighbours' elements around dim `dim` of each device's array; outside, there are zeros."""
    x = as_local(x, "halo_exchange")
    axis, dim = one_axis(x, name, "halo_exchange"), local_dim(x, dim, "halo_exchange")
    if max(halo) > x.shape[dim]:
        raise BindingError(f"halo_exchange: a halo of {halo} is wider than the {x.shape[dim]} elements of a neighbour.")
    return _halo_exchange(x, axis=axis, dim=dim, halo=halo)


def _exchange_halos(x: LocalTensor, *, axis: Axis, dim: int, halo: tuple[int, int]) -> LocalTensor:
    return x.beside(haloed(x.stack, axis=axis, dim=dim, halo=halo))


_halo_exchange = local_row("halo_exchange", _exchange_halos, linear=True)
