"""Collectives with a root: one device of each group, named by its index within the group."""

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import IndexType, LocationAttr, TensorType
from xdsl.ir import Attribute
from xdsl.irdl import operand_def, prop_def, var_operand_def

from shardwise.ir.shard.assembly import REDUCTION, Clause, int_clause, mixed_clause
from shardwise.ir.shard.attributes import (
    AxesLike,
    GridLike,
    IntLike,
    IntsLike,
    ReductionKindAttr,
    ReductionLike,
    ValueLike,
    reduction_attribute,
)
from shardwise.ir.shard.collective_ops import SCATTER
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

ROOT = mixed_clause("root", "root", "root_dynamic")


class RootedOperation(CollectiveOperation):
    """A collective in which one device of each group has a part of its own."""

    TRAILER: ClassVar[Trailer] = "function"

    # Operands of a class come before those of the one it is made from, so both are named here.
    input = operand_def(TensorType)
    root_dynamic = var_operand_def(IndexType)
    root = prop_def(INT_LIST)


@shard_operation
class BroadcastOp(RootedOperation):
    """Copies the root's tensor to all devices of its group.

    >>> from xdsl.dialects import builtin, tensor
    >>> x = tensor.EmptyOp([], TensorType(builtin.i8, [2]))
    >>> print(BroadcastOp(TensorType(builtin.i8, [2]), "g", x, [0], None, grid_axes=[0]))
    %0 = shard.broadcast %1 on @g grid_axes = [0] root = [0] : (tensor<2xi8>) -> tensor<2xi8>
    """

    name = "shard.broadcast"
    CLAUSES: ClassVar[tuple[Clause, ...]] = (*GROUP, ROOT)

    def __init__(
        self,
        result: Attribute,
        grid: GridLike,
        input: ValueLike,
        root: IntsLike,
        root_dynamic: Sequence[ValueLike] | None,
        *,
        grid_axes: AxesLike | None = None,
        loc: LocationAttr | None = None,
        ip: Place | None = None,
    ) -> None:
        self._make(locals())


@shard_operation
class GatherOp(RootedOperation):
    """Concatenates the tensors of a group along dim `gather_axis` on the root; elsewhere the result is undefined.

    >>> from xdsl.dialects import builtin, tensor
    >>> x = tensor.EmptyOp([], TensorType(builtin.i8, [2, 2]))
    >>> print(GatherOp(TensorType(builtin.i8, [2, 4]), "g", x, 1, [1], None, grid_axes=[1]))
    %0 = shard.gather %1 on @g grid_axes = [1] gather_axis = 1 root = [1] : (tensor<2x2xi8>) -> tensor<2x4xi8>
    """

    name = "shard.gather"
    CLAUSES: ClassVar[tuple[Clause, ...]] = (*GROUP, int_clause("gather_axis"), ROOT)

    gather_axis = prop_def(INDEX_ATTRIBUTE)

    def __init__(
        self,
        result: Attribute,
        grid: GridLike,
        input: ValueLike,
        gather_axis: IntLike,
        root: IntsLike,
        root_dynamic: Sequence[ValueLike] | None,
        *,
        grid_axes: AxesLike | None = None,
        loc: LocationAttr | None = None,
        ip: Place | None = None,
    ) -> None:
        self._make(locals())


@shard_operation
class ReduceOp(RootedOperation):
    """Combines the tensors of a group as all_reduce does, on the root; elsewhere the result is undefined.

    >>> from xdsl.dialects import builtin, tensor
    >>> x = tensor.EmptyOp([], TensorType(builtin.f32, [3]))
    >>> print(ReduceOp(TensorType(builtin.f64, [3]), "g", x, [1], None, grid_axes=[1], reduction="max"))
    %0 = shard.reduce %1 on @g grid_axes = [1] reduction = max root = [1] : (tensor<3xf32>) -> tensor<3xf64>
    """

    name = "shard.reduce"
    CLAUSES: ClassVar[tuple[Clause, ...]] = (*GROUP, REDUCTION, ROOT)

    reduction = prop_def(ReductionKindAttr, default_value=reduction_attribute(None))

    def __init__(
        self,
        result: Attribute,
        grid: GridLike,
        input: ValueLike,
        root: IntsLike,
        root_dynamic: Sequence[ValueLike] | None,
        *,
        grid_axes: AxesLike | None = None,
        reduction: ReductionLike | None = None,
        loc: LocationAttr | None = None,
        ip: Place | None = None,
    ) -> None:
        self._make(locals())


@shard_operation
class ScatterOp(RootedOperation):
    """Cuts the root's tensor along dim `scatter_axis`; device i of the group receives piece i.

    >>> from xdsl.dialects import builtin, tensor
    >>> x = tensor.EmptyOp([], TensorType(builtin.i8, [2, 2]))
    >>> print(ScatterOp(TensorType(builtin.i8, [1, 2]), "g", x, 0, [1], None, grid_axes=[0]))
    %0 = shard.scatter %1 on @g grid_axes = [0] scatter_axis = 0 root = [1] : (tensor<2x2xi8>) -> tensor<1x2xi8>
    """

    name = "shard.scatter"
    CLAUSES: ClassVar[tuple[Clause, ...]] = (*GROUP, SCATTER, ROOT)

    scatter_axis = prop_def(INDEX_ATTRIBUTE)

    def __init__(
        self,
        result: Attribute,
        grid: GridLike,
        input: ValueLike,
        scatter_axis: IntLike,
        root: IntsLike,
        root_dynamic: Sequence[ValueLike] | None,
        *,
        grid_axes: AxesLike | None = None,
        loc: LocationAttr | None = None,
        ip: Place | None = None,
    ) -> None:
        self._make(locals())


broadcast = value_builder(BroadcastOp)
gather = value_builder(GatherOp)
reduce = value_builder(ReduceOp)
scatter = value_builder(ScatterOp)
