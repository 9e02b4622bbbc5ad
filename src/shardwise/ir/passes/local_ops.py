"""Local ops: what one device does of an op on whole tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import DenseArrayBase, i32
from xdsl.ir import Attribute, Operation, Region, SSAValue

from shardwise.engine.arrays import identity
from shardwise.ir.module.program import ints, ints_of, property_of
from shardwise.ir.module.values import dtype_of
from shardwise.ir.passes.candidates import Candidate
from shardwise.ir.passes.layouts import local_type, numbers
from shardwise.ir.passes.rules import OpRule
from shardwise.ir.passes.sources import splat_value
from shardwise.ir.passes.writer import Writer, split_known
from shardwise.ir.shard.attributes import ints_attribute
from shardwise.ir.types import element_type, shape_of
from shardwise.layout.layout import Layout
from shardwise.layout.placement import ReduceOp


def write_local(
    w: Writer,
    op: Operation,
    rule: OpRule,
    candidate: Candidate,
    operands: Sequence[SSAValue],
    captured: Mapping[SSAValue, SSAValue],
) -> list[SSAValue]:
    """Write what a device does of an op; return its results, which may be partial."""
    inputs = list(operands)
    for k, layout in enumerate(candidate.results):
        if layout.partial and rule.inits is not None:
            at = rule.inits + k
            inputs[at] = _start_value(w, op.operands[at], inputs[at], layout, rule.combine[k])
    pairs = zip(op.results, candidate.results, strict=True)
    kinds = [local_type(layout, shape_of(x), element_type(x)) for x, layout in pairs]
    properties: Properties = dict(op.properties)
    if op.name in SIZES:
        inputs, properties = _resize(w, op, candidate, inputs, properties)
    new = type(op).create(
        operands=inputs,
        result_types=kinds,
        properties=properties,
        attributes=dict(op.attributes),
        regions=[copy_region(region, captured) for region in op.regions],
        location=op.location,
    )
    w.block.add_op(new)
    return list(new.results)


def copy_region(region: Region, captured: Mapping[SSAValue, SSAValue]) -> Region:
    """Return a copy of a region that uses what a device has of the values from outside."""
    copy = Region()
    uses = {x for op in region.walk() for x in op.operands}
    region.clone_into(copy, 0, {x: captured[x] for x in uses if x in captured})
    return copy


def _start_value(w: Writer, old: SSAValue, init: SSAValue, layout: Layout, how: ReduceOp) -> SSAValue:
    # What is accumulated into counts once: on the first device along the axes of the loop, and nothing elsewhere.
    element = element_type(init)
    neutral = identity(how, dtype_of(element))
    number = splat_value(old)
    if number is not None and number == neutral:
        return init
    scalar = w.scalar(neutral, element)
    nothing = w.splat(scalar, w.sizes(layout.resolved(), shape_of(old)), element)
    position = w.position(layout.mesh, numbers(layout.partial))
    zero, place = w.value(0), w.value(position)
    first = w.early(("first", place), lambda: arith.CmpiOp(place, zero, "eq"))
    return w.add(arith.SelectOp(first, init, nothing))


# Ops that say the sizes of their result, or of a slice.
Properties = dict[str, Attribute]
SIZES = ("tensor.expand_shape", "tensor.extract_slice", "tensor.insert_slice")


def _resize(
    w: Writer, op: Operation, candidate: Candidate, operands: list[SSAValue], properties: Properties
) -> tuple[list[SSAValue], Properties]:
    segments = property_of(op, "operandSegmentSizes")
    if op.name == "tensor.expand_shape":
        static, dynamic = split_known(w.sizes(candidate.results[0], shape_of(op.results[0])))
        return [operands[0], *dynamic], {**properties, "static_output_shape": ints_attribute(static, "sizes")}
    # Dims that are taken whole have the size of the shard; offsets, where they are values, are of whole dims.
    at = 0 if op.name == "tensor.extract_slice" else 1
    layout, shape = candidate.operands[at], shape_of(op.operands[at])
    assert layout is not None
    old = ints_of(op, "static_sizes")
    static, new = split_known([w.size(layout, shape, k) if layout.dims[k].axes else n for k, n in enumerate(old)])
    counts = list(ints(segments))
    before = sum(counts[: at + 2])
    counts[at + 2] = len(new)
    return [*operands[:before], *new, *operands[before:]], {
        **properties,
        "static_sizes": ints_attribute(static, "sizes"),
        "operandSegmentSizes": DenseArrayBase.from_list(i32, counts),
    }
