"""Ops that move a tensor from one device to another: send, recv and shift."""

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import I64, IndexType, IntegerAttr, LocationAttr, TensorType, UnitAttr, i64
from xdsl.ir import Attribute
from xdsl.irdl import (
    operand_def,
    opt_prop_def,
    prop_def,
    traits_def,
    var_operand_def,
)

from shardwise.ir.shard.assembly import Clause, flag_clause, int_clause, mixed_clause
from shardwise.ir.shard.attributes import (
    AxesLike,
    GridLike,
    IntLike,
    IntsLike,
    ValueLike,
)
from shardwise.ir.shard.operation import (
    GROUP,
    INDEX_ATTRIBUTE,
    INT_LIST,
    CollectiveOperation,
    Place,
    Trailer,
    shard_operation,
    value_builder,
)


@shard_operation
class SendOp(CollectiveOperation):
    """Sends the tensor to the device `destination` of the group.

    >>> from xdsl.dialects import builtin, tensor
    >>> x = tensor.EmptyOp([], TensorType(builtin.i8, [2]))
    >>> print(SendOp(TensorType(builtin.i8, [2]), "g", x, [1], None, grid_axes=[0]))
    %0 = shard.send %1 on @g grid_axes = [0] destination = [1] : (tensor<2xi8>) -> tensor<2xi8>
    """

    name = "shard.send"
    CLAUSES: ClassVar[tuple[Clause, ...]] = (*GROUP, mixed_clause("destination", "destination", "destination_dynamic"))
    TRAILER: ClassVar[Trailer] = "function"

    input = operand_def(TensorType)
    destination_dynamic = var_operand_def(IndexType)
    destination = prop_def(INT_LIST)
    traits = traits_def()

    def __init__(
        self,
        result: Attribute,
        grid: GridLike,
        input: ValueLike,
        destination: IntsLike,
        destination_dynamic: Sequence[ValueLike] | None,
        *,
        grid_axes: AxesLike | None = None,
        loc: LocationAttr | None = None,
        ip: Place | None = None,
    ) -> None:
        self._make(locals())


@shard_operation
class RecvOp(CollectiveOperation):
    """Receives a tensor from the device `source` of the group, or from whichever sends where there is no source.

    >>> from xdsl.dialects import builtin, tensor
    >>> x = tensor.EmptyOp([], TensorType(builtin.i8, [2]))
    >>> print(RecvOp(TensorType(builtin.i8, [2]), "g", x, None, grid_axes=[0], source=[1]))
    %0 = shard.recv %1 on @g grid_axes = [0] source = [1] : (tensor<2xi8>) -> tensor<2xi8>
    """

    name = "shard.recv"
    CLAUSES: ClassVar[tuple[Clause, ...]] = (*GROUP, mixed_clause("source", "source", "source_dynamic", optional=True))
    TRAILER: ClassVar[Trailer] = "function"

    input = operand_def(TensorType)
    source_dynamic = var_operand_def(IndexType)
    source = opt_prop_def(INT_LIST)
    traits = traits_def()

    def __init__(
        self,
        result: Attribute,
        grid: GridLike,
        input: ValueLike,
        source_dynamic: Sequence[ValueLike] | None,
        *,
        grid_axes: AxesLike | None = None,
        source: IntsLike | None = None,
        loc: LocationAttr | None = None,
        ip: Place | None = None,
    ) -> None:
        self._make(locals())


@shard_operation
class ShiftOp(CollectiveOperation):
    """Moves tensors along the grid axis `shift_axis` by `offset` devices, around the end if `rotate` is set.

    >>> from xdsl.dialects import builtin, tensor
    >>> x = tensor.EmptyOp([], TensorType(builtin.i8, [2]))
    >>> op = ShiftOp(TensorType(builtin.i8, [2]), "g", x, 1, 2, grid_axes=[1], rotate=True)
    >>> print(op)
    %0 = shard.shift %1 on @g grid_axes = [1] shift_axis = 1 offset = 2 rotate : tensor<2xi8> -> tensor<2xi8>
    >>> op.rotate
    True
    """

    name = "shard.shift"
    CLAUSES: ClassVar[tuple[Clause, ...]] = (
        *GROUP,
        int_clause("shift_axis"),
        int_clause("offset", i64),
        flag_clause("rotate"),
    )

    shift_axis = prop_def(INDEX_ATTRIBUTE)
    offset = prop_def(IntegerAttr[I64])
    rotation = opt_prop_def(UnitAttr, prop_name="rotate")

    def __init__(
        self,
        result: Attribute,
        grid: GridLike,
        input: ValueLike,
        shift_axis: IntLike,
        offset: IntLike,
        *,
        grid_axes: AxesLike | None = None,
        rotate: bool | UnitAttr | None = None,
        loc: LocationAttr | None = None,
        ip: Place | None = None,
    ) -> None:
        self._make(locals())

    @property
    def rotate(self) -> bool:
        """Whether the shift goes around the end."""
        return self.rotation is not None


send = value_builder(SendOp)
recv = value_builder(RecvOp)
shift = value_builder(ShiftOp)
