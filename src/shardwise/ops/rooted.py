"""Collectives with a root: one device of each group gives to all, or takes from all."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from shardwise.errors import ArgumentError, BindingError, LayoutError, as_int
from shardwise.layout.axis import Axis
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.mesh import DeviceMesh
from shardwise.layout.placement import ReduceOp
from shardwise.ops.local_collectives import axes_of, gathering, local_dim, pending_stack, ppermute, same, whole_axes
from shardwise.ops.local_view import Names, as_local
from shardwise.prim.face import public
from shardwise.prim.interpreters.local import LocalTensor, local_row, map_stack
from shardwise.prim.movement.shards import embed, local_map, restrict, unfold
from shardwise.prim.relayout import relayout
from shardwise.prim.tensor import Tensor


class _Root(NamedTuple):
    """Who the root is: the axes of more than one device along which groups go, and its position along each."""

    axes: tuple[Axis, ...]
    positions: tuple[int, ...]

    @property
    def members(self) -> int:
        """How many members a group has."""
        return prod(axis.size for axis in self.axes)

    def lead(self, mesh: DeviceMesh) -> list[str | None]:
        """The axes that split the leading dims of a stack, without those of the group."""
        names = {axis.name for axis in self.axes}
        return [None if name in names else name for name in mesh.axis_names]

    def part(self, mesh: DeviceMesh) -> DeviceMesh:
        """The part of a mesh where the roots are."""
        return mesh.fix({axis.name: at for axis, at in zip(self.axes, self.positions, strict=True)})


def _root(x: Tensor, name: Names, root: int, function: str) -> _Root:
    # The position of a root in its group, along several axes as one, major to minor, as positions along each.
    axes = whole_axes(x, name, function)
    count, left = prod(axis.size for axis in axes), as_int(root)
    if left is None:
        raise ArgumentError(f"{function}: root is a position as an int, got {root!r}.")
    if not 0 <= left < count:
        raise LayoutError(f"{function}: root {left} is no position along {name!r}, which has {count}.")
    positions: list[int] = []
    for axis in reversed(axes):
        left, at = divmod(left, axis.size)
        positions.insert(0, at)
    several = [(axis, at) for axis, at in zip(axes, positions, strict=True) if axis.size > 1]
    return _Root(tuple([axis for axis, _ in several]), tuple([at for _, at in several]))


def _restrict(x: Tensor, root: _Root) -> Tensor:
    # What the roots hold of a stack, on their part of the mesh.
    for axis, at in zip(root.axes, root.positions, strict=True):
        x = restrict(x, axis=x.mesh.axis(axis.name), position=at)
    return x


def _embed_root(x: Tensor, mesh: DeviceMesh, root: _Root, local: Shape) -> Tensor:
    # A stack on the part of the mesh where the roots are, with zeros elsewhere: one axis after the other.
    known = [name for name in mesh.axis_names if name not in {axis.name for axis in root.axes}]
    for i, (axis, at) in enumerate(zip(root.axes, root.positions, strict=True)):
        rest = zip(root.axes[i + 1 :], root.positions[i + 1 :], strict=True)
        wider = mesh.fix({other.name: position for other, position in rest})
        known.append(axis.name)
        layout = Layout(wider, [*[name if name in known else None for name in mesh.axis_names], *[None] * len(local)])
        sizes = [size if n in known else 1 for n, size in zip(mesh.axis_names, mesh.mesh_shape, strict=True)]
        x = embed(x, axis=wider.axis(axis.name), position=at, layout=layout, shape=(*sizes, *local))
    return x


@public()
def broadcast(x: Any, axis: Names, root: int = 0) -> Tensor:
    """Give every member of a group along `axis` what its member `root` holds.

    Here and below several axes are taken as one, major to minor.

    >>> import numpy as np
    >>> from shardwise import DeviceMesh, P, shard_map
    >>> shard_map(lambda a: broadcast(a, "x", 2), DeviceMesh((4,), ("x",)), P("x"), P("x"))(np.arange(4.0)).numpy()
    array([2., 2., 2., 2.])
    """
    x = as_local(x, "broadcast")
    where = _root(x, axis, root, "broadcast")
    return _broadcast(x, root=where) if where.axes else x


def _spread_root(x: LocalTensor, *, root: _Root) -> LocalTensor:
    one = _restrict(x.stack, root)
    everywhere = relayout(one, layout=Layout(x.mesh, [*root.lead(x.mesh), *[None] * x.ndim]))
    return x.beside(unfold(everywhere, layout=x.stack.layout, shape=x.stack.shape))


_broadcast = local_row("broadcast", _spread_root, linear=True)


@public()
def reduce(x: Any, axis: Names, root: int = 0, reduce_op: ReduceOp | str = "sum") -> Tensor:
    """Reduce over a group along `axis` onto its member `root`; the others get zeros.

    >>> import numpy as np
    >>> from shardwise import DeviceMesh, P, shard_map
    >>> shard_map(lambda a: reduce(a, "x", 2), DeviceMesh((4,), ("x",)), P("x"), P("x"))(np.arange(4.0)).numpy()
    array([0., 0., 6., 0.])
    """
    x = as_local(x, "reduce")
    where, op = _root(x, axis, root, "reduce"), ReduceOp.of(reduce_op)
    op.check_dtype(x.dtype)
    return _reduce(x, root=where, op=op) if where.axes else x


def _reduce_to_root(x: LocalTensor, *, root: _Root, op: ReduceOp) -> LocalTensor:
    mesh = x.mesh
    pending = pending_stack(x, root.axes, op)
    there = relayout(pending, layout=Layout(root.part(mesh), [*root.lead(mesh), *[None] * x.ndim]))
    return x.beside(_embed_root(there, mesh, root, x.shape))


_reduce = local_row("reduce", _reduce_to_root)


@public()
def gather(x: Any, axis: Names, root: int = 0, dim: int = 0) -> Tensor:
    """Concatenate what a group along `axis` holds along dim `dim`, on its member `root`; the others get zeros.

    >>> import numpy as np
    >>> from shardwise import DeviceMesh, P, shard_map
    >>> shard_map(lambda a: gather(a, "x", 1), DeviceMesh((2,), ("x",)), P("x"), P("x"))(np.arange(1.0, 3.0)).numpy()
    array([0., 0., 1., 2.])
    """
    x = as_local(x, "gather")
    where, dim = _root(x, axis, root, "gather"), local_dim(x, dim, "gather")
    return _gather(x, root=where, dim=dim) if where.axes else x


def _gather_to_root(x: LocalTensor, *, root: _Root, dim: int) -> LocalTensor:
    mesh, shape, lead = x.mesh, x.shape, root.lead(x.mesh)
    layout = Layout(root.part(mesh), [*lead, *[None] * x.ndim])
    there = relayout(x.stack, layout=layout)
    wide = (*shape[:dim], root.members * shape[dim], *shape[dim + 1 :])
    sizes = tuple(1 if n is None else s for n, s in zip(lead, mesh.mesh_shape, strict=True))
    kernel, transpose = gathering(mesh, root.axes, shape, dim, wide)
    joined = local_map(there, kernel=kernel, transpose=transpose, layout=layout, shape=(*sizes, *wide))
    return x.beside(_embed_root(joined, mesh, root, wide))


_gather = local_row("gather", _gather_to_root, linear=True)


@public()
def scatter(x: Any, axis: Names, root: int = 0, dim: int = 0) -> Tensor:
    """Give every member of a group along `axis` its piece of dim `dim` of what member `root` holds.

    >>> import numpy as np
    >>> from shardwise import DeviceMesh, P, shard_map
    >>> shard_map(lambda a: scatter(a, "x", 1), DeviceMesh((2,), ("x",)), P("x"), P("x"))(np.arange(4.0)).numpy()
    array([2., 3.])
    """
    x = as_local(x, "scatter")
    where, dim = _root(x, axis, root, "scatter"), local_dim(x, dim, "scatter")
    if x.shape[dim] % where.members:
        raise BindingError(f"scatter needs equal pieces: {x.shape[dim]} is not a multiple of {where.members}.")
    return _scatter(x, root=where, dim=dim) if where.axes else x


def _scatter_from_root(x: LocalTensor, *, root: _Root, dim: int) -> LocalTensor:
    rest = [root.axes if k == dim else None for k in range(x.ndim)]
    pieces = relayout(_restrict(x.stack, root), layout=Layout(x.mesh, [*root.lead(x.mesh), *rest]))
    shape = (*x.shape[:dim], x.shape[dim] // root.members, *x.shape[dim + 1 :])
    return x.beside(map_stack(pieces, x.mesh, shape, same, same))


_scatter = local_row("scatter", _scatter_from_root, linear=True)


@public()
def send_recv(x: Any, axis: Names, source: int, destination: int) -> Tensor:
    """Send what position `source` along `axis` holds to position `destination`; the others get zeros.

    >>> import numpy as np
    >>> from shardwise import DeviceMesh, P, shard_map
    >>> shard_map(lambda a: send_recv(a, "x", 0, 2), DeviceMesh((3,), ("x",)), P("x"), P("x"))(
    ...     np.arange(1.0, 4.0)
    ... ).numpy()
    array([0., 0., 1.])
    """
    x = as_local(x, "send_recv")
    axes_of(x, axis, "send_recv")
    return ppermute(x, axis, [(source, destination)])
