"""Elementwise ops of tosa, which broadcast as NumPy does."""

from __future__ import annotations

from typing import Any

import numpy as np
from xdsl.ir import Operation

from shardwise.errors import ProgramError
from shardwise.ir.elementwise.scalars import (
    INTEGERS,
    UNARY,
    Function,
    Unary,
    leading_zeros,
    on_unsigned,
    sigmoid,
    truncating_divide,
)
from shardwise.ir.module.program import op_text, property_of
from shardwise.ir.module.values import dtype_of


def _first(count: int, function: Function) -> Function:
    # Later operands are zero points and shifts, which are zero for floats.
    def check_and_compute(op: Operation, *operands: Any) -> Any:
        if any(np.any(extra) for extra in operands[count:]):
            raise ProgramError(f"{op_text(op)} has a zero point or shift other than 0, which is not supported.")
        return function(*operands[:count])

    return check_and_compute


def _clamp(op: Operation, x: Any) -> Any:
    old = "fp" if x.dtype.kind not in "iu" else "int"  # how LLVM 19 spells the limits
    names = ("min_val", "max_val") if property_of(op, "min_val") is not None else (f"min_{old}", f"max_{old}")
    low, high = (property_of(op, name).value.data for name in names)
    return np.clip(x, x.dtype.type(low), x.dtype.type(high))


def _cast(op: Operation, x: Any) -> Any:
    to = dtype_of(op.results[0].type)
    if to.kind == "b":
        return x != 0
    return np.rint(x) if to.kind in "iu" and x.dtype.kind not in "iub" else x


def _shift_right(op: Operation, x: Any, by: Any) -> Any:
    shifted = x >> by
    rounded = property_of(op, "round")
    if rounded is None or not rounded.value.data:
        return shifted
    return shifted + np.where(by > 0, (x >> np.maximum(by - 1, 0)) & 1, 0)


def _product(op: Operation, a: Any, b: Any, *shift: Any) -> Any:
    old = property_of(op, "shift")  # an attribute in LLVM 19
    if any(np.any(s) for s in shift) or (old is not None and old.value.data):
        raise ProgramError(f"{op_text(op)} shifts its product, which is not supported.")
    wide = dtype_of(op.results[0].type)  # products of short ints may be wider
    return INTEGERS["mul"](a.astype(wide), b.astype(wide))


def _quotient(op: Operation, a: Any, b: Any) -> Any:
    if not np.all(b):
        raise ProgramError(f"{op_text(op)} divides by zero.")
    return truncating_divide(a, b)


UNARY_OPS: dict[str, Unary] = {
    **{name: UNARY[name] for name in ("ceil", "cos", "erf", "exp", "floor", "log", "rsqrt", "sin", "tanh")},
    "abs": np.abs,
    "bitwise_not": np.invert,
    "identity": lambda x: x,
    "logical_not": np.logical_not,
    "negate": np.negative,
    "reciprocal": lambda x: 1 / x,
    "sigmoid": sigmoid,
}
# Those that NumPy has by the same name.
SHARED = (
    "bitwise_and bitwise_or bitwise_xor equal greater greater_equal logical_and logical_or logical_xor maximum minimum"
)
BINARY_OPS: dict[str, Function] = {
    **{name: getattr(np, name) for name in SHARED.split()},
    "add": INTEGERS["add"],
    "sub": INTEGERS["sub"],
    "pow": np.power,
    "logical_left_shift": np.left_shift,
    "logical_right_shift": on_unsigned(np.right_shift),
}


TOSA: dict[str, Function] = {
    **{f"tosa.{name}": _first(1, function) for name, function in UNARY_OPS.items()},
    **{f"tosa.{name}": _first(2, function) for name, function in BINARY_OPS.items()},
    "tosa.arithmetic_right_shift": _shift_right,
    "tosa.cast": _cast,
    "tosa.clamp": _clamp,
    "tosa.clz": _first(1, leading_zeros),
    "tosa.int_div": _quotient,
    "tosa.intdiv": _quotient,
    "tosa.mul": _product,
    "tosa.select": _first(3, np.where),
}
