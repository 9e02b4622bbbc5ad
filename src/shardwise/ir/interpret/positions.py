"""Ops of the shard dialect that communicate nothing: grids, positions in them, shardings and local slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from xdsl.ir import Operation

from shardwise.errors import ProgramError
from shardwise.ir.module.groups import Group, group_of, piece
from shardwise.ir.module.program import Scope, fill_lists, fill_open, int_of, ints_of, op_text, property_of, symbol
from shardwise.ir.module.shardings import Sharding
from shardwise.ir.module.values import Value, move
from shardwise.ir.shard.attributes import split_dims


def grid_of(scope: Scope, op: Operation) -> tuple[int, ...]:
    """Return the shape of the grid that an op names."""
    return scope.program.grid(symbol(property_of(op, "grid")), op)


def own_group(scope: Scope, op: Operation, axes: tuple[int, ...]) -> Group:
    """Return the group of this device."""
    shape = grid_of(scope, op)
    scope.coordinates(shape, op)
    assert scope.device is not None
    return group_of(shape, axes, scope.device)


def _indices(values: Sequence[int]) -> list[Value]:
    return [np.int64(i) for i in values]


def _along_axes(op: Operation, along: Sequence[int]) -> list[int]:
    axes = ints_of(op, "axes") or range(len(along))
    return [along[a] for a in axes]


def _grid_shape(scope: Scope, op: Operation, operands: list[Value]) -> list[Value]:
    return _indices(_along_axes(op, grid_of(scope, op)))


def _multi_index(scope: Scope, op: Operation, operands: list[Value]) -> list[Value]:
    return _indices(_along_axes(op, scope.coordinates(grid_of(scope, op), op)))


def _linear_index(scope: Scope, op: Operation, operands: list[Value]) -> list[Value]:
    shape = grid_of(scope, op)
    return [np.int64(np.ravel_multi_index(scope.coordinates(shape, op), shape))]


def _number_of(op: Operation, device: Sequence[int], shape: Sequence[int]) -> int:
    # The number of a device in a grid, row-major.
    if len(device) != len(shape) or any(not 0 <= i < n for i, n in zip(device, shape, strict=True)):
        raise ProgramError(f"{op_text(op)} asks for device {list(device)} of a grid of shape {list(shape)}.")
    return int(np.ravel_multi_index(device, shape))


def _neighbors(scope: Scope, op: Operation, operands: list[Value]) -> list[Value]:
    shape = grid_of(scope, op)
    own = _number_of(op, [int(i) for i in operands], shape)
    group = group_of(shape, ints_of(op, "split_axes"), own)
    place = group.position(own)
    down = group.devices[place - 1] if place else -1
    up = group.devices[place + 1] if place + 1 < len(group.devices) else -1
    return _indices([down, up])


# -- shardings -------------------------------------------------------------------------------------------


def _sharding(scope: Scope, op: Operation, operands: list[Value]) -> list[Value]:
    offsets, halos = fill_lists(op, ("static_sharded_dims_offsets", "static_halo_sizes"), operands)
    lists = split_dims(property_of(op, "split_axes"))
    return [Sharding(symbol(property_of(op, "grid")), grid_of(scope, op), lists, halos, offsets)]


def _shard(scope: Scope, op: Operation, operands: list[Value]) -> list[Value]:
    if scope.device is not None:
        raise ProgramError(
            f"{op_text(op)} says how a whole tensor is spread, but the module runs on devices.\n  partition it first."
        )
    return operands[:1]


def _get_sharding(scope: Scope, op: Operation, operands: list[Value]) -> list[Value]:
    maker = op.operands[0].owner
    if not isinstance(maker, Operation) or maker.name != "shard.shard":
        raise ProgramError(f"{op_text(op)} asks for the sharding of a value that no shard.shard makes.")
    return [scope.values[maker.operands[1]]]


def _shard_shape(scope: Scope, op: Operation, operands: list[Value]) -> list[Value]:
    spot = next(i for i, x in enumerate(operands) if isinstance(x, Sharding))
    dims, sharding = fill_open(ints_of(op, "dims"), operands[:spot]), operands[spot]
    device = _number_of(op, fill_open(ints_of(op, "device"), operands[spot + 1 :]), sharding.grid_shape)
    return _indices(sharding.shape(dims, device))


# -- local slices ----------------------------------------------------------------------------------------


def _all_slice(scope: Scope, op: Operation, operands: list[Value]) -> list[Value]:
    group = own_group(scope, op, ints_of(op, "grid_axes"))
    assert scope.device is not None
    return [take_piece(operands[0], int_of(op, "slice_axis"), group.position(scope.device), len(group.devices))]


def take_piece(x: Value, dim: int, part: int, parts: int) -> Value:
    """Return one of the balanced pieces of a tensor along a dim."""
    where = (*(slice(None),) * dim, piece(x.shape[dim], parts, part))
    return move(lambda a: a[where], x)


def _nothing(scope: Scope, op: Operation, operands: list[Value]) -> list[Value]:
    return []


POSITIONS: dict[str, Callable[[Scope, Operation, list[Value]], list[Value]]] = {
    "shard.all_slice": _all_slice,
    "shard.get_sharding": _get_sharding,
    "shard.grid": _nothing,
    "shard.grid_shape": _grid_shape,
    "shard.neighbors_linear_indices": _neighbors,
    "shard.process_linear_index": _linear_index,
    "shard.process_multi_index": _multi_index,
    "shard.shard": _shard,
    "shard.shard_shape": _shard_shape,
    "shard.sharding": _sharding,
}
