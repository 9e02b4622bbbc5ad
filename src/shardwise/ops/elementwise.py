"""Elementwise functions, with the names and meaning of the Python array API standard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.layout.placement import checked_dtype
from shardwise.ops.local_arithmetic import also_local, each_element
from shardwise.ops.local_view import LocalTensor
from shardwise.prim import elementwise as rows
from shardwise.prim.row import Row
from shardwise.prim.tensor import Tensor, asarray, together


def operands(*data: Any) -> list[Any]:
    """Return tensors and plain numbers as they are, and anything array-like as a tensor; one at least is a tensor."""
    plain = [isinstance(x, int | float | complex) and not isinstance(x, np.generic) for x in data]
    ready = iter(together(*(x for x, number in zip(data, plain, strict=True) if not number)))
    out = [x if number else next(ready) for x, number in zip(data, plain, strict=True)]
    return [asarray(out[0]), *out[1:]] if all(plain) else out


def _one(row: Row, what: str) -> Callable[[Any], Tensor]:
    def function(x: Any, /) -> Any:
        if isinstance(x, LocalTensor):
            return each_element(function, x)
        return row(asarray(x))

    return _named(function, row.name, f"Return, element by element, {what}.")


NUMBERS = (float, int, complex, bool)


def _two(row: Row, what: str) -> Callable[[Any, Any], Tensor]:
    def function(x1: Any, x2: Any, /) -> Any:
        if isinstance(x1, Tensor) and isinstance(x2, Tensor):
            return row(x1, x2)
        if (isinstance(x1, Tensor) and type(x2) in NUMBERS) or (isinstance(x2, Tensor) and type(x1) in NUMBERS):
            return row(x1, x2)
        if isinstance(x1, LocalTensor) or isinstance(x2, LocalTensor):
            return each_element(function, x1, x2)
        return row(*operands(x1, x2))

    return _named(function, row.name, f"Return, element by element, {what}.")


def _named(function: Any, name: str, doc: str) -> Any:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


conj = _one(rows.conj, "the complex conjugate")
real = _one(rows.real, "the real part")
imag = _one(rows.imag, "the imaginary part")
add = _two(rows.add, "the sum")
subtract = _two(rows.subtract, "the difference")
multiply = _two(rows.multiply, "the product")
divide = _two(rows.divide, "the quotient")
pow = _two(rows.pow, "the first to the power of the second")
floor_divide = _two(rows.floor_divide, "the quotient rounded down")
remainder = _two(rows.remainder, "the remainder, with the sign of the divisor")
hypot = _two(rows.hypot, "the length of the hypotenuse")
copysign = _two(rows.copysign, "the first with the sign of the second")
nextafter = _two(rows.nextafter, "the next representable number towards the second")
logaddexp = _two(rows.logaddexp, "log(exp(x1) + exp(x2))")
atan2 = _two(rows.atan2, "the angle of the point (x2, x1)")
maximum = _two(rows.maximum, "the larger")
minimum = _two(rows.minimum, "the smaller")
equal = _two(rows.equal, "whether they are equal")
not_equal = _two(rows.not_equal, "whether they differ")
less = _two(rows.less, "whether the first is less")
less_equal = _two(rows.less_equal, "whether the first is less or equal")
greater = _two(rows.greater, "whether the first is greater")
greater_equal = _two(rows.greater_equal, "whether the first is greater or equal")
logical_and = _two(rows.logical_and, "whether both are true")
logical_or = _two(rows.logical_or, "whether one is true")
logical_xor = _two(rows.logical_xor, "whether exactly one is true")
bitwise_and = _two(rows.bitwise_and, "the bits that both have")
bitwise_or = _two(rows.bitwise_or, "the bits that one has")
bitwise_xor = _two(rows.bitwise_xor, "the bits that exactly one has")
bitwise_left_shift = _two(rows.bitwise_left_shift, "the first shifted left")
bitwise_right_shift = _two(rows.bitwise_right_shift, "the first shifted right")

negative = _one(rows.negative, "the negative")
positive = _one(rows.positive, "the value itself")
reciprocal = _one(rows.reciprocal, "one over it")
square = _one(rows.square, "the square")
sqrt = _one(rows.sqrt, "the square root")
abs = _one(rows.abs, "the absolute value")
exp = _one(rows.exp, "e to its power")
expm1 = _one(rows.expm1, "exp(x) - 1")
log = _one(rows.log, "the natural logarithm")
log1p = _one(rows.log1p, "log(1 + x)")
log2 = _one(rows.log2, "the logarithm to base 2")
log10 = _one(rows.log10, "the logarithm to base 10")
sin = _one(rows.sin, "the sine")
cos = _one(rows.cos, "the cosine")
tan = _one(rows.tan, "the tangent")
asin = _one(rows.asin, "the inverse sine")
acos = _one(rows.acos, "the inverse cosine")
atan = _one(rows.atan, "the inverse tangent")
sinh = _one(rows.sinh, "the hyperbolic sine")
cosh = _one(rows.cosh, "the hyperbolic cosine")
tanh = _one(rows.tanh, "the hyperbolic tangent")
asinh = _one(rows.asinh, "the inverse hyperbolic sine")
acosh = _one(rows.acosh, "the inverse hyperbolic cosine")
atanh = _one(rows.atanh, "the inverse hyperbolic tangent")
logical_not = _one(rows.logical_not, "whether it is false")
bitwise_invert = _one(rows.bitwise_invert, "its bits inverted")
isfinite = _one(rows.isfinite, "whether it is finite")
isinf = _one(rows.isinf, "whether it is infinite")
isnan = _one(rows.isnan, "whether it is not a number")
signbit = _one(rows.signbit, "whether its sign bit is set")
sign = _one(rows.sign, "its sign")
ceil = _one(rows.ceil, "it rounded up")
floor = _one(rows.floor, "it rounded down")
trunc = _one(rows.trunc, "it rounded towards zero")
round = _one(rows.round, "it rounded to the nearest, ties to even")
relu = _one(rows.relu, "the larger of it and zero")


def _cast(function: Callable[..., Tensor], x: LocalTensor, dtype: Any) -> LocalTensor:
    return LocalTensor(function(x.stack, dtype), x.mesh)


@also_local(each_element)
def where(condition: Any, x1: Any, x2: Any, /) -> Tensor:
    """Return elements of `x1` where the condition holds, and of `x2` elsewhere.

    >>> where(np.array([True, False]), 1.0, np.array([5.0, 6.0])).numpy()
    array([1., 6.])
    """
    return rows.where(*operands(asarray(condition) if isinstance(condition, bool) else condition, x1, x2))


@also_local(each_element)
def clip(x: Any, /, min: Any = None, max: Any = None) -> Tensor:
    """Return `x` limited to [min, max].

    >>> clip([1.0, 5.0, 9.0], 2, 6).numpy()
    array([2., 5., 6.])
    """
    out = asarray(x)
    if min is not None:
        out = maximum(out, min)
    return out if max is None else minimum(out, max)


@also_local(_cast)
def astype(x: Any, dtype: Any, /) -> Tensor:
    """Return `x` converted to another dtype.

    >>> astype([1.7, -1.7], "int32").numpy()
    array([ 1, -1], dtype=int32)
    """
    return rows.astype(asarray(x), dtype=checked_dtype(dtype))


@also_local(each_element)
def sigmoid(x: Any, /) -> Tensor:
    """Return 1 / (1 + exp(-x)), without overflow.

    >>> sigmoid([0.0, 1000.0]).numpy()
    array([0.5, 1. ])
    """
    return rows.sigmoid(asarray(x))


@also_local(each_element)
def silu(x: Any, /) -> Tensor:
    """Return x sigmoid(x)."""
    return rows.silu(asarray(x))


@also_local(each_element)
def softplus(x: Any, /) -> Tensor:
    """Return log(1 + exp(x)), without overflow."""
    return rows.softplus(asarray(x))


@also_local(each_element)
def gelu(x: Any, /) -> Tensor:
    """Return the Gaussian error linear unit, in its tanh form."""
    return rows.gelu(asarray(x))
