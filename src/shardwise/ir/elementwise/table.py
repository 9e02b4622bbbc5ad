"""Elementwise ops, one row each: what an op of arith, math, index or tosa makes of arrays or scalars.

The same rows serve scalars, whole tensors, and the bodies of structured ops, where one array stands for the values
that a scalar takes over all iterations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.dialects.arith import CMPF_COMPARISON_OPERATIONS, CMPI_COMPARISON_OPERATIONS
from xdsl.ir import Operation

from shardwise.errors import ProgramError
from shardwise.ir.elementwise.scalars import (
    BINARY,
    FLOATS,
    INTEGERS,
    UNARY,
    Function,
    Unary,
    as_signed,
    as_unsigned,
    leading_zeros,
    trailing_zeros,
)
from shardwise.ir.elementwise.tosas import TOSA
from shardwise.ir.module.program import integer, op_text, property_of
from shardwise.ir.module.values import dtype_of
from shardwise.prim.arithmetic.elementwise import power

# Where the second operand makes the result undefined: zero divisors, shifts by more than there are bits.
_DIVIDE = ("divs", "divu", "floordivs", "ceildivs", "ceildivu", "rems", "remu")
_SHIFT = ("shl", "shrs", "shru")


def _guard(name: str) -> Function:
    function = INTEGERS[name]

    def check_and_compute(op: Operation, a: Any, b: Any) -> Any:
        if name in _DIVIDE and not np.all(b):
            raise ProgramError(f"{op_text(op)} divides by zero.")
        if name in _SHIFT and np.any(as_unsigned(b) >= 8 * b.dtype.itemsize):
            raise ProgramError(f"{op_text(op)} shifts by as many bits as there are, or more.")
        return function(a, b)

    return check_and_compute


# -- comparisons ---------------------------------------------------------------------------------------

_COMPARISONS: dict[str, Function] = {
    "eq": np.equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lt": np.less,
    "le": np.less_equal,
    "ne": np.not_equal,
}


def _cmpi(op: Operation, a: Any, b: Any) -> Any:
    name = _predicate(op, CMPI_COMPARISON_OPERATIONS)
    if name in ("eq", "ne"):
        return _COMPARISONS[name](a, b)
    compare, convert = _COMPARISONS[name[1:]], as_unsigned if name[0] == "u" else as_signed
    return compare(convert(a), convert(b))


def _cmpf(op: Operation, a: Any, b: Any) -> Any:
    name = _predicate(op, CMPF_COMPARISON_OPERATIONS)
    is_ordered = ~(np.isnan(a) | np.isnan(b))
    if name in ("false", "true"):
        return np.full(np.broadcast_shapes(np.shape(a), np.shape(b)), name == "true")
    if name in ("ord", "uno"):
        return is_ordered if name == "ord" else ~is_ordered
    holds = _COMPARISONS[name[1:]](a, b)
    return holds & is_ordered if name[0] == "o" else holds | ~is_ordered


def _predicate(op: Operation, names: Sequence[str]) -> str:
    attribute = property_of(op, "pred" if op.name == "index.cmp" else "predicate")
    try:
        return names[integer(attribute)]
    except (AttributeError, TypeError):  # spelt as a word, as the index dialect does
        return str(getattr(attribute, "data", attribute))


# -- conversions ---------------------------------------------------------------------------------------


def _truncate(op: Operation, x: Any) -> Any:
    return x & 1 == 1 if dtype_of(op.results[0].type).kind == "b" else x


def _bitcast(op: Operation, x: Any) -> Any:
    return x.view(dtype_of(op.results[0].type))


CONVERSIONS: dict[str, Unary] = {
    "arith.index_cast": as_signed,
    "arith.index_castui": as_unsigned,
    "arith.extsi": as_signed,
    "arith.extui": as_unsigned,
    "arith.extf": lambda x: x,
    "arith.truncf": lambda x: x,
    "arith.sitofp": as_signed,
    "arith.uitofp": as_unsigned,
    "arith.fptosi": np.trunc,
    "arith.fptoui": lambda x: np.trunc(x).astype("uint64"),
    "index.casts": as_signed,
    "index.castu": as_unsigned,
}

# -- the table -----------------------------------------------------------------------------------------

BITS: dict[str, Unary] = {
    "ctlz": leading_zeros,
    "cttz": trailing_zeros,
    "ctpop": lambda x: np.bitwise_count(as_unsigned(x)),
}


def _ignore_op(function: Function) -> Function:
    def compute(op: Operation, *operands: Any) -> Any:
        return function(*operands)

    return compute


def _multiply_and_add(a: Any, b: Any, c: Any) -> Any:
    return a * b + c


_ARITH_NAMES = {name: f"{name[:-1]}{name[-1]}i" if name[-1] in "su" else f"{name}i" for name in INTEGERS}

# By op name, a function of the op and its operands.
ELEMENTWISE: dict[str, Function] = {
    **{f"arith.{spelt}": _guard(name) for name, spelt in _ARITH_NAMES.items()},
    **{f"index.{name}": _guard(name) for name in INTEGERS},
    **{f"arith.{name}": _ignore_op(function) for name, function in FLOATS.items()},
    **{f"math.{name}": _ignore_op(function) for name, function in (UNARY | BINARY | BITS).items()},
    **{name: _ignore_op(function) for name, function in CONVERSIONS.items()},
    "math.absi": _ignore_op(np.abs),
    "math.ipowi": _ignore_op(power),
    "math.fma": _ignore_op(_multiply_and_add),
    "arith.cmpi": _cmpi,
    "index.cmp": _cmpi,
    "arith.cmpf": _cmpf,
    "arith.select": _ignore_op(np.where),
    "arith.trunci": _truncate,
    "arith.bitcast": _bitcast,
    **TOSA,
}


def apply_elementwise(op: Operation, operands: list[Any], dtype: np.dtype) -> Any:
    """Return what an op of the table makes of its operands, in the dtype of its result."""
    function = ELEMENTWISE[op.name]
    if any(x.dtype.kind == "V" for x in operands) and op.name != "arith.bitcast":
        # NumPy lacks some functions for bfloat16; rounding once from float32 is what hardware does too.
        operands = [x.astype("float32") if x.dtype.kind == "V" else x for x in operands]
    return np.asarray(function(op, *operands)).astype(dtype, copy=False)[()]
