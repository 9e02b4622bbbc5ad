"""Elementwise primitives, one row each: kernel, how pending reductions pass through, and derivatives."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import log as ln
from math import pi
from math import sqrt as root
from typing import Any

import numpy as np

from shardwise.caches import cache
from shardwise.engine.arrays import accumulator, is_foreign, is_low, is_torch
from shardwise.errors import BindingError
from shardwise.layout.placement import kind_of
from shardwise.prim.arithmetic.broadcast import broadcast, unbroadcast
from shardwise.prim.dispatch.decision import apply
from shardwise.prim.dispatch.rule import Linear, elementwise_rule, is_integer
from shardwise.prim.kernel import alike
from shardwise.prim.primitive import Cotangents, Row
from shardwise.prim.tensor import Tensor

# `monotone` says that a pending max or min passes through. Functions that are not defined everywhere do not say it:
# a contribution outside their domain would become NaN and hide the others.
Derivative = Callable[..., Any] | float | None  # of the operands and the result; a number; or zero


def kernel_of(name: str) -> Callable[..., Any]:
    """Return the function of this name in whatever library the arrays belong to."""
    ours = getattr(np, name)

    def kernel(*arrays: Any) -> Any:
        for array in arrays:
            if is_torch(array):
                return _of_torch(name)(*arrays)
        return ours(*arrays)

    return kernel


@cache(entries=256)
def _of_torch(name: str) -> Callable[..., Any]:
    from array_api_compat import torch

    return getattr(torch, name)


def elementwise(
    name: str, kernel: Callable[..., Any], operands: tuple[Any, ...], linear: Linear = None, monotone: bool = False
) -> Tensor:
    """Return what a kernel makes of tensors and numbers, element by element."""
    tensors = [x for x in operands if isinstance(x, Tensor)]
    if not tensors:  # a derivative may come to a plain number
        return kernel(*operands).item()
    if len(tensors) == len(operands):
        # A divisor may hold a zero, which nobody looks for: what it divides is resolved.
        rule = elementwise_rule(tuple(x.shape for x in tensors), None if linear == "first" else linear, monotone)
        return apply(name, kernel, rule, tensors)
    # A number added to a pending sum would be added once per contribution, so only factors and divisors pass.
    passes = linear == "each" or (linear == "first" and isinstance(operands[0], Tensor))
    if passes and tensors[0].layout.partial:
        passes = all(_passes(x, tensors[0].dtype, linear) for x in operands if not isinstance(x, Tensor))
    rule = elementwise_rule(tuple([x.shape for x in tensors]), "first" if passes else None)
    dtype = next((x.dtype for x in tensors if is_foreign(x.dtype)), tensors[0].dtype)
    return apply(name, _filled(kernel, operands, dtype), rule, tensors)


def _passes(number: Any, dtype: np.dtype, linear: Linear) -> bool:
    # Whether parts of a sum may be multiplied (or divided, if it is linear in the first) by a number, each for itself.
    if is_integer(dtype):  # the sum wraps around, and its parts would not once they are floats
        return linear == "each" and isinstance(number, int)
    kind = np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype  # what is finite may be infinite there
    try:
        with np.errstate(all="ignore"):
            parts = np.array([float(number.real), float(number.imag)]).astype(kind).astype(float)
    except OverflowError:
        return False
    return bool(np.isfinite(parts).all()) and (linear == "each" or bool(parts.any()))


def _filled(kernel: Callable[..., Any], operands: tuple[Any, ...], dtype: np.dtype) -> Callable[..., Any]:
    # The kernel of the operands that are tensors, given those that are numbers.
    if is_foreign(dtype):

        def odd(*arrays: Any) -> Any:
            left = iter(arrays)
            return kernel(*alike([next(left) if isinstance(x, Tensor) else x for x in operands], dtype))

        return odd
    if len(operands) == 2:
        x, y = operands
        return (lambda a: kernel(a, y)) if isinstance(x, Tensor) else (lambda a: kernel(x, a))

    def filled(*arrays: Any) -> Any:
        left = iter(arrays)
        return kernel(*[next(left) if isinstance(x, Tensor) else x for x in operands])

    return filled


def row(
    name: str,
    *derivatives: Derivative,
    kernel: Callable[..., Any] | None = None,
    linear: Linear = None,
    monotone: bool = False,
    check: Callable[..., None] | None = None,
) -> Row:
    """Return the row of an elementwise op, with the derivative by each operand."""
    function = kernel or kernel_of(name)

    def run(*operands: Any) -> Tensor:
        if check is not None:
            check(*operands)
        return elementwise(name, function, operands, linear, monotone)

    def vjp(ct: Tensor, out: Tensor, *operands: Any) -> Cotangents:
        return tuple(
            partial(_cotangent, ct, d, operands, out, x) if d is not None and isinstance(x, Tensor) else None
            for d, x in zip(derivatives, operands, strict=True)
        )

    def jvp(tangents: Any, out: Tensor, *operands: Any) -> Tensor | None:
        total: Tensor | None = None
        for d, tangent in zip(derivatives, tangents, strict=True):
            if d is not None and tangent is not None:
                part = _times(tangent, d, operands, out)
                total = part if total is None else add(total, part)
        if total is not None and total.shape != out.shape:
            return broadcast(total, layout=out.layout.resolved(), shape=out.shape)
        return total

    return Row(name, run, vjp, jvp, batch=_batch)


def _batch(row: Row, lead: Any, mapped: Any, operands: Any, params: Any) -> Tensor:
    # What follows the leading dims broadcasts as it would without them.
    ranks = [x.ndim - lead.count if m else x.ndim for x, m in zip(operands, mapped, strict=True) if hasattr(x, "ndim")]
    return row(*[lead.align(x, max(ranks)) if m else x for x, m in zip(operands, mapped, strict=True)], **params)


def _cotangent(ct: Tensor, derivative: Any, operands: tuple[Any, ...], out: Tensor, x: Tensor) -> Tensor:
    return as_in(unbroadcast(_times(ct, derivative, operands, out), x), x)


def as_in(ct: Tensor, x: Tensor) -> Tensor:
    """Return a cotangent as that of an operand: of a real one that met a complex one, the real part."""
    return real(ct) if ct.dtype.kind == "c" and x.dtype.kind != "c" else ct


def _times(x: Tensor, derivative: Any, operands: tuple[Any, ...], out: Tensor) -> Tensor:
    if not callable(derivative):
        return x if derivative == 1 else negative(x) if derivative == -1 else multiply(x, derivative)
    return multiply(x, derivative(*operands, out))


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
    return isinstance(x, int) or (isinstance(x, np.ndarray | np.generic) and kind_of(x.dtype) in "biu")


def _check_exponent(x: Any, y: Any) -> None:
    if isinstance(y, int) and y < 0 and isinstance(x, Tensor) and kind_of(x.dtype) in "biu":
        raise BindingError(
            f"pow of {x.dtype}: integers to the power of {y} are not integers.\n  convert first: x.astype('float32')."
        )


# -- arithmetic ----------------------------------------------------------------------------------------

add = row("add", 1, 1, linear="joint")
subtract = row("subtract", 1, -1, linear="joint")
negative = row("negative", -1, linear="joint")
positive = row("positive", 1, linear="joint")
multiply = row("multiply", lambda x, y, o: y, lambda x, y, o: x, linear="each")
divide = row("divide", lambda x, y, o: divide(1.0, y), lambda x, y, o: negative(divide(o, y)), linear="first")
reciprocal = row("reciprocal", lambda x, o: negative(multiply(o, o)))
pow = row(
    "pow",
    lambda x, y, o: _power_slope(x, y),
    lambda x, y, o: _exponent_slope(x, y, o),
    kernel=power,
    check=_check_exponent,
)
square = row("square", lambda x, o: multiply(2.0, x))
sqrt = row("sqrt", lambda x, o: divide(0.5, o))
abs = row("abs", lambda x, o: sign(x))
hypot = row("hypot", lambda x, y, o: divide(x, o), lambda x, y, o: divide(y, o))
remainder = row("remainder", 1, lambda x, y, o: negative(floor_divide(x, y)))
floor_divide = row("floor_divide", None, None)
copysign = row("copysign", lambda x, y, o: _sign_change(x, y), None)
nextafter = row("nextafter", 1, None)


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

exp = row("exp", lambda x, o: o, monotone=True)
expm1 = row("expm1", lambda x, o: add(o, 1.0), monotone=True)
log = row("log", lambda x, o: divide(1.0, x))
log1p = row("log1p", lambda x, o: divide(1.0, add(x, 1.0)))
log2 = row("log2", lambda x, o: divide(1.0 / ln(2), x))
log10 = row("log10", lambda x, o: divide(1.0 / ln(10), x))
logaddexp = row("logaddexp", lambda x, y, o: exp(subtract(x, o)), lambda x, y, o: exp(subtract(y, o)))

# -- trigonometric and hyperbolic ----------------------------------------------------------------------

sin = row("sin", lambda x, o: cos(x))
cos = row("cos", lambda x, o: negative(sin(x)))
tan = row("tan", lambda x, o: add(multiply(o, o), 1.0))
asin = row("asin", lambda x, o: divide(1.0, sqrt(subtract(1.0, multiply(x, x)))))
acos = row("acos", lambda x, o: divide(-1.0, sqrt(subtract(1.0, multiply(x, x)))))
atan = row("atan", lambda x, o: divide(1.0, add(multiply(x, x), 1.0)), monotone=True)
atan2 = row(
    "atan2",
    lambda x, y, o: divide(y, add(multiply(x, x), multiply(y, y))),
    lambda x, y, o: negative(divide(x, add(multiply(x, x), multiply(y, y)))),
)
sinh = row("sinh", lambda x, o: cosh(x), monotone=True)
cosh = row("cosh", lambda x, o: sinh(x))
tanh = row("tanh", lambda x, o: subtract(1.0, multiply(o, o)), monotone=True)
asinh = row("asinh", lambda x, o: divide(1.0, sqrt(add(multiply(x, x), 1.0))), monotone=True)
acosh = row("acosh", lambda x, o: divide(1.0, sqrt(subtract(multiply(x, x), 1.0))))
atanh = row("atanh", lambda x, o: divide(1.0, subtract(1.0, multiply(x, x))))

# -- comparison, logic, bits, rounding: constant wherever they have a derivative -------------------------

equal = row("equal", None, None)
not_equal = row("not_equal", None, None)
less = row("less", None, None)
less_equal = row("less_equal", None, None)
greater = row("greater", None, None)
greater_equal = row("greater_equal", None, None)
logical_and = row("logical_and", None, None)
logical_or = row("logical_or", None, None)
logical_xor = row("logical_xor", None, None)
logical_not = row("logical_not", None)
bitwise_and = row("bitwise_and", None, None)
bitwise_or = row("bitwise_or", None, None)
bitwise_xor = row("bitwise_xor", None, None)
bitwise_invert = row("bitwise_invert", None)
bitwise_left_shift = row("bitwise_left_shift", None, None)
bitwise_right_shift = row("bitwise_right_shift", None, None)
isfinite = row("isfinite", None)
isinf = row("isinf", None)
isnan = row("isnan", None)
signbit = row("signbit", None)
sign = row("sign", None, monotone=True)
ceil = row("ceil", None, monotone=True)
floor = row("floor", None, monotone=True)
trunc = row("trunc", None, monotone=True)
round = row("round", None, monotone=True)

# -- choices -------------------------------------------------------------------------------------------


def _first(x: Any, y: Any, better: Row) -> Any:
    # 1 where the first is chosen, one half where both are equal.
    half = multiply(0.5, astype_like(equal(x, y), x, y))
    return add(astype_like(better(x, y), x, y), half)


def astype_like(mask: Tensor, x: Any, y: Any) -> Tensor:
    """Return a mask as 0 and 1 in the dtype of two operands."""
    return astype(mask, dtype=np.result_type(*(v.dtype if isinstance(v, Tensor) else v for v in (x, y))))


maximum = row("maximum", lambda x, y, o: _first(x, y, greater), lambda x, y, o: _first(y, x, greater))
minimum = row("minimum", lambda x, y, o: _first(x, y, less), lambda x, y, o: _first(y, x, less))
where = row(
    "where",
    None,
    lambda c, x, y, o: astype(c, dtype=o.dtype),
    lambda c, x, y, o: subtract(1.0, astype(c, dtype=o.dtype)),
)


def _astype(x: Tensor, *, dtype: np.dtype) -> Tensor:
    return elementwise("astype", lambda a: _cast(a, dtype), (x,))


def _cast(array: Any, dtype: np.dtype) -> Any:
    if not is_torch(array):
        return array.astype(dtype)
    import torch

    return array.to(getattr(torch, str(dtype)))


def _astype_vjp(ct: Tensor, out: Tensor, x: Tensor, *, dtype: np.dtype) -> tuple[Tensor | None, ...]:
    return (astype(ct, dtype=x.dtype) if x.dtype.kind not in "biu" else None,)


def _astype_jvp(tangents: Any, out: Tensor, x: Tensor, *, dtype: np.dtype) -> Tensor | None:
    return astype(tangents[0], dtype=dtype) if dtype.kind not in "biu" else None


astype = Row("astype", _astype, _astype_vjp, _astype_jvp)


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


# -- complex numbers -----------------------------------------------------------------------------------


def _part(name: str, back: Callable[[Tensor, Tensor], Tensor]) -> Row:
    # Linear over the real numbers, so pending sums pass and the tangent map is the function itself.
    plain = kernel_of(name)

    def kernel(array: Any) -> Any:
        if is_torch(array) and not array.is_complex():
            return array.new_zeros(array.shape) if name == "imag" else array
        return plain(array)

    def vjp(ct: Tensor, out: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        return (back(ct, x),)

    return Row(name, lambda x: elementwise(name, kernel, (x,), "joint"), vjp, linear=True)


conj = _part("conj", lambda ct, x: conj(ct))
real = _part("real", lambda ct, x: astype(ct, dtype=x.dtype))
imag = _part(
    "imag", lambda ct, x: multiply(astype(ct, dtype=x.dtype), -1j) if x.dtype.kind == "c" else multiply(ct, 0.0)
)


# -- activations ---------------------------------------------------------------------------------------

relu = row(
    "relu",
    lambda x, o: astype(greater(x, 0.0), dtype=o.dtype),
    kernel=lambda a: kernel_of("maximum")(a, a.new_zeros(()) if is_torch(a) else a.dtype.type(0)),
    monotone=True,
)


def sigmoid(x: Any) -> Tensor:
    """Return 1 / (1 + exp(-x)), without overflow."""
    return multiply(0.5, add(tanh(multiply(0.5, x)), 1.0))


def silu(x: Any) -> Tensor:
    """Return x sigmoid(x)."""
    return multiply(x, sigmoid(x))


def softplus(x: Any) -> Tensor:
    """Return log(1 + exp(x)), without overflow."""
    return logaddexp(x, 0.0)


def gelu(x: Any) -> Tensor:
    """Return the Gaussian error linear unit in its tanh form."""
    inner = multiply(root(2 / pi), add(x, multiply(0.044715, multiply(x, multiply(x, x)))))
    return multiply(multiply(0.5, x), add(tanh(inner), 1.0))


def clip(x: Any, min: Any = None, max: Any = None) -> Any:
    """Return x limited to [min, max]."""
    out = x if min is None else maximum(x, min)
    return out if max is None else minimum(out, max)
