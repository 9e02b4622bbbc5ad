"""Shardings: axes, halos and offsets, the tensors they are for, and annotations that contradict each other."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any

from xdsl.dialects.builtin import DenseArrayBase, SymbolRefAttr
from xdsl.ir import Operation, SSAValue

from shardwise.ir.shard import (
    GetShardingOp,
    ReductionKindAttr,
    ShardAxesArrayAttr,
    ShardingOp,
    ShardingType,
    ShardOp,
    ShardOperation,
    ShardShapeOp,
    UpdateHaloOp,
)
from shardwise.ir.shard.attributes import split_dims
from shardwise.ir.verifier.complaint import (
    Check,
    Complaints,
    Sizes,
    count_text,
    mixed_complaints,
    shape_of,
    static_sizes,
)
from shardwise.ir.verifier.grids import Grid, axes_complaints, index_complaints


def sharding_op(op: Operation) -> ShardingOp | None:
    """Return the sharding that an op names, where a shard.sharding makes it."""
    if not isinstance(op, ShardOp | ShardShapeOp):
        return None
    # By type, not by name: an op may lack operands before it is verified.
    maker = next((value.owner for value in op.operands if isinstance(value.type, ShardingType)), None)
    return maker if isinstance(maker, ShardingOp) else None


def grid_name_of(op: Operation) -> str | None:
    """Return the name of an op's grid: its own, or that of the sharding it names."""
    grid = (sharding_op(op) or op).properties.get("grid")
    return grid.root_reference.data if isinstance(grid, SymbolRefAttr) else None


def _split_axes(op: ShardingOp | UpdateHaloOp, grid: Grid) -> Complaints:
    axes = [axis for dim in split_dims(op.split_axes) for axis in dim]
    yield from axes_complaints(axes, grid, "split_axes")


def _partial(op: ShardingOp, grid: Grid) -> Complaints:
    axes, kind = op.attributes.get("partial_axes"), op.attributes.get("partial_type")
    if axes is None and kind is None:
        return
    if not isinstance(axes, DenseArrayBase) or not isinstance(kind, ReductionKindAttr):
        yield "partial_axes is `array<i16: ...>` and partial_type is `#shard.partial<...>`; both or neither."
        return
    partial: Sequence[Any] = axes.get_values()
    yield from axes_complaints(partial, grid, "partial_axes")
    split = {axis for dim in split_dims(op.split_axes) for axis in dim}
    for axis in sorted(split & set(partial)):
        yield f"axis {axis} splits a dim and is partial; it can be one of them."


def _halo_complaints(split: ShardAxesArrayAttr, static: DenseArrayBase[Any], dynamic: Sequence[SSAValue]) -> Complaints:
    yield from mixed_complaints(static, dynamic, "halo_sizes")
    halos, dims = static_sizes(static), [dim for dim in split_dims(split) if dim]
    if halos and len(halos) != 2 * len(dims):
        yield (
            f"halo_sizes has {count_text(len(halos), 'value')}, expected {2 * len(dims)}:"
            f" two for each of {count_text(len(dims), 'split dim')}."
        )
    for halo in halos:
        if halo is not None and halo < 0:
            yield f"halo size {halo} is negative."


def _halos(op: ShardingOp, _: Grid) -> Complaints:
    if op.static_halo_sizes.get_values() and op.static_sharded_dims_offsets.get_values():
        yield "halo_sizes and sharded_dims_offsets exclude each other."
    yield from _halo_complaints(op.split_axes, op.static_halo_sizes, op.dynamic_halo_sizes)


def _offsets(op: ShardingOp, grid: Grid) -> Complaints:
    yield from mixed_complaints(op.static_sharded_dims_offsets, op.dynamic_sharded_dims_offsets, "sharded_dims_offsets")
    offsets = static_sizes(op.static_sharded_dims_offsets)
    if not offsets:
        return
    if None in grid.shape:
        yield "sharded_dims_offsets needs a grid whose sizes are known."
        return
    counts = offset_counts(op, grid)
    if len(offsets) != sum(counts):
        wanted = " + ".join(map(str, counts)) or "0"
        yield (
            f"sharded_dims_offsets has {count_text(len(offsets), 'value')}, expected {wanted}:"
            " for each split dim one per shard and the end."
        )
        return
    for dim, row in zip(_split_numbers(op), _rows(offsets, counts), strict=True):
        yield from _row_complaints(dim, row)


def offset_counts(op: ShardingOp, grid: Grid) -> list[int]:
    """Return how many offsets each split dim has: one per shard, and the end of the last."""
    return [prod(grid.shape[axis] or 0 for axis in dim) + 1 for dim in split_dims(op.split_axes) if dim]


def _split_numbers(op: ShardingOp | UpdateHaloOp) -> list[int]:
    return [number for number, dim in enumerate(split_dims(op.split_axes)) if dim]


def _rows(offsets: Sizes, counts: list[int]) -> list[Sizes]:
    ends = [sum(counts[: i + 1]) for i in range(len(counts))]
    return [offsets[end - count : end] for end, count in zip(ends, counts, strict=True)]


def _row_complaints(dim: int, row: Sizes) -> Complaints:
    if row[0] not in (0, None):
        yield f"the offsets of dim {dim} begin with {row[0]}, expected 0."
    known = [offset for offset in row if offset is not None]
    for before, after in pairwise(known):
        if after < before:
            yield f"the offsets of dim {dim} go down from {before} to {after}."
    if any(offset < 0 for offset in known):
        yield f"an offset of dim {dim} is negative."


def _fits(sharding: ShardingOp, grid: Grid | None, shape: Sizes, what: str) -> Complaints:
    """Complain unless the sharding is for a tensor of this shape."""
    dims = split_dims(sharding.split_axes)
    if len(dims) > len(shape):
        yield f"split_axes has {count_text(len(dims), 'dim')}, but {what} has {len(shape)}."
        return
    offsets = static_sizes(sharding.static_sharded_dims_offsets)
    if not offsets or grid is None or None in grid.shape:
        return
    counts = offset_counts(sharding, grid)
    if len(offsets) != sum(counts):
        return
    for dim, row in zip(_split_numbers(sharding), _rows(offsets, counts), strict=True):
        if row[-1] is not None and shape[dim] is not None and row[-1] != shape[dim]:
            yield f"the offsets of dim {dim} end with {row[-1]}, but the dim of {what} has size {shape[dim]}."


def _annotation(op: ShardOp, grid: Grid | None) -> Complaints:
    if op.src.type != op.result.type:
        yield f"the result is {op.result.type}, but it is the input, {op.src.type}."
    sharding = sharding_op(op)
    if sharding is not None and _is_sound(sharding, grid):
        yield from _fits(sharding, grid, shape_of(op.src), f"{op.src.type}")


def _is_sound(sharding: ShardingOp, grid: Grid | None) -> bool:
    # What is wrong with a sharding is said once, where it is made.
    rank = 0 if grid is None else len(grid.shape)
    return all(0 <= axis < rank for dim in split_dims(sharding.split_axes) for axis in dim)


def meaning(sharding: SSAValue) -> Any:
    """Return what two shardings have in common when they are the same."""
    op = sharding.owner
    if not isinstance(op, ShardingOp):
        return sharding
    dims = list(split_dims(op.split_axes))
    while dims and not dims[-1]:
        dims.pop()
    partial = tuple(op.attributes.get(name) for name in ("partial_axes", "partial_type"))
    return (op.grid, tuple(dims), op.static_halo_sizes, op.static_sharded_dims_offsets, tuple(op.operands), partial)


def _contradictions(op: ShardOp, _: Any) -> Complaints:
    """Complain about annotations whose combination has no meaning, unless they say the same."""
    producer = op.src.owner
    own = meaning(op.sharding)
    if isinstance(producer, ShardOp) and meaning(producer.sharding) != own:
        if not op.annotate_for_users:
            other = "users are told another" if producer.annotate_for_users else "it has another already"
            yield f"says how the value is made, but {other}; annotate the value itself, or add annotate_for_users."
        elif producer.annotate_for_users:
            yield "tells users another sharding than the annotation it follows; annotate the value itself."
    if op.annotate_for_users or isinstance(producer, ShardOp):
        return
    # One other annotation is enough to compare with: where all say the same, each says what that one does.
    others = (use.operation for use in op.src.uses if use.index == 0 and use.operation is not op)
    rival = next((other for other in others if isinstance(other, ShardOp) and not other.annotate_for_users), None)
    if rival is not None and meaning(rival.sharding) != own:
        yield "says how the value is made, but another annotation of the value says otherwise."


def _halo_update(op: UpdateHaloOp, _: Grid) -> Complaints:
    if op.destination.type != op.result.type:
        yield f"the result is {op.result.type}, but it is the shard, {op.destination.type}."
    shape, dims = shape_of(op.destination), split_dims(op.split_axes)
    if len(dims) > len(shape):
        yield f"split_axes has {count_text(len(dims), 'dim')}, but {op.destination.type} has {len(shape)}."
    yield from _halo_complaints(op.split_axes, op.static_halo_sizes, op.halo_sizes)


def _halo_room(op: UpdateHaloOp, _: Grid) -> Complaints:
    shape, halos = shape_of(op.destination), static_sizes(op.static_halo_sizes)
    for number, low, high in zip(_split_numbers(op), halos[::2], halos[1::2], strict=False):
        size = shape[number]
        if size is not None and (low or 0) + (high or 0) > size:
            yield f"halos of {low or 0} and {high or 0} do not fit in dim {number}, which has size {size}."


def _shard_dims(op: ShardShapeOp, grid: Grid | None) -> Complaints:
    yield from mixed_complaints(op.dims, op.dims_dynamic, "dims")
    yield from mixed_complaints(op.device, op.device_dynamic, "device")
    dims = static_sizes(op.dims)
    if len(op.results) != len(dims):
        yield f"{count_text(len(dims), 'dim')} give as many results, got {len(op.results)}."
    for size in dims:
        if size is not None and size < 0:
            yield f"size {size} in dims is negative."
    sharding = sharding_op(op)
    if sharding is not None and _is_sound(sharding, grid):
        yield from _fits(sharding, grid, dims, "dims")


def _shard_device(op: ShardShapeOp, grid: Grid | None) -> Complaints:
    if grid is not None:
        yield from index_complaints(static_sizes(op.device), range(len(grid.shape)), grid, "device")


SHARDINGS: dict[type[ShardOperation], tuple[Check, ...]] = {
    ShardingOp: (_split_axes, _partial, _halos, _offsets),
    ShardOp: (_annotation, _contradictions),
    GetShardingOp: (),
    ShardShapeOp: (_shard_dims, _shard_device),
    UpdateHaloOp: (_split_axes, _halo_update, _halo_room),
}
