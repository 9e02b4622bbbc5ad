"""Normalization: values made small by statistics of their rows, in one go; only those are kept beside the values."""

from __future__ import annotations

from functools import partial, reduce
from math import prod
from typing import Any

import numpy as np

from shardwise.caches import cache
from shardwise.engine.arrays import FLOAT32, FLOAT64, accumulator, cast, dtype_of, is_low, is_torch
from shardwise.prim.arithmetic.broadcast import unbroadcast
from shardwise.prim.arithmetic.elementwise import add, divide, multiply, narrow, sqrt, square, subtract, widen
from shardwise.prim.arithmetic.logsumexp import row_sum_rule, sum_over
from shardwise.prim.arithmetic.softmax import is_whole
from shardwise.prim.arithmetic.steps import pull, row_of_steps
from shardwise.prim.dispatch.decision import row_of_work
from shardwise.prim.dispatch.operands import whole
from shardwise.prim.kernel import wide_sum
from shardwise.prim.primitive import CONSTANT, Cotangents, Primitive
from shardwise.prim.rule import elementwise_rule
from shardwise.prim.tensor import Tensor, constant, settle
from shardwise.prim.views.shapes import expand
from shardwise.prim.work import Work

Dims = tuple[int, ...]


def mean_over(x: Tensor, of: Tensor, dims: Dims, dtype: np.dtype) -> Tensor:
    """Return the mean over dims of what is made of an operand of a dtype, with one element in each; nothing pending."""
    return _mean(x, of, dims, sum_over(of, dims, dtype))


def _mean(x: Tensor, of: Tensor, dims: Dims, total: Tensor) -> Tensor:
    # Divided once the sum is whole, as NumPy does: parts of it would be rounded each for itself.
    count = prod(of.shape[k] for k in dims)
    return divide(expand(whole("mean", x, dims, total), at=dims), float(count) if count else float("nan"))


def normalize_steps(x: Tensor, *, dims: Dims, eps: Any, centred: bool) -> Tensor:
    """Return values with mean 0, if they are to be centred, and mean square 1, in the dtype of sums; step by step.

    >>> from shardwise import asarray
    >>> normalize_steps(asarray([1.0, 3.0]), dims=(0,), eps=0.0, centred=True).numpy()
    array([-1.,  1.])
    """
    wide = widen(x)
    wide = subtract(wide, mean_over(x, x, dims, x.dtype)) if centred else wide
    return divide(wide, sqrt(add(mean_over(wide, square(wide), dims, x.dtype), eps)))


def normalize(x: Tensor, weight: Any, bias: Any, *, dims: Dims, eps: float, centred: bool) -> Tensor:
    """Return floats normalized over dims, times `weight` plus `bias`, which broadcast, or 1.0 and 0.0; in one go.

    >>> from shardwise import asarray
    >>> normalize(asarray([1.0, 3.0]), 1.0, 0.0, dims=(0,), eps=0.0, centred=True).numpy()
    array([-1.,  1.])
    """
    values = constant(x)
    mean = mean_over(x, values, dims, x.dtype) if centred else None
    total = sum_of_squares(*(values, mean) if centred else (values,), dims=dims)
    size = sqrt(add(_mean(x, values, dims, total), eps))
    dtype = np.result_type(*(v.dtype for v in (x, weight, bias) if isinstance(v, Tensor)))
    last = tuple(k - x.ndim for k in dims)  # counted from behind, they are the same under maps
    return scale_rows(x, 0.0 if mean is None else mean, size, weight, bias, dims=last, eps=eps, dtype=dtype)


# -- kernels ---------------------------------------------------------------------------------------------


def _squares(array: Any, mean: Any = None, *, dims: Dims) -> Any:
    wide = FLOAT32 if is_low(dtype_of(array)) else dtype_of(array)
    array = cast(array, wide) if mean is None else cast(array, wide) - mean
    if is_torch(array):
        return array.square().sum(dims) if dims else array.square()
    array = np.square(array, out=array if mean is not None and array.ndim else None)
    return wide_sum(array, dims) if wide is FLOAT32 else np.add.reduce(array, axis=dims)


def _sum_of_squares(x: Tensor, *mean: Tensor, dims: Dims) -> Work:
    rule = row_sum_rule(x.ndim, dims, 1 + len(mean))
    return Work("sum", partial(_squares, dims=dims), rule, [x, *mean])


# The sums of squares over dims of values, or of how far they are from a mean; a constant to derivatives.
sum_of_squares = row_of_work("sum_of_squares", _sum_of_squares, **CONSTANT, effort=3)


@cache(entries=256)
def _scaling(is_array: tuple[bool, ...], dtype: np.dtype) -> Any:
    # The kernel of those operands that are arrays.
    def kernel(*arrays: Any) -> Any:
        left = iter(arrays)
        x, mean, size, weight, bias = [_wide(next(left)) if a else None for a in is_array]
        out = _apart(x, mean, size)
        out = out if weight is None else _into(np.multiply, out, weight)
        out = out if bias is None else _into(np.add, out, bias)
        return cast(out, dtype)

    return kernel


def _wide(array: Any) -> Any:
    return cast(array, FLOAT32) if is_low(dtype_of(array)) else array


def _apart(x: Any, mean: Any, size: Any) -> Any:
    return x / size if mean is None else _into(np.divide, x - mean, size)


def _into(ufunc: Any, out: Any, other: Any) -> Any:
    # In the memory of the first, where that has room.
    if is_torch(out):
        return getattr(out, ufunc.__name__)(other)
    fits = not isinstance(out, np.generic) and out.dtype == np.result_type(out, other) and out.ndim >= np.ndim(other)
    return ufunc(out, other, out=out) if fits else ufunc(out, other)


@cache(entries=256)
def _centring(is_array: tuple[bool, ...], dims: Dims, dtype: np.dtype) -> Any:
    def kernel(*arrays: Any) -> Any:
        left = iter(arrays)
        ct, x, mean, size, weight = [_wide(next(left)) if a else None for a in is_array]
        room = FLOAT64 if is_low(dtype) else None
        out, near = ct if weight is None else ct * weight, _apart(x, mean, size)
        along = _means(out * near, dims, room)
        out = out - _means(out, dims, room) if mean is not None else out
        out = out - _into(np.multiply, near, along)
        return cast(_into(np.divide, out, size), dtype)

    return kernel


def _means(array: Any, dims: Dims, room: np.dtype | None) -> Any:
    if not dims:
        return array
    if is_torch(array):
        return array.mean(dims, keepdim=True)
    count = prod(array.shape[k] for k in dims) or float("nan")
    return np.add.reduce(array, axis=dims, keepdims=True, dtype=room).astype(array.dtype, copy=False) / count


# -- rows ------------------------------------------------------------------------------------------------


def _work(kernel: Any, operands: Any, linear: Any = None) -> Work:
    tensors = [v for v in operands if isinstance(v, Tensor)]
    return Work("normalize", kernel, elementwise_rule(tuple([v.shape for v in tensors]), linear), tensors)


def _scale_rows(x: Tensor, *stats: Any, dims: Dims, eps: float, dtype: np.dtype) -> Work:
    operands = (settle(x), *stats)
    return _work(_scaling(tuple([isinstance(v, Tensor) for v in operands]), dtype), operands)


def _scale_rows_vjp(
    ct: Tensor, out: Tensor, x: Tensor, mean: Any, size: Tensor, weight: Any, bias: Any, **how: Any
) -> Cotangents:
    how = {"dims": how["dims"], "eps": how["eps"]}
    return (
        lambda: centre_rows(ct, x, mean, size, weight, **how, dtype=x.dtype),
        None,
        None,
        lambda: unbroadcast(multiply(widen(ct), _near(x, mean, size, **how)), weight),
        lambda: unbroadcast(ct, bias),
    )


def _near(x: Tensor, mean: Any, size: Tensor, **how: Any) -> Tensor:
    return scale_rows(x, mean, size, 1.0, 0.0, **how, dtype=accumulator(x.dtype))


def _scale_rows_jvp(
    tangents: Any, out: Tensor, x: Tensor, mean: Any, size: Tensor, weight: Any, bias: Any, **how: Any
) -> Tensor:
    by_x, _, _, by_weight, by_bias = tangents
    how = {"dims": how["dims"], "eps": how["eps"]}
    terms: list[Tensor] = []
    if by_x is not None:
        terms.append(multiply(centre_rows(by_x, x, mean, size, 1.0, **how, dtype=accumulator(x.dtype)), weight))
    if by_weight is not None:
        terms.append(multiply(_near(x, mean, size, **how), by_weight))
    if by_bias is not None:
        terms.append(by_bias)
    return narrow(reduce(add, terms), out.dtype)


def _centre_rows(ct: Tensor, x: Tensor, mean: Any, size: Tensor, weight: Any, **how: Any) -> Work | Tensor:
    dims, dtype = how["dims"], how["dtype"]
    operands = (ct, settle(x), mean, size, weight)
    if is_whole(ct, dims) and is_whole(x, dims):
        kernel = _centring(tuple([isinstance(v, Tensor) for v in operands]), dims, dtype)
        return _work(kernel, operands, "first")
    places = tuple(k % x.ndim for k in dims)
    scaled, near = multiply(widen(ct), weight), _near(settle(x), mean, size, dims=dims, eps=how["eps"])
    out = subtract(scaled, multiply(near, mean_over(x, multiply(scaled, near), places, x.dtype)))
    out = subtract(out, mean_over(x, scaled, places, x.dtype)) if isinstance(mean, Tensor) else out
    return narrow(divide(out, size), dtype)


def _centre_rows_steps(ct: Tensor, x: Tensor, mean: Any, size: Tensor, weight: Any, **how: Any) -> Any:
    # The statistics are functions of the values, so they are made again.
    places = tuple(k % x.ndim for k in how["dims"])
    params = {"dims": places, "eps": how["eps"], "centred": isinstance(mean, Tensor)}
    return narrow(pull(normalize_steps, multiply(widen(ct), weight), (x,), params)[0], how["dtype"])  # type: ignore[arg-type]


def _batch(first: int, row: Primitive, lead: Any, mapped: Any, operands: Any, params: Any) -> Tensor:
    # Of the operands the first have all dims, and the others broadcast.
    full = [v if m else lead.spread(v) for v, m in zip(operands[:first], mapped, strict=False)]
    rank = full[0].ndim - lead.count
    rest = zip(operands[first:], mapped[first:], strict=True)
    return row(*full, *[lead.align(v, rank) if m else v for v, m in rest], **params)


def _needs(i: int, j: int, operands: Any, params: Any) -> bool:
    return j in {0: (0, 1, 2, 3), 3: (0, 1, 2)}.get(i, ())


# Values less the mean of their row, divided by its size, times a weight plus a bias. Mean and size are functions of
# the values, which their derivative is aware of. Where there is no mean, weight or bias, a number stands for it.
scale_rows = row_of_work(
    "scale_rows",
    _scale_rows,
    _scale_rows_vjp,
    _scale_rows_jvp,
    batch=partial(_batch, 1),
    needs=_needs,
    effort=4,
)
# A cotangent (or a tangent) times the derivative of that by the values: the matrix is symmetric but for the weight.
centre_rows = row_of_steps("centre_rows", _centre_rows, _centre_rows_steps, batch=partial(_batch, 2), effort=8)
