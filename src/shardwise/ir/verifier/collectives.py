"""Collectives: their groups, roots, and the shapes that follow."""

from collections.abc import Sequence

from xdsl.dialects.builtin import MemRefType, TensorType

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


def _result_complaints(op: CollectiveOperation, expected: Sequence[int | None]) -> Complaints:
    result = shape_of(op.results[0])
    if len(result) != len(expected):
        yield f"the result has {count_text(len(result), 'dim')}, but the input has {len(expected)}."
        return
    for dim, (got, wanted) in enumerate(zip(result, expected, strict=True)):
        if got is not None and got != wanted:
            known = "? (not known before it runs)" if wanted is None else wanted
            yield f"dim {dim} of the result {op.results[0].type} is {got}, expected {known}."


def _resizes(cut: str = "", joined: str = "") -> Check:
    """Return the check that a dim is cut into a piece per device, or a dim joined from as many, or both."""

    def check(op: CollectiveOperation, grid: Grid) -> Complaints:
        source, count = op.operands[0], grid.size(op.grid_axes.get_values())
        sizes = shape_of(source)
        dims: dict[str, int] = {name: getattr(op, name).value.data for name in (joined, cut) if name}
        for name, dim in dims.items():
            if not 0 <= dim < len(sizes):
                yield f"{name} {dim} is not a dim of {source.type}, which has {count_text(len(sizes), 'dim')}."
                return
        expected = list(sizes)
        if cut:
            if count == 0:  # said where the grid is declared
                return
            dim, size = dims[cut], sizes[dims[cut]]
            if size is not None and count is not None and size % count:
                yield f"dim {dim} of {source.type} has size {size}, which {count} devices cannot share evenly."
                return
            expected[dim] = None if size is None or count is None else size // count
        if joined:
            dim, size = dims[joined], sizes[dims[joined]]
            # Cut and joined along one dim, the size is the same whatever the group.
            grown = None if size is None or count is None else size * count
            expected[dim] = size if dim == dims.get(cut) else grown
        yield from _result_complaints(op, expected)

    return check


def _names_device(what: str) -> Check:
    """Return the check that the index which a property and its values give is that of a device of the group."""

    def check(op: CollectiveOperation, grid: Grid) -> Complaints:
        static, dynamic = getattr(op, what), getattr(op, f"{what}_dynamic")
        if static is not None:
            yield from mixed_complaints(static, dynamic, what)
            yield from index_complaints(static_sizes(static), op.grid_axes.get_values(), grid, what, "group")
        elif dynamic:
            yield f"{what} is absent, but has {count_text(len(dynamic), 'value')}."

    return check


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
    AllGatherOp: (*BEGIN, _same_elements, _resizes(joined="gather_axis")),
    AllReduceOp: (*BEGIN, _same_shape),
    AllSliceOp: (*BEGIN, _same_elements, _resizes(cut="slice_axis")),
    AllToAllOp: (*BEGIN, _same_elements, _resizes(cut="split_axis", joined="concat_axis")),
    BroadcastOp: (*BEGIN, _names_device("root"), _same_elements, _same_shape),
    GatherOp: (*BEGIN, _names_device("root"), _same_elements, _resizes(joined="gather_axis")),
    RecvOp: (*BEGIN, _not_scalar, _names_device("source"), _same_elements, _same_shape),
    ReduceOp: (*BEGIN, _names_device("root"), _same_shape),
    ReduceScatterOp: (*BEGIN, _resizes(cut="scatter_axis")),
    ScatterOp: (*BEGIN, _names_device("root"), _same_elements, _resizes(cut="scatter_axis")),
    SendOp: (*BEGIN, _not_scalar, _names_device("destination"), _same_elements, _same_shape),
    ShiftOp: (*BEGIN, _not_scalar, _shift, _same_elements, _same_shape),
}
