"""Sources: tensors that every device can make by itself, in whatever layout they are needed."""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import DYNAMIC_INDEX, DenseIntOrFPElementsAttr, FloatAttr, IntegerAttr, TensorType
from xdsl.ir import Operation, SSAValue

from shardwise.ir.constants import constant_attribute, number_of, splat
from shardwise.ir.passes.layouts import local_sizes
from shardwise.ir.passes.resharding import slice_shard
from shardwise.ir.passes.writer import Writer
from shardwise.ir.types import element_type, is_static, shape_of
from shardwise.layout.layout import Layout

CONSTANTS = ("arith.constant", "tosa.const")


def is_source(op: Operation) -> bool:
    """Whether an op makes a tensor of nothing, of one number, or of a constant."""
    known = op.name in ("tensor.empty", "tensor.splat", *CONSTANTS)
    return known and bool(op.results) and is_static(op.results[0].type)


def splat_value(value: SSAValue) -> float | int | None:
    """Return the number that a constant, splat or filled tensor has everywhere; None if it is not known."""
    op = value.owner
    if not isinstance(op, Operation):
        return None
    if op.name in CONSTANTS:
        attribute = constant_attribute(op)
        if isinstance(attribute, DenseIntOrFPElementsAttr):
            return number_of(attribute)
        return attribute.value.data if isinstance(attribute, IntegerAttr | FloatAttr) else None
    if op.name in ("tensor.splat", "linalg.fill", "shard.shard", "tensor.cast"):
        return splat_value(op.operands[0])
    return None


def make_source(w: Writer, op: Operation, operands: list[SSAValue], layout: Layout) -> SSAValue:
    """Return what a device holds of a source in a layout."""
    shape, element = shape_of(op.results[0]), element_type(op.results[0])
    if op.name == "tensor.empty":
        return w.empty(w.sizes(layout, shape), element)
    if op.name == "tensor.splat":
        return w.splat(operands[0], w.sizes(layout, shape), element)
    attribute, sizes = constant_attribute(op), local_sizes(layout, shape)
    number = number_of(attribute) if layout.sharded_axes else None
    if number is not None:
        if DYNAMIC_INDEX in sizes:
            return w.splat(w.scalar(number, element), w.sizes(layout, shape), element)
        return w.add(arith.ConstantOp(splat(TensorType(element, sizes), number)))
    whole = w.add(op.clone())
    return slice_shard(w, whole, Layout.replicated(layout.mesh, len(shape)), layout, shape)
