"""Ops that see a tensor in another shape, or with its dims in another order; each is appended as `add` does."""

from collections.abc import Callable, Sequence
from typing import Any

from xdsl.dialects import linalg, tensor
from xdsl.dialects.builtin import DYNAMIC_INDEX, ArrayAttr, DenseArrayBase, IntegerAttr, TensorType, i64
from xdsl.ir import Operation, SSAValue

from shardwise.ir.types import element_type, shape_of

Add = Callable[[Operation], SSAValue]
Groups = Sequence[Sequence[int]]  # of dims that are next to one another


def collapse(add: Add, x: SSAValue, groups: Groups, shape: Sequence[int]) -> SSAValue:
    """Return a tensor with each group of its dims as one."""
    kind, grouped = TensorType(element_type(x), shape), {"reassociation": _groups_attribute(groups)}
    return add(tensor.CollapseShapeOp.build(operands=[x], result_types=[kind], properties=grouped))


def expand(add: Add, x: SSAValue, groups: Groups, shape: Sequence[int | SSAValue]) -> SSAValue:
    """Return a tensor with each of its dims as a group."""
    known, values = _split(shape)
    kind = TensorType(element_type(x), known)
    return add(tensor.ExpandShapeOp(x, values, _groups_attribute(groups), known, kind))


def transpose(add: Add, x: SSAValue, order: Sequence[int], sizes: Sequence[int | SSAValue] | None = None) -> SSAValue:
    """Return a tensor with its dims in another order; `sizes` are those of the tensor, if its type leaves some open."""
    if list(order) == sorted(order):
        return x
    shape = shape_of(x) if sizes is None else sizes
    known, values = _split([shape[k] for k in order])
    into = add(tensor.EmptyOp(values, TensorType(element_type(x), known)))
    return add(linalg.ops.TransposeOp(x, into, DenseArrayBase.from_list(i64, list(order)), into.type))


def _split(shape: Sequence[int | SSAValue]) -> tuple[list[int], list[SSAValue]]:
    # Sizes with those that are values left open, and these values.
    known = [n if isinstance(n, int) else DYNAMIC_INDEX for n in shape]
    return known, [n for n in shape if isinstance(n, SSAValue)]


def _groups_attribute(groups: Groups) -> ArrayAttr[Any]:
    return ArrayAttr([ArrayAttr([IntegerAttr(k, i64) for k in group]) for group in groups])
