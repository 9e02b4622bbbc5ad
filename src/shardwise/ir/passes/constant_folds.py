"""Folds of constants: devices, halos, offsets and sizes that are known are written down."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any

from xdsl.dialects import arith
from xdsl.dialects.builtin import DYNAMIC_INDEX, IndexType, IntegerAttr
from xdsl.ir import Operation, SSAValue

from shardwise.ir.constants import constant_int
from shardwise.ir.module.program import ints
from shardwise.ir.passes.folding import Folding
from shardwise.ir.shard import (
    BroadcastOp,
    GatherOp,
    GridShapeOp,
    ProcessMultiIndexOp,
    RecvOp,
    ReduceOp,
    ScatterOp,
    SendOp,
    ShardingOp,
    UpdateHaloOp,
)
from shardwise.ir.shard.attributes import ints_attribute, split_dims


def known_shape(f: Folding, op: GridShapeOp) -> SSAValue | None:
    """A size of a grid that is known is a constant."""
    shape, axes = _shape_and_axes(f, op)
    if any(shape[a] < 0 for a in axes):
        return None
    for axis, result in zip(axes, op.results, strict=True):
        result.replace_all_uses_with(f.add(arith.ConstantOp(IntegerAttr(shape[axis], IndexType()))))
    return op.results[0]


def only_position(f: Folding, op: ProcessMultiIndexOp) -> SSAValue | None:
    """Along an axis of one device every device is at 0."""
    shape, axes = _shape_and_axes(f, op)
    single = [k for k, a in enumerate(axes) if shape[a] == 1 and op.results[k].first_use is not None]
    for k in single:
        op.results[k].replace_all_uses_with(f.add(arith.ConstantOp(IntegerAttr(0, IndexType()))))
    return op.results[0] if single else None


def _shape_and_axes(f: Folding, op: GridShapeOp | ProcessMultiIndexOp) -> tuple[tuple[int, ...], Sequence[int]]:
    # The shape of a grid, and the axes that an op asks about: all of them where it names none.
    shape = f.grids.shapes[op.grid_name]
    return shape, ints(op.axes) or range(len(shape))


# -- constants -------------------------------------------------------------------------------------------


def _fill(static: Sequence[int], dynamic: Sequence[SSAValue]) -> tuple[list[int], list[SSAValue]]:
    # A list in which values that are constants are written down, and the values that are left.
    rest = iter(dynamic)
    numbers: list[int] = []
    left: list[SSAValue] = []
    for n in static:
        value = next(rest, None) if n == DYNAMIC_INDEX else None
        number = int(n) if value is None else constant_int(value)
        numbers.append(DYNAMIC_INDEX if number is None else number)
        left += [value] if value is not None and number is None else []
    return numbers, left


LISTS: dict[str, str] = {
    BroadcastOp.name: "root",
    GatherOp.name: "root",
    ReduceOp.name: "root",
    ScatterOp.name: "root",
    SendOp.name: "destination",
    RecvOp.name: "source",
    UpdateHaloOp.name: "static_halo_sizes",
}


def known_numbers(f: Folding, op: Operation) -> SSAValue | None:
    """A device or a halo given by a value that is a constant is given by the constant."""
    name = LISTS[op.name]
    attribute: Any = op.properties.get(name)
    if attribute is None:
        return None
    numbers, values = _fill(attribute.get_values(), op.operands[1:])
    if len(values) == len(op.operands) - 1:
        return None
    op.properties[name] = ints_attribute(numbers, name)
    op.operands = [op.operands[0], *values]
    return op.results[0]


def known_sharding(f: Folding, op: ShardingOp) -> SSAValue | None:
    """Constants in a sharding are written down; halos of no width and offsets of equal shards are left out."""
    halos, open_halos = _fill(op.static_halo_sizes.get_values(), op.dynamic_halo_sizes)
    offsets, open_offsets = _fill(op.static_sharded_dims_offsets.get_values(), op.dynamic_sharded_dims_offsets)
    if not open_offsets and _are_equal(f, op, offsets):
        offsets = []
    new = ShardingOp(
        op.grid,
        op.split_axes,
        open_offsets,
        open_halos,
        static_sharded_dims_offsets=offsets,
        static_halo_sizes=halos if any(halos) else [],
    )
    if new.properties == op.properties:
        new.erase()
        return None
    new.attributes = dict(op.attributes)
    return f.add(new)


def _are_equal(f: Folding, op: ShardingOp, offsets: list[int]) -> bool:
    shape, rest = f.grids.shapes[op.grid_name], list(offsets)
    for axes in filter(None, split_dims(op.split_axes)):
        parts = prod(shape[a] for a in axes)
        row, rest = rest[: parts + 1], rest[parts + 1 :]
        if len({b - a for a, b in pairwise(row)}) > 1:
            return False
    return True
