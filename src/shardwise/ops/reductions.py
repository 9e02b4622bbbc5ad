"""Reductions over dims, along sharded ones with only small partial results to combine."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod as product
from typing import Any

import numpy as np

from shardwise.engine.arrays import is_low
from shardwise.errors import ArgumentError, BindingError, RangeError, as_int, check_flag, check_ints, check_number
from shardwise.layout.cut import Cut
from shardwise.layout.layout import Layout
from shardwise.layout.placement import ReduceOp, check_dtype, kind_of
from shardwise.ops.placement_args import number_dtype
from shardwise.prim.arithmetic import elementwise as rows
from shardwise.prim.arithmetic.cumulate import cumulate
from shardwise.prim.arithmetic.largest import largest
from shardwise.prim.arithmetic.logsumexp import logsumexp as logsumexp_over
from shardwise.prim.arithmetic.positions import iota
from shardwise.prim.arithmetic.reduce import reduce, spread
from shardwise.prim.arithmetic.softmax import is_whole
from shardwise.prim.arithmetic.softmax import log_softmax as log_softmax_of_whole
from shardwise.prim.arithmetic.softmax import softmax as softmax_of_whole
from shardwise.prim.bind import in_one_go
from shardwise.prim.dispatch.operands import may_bring, whole
from shardwise.prim.face import public
from shardwise.prim.movement.gathers import gather
from shardwise.prim.movement.joins import pad as surround
from shardwise.prim.relayout import cut_dim, relayout
from shardwise.prim.tensor import Tensor, asarray
from shardwise.prim.views.shapes import expand

Axis = int | Sequence[int] | None


def dims_of(x: Tensor, axis: Axis, function: str) -> tuple[int, ...]:
    """Return the dims that `axis` names, checked; all of them for None."""
    if axis is None:
        return tuple(range(x.ndim))
    out: list[int] = []
    for k in check_ints(axis, f"{function}: axis is an int or a tuple of ints"):
        if not -x.ndim <= k < x.ndim:
            raise RangeError(f"{function}: axis {k} is out of range for a tensor with {x.ndim} dims.")
        out.append(k % x.ndim)
    if len(set(out)) != len(out):
        raise BindingError(f"{function}: a dim is named twice in axis={axis!r}.")
    return tuple(sorted(out))


def dim_of(x: Tensor, axis: Any, function: str, *, rank: int | None = None) -> int:
    """Return the one dim that `axis` names, checked, of a tensor or of a result with `rank` dims.

    >>> dim_of(asarray([[1.0]]), -1, "softmax")
    1
    """
    dims, what = (x.ndim, "tensor") if rank is None else (rank, "result")
    named = check_ints(axis, f"{function}: axis is an int")
    if len(named) != 1:
        raise ArgumentError(f"{function}: axis is an int, got {axis!r}.")
    (k,) = named
    if not -dims <= k < dims:
        raise RangeError(f"{function}: axis {k} is out of range for a {what} with {dims} dims.")
    return k % dims


def _reduce(x: Any, axis: Axis, keepdims: bool, op: ReduceOp, function: str) -> Tensor:
    x = asarray(x)
    dims = dims_of(x, axis, function)
    out = reduce(x, dims=dims, op=op)
    return expand(out, at=dims) if check_flag(keepdims, f"{function}: keepdims is a bool") else out


def _accumulate(x: Any, axis: Axis, dtype: Any, keepdims: bool, op: ReduceOp, function: str) -> Tensor:
    # Small integers are accumulated in wide ones; the dtype that was asked for is that of the result.
    if dtype is None:
        return _reduce(x, axis, keepdims, op, function)
    wanted = number_dtype(dtype, None, function)
    out = _reduce(rows.astype(asarray(x), dtype=wanted), axis, keepdims, op, function)
    return out if out.dtype == wanted else rows.astype(out, dtype=wanted)


@public(method=True)
def sum(x: Any, /, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Return the sum over dims.

    >>> sum([[1.0, 2.0], [3.0, 4.0]], axis=0).numpy()
    array([4., 6.])
    """
    return _accumulate(x, axis, dtype, keepdims, ReduceOp.SUM, "sum")


@public(method=True)
def prod(x: Any, /, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Return the product over dims.

    >>> prod([2.0, 3.0]).item()
    6.0
    """
    return _accumulate(x, axis, dtype, keepdims, ReduceOp.PROD, "prod")


@public(method=True)
def max(x: Any, /, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """Return the largest element over dims; its derivative is shared evenly by ties.

    >>> max([[1.0, 5.0], [3.0, 4.0]], axis=1).numpy()
    array([5., 4.])
    """
    return _reduce(x, axis, keepdims, ReduceOp.MAX, "max")


@public(method=True)
def min(x: Any, /, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """Return the smallest element over dims; its derivative is shared evenly by ties.

    >>> min([[3.0, 1.0], [2.0, 5.0]], axis=0).numpy()
    array([2., 1.])
    """
    return _reduce(x, axis, keepdims, ReduceOp.MIN, "min")


@public(method=True)
def any(x: Any, /, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """Return whether any element over dims is true.

    >>> any([[True, False], [False, False]], axis=1).numpy()
    array([ True, False])
    """
    return _reduce(rows.astype(asarray(x), dtype=check_dtype("bool")), axis, keepdims, ReduceOp.BOR, "any")


@public(method=True)
def all(x: Any, /, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """Return whether all elements over dims are true.

    >>> all([[True, False], [True, True]], axis=1).numpy()
    array([False,  True])
    """
    return _reduce(rows.astype(asarray(x), dtype=check_dtype("bool")), axis, keepdims, ReduceOp.BAND, "all")


@public(method=True)
def mean(x: Any, /, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """Return the mean over dims.

    >>> mean([1.0, 3.0]).item()
    2.0
    """
    x = _check_average(x, "mean")
    return rows.narrow(wide_mean(x, dims_of(x, axis, "mean"), is_low(x.dtype), keepdims), x.dtype)


def wide_mean(x: Tensor, dims: tuple[int, ...], low: bool, keepdims: bool = True) -> Tensor:
    """Return the mean over dims in the dtype that its sum is made in: of integers in float64, as NumPy does."""
    count = product(x.shape[k] for k in dims)
    wide = rows.astype(x, dtype=np.dtype("float64")) if x.dtype.kind in "biu" else x
    # Divided once the sum is whole, as NumPy does: parts of it would be rounded each for itself.
    total = whole("mean", x, dims, wide_sum(wide, dims, keepdims, low))
    return rows.divide(total, float(count) if count else float("nan"))


def wide_sum(x: Tensor, dims: tuple[int, ...], keepdims: bool, low: bool) -> Tensor:
    """Return the sum over dims of what is made of small floats, if it is `low`, in float32; else a sum as any other."""
    out = reduce(x, dims=dims, op=ReduceOp.SUM, wide=True) if low else reduce(x, dims=dims, op=ReduceOp.SUM)
    return expand(out, at=dims) if check_flag(keepdims, "keepdims is a bool") else out


def square_lengths(x: Tensor) -> Tensor:
    """Return |x|², which is real for complex numbers too.

    >>> square_lengths(asarray([3.0 + 4.0j])).numpy()
    array([25.])
    """
    if x.dtype.kind != "c":
        return rows.square(x)
    return rows.add(rows.square(rows.real(x)), rows.square(rows.imag(x)))


def _check_average(x: Any, function: str) -> Tensor:
    x = asarray(x)
    if x.dtype.kind == "V" and kind_of(x.dtype) in "iu":  # NumPy would round the mean to one of so few numbers
        raise ArgumentError(f"{function} is not defined for {x.dtype}.\n  convert first: x.astype('float32').")
    return x


def _real(value: Any, what: str) -> float:
    number = check_number(value, f"{what} is a number")
    if isinstance(number, complex):
        raise ArgumentError(f"{what} is a number, got {number!r}.")
    return number


@public(method=True)
def var(x: Any, /, axis: Axis = None, *, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Return the variance over dims: the mean of |x - mean|², which is real for complex numbers too.

    >>> var([1.0, 3.0]).item(), var([1.0, 1.0j]).item()
    (1.0, 0.5)
    """
    x = _check_average(x, "var")
    dims = dims_of(x, axis, "var")
    return rows.narrow(_var(x, dims, correction, keepdims), x.dtype)


def _var(x: Tensor, dims: tuple[int, ...], correction: float, keepdims: bool) -> Tensor:
    count = product(x.shape[k] for k in dims)
    wide = rows.astype(x, dtype=np.dtype("float64")) if x.dtype.kind in "biu" else rows.widen(x)
    centred = rows.subtract(wide, wide_mean(x, dims, is_low(x.dtype)))
    left = float(count) - _real(correction, "var: correction")
    total = whole("var", x, dims, wide_sum(square_lengths(centred), dims, keepdims, is_low(x.dtype)))
    return rows.divide(total, left if left > 0 else float("nan"))


@public(method=True)
def std(x: Any, /, axis: Axis = None, *, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Return the standard deviation over dims.

    >>> std([1.0, 3.0, 5.0, 7.0], correction=1.0).numpy().round(4)
    np.float64(2.582)
    """
    x = _check_average(x, "std")
    return rows.narrow(rows.sqrt(_var(x, dims_of(x, axis, "std"), correction, keepdims)), x.dtype)


@public(method=True)
def logsumexp(x: Any, /, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """Return log(sum(exp(x))) over dims, without overflow.

    >>> logsumexp([1000.0, 1000.0]).item() - 1000.0 < 0.7
    True
    """
    x = asarray(x)
    return rows.narrow(wide_logsumexp(x, dims_of(x, axis, "logsumexp"), keepdims), x.dtype)


def wide_logsumexp(x: Tensor, dims: tuple[int, ...], keepdims: bool = False) -> Tensor:
    """Return log(sum(exp(x))) in the dtype in which sums are made."""
    out = logsumexp_over(x, dims)
    return expand(out, at=dims) if check_flag(keepdims, "logsumexp: keepdims is a bool") else out


@public(method=True)
def softmax(x: Any, /, axis: int = -1) -> Tensor:
    """Return exp(x) divided by its sum along a dim.

    >>> softmax([0.0, 0.0]).numpy()
    array([0.5, 0.5])
    """
    x = asarray(x)
    dims = (dim_of(x, axis, "softmax"),)
    # Along a sharded dim only numbers per row are sent.
    if not is_whole(x, dims) or not in_one_go(x):
        return rows.narrow(rows.exp(_log_softmax(x, dims)), x.dtype)
    return softmax_of_whole(x, dims=dims)


@public(method=True)
def log_softmax(x: Any, /, axis: int = -1) -> Tensor:
    """Return the logarithm of softmax.

    >>> log_softmax([0.0, 0.0]).numpy().round(4)
    array([-0.6931, -0.6931])
    """
    x = asarray(x)
    dims = dims_of(x, axis, "log_softmax")
    if not is_whole(x, dims) or not in_one_go(x):
        return rows.narrow(_log_softmax(x, dims), x.dtype)
    return log_softmax_of_whole(x, dims=dims)


def _log_softmax(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    if not product(x.shape[k] for k in dims):  # of nothing there is no largest, and none is needed
        return rows.log(rows.exp(rows.widen(x)))
    return rows.subtract(rows.widen(x), wide_logsumexp(x, dims, True))


# -- where, how much, how far ----------------------------------------------------------------------------


@public(method=True)
def argmax(x: Any, /, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """Return where the largest element along a dim is, the first of several; of the flattened tensor by default.

    >>> argmax([[1.0, 5.0], [7.0, 4.0]], axis=1).numpy()
    array([1, 0])
    """
    return _best(x, axis, keepdims, ReduceOp.MAX, "argmax")


@public(method=True)
def argmin(x: Any, /, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """Return where the smallest element along a dim is, the first of several; of the flattened tensor by default.

    >>> argmin([3.0, 1.0, 2.0]).item()
    1
    """
    return _best(x, axis, keepdims, ReduceOp.MIN, "argmin")


def _best(x: Any, axis: int | None, keepdims: bool, op: ReduceOp, function: str) -> Tensor:
    # The best value first, then the smallest position that has it: two small reductions.
    x = _check_order(x, function)
    x = rows.astype(x, dtype=check_dtype("uint8")) if x.dtype.kind == "b" else x
    if axis is not None and as_int(axis) is None:
        raise ArgumentError(f"{function}: axis is an int, or None for all dims in a row, got {axis!r}.")
    dims = dims_of(x, axis, function)
    if not product(x.shape[k] for k in dims):
        raise BindingError(f"{function} over an empty dim has no value: shape {x.shape}.")
    layout = x.layout.resolved().without_halo()
    may_bring(function, [x], [layout])
    x = relayout(x, layout=layout)
    best = spread(whole(function, x, dims, reduce(x, dims=dims, op=op)), x, dims)
    is_best = rows.equal(x, best)
    if x.dtype.kind in "fV":  # NaN counts as the best, and differs from itself
        is_best = rows.logical_or(is_best, rows.not_equal(x, x))
    if axis is None:
        places = iota(x.layout, x.shape, x.engine)
    else:
        line = iota(Layout(x.mesh, [x.layout.dims[dims[0]]]), (x.shape[dims[0]],), x.engine)
        places = expand(line, at=tuple(range(1, x.ndim - dims[0])))
    out = reduce(rows.where(is_best, places, x.size), dims=dims, op=ReduceOp.MIN)
    return expand(out, at=dims) if check_flag(keepdims, f"{function}: keepdims is a bool") else out


def _check_order(x: Any, function: str) -> Tensor:
    x = asarray(x)
    if x.dtype.kind == "c":
        raise ArgumentError(f"{function}: complex numbers have no order, got {x.dtype}.")
    return x


@public(method=True)
def norm(x: Any, /, axis: Axis = None, *, keepdims: bool = False, ord: float = 2) -> Tensor:
    """Return the vector norm over dims: the root of the sum of squares, or another order.

    >>> norm([3.0, 4.0]).item()
    5.0
    """
    size = rows.abs(asarray(x))
    dims = dims_of(size, axis, "norm")
    ord = _real(ord, "norm: ord")
    if ord == float("inf"):
        return max(size, axis=dims, keepdims=keepdims)
    if ord == -float("inf"):
        return min(size, axis=dims, keepdims=keepdims)
    if ord == 0:
        return sum(rows.astype(rows.not_equal(size, 0), dtype=size.dtype), axis=dims, keepdims=keepdims)
    if ord == 1:
        return sum(size, axis=dims, keepdims=keepdims)
    wide, low = rows.widen(size), is_low(size.dtype)
    if ord == 2:
        return rows.narrow(rows.sqrt(wide_sum(rows.square(wide), dims, keepdims, low)), size.dtype)
    total = wide_sum(rows.pow(wide, float(ord)), dims, keepdims, low)
    return rows.narrow(rows.pow(total, 1.0 / ord), size.dtype)


@public(method=True)
def cumulative_sum(x: Any, /, axis: int | None = None, *, dtype: Any = None, include_initial: bool = False) -> Tensor:
    """Return the sums of all elements up to each along a dim; along a sharded one only totals are sent.

    >>> cumulative_sum([1.0, 2.0, 3.0]).numpy()
    array([1., 3., 6.])
    """
    x = asarray(x)
    if axis is None and x.ndim != 1:
        raise ArgumentError(f"cumulative_sum needs an axis for a tensor with {x.ndim} dims.")
    dim = dim_of(x, 0 if axis is None else axis, "cumulative_sum")
    wanted = number_dtype(dtype, _wide(x.dtype), "cumulative_sum")
    x = rows.astype(x, dtype=wanted) if wanted != x.dtype else x
    out = cumulate(x, dim=dim, reverse=False)
    if not check_flag(include_initial, "cumulative_sum: include_initial is a bool"):
        return out
    widths = tuple((int(k == dim), 0) for k in range(x.ndim))
    layout = cut_dim(out.layout, dim, Cut(out.layout.dims[dim].axes))
    return surround(out, widths=widths, value=0, layout=layout)


def _wide(dtype: np.dtype) -> np.dtype:
    # Sums of small integers are made in the default integer, as NumPy makes them.
    if dtype.kind in "bi":
        return np.result_type(dtype, np.int64)
    return np.result_type(dtype, np.uint64) if dtype.kind == "u" else dtype


@public(method=True)
def topk(x: Any, k: int, /, axis: int = -1) -> tuple[Tensor, Tensor]:
    """Return the `k` largest elements along a dim, largest first, and where they are; of equal ones the first.

    Along a sharded dim every device finds its own `k` largest, and only those are sent.

    >>> values, indices = topk([1.0, 5.0, 3.0], 2)
    >>> values.numpy(), indices.numpy()
    (array([5., 3.]), array([1, 2]))
    """
    x = _check_order(x, "topk")
    dim, count = dim_of(x, axis, "topk"), as_int(k)
    if count is None or not 0 <= count <= x.shape[dim]:
        raise BindingError(f"topk: k is between 0 and {x.shape[dim]}, the size of dim {dim}, got {k!r}.")
    indices = largest(x, k=count, dim=dim)
    return gather(x, indices, dim=dim, along=True), indices
