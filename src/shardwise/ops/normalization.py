"""Normalization and losses, along sharded dims with only small partial results to combine."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from shardwise.engine.arrays import is_low
from shardwise.errors import ArgumentError, BindingError, check_int, check_number
from shardwise.ops.reductions import Axis, dim_of, dims_of, square_lengths, wide_logsumexp, wide_mean, wide_sum
from shardwise.prim.arithmetic import elementwise as rows
from shardwise.prim.arithmetic.normalize import normalize
from shardwise.prim.bind import in_one_go
from shardwise.prim.face import public
from shardwise.prim.movement.gathers import gather
from shardwise.prim.tensor import Tensor, together
from shardwise.prim.views.shapes import expand, squeeze

Reduction = Literal["mean", "sum", "none"]


@public(method=True)
def layer_norm(x: Any, weight: Any = None, bias: Any = None, /, *, axis: Axis = -1, eps: float = 1e-5) -> Tensor:
    """Return `x` with mean 0 and variance 1 over dims, times `weight` plus `bias`, which have the shape of those dims.

    >>> layer_norm([1.0, 3.0], eps=0.0).numpy()
    array([-1.,  1.])
    """
    return _normalize(x, weight, bias, axis, eps, "layer_norm")


def _normalize(x: Any, weight: Any, bias: Any, axis: Axis, eps: Any, function: str) -> Tensor:
    x, scale, shift = _operands(x, weight, bias)
    dims, centred = dims_of(x, axis, function), function == "layer_norm"
    eps = eps if isinstance(eps, Tensor) else check_number(eps, f"{function}: eps is a number")
    factor = 1.0 if scale is None else _over(scale, x, dims, f"{function}: weight")
    offset = 0.0 if shift is None else _over(shift, x, dims, f"{function}: bias")
    if in_one_go(x, factor, offset) and not isinstance(eps, Tensor):
        return normalize(x, factor, offset, dims=dims, eps=eps, centred=centred)
    low = is_low(x.dtype)
    out = rows.subtract(rows.widen(x), wide_mean(x, dims, low)) if centred else rows.widen(x)
    out = rows.divide(out, rows.sqrt(rows.add(wide_mean(square_lengths(out), dims, low), eps)))
    out = out if scale is None else rows.multiply(out, factor)
    out = out if shift is None else rows.add(out, offset)
    return rows.narrow(out, np.result_type(*(y.dtype for y in (x, scale, shift) if y is not None)))


@public(method=True)
def rms_norm(x: Any, weight: Any = None, /, *, axis: Axis = -1, eps: float = 1e-5) -> Tensor:
    """Return `x` divided by the root of the mean of its squares over dims, times `weight`.

    >>> rms_norm([3.0, 4.0], eps=0.0).numpy() * 12.5**0.5
    array([3., 4.])
    """
    return _normalize(x, weight, None, axis, eps, "rms_norm")


def _operands(x: Any, *more: Any) -> list[Any]:
    ready = iter(together(x, *(y for y in more if y is not None)))
    return [next(ready), *(None if y is None else next(ready) for y in more)]


def _over(y: Tensor, x: Tensor, dims: tuple[int, ...], what: str) -> Tensor:
    shape = tuple(x.shape[k] for k in dims)
    if y.shape != shape:
        raise BindingError(f"{what} must have the shape {shape} of the dims {dims} of x, got {y.shape}.")
    return expand(y, at=tuple(k for k in range(dims[0], x.ndim) if k not in dims)) if dims else y


@public(method=True)
def cross_entropy(
    logits: Any, labels: Any, /, *, axis: int = -1, reduction: Reduction = "mean", ignore_index: int | None = None
) -> Tensor:
    """Return minus the logarithm of the probability that logits along a dim give to labels, which are integers.

    The dim may be sharded: only numbers per label are sent, never logits. Labels equal to `ignore_index` do not
    count.

    >>> cross_entropy([[0.0, 0.0]], [1]).item() == rows.ln(2)
    True
    """
    x, index = together(logits, labels)
    dim = dim_of(x, axis, "cross_entropy")
    if index.dtype.kind not in "iu":
        raise ArgumentError(f"cross_entropy: labels are integers, got {index.dtype}.")
    if index.shape != x.shape[:dim] + x.shape[dim + 1 :]:
        raise BindingError(
            f"cross_entropy: labels have the shape of the logits without dim {dim}, "
            f"{x.shape[:dim] + x.shape[dim + 1 :]}, got {index.shape}."
        )
    if reduction not in ("mean", "sum", "none"):
        raise ArgumentError(f"cross_entropy: reduction is 'mean', 'sum' or 'none', got {reduction!r}.")
    counted = None
    if ignore_index is not None:
        counted = rows.not_equal(index, check_int(ignore_index, "cross_entropy: ignore_index is an int"))
        index = rows.where(counted, index, 0)
    picked = squeeze(gather(x, expand(index, at=(dim,)), dim=dim, along=True), at=(dim,))
    loss = rows.subtract(wide_logsumexp(x, (dim,)), rows.widen(picked))
    if counted is not None:
        loss = rows.where(counted, loss, 0.0)  # not times 0: what does not count may be infinite
    if reduction == "none":
        return rows.narrow(loss, x.dtype)
    low, every = is_low(x.dtype), tuple(range(loss.ndim))
    if counted is None and reduction == "mean":
        return rows.narrow(wide_mean(loss, every, low, keepdims=False), x.dtype)
    total = wide_sum(loss, every, False, low)
    if counted is not None and reduction == "mean":
        total = rows.divide(total, wide_sum(rows.astype(counted, dtype=loss.dtype), every, False, low))
    return rows.narrow(total, x.dtype)
