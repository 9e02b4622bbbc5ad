"""Elementwise primitives as scalar arithmetic, one row each: what the body of a structured op does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, log
from typing import Any

import numpy as np
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import IntegerType
from xdsl.ir import Operation, SSAValue

from shardwise.errors import ProgramError
from shardwise.ir.tracing.emitter import Emitter, element_of

# Of an emitter, the operands in one dtype, and that dtype.
Body = Callable[[Emitter, Sequence[SSAValue], np.dtype], SSAValue]


def _is_float(dtype: np.dtype) -> bool:
    return dtype.kind not in "iub"


def _one(floats: Any, ints: Any) -> Body:
    # One op, by the kind of number.
    def body(e: Emitter, xs: Sequence[SSAValue], dtype: np.dtype) -> SSAValue:
        op = floats if _is_float(dtype) else ints
        if op is None:
            raise ProgramError(f"{(floats or ints).name} has no counterpart for {dtype}.")
        return e.add(op(*xs))

    return body


def _rounding(op: type[Operation]) -> Body:
    return lambda e, xs, dtype: e.add(op(*xs)) if _is_float(dtype) else xs[0]


def compared(e: Emitter, a: SSAValue, b: SSAValue, dtype: np.dtype, how: str) -> SSAValue:
    """Return whether two scalars compare as eq, ne, lt, le, gt or ge says; NaN is unequal to all."""
    if _is_float(dtype):
        return e.add(arith.CmpfOp(a, b, "une" if how == "ne" else f"o{how}"))
    if how in ("eq", "ne"):
        return e.add(arith.CmpiOp(a, b, how))
    return e.add(arith.CmpiOp(a, b, f"{'u' if dtype.kind == 'b' else 's'}{how}"))


def _comparison(how: str) -> Body:
    return lambda e, xs, dtype: compared(e, xs[0], xs[1], dtype, how)


# -- arithmetic ------------------------------------------------------------------------------------------


def _negative(e: Emitter, xs: Sequence[SSAValue], dtype: np.dtype) -> SSAValue:
    if _is_float(dtype):
        return e.add(arith.NegfOp(xs[0]))
    return e.add(arith.SubiOp(e.scalar(0, dtype), xs[0]))


def _absolute(e: Emitter, x: SSAValue, dtype: np.dtype) -> SSAValue:
    return e.add(math.AbsFOp(x) if _is_float(dtype) else math.AbsIOp(x))


def _quotient(e: Emitter, xs: Sequence[SSAValue], dtype: np.dtype) -> SSAValue:
    # Rounded down.
    if _is_float(dtype):
        return e.add(math.FloorOp(e.add(arith.DivfOp(xs[0], xs[1]))))
    return e.add(arith.FloorDivSIOp(xs[0], xs[1]))


def _remainder(e: Emitter, xs: Sequence[SSAValue], dtype: np.dtype) -> SSAValue:
    down = _quotient(e, xs, dtype)
    if _is_float(dtype):
        return e.add(arith.SubfOp(xs[0], e.add(arith.MulfOp(down, xs[1]))))
    return e.add(arith.SubiOp(xs[0], e.add(arith.MuliOp(down, xs[1]))))


def _hypot(e: Emitter, xs: Sequence[SSAValue], dtype: np.dtype) -> SSAValue:
    a, b = (e.add(arith.MulfOp(x, x)) for x in xs)
    return e.add(math.SqrtOp(e.add(arith.AddfOp(a, b))))


def _logaddexp(e: Emitter, xs: Sequence[SSAValue], dtype: np.dtype) -> SSAValue:
    # max + log1p(exp(-|x - y|)); where they are equal, also infinite, x + log(2).
    x, y = xs
    top = e.add(arith.MaximumfOp(x, y))
    gap = e.add(math.AbsFOp(e.add(arith.SubfOp(x, y))))
    tail = e.add(math.Log1pOp(e.add(math.ExpOp(e.add(arith.NegfOp(gap))))))
    equal = e.add(arith.AddfOp(x, e.scalar(log(2), dtype)))
    return e.add(arith.SelectOp(compared(e, x, y, dtype, "eq"), equal, e.add(arith.AddfOp(top, tail))))


def _sign(e: Emitter, xs: Sequence[SSAValue], dtype: np.dtype) -> SSAValue:
    x, zero = xs[0], e.scalar(0, dtype)
    below = e.add(arith.SelectOp(compared(e, x, zero, dtype, "lt"), e.scalar(-1, dtype), x))
    return e.add(arith.SelectOp(compared(e, x, zero, dtype, "gt"), e.scalar(1, dtype), below))


def _relu(e: Emitter, xs: Sequence[SSAValue], dtype: np.dtype) -> SSAValue:
    return e.add((arith.MaximumfOp if _is_float(dtype) else arith.MaxSIOp)(xs[0], e.scalar(0, dtype)))


def _reciprocal(e: Emitter, xs: Sequence[SSAValue], dtype: np.dtype) -> SSAValue:
    return e.add(arith.DivfOp(e.scalar(1, dtype), xs[0]))


def _square(e: Emitter, xs: Sequence[SSAValue], dtype: np.dtype) -> SSAValue:
    return e.add((arith.MulfOp if _is_float(dtype) else arith.MuliOp)(xs[0], xs[0]))


# -- questions -------------------------------------------------------------------------------------------


def _size_test(how: str) -> Body:
    def body(e: Emitter, xs: Sequence[SSAValue], dtype: np.dtype) -> SSAValue:
        if not _is_float(dtype):
            return e.scalar(how == "lt", np.dtype(bool))
        return compared(e, _absolute(e, xs[0], dtype), e.scalar(inf, dtype), dtype, how)

    return body


def _isnan(e: Emitter, xs: Sequence[SSAValue], dtype: np.dtype) -> SSAValue:
    if not _is_float(dtype):
        return e.scalar(False, np.dtype(bool))
    return e.add(arith.CmpfOp(xs[0], xs[0], "uno"))


def _signbit(e: Emitter, xs: Sequence[SSAValue], dtype: np.dtype) -> SSAValue:
    one = e.add(math.CopySignOp(e.scalar(1, dtype), xs[0]))
    return compared(e, one, e.scalar(0, dtype), dtype, "lt")


def _invert(e: Emitter, xs: Sequence[SSAValue], dtype: np.dtype) -> SSAValue:
    return e.add(arith.XOrIOp(xs[0], e.scalar(True if dtype.kind == "b" else -1, dtype)))


# -- conversion ------------------------------------------------------------------------------------------


def converted(e: Emitter, x: SSAValue, src: np.dtype, dst: np.dtype) -> SSAValue:
    """Return a scalar in another dtype."""
    if src == dst:
        return x
    to = element_of(dst)
    if dst.kind == "b":
        return compared(e, x, e.scalar(0, src), src, "ne")
    if _is_float(src) and _is_float(dst):
        return _between_floats(e, x, src, dst)
    if _is_float(src):
        return e.add(arith.FPToSIOp(x, to))
    if _is_float(dst):
        return e.add((arith.UIToFPOp if src.kind == "b" else arith.SIToFPOp)(x, to))
    if src.kind == "b":
        return e.add(arith.ExtUIOp(x, to))
    assert isinstance(to, IntegerType)
    return e.add((arith.ExtSIOp if dst.itemsize > src.itemsize else arith.TruncIOp)(x, to))


def _between_floats(e: Emitter, x: SSAValue, src: np.dtype, dst: np.dtype) -> SSAValue:
    if dst.itemsize == src.itemsize:  # float16 and bfloat16
        wide = np.dtype("float32")
        return _between_floats(e, _between_floats(e, x, src, wide), wide, dst)
    return e.add((arith.ExtFOp if dst.itemsize > src.itemsize else arith.TruncFOp)(x, element_of(dst)))


# Rows that are one op, for floats and for ints, which tensors may have too.
SINGLE: dict[str, tuple[Any, Any]] = {
    "add": (arith.AddfOp, arith.AddiOp),
    "subtract": (arith.SubfOp, arith.SubiOp),
    "multiply": (arith.MulfOp, arith.MuliOp),
    "divide": (arith.DivfOp, None),
    "pow": (math.PowFOp, math.IPowIOp),
    "sqrt": (math.SqrtOp, None),
    "copysign": (math.CopySignOp, None),
    "exp": (math.ExpOp, None),
    "expm1": (math.ExpM1Op, None),
    "log": (math.LogOp, None),
    "log1p": (math.Log1pOp, None),
    "log2": (math.Log2Op, None),
    "log10": (math.Log10Op, None),
    "sin": (math.SinOp, None),
    "cos": (math.CosOp, None),
    "tan": (math.TanOp, None),
    "asin": (math.AsinOp, None),
    "acos": (math.AcosOp, None),
    "atan": (math.AtanOp, None),
    "atan2": (math.Atan2Op, None),
    "sinh": (math.SinhOp, None),
    "cosh": (math.CoshOp, None),
    "tanh": (math.TanhOp, None),
    "asinh": (math.AsinhOp, None),
    "acosh": (math.AcoshOp, None),
    "atanh": (math.AtanhOp, None),
    "logical_and": (None, arith.AndIOp),
    "logical_or": (None, arith.OrIOp),
    "logical_xor": (None, arith.XOrIOp),
    "bitwise_and": (None, arith.AndIOp),
    "bitwise_or": (None, arith.OrIOp),
    "bitwise_xor": (None, arith.XOrIOp),
    "bitwise_left_shift": (None, arith.ShLIOp),
    "bitwise_right_shift": (None, arith.ShRSIOp),
    "maximum": (arith.MaximumfOp, arith.MaxSIOp),
    "minimum": (arith.MinimumfOp, arith.MinSIOp),
}
BODIES: dict[str, Body] = {
    **{name: _one(*ops) for name, ops in SINGLE.items()},
    "negative": _negative,
    "positive": lambda e, xs, dtype: xs[0],
    "reciprocal": _reciprocal,
    "square": _square,
    "abs": lambda e, xs, dtype: _absolute(e, xs[0], dtype),
    "hypot": _hypot,
    "remainder": _remainder,
    "floor_divide": _quotient,
    "logaddexp": _logaddexp,
    "equal": _comparison("eq"),
    "not_equal": _comparison("ne"),
    "less": _comparison("lt"),
    "less_equal": _comparison("le"),
    "greater": _comparison("gt"),
    "greater_equal": _comparison("ge"),
    "logical_not": _invert,
    "bitwise_invert": _invert,
    "isfinite": _size_test("lt"),
    "isinf": _size_test("eq"),
    "isnan": _isnan,
    "signbit": _signbit,
    "sign": _sign,
    "ceil": _rounding(math.CeilOp),
    "floor": _rounding(math.FloorOp),
    "trunc": _rounding(math.TruncOp),
    "round": _rounding(math.RoundEvenOp),
    "relu": _relu,
}

QUESTIONS = (
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "isfinite",
    "isinf",
    "isnan",
    "signbit",
)
LOGICAL = ("logical_and", "logical_or", "logical_xor", "logical_not")
