"""Softmax along a dim that every device has whole, in one go."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from shardwise.caches import cache
from shardwise.engine.arrays import FLOAT32, FLOAT64, cast, dtype_of, is_low, is_torch
from shardwise.layout.placement import ReduceOp
from shardwise.prim.arithmetic.elementwise import multiply, narrow, subtract, widen
from shardwise.prim.arithmetic.reduce import reduce
from shardwise.prim.dispatch.decision import apply
from shardwise.prim.dispatch.rule import Rule
from shardwise.prim.primitive import Row
from shardwise.prim.tensor import Tensor
from shardwise.prim.views.shapes import expand


@cache()
def softmax_rule(rank: int, dim: int) -> Rule:
    """Return the rule of a function along one dim, which must be whole.

    >>> sorted(softmax_rule(2, 1).whole)
    ['d1']
    """
    names = tuple(f"d{k}" for k in range(rank))
    return Rule((names,), names, whole=frozenset({names[dim]}))


@cache(entries=256)
def _finite(dtype: np.dtype) -> tuple[Any, Any]:
    # A row without a finite maximum is moved by a finite number too, so that no difference of infinities arises.
    limits = ml_dtypes.finfo(dtype)
    return dtype.type(limits.min), np.array(limits.max, dtype)


def _kernel(array: Any, dim: int) -> Any:
    dtype = dtype_of(array)
    if is_low(dtype):
        return cast(_wide(cast(array, FLOAT32), dim), dtype)
    return array.softmax(dim) if is_torch(array) else _shares(array, dim)


def _wide(array: Any, dim: int) -> Any:
    return array.softmax(dim) if is_torch(array) else _shares(array, dim, FLOAT64)


def _shares(array: Any, dim: int, room: np.dtype | None = None) -> Any:
    if not array.size:
        return array
    least, most = _finite(array.dtype)
    top = np.maximum.reduce(array, axis=dim, keepdims=True, initial=least)
    out = np.exp(array - np.minimum(top, most, out=top))
    out /= np.add.reduce(out, axis=dim, keepdims=True, dtype=room)
    return out


@cache(entries=256)
def _along(dim: int) -> Callable[[Any], Any]:
    return partial(_kernel, dim=dim)


def _softmax(x: Tensor, *, dim: int) -> Tensor:
    return apply("softmax", _along(dim), softmax_rule(x.ndim, dim), [x])


def _pulled(ct: Tensor, out: Tensor, dim: int) -> Tensor:
    # The matrix of derivatives is diag(y) - y y^T: symmetric, so tangents and cotangents go the same way.
    if is_low(out.dtype):
        shares, wide = widen(out), widen(ct)
        both = expand(reduce(multiply(wide, shares), dims=(dim,), op=ReduceOp.SUM, wide=True), at=(dim,))
        return narrow(multiply(shares, subtract(wide, both)), out.dtype)
    both = expand(reduce(multiply(ct, out), dims=(dim,), op=ReduceOp.SUM), at=(dim,))
    return multiply(out, subtract(ct, both))


softmax = Row(
    "softmax",
    _softmax,
    lambda ct, out, x, *, dim: (_pulled(ct, out, dim),),
    lambda tangents, out, x, *, dim: _pulled(tangents[0], out, dim),
)
