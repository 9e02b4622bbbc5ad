"""The `index` dialect, which xDSL lacks: arithmetic on sizes and positions."""

from typing import Self

from xdsl.dialects.arith import CMPI_COMPARISON_OPERATIONS
from xdsl.dialects.builtin import BoolAttr, IndexType, IntegerAttr, IntegerType, i1
from xdsl.ir import Attribute, Data, Dialect, Operation, SpacedOpaqueSyntaxAttribute, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    base,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer
from xdsl.traits import Pure

from shardwise.ir.dialects.merge import make_operation
from shardwise.ir.shard.assembly import read_int

BINARY = "add sub mul divs divu ceildivs ceildivu floordivs rems remu maxs maxu mins minu shl shrs shru and or xor"


class IndexBinary(IRDLOperation):
    """Combines two indices, `%2 = index.add %0, %1`."""

    assembly_format = "$lhs `,` $rhs attr-dict"

    lhs = operand_def(IndexType)
    rhs = operand_def(IndexType)
    result = result_def(IndexType)
    traits = traits_def(Pure())

    def __init__(self, lhs: SSAValue | Operation, rhs: SSAValue | Operation) -> None:
        super().__init__(operands=[lhs, rhs], result_types=[IndexType()])


@irdl_op_definition
class ConstantOp(IRDLOperation):
    """A constant index, `%0 = index.constant 4`."""

    name = "index.constant"

    value = prop_def(IntegerAttr.constr(base(IndexType)))
    result = result_def(IndexType)
    traits = traits_def(Pure())

    def __init__(self, value: int) -> None:
        super().__init__(properties={"value": IntegerAttr(value, IndexType())}, result_types=[IndexType()])

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        """Read the number."""
        attributes = parser.parse_optional_attr_dict()
        op = cls(read_int(parser))
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        """Print the number."""
        printer.print_op_attributes(self.attributes)
        printer.print_string(f" {self.value.value.data}")


@irdl_op_definition
class BoolConstantOp(IRDLOperation):
    """A constant truth value, `%0 = index.bool.constant true`."""

    name = "index.bool.constant"

    value = prop_def(BoolAttr)
    result = result_def(i1)
    traits = traits_def(Pure())

    def __init__(self, value: bool) -> None:
        super().__init__(properties={"value": IntegerAttr.from_bool(value)}, result_types=[i1])

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        """Read `true` or `false`."""
        attributes = parser.parse_optional_attr_dict()
        op = cls(parser.parse_boolean())
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        """Print `true` or `false`."""
        printer.print_op_attributes(self.attributes)
        printer.print_string(" true" if self.value.value.data else " false")


@irdl_op_definition
class SizeOfOp(IRDLOperation):
    """The number of bits of an index, `%0 = index.sizeof`."""

    name = "index.sizeof"
    assembly_format = "attr-dict"

    result = result_def(IndexType)
    traits = traits_def(Pure())

    def __init__(self) -> None:
        super().__init__(result_types=[IndexType()])


class IndexCast(IRDLOperation):
    """Converts between indices and ints, signed or unsigned, `%1 = index.casts %0 : index to i32`."""

    assembly_format = "$input attr-dict `:` type($input) `to` type($result)"

    input = operand_def(base(IndexType) | base(IntegerType))
    result = result_def(base(IndexType) | base(IntegerType))
    traits = traits_def(Pure())

    def __init__(self, input: SSAValue | Operation, target: Attribute) -> None:
        super().__init__(operands=[input], result_types=[target])


@irdl_attr_definition
class IndexPredicateAttr(Data[str], SpacedOpaqueSyntaxAttribute):
    """A comparison, `#index<cmp_predicate slt>`."""

    name = "index.cmp_predicate"

    @classmethod
    def read(cls, parser: AttrParser) -> str:
        """Read the word."""
        for word in CMPI_COMPARISON_OPERATIONS:
            if parser.parse_optional_keyword(word):
                return word
        parser.raise_error(f"expected one of {', '.join(CMPI_COMPARISON_OPERATIONS)}")

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> str:
        """Read the word."""
        return cls.read(parser)

    def print_parameter(self, printer: Printer) -> None:
        """Print the word."""
        printer.print_string(self.data)


@irdl_op_definition
class CmpOp(IRDLOperation):
    """Compares two indices, `%2 = index.cmp slt(%0, %1)`; the predicate is one of arith.cmpi's."""

    name = "index.cmp"

    lhs = operand_def(IndexType)
    rhs = operand_def(IndexType)
    pred = prop_def(IndexPredicateAttr)
    result = result_def(i1)
    traits = traits_def(Pure())

    def __init__(self, predicate: "str | IndexPredicateAttr", lhs: SSAValue | Operation, rhs: SSAValue | Operation):
        if isinstance(predicate, str):
            predicate = IndexPredicateAttr(predicate)
        super().__init__(operands=[lhs, rhs], result_types=[i1], properties={"pred": predicate})

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        """Read `slt(%0, %1)`."""
        predicate = IndexPredicateAttr(IndexPredicateAttr.read(parser))
        operands = parser.parse_comma_separated_list(parser.Delimiter.PAREN, lambda: parser.parse_operand(IndexType()))
        if len(operands) != 2:
            parser.raise_error(f"expected two indices, got {len(operands)}")
        op = cls(predicate, *operands)
        op.attributes |= parser.parse_optional_attr_dict()
        return op

    def print(self, printer: Printer) -> None:
        """Print `slt(%0, %1)`."""
        printer.print_string(f" {self.pred.data}")
        with printer.in_parens():
            printer.print_list(self.operands, printer.print_ssa_value)
        printer.print_op_attributes(self.attributes)


Index = Dialect(
    "index",
    [
        *(make_operation(IndexBinary, f"index.{name}") for name in BINARY.split()),
        *(make_operation(IndexCast, f"index.{name}") for name in ("casts", "castu")),
        ConstantOp,
        BoolConstantOp,
        SizeOfOp,
        CmpOp,
    ],
    [IndexPredicateAttr],
)
"""The dialect as xDSL knows it."""
