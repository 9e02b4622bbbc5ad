"""Formulas: the arithmetic of scalars that stands in the table of primitives, as ops."""

from __future__ import annotations

import ast
from math import inf
from typing import Any, NamedTuple

import numpy as np
from xdsl.dialects import arith, linalg, math, tensor
from xdsl.dialects.builtin import IndexType
from xdsl.ir import SSAValue

from shardwise.caches import cache
from shardwise.errors import ProgramError
from shardwise.ir.tracing.emitter import Emitter, element_of
from shardwise.ir.types import is_integer
from shardwise.prim.forms import BOOL, INDEX

MATH: dict[str, Any] = {op.name.removeprefix("math."): op for op in math.Math.operations}
OF_FLOATS = (
    "sqrt copysign exp expm1 log log1p log2 log10 sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh"
)

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
    **{name: (MATH[name], None) for name in OF_FLOATS.split()},
}
ROUNDINGS: dict[str, Any] = {name: MATH[name] for name in ("ceil", "floor", "trunc", "roundeven")}
COMPARISONS = {"Eq": "eq", "NotEq": "ne", "Lt": "lt", "LtE": "le", "Gt": "gt", "GtE": "ge"}


@cache(entries=256)
def parse(text: str) -> ast.expr:
    """Return a formula as a tree.

    >>> ast.unparse(parse("x + 1"))
    'x + 1'
    """
    return ast.parse(text, mode="eval").body


def is_single(text: str) -> bool:
    """Whether a formula is one op of its operands as they are, which tensors may have too.

    >>> [is_single(text) for text in ("x * y", "exp(x)", "x * x + y", "abs(x)")]
    [True, True, False, False]
    """
    tree = parse(text)
    if isinstance(tree, ast.BinOp):
        parts, name = [tree.left, tree.right], type(tree.op).__name__
    elif isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
        parts, name = tree.args, tree.func.id
    else:
        return False
    return name in OPS and name != "abs" and [getattr(part, "id", "") for part in parts] == ["x", "y"][: len(parts)]


class Scalar(NamedTuple):
    """A scalar that the compiler computes with, and its dtype."""

    value: SSAValue
    dtype: np.dtype


class Scope(NamedTuple):
    """What a formula computes with: scalars by name, loops by name, and a tensor whose elements it picks."""

    scalars: dict[str, Scalar]
    loops: tuple[str, ...] = ()
    table: Scalar | None = None


def compute(e: Emitter, text: str, scope: Scope, dtype: np.dtype) -> Scalar:
    """Return the value of a formula; numbers in it that meet nothing else are of a dtype."""
    return _value(e, parse(text), scope, dtype)


def _value(e: Emitter, tree: ast.expr, scope: Scope, dtype: np.dtype) -> Scalar:
    def value(part: ast.expr) -> Scalar:
        return _value(e, part, scope, dtype)

    def pair(left: ast.expr, right: ast.expr) -> tuple[SSAValue, SSAValue, np.dtype]:
        # A number takes the dtype of what it meets.
        if _is_number(left):
            y = value(right)
            return _value(e, left, scope, y.dtype).value, y.value, y.dtype
        x = value(left)
        return x.value, _value(e, right, scope, x.dtype).value, x.dtype

    match tree:
        case ast.Name(id="inf"):
            return Scalar(e.scalar(inf, dtype), dtype)
        case ast.Name(id=name) if name in scope.scalars:
            return scope.scalars[name]
        case ast.Name(id=name) if name in scope.loops:
            place = e.add(linalg.ops.IndexOp(scope.loops.index(name)))
            return Scalar(e.add(arith.IndexCastOp(place, element_of(INDEX))), INDEX)
        case ast.Constant(value=bool() as truth):
            return Scalar(e.scalar(truth, BOOL), BOOL)
        case ast.Constant(value=number):
            return Scalar(e.scalar(number, dtype), dtype)
        case ast.UnaryOp(op=ast.UAdd(), operand=part):
            return value(part)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return Scalar(e.scalar(-number, dtype), dtype)
        case ast.UnaryOp(op=ast.USub(), operand=part):
            x = value(part)
            zero = None if _is_float(x.dtype) else e.scalar(0, x.dtype)
            return Scalar(e.add(arith.NegfOp(x.value) if zero is None else arith.SubiOp(zero, x.value)), x.dtype)
        case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
            x, y, kind = pair(left, right)
            if _is_float(kind):
                return Scalar(e.add(math.FloorOp(e.add(arith.DivfOp(x, y)))), kind)
            return Scalar(e.add(arith.FloorDivSIOp(x, y)), kind)
        case ast.BinOp(left=left, op=op, right=right):
            x, y, kind = pair(left, right)
            return Scalar(e.add(op_of(type(op).__name__, kind)(x, y)), kind)
        case ast.Compare(left=left, ops=[how], comparators=[right]):
            x, y, kind = pair(left, right)
            return Scalar(compare(e, x, y, kind, COMPARISONS[type(how).__name__]), BOOL)
        case ast.Call(func=ast.Name(id="where"), args=[truth, left, right]):
            chosen, (x, y, kind) = value(truth), pair(left, right)
            return Scalar(e.add(arith.SelectOp(chosen.value, x, y)), kind)
        case ast.Call(func=ast.Name(id=name), args=[part]) if name in ROUNDINGS:
            x = value(part)
            return Scalar(e.add(ROUNDINGS[name](x.value)), x.dtype) if _is_float(x.dtype) else x
        case ast.Call(func=ast.Name(id=name), args=[part]):
            x = value(part)
            return Scalar(e.add(op_of(name, x.dtype)(x.value)), x.dtype)
        case ast.Call(func=ast.Name(id=name), args=[left, right]):
            x, y, kind = pair(left, right)
            return Scalar(e.add(op_of(name, kind)(x, y)), kind)
        case ast.Subscript(value=ast.Name(id="table"), slice=ast.Tuple(elts=parts)) if scope.table is not None:
            places = [e.add(arith.IndexCastOp(_value(e, part, scope, INDEX).value, IndexType())) for part in parts]
            return Scalar(
                e.add(tensor.ExtractOp(scope.table.value, places, element_of(scope.table.dtype))), scope.table.dtype
            )
        case _:
            raise AssertionError(f"a formula has no {ast.unparse(tree)}")


def _is_number(tree: ast.expr) -> bool:
    names = {part.id for part in ast.walk(tree) if isinstance(part, ast.Name)}
    return not names - {"inf"} and not isinstance(tree, ast.Call)


def op_of(name: str, dtype: np.dtype) -> Any:
    """Return the op of a name in a dtype: the sum and the product of what is true or false are or and and."""
    floats, ints = OPS[{"Add": "BitOr", "Mult": "BitAnd"}.get(name, name) if dtype.kind == "b" else name]
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
    assert is_integer(to)
    return e.add((arith.ExtSIOp if dst.itemsize > src.itemsize else arith.TruncIOp)(x, to))


def _between_floats(e: Emitter, x: SSAValue, src: np.dtype, dst: np.dtype) -> SSAValue:
    if dst.itemsize == src.itemsize:  # float16 and bfloat16
        wide = np.dtype("float32")
        return _between_floats(e, _between_floats(e, x, src, wide), wide, dst)
    return e.add((arith.ExtFOp if dst.itemsize > src.itemsize else arith.TruncFOp)(x, element_of(dst)))
