"""Elementwise primitives, one declaration each: all that the package knows of an op stands in its line.

From it come the function, the method or operator, the local view, batching, derivatives, the compiler's arithmetic
and the entry of the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from math import log as ln
from typing import Any

import numpy as np

from shardwise.engine.arrays import accumulator, is_low, is_torch
from shardwise.errors import BindingError
from shardwise.layout.placement import kind_of
from shardwise.prim import forms
from shardwise.prim.arithmetic.by_element import (
    binary,
    kernel_of,
    pointwise,
    unary,
    work_by_element,
)
from shardwise.prim.dispatch.decision import row_of_work
from shardwise.prim.forms import Formula
from shardwise.prim.primitive import Primitive, needs_nothing
from shardwise.prim.tensor import Tensor
from shardwise.prim.work import Work


def power(x: Any, y: Any) -> Any:
    """Return x to the power of y; of integers to negative ones, what is left of it when its fraction is dropped.

    Where a negative element is must not decide whether there is a result: other devices would not know of it.

    >>> power(np.array([2, 1, -1, -1, 0]), np.array([-1, -1, -3, -2, -1]))
    array([ 0,  1, -1,  1,  0])
    """
    if is_torch(x) or is_torch(y):  # which says the same
        return kernel_of("pow")(x, y)
    if not _is_whole(x) or not _is_whole(y) or isinstance(y, int):
        return np.pow(x, y)
    x, y = (v if isinstance(v, int) or v.dtype.kind != "V" else v.astype("int8") for v in (x, y))  # as NumPy does
    negative = y < 0
    if not negative.any() or np.result_type(x, y).kind == "f":  # of uint64 and int64
        return np.pow(x, y)
    out = np.pow(x, np.maximum(y, 0))
    base = np.asarray(x).astype(out.dtype)
    rest = np.where(base == 1, 1, np.where(base == -1, 1 - 2 * (y & 1), 0))
    return np.where(negative, rest, out).astype(out.dtype)


def _is_whole(x: Any) -> bool:
    return isinstance(x, int) or (hasattr(x, "dtype") and kind_of(x.dtype) in "biu")


def _check_exponent(x: Any, y: Any) -> None:
    if isinstance(y, int) and y < 0 and isinstance(x, Tensor) and kind_of(x.dtype) in "biu":
        raise BindingError(
            f"pow of {x.dtype}: integers to the power of {y} are not integers.\n  convert first: x.astype('float32')."
        )


# -- arithmetic ----------------------------------------------------------------------------------------

add = binary("add", "the sum", "[1, 2], 3 -> [4, 5]", 1, 1, linear="joint", operator="+")
subtract = binary("subtract", "the difference", "[1, 2], 3 -> [-2, -1]", 1, -1, linear="joint", operator="-")
negative = unary("negative", "the negative", "[1, -2] -> [-1, 2]", -1, linear="joint", operator="-")
positive = unary("positive", "the value itself", "[1, -2] -> [1, -2]", 1, linear="joint", operator="+")
multiply = binary(
    "multiply", "the product", "[1, 2], 3 -> [3, 6]", lambda x, y, o: y, lambda x, y, o: x, linear="each", operator="*"
)
divide: Primitive = binary(
    "divide",
    "the quotient",
    "[1, 2], 4 -> [0.25, 0.5]",
    lambda x, y, o: divide(1.0, y),
    lambda x, y, o: -divide(divide(x, y), y),
    linear="first",
    operator="/",
)
reciprocal = unary("reciprocal", "one over it", "[2.0, 4.0] -> [0.5, 0.25]", lambda x, o: -(o * o), lower="1 / x")
pow = binary(
    "pow",
    "the first to the power of the second; the fraction of integers to negative elements is dropped",
    "[2, 1, -1], [-1, -1, -3] -> [0, 1, -1]",
    lambda x, y, o: _power_slope(x, y),
    lambda x, y, o: _exponent_slope(x, y, o),
    kernel=power,
    check=_check_exponent,
    operator="**",
)
square = unary("square", "the square", "[2, 3] -> [4, 9]", lambda x, o: 2.0 * x, lower="x * x")
sqrt = unary("sqrt", "the square root", "[4.0, 9.0] -> [2.0, 3.0]", lambda x, o: 0.5 / o)
abs = unary("abs", "the absolute value", "[1, -2] -> [1, 2]", lambda x, o: sign(x), operator="abs", method=True)
hypot = binary(
    "hypot",
    "the length of the hypotenuse",
    "[3.0], 4.0 -> [5.0]",
    lambda x, y, o: divide(x, o),
    lambda x, y, o: divide(y, o),
    lower="sqrt(x * x + y * y)",
)
remainder = binary(
    "remainder",
    "the remainder, with the sign of the divisor",
    "[7, -7], 3 -> [1, 2]",
    1,
    lambda x, y, o: -floor_divide(x, y),
    operator="%",
    lower="x - x // y * y",
)
floor_divide: Primitive = binary("floor_divide", "the quotient rounded down", "[7, -7], 2 -> [3, -4]", operator="//")
copysign = binary(
    "copysign",
    "the first with the sign of the second",
    "[1.0, 2.0], [-0.0, 0.0] -> [-1.0, 2.0]",
    lambda x, y, o: _sign_change(x, y),
)
nextafter = binary(
    "nextafter", "the next representable number towards the second", "[0.0], 1.0 -> [5e-324]", 1, lower=None
)


def _power_slope(x: Any, y: Any) -> Any:
    # y x^(y-1), which is 0 for y = 0 also where x = 0.
    zero = equal(y, 0) if isinstance(y, Tensor) else y == 0
    if zero is True:
        return multiply(x, 0.0)
    safe = where(zero, 1.0, y) if isinstance(y, Tensor) else y
    return multiply(y, pow(x, subtract(safe, 1.0) if isinstance(safe, Tensor) else safe - 1))


def _exponent_slope(x: Any, y: Any, out: Tensor) -> Any:
    # out log(x), which is 0 where x = 0.
    if not isinstance(x, Tensor):
        return multiply(out, ln(x) if x > 0 else 0.0)
    safe = where(greater(x, 0.0), x, 1.0)
    return multiply(out, log(safe))


def _sign_change(x: Any, y: Any) -> Any:
    # 1 where the signs are alike, and -1 where the first is turned around.
    own = copysign(1.0, x) if isinstance(x, Tensor) else 1.0
    return multiply(own, copysign(own, y))


# -- exponentials, logarithms, roots -------------------------------------------------------------------

exp = unary("exp", "e to its power", "[0.0, 1.0] -> [1.0, 2.7183]", lambda x, o: o, monotone=True)
expm1 = unary("expm1", "exp(x) - 1", "[0.0, 1.0] -> [0.0, 1.7183]", lambda x, o: o + 1.0, monotone=True)
log = unary("log", "the natural logarithm", "[1.0, 10.0] -> [0.0, 2.3026]", lambda x, o: divide(1.0, x))
log1p = unary("log1p", "log(1 + x)", "[0.0, 1.0] -> [0.0, 0.6931]", lambda x, o: 1.0 / (x + 1.0))
log2 = unary("log2", "the logarithm to base 2", "[1.0, 8.0] -> [0.0, 3.0]", lambda x, o: 1.0 / ln(2) / x)
log10 = unary("log10", "the logarithm to base 10", "[1.0, 100.0] -> [0.0, 2.0]", lambda x, o: 1.0 / ln(10) / x)
logaddexp = binary(
    "logaddexp",
    "log(exp(x1) + exp(x2))",
    "[0.0], 0.0 -> [0.6931]",
    lambda x, y, o: exp(subtract(x, o)),
    lambda x, y, o: exp(subtract(y, o)),
    lower="where(x == y, x + 0.6931471805599453, max(x, y) + log1p(exp(-abs(x - y))))",
)

# -- trigonometric and hyperbolic ----------------------------------------------------------------------

sin = unary("sin", "the sine", "[0.0, 1.0] -> [0.0, 0.8415]", lambda x, o: cos(x))
cos: Primitive = unary("cos", "the cosine", "[0.0, 1.0] -> [1.0, 0.5403]", lambda x, o: -sin(x))
tan = unary("tan", "the tangent", "[0.0, 1.0] -> [0.0, 1.5574]", lambda x, o: o * o + 1.0)
asin = unary("asin", "the inverse sine", "[0.0, 1.0] -> [0.0, 1.5708]", lambda x, o: 1.0 / sqrt(1.0 - x * x))
acos = unary("acos", "the inverse cosine", "[0.0, 1.0] -> [1.5708, 0.0]", lambda x, o: -1.0 / sqrt(1.0 - x * x))
atan = unary(
    "atan", "the inverse tangent", "[0.0, 1.0] -> [0.0, 0.7854]", lambda x, o: 1.0 / (x * x + 1.0), monotone=True
)
atan2 = binary(
    "atan2",
    "the angle of the point (x2, x1)",
    "[0.0, 1.0], 0.0 -> [0.0, 1.5708]",
    lambda x, y, o: divide(y, x * x + y * y),
    lambda x, y, o: -divide(x, x * x + y * y),
)
sinh = unary("sinh", "the hyperbolic sine", "[0.0, 1.0] -> [0.0, 1.1752]", lambda x, o: cosh(x), monotone=True)
cosh: Primitive = unary("cosh", "the hyperbolic cosine", "[0.0, 1.0] -> [1.0, 1.5431]", lambda x, o: sinh(x))
tanh = unary("tanh", "the hyperbolic tangent", "[0.0, 1.0] -> [0.0, 0.7616]", lambda x, o: 1.0 - o * o, monotone=True)
asinh = unary(
    "asinh",
    "the inverse hyperbolic sine",
    "[0.0, 1.0] -> [0.0, 0.8814]",
    lambda x, o: 1.0 / sqrt(x * x + 1.0),
    monotone=True,
)
acosh = unary(
    "acosh", "the inverse hyperbolic cosine", "[1.0, 2.0] -> [0.0, 1.317]", lambda x, o: 1.0 / sqrt(x * x - 1.0)
)
atanh = unary(
    "atanh", "the inverse hyperbolic tangent", "[0.0, 0.5] -> [0.0, 0.5493]", lambda x, o: 1.0 / (1.0 - x * x)
)

# -- comparison, logic, bits, rounding: constant wherever they have a derivative -------------------------

equal = binary("equal", "whether they are equal", "[1, 5], 5 -> [False, True]", operator="==")
not_equal = binary("not_equal", "whether they differ", "[1, 5], 5 -> [True, False]", operator="!=")
less = binary("less", "whether the first is less", "[1, 5], 5 -> [True, False]", operator="<")
less_equal = binary("less_equal", "whether the first is less or equal", "[1, 5], 5 -> [True, True]", operator="<=")
greater = binary("greater", "whether the first is greater", "[1, 5], 1 -> [False, True]", operator=">")
greater_equal = binary(
    "greater_equal", "whether the first is greater or equal", "[1, 5], 1 -> [True, True]", operator=">="
)
logical_and = binary(
    "logical_and", "whether both are true", "[True, False], True -> [True, False]", lower=Formula("x & y", of="bool")
)
logical_or = binary(
    "logical_or", "whether one is true", "[True, False], False -> [True, False]", lower=Formula("x | y", of="bool")
)
logical_xor = binary(
    "logical_xor",
    "whether exactly one is true",
    "[True, False], True -> [False, True]",
    lower=Formula("x ^ y", of="bool"),
)
logical_not = unary(
    "logical_not", "whether it is false", "[True, False] -> [False, True]", lower=Formula("x == 0", of="bool")
)
bitwise_and = binary("bitwise_and", "the bits that both have", "[6, 5], 3 -> [2, 1]", operator="&")
bitwise_or = binary("bitwise_or", "the bits that one has", "[6, 5], 3 -> [7, 7]", operator="|")
bitwise_xor = binary("bitwise_xor", "the bits that exactly one has", "[6, 5], 3 -> [5, 6]", operator="^")
bitwise_invert = unary("bitwise_invert", "its bits inverted", "[0, 5] -> [-1, -6]", operator="~", lower="x ^ -1")
bitwise_left_shift = binary("bitwise_left_shift", "the first shifted left", "[1, 2], 3 -> [8, 16]", operator="<<")
bitwise_right_shift = binary("bitwise_right_shift", "the first shifted right", "[8, 17], 3 -> [1, 2]", operator=">>")
isfinite = unary(
    "isfinite", "whether it is finite", "[1.0, np.inf] -> [True, False]", lower=Formula("abs(x) < inf", ints="True")
)
isinf = unary(
    "isinf", "whether it is infinite", "[1.0, np.inf] -> [False, True]", lower=Formula("abs(x) == inf", ints="False")
)
isnan = unary(
    "isnan", "whether it is not a number", "[1.0, np.nan] -> [False, True]", lower=Formula("x != x", ints="False")
)
signbit = unary("signbit", "whether its sign bit is set", "[1.0, -0.0] -> [False, True]", lower="copysign(1, x) < 0")
sign = unary(
    "sign",
    "its sign",
    "[3.0, -2.0, 0.0] -> [1.0, -1.0, 0.0]",
    monotone=True,
    lower="where(x > 0, 1, where(x < 0, -1, x))",
)
ceil = unary("ceil", "it rounded up", "[1.2, -1.2] -> [2.0, -1.0]", monotone=True)
floor = unary("floor", "it rounded down", "[1.2, -1.2] -> [1.0, -2.0]", monotone=True)
trunc = unary("trunc", "it rounded towards zero", "[1.7, -1.7] -> [1.0, -1.0]", monotone=True)
round = unary(
    "round",
    "it rounded to the nearest, ties to even",
    "[0.5, 1.5, 1.7] -> [0.0, 2.0, 2.0]",
    monotone=True,
    lower="roundeven(x)",
)

# -- choices -------------------------------------------------------------------------------------------


def _first(x: Any, y: Any, better: Primitive) -> Any:
    # 1 where the first is chosen, one half where both are equal.
    half = multiply(0.5, astype_like(equal(x, y), x, y))
    return add(astype_like(better(x, y), x, y), half)


def astype_like(mask: Tensor, x: Any, y: Any) -> Tensor:
    """Return a mask as 0 and 1 in the dtype of two operands."""
    return astype(mask, dtype=np.result_type(*(v.dtype if isinstance(v, Tensor) else v for v in (x, y))))


maximum = binary(
    "maximum",
    "the larger",
    "[1, 5], 3 -> [3, 5]",
    lambda x, y, o: _first(x, y, greater),
    lambda x, y, o: _first(y, x, greater),
    lower="max(x, y)",
)
minimum = binary(
    "minimum",
    "the smaller",
    "[1, 5], 3 -> [1, 3]",
    lambda x, y, o: _first(x, y, less),
    lambda x, y, o: _first(y, x, less),
    lower="min(x, y)",
)


def _where_form(out: Tensor, *cxy: Any) -> forms.Form:
    return forms.by_element(out, "where(x, y, z)", cxy, [forms.BOOL, out.dtype, out.dtype])


where = pointwise(
    "where",
    kernel_of("where"),
    (None, lambda c, x, y, o: astype(c, dtype=o.dtype), lambda c, x, y, o: 1.0 - astype(c, dtype=o.dtype)),
    lower=_where_form,
)


def _astype(x: Tensor, *, dtype: np.dtype) -> Work:
    return work_by_element("astype", partial(_cast, dtype=dtype), (x,))


def _cast(array: Any, dtype: np.dtype) -> Any:
    if not is_torch(array):
        return array.astype(dtype)
    import torch

    return array.to(getattr(torch, str(dtype)))


def _astype_vjp(ct: Tensor, out: Tensor, x: Tensor, *, dtype: np.dtype) -> tuple[Tensor | None, ...]:
    return (astype(ct, dtype=x.dtype) if x.dtype.kind not in "biu" else None,)


def _astype_jvp(tangents: Any, out: Tensor, x: Tensor, *, dtype: np.dtype) -> Tensor | None:
    return astype(tangents[0], dtype=dtype) if dtype.kind not in "biu" else None


def _astype_form(out: Tensor, x: Tensor, *, dtype: np.dtype) -> forms.Form:
    return forms.convert(x, dtype)


astype = row_of_work("astype", _astype, _astype_vjp, _astype_jvp, needs=needs_nothing, lower=_astype_form)


def widen(x: Tensor) -> Tensor:
    """Return a value in the dtype in which its elements are added up.

    >>> from shardwise import asarray
    >>> widen(asarray(np.ones(1, "float16"))).dtype, widen(asarray(np.ones(1, "int8"))).dtype
    (dtype('float32'), dtype('int8'))
    """
    return astype(x, dtype=accumulator(x.dtype)) if is_low(x.dtype) else x


def narrow(x: Tensor, dtype: np.dtype) -> Tensor:
    """Return a value rounded to small floats, if those of this dtype are; and otherwise as it is."""
    return astype(x, dtype=dtype) if is_low(dtype) and x.dtype != dtype else x


def in_bytes(x: Tensor) -> Tensor:
    """Return integers of fewer than 8 bits as int8, in which NumPy computes what ml_dtypes does not."""
    return astype(x, dtype=np.dtype("int8")) if x.dtype.kind == "V" and kind_of(x.dtype) in "iu" else x


def tangent_of_product(
    row: Primitive, tangents: Sequence[Tensor | None], operands: Sequence[Tensor], params: dict[str, Any]
) -> Tensor:
    """Return the tangent of what is linear in each of its operands: each tangent in the place of its own, added up."""
    terms = [
        row(*operands[:i], tangent, *operands[i + 1 :], **params)
        for i, tangent in enumerate(tangents)
        if tangent is not None
    ]
    return reduce(add, terms)


# -- complex numbers -----------------------------------------------------------------------------------


def _part_kernel(name: str) -> Callable[[Any], Any]:
    plain = kernel_of(name)

    def kernel(array: Any) -> Any:
        if is_torch(array) and not array.is_complex():
            return array.new_zeros(array.shape) if name == "imag" else array
        return plain(array)

    return kernel


def _imaginary(ct: Tensor, x: Tensor) -> Tensor:
    return astype(ct, dtype=x.dtype) * -1j if x.dtype.kind == "c" else ct * 0.0


# Linear over the real numbers, so pending sums pass and the tangent map is the function itself.
conj: Primitive = unary(
    "conj",
    "the complex conjugate",
    "[1 + 2j] -> [(1-2j)]",
    kernel=_part_kernel("conj"),
    linear="joint",
    back=lambda ct, x: conj(ct),
    lower=None,
)
real = unary(
    "real",
    "the real part",
    "[1 + 2j] -> [1.0]",
    kernel=_part_kernel("real"),
    linear="joint",
    back=lambda ct, x: astype(ct, dtype=x.dtype),
    attribute=True,
    lower=None,
)
imag = unary(
    "imag",
    "the imaginary part",
    "[1 + 2j] -> [2.0]",
    kernel=_part_kernel("imag"),
    linear="joint",
    back=_imaginary,
    attribute=True,
    lower=None,
)

# -- activations ---------------------------------------------------------------------------------------

relu = unary(
    "relu",
    "the larger of it and zero",
    "[-1.0, 2.0] -> [0.0, 2.0]",
    lambda x, o: astype(greater(o, 0.0), dtype=o.dtype),
    kernel=lambda a: kernel_of("maximum")(a, a.new_zeros(()) if is_torch(a) else a.dtype.type(0)),
    monotone=True,
    lower="max(x, 0)",
)
