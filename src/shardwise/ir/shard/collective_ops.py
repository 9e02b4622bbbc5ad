"""Collectives in which all devices of a group take the same part."""

from typing import ClassVar

from xdsl.dialects.builtin import LocationAttr, MemRefType, TensorType
from xdsl.ir import Attribute
from xdsl.irdl import operand_def, prop_def, result_def

from shardwise.ir.shard.assembly import REDUCTION, Clause, int_clause
from shardwise.ir.shard.attributes import (
    AxesLike,
    GridLike,
    IntLike,
    ReductionKindAttr,
    ReductionLike,
    ValueLike,
    reduction_attribute,
)
from shardwise.ir.shard.operation import (
    GROUP,
    INDEX_ATTRIBUTE,
    CollectiveOperation,
    Place,
    shard_operation,
    value_builder,
)

SCATTER = int_clause("scatter_axis", also=("scatter_dim",))


@shard_operation
class AllGatherOp(CollectiveOperation):
    """Concatenates the tensors of a group along dim `gather_axis`, on each of its devices.

    >>> from xdsl.dialects import builtin, tensor
    >>> x = tensor.EmptyOp([], TensorType(builtin.i8, [2, 2]))
    >>> print(AllGatherOp(TensorType(builtin.i8, [2, 4]), "g", x, 1, grid_axes=[1]))
    %0 = shard.all_gather %1 on @g grid_axes = [1] gather_axis = 1 : tensor<2x2xi8> -> tensor<2x4xi8>
    """

    name = "shard.all_gather"
    CLAUSES: ClassVar[tuple[Clause, ...]] = (*GROUP, int_clause("gather_axis"))

    gather_axis = prop_def(INDEX_ATTRIBUTE)

    def __init__(
        self,
        result: Attribute,
        grid: GridLike,
        input: ValueLike,
        gather_axis: IntLike,
        *,
        grid_axes: AxesLike | None = None,
        loc: LocationAttr | None = None,
        ip: Place | None = None,
    ) -> None:
        self._make(locals())


@shard_operation
class AllReduceOp(CollectiveOperation):
    """Combines the tensors of a group element by element, in the result's element type, on each of its devices.

    >>> from xdsl.dialects import builtin, tensor
    >>> x = tensor.EmptyOp([], TensorType(builtin.f32, [3]))
    >>> print(AllReduceOp(TensorType(builtin.f64, [3]), "g", x, grid_axes=[1], reduction="max"))
    %0 = shard.all_reduce %1 on @g grid_axes = [1] reduction = max : tensor<3xf32> -> tensor<3xf64>
    """

    name = "shard.all_reduce"
    CLAUSES: ClassVar[tuple[Clause, ...]] = (*GROUP, REDUCTION)

    input = operand_def(TensorType.constr() | MemRefType.constr())
    reduction = prop_def(ReductionKindAttr, default_value=reduction_attribute(None))
    result = result_def(TensorType.constr() | MemRefType.constr())

    def __init__(
        self,
        result: Attribute,
        grid: GridLike,
        input: ValueLike,
        *,
        grid_axes: AxesLike | None = None,
        reduction: ReductionLike | None = None,
        loc: LocationAttr | None = None,
        ip: Place | None = None,
    ) -> None:
        self._make(locals())


@shard_operation
class AllSliceOp(CollectiveOperation):
    """Cuts the tensor along dim `slice_axis`; each device of a group keeps its own piece and nothing is sent.

    >>> from xdsl.dialects import builtin, tensor
    >>> x = tensor.EmptyOp([], TensorType(builtin.i8, [2, 4]))
    >>> print(AllSliceOp(TensorType(builtin.i8, [2, 2]), "g", x, 1, grid_axes=[1]))
    %0 = shard.all_slice %1 on @g grid_axes = [1] slice_axis = 1 : tensor<2x4xi8> -> tensor<2x2xi8>
    """

    name = "shard.all_slice"
    CLAUSES: ClassVar[tuple[Clause, ...]] = (*GROUP, int_clause("slice_axis"))

    slice_axis = prop_def(INDEX_ATTRIBUTE)

    def __init__(
        self,
        result: Attribute,
        grid: GridLike,
        input: ValueLike,
        slice_axis: IntLike,
        *,
        grid_axes: AxesLike | None = None,
        loc: LocationAttr | None = None,
        ip: Place | None = None,
    ) -> None:
        self._make(locals())


@shard_operation
class AllToAllOp(CollectiveOperation):
    """Cuts the tensor along dim `split_axis`, sends piece i to device i, and joins what arrives along `concat_axis`.

    >>> from xdsl.dialects import builtin, tensor
    >>> x = tensor.EmptyOp([], TensorType(builtin.i8, [4, 2]))
    >>> print(AllToAllOp(TensorType(builtin.i8, [2, 4]), "g", x, 0, 1, grid_axes=[0]))
    %0 = shard.all_to_all %1 on @g grid_axes = [0] split_axis = 0 concat_axis = 1 : tensor<4x2xi8> -> tensor<2x4xi8>
    """

    name = "shard.all_to_all"
    CLAUSES: ClassVar[tuple[Clause, ...]] = (*GROUP, int_clause("split_axis"), int_clause("concat_axis"))

    split_axis = prop_def(INDEX_ATTRIBUTE)
    concat_axis = prop_def(INDEX_ATTRIBUTE)

    def __init__(
        self,
        result: Attribute,
        grid: GridLike,
        input: ValueLike,
        split_axis: IntLike,
        concat_axis: IntLike,
        *,
        grid_axes: AxesLike | None = None,
        loc: LocationAttr | None = None,
        ip: Place | None = None,
    ) -> None:
        self._make(locals())


@shard_operation
class ReduceScatterOp(CollectiveOperation):
    """Combines the tensors of a group as all_reduce does; device i keeps piece i along dim `scatter_axis`.

    >>> from xdsl.dialects import builtin, tensor
    >>> x = tensor.EmptyOp([], TensorType(builtin.f32, [2, 2]))
    >>> print(ReduceScatterOp(TensorType(builtin.f64, [1, 2]), "g", x, 0, grid_axes=[1]))
    %0 = shard.reduce_scatter %1 on @g grid_axes = [1] scatter_axis = 0 : tensor<2x2xf32> -> tensor<1x2xf64>
    """

    name = "shard.reduce_scatter"
    CLAUSES: ClassVar[tuple[Clause, ...]] = (*GROUP, REDUCTION, SCATTER)

    reduction = prop_def(ReductionKindAttr, default_value=reduction_attribute(None))
    scatter_axis = prop_def(INDEX_ATTRIBUTE)

    def __init__(
        self,
        result: Attribute,
        grid: GridLike,
        input: ValueLike,
        scatter_axis: IntLike,
        *,
        grid_axes: AxesLike | None = None,
        reduction: ReductionLike | None = None,
        loc: LocationAttr | None = None,
        ip: Place | None = None,
    ) -> None:
        self._make(locals())


all_gather = value_builder(AllGatherOp)
all_reduce = value_builder(AllReduceOp)
all_slice = value_builder(AllSliceOp)
all_to_all = value_builder(AllToAllOp)
reduce_scatter = value_builder(ReduceScatterOp)
