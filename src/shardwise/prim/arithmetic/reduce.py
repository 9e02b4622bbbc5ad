"""Reductions over dims: each shard by itself, and what is left to combine is small and partial."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from shardwise.caches import cache
from shardwise.engine.arrays import FLOAT32, FLOAT64, accumulator, cast, dtype_of, identity, is_low, is_torch
from shardwise.errors import BindingError, DerivativeError
from shardwise.layout.placement import ReduceOp
from shardwise.prim import forms
from shardwise.prim.arithmetic.broadcast import broadcast
from shardwise.prim.arithmetic.elementwise import add, astype, divide, equal, in_bytes, multiply, narrow, widen
from shardwise.prim.dispatch.decision import row_of_work
from shardwise.prim.kernel import full, sum_over, wide_sum
from shardwise.prim.relayout import pending_in, resolve
from shardwise.prim.rule import Rule
from shardwise.prim.tensor import Tensor
from shardwise.prim.views.shapes import expand
from shardwise.prim.work import Work

NAMES = {
    ReduceOp.SUM: "sum",
    ReduceOp.PROD: "prod",
    ReduceOp.MAX: "max",
    ReduceOp.MIN: "min",
    ReduceOp.BOR: "any",
    ReduceOp.BAND: "all",
}
REDUCERS: dict[ReduceOp, Callable[..., Any]] = {  # what NumPy's functions of these names come to
    ReduceOp.SUM: np.add.reduce,
    ReduceOp.PROD: np.multiply.reduce,
    ReduceOp.MAX: np.maximum.reduce,
    ReduceOp.MIN: np.minimum.reduce,
    ReduceOp.BOR: np.logical_or.reduce,
    ReduceOp.BAND: np.logical_and.reduce,
}


@cache()
def reduction_rule(rank: int, dims: tuple[int, ...], op: ReduceOp) -> Rule:
    """Return the rule of a reduction over some dims.

    >>> reduction_rule(2, (1,), ReduceOp.SUM).out
    ('d0',)
    """
    names = tuple(f"d{k}" for k in range(rank))
    linear = "joint" if op is ReduceOp.SUM and dims else None  # over no dim, integers are only made wider
    return Rule(
        (names,),
        tuple(n for k, n in enumerate(names) if k not in dims),
        tuple((names[k], op) for k in dims),
        linear=linear,
    )


def _reduce(x: Tensor, *, dims: tuple[int, ...], op: ReduceOp, wide: bool = False) -> Work:
    if op in (ReduceOp.MAX, ReduceOp.MIN) and any(x.shape[k] == 0 for k in dims):
        raise BindingError(f"{NAMES[op]} over an empty dim has no value: shape {x.shape}, dims {dims}.")

    if op in (ReduceOp.MAX, ReduceOp.MIN):
        x = in_bytes(x)
    kernel = partial(wide_sum, dims=dims) if wide else _kernel(dims, op)
    return Work(NAMES[op], kernel, reduction_rule(x.ndim, dims, op), [x])


@cache()
def _kernel(dims: tuple[int, ...], op: ReduceOp) -> Callable[[Any], Any]:
    extreme, ours = op in (ReduceOp.MAX, ReduceOp.MIN), REDUCERS[op]

    def kernel(array: Any) -> Any:
        if is_low(dtype := dtype_of(array)):
            return low(array, dtype)
        return plain(array)

    def low(array: Any, dtype: np.dtype) -> Any:
        if op is ReduceOp.SUM:
            return sum_over(array, dims)
        if op is ReduceOp.PROD:  # many small changes of one number: float32 would show
            return cast(plain(cast(array, FLOAT64)), dtype)
        # Of the extremes of 8-bit floats torch knows nothing; no number is changed on the way.
        return cast(plain(cast(array, FLOAT32)), dtype) if is_torch(array) and dtype.itemsize == 1 else plain(array)

    def plain(array: Any) -> Any:
        if extreme and 0 in array.shape:  # an empty shard contributes nothing
            left = tuple(size for k, size in enumerate(array.shape) if k not in dims)
            return full(array, left, identity(op, dtype_of(array)))
        if is_torch(array):
            return getattr(array_namespace(array), NAMES[op])(array, axis=dims)
        return ours(array, axis=dims)

    return kernel


def spread(y: Tensor, x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Return a reduced value repeated to the shape of what was reduced."""
    return broadcast(expand(resolve(y), at=dims), layout=x.layout.resolved().without_halo(), shape=x.shape)


def _weight(x: Tensor, out: Tensor, dims: tuple[int, ...], op: ReduceOp) -> Tensor | None:
    # How much of a change of each element reaches the result; elements are counted where there is room for it.
    if op is ReduceOp.SUM:
        return None
    dtype = accumulator(x.dtype)
    if op in (ReduceOp.MAX, ReduceOp.MIN):
        best = astype(equal(x, spread(out, x, dims)), dtype=dtype)
        return divide(best, spread(reduce(best, dims=dims, op=ReduceOp.SUM), x, dims))
    if op is ReduceOp.PROD:
        zero = astype(equal(x, 0), dtype=dtype)
        safe = add(widen(x), zero)
        zeros = spread(reduce(zero, dims=dims, op=ReduceOp.SUM), x, dims)
        others = divide(spread(reduce(safe, dims=dims, op=ReduceOp.PROD), x, dims), safe)
        alone = multiply(zero, astype(equal(zeros, 1), dtype=dtype))
        return multiply(others, add(astype(equal(zeros, 0), dtype=dtype), alone))
    raise DerivativeError(f"{NAMES[op]} has no derivative.")


def _reduce_vjp(
    ct: Tensor, out: Tensor, x: Tensor, *, dims: tuple[int, ...], op: ReduceOp, wide: bool = False
) -> tuple[Tensor, ...]:
    # A pending sum may stay one: whatever is made of a cotangent is linear in it.
    ct = narrow(ct, x.dtype)
    layout = pending_in(x.layout.resolved().without_halo(), ct.layout)
    weight, back = _weight(x, out, dims, op), broadcast(expand(ct, at=dims), layout=layout, shape=x.shape)
    return (back if weight is None else narrow(multiply(back, weight), x.dtype),)


def _reduce_jvp(
    tangents: Any, out: Tensor, x: Tensor, *, dims: tuple[int, ...], op: ReduceOp, wide: bool = False
) -> Tensor:
    weight = _weight(x, out, dims, op)
    if weight is None:
        return reduce(tangents[0], dims=dims, op=op, **({"wide": True} if wide else {}))
    term, low = multiply(tangents[0], weight), is_low(x.dtype)
    return narrow(reduce(term, dims=dims, op=ReduceOp.SUM, **({"wide": True} if low else {})), x.dtype)


def _needs(i: int, j: int, operands: Any, params: Any) -> bool:
    return params["op"] is not ReduceOp.SUM


def _form(out: Tensor, x: Tensor, *, dims: tuple[int, ...], op: ReduceOp, wide: bool = False) -> forms.Form:
    return forms.reduce(x, dims, op, out.dtype)


# A sum of small floats, or of float32, may be asked for `wide`: in float32, and as exact as that.
reduce = row_of_work("reduce", _reduce, _reduce_vjp, _reduce_jvp, needs=_needs, lower=_form)
