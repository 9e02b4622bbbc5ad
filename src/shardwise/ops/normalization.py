"""Normalization and losses, along sharded dims with only small partial results to combine."""

from __future__ import annotations

from typing import Any, Literal

from shardwise.errors import ArgumentError, BindingError
from shardwise.ops.reductions import Axis, dims_of, logsumexp, mean, square_lengths, sum
from shardwise.prim import elementwise as rows
from shardwise.prim.gathers import gather
from shardwise.prim.shapes import expand, squeeze
from shardwise.prim.tensor import Tensor, together

Reduction = Literal["mean", "sum", "none"]


def layer_norm(x: Any, weight: Any = None, bias: Any = None, /, *, axis: Axis = -1, eps: float = 1e-5) -> Tensor:
    """Return `x` with mean 0 and variance 1 over dims, times `weight` plus `bias`, which have the shape of those dims.

    >>> layer_norm([1.0, 3.0], eps=0.0).numpy()
    array([-1.,  1.])
    """
    x, scale, shift = _operands(x, weight, bias)
    dims = dims_of(x, axis, "layer_norm")
    centred = rows.subtract(x, mean(x, axis=dims, keepdims=True))
    spread = mean(square_lengths(centred), axis=dims, keepdims=True)
    out = rows.divide(centred, rows.sqrt(rows.add(spread, eps)))
    out = out if scale is None else rows.multiply(out, _over(scale, x, dims, "layer_norm: weight"))
    return out if shift is None else rows.add(out, _over(shift, x, dims, "layer_norm: bias"))


def rms_norm(x: Any, weight: Any = None, /, *, axis: Axis = -1, eps: float = 1e-5) -> Tensor:
    """Return `x` divided by the root of the mean of its squares over dims, times `weight`.

    >>> rms_norm([3.0, 4.0], eps=0.0).numpy() * 12.5**0.5
    array([3., 4.])
    """
    x, scale, _ = _operands(x, weight, None)
    dims = dims_of(x, axis, "rms_norm")
    size = rows.sqrt(rows.add(mean(square_lengths(x), axis=dims, keepdims=True), eps))
    out = rows.divide(x, size)
    return out if scale is None else rows.multiply(out, _over(scale, x, dims, "rms_norm: weight"))


def _operands(x: Any, *more: Any) -> list[Any]:
    ready = iter(together(x, *(y for y in more if y is not None)))
    return [next(ready), *(None if y is None else next(ready) for y in more)]


def _over(y: Tensor, x: Tensor, dims: tuple[int, ...], what: str) -> Tensor:
    shape = tuple(x.shape[k] for k in dims)
    if y.shape != shape:
        raise BindingError(f"{what} must have the shape {shape} of the dims {dims} of x, got {y.shape}.")
    return expand(y, at=tuple(k for k in range(dims[0], x.ndim) if k not in dims)) if dims else y


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
    (dim,) = dims_of(x, axis, "cross_entropy")
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
        counted = rows.not_equal(index, ignore_index)
        index = rows.where(counted, index, 0)
    picked = squeeze(gather(x, expand(index, at=(dim,)), dim=dim, along=True), at=(dim,))
    loss = rows.subtract(logsumexp(x, axis=dim), picked)
    if counted is None:
        return loss if reduction == "none" else mean(loss) if reduction == "mean" else sum(loss)
    weights = rows.astype(counted, dtype=x.dtype)
    loss = rows.where(counted, loss, 0.0)  # not times 0: what does not count may be infinite
    return loss if reduction == "none" else rows.divide(sum(loss), sum(weights)) if reduction == "mean" else sum(loss)
