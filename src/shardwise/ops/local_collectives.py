"""Collectives in the local view: each by the names of mesh axes, each a function of the stack."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from shardwise.errors import ArgumentError, BindingError, LayoutError, as_int
from shardwise.layout.axis import Axis, check_disjoint
from shardwise.layout.cut import Cut
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.mesh import DeviceMesh
from shardwise.layout.placement import ReduceOp
from shardwise.ops.local_view import (
    LocalTensor,
    Names,
    each_name,
    mapped_stack,
    permuted_array,
    position_along,
    reshaped,
    reshaped_array,
    stack_layout,
)
from shardwise.ops.permutation import sources_of
from shardwise.prim.elementwise import add, narrow, widen
from shardwise.prim.kernel import zeros
from shardwise.prim.relayout import relayout, resolved
from shardwise.prim.row import Row
from shardwise.prim.shards import average, fold, permute_shards, relabelled, unfold
from shardwise.prim.tensor import Tensor, moved


def named(x: LocalTensor, names: Names | None, function: str) -> tuple[Axis, ...]:
    """Return the mesh axes of these names; all of them, if none is named."""
    if not isinstance(x, LocalTensor):
        raise ArgumentError(
            f"{function} acts on what one device holds: call it inside shard_map, not on a {type(x).__name__}."
        )
    given = x.mesh.axis_names if names is None else each_name(names)
    found = tuple(x.mesh.axis(name, function) for name in given)
    check_disjoint(found, f"the axes of {function}")
    return found


def whole_axes(x: LocalTensor, names: Names | None, function: str) -> tuple[Axis, ...]:
    """Return the mesh axes of these names, which may not be sub-axes: a stack has dims for whole axes only."""
    axes = named(x, names, function)
    if parts := [axis for axis in axes if not axis.is_whole]:
        raise LayoutError(f"{function} goes over whole mesh axes inside shard_map, got {parts[0]}.")
    return axes


def one_axis(x: LocalTensor, name: Names, function: str) -> Axis:
    """Return the mesh axis of a name; one and no more."""
    axes = whole_axes(x, name, function)
    if len(axes) != 1:
        raise LayoutError(f"{function} goes along one mesh axis, got {name!r}.")
    return axes[0]


def local_dim(x: LocalTensor, dim: int, function: str) -> int:
    """Return a dim of each device's array, checked."""
    number = as_int(dim)
    if number is None:
        raise ArgumentError(f"{function}: a dim is an int, got {dim!r}.")
    if not -x.ndim <= number < x.ndim:
        raise LayoutError(f"{function}: dim {number} is out of range for a local array with {x.ndim} dims.")
    return number % x.ndim


def pending_stack(x: LocalTensor, axes: tuple[Axis, ...], op: ReduceOp) -> Tensor:
    """Return the stack summed over its dims of these axes, still to be reduced."""
    op.check_dtype(x.dtype)
    several = tuple(a for a in axes if a.size > 1)
    return fold(x.stack, axes=several, op=op) if several else x.stack


def all_reduce(x: LocalTensor, names: Names | None, op: ReduceOp | str) -> LocalTensor:
    """Reduce over the devices that differ in the named axes."""
    axes, op = named(x, names, "all_reduce"), ReduceOp.of(op)
    op.check_dtype(x.dtype)
    several = tuple(a for a in axes if a.size > 1)
    if not several:
        return x
    if op is ReduceOp.AVG:
        return LocalTensor(average(resolved(x.stack), axes=several), x.mesh)
    total = resolved(pending_stack(x, several, op))
    return LocalTensor(unfold(total, layout=x.stack.layout, shape=x.stack.shape), x.mesh)


def _without_lead(x: Tensor, mesh: DeviceMesh, axes: Sequence[Axis], dim: int | None) -> Tensor:
    # The stack with its dims of these axes whole, and dim `dim` of the local array split by them instead.
    names = {a.name for a in axes}
    lead = [None if n in names else n for n in mesh.axis_names]
    rest = [tuple(axes) if k == dim else None for k in range(x.ndim - mesh.ndim)]
    return relayout(x, layout=Layout(mesh, [*lead, *rest]))


def all_gather(x: LocalTensor, names: Names | None, dim: int, tiled: bool = True) -> LocalTensor:
    """Concatenate what the group holds along dim `dim`, or stack it there if not `tiled`."""
    axes = whole_axes(x, names, "all_gather")
    dim = local_dim(x, dim, "all_gather") if tiled else dim % (x.ndim + 1)
    count, mesh = prod(a.size for a in axes), x.mesh
    whole = _without_lead(x.stack, mesh, axes, None)
    lead = tuple(a.size if a in axes else 1 for a in map(mesh.axis, mesh.axis_names))
    order = [mesh.axis_names.index(a.name) for a in axes]
    rest = [i for i in range(mesh.ndim) if i not in order]
    shape = x.shape
    middle = (*shape[:dim], count * shape[dim], *shape[dim + 1 :]) if tiled else (*shape[:dim], count, *shape[dim:])

    def kernel(a: Any) -> Any:
        # Bring the gathered dims together, in the order of the names, in front of `dim`.
        local = [mesh.ndim + k for k in range(len(shape))]
        moved = permuted_array(a, (*rest, *local[:dim], *order, *local[dim:]))
        return reshaped_array(moved, (*[1] * mesh.ndim, *middle))

    def transpose(a: Any) -> Any:
        split = reshaped_array(a, (*[1] * len(rest), *shape[:dim], *[lead[i] for i in order], *shape[dim:]))
        local = [mesh.ndim + k for k in range(len(shape))]
        forward = (*rest, *local[:dim], *order, *local[dim:])
        return permuted_array(split, tuple(int(i) for i in np.argsort(forward)))

    return mapped_stack(whole, mesh, middle, kernel, transpose)


def reduce_scatter(x: LocalTensor, names: Names | None, dim: int, op: ReduceOp | str) -> LocalTensor:
    """Reduce over the group, and leave each member its piece of dim `dim`."""
    axes = whole_axes(x, names, "reduce_scatter")
    dim, mesh = local_dim(x, dim, "reduce_scatter"), x.mesh
    count = prod(a.size for a in axes)
    if x.shape[dim] % count:
        raise BindingError(
            f"reduce_scatter needs equal pieces: dim {dim} of size {x.shape[dim]} is not a multiple of {count}.\n"
            "  use all_reduce and keep what you need."
        )
    pending = pending_stack(x, axes, ReduceOp.of(op))
    piece = _without_lead(pending, mesh, axes, dim)
    shape = (*x.shape[:dim], x.shape[dim] // count, *x.shape[dim + 1 :])
    return mapped_stack(piece, mesh, shape, lambda a: a, lambda a: a)


def all_slice(x: LocalTensor, names: Names | None, dim: int) -> LocalTensor:
    """Keep of dim `dim` the piece that belongs to each device's position; nothing is sent."""
    axes, mesh = named(x, names, "all_slice"), x.mesh
    dim, count = local_dim(x, dim, "all_slice"), prod(a.size for a in axes)
    if x.shape[dim] % count:
        raise BindingError(f"all_slice needs equal pieces: {x.shape[dim]} is not a multiple of {count}.")
    width = x.shape[dim] // count

    def where(device: int) -> tuple[Any, ...]:
        at = position_along(mesh, axes, device)
        return (*[slice(None)] * (mesh.ndim + dim), slice(at * width, (at + 1) * width))

    def kernel(a: Any, device: int) -> Any:
        return a[where(device)]

    def transpose(a: Any, device: int) -> Any:
        out = zeros(a, (*[1] * mesh.ndim, *x.shape))
        out[where(device)] = a
        return out

    return mapped_stack(x.stack, mesh, (*x.shape[:dim], width, *x.shape[dim + 1 :]), kernel, transpose, positional=True)


def _exchanged(x: LocalTensor, axes: Sequence[Axis], dim: int) -> LocalTensor:
    count = prod(a.size for a in axes)
    return reshaped(x, (*x.shape[:dim], count, x.shape[dim] // count, *x.shape[dim + 1 :]))


def all_to_all(x: LocalTensor, names: Names | None, split: int, concat: int, tiled: bool = True) -> LocalTensor:
    """Send piece i of dim `split` to member i, and join what comes along dim `concat`.

    Not `tiled`, dim `split` has the size of the group and disappears, and a new dim appears at `concat`.
    """
    axes = whole_axes(x, names, "all_to_all")
    mesh, count = x.mesh, prod(a.size for a in axes)
    split = local_dim(x, split, "all_to_all")
    if x.shape[split] % count if tiled else x.shape[split] != count:
        wanted = f"a multiple of {count}" if tiled else f"{count}, the size of the group"
        raise BindingError(f"all_to_all: dim {split} has size {x.shape[split]}, but must be {wanted}.")
    concat = local_dim(x, concat, "all_to_all")
    cut = _exchanged(x, axes, split)  # (..., count, piece, ...)
    whole = _without_lead(cut.stack, mesh, axes, split)
    order = [mesh.axis_names.index(a.name) for a in axes]
    rest = [i for i in range(mesh.ndim) if i not in order]
    piece = cut.shape[:split] + cut.shape[split + 1 :]  # what one member sends to one other
    if not tiled:
        piece = piece[:split] + piece[split + 1 :]
    sizes = [a.size for a in axes]

    def kernel(a: Any) -> Any:
        local = reshaped_array(permuted_array(a, (*order, *rest, *range(mesh.ndim, a.ndim))), (*sizes, *piece))
        moved = permuted_array(
            local, (*_after(concat, len(sizes)), *range(len(sizes)), *_from(concat, len(sizes), len(piece)))
        )
        return reshaped_array(moved, (*[1] * mesh.ndim, *shape))

    def transpose(a: Any) -> Any:
        local = reshaped_array(a, (*piece[:concat], *sizes, *piece[concat:]))
        front = permuted_array(
            local, (*range(concat, concat + len(sizes)), *range(concat), *range(concat + len(sizes), local.ndim))
        )
        lead = reshaped_array(front, (*sizes, *[1] * len(rest), *cut.shape[:split], 1, *cut.shape[split + 1 :]))
        back = np.argsort([*order, *rest])
        return permuted_array(lead, (*[int(i) for i in back], *range(mesh.ndim, lead.ndim)))

    if tiled:
        shape = (*piece[:concat], count * piece[concat], *piece[concat + 1 :])
    else:
        shape = (*piece[:concat], count, *piece[concat:])
    return mapped_stack(whole, mesh, shape, kernel, transpose)


def _after(concat: int, lead: int) -> range:
    return range(lead, lead + concat)


def _from(concat: int, lead: int, rank: int) -> range:
    return range(lead + concat, lead + rank)


def ppermute(x: LocalTensor, name: Names, pairs: Sequence[tuple[int, int]]) -> LocalTensor:
    """Send from position to position along one axis; those that receive nothing get zeros."""
    return LocalTensor(permute_shards(x.stack, sources=sources_of(x.mesh, pairs, name)), x.mesh)


# -- halos -----------------------------------------------------------------------------------------------


def _haloed(x: Tensor, *, axis: Axis, dim: int, halo: tuple[int, int]) -> Tensor:
    # The stack as one tensor whose dim is split by the axis; its halo exchange; and that as a stack again.
    mesh, at = x.mesh, x.mesh.ndim + dim
    lead = [None if n == axis.name else n for n in mesh.axis_names]
    sizes = tuple(1 if n == axis.name else s for n, s in zip(mesh.axis_names, mesh.mesh_shape, strict=True))
    local = x.shape[mesh.ndim :]
    cuts = [Cut(axis) if k == dim else Cut() for k in range(len(local))]
    whole = (*sizes, *local[:dim], local[dim] * axis.size, *local[dim + 1 :])
    flat = relabelled(x, Layout(mesh, [*lead, *cuts]), whole)
    cuts[dim] = Cut(axis, halo=halo, edge="pad")
    wide = moved(flat, Layout(mesh, [*lead, *cuts]))
    shape = (*x.shape[:at], x.shape[at] + sum(halo), *x.shape[at + 1 :])
    return relabelled(wide, stack_layout(mesh, len(local)), shape)


def _haloed_vjp(ct: Tensor, out: Tensor, x: Tensor, *, axis: Axis, dim: int, halo: tuple[int, int]) -> Any:
    # What the neighbours hold of a shard goes back to it and is added up.
    mesh = x.mesh
    stack = LocalTensor(relayout(ct, layout=out.layout), mesh)
    (low, high), size = halo, x.shape[mesh.ndim + dim]
    total = widen(_span(stack, dim, low, low + size, 0, size).stack)
    if low:
        edge = _span(stack, dim, 0, low, size - low, size)
        back = ppermute(edge, axis.name, [(i + 1, i) for i in range(axis.size - 1)])
        total = add(total, widen(back.stack))
    if high:
        edge = _span(stack, dim, low + size, low + size + high, 0, size)
        back = ppermute(edge, axis.name, [(i, i + 1) for i in range(axis.size - 1)])
        total = add(total, widen(back.stack))
    return (narrow(total, ct.dtype),)


def _span(x: LocalTensor, dim: int, start: int, stop: int, at: int, size: int) -> LocalTensor:
    # Elements start to stop of a dim, put at position `at` of one of `size` elements that are zero elsewhere.
    lead = (slice(None),) * (x.mesh.ndim + dim)
    old, new = x.shape, (*x.shape[:dim], size, *x.shape[dim + 1 :])
    source, target = (*lead, slice(start, stop)), (*lead, slice(at, at + stop - start))

    def put(a: Any, shape: Shape, into: tuple[Any, ...], out_of: tuple[Any, ...]) -> Any:
        out = zeros(a, (*[1] * x.mesh.ndim, *shape))
        out[into] = a[out_of]
        return out

    return mapped_stack(
        x.stack, x.mesh, new, lambda a: put(a, new, target, source), lambda a: put(a, old, source, target)
    )


haloed = Row("haloed", _haloed, _haloed_vjp, linear=True)


def halo_exchange(x: LocalTensor, name: str, dim: int, halo: tuple[int, int]) -> LocalTensor:
    """Put the neighbours' elements around dim `dim` of each device's array; outside, there are zeros."""
    axis, dim = one_axis(x, name, "halo_exchange"), local_dim(x, dim, "halo_exchange")
    if max(halo) > x.shape[dim]:
        raise BindingError(f"halo_exchange: a halo of {halo} is wider than the {x.shape[dim]} elements of a neighbour.")
    return LocalTensor(haloed(x.stack, axis=axis, dim=dim, halo=halo), x.mesh)
