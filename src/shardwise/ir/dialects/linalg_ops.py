"""Products, reductions and the general op of `linalg`, read in every form that MLIR prints."""

from collections.abc import Sequence
from typing import Self, cast

from xdsl.builder import ImplicitBuilder
from xdsl.dialects import arith, linalg
from xdsl.dialects.builtin import (
    AffineMapAttr,
    AnyFloat,
    ArrayAttr,
    DenseArrayBase,
    StringAttr,
    i64,
)
from xdsl.dialects.linalg import ops
from xdsl.dialects.linalg.abstract_ops import NamedOperation
from xdsl.dialects.linalg.attrs import IteratorType, IteratorTypeAttr
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.irdl import irdl_op_definition, prop_def
from xdsl.parser import Parser
from xdsl.printer import Printer

from shardwise.ir.dialects.linalg_elementwise import BODIES, ELEMENTWISE, ElementwiseKindAttr
from shardwise.ir.dialects.linalg_text import (
    print_operands,
    print_results,
    read_maps,
    read_operands,
    read_results,
)
from shardwise.ir.dialects.merge import merge_dialect
from shardwise.ir.types import element_type, is_integer, is_list_of, is_tensor


def _widen(value: SSAValue, target: Attribute) -> SSAValue:
    """Return a value in the accumulator's type, as linalg converts what it multiplies."""
    if value.type == target:
        return value
    if is_integer(value.type) and is_integer(target):
        is_wider = target.width.data > value.type.width.data
        return (arith.ExtSIOp if is_wider else arith.TruncIOp)(value, target).result
    if is_integer(target):
        return arith.FPToSIOp(value, target).result
    floats = cast("AnyFloat", target)
    if is_integer(value.type):
        return arith.SIToFPOp(value, floats).result
    is_wider = floats.bitwidth > getattr(value.type, "bitwidth", 0)
    return (arith.ExtFOp if is_wider else arith.TruncFOp)(value, floats).result


def _product_body(inputs: Sequence[SSAValue], outputs: Sequence[SSAValue]) -> Region:
    if len(inputs) != 2 or len(outputs) != 1:
        raise ValueError(f"a product has two inputs and one output, got {len(inputs)} and {len(outputs)}")
    block = Block(arg_types=[element_type(value) for value in (*inputs, *outputs)])
    with ImplicitBuilder(block):
        x, y = (_widen(value, block.args[2].type) for value in block.args[:2])
        ops.YieldOp(BODIES["add"][1](block.args[2], BODIES["mul"][1](x, y)))
    return Region(block)


class Product(NamedOperation):
    """Sums products over one loop; the maps may transpose or broadcast the operands."""

    def get_default_indexing_maps(self) -> Sequence[AffineMap]:
        """Return the maps of the op."""
        return [entry.data for entry in self.get_indexing_maps()]

    @classmethod
    def get_hidden_region(cls, inputs: Sequence[SSAValue], outputs: Sequence[SSAValue]) -> Region:
        """Return the body: accumulate a product."""
        return _product_body(inputs, outputs)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        """Read the op; maps come before the operands or among the attributes."""
        maps = read_maps(parser)
        attributes = parser.parse_optional_attr_dict()
        inputs, outputs = read_operands(parser, "ins"), read_operands(parser, "outs")
        properties = {name: attributes.pop(name) for name in ("indexing_maps", "cast") if name in attributes}
        if maps is not None:
            properties["indexing_maps"] = maps
        return cls.build(
            operands=[inputs, outputs],
            result_types=[read_results(parser)],
            properties=properties,
            attributes=attributes,
            regions=[cls.get_hidden_region(inputs, outputs)],
        )

    def print(self, printer: Printer) -> None:
        """Print the op, with its maps where they are not the usual ones."""
        maps = self.get_indexing_maps()
        if maps != self.get_irdl_definition().properties["indexing_maps"].default_value:
            printer.print_string(" indexing_maps = ")
            printer.print_attribute(maps)
        extra = dict(self.attributes) | {name: self.properties[name] for name in ("cast",) if name in self.properties}
        extra.pop("linalg.memoized_indexing_maps", None)
        printer.print_op_attributes(extra)
        print_operands(printer, "ins", self.inputs)
        print_operands(printer, "outs", self.outputs)
        print_results(printer, self.res)


class MatmulOp(Product, ops.MatmulOp):
    """The product of two matrices, added to a third."""


@irdl_op_definition
class BatchMatmulOp(Product):
    """The products of two stacks of matrices, added to a third."""

    name = "linalg.batch_matmul"

    indexing_maps = prop_def(
        ArrayAttr[AffineMapAttr],
        default_value=ArrayAttr(
            [
                AffineMapAttr(AffineMap.from_callable(lambda b, i, _, k: (b, i, k))),
                AffineMapAttr(AffineMap.from_callable(lambda b, _, j, k: (b, k, j))),
                AffineMapAttr(AffineMap.from_callable(lambda b, i, j, _: (b, i, j))),
            ]
        ),
    )

    def __init__(self, inputs: Sequence[SSAValue], outputs: Sequence[SSAValue]) -> None:
        super().__init__(
            ins=inputs,
            outs=outputs,
            result_types=[[value.type for value in outputs if is_tensor(value.type)]],
            hidden_region=_product_body(inputs, outputs),
        )

    def get_indexing_maps(self) -> ArrayAttr[AffineMapAttr]:
        """Return the maps of the op."""
        return self.indexing_maps

    def get_iterator_types(self) -> ArrayAttr[IteratorTypeAttr]:
        """Return three parallel loops and the one that is summed."""
        return ArrayAttr([*[IteratorTypeAttr.parallel()] * 3, IteratorTypeAttr.reduction()])


class ReduceOp(ops.ReduceOp):
    """A reduction, also read in its short form `linalg.reduce { arith.addf } ins(...) outs(...) dimensions = [1]`."""

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        """Read either form."""
        if not parser.parse_optional_punctuation("{"):
            return super().parse(parser)
        name = parser.parse_identifier()
        payload = parser.ctx.get_optional_op(name)
        if payload is None:
            parser.raise_error(f"operation {name} is not registered")
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation("}")
        inputs, outputs = read_operands(parser, "ins"), read_operands(parser, "outs")
        if len(inputs) != 1 or len(outputs) != 1:
            parser.raise_error("linalg.reduce is read with one input and one output")
        parser.parse_keyword("dimensions")
        parser.parse_punctuation("=")
        dims = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
        block = Block(arg_types=[element_type(value) for value in (*inputs, *outputs)])
        combined = payload.create(
            operands=[block.args[1], block.args[0]], result_types=[block.args[1].type], attributes=attributes
        )
        block.add_ops([combined, ops.YieldOp(combined.results[0])])
        return cls(inputs[0], outputs[0], DenseArrayBase.from_list(i64, dims), Region(block))


class GenericOp(ops.GenericOp):
    """The general op, also read with several result types in brackets, which is how they are printed."""

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        """Read the op."""
        start = parser.pos
        attributes = parser.parse_optional_attr_dict()
        maps, loops = attributes.pop("indexing_maps", None), attributes.pop("iterator_types", None)
        doc, call = attributes.pop("doc", None), attributes.pop("library_call", None)
        if not is_list_of(maps, AffineMapAttr):
            parser.raise_error("linalg.generic needs indexing_maps, a list of affine maps", start)
        if not is_list_of(loops, Attribute):
            parser.raise_error("linalg.generic needs iterator_types, a list of names", start)
        if any(text is not None and not isinstance(text, StringAttr) for text in (doc, call)):
            parser.raise_error("doc and library_call are strings", start)
        inputs, outputs = read_operands(parser, "ins"), read_operands(parser, "outs")
        if parser.parse_optional_keyword("attrs"):
            parser.parse_punctuation("=")
            attributes |= parser.parse_optional_attr_dict()
        body = parser.parse_region()
        iterators = [_iterator(parser, entry, start) for entry in loops]
        op = cls(inputs, outputs, body, maps, iterators, read_results(parser))
        op.doc, op.library_call = doc, call
        op.attributes |= attributes
        return op


def _iterator(parser: Parser, entry: Attribute, position: int) -> IteratorTypeAttr:
    if isinstance(entry, IteratorTypeAttr):
        return entry
    if isinstance(entry, StringAttr) and entry.data in [str(kind) for kind in IteratorType]:
        return IteratorTypeAttr(IteratorType(entry.data))
    parser.raise_error(f"unknown iterator type {entry}; parallel, reduction and window are known", position)


Linalg = merge_dialect(
    linalg.Linalg,
    [*ELEMENTWISE, MatmulOp, BatchMatmulOp, ReduceOp, GenericOp],
    [ElementwiseKindAttr],
)
"""The dialect as xDSL knows it."""
