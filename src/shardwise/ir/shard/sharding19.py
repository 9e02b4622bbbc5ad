"""The sharding as LLVM 19 writes it: an attribute `<@g, [[0], [1]], partial = max[2]>` of the op that annotates."""

from collections.abc import Sequence
from typing import Any

from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, SymbolRefAttr
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from shardwise.ir.shard.assembly import print_axis_lists, print_ints, read_axes
from shardwise.ir.shard.attributes import GridAxes, ReductionKind, ReductionKindAttr, ShardAxesArrayAttr, axes_attribute


@irdl_attr_definition
class Sharding19Attr(ParametrizedAttribute):
    """A grid, the grid axes per dim, and the axes over which values are partial."""

    name = "mesh.shard"

    grid: SymbolRefAttr
    split_axes: ShardAxesArrayAttr
    partial_type: ReductionKindAttr
    partial_axes: GridAxes

    @classmethod
    def read(cls, parser: AttrParser) -> "Sharding19Attr":
        """Read what stands between the angle brackets."""
        grid = SymbolRefAttr(parser.parse_symbol_name())
        lists: list[DenseArrayBase[Any]] = []
        kind, partial = ReductionKindAttr(ReductionKind.SUM), axes_attribute(())
        while parser.parse_optional_punctuation(","):
            if parser.parse_optional_keyword("partial"):
                parser.parse_punctuation("=")
                kind, partial = ReductionKindAttr(parser.parse_str_enum(ReductionKind)), read_axes(parser)
                break
            lists = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: read_axes(parser))
        return cls(grid, ShardAxesArrayAttr(ArrayAttr(lists)), kind, partial)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        """Read `<@g, [[0]]>`."""
        with parser.in_angle_brackets():
            return cls.read(parser).parameters

    def print_parameters(self, printer: Printer) -> None:
        """Print `<@g, [[0]]>`."""
        with printer.in_angle_brackets():
            printer.print_attribute(self.grid)
            printer.print_string(", ")
            print_axis_lists(printer, self.split_axes)
            if self.partial_axes.get_values():
                printer.print_string(f", partial = {self.partial_type.data}")
                print_ints(printer, self.partial_axes.get_values())
