"""Broadcasting, and its adjoint: sums over the dims that were broadcast."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace

from shardwise.caches import cache
from shardwise.errors import BindingError
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.placement import ReduceOp
from shardwise.prim import forms
from shardwise.prim.dispatch.operands import fetch_operands
from shardwise.prim.dispatch.per_device import Place, map_shards
from shardwise.prim.forms import Form
from shardwise.prim.kernel import sum_over
from shardwise.prim.primitive import Primitive
from shardwise.prim.relayout import cut_as, resolve
from shardwise.prim.tensor import Tensor
from shardwise.prim.views.shapes import squeeze


def broadcast_shape(*shapes: Shape) -> Shape:
    """Return the shape that several shapes broadcast to.

    >>> broadcast_shape((3, 1), (4,))
    (3, 4)
    """
    try:
        return tuple(np.broadcast_shapes(*shapes))
    except ValueError:
        raise BindingError(f"shapes {' and '.join(map(str, shapes))} do not broadcast.") from None


def operand_layout(layout: Layout, whole: Shape, shape: Shape) -> Layout:
    """Return the layout that an operand of this shape needs beside a result of `layout` and shape `whole`."""
    lead = len(whole) - len(shape)
    dims = zip(layout.dims[lead:], whole[lead:], shape, strict=True)
    return cut_as(layout, tuple([cut if size == full else None for cut, full, size in dims]))


def _broadcast(x: Tensor, *, layout: Layout, shape: Shape) -> Tensor:
    (ready,) = fetch_operands("broadcast_to", [x], [operand_layout(layout, shape, x.shape)])
    return map_shards(_repeat, [ready], layout, shape, view=True)


def _repeat(place: Place, array: Any) -> Any:
    return array_namespace(array).broadcast_to(array, place.shape)


def _broadcast_vjp(ct: Tensor, out: Tensor, x: Tensor, *, layout: Layout, shape: Shape) -> tuple[Tensor, ...]:
    return (resolve(sum_to(ct, shape=x.shape)),)


def _sum_to(x: Tensor, *, shape: Shape) -> Tensor:
    # Only the small local sums are left to be reduced over the devices: they are partial values.
    own = x.layout.without_halo()
    (x,) = fetch_operands("sum", [x], [own if own.reduce_op in (None, ReduceOp.SUM) else own.resolved()])
    lead = x.ndim - len(shape)
    dims = tuple(k for k in range(x.ndim) if k < lead or shape[k - lead] != x.shape[k])
    layout = _layout_of_sum(x.layout, dims, lead)
    return map_shards(lambda place, a: _sum(a, dims, place.shape), [x], layout, shape)


@cache()
def _layout_of_sum(own: Layout, dims: tuple[int, ...], lead: int) -> Layout:
    pending = [*own.partial, *(a for k in dims for a in own.dims[k].axes)]
    return Layout(own.mesh, [None if k in dims else own.dims[k] for k in range(lead, own.rank)], pending)


def _sum(array: Any, dims: tuple[int, ...], shape: Shape) -> Any:
    return array_namespace(array).reshape(sum_over(array, dims), shape)


def _sum_to_vjp(ct: Tensor, out: Tensor, x: Tensor, *, shape: Shape) -> tuple[Tensor, ...]:
    return (broadcast(ct, layout=x.layout.resolved().without_halo(), shape=x.shape),)


def _sum_to_form(out: Tensor, x: Tensor, *, shape: Shape) -> Form:
    lead = x.ndim - len(shape)
    dims = [k for k in range(x.ndim) if k < lead or shape[k - lead] != x.shape[k]]
    return forms.reshape(forms.reduce(x, dims, ReduceOp.SUM), shape)


def _batch_broadcast(row: Primitive, lead: Any, mapped: Any, operands: Any, params: Any) -> Tensor:
    return broadcast(lead.align(operands[0], len(params["shape"])), **lead.shift(params))


def _batch_sum_to(row: Primitive, lead: Any, mapped: Any, operands: Any, params: Any) -> Tensor:
    # The dims that disappear come after the leading ones: they are summed to one element first.
    (x,), shape = operands, params["shape"]
    gone = range(lead.count, x.ndim - len(shape))
    out = sum_to(x, shape=(*lead.sizes, *[1] * len(gone), *shape))
    return squeeze(out, at=tuple(gone)) if gone else out


def _form(out: Tensor, x: Tensor, *, layout: Layout, shape: Shape) -> Form:
    return forms.broadcast(x, shape)


# The value repeated along dims of size one and new leading dims, in a layout of the larger shape.
broadcast = Primitive("broadcast", _broadcast, _broadcast_vjp, linear=True, batch=_batch_broadcast, lower=_form)
# The sums that bring a value back to a shape which broadcasts to its own.
sum_to = Primitive("sum_to", _sum_to, _sum_to_vjp, linear=True, batch=_batch_sum_to, lower=_sum_to_form)


def unbroadcast(x: Tensor, like: Any) -> Tensor:
    """Return `x` summed to the shape of an operand that was broadcast."""
    if not isinstance(like, Tensor) or x.shape == like.shape:
        return x
    return sum_to(x, shape=like.shape)
