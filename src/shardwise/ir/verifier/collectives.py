"""Collectives: their groups, roots, and the shapes that follow."""

from collections.abc import Sequence
from typing import Any

from xdsl.dialects.builtin import DenseArrayBase, MemRefType, TensorType
from xdsl.ir import SSAValue

from shardwise.ir.shard import (
    AllGatherOp,
    AllReduceOp,
    AllSliceOp,
    AllToAllOp,
    BroadcastOp,
    CollectiveOperation,
    GatherOp,
    RecvOp,
    ReduceOp,
    ReduceScatterOp,
    ScatterOp,
    SendOp,
    ShardOperation,
    ShiftOp,
)
from shardwise.ir.verifier.complaint import (
    Check,
    Complaints,
    count_text,
    mixed_complaints,
    shape_of,
    static_sizes,
)
from shardwise.ir.verifier.grids import Grid, axes_complaints, index_complaints


def _group(op: CollectiveOperation, grid: Grid) -> Complaints:
    yield from axes_complaints(op.grid_axes.get_values(), grid, "grid_axes")


def _ranks(op: CollectiveOperation, _: Grid) -> Complaints:
    for what, value in (("input", op.operands[0]), ("result", op.results[0])):
        if not isinstance(value.type, TensorType | MemRefType):
            yield f"the {what} is a ranked tensor, got {value.type}."


def _same_elements(op: CollectiveOperation, _: Grid) -> Complaints:
    source, result = (getattr(value.type, "element_type", None) for value in (op.operands[0], op.results[0]))
    if source != result:
        yield f"the result has elements of {result}, the input of {source}; they must be the same."


def _same_shape(op: CollectiveOperation, _: Grid) -> Complaints:
    if shape_of(op.operands[0]) != shape_of(op.results[0]):
        yield f"the result is {op.results[0].type}, but it has the shape of the input, {op.operands[0].type}."


def _dim_complaints(dim: int, value: SSAValue, what: str) -> Complaints:
    rank = len(shape_of(value))
    if not 0 <= dim < rank:
        yield f"{what} {dim} is not a dim of {value.type}, which has {count_text(rank, 'dim')}."


def _result_complaints(op: CollectiveOperation, expected: Sequence[int | None]) -> Complaints:
    result = shape_of(op.results[0])
    if len(result) != len(expected):
        yield f"the result has {count_text(len(result), 'dim')}, but the input has {len(expected)}."
        return
    for dim, (got, wanted) in enumerate(zip(result, expected, strict=True)):
        if got is not None and got != wanted:
            known = "? (not known before it runs)" if wanted is None else wanted
            yield f"dim {dim} of the result {op.results[0].type} is {got}, expected {known}."


def _grown_complaints(op: CollectiveOperation, grid: Grid, dim: int, what: str) -> Complaints:
    """Complain unless the result is the input with one dim as many times larger as the group has devices."""
    complaints = [*_dim_complaints(dim, op.operands[0], what)]
    if complaints:
        yield from complaints
        return
    expected = list(shape_of(op.operands[0]))
    expected[dim] = _times(expected[dim], grid.size(op.grid_axes.get_values()))
    yield from _result_complaints(op, expected)


def _times(size: int | None, count: int | None) -> int | None:
    return None if size is None or count is None else size * count


def _cut_complaints(op: CollectiveOperation, grid: Grid, dim: int, what: str, joined: int | None = None) -> Complaints:
    """Complain unless the result is the input with one dim cut into a piece per device, and perhaps one joined."""
    complaints = [*_dim_complaints(dim, op.operands[0], what)]
    if complaints:
        yield from complaints
        return
    expected = list(shape_of(op.operands[0]))
    size, count = expected[dim], grid.size(op.grid_axes.get_values())
    if size is not None and count is not None and size % count:
        yield f"dim {dim} of {op.operands[0].type} has size {size}, which {count} devices cannot share evenly."
        return
    expected[dim] = None if size is None or count is None else size // count
    if joined is not None:
        # Cut and joined along one dim, the size is the same whatever the group.
        expected[joined] = size if joined == dim else _times(expected[joined], count)
    yield from _result_complaints(op, expected)


def _gather_shape(op: AllGatherOp | GatherOp, grid: Grid) -> Complaints:
    yield from _grown_complaints(op, grid, op.gather_axis.value.data, "gather_axis")


def _slice_shape(op: AllSliceOp, grid: Grid) -> Complaints:
    yield from _cut_complaints(op, grid, op.slice_axis.value.data, "slice_axis")


def _scatter_shape(op: ScatterOp | ReduceScatterOp, grid: Grid) -> Complaints:
    yield from _cut_complaints(op, grid, op.scatter_axis.value.data, "scatter_axis")


def _exchange_shape(op: AllToAllOp, grid: Grid) -> Complaints:
    joined = op.concat_axis.value.data
    complaints = [*_dim_complaints(joined, op.input, "concat_axis")]
    yield from complaints or _cut_complaints(op, grid, op.split_axis.value.data, "split_axis", joined)


def _device_complaints(
    op: CollectiveOperation, grid: Grid, static: DenseArrayBase[Any], dynamic: Sequence[SSAValue], what: str
) -> Complaints:
    yield from mixed_complaints(static, dynamic, what)
    axes, indices = op.grid_axes.get_values(), static_sizes(static)
    if len(indices) != len(axes):
        yield f"{what} has {count_text(len(indices), 'index')}, but the group has {count_text(len(axes), 'axis')}."
        return
    yield from index_complaints(indices, axes, grid, what)


def _root(op: BroadcastOp | GatherOp | ReduceOp | ScatterOp, grid: Grid) -> Complaints:
    yield from _device_complaints(op, grid, op.root, op.root_dynamic, "root")


def _destination(op: SendOp, grid: Grid) -> Complaints:
    yield from _device_complaints(op, grid, op.destination, op.destination_dynamic, "destination")


def _source(op: RecvOp, grid: Grid) -> Complaints:
    if op.source is not None:
        yield from _device_complaints(op, grid, op.source, op.source_dynamic, "source")
    elif op.source_dynamic:
        yield f"source is absent, but has {count_text(len(op.source_dynamic), 'value')}."


def _not_scalar(op: RecvOp | SendOp | ShiftOp, _: Grid) -> Complaints:
    # So do LLVM's own tools; a scalar travels as a tensor of one element.
    if not shape_of(op.input):
        yield f"the input is {op.input.type}, expected a tensor of at least one dim."


def _shift(op: ShiftOp, _: Grid) -> Complaints:
    axis, axes = op.shift_axis.value.data, list(op.grid_axes.get_values())
    if axis not in axes:
        yield f"shift_axis {axis} is not among grid_axes {axes}."


BEGIN = (_group, _ranks)

COLLECTIVES: dict[type[ShardOperation], tuple[Check, ...]] = {
    AllGatherOp: (*BEGIN, _same_elements, _gather_shape),
    AllReduceOp: (*BEGIN, _same_shape),
    AllSliceOp: (*BEGIN, _same_elements, _slice_shape),
    AllToAllOp: (*BEGIN, _same_elements, _exchange_shape),
    BroadcastOp: (*BEGIN, _root, _same_elements, _same_shape),
    GatherOp: (*BEGIN, _root, _same_elements, _gather_shape),
    RecvOp: (*BEGIN, _not_scalar, _source, _same_elements, _same_shape),
    ReduceOp: (*BEGIN, _root, _same_shape),
    ReduceScatterOp: (*BEGIN, _scatter_shape),
    ScatterOp: (*BEGIN, _root, _same_elements, _scatter_shape),
    SendOp: (*BEGIN, _not_scalar, _destination, _same_elements, _same_shape),
    ShiftOp: (*BEGIN, _not_scalar, _shift, _same_elements, _same_shape),
}
