"""Ops element by element: what a kernel makes of tensors and numbers, and how such a primitive is declared."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any, TypedDict, Unpack, cast

import numpy as np

from shardwise.caches import cache
from shardwise.engine.arrays import is_foreign, is_of_torch
from shardwise.prim.arithmetic.broadcast import broadcast, unbroadcast
from shardwise.prim.arithmetic.uses import values_used
from shardwise.prim.dispatch.decision import apply
from shardwise.prim.face import public, rename
from shardwise.prim.forms import Formula
from shardwise.prim.kernel import alike
from shardwise.prim.primitive import Cotangents, Lowering, Primitive
from shardwise.prim.rule import Linear, elementwise_rule, is_integer
from shardwise.prim.tensor import Tensor, asarray, together
from shardwise.prim.work import Work

# A derivative by an operand is a function of the operands and the result, a number, or zero.
OfOne = Callable[[Tensor, Tensor], Any] | float | None
OfTwo = Callable[[Any, Any, Tensor], Any] | float | None
Derivative = OfOne | OfTwo | Callable[[Any, Any, Any, Tensor], Any]
NUMBERS = (float, int, complex, bool)


def kernel_of(name: str) -> Callable[..., Any]:
    """Return the function of this name in whatever library the arrays belong to."""
    ours = getattr(np, name)

    def kernel(*arrays: Any, **memory: Any) -> Any:
        for array in arrays:
            if type(array) is not np.ndarray and is_of_torch(array.__class__):
                promoting, plain = _of_torch(name)
                x, y = arrays[0], arrays[-1]
                alike = len(arrays) == 2 and type(x) is type(y) and x.dtype is y.dtype
                return plain(x, y, **memory) if alike else promoting(*arrays, **memory)
        return ours(*arrays, **memory)

    return kernel


@cache(entries=256)
def _of_torch(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    # A function that brings its operands to one dtype, and the one below it for two that have one.
    from array_api_compat import torch

    function = getattr(torch, name)
    is_promoting = getattr(getattr(function, "__code__", None), "co_qualname", "").startswith("_two_arg")
    return function, function.__wrapped__ if is_promoting else function


def work_by_element(
    name: str,
    kernel: Callable[..., Any],
    operands: tuple[Any, ...],
    linear: Linear = None,
    monotone: bool = False,
    takes_out: bool = False,
) -> Work:
    """Return the work of a kernel of tensors and numbers, element by element; plain numbers are computed at once."""
    tensors = [x for x in operands if isinstance(x, Tensor)]
    if not tensors:  # a derivative may come to a plain number
        return kernel(*operands).item()
    if len(tensors) == len(operands):
        # A divisor may hold a zero, which nobody looks for: what it divides is resolved.
        rule = elementwise_rule(tuple([x.shape for x in tensors]), None if linear == "first" else linear, monotone)
        return Work(name, kernel, rule, tensors, (), None, True, takes_out)
    # A number added to a pending sum would be added once per contribution, so only factors and divisors pass.
    passes = linear == "each" or (linear == "first" and isinstance(operands[0], Tensor))
    if passes and tensors[0].layout.partial:
        passes = all(_passes(x, tensors[0].dtype, linear) for x in operands if not isinstance(x, Tensor))
    rule = elementwise_rule(tuple([x.shape for x in tensors]), "first" if passes else None)
    dtype = next((x.dtype for x in tensors if is_foreign(x.dtype)), tensors[0].dtype)
    return Work(name, _fill_in(kernel, operands, dtype), rule, tensors, takes_lead=True, takes_out=takes_out)


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


def _fill_in(kernel: Callable[..., Any], operands: tuple[Any, ...], dtype: np.dtype) -> Callable[..., Any]:
    # The kernel of the operands that are tensors, given those that are numbers.
    if is_foreign(dtype):

        def odd(*arrays: Any, **memory: Any) -> Any:
            left = iter(arrays)
            return kernel(*alike([next(left) if isinstance(x, Tensor) else x for x in operands], dtype), **memory)

        return odd
    if len(operands) == 2:
        x, y = operands

        def first(a: Any, **memory: Any) -> Any:
            return kernel(a, y, **memory)

        def second(a: Any, **memory: Any) -> Any:
            return kernel(x, a, **memory)

        return first if isinstance(x, Tensor) else second

    def call(*arrays: Any, **memory: Any) -> Any:
        left = iter(arrays)
        return kernel(*[next(left) if isinstance(x, Tensor) else x for x in operands], **memory)

    return call


# -- declarations ----------------------------------------------------------------------------------------


class How(TypedDict, total=False):
    """What else a declaration says: see `_declare` and `pointwise`."""

    kernel: Callable[[Any], Any] | Callable[[Any, Any], Any]
    operator: str
    attribute: bool
    method: bool
    linear: Linear
    monotone: bool
    check: Callable[..., None]
    back: Callable[[Tensor, Tensor], Tensor]
    lower: str | Lowering | None


def unary(name: str, what: str, example: str, derivative: OfOne = None, **how: Unpack[How]) -> Primitive:
    """Declare an elementwise primitive of one operand, its function, and its method, attribute or operator.

    `what` ends the sentence "Return, element by element, ..."; the example is operands, an arrow and the result. What
    the compiler has under the same name or operator needs no `lower`.
    """
    sign = how.get("operator")
    how.setdefault("lower", f"{sign}x" if sign in ("-", "+") else f"{name}(x)")

    def function(x: Any, /) -> Tensor:
        return row(x if isinstance(x, Tensor) else asarray(x))

    row = _declare(function, name, what, example, (derivative,), **how)
    return row


def binary(
    name: str, what: str, example: str, first: OfTwo = None, second: OfTwo = None, **how: Unpack[How]
) -> Primitive:
    """Declare an elementwise primitive of two operands, which broadcast."""
    sign = how.get("operator")
    how.setdefault("lower", f"x {sign} y" if sign else f"{name}(x, y)")

    def function(x1: Any, x2: Any, /) -> Tensor:
        if isinstance(x1, Tensor) and (isinstance(x2, Tensor) or type(x2) in NUMBERS):
            return row(x1, x2)
        return row(*numbers_or_tensors(x1, x2))

    row = _declare(function, name, what, example, (first, second), **how)
    return row


def _declare(
    function: Any,
    name: str,
    what: str,
    example: str,
    derivatives: tuple[Derivative, ...],
    *,
    kernel: Callable[..., Any] | None = None,
    operator: str | None = None,
    attribute: bool = False,
    method: bool = False,
    **how: Any,
) -> Primitive:
    assert isinstance(function, FunctionType)
    function = rename(function, name)  # what tracebacks and errors say
    function.__doc__ = describe(name, what, example)
    method = method or (operator is None and not attribute)
    function = public(method=method, attribute=attribute, operator=operator)(function)
    takes_out = kernel is None and isinstance(getattr(np, name), np.ufunc)
    return pointwise(name, kernel or kernel_of(name), derivatives, function=function, takes_out=takes_out, **how)


def describe(name: str, what: str, example: str) -> str:
    """Return the documentation of an elementwise function.

    >>> describe("add", "the sum", "[1, 2], 3 -> [4, 5]").splitlines()[0]
    'Return, element by element, the sum.'
    """
    operands, result = example.split(" -> ")
    rounded = ".round(4)" if "." in result and "e" not in result else ""
    return f"Return, element by element, {what}.\n\n>>> {name}({operands}).numpy(){rounded}.tolist()\n{result}"


def numbers_or_tensors(*data: Any) -> list[Any]:
    """Return tensors and plain numbers as they are, and anything array-like as a tensor; one at least is a tensor.

    >>> numbers_or_tensors([1.0], 2.0)
    [Tensor([1.], float64[1] on cpu:0), 2.0]
    """
    plain = [isinstance(x, int | float | complex) and not isinstance(x, np.generic) for x in data]
    ready = iter(together(*(x for x, number in zip(data, plain, strict=True) if not number)))
    out = [x if number else next(ready) for x, number in zip(data, plain, strict=True)]
    return [asarray(out[0]), *out[1:]] if all(plain) else out


def pointwise(
    name: str,
    kernel: Callable[..., Any],
    derivatives: tuple[Derivative, ...],
    *,
    linear: Linear = None,
    monotone: bool = False,
    check: Callable[..., None] | None = None,
    back: Callable[[Tensor, Tensor], Tensor] | None = None,
    lower: str | Lowering | None = None,
    function: Callable[..., Any] | None = None,
    takes_out: bool = False,
) -> Primitive:
    """Return the primitive of an elementwise op, with the derivative by each operand.

    `monotone` says that a pending max or min passes through. Functions that are not defined everywhere do not say it:
    a contribution outside their domain would become NaN and hide the others. `back(cotangent, x)` is the reverse
    derivative of an op that is linear over the real numbers, and so its own tangent map.
    """

    def work(*operands: Any) -> Work:
        if check is not None:
            check(*operands)
        return work_by_element(name, kernel, operands, linear, monotone, takes_out)

    def run(*operands: Any) -> Tensor:
        # As in `row_of_work`, with one call less: these are the ops whose calls count most.
        if check is not None:
            check(*operands)
        todo = work_by_element(name, kernel, operands, linear, monotone, takes_out)
        return apply(todo) if type(todo) is Work else cast(Tensor, todo)

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
                total = part if total is None else total + part
        if total is not None and total.shape != out.shape:
            return broadcast(total, layout=out.layout.resolved(), shape=out.shape)
        return total

    def needs(i: int, j: int, operands: tuple[Any, ...], params: dict[str, Any]) -> bool:
        derivative = derivatives[i]
        return callable(derivative) and j in values_used(derivative, tuple([isinstance(x, Tensor) for x in operands]))

    formula = Formula(lower) if isinstance(lower, str) else lower
    about: dict[str, Any] = {"lower": formula, "function": function, "effort": getattr(formula, "operations", 1)}
    if back is not None:

        def vjp_of_linear(ct: Tensor, out: Tensor, x: Tensor) -> Cotangents:
            return (back(ct, x),)

        return Primitive(name, run, vjp_of_linear, linear=True, work=work, **about)
    return Primitive(name, run, vjp, jvp, batch=batch_by_element, needs=needs, work=work, **about)


def batch_by_element(row: Primitive, lead: Any, mapped: Any, operands: Any, params: Any) -> Tensor:
    """Apply a primitive to operands with leading dims: what follows those broadcasts as it would without them."""
    ranks = [x.ndim - lead.count if m else x.ndim for x, m in zip(operands, mapped, strict=True) if hasattr(x, "ndim")]
    return row(*[lead.align(x, max(ranks)) if m else x for x, m in zip(operands, mapped, strict=True)], **params)


def _cotangent(ct: Tensor, derivative: Any, operands: tuple[Any, ...], out: Tensor, x: Tensor) -> Tensor:
    return as_in(unbroadcast(_times(ct, derivative, operands, out), x), x)


def as_in(ct: Tensor, x: Tensor) -> Tensor:
    """Return a cotangent as that of an operand: of a real one that met a complex one, the real part."""
    return ct.real if ct.dtype.kind == "c" and x.dtype.kind != "c" else ct


def _times(x: Tensor, derivative: Any, operands: tuple[Any, ...], out: Tensor) -> Tensor:
    if not callable(derivative):
        return x if derivative == 1 else -x if derivative == -1 else x * derivative
    return x * derivative(*operands, out)
