"""What all ops of the dialect share: text made of clauses, construction at a place, and its result."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, ParamSpec, Self, TypeAlias, TypeVar, cast

from xdsl.dialects.builtin import (
    I64,
    DenseArrayBase,
    IndexType,
    IntegerAttr,
    SymbolRefAttr,
    TensorType,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, OpResult, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    VarOperandDef,
    VarResultDef,
    base,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.traits import Pure

from shardwise.errors import ArgumentError
from shardwise.ir.shard.assembly import Clause, Parts, axes_clause, grid_clause, operand_clause
from shardwise.ir.shard.attributes import (
    GridAxes,
    ShardingType,
    axes_attribute,
    property_attribute,
    values,
)

Trailer: TypeAlias = Literal["arrow", "function", "same", "results", "sharding"]
Place: TypeAlias = InsertPoint | Block | Operation

# The types of values that the text does not write down.
OPERAND_TYPES: dict[str, Attribute] = {
    "sharding": ShardingType(),
    "dynamic_halo_sizes": i64,
    "dynamic_sharded_dims_offsets": i64,
    "halo_sizes": i64,
    "dims_dynamic": IndexType(),
    "device_dynamic": IndexType(),
    "device": IndexType(),
}

GROUP: tuple[Clause, ...] = (operand_clause("input"), grid_clause(), axes_clause("grid_axes", "mesh_axes"))
INT_LIST = DenseArrayBase[I64]
INDEX_ATTRIBUTE = IntegerAttr.constr(base(IndexType))


REGISTERED: "list[type[ShardOperation]]" = []  # the ops of the dialect, as they are defined


class ShardOperation(IRDLOperation):
    """An op of the dialect: its clauses in the order of its text, and how its types are written at the end.

    >>> from shardwise.ir.shard import GridOp
    >>> isinstance(GridOp("g", [2, 4]), ShardOperation), GridOp.OPERATION_NAME
    (True, 'shard.grid')
    """

    OPERATION_NAME: ClassVar[str] = ""
    _ODS_REGIONS: ClassVar[tuple[int, bool]] = (0, True)
    CLAUSES: ClassVar[tuple[Clause, ...]] = ()
    # arrow: `A -> B`; function: `(A, index) -> B`; same: one type for value and result; results: theirs alone.
    TRAILER: ClassVar[Trailer] = "arrow"

    def _make(self, arguments: Mapping[str, Any], kinds: Sequence[Attribute | Sequence[Attribute]] = ()) -> None:
        """Make the op from the arguments of its constructor by their names; `kinds` are the usual types of results."""
        definition = self.get_irdl_definition()
        operands = [
            values(arguments[name], name) if isinstance(kind, VarOperandDef) else SSAValue.get(arguments[name])
            for name, kind in definition.operands
        ]
        if "result" in arguments:
            result = arguments["result"]
            kinds = [result if isinstance(result, Attribute) else list(result)]
        properties = {n: property_attribute(n, arguments[n]) for n in definition.properties if n in arguments}
        result_types = arguments.get("results") or kinds
        IRDLOperation.__init__(self, operands=operands, result_types=result_types, properties=properties)
        if arguments["loc"] is not None:
            self.location = arguments["loc"]
        if arguments["ip"] is not None:
            self._move(arguments["ip"])

    def _move(self, ip: Place) -> None:
        # Inside xDSL's ImplicitBuilder the op already sits at the builder's place.
        if self.parent is not None:
            self.detach()
        if isinstance(ip, Block):
            ip = InsertPoint.at_end(ip)
        elif isinstance(ip, Operation):
            ip = InsertPoint.before(ip)
        if not isinstance(ip, InsertPoint):
            raise ArgumentError(f"ip is an InsertPoint, a Block (its end) or an Operation (before it), got {ip!r}.")
        Rewriter.insert_op(self, ip)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        """Read the clauses, the attributes and the types."""
        parts = Parts()
        for clause in cls.CLAUSES:
            clause.parse(parser, parts)
        properties, attributes = cls._split(parser, parts.properties)
        position = parser.pos
        operand_types, results = cls._read_types(parser, parts)
        operands = [
            parser.resolve_operands(unresolved, operand_types.get(name, ()), position)
            for name, unresolved in parts.operands.items()
        ]
        by_name = dict(zip(parts.operands, operands, strict=True)) | parts.values
        definition = cls.get_irdl_definition()
        is_variadic = any(isinstance(result, VarResultDef) for _, result in definition.results)
        return cls.build(
            operands=[by_name.get(name, ()) for name, _ in definition.operands],
            result_types=[results] if is_variadic else results,
            properties=properties,
            attributes=parts.attributes | attributes,
        )

    @classmethod
    def _split(
        cls, parser: Parser, properties: dict[str, Attribute]
    ) -> tuple[dict[str, Attribute], dict[str, Attribute]]:
        # LLVM 19 writes `sym_visibility` among the attributes, and so may anyone.
        known = cls.get_irdl_definition().properties
        attributes: dict[str, Attribute] = {}
        for name, attribute in parser.parse_optional_attr_dict().items():
            if name in properties or name == "operandSegmentSizes":
                parser.raise_error(f"`{name}` is given twice")
            (properties if name in known else attributes)[name] = attribute
        return properties, attributes

    @classmethod
    def _read_types(cls, parser: Parser, parts: Parts) -> tuple[dict[str, Sequence[Attribute]], list[Attribute]]:
        types: dict[str, Sequence[Attribute]] = {
            name: [OPERAND_TYPES[name]] * len(unresolved)
            for name, unresolved in parts.operands.items()
            if name in OPERAND_TYPES
        }
        first = next(iter(parts.operands), "")
        if cls.TRAILER == "sharding":
            return types, [parser.parse_type() if parser.parse_optional_punctuation(":") else ShardingType()]
        parser.parse_punctuation(":")
        if cls.TRAILER == "results":
            return types, cls._read_result_types(parser)
        if cls.TRAILER == "same":
            kind = parser.parse_type()
            return types | {first: [kind]}, [kind]
        if cls.TRAILER == "arrow":
            source = parser.parse_type()
            parser.parse_punctuation("->")
            return types | {first: [source]}, [parser.parse_type()]
        position = parser.pos
        function = parser.parse_function_type()
        inputs = list(function.inputs.data)
        if len(inputs) != sum(map(len, parts.operands.values())):
            parser.raise_error(f"expected {sum(map(len, parts.operands.values()))} types of values", position)
        if len(function.outputs.data) != 1:
            parser.raise_error(f"expected one result type, got {len(function.outputs.data)}", position)
        for name, unresolved in parts.operands.items():
            types[name], inputs = inputs[: len(unresolved)], inputs[len(unresolved) :]
        return types, list(function.outputs.data)

    @classmethod
    def _read_result_types(cls, parser: Parser) -> list[Attribute]:
        start = parser.pos
        listed = parser.parse_optional_undelimited_comma_separated_list(parser.parse_optional_type, parser.parse_type)
        kinds: list[Attribute] = [*(listed or ())]
        results = cls.get_irdl_definition().results
        if any(isinstance(result, VarResultDef) for _, result in results):
            return kinds
        if len(kinds) == 1:  # MLIR's page on the dialect writes one `index` for both neighbours
            kinds *= len(results)
        if len(kinds) != len(results):
            parser.raise_error(f"expected {len(results)} result types, got {len(kinds)}", start)
        return kinds

    def print(self, printer: Printer) -> None:
        """Print the clauses, the attributes and the types."""
        for clause in self.CLAUSES:
            clause.print(printer, self)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        if self.TRAILER == "function":
            printer.print_operation_type(self)
            return
        if self.TRAILER == "arrow":
            printer.print_attribute(self.operands[0].type)
            printer.print_string(" -> ")
        printer.print_list([result.type for result in self.results], printer.print_attribute)


class GridUser(ShardOperation):
    """An op that names a grid.

    >>> from shardwise.ir.shard import ProcessLinearIndexOp
    >>> op = ProcessLinearIndexOp("g")
    >>> isinstance(op, GridUser), op.grid_name
    (True, 'g')
    """

    grid = prop_def(SymbolRefAttr)

    @property
    def grid_name(self) -> str:
        """The name of the grid."""
        return self.grid.root_reference.data


class CollectiveOperation(GridUser):
    """An op that works within groups of devices: those that differ only along `grid_axes`.

    >>> from shardwise.ir.shard import AllGatherOp, SendOp, ShardOp
    >>> [issubclass(op, CollectiveOperation) for op in (AllGatherOp, SendOp, ShardOp)]
    [True, True, False]
    """

    CLAUSES: ClassVar[tuple[Clause, ...]] = GROUP

    input = operand_def(TensorType)
    grid_axes = prop_def(GridAxes, default_value=axes_attribute(()))
    result = result_def(TensorType)


Kind = TypeVar("Kind", bound=ShardOperation)


def shard_operation(op: type[Kind]) -> type[Kind]:
    """Complete an op class from its definition, with a property for each operand, result and attribute.

    An op is pure, unless its class says otherwise.
    """
    if "traits" not in vars(op):
        op.traits = traits_def(Pure())
    irdl_op_definition(op)
    op.OPERATION_NAME = op.name
    REGISTERED.append(op)
    definition = op.get_irdl_definition()
    fields = [name for name, _ in (*definition.operands, *definition.results)]
    for name in (*fields, *definition.accessor_names):
        # xDSL's own accessors fail when a class, not an op, is asked for them: help() and hasattr() do.
        setattr(op, name, _property(vars(op)[name], name))
    return op


def _property(accessor: Any, name: str) -> property:
    def put(op: ShardOperation, new: Any) -> None:
        accessor.__set__(op, new)

    writes = put if hasattr(accessor, "__set__") else None
    return property(lambda op: accessor.__get__(op), writes, doc=f"The op's `{name}`.")


def single_result(op: Operation) -> OpResult:
    """Return the only result of an op, or say how many it has."""
    if len(op.results) != 1:
        raise ArgumentError(f"{op.name} has {len(op.results)} results, so no single one; ask for .results.")
    return op.results[0]


# For ops that may have none or several results.
only_result = property(single_result, doc="The only result; an error where there is none or several.")


P = ParamSpec("P")
Op = TypeVar("Op", bound=ShardOperation)
Taken = TypeVar("Taken")


def _builder(make: Callable[P, Op], take: Callable[[Op], Taken]) -> Callable[P, Taken]:
    def build(*args: P.args, **kwargs: P.kwargs) -> Taken:
        return take(make(*args, **kwargs))

    op = cast("type[ShardOperation]", make)
    build.__name__ = build.__qualname__ = op.OPERATION_NAME.removeprefix("shard.")
    build.__doc__ = op.__doc__
    build.__module__ = op.__module__
    # inspect.signature follows this to the op's own parameters.
    build.__wrapped__ = make  # type: ignore[attr-defined]
    return build


def value_builder(make: Callable[P, ShardOperation]) -> Callable[P, OpResult]:
    """Return the function that makes an op and returns its only result."""
    return _builder(make, single_result)


def values_builder(make: Callable[P, Op]) -> Callable[P, "OpResult | list[OpResult] | Op"]:
    """Return the function that makes an op and returns its value, its list of values, or the op if it has none."""

    def take(op: Op) -> "OpResult | list[OpResult] | Op":
        if not op.results:
            return op
        return op.results[0] if len(op.results) == 1 else list(op.results)

    return _builder(make, take)


def list_builder(make: Callable[P, ShardOperation]) -> Callable[P, list[OpResult]]:
    """Return the function that makes an op and returns all its results."""
    return _builder(make, lambda op: list(op.results))
