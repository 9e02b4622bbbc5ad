"""The primitive that changes a layout: the same value, spread in another way."""

from __future__ import annotations

from shardwise.caches import cache
from shardwise.layout.axis import Axis, is_disjoint
from shardwise.layout.cut import Cut
from shardwise.layout.layout import Layout
from shardwise.layout.placement import ReduceOp
from shardwise.prim.face import public
from shardwise.prim.primitive import Primitive
from shardwise.prim.tensor import Tensor, move_to


def _relayout_vjp(ct: Tensor, out: Tensor, x: Tensor, *, layout: Layout) -> tuple[Tensor, ...]:
    return (relayout(ct, layout=x.layout.resolved()),)


relayout = Primitive("relayout", move_to, _relayout_vjp, linear=True)


@public(name=None, method="gather")
def replicate(x: Tensor, /) -> Tensor:
    """Return the same value on every device of the mesh.

    >>> from shardwise import DeviceMesh, P, shard
    >>> shard([1.0, 2.0], DeviceMesh((2,), ("x",)), P("x")).gather().type_text
    'float64[2]'
    """
    return relayout(x, layout=Layout.replicated(x.mesh, x.ndim))


def lay_out(x: Tensor, layout: Layout) -> Tensor:
    """Return the value cut as in a layout; sums that are pending stay so where that is possible."""
    return relayout(x, layout=pending_in(layout, x.layout))


@cache(entries=8192)
def cut_as(layout: Layout, cuts: tuple[Cut | tuple[Axis, ...] | None, ...]) -> Layout:
    """Return the layout of another tensor on the same mesh, with the same reductions pending and these cuts."""
    return Layout(layout.mesh, cuts, layout.partial, layout.reduce_op or "sum")


def cut_dim(layout: Layout, dim: int, cut: Cut | tuple[Axis, ...]) -> Layout:
    """Return a layout in which one dim is cut in another way."""
    return cut_as(layout, (*layout.dims[:dim], cut, *layout.dims[dim + 1 :]))


@cache(entries=8192)
def pending_in(layout: Layout, own: Layout) -> Layout:
    """Return a layout with the sums that are pending in a tensor's own, where that is possible."""
    if own.reduce_op is ReduceOp.SUM and own.mesh is layout.mesh and is_disjoint(own.partial, layout.sharded_axes):
        return Layout(layout.mesh, layout.dims, own.partial)
    return layout


def resolve(x: Tensor) -> Tensor:
    """Return the value with nothing pending."""
    return relayout(x, layout=x.layout.resolved()) if x.layout.partial else x
