"""Elementwise functions, with the names and meaning of the Python array API standard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.layout.placement import checked_dtype
from shardwise.ops.placement_args import number_dtype
from shardwise.prim.arithmetic import elementwise as rows
from shardwise.prim.primitive import Row
from shardwise.prim.tensor import Tensor, asarray, together


def operands(*data: Any) -> list[Any]:
    """Return tensors and plain numbers as they are, and anything array-like as a tensor; one at least is a tensor."""
    plain = [isinstance(x, int | float | complex) and not isinstance(x, np.generic) for x in data]
    ready = iter(together(*(x for x, number in zip(data, plain, strict=True) if not number)))
    out = [x if number else next(ready) for x, number in zip(data, plain, strict=True)]
    return [asarray(out[0]), *out[1:]] if all(plain) else out


def _one(row: Row, what: str, example: str) -> Callable[[Any], Tensor]:
    def function(x: Any, /) -> Any:
        return row(asarray(x))

    return _named(function, row.name, what, example)


NUMBERS = (float, int, complex, bool)


def _two(row: Row, what: str, example: str) -> Callable[[Any, Any], Tensor]:
    def function(x1: Any, x2: Any, /) -> Any:
        if isinstance(x1, Tensor) and isinstance(x2, Tensor):
            return row(x1, x2)
        if (isinstance(x1, Tensor) and type(x2) in NUMBERS) or (isinstance(x2, Tensor) and type(x1) in NUMBERS):
            return row(x1, x2)
        return row(*operands(x1, x2))

    return _named(function, row.name, what, example)


def _named(function: Any, name: str, what: str, example: str) -> Any:
    function.__name__ = function.__qualname__ = name
    function.__code__ = function.__code__.replace(co_name=name, co_qualname=name)  # what tracebacks and errors say
    call, result = example.split(" -> ")
    function.__doc__ = f"Return, element by element, {what}.\n\n    >>> {call}\n    {result}\n    "
    return function


conj = _one(rows.conj, "the complex conjugate", "conj([1 + 2j]).numpy() -> array([1.-2.j])")
real = _one(rows.real, "the real part", "real([1 + 2j]).numpy() -> array([1.])")
imag = _one(rows.imag, "the imaginary part", "imag([1 + 2j]).numpy() -> array([2.])")
add = _two(rows.add, "the sum", "add([1, 2], 3).numpy() -> array([4, 5])")
subtract = _two(rows.subtract, "the difference", "subtract([1, 2], 3).numpy() -> array([-2, -1])")
multiply = _two(rows.multiply, "the product", "multiply([1, 2], 3).numpy() -> array([3, 6])")
divide = _two(rows.divide, "the quotient", "divide([1, 2], 4).numpy() -> array([0.25, 0.5 ])")
pow = _two(
    rows.pow,
    "the first to the power of the second; the fraction of integers to negative elements is dropped",
    "pow([2, 1, -1], [-1, -1, -3]).numpy() -> array([ 0,  1, -1])",
)
floor_divide = _two(
    rows.floor_divide, "the quotient rounded down", "floor_divide([7, -7], 2).numpy() -> array([ 3, -4])"
)
remainder = _two(
    rows.remainder, "the remainder, with the sign of the divisor", "remainder([7, -7], 3).numpy() -> array([1, 2])"
)
hypot = _two(rows.hypot, "the length of the hypotenuse", "hypot([3.0], 4.0).numpy().round(4) -> array([5.])")
copysign = _two(
    rows.copysign,
    "the first with the sign of the second",
    "copysign([1.0, 2.0], [-0.0, 0.0]).numpy() -> array([-1.,  2.])",
)
nextafter = _two(
    rows.nextafter,
    "the next representable number towards the second",
    "nextafter([1.0], 2.0).item() -> 1.0000000000000002",
)
logaddexp = _two(rows.logaddexp, "log(exp(x1) + exp(x2))", "logaddexp([0.0], 0.0).numpy().round(4) -> array([0.6931])")
atan2 = _two(
    rows.atan2, "the angle of the point (x2, x1)", "atan2([0.0, 1.0], 0.0).numpy().round(4) -> array([0.    , 1.5708])"
)
maximum = _two(rows.maximum, "the larger", "maximum([1, 5], 3).numpy() -> array([3, 5])")
minimum = _two(rows.minimum, "the smaller", "minimum([1, 5], 3).numpy() -> array([1, 3])")
equal = _two(rows.equal, "whether they are equal", "equal([1, 5], 5).numpy() -> array([False,  True])")
not_equal = _two(rows.not_equal, "whether they differ", "not_equal([1, 5], 5).numpy() -> array([ True, False])")
less = _two(rows.less, "whether the first is less", "less([1, 5], 5).numpy() -> array([ True, False])")
less_equal = _two(
    rows.less_equal, "whether the first is less or equal", "less_equal([1, 5], 5).numpy() -> array([ True,  True])"
)
greater = _two(rows.greater, "whether the first is greater", "greater([1, 5], 1).numpy() -> array([False,  True])")
greater_equal = _two(
    rows.greater_equal,
    "whether the first is greater or equal",
    "greater_equal([1, 5], 1).numpy() -> array([ True,  True])",
)
logical_and = _two(
    rows.logical_and, "whether both are true", "logical_and([True, False], True).numpy() -> array([ True, False])"
)
logical_or = _two(
    rows.logical_or, "whether one is true", "logical_or([True, False], False).numpy() -> array([ True, False])"
)
logical_xor = _two(
    rows.logical_xor, "whether exactly one is true", "logical_xor([True, False], True).numpy() -> array([False,  True])"
)
bitwise_and = _two(rows.bitwise_and, "the bits that both have", "bitwise_and([6, 5], 3).numpy() -> array([2, 1])")
bitwise_or = _two(rows.bitwise_or, "the bits that one has", "bitwise_or([6, 5], 3).numpy() -> array([7, 7])")
bitwise_xor = _two(rows.bitwise_xor, "the bits that exactly one has", "bitwise_xor([6, 5], 3).numpy() -> array([5, 6])")
bitwise_left_shift = _two(
    rows.bitwise_left_shift, "the first shifted left", "bitwise_left_shift([1, 2], 3).numpy() -> array([ 8, 16])"
)
bitwise_right_shift = _two(
    rows.bitwise_right_shift, "the first shifted right", "bitwise_right_shift([8, 17], 3).numpy() -> array([1, 2])"
)

negative = _one(rows.negative, "the negative", "negative([1, -2]).numpy() -> array([-1,  2])")
positive = _one(rows.positive, "the value itself", "positive([1, -2]).numpy() -> array([ 1, -2])")
reciprocal = _one(rows.reciprocal, "one over it", "reciprocal([2.0, 4.0]).numpy() -> array([0.5 , 0.25])")
square = _one(rows.square, "the square", "square([2, 3]).numpy() -> array([4, 9])")
sqrt = _one(rows.sqrt, "the square root", "sqrt([4.0, 9.0]).numpy() -> array([2., 3.])")
abs = _one(rows.abs, "the absolute value", "abs([1, -2]).numpy() -> array([1, 2])")
exp = _one(rows.exp, "e to its power", "exp([0.0, 1.0]).numpy().round(4) -> array([1.    , 2.7183])")
expm1 = _one(rows.expm1, "exp(x) - 1", "expm1([0.0, 1e-9]).numpy() -> array([0.e+00, 1.e-09])")
log = _one(rows.log, "the natural logarithm", "log([1.0, 10.0]).numpy().round(4) -> array([0.    , 2.3026])")
log1p = _one(rows.log1p, "log(1 + x)", "log1p([0.0, 1e-9]).numpy() -> array([0.00000000e+00, 9.99999999e-10])")
log2 = _one(rows.log2, "the logarithm to base 2", "log2([1.0, 8.0]).numpy().round(4) -> array([0., 3.])")
log10 = _one(rows.log10, "the logarithm to base 10", "log10([1.0, 100.0]).numpy().round(4) -> array([0., 2.])")
sin = _one(rows.sin, "the sine", "sin([0.0, 1.0]).numpy().round(4) -> array([0.    , 0.8415])")
cos = _one(rows.cos, "the cosine", "cos([0.0, 1.0]).numpy().round(4) -> array([1.    , 0.5403])")
tan = _one(rows.tan, "the tangent", "tan([0.0, 1.0]).numpy().round(4) -> array([0.    , 1.5574])")
asin = _one(rows.asin, "the inverse sine", "asin([0.0, 1.0]).numpy().round(4) -> array([0.    , 1.5708])")
acos = _one(rows.acos, "the inverse cosine", "acos([0.0, 1.0]).numpy().round(4) -> array([1.5708, 0.    ])")
atan = _one(rows.atan, "the inverse tangent", "atan([0.0, 1.0]).numpy().round(4) -> array([0.    , 0.7854])")
sinh = _one(rows.sinh, "the hyperbolic sine", "sinh([0.0, 1.0]).numpy().round(4) -> array([0.    , 1.1752])")
cosh = _one(rows.cosh, "the hyperbolic cosine", "cosh([0.0, 1.0]).numpy().round(4) -> array([1.    , 1.5431])")
tanh = _one(rows.tanh, "the hyperbolic tangent", "tanh([0.0, 1.0]).numpy().round(4) -> array([0.    , 0.7616])")
asinh = _one(rows.asinh, "the inverse hyperbolic sine", "asinh([0.0, 1.0]).numpy().round(4) -> array([0.    , 0.8814])")
acosh = _one(rows.acosh, "the inverse hyperbolic cosine", "acosh([1.0, 2.0]).numpy().round(4) -> array([0.   , 1.317])")
atanh = _one(
    rows.atanh, "the inverse hyperbolic tangent", "atanh([0.0, 0.5]).numpy().round(4) -> array([0.    , 0.5493])"
)
logical_not = _one(
    rows.logical_not, "whether it is false", "logical_not([True, False]).numpy() -> array([False,  True])"
)
bitwise_invert = _one(rows.bitwise_invert, "its bits inverted", "bitwise_invert([0, 5]).numpy() -> array([-1, -6])")
isfinite = _one(rows.isfinite, "whether it is finite", "isfinite([1.0, np.inf]).numpy() -> array([ True, False])")
isinf = _one(rows.isinf, "whether it is infinite", "isinf([1.0, np.inf]).numpy() -> array([False,  True])")
isnan = _one(rows.isnan, "whether it is not a number", "isnan([1.0, np.nan]).numpy() -> array([False,  True])")
signbit = _one(rows.signbit, "whether its sign bit is set", "signbit([1.0, -0.0]).numpy() -> array([False,  True])")
sign = _one(rows.sign, "its sign", "sign([3.0, -2.0, 0.0]).numpy() -> array([ 1., -1.,  0.])")
ceil = _one(rows.ceil, "it rounded up", "ceil([1.2, -1.2]).numpy() -> array([ 2., -1.])")
floor = _one(rows.floor, "it rounded down", "floor([1.2, -1.2]).numpy() -> array([ 1., -2.])")
trunc = _one(rows.trunc, "it rounded towards zero", "trunc([1.7, -1.7]).numpy() -> array([ 1., -1.])")
round = _one(
    rows.round, "it rounded to the nearest, ties to even", "round([0.5, 1.5, 1.7]).numpy() -> array([0., 2., 2.])"
)
relu = _one(rows.relu, "the larger of it and zero", "relu([-1.0, 2.0]).numpy() -> array([0., 2.])")


def where(condition: Any, x1: Any, x2: Any, /) -> Tensor:
    """Return elements of `x1` where the condition holds, and of `x2` elsewhere.

    >>> where(np.array([True, False]), 1.0, np.array([5.0, 6.0])).numpy()
    array([1., 6.])
    """
    return rows.where(*operands(asarray(condition) if isinstance(condition, bool) else condition, x1, x2))


def clip(x: Any, /, min: Any = None, max: Any = None) -> Tensor:
    """Return `x` limited to [min, max].

    >>> clip([1.0, 5.0, 9.0], 2, 6).numpy()
    array([2., 5., 6.])
    """
    out = asarray(x)
    if min is not None:
        out = maximum(out, min)
    return out if max is None else minimum(out, max)


def astype(x: Any, dtype: Any, /) -> Tensor:
    """Return `x` converted to another dtype.

    >>> astype([1.7, -1.7], "int32").numpy()
    array([ 1, -1], dtype=int32)
    """
    return rows.astype(asarray(x), dtype=number_dtype(checked_dtype(dtype), None, "astype"))


def sigmoid(x: Any, /) -> Tensor:
    """Return 1 / (1 + exp(-x)), without overflow.

    >>> sigmoid([0.0, 1000.0]).numpy()
    array([0.5, 1. ])
    """
    return rows.sigmoid(asarray(x))


def silu(x: Any, /) -> Tensor:
    """Return x sigmoid(x).

    >>> silu([0.0, 1.0]).numpy().round(4)
    array([0.    , 0.7311])
    """
    return rows.silu(asarray(x))


def softplus(x: Any, /) -> Tensor:
    """Return log(1 + exp(x)), without overflow.

    >>> softplus([0.0, 1000.0]).numpy().round(4)
    array([6.931e-01, 1.000e+03])
    """
    return rows.softplus(asarray(x))


def gelu(x: Any, /) -> Tensor:
    """Return the Gaussian error linear unit, in its tanh form.

    >>> gelu([-1.0, 0.0, 1.0]).numpy().round(4)
    array([-0.1588,  0.    ,  0.8412])
    """
    return rows.gelu(asarray(x))
