"""Elementwise methods of tensors: each is the function of the same name."""

from __future__ import annotations

from typing import Any

from shardwise.prim.fixed import Fixed
from shardwise.prim.operators import Operators, function_named


class ElementwiseMethods(Operators):
    """What can be done to the elements of a tensor with methods.

    >>> from shardwise import asarray
    >>> asarray([1.0, 4.0]).sqrt().maximum(1.5).numpy()
    array([1.5, 2. ])
    >>> x = asarray(0.5)
    >>> [round(f().item(), 3) for f in (x.acos, x.asin, x.atan, x.asinh, x.atanh, x.reciprocal().acosh, x.tan)]
    [1.047, 0.524, 0.464, 0.481, 0.549, 1.317, 0.546]
    >>> [round(f().item(), 3) for f in (x.sinh, x.cosh, x.expm1, x.log1p, x.log2, x.log10, x.softplus, x.trunc)]
    [0.521, 1.128, 0.649, 0.405, -1.0, -0.301, 0.974, 0.0]
    >>> [f().item() for f in (x.isfinite, x.isinf, x.isnan, x.signbit, x.logical_not)], x.real.item(), x.imag.item()
    ([True, False, False, False, False], 0.5, 0.0)
    >>> [round(f(2.0).item(), 3) for f in (x.minimum, x.atan2, x.copysign, x.hypot, x.logaddexp, x.nextafter)]
    [0.5, 0.245, 0.5, 2.062, 2.201, 0.5]
    >>> x.logical_and(True).item(), x.logical_or(False).item(), x.logical_xor(True).item()
    (True, True, False)
    """

    __slots__ = ()

    def abs(self) -> Any:
        """Return the absolute value, element by element."""
        return function_named("abs")(self)

    def acos(self) -> Any:
        """Return the inverse cosine, element by element."""
        return function_named("acos")(self)

    def acosh(self) -> Any:
        """Return the inverse hyperbolic cosine, element by element."""
        return function_named("acosh")(self)

    def asin(self) -> Any:
        """Return the inverse sine, element by element."""
        return function_named("asin")(self)

    def asinh(self) -> Any:
        """Return the inverse hyperbolic sine, element by element."""
        return function_named("asinh")(self)

    def atan(self) -> Any:
        """Return the inverse tangent, element by element."""
        return function_named("atan")(self)

    def atanh(self) -> Any:
        """Return the inverse hyperbolic tangent, element by element."""
        return function_named("atanh")(self)

    def ceil(self) -> Any:
        """Return the elements rounded up, element by element."""
        return function_named("ceil")(self)

    def conj(self) -> Any:
        """Return the complex conjugate, element by element."""
        return function_named("conj")(self)

    def cos(self) -> Any:
        """Return the cosine, element by element."""
        return function_named("cos")(self)

    def cosh(self) -> Any:
        """Return the hyperbolic cosine, element by element."""
        return function_named("cosh")(self)

    def exp(self) -> Any:
        """Return the exponential, element by element."""
        return function_named("exp")(self)

    def expm1(self) -> Any:
        """Return exp(x) - 1, element by element."""
        return function_named("expm1")(self)

    def floor(self) -> Any:
        """Return the elements rounded down, element by element."""
        return function_named("floor")(self)

    def gelu(self) -> Any:
        """Return the Gaussian error linear unit, element by element."""
        return function_named("gelu")(self)

    def isfinite(self) -> Any:
        """Return whether it is finite, element by element."""
        return function_named("isfinite")(self)

    def isinf(self) -> Any:
        """Return whether it is infinite, element by element."""
        return function_named("isinf")(self)

    def isnan(self) -> Any:
        """Return whether it is not a number, element by element."""
        return function_named("isnan")(self)

    def log(self) -> Any:
        """Return the natural logarithm, element by element."""
        return function_named("log")(self)

    def log10(self) -> Any:
        """Return the logarithm to base 10, element by element."""
        return function_named("log10")(self)

    def log1p(self) -> Any:
        """Return log(1 + x), element by element."""
        return function_named("log1p")(self)

    def log2(self) -> Any:
        """Return the logarithm to base 2, element by element."""
        return function_named("log2")(self)

    def logical_not(self) -> Any:
        """Return whether it is false, element by element."""
        return function_named("logical_not")(self)

    def reciprocal(self) -> Any:
        """Return one over it, element by element."""
        return function_named("reciprocal")(self)

    def relu(self) -> Any:
        """Return the positive part, element by element."""
        return function_named("relu")(self)

    def round(self) -> Any:
        """Return the elements rounded to even, element by element."""
        return function_named("round")(self)

    def sigmoid(self) -> Any:
        """Return 1 / (1 + exp(-x)), element by element."""
        return function_named("sigmoid")(self)

    def sign(self) -> Any:
        """Return the sign, element by element."""
        return function_named("sign")(self)

    def signbit(self) -> Any:
        """Return whether its sign bit is set, element by element."""
        return function_named("signbit")(self)

    def silu(self) -> Any:
        """Return x sigmoid(x), element by element."""
        return function_named("silu")(self)

    def sin(self) -> Any:
        """Return the sine, element by element."""
        return function_named("sin")(self)

    def sinh(self) -> Any:
        """Return the hyperbolic sine, element by element."""
        return function_named("sinh")(self)

    def softplus(self) -> Any:
        """Return log(1 + exp(x)), element by element."""
        return function_named("softplus")(self)

    def sqrt(self) -> Any:
        """Return the square root, element by element."""
        return function_named("sqrt")(self)

    def square(self) -> Any:
        """Return the square, element by element."""
        return function_named("square")(self)

    def tan(self) -> Any:
        """Return the tangent, element by element."""
        return function_named("tan")(self)

    def tanh(self) -> Any:
        """Return the hyperbolic tangent, element by element."""
        return function_named("tanh")(self)

    def trunc(self) -> Any:
        """Return the elements rounded towards zero, element by element."""
        return function_named("trunc")(self)

    @Fixed
    def real(self) -> Any:
        """The real part of each element."""
        return function_named("real")(self)

    @Fixed
    def imag(self) -> Any:
        """The imaginary part of each element."""
        return function_named("imag")(self)

    # -- of two --------------------------------------------------------------------------------------

    def atan2(self, other: Any) -> Any:
        """Return, element by element, the angle of the point (other, x)."""
        return function_named("atan2")(self, other)

    def copysign(self, other: Any) -> Any:
        """Return, element by element, x with the sign of the other."""
        return function_named("copysign")(self, other)

    def hypot(self, other: Any) -> Any:
        """Return, element by element, the length of the hypotenuse."""
        return function_named("hypot")(self, other)

    def logaddexp(self, other: Any) -> Any:
        """Return, element by element, log(exp(x) + exp(other))."""
        return function_named("logaddexp")(self, other)

    def logical_and(self, other: Any) -> Any:
        """Return, element by element, whether both are true."""
        return function_named("logical_and")(self, other)

    def logical_or(self, other: Any) -> Any:
        """Return, element by element, whether one is true."""
        return function_named("logical_or")(self, other)

    def logical_xor(self, other: Any) -> Any:
        """Return, element by element, whether exactly one is true."""
        return function_named("logical_xor")(self, other)

    def maximum(self, other: Any) -> Any:
        """Return, element by element, the larger."""
        return function_named("maximum")(self, other)

    def minimum(self, other: Any) -> Any:
        """Return, element by element, the smaller."""
        return function_named("minimum")(self, other)

    def nextafter(self, other: Any) -> Any:
        """Return, element by element, the next number towards the other."""
        return function_named("nextafter")(self, other)

    def clip(self, min: Any = None, max: Any = None) -> Any:
        """Return the elements limited to [min, max]."""
        return function_named("clip")(self, min, max)
