"""The logarithm of a sum of exponentials over dims, along sharded ones with only numbers per row to combine."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from shardwise.caches import cache
from shardwise.engine.arrays import cast, dtype_of, is_low, is_torch
from shardwise.layout.placement import ReduceOp
from shardwise.prim.arithmetic.elementwise import add, exp, isfinite, log, multiply, narrow, subtract, where, widen
from shardwise.prim.arithmetic.reduce import reduce, spread
from shardwise.prim.arithmetic.steps import row_of_steps
from shardwise.prim.bind import in_one_go
from shardwise.prim.dispatch.decision import row_of_work
from shardwise.prim.dispatch.operands import whole
from shardwise.prim.kernel import wide_sum
from shardwise.prim.primitive import CONSTANT, Primitive
from shardwise.prim.rule import Rule, elementwise_rule
from shardwise.prim.tensor import Tensor, constant, settle
from shardwise.prim.views.shapes import expand
from shardwise.prim.work import Work

Dims = tuple[int, ...]


def sum_over(x: Tensor, dims: Dims, dtype: np.dtype) -> Tensor:
    """Return the sum over dims of what is made of values of a dtype: if those are small floats, in float32."""
    return reduce(x, dims=dims, op=ReduceOp.SUM, **({"wide": True} if is_low(dtype) else {}))


def logsumexp(x: Tensor, dims: Dims) -> Tensor:
    """Return log(sum(exp(x))) over dims, without overflow, in the dtype in which sums are made.

    >>> from shardwise import asarray
    >>> logsumexp(asarray([1000.0, 1000.0]), dims=(0,)).item() - 1000.0 < 0.7
    True
    """
    # The largest is a constant to derivatives; where it is not finite, zero will do.
    top = whole("logsumexp", x, dims, reduce(constant(x), dims=dims, op=ReduceOp.MAX))
    top = widen(where(isfinite(top), top, 0.0))
    if in_one_go(x):
        return add(log_of_sum(x, expand(top, at=dims), dims=dims), top)
    return add(log(sum_over(exp(subtract(widen(x), spread(top, x, dims))), dims, x.dtype)), top)


@cache()
def row_sum_rule(rank: int, dims: Dims, count: int) -> Rule:
    """Return the rule of a sum over dims of what is made of a value and of others with one number per row.

    >>> row_sum_rule(2, (1,), 2).operands
    (('d0', 'd1'), ('d0', None))
    """
    names = tuple(f"d{k}" for k in range(rank))
    reduced = tuple((names[k], ReduceOp.SUM) for k in dims)
    rows = tuple(None if k in dims else name for k, name in enumerate(names))
    return Rule((names, *(rows,) * (count - 1)), tuple(name for name in rows if name is not None), reduced)


def _sum_of_exponentials(array: Any, top: Any, dims: Dims) -> Any:
    terms = cast(array, dtype_of(top)) - top
    if is_torch(array):
        return terms.exp_().sum(dims) if dims else terms.exp_()
    terms = np.exp(terms, out=terms if terms.ndim else None)
    return wide_sum(terms, dims) if is_low(dtype_of(array)) else np.add.reduce(terms, axis=dims)


def _work(x: Tensor, top: Tensor, *, dims: Dims) -> Work:
    return Work("sum", partial(_sum_of_exponentials, dims=dims), row_sum_rule(x.ndim, dims, 2), [x, top])


# The sums over dims of exp(x - top); a constant to derivatives.
sum_of_exponentials = row_of_work("sum_of_exponentials", _work, **CONSTANT, effort=3)


def _scale(ct: Any, array: Any, top: Any, level: Any) -> Any:
    # In the dtype of the first: that of sums. What is large is subtracted first, so that little is rounded.
    out = cast(array, dtype_of(top)) - top
    if is_torch(array):
        return out.sub_(level).exp_().mul_(ct)
    out -= level
    out = np.exp(out, out=out if out.ndim else None)
    out *= ct
    return cast(out, dtype_of(ct))


def _times_shares(ct: Tensor, x: Tensor, top: Tensor, level: Tensor) -> Work:
    rule = elementwise_rule((ct.shape, x.shape, top.shape, level.shape), "first")
    return Work("logsumexp", _scale, rule, [ct, settle(x), top, level])


def _times_shares_steps(ct: Tensor, x: Tensor, top: Tensor, level: Tensor) -> Tensor:
    return multiply(ct, exp(subtract(subtract(widen(x), top), level)))


# What is given, per element or per row, times the shares of a sum of exponentials: exp(x - top - level).
times_shares = row_of_steps("times_shares", _times_shares, _times_shares_steps, effort=4)


def _vjp(ct: Tensor, out: Tensor, x: Tensor, top: Tensor, *, dims: Dims) -> tuple[Tensor | None, ...]:
    return narrow(times_shares(expand(ct, at=dims), x, top, expand(out, at=dims)), x.dtype), None


def _jvp(tangents: Any, out: Tensor, x: Tensor, top: Tensor, *, dims: Dims) -> Tensor:
    return sum_over(times_shares(widen(tangents[0]), x, top, expand(out, at=dims)), dims, x.dtype)


def _log_of_sum(x: Tensor, top: Tensor, *, dims: Dims) -> Tensor:
    return log(sum_of_exponentials(x, top, dims=dims))


# The logarithm of the sum of exp(x - top), for a constant that has the dims with one element each.
log_of_sum = Primitive("log_of_sum", _log_of_sum, _vjp, _jvp)
