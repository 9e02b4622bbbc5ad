"""Formulas: elementwise primitives as ops on scalars, from the text that stands in the table of primitives."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import IntegerType
from xdsl.ir import SSAValue

from shardwise.caches import cache
from shardwise.errors import ProgramError
from shardwise.ir.tracing.emitter import Emitter, element_of
from shardwise.prim.primitive import Formula

# What a function or an operator is, of floats and of ints; ints that are whole already need no rounding.
OPS: dict[str, tuple[Any, Any]] = {
    "Add": (arith.AddfOp, arith.AddiOp),
    "Sub": (arith.SubfOp, arith.SubiOp),
    "Mult": (arith.MulfOp, arith.MuliOp),
    "Div": (arith.DivfOp, None),
    "Pow": (math.PowFOp, math.IPowIOp),
    "BitAnd": (None, arith.AndIOp),
    "BitOr": (None, arith.OrIOp),
    "BitXor": (None, arith.XOrIOp),
    "LShift": (None, arith.ShLIOp),
    "RShift": (None, arith.ShRSIOp),
    "max": (arith.MaximumfOp, arith.MaxSIOp),
    "min": (arith.MinimumfOp, arith.MinSIOp),
    "abs": (math.AbsFOp, math.AbsIOp),
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
}
ROUNDINGS: dict[str, Any] = {
    "ceil": math.CeilOp,
    "floor": math.FloorOp,
    "trunc": math.TruncOp,
    "roundeven": math.RoundEvenOp,
}
COMPARISONS = {"Eq": "eq", "NotEq": "ne", "Lt": "lt", "LtE": "le", "Gt": "gt", "GtE": "ge"}
BOOL = np.dtype(bool)


@cache(entries=256)
def parse(text: str) -> ast.expr:
    """Return a formula as a tree.

    >>> ast.unparse(parse("x + 1"))
    'x + 1'
    """
    return ast.parse(text, mode="eval").body


def compares(formula: Formula) -> bool:
    """Whether what a formula gives is true or false, whatever its operands are."""
    return isinstance(parse(formula.text), ast.Compare)


def is_single(formula: Formula) -> bool:
    """Whether a formula is one op of its operands as they are, which tensors may have too.

    >>> [is_single(Formula(text)) for text in ("x * y", "exp(x)", "x * x + y", "abs(x)")]
    [True, True, False, False]
    """
    tree = parse(formula.text)
    if isinstance(tree, ast.BinOp):
        parts, name = [tree.left, tree.right], type(tree.op).__name__
    elif isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
        parts, name = tree.args, tree.func.id
    else:
        return False
    return name in OPS and name != "abs" and [getattr(part, "id", "") for part in parts] == ["x", "y"][: len(parts)]


def compute(e: Emitter, formula: Formula, operands: Sequence[SSAValue], dtype: np.dtype) -> SSAValue:
    """Return the value of a formula, given its operands in one dtype."""
    text = formula.ints if formula.ints is not None and not _is_float(dtype) else formula.text
    return _value(e, parse(text), dict(zip("xy", operands, strict=False)), dtype)


def _value(e: Emitter, tree: ast.expr, names: dict[str, SSAValue], dtype: np.dtype) -> SSAValue:
    def value(part: ast.expr) -> SSAValue:
        return _value(e, part, names, dtype)

    match tree:
        case ast.Name(id="inf"):
            return e.scalar(inf, dtype)
        case ast.Name(id=name):
            return names[name]
        case ast.Constant(value=bool() as truth):
            return e.scalar(truth, BOOL)
        case ast.Constant(value=number):
            return e.scalar(number, dtype)
        case ast.UnaryOp(op=ast.UAdd(), operand=part):
            return value(part)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return e.scalar(-number, dtype)
        case ast.UnaryOp(op=ast.USub(), operand=part) if _is_float(dtype):
            return e.add(arith.NegfOp(value(part)))
        case ast.UnaryOp(op=ast.USub(), operand=part):
            return e.add(arith.SubiOp(e.scalar(0, dtype), value(part)))
        case ast.BinOp(left=left, op=ast.FloorDiv(), right=right) if _is_float(dtype):
            return e.add(math.FloorOp(e.add(arith.DivfOp(value(left), value(right)))))
        case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
            return e.add(arith.FloorDivSIOp(value(left), value(right)))
        case ast.BinOp(left=left, op=op, right=right):
            return e.add(_op(type(op).__name__, dtype)(value(left), value(right)))
        case ast.Compare(left=left, ops=[how], comparators=[right]):
            return compare(e, value(left), value(right), dtype, COMPARISONS[type(how).__name__])
        case ast.Call(func=ast.Name(id="where"), args=parts):
            return e.add(arith.SelectOp(*map(value, parts)))
        case ast.Call(func=ast.Name(id=name), args=[part]) if name in ROUNDINGS:
            return e.add(ROUNDINGS[name](value(part))) if _is_float(dtype) else value(part)
        case ast.Call(func=ast.Name(id=name), args=parts):
            return e.add(_op(name, dtype)(*map(value, parts)))
    raise AssertionError(f"a formula has no {ast.unparse(tree)}")


def _op(name: str, dtype: np.dtype) -> Any:
    floats, ints = OPS[name]
    op = floats if _is_float(dtype) else ints
    if op is None:
        raise ProgramError(f"{(floats or ints).name} has no counterpart for {dtype}.")
    return op


def _is_float(dtype: np.dtype) -> bool:
    return dtype.kind not in "iub"


def compare(e: Emitter, a: SSAValue, b: SSAValue, dtype: np.dtype, how: str) -> SSAValue:
    """Return whether two scalars compare as eq, ne, lt, le, gt or ge says; NaN is unequal to all."""
    if _is_float(dtype):
        return e.add(arith.CmpfOp(a, b, "une" if how == "ne" else f"o{how}"))
    if how in ("eq", "ne"):
        return e.add(arith.CmpiOp(a, b, how))
    return e.add(arith.CmpiOp(a, b, f"{'u' if dtype.kind == 'b' else 's'}{how}"))


# -- conversion ------------------------------------------------------------------------------------------


def convert(e: Emitter, x: SSAValue, src: np.dtype, dst: np.dtype) -> SSAValue:
    """Return a scalar in another dtype."""
    if src == dst:
        return x
    to = element_of(dst)
    if dst.kind == "b":
        return compare(e, x, e.scalar(0, src), src, "ne")
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
