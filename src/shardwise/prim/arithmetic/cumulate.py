"""Running sums along a dim: each shard by itself, and of the shards before it only the totals."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace

from shardwise.engine.arrays import FLOAT32, FLOAT64, cast, dtype_of, identity, is_low, is_torch
from shardwise.layout.cut import Cut
from shardwise.layout.placement import ReduceOp
from shardwise.prim.dispatch.operands import carry, fetch_operands
from shardwise.prim.dispatch.per_device import Place, map_shards
from shardwise.prim.forms import Form, Loops, Read, as_form, loops_of
from shardwise.prim.kernel import full
from shardwise.prim.primitive import Primitive
from shardwise.prim.relayout import cut_dim, relayout
from shardwise.prim.tensor import Tensor


def _cumulate(x: Tensor, *, dim: int, reverse: bool) -> Tensor:
    (x,) = fetch_operands("cumulative_sum", [x], [x.layout.without_halo().resolved()])
    layout, cut = x.layout, x.layout.dims[dim]
    if not cut.axes:
        return map_shards(lambda place, a: cast(_running(a, dim, reverse), x.dtype), [x], layout, x.shape)
    parts = layout.parts(dim)
    shape = tuple(parts if k == dim else size for k, size in enumerate(x.shape))
    totals = map_shards(lambda place, a: cast(_total(a, dim), x.dtype), [x], cut_dim(layout, dim, Cut(cut.axes)), shape)
    known = carry("cumulative_sum", x, (dim,), totals, cut_dim(layout, dim, Cut()))

    def kernel(place: Place, array: Any, sums: Any) -> Any:
        part = layout.tile_of(place.device)[dim]
        others = sums[(*(slice(None),) * dim, slice(part + 1, None) if reverse else slice(0, part))]
        own = _running(array, dim, reverse)
        if not others.shape[dim]:
            return cast(own, x.dtype)
        before = _total(others, dim)
        return (_as_signed(own) + _as_signed(before)).view(own.dtype) if _wraps(own) else cast(own + before, x.dtype)

    return map_shards(kernel, [x, known], layout, x.shape)


def _total(array: Any, dim: int) -> Any:
    if not array.shape[dim]:  # the number that changes no sum is -0.0
        shape = (*array.shape[:dim], 1, *array.shape[dim + 1 :])
        return full(array, shape, identity(ReduceOp.SUM, dtype_of(array)))
    # The last of the running sums: the sum of negative zeros is a positive one.
    return _running(array, dim, False)[(*(slice(None),) * dim, slice(-1, None))]


def _running(array: Any, dim: int, reverse: bool) -> Any:
    # In the dtype that sums are made in; they are rounded once there is nothing to add any more.
    if _wraps(array):
        return _running(_as_signed(array), dim, reverse).view(array.dtype)
    xp, dtype = array_namespace(array), array.dtype
    if is_low(dtype_of(array)):
        # One after the other, torch adds float32 up in float64 by itself.
        array = cast(array, FLOAT32) if is_torch(array) else array
        dtype = array.dtype if is_torch(array) else FLOAT64
    if not reverse:
        return xp.cumulative_sum(array, axis=dim, dtype=dtype)
    return xp.flip(xp.cumulative_sum(xp.flip(array, axis=dim), axis=dim, dtype=dtype), axis=dim)


def _wraps(array: Any) -> bool:
    return is_torch(array) and dtype_of(array).kind == "u"


def _as_signed(array: Any) -> Any:
    # torch does not add wide unsigned integers; signed ones have the same bits.
    import torch

    return array.view(getattr(torch, str(dtype_of(array))[1:]))


def _cumulate_vjp(ct: Tensor, out: Tensor, x: Tensor, *, dim: int, reverse: bool) -> tuple[Tensor, ...]:
    back = cumulate(relayout(ct, layout=out.layout), dim=dim, reverse=not reverse)
    return (relayout(back, layout=x.layout.resolved().without_halo()),)


def _form(out: Tensor, x: Tensor, *, dim: int, reverse: bool) -> Form:
    # Each element is the sum of those before it, which one more loop goes over.
    names = loops_of(x.ndim)
    at = tuple(["s" if k == dim else name for k, name in enumerate(names)])
    nothing = -0.0 if x.dtype.kind == "f" else 0  # which changes no sum
    body = f"total + where(s {'>=' if reverse else '<='} {names[dim]}, x, {nothing})"
    return Loops(x.shape, x.dtype, (*names, "s"), (Read(as_form(x), at, x.dtype),), body, start=nothing)


# The sums of all elements up to each, from the start of a dim or from its end.
cumulate = Primitive("cumulative_sum", _cumulate, _cumulate_vjp, linear=True, lower=_form)
