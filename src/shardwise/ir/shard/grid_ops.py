"""The grid of devices, and what a device can ask about it."""

from collections.abc import Sequence
from typing import ClassVar, Self

from xdsl.dialects.builtin import DYNAMIC_INDEX, DenseArrayBase, IndexType, LocationAttr, StringAttr, i64
from xdsl.ir import Attribute
from xdsl.irdl import (
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure, SymbolOpInterface

from shardwise.errors import ArgumentError
from shardwise.ir.shard.assembly import Clause, axes_clause, grid_clause, operands_clause, spelling
from shardwise.ir.shard.attributes import (
    AxesLike,
    GridAxes,
    GridLike,
    IntsLike,
    ValueLike,
    axes_attribute,
)
from shardwise.ir.shard.operation import (
    INT_LIST,
    GridUser,
    Place,
    ShardOperation,
    Trailer,
    list_builder,
    only_result,
    shard_operation,
    value_builder,
    values_builder,
)


@shard_operation
class GridOp(ShardOperation):
    """A named grid of devices; a size that is not known is `?` in text and DYNAMIC_INDEX in `shape`.

    >>> print(GridOp("grid0", [2, DYNAMIC_INDEX, 4]))
    shard.grid @grid0(shape = 2x?x4)
    >>> op = GridOp("g", [2, 4])
    >>> op.sym_name.data, op.shape.get_values(), op.sym_visibility
    ('g', (2, 4), None)
    >>> op.result
    Traceback (most recent call last):
    shardwise.ArgumentError: shard.grid has 0 results, so no single one; ask for .results.
    """

    name = "shard.grid"

    sym_name = prop_def(StringAttr)
    shape = prop_def(INT_LIST)
    sym_visibility = opt_prop_def(StringAttr)
    traits = traits_def(SymbolOpInterface(), Pure())
    result = only_result

    def __init__(
        self,
        sym_name: str | StringAttr,
        shape: IntsLike,
        *,
        loc: LocationAttr | None = None,
        ip: Place | None = None,
    ) -> None:
        if isinstance(sym_name, str):
            sym_name = StringAttr(sym_name.removeprefix("@"))
        if not isinstance(sym_name, StringAttr):
            raise ArgumentError(f"sym_name is the grid's name, such as 'grid0', got {sym_name!r}.")
        self._make(locals())

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        """Read `"private" @g(shape = 2x?x4)`."""
        visibility = parser.parse_optional_str_literal()
        properties: dict[str, Attribute] = {"sym_name": parser.parse_symbol_name()}
        if visibility is not None:
            properties["sym_visibility"] = StringAttr(visibility)
        with parser.in_parens():
            parser.parse_keyword("shape")
            parser.parse_punctuation("=")
            properties["shape"] = DenseArrayBase.from_list(i64, cls._sizes(parser))
        properties, attributes = cls._split(parser, properties)
        return cls.build(properties=properties, attributes=attributes)

    @classmethod
    def _sizes(cls, parser: Parser) -> list[int]:
        if parser.parse_optional_punctuation("["):
            parser.parse_punctuation("]")
            return []
        start = parser.pos
        sizes = parser.parse_dimension_list()
        if any(not -(1 << 63) <= size < 1 << 63 for size in sizes):
            parser.raise_error("the int does not fit 64 bits", start, parser.pos)
        return sizes

    def print(self, printer: Printer) -> None:
        """Print `"private" @g(shape = 2x?x4)`."""
        # LLVM 19 knows the visibility only among the attributes.
        before = self.sym_visibility if spelling(printer) == "shard" else None
        after: dict[str, Attribute] = {"sym_visibility": self.sym_visibility} if self.sym_visibility else {}
        if before is not None:
            printer.print_string(" ")
            printer.print_string_literal(before.data)
            after = {}
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name.data)
        sizes = "x".join("?" if size == DYNAMIC_INDEX else str(size) for size in self.shape.get_values())
        printer.print_string(f"(shape = {sizes or '[]'})")
        printer.print_op_attributes(after | self.attributes)


class AxesQuestion(GridUser):
    """An op with one result for each of `axes`, or for all axes of the grid."""

    TRAILER: ClassVar[Trailer] = "results"

    axes = prop_def(GridAxes, default_value=axes_attribute(()))
    result = only_result

    def __init__(
        self,
        result: Sequence[Attribute],
        grid: GridLike,
        *,
        axes: AxesLike | None = None,
        loc: LocationAttr | None = None,
        ip: Place | None = None,
    ) -> None:
        self._make(locals())


@shard_operation
class GridShapeOp(AxesQuestion):
    """The sizes of the grid along `axes`, or along all of them.

    >>> op = GridShapeOp([IndexType()] * 2, "g")
    >>> print(op)
    %0, %1 = shard.grid_shape @g : index, index
    >>> [str(value.type) for value in op.results]  # op.result is the value, where there is one
    ['index', 'index']
    """

    name = "shard.grid_shape"
    CLAUSES: ClassVar[tuple[Clause, ...]] = (grid_clause(""), axes_clause("axes"))

    sizes = var_result_def(IndexType)


@shard_operation
class ProcessMultiIndexOp(AxesQuestion):
    """The index of this device along `axes` of the grid, or along all of them.

    >>> op = ProcessMultiIndexOp([IndexType()], "g", axes=[1])
    >>> print(op)
    %0 = shard.process_multi_index on @g axes = [1] : index
    >>> str(op.result.type)
    'index'
    """

    name = "shard.process_multi_index"
    CLAUSES: ClassVar[tuple[Clause, ...]] = (grid_clause(), axes_clause("axes"))

    indices = var_result_def(IndexType)


@shard_operation
class ProcessLinearIndexOp(GridUser):
    """The number of this device in the grid, in row-major order.

    >>> print(ProcessLinearIndexOp("g"))
    %0 = shard.process_linear_index on @g : index
    """

    name = "shard.process_linear_index"
    CLAUSES: ClassVar[tuple[Clause, ...]] = (grid_clause(),)
    TRAILER: ClassVar[Trailer] = "results"

    result = result_def(IndexType)

    def __init__(
        self,
        grid: GridLike,
        *,
        results: Sequence[Attribute] | None = None,
        loc: LocationAttr | None = None,
        ip: Place | None = None,
    ) -> None:
        self._make(locals(), [IndexType()])


@shard_operation
class NeighborsLinearIndicesOp(GridUser):
    """The numbers of the devices before and after `device` along `split_axes`, -1 where there is none.

    >>> i, j = ProcessMultiIndexOp([IndexType()] * 2, "g").results
    >>> op = NeighborsLinearIndicesOp("g", [i, j], [1])
    >>> print(op)
    %0, %1 = shard.neighbors_linear_indices on @g[%2, %3] split_axes = [1] : index, index
    >>> op.result
    Traceback (most recent call last):
    shardwise.ArgumentError: shard.neighbors_linear_indices has 2 results, so no single one; ask for .results.
    """

    name = "shard.neighbors_linear_indices"
    CLAUSES: ClassVar[tuple[Clause, ...]] = (
        grid_clause(),
        operands_clause("device"),
        axes_clause("split_axes", optional=False),
    )
    TRAILER: ClassVar[Trailer] = "results"

    device = var_operand_def(IndexType)
    split_axes = prop_def(GridAxes)
    neighbor_down = result_def(IndexType)
    neighbor_up = result_def(IndexType)
    result = only_result

    def __init__(
        self,
        grid: GridLike,
        device: Sequence[ValueLike],
        split_axes: AxesLike,
        *,
        results: Sequence[Attribute] | None = None,
        loc: LocationAttr | None = None,
        ip: Place | None = None,
    ) -> None:
        self._make(locals(), [IndexType()] * 2)


def grid(
    sym_name: str | StringAttr, shape: IntsLike, *, loc: LocationAttr | None = None, ip: Place | None = None
) -> GridOp:
    """Make a grid.

    >>> print(grid("grid0", [2, 4]))
    shard.grid @grid0(shape = 2x4)
    """
    return GridOp(sym_name, shape, loc=loc, ip=ip)


grid_shape = values_builder(GridShapeOp)
process_multi_index = values_builder(ProcessMultiIndexOp)
process_linear_index = value_builder(ProcessLinearIndexOp)
neighbors_linear_indices = list_builder(NeighborsLinearIndicesOp)
