"""Collectives with a root: one device of each group gives to all, or takes from all."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.errors import BindingError, LayoutError
from shardwise.layout.axis import Axis
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.mesh import DeviceMesh
from shardwise.layout.placement import ReduceOp
from shardwise.ops.local_collectives import local_dim, named, pending_stack, ppermute, whole_axes
from shardwise.ops.local_view import (
    LocalTensor,
    mapped_stack,
    permuted_array,
    reshaped_array,
    stack_layout,
)
from shardwise.prim.relayout import relayout
from shardwise.prim.shards import embed, local_map, restrict, unfold
from shardwise.prim.tensor import Tensor


def _root(x: LocalTensor, name: str, root: int, function: str) -> Axis:
    (axis,) = whole_axes(x, name, function)
    if isinstance(root, bool) or not isinstance(root, int) or not 0 <= root < axis.size:
        raise LayoutError(f"{function}: root {root!r} is no position along {name!r}, which has {axis.size}.")
    return axis


def broadcast(x: LocalTensor, axis: str, root: int = 0) -> LocalTensor:
    """Give every member of a group along `axis` what its member `root` holds.

    >>> from shardwise import DeviceMesh, P, shard_map
    >>> shard_map(lambda a: broadcast(a, "x", 2), DeviceMesh((4,), ("x",)), P("x"), P("x"))(np.arange(4.0)).numpy()
    array([2., 2., 2., 2.])
    """
    found = _root(x, axis, root, "broadcast")
    if found.size == 1:
        return x
    one = restrict(x.stack, axis=found, at=root)
    lead = [None if n == axis else n for n in x.mesh.axis_names]
    everywhere = relayout(one, layout=Layout(x.mesh, [*lead, *[None] * x.ndim]))
    return LocalTensor(unfold(everywhere, layout=x.stack.layout, shape=x.stack.shape), x.mesh)


def reduce(x: LocalTensor, axis: str, root: int = 0, reduce_op: ReduceOp | str = "sum") -> LocalTensor:
    """Reduce over a group along `axis` onto its member `root`; the others get zeros.

    >>> from shardwise import DeviceMesh, P, shard_map
    >>> shard_map(lambda a: reduce(a, "x", 2), DeviceMesh((4,), ("x",)), P("x"), P("x"))(np.arange(4.0)).numpy()
    array([0., 0., 6., 0.])
    """
    found = _root(x, axis, root, "reduce")
    if found.size == 1:
        return x
    pending = pending_stack(x, (found,), ReduceOp.of(reduce_op))
    return _landed(pending, x.mesh, found, root, x.stack.shape)


def _landed(x: Tensor, mesh: DeviceMesh, axis: Axis, root: int, shape: Shape) -> LocalTensor:
    # Bring a stack without the dim of an axis to the devices at `root`, with zeros elsewhere.
    part = mesh.fix({axis.name: root})
    dims = [None if n == axis.name else n for n in mesh.axis_names]
    there = relayout(x, layout=Layout(part, [*dims, *[None] * (x.ndim - mesh.ndim)]))
    layout = stack_layout(mesh, len(shape) - mesh.ndim)
    return LocalTensor(embed(there, axis=axis, at=root, layout=layout, shape=shape), mesh)


def gather(x: LocalTensor, axis: str, root: int = 0, dim: int = 0) -> LocalTensor:
    """Concatenate what a group along `axis` holds along dim `dim`, on its member `root`; the others get zeros.

    >>> from shardwise import DeviceMesh, P, shard_map
    >>> shard_map(lambda a: gather(a, "x", 1), DeviceMesh((2,), ("x",)), P("x"), P("x"))(np.arange(1.0, 3.0)).numpy()
    array([0., 0., 1., 2.])
    """
    found = _root(x, axis, root, "gather")
    dim, mesh, shape = local_dim(x, dim, "gather"), x.mesh, x.shape
    if found.size == 1:
        return x
    at = mesh.axis_names.index(axis)
    part = mesh.fix({axis: root})
    lead = [None if n == axis else n for n in mesh.axis_names]
    there = relayout(x.stack, layout=Layout(part, [*lead, *[None] * x.ndim]))
    wide = (*shape[:dim], found.size * shape[dim], *shape[dim + 1 :])
    sizes = tuple(1 if n == axis else s for n, s in zip(mesh.axis_names, mesh.mesh_shape, strict=True))
    order = (*[i for i in range(mesh.ndim) if i != at], *range(mesh.ndim, mesh.ndim + dim), at)
    order = (*order, *range(mesh.ndim + dim, mesh.ndim + len(shape)))

    def kernel(a: Any) -> Any:
        return reshaped_array(permuted_array(a, order), (*[1] * mesh.ndim, *wide))

    def transpose(a: Any) -> Any:
        split = reshaped_array(a, (*[1] * (mesh.ndim - 1), *shape[:dim], found.size, *shape[dim:]))
        return permuted_array(split, tuple(int(i) for i in np.argsort(order)))

    layout = Layout(part, [*lead, *[None] * x.ndim])
    joined = local_map(there, kernel=kernel, transpose=transpose, layout=layout, shape=(*sizes, *wide))
    whole = (*mesh.mesh_shape, *wide)
    return LocalTensor(embed(joined, axis=found, at=root, layout=stack_layout(mesh, len(wide)), shape=whole), mesh)


def scatter(x: LocalTensor, axis: str, root: int = 0, dim: int = 0) -> LocalTensor:
    """Give every member of a group along `axis` its piece of dim `dim` of what member `root` holds.

    >>> from shardwise import DeviceMesh, P, shard_map
    >>> shard_map(lambda a: scatter(a, "x", 1), DeviceMesh((2,), ("x",)), P("x"), P("x"))(np.arange(4.0)).numpy()
    array([2., 3.])
    """
    found = _root(x, axis, root, "scatter")
    dim, mesh = local_dim(x, dim, "scatter"), x.mesh
    if x.shape[dim] % found.size:
        raise BindingError(f"scatter needs equal pieces: {x.shape[dim]} is not a multiple of {found.size}.")
    if found.size == 1:
        return x
    one = restrict(x.stack, axis=found, at=root)
    lead = [None if n == axis else n for n in mesh.axis_names]
    rest = [found if k == dim else None for k in range(x.ndim)]
    pieces = relayout(one, layout=Layout(mesh, [*lead, *rest]))
    shape = (*x.shape[:dim], x.shape[dim] // found.size, *x.shape[dim + 1 :])
    return mapped_stack(pieces, mesh, shape, lambda a: a, lambda a: a)


def send_recv(x: LocalTensor, axis: str, source: int, destination: int) -> LocalTensor:
    """Send what position `source` along `axis` holds to position `destination`; the others get zeros.

    >>> from shardwise import DeviceMesh, P, shard_map
    >>> shard_map(lambda a: send_recv(a, "x", 0, 2), DeviceMesh((3,), ("x",)), P("x"), P("x"))(
    ...     np.arange(1.0, 4.0)
    ... ).numpy()
    array([0., 0., 1.])
    """
    named(x, axis, "send_recv")
    return ppermute(x, axis, [(source, destination)])
