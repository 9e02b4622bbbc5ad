"""Shardings: what they are, which tensors have them, and what follows for shards and their halos."""

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import I64, IndexType, LocationAttr, MemRefType, TensorType, UnitAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer

from shardwise.ir.shard.assembly import (
    PARTIAL,
    SPLIT_AXES,
    Clause,
    Parts,
    flag_clause,
    grid_clause,
    mixed_clause,
    operand_clause,
)
from shardwise.ir.shard.attributes import (
    AxisListsLike,
    GridLike,
    IntsLike,
    ShardAxesArrayAttr,
    ShardingType,
    ValueLike,
    axis_lists_attribute,
    ints_attribute,
)
from shardwise.ir.shard.operation import (
    INT_LIST,
    GridUser,
    Place,
    ShardOperation,
    Trailer,
    only_result,
    shard_operation,
    value_builder,
    values_builder,
)
from shardwise.ir.shard.sharding19 import Sharding19Attr


@shard_operation
class ShardingOp(GridUser):
    """How a tensor is spread: the grid axes per dim, and perhaps halos or the offsets of shards.

    >>> print(ShardingOp("g", [[0], []], None, None, static_halo_sizes=[1, 2]))
    %0 = shard.sharding @g split_axes = [[0], []] halo_sizes = [1, 2] : !shard.sharding
    """

    name = "shard.sharding"
    _ODS_OPERAND_SEGMENTS: ClassVar[tuple[int, ...]] = (-1, -1)
    CLAUSES: ClassVar[tuple[Clause, ...]] = (
        grid_clause(""),
        SPLIT_AXES,
        PARTIAL,
        mixed_clause("halo_sizes", "static_halo_sizes", "dynamic_halo_sizes", optional=True),
        mixed_clause(
            "sharded_dims_offsets", "static_sharded_dims_offsets", "dynamic_sharded_dims_offsets", optional=True
        ),
    )
    TRAILER: ClassVar[Trailer] = "sharding"

    split_axes = prop_def(ShardAxesArrayAttr)
    dynamic_sharded_dims_offsets = var_operand_def(I64)
    dynamic_halo_sizes = var_operand_def(I64)
    static_sharded_dims_offsets = prop_def(INT_LIST, default_value=ints_attribute(None, ""))
    static_halo_sizes = prop_def(INT_LIST, default_value=ints_attribute(None, ""))
    result = result_def(ShardingType)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    def __init__(
        self,
        grid: GridLike,
        split_axes: AxisListsLike,
        dynamic_sharded_dims_offsets: Sequence[ValueLike] | None,
        dynamic_halo_sizes: Sequence[ValueLike] | None,
        *,
        static_sharded_dims_offsets: IntsLike | None = None,
        static_halo_sizes: IntsLike | None = None,
        results: Sequence[Attribute] | None = None,
        loc: LocationAttr | None = None,
        ip: Place | None = None,
    ) -> None:
        split_axes = axis_lists_attribute(split_axes)
        self._make(locals(), [ShardingType()])


def _parse_annotation(parser: Parser, parts: Parts) -> None:
    parser.parse_keyword("to")
    operand = parser.parse_optional_unresolved_operand()
    if operand is not None:
        parts.operands["sharding"] = [operand]
        return
    if not parser.parse_optional_punctuation("<"):
        parser.raise_error("expected a sharding: `%s`, or `<@grid, [[0]]>`")
    parts.values["sharding"] = [sharding_of(Sharding19Attr.read(parser)).result]
    parser.parse_punctuation(">")


def _print_annotation(printer: Printer, op: Operation) -> None:
    printer.print_string(" to ")
    printer.print_ssa_value(op.operands[1])


ANNOTATION = Clause(_parse_annotation, _print_annotation)
"""The sharding a tensor gets: `to %s`, or `to <@g, [[0]]>` as LLVM 19 writes it."""


def sharding_of(attribute: Sharding19Attr) -> ShardingOp:
    """Return the op that says what LLVM 19's attribute says; it belongs to no block yet."""
    op = ShardingOp(attribute.grid, attribute.split_axes, None, None)
    # The op has no clause for partial axes, so they are kept among its attributes.
    if len(attribute.partial_axes):
        op.attributes |= {"partial_axes": attribute.partial_axes, "partial_type": attribute.partial_type}
    return op


@shard_operation
class ShardOp(ShardOperation):
    """Says how a tensor is spread where it is made or, with `annotate_for_users`, where this op's result is used.

    >>> from xdsl.dialects import builtin, tensor
    >>> x = tensor.EmptyOp([], TensorType(builtin.f32, [4, 8]))
    >>> rows = ShardingOp("g", [[0]], None, None)
    >>> op = ShardOp(x, rows, annotate_for_users=True)
    >>> print(op)
    %0 = shard.shard %1 to %2 annotate_for_users : tensor<4x8xf32>
    >>> op.annotate_for_users
    True
    """

    name = "shard.shard"
    CLAUSES: ClassVar[tuple[Clause, ...]] = (
        operand_clause("src"),
        ANNOTATION,
        flag_clause("annotate_for_users"),
    )
    TRAILER: ClassVar[Trailer] = "same"

    src = operand_def(TensorType)
    sharding = operand_def(ShardingType)
    user_annotation = opt_prop_def(UnitAttr, prop_name="annotate_for_users")
    result = result_def(TensorType)

    def __init__(
        self,
        src: ValueLike,
        sharding: ValueLike,
        *,
        annotate_for_users: bool | UnitAttr | None = None,
        results: Sequence[Attribute] | None = None,
        loc: LocationAttr | None = None,
        ip: Place | None = None,
    ) -> None:
        self._make(locals(), [SSAValue.get(src).type])

    @property
    def annotate_for_users(self) -> bool:
        """Whether the sharding is how users see the value, not how it is made."""
        return self.user_annotation is not None


@shard_operation
class GetShardingOp(ShardOperation):
    """The sharding of a tensor.

    >>> from xdsl.dialects import builtin, tensor
    >>> x = tensor.EmptyOp([], TensorType(builtin.f32, [4, 8]))
    >>> print(GetShardingOp(x))
    %0 = shard.get_sharding %1 : tensor<4x8xf32> -> !shard.sharding
    """

    name = "shard.get_sharding"
    CLAUSES: ClassVar[tuple[Clause, ...]] = (operand_clause("source"),)

    source = operand_def(TensorType)
    result = result_def(ShardingType)

    def __init__(
        self,
        source: ValueLike,
        *,
        results: Sequence[Attribute] | None = None,
        loc: LocationAttr | None = None,
        ip: Place | None = None,
    ) -> None:
        self._make(locals(), [ShardingType()])


@shard_operation
class ShardShapeOp(ShardOperation):
    """The shape of the shard of one device, from the tensor's dims and its sharding.

    >>> from xdsl.dialects.builtin import IndexType
    >>> rows = ShardingOp("g", [[0]], None, None)
    >>> op = ShardShapeOp([IndexType()] * 2, [8, 4], None, rows, [1, 0], None)
    >>> print(op)
    %0, %1 = shard.shard_shape dims = [8, 4] sharding = %2 device = [1, 0] : index, index
    >>> [str(value.type) for value in op.results]  # op.result is the value, where there is one
    ['index', 'index']
    """

    name = "shard.shard_shape"
    _ODS_OPERAND_SEGMENTS: ClassVar[tuple[int, ...]] = (-1, 1, -1)
    CLAUSES: ClassVar[tuple[Clause, ...]] = (
        mixed_clause("dims", "dims", "dims_dynamic"),
        operand_clause("sharding", "sharding ="),
        mixed_clause("device", "device", "device_dynamic"),
    )
    TRAILER: ClassVar[Trailer] = "results"

    dims_dynamic = var_operand_def(IndexType)
    sharding = operand_def(ShardingType)
    device_dynamic = var_operand_def(IndexType)
    dims = prop_def(INT_LIST)
    device = prop_def(INT_LIST)
    sizes = var_result_def(IndexType)
    result = only_result
    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    def __init__(
        self,
        result: Sequence[Attribute],
        dims: IntsLike,
        dims_dynamic: Sequence[ValueLike] | None,
        sharding: ValueLike,
        device: IntsLike,
        device_dynamic: Sequence[ValueLike] | None,
        *,
        loc: LocationAttr | None = None,
        ip: Place | None = None,
    ) -> None:
        self._make(locals())


@shard_operation
class UpdateHaloOp(GridUser):
    """Fills the halos of a shard from the devices next to it along `split_axes`.

    >>> from xdsl.dialects import builtin, tensor
    >>> x = tensor.EmptyOp([], TensorType(builtin.f32, [6, 8]))
    >>> print(UpdateHaloOp(TensorType(builtin.f32, [6, 8]), x, "g", [[0]], None, static_halo_sizes=[1, 1]))
    %0 = shard.update_halo %1 on @g split_axes = [[0]] halo_sizes = [1, 1] : tensor<6x8xf32>
    """

    name = "shard.update_halo"
    CLAUSES: ClassVar[tuple[Clause, ...]] = (
        operand_clause("destination"),
        grid_clause(),
        SPLIT_AXES,
        mixed_clause("halo_sizes", "static_halo_sizes", "halo_sizes", optional=True),
    )
    TRAILER: ClassVar[Trailer] = "same"

    destination = operand_def(TensorType.constr() | MemRefType.constr())
    halo_sizes = var_operand_def(I64)
    split_axes = prop_def(ShardAxesArrayAttr)
    static_halo_sizes = prop_def(INT_LIST, default_value=ints_attribute(None, ""))
    result = result_def(TensorType.constr() | MemRefType.constr())

    def __init__(
        self,
        result: Attribute,
        destination: ValueLike,
        grid: GridLike,
        split_axes: AxisListsLike,
        halo_sizes: Sequence[ValueLike] | None,
        *,
        static_halo_sizes: IntsLike | None = None,
        loc: LocationAttr | None = None,
        ip: Place | None = None,
    ) -> None:
        split_axes = axis_lists_attribute(split_axes)
        self._make(locals())


sharding = value_builder(ShardingOp)
shard = value_builder(ShardOp)
get_sharding = value_builder(GetShardingOp)
shard_shape = values_builder(ShardShapeOp)
update_halo = value_builder(UpdateHaloOp)
