"""Ops around `shard` as LLVM 19 writes them, where newer tools write them otherwise."""

from xdsl.dialects.builtin import (
    AffineMapAttr,
    AnyFloat,
    ArrayAttr,
    FloatAttr,
    IntegerAttr,
    f32,
    i8,
    i64,
)
from xdsl.dialects.linalg.abstract_ops import NamedOperation
from xdsl.dialects.linalg.ops import GenericOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import Rewriter

from shardwise.errors import ConversionError
from shardwise.ir.constants import constant_attribute, number_of
from shardwise.ir.dialects.linalg_elementwise import ElementwiseOp
from shardwise.ir.dialects.linalg_ops import Product
from shardwise.ir.dialects.tosa_ops import ClampOp, ConstOp, MatMulOp, MulOp, NegateOp
from shardwise.ir.place import place_of
from shardwise.ir.types import element_type

# Kept bit by bit: a limit beyond the range of i64 is the range's end.
LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1


def refuse(op: Operation, why: str) -> ConversionError:
    """Return the error for an op that LLVM 19 cannot say."""
    return ConversionError(f"{place_of(op)}: {op.name}: {why}\n  print the module in the `shard` dialect instead.")


def to_llvm19(op: Operation) -> None:
    """Change an op in place, or put another in its place, so that LLVM 19 reads it."""
    if isinstance(op, ElementwiseOp) or (isinstance(op, Product) and _has_own_maps(op)):
        _generalize(op)
    elif isinstance(op, MulOp):
        _shift(op)
    elif isinstance(op, NegateOp | MatMulOp):
        _drop_zero_points(op)
    elif isinstance(op, ClampOp):
        _limit(op)
    elif isinstance(op, ConstOp) and op.values is not None:
        op.value, op.values = op.values, None
    elif op.name == "tosa.intdiv":
        object.__setattr__(op, "name", "tosa.int_div")


def _has_own_maps(op: Product) -> bool:
    return op.get_indexing_maps() != op.get_irdl_definition().properties["indexing_maps"].default_value


def _generalize(op: NamedOperation) -> None:
    maps: ArrayAttr[AffineMapAttr] = op.get_indexing_maps()
    body = op.body.clone()
    kinds = [result.type for result in op.results]
    new = GenericOp(op.inputs, op.outputs, body, maps, op.get_iterator_types(), kinds)
    for old, result in zip(op.results, new.results, strict=True):
        result.name_hint = old.name_hint or None
    Rewriter.replace_op(op, new)


def constant_of(value: SSAValue) -> float | int | None:
    """Return the one number that a constant tensor holds, if it is one."""
    op = value.owner
    if not isinstance(op, Operation) or op.name not in ("tosa.const", "arith.constant"):
        return None
    return number_of(constant_attribute(op))


def _shift(op: MulOp) -> None:
    if op.shift is not None:
        return
    shift = constant_of(op.shift_operand[0]) if op.shift_operand else 0
    if not isinstance(shift, int):
        raise refuse(op, "LLVM 19 has the shift as an attribute, and this one is not a constant.")
    op.operands = op.operands[:2]
    op.shift = IntegerAttr(shift, i8)


def _drop_zero_points(op: NegateOp | MatMulOp) -> None:
    if any(constant_of(point) != 0 for point in op.zero_points):
        raise refuse(op, "LLVM 19 has no zero points as operands, and these are not constants of zero.")
    op.operands = op.operands[: len(op.operands) - len(op.zero_points)]


def _limit(op: ClampOp) -> None:
    low, high = op.min_val, op.max_val
    if low is None or high is None:
        return
    mode = op.nan_mode
    if mode is not None and "PROPAGATE" not in str(mode):
        raise refuse(op, "LLVM 19 has no nan_mode.")
    numbers = [_number(op, limit) for limit in (low, high)]
    op.min_int, op.max_int = (IntegerAttr(_whole(number), i64) for number in numbers)
    kind: Attribute = element_type(op.input)
    floats = kind if isinstance(kind, AnyFloat) else f32
    op.min_fp, op.max_fp = (FloatAttr(float(number), floats) for number in numbers)
    op.min_val = op.max_val = op.nan_mode = None


def _number(op: Operation, limit: Attribute) -> float | int:
    if not isinstance(limit, FloatAttr | IntegerAttr):
        raise refuse(op, f"a limit is a number, got {limit}.")
    return limit.value.data


def _whole(number: float | int) -> int:
    if number != number:
        return 0
    return int(max(LOWEST, min(HIGHEST, number)))
