"""Reductions over dims, along sharded ones with only small partial results to combine."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod as product
from typing import Any

from shardwise.errors import ArgumentError, BindingError
from shardwise.layout.placement import ReduceOp, checked_dtype
from shardwise.prim import elementwise as rows
from shardwise.prim.reduce import reduce, spread
from shardwise.prim.relayout import resolved
from shardwise.prim.shapes import expand
from shardwise.prim.tensor import Tensor, asarray, plain

Axis = int | Sequence[int] | None


def dims_of(x: Tensor, axis: Axis, function: str) -> tuple[int, ...]:
    """Return the dims that `axis` names, checked; all of them for None."""
    given = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    out = []
    for k in given:
        if isinstance(k, bool) or not isinstance(k, int):
            raise ArgumentError(f"{function}: axis is an int or a tuple of ints, got {axis!r}.")
        if not -x.ndim <= k < x.ndim:
            raise BindingError(f"{function}: axis {k} is out of range for a tensor with {x.ndim} dims.")
        out.append(k % x.ndim)
    if len(set(out)) != len(out):
        raise BindingError(f"{function}: a dim is named twice in axis={axis!r}.")
    return tuple(sorted(out))


def _reduced(x: Any, axis: Axis, keepdims: bool, op: ReduceOp, function: str) -> Tensor:
    x = asarray(x)
    dims = dims_of(x, axis, function)
    out = reduce(x, dims=dims, op=op)
    return expand(out, at=dims) if keepdims else out


def sum(x: Any, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Return the sum over dims.

    >>> sum([[1.0, 2.0], [3.0, 4.0]], axis=0).numpy()
    array([4., 6.])
    """
    x = asarray(x) if dtype is None else rows.astype(asarray(x), dtype=checked_dtype(dtype))
    return _reduced(x, axis, keepdims, ReduceOp.SUM, "sum")


def prod(x: Any, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Return the product over dims.

    >>> prod([2.0, 3.0]).item()
    6.0
    """
    x = asarray(x) if dtype is None else rows.astype(asarray(x), dtype=checked_dtype(dtype))
    return _reduced(x, axis, keepdims, ReduceOp.PROD, "prod")


def max(x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the largest element over dims; its derivative is shared evenly by ties.

    >>> max([[1.0, 5.0], [3.0, 4.0]], axis=1).numpy()
    array([5., 4.])
    """
    return _reduced(x, axis, keepdims, ReduceOp.MAX, "max")


def min(x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the smallest element over dims; its derivative is shared evenly by ties."""
    return _reduced(x, axis, keepdims, ReduceOp.MIN, "min")


def any(x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return whether any element over dims is true."""
    return _reduced(rows.astype(asarray(x), dtype=checked_dtype("bool")), axis, keepdims, ReduceOp.BOR, "any")


def all(x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return whether all elements over dims are true."""
    return _reduced(rows.astype(asarray(x), dtype=checked_dtype("bool")), axis, keepdims, ReduceOp.BAND, "all")


def mean(x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the mean over dims.

    >>> mean([1.0, 3.0]).item()
    2.0
    """
    x = asarray(x)
    count = product(x.shape[k] for k in dims_of(x, axis, "mean"))
    return rows.divide(sum(x, axis=axis, keepdims=keepdims), float(count) if count else float("nan"))


def var(x: Any, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Return the variance over dims.

    >>> var([1.0, 3.0]).item()
    1.0
    """
    x = asarray(x)
    dims = dims_of(x, axis, "var")
    count = product(x.shape[k] for k in dims)
    centred = rows.subtract(x, mean(x, axis=dims, keepdims=True))
    left = float(count) - correction
    return rows.divide(sum(rows.square(centred), axis=dims, keepdims=keepdims), left if left > 0 else float("nan"))


def std(x: Any, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Return the standard deviation over dims."""
    return rows.sqrt(var(x, axis=axis, correction=correction, keepdims=keepdims))


def logsumexp(x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return log(sum(exp(x))) over dims, without overflow.

    >>> logsumexp([1000.0, 1000.0]).item() - 1000.0 < 0.7
    True
    """
    x = asarray(x)
    dims = dims_of(x, axis, "logsumexp")
    top = _finite(plain(resolved(reduce(x, dims=dims, op=ReduceOp.MAX))))
    total = reduce(rows.exp(rows.subtract(x, spread(top, x, dims))), dims=dims, op=ReduceOp.SUM)
    out = rows.add(rows.log(total), top)
    return expand(out, at=dims) if keepdims else out


def _finite(x: Tensor) -> Tensor:
    return rows.where(rows.isfinite(x), x, 0.0)


def softmax(x: Any, /, *, axis: int = -1) -> Tensor:
    """Return exp(x) divided by its sum along a dim.

    >>> softmax([0.0, 0.0]).numpy()
    array([0.5, 0.5])
    """
    return rows.exp(log_softmax(x, axis=axis))


def log_softmax(x: Any, /, *, axis: int = -1) -> Tensor:
    """Return the logarithm of softmax."""
    x = asarray(x)
    return rows.subtract(x, logsumexp(x, axis=axis, keepdims=True))
