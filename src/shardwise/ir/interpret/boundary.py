"""Boundaries: how the arguments and results of a function are spread, and whole arrays cut and put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from shardwise.errors import ProgramError, seal
from shardwise.ir.interpret.constants import constant
from shardwise.ir.interpret.positions import POSITIONS
from shardwise.ir.module.groups import group_of
from shardwise.ir.module.program import Program, Scope
from shardwise.ir.module.shardings import Sharding
from shardwise.ir.module.values import Poisoned, Value, defined, type_text
from shardwise.ir.shard import ShardingOp, ShardOp


@seal
@dataclass(frozen=True, slots=True)
class Boundary:
    """The shardings of the arguments and of the results of a function; None is the whole on every device."""

    arguments: tuple[Sharding | None, ...]
    results: tuple[Sharding | None, ...]


def boundary_of(program: Program, function: FuncOp) -> Boundary:
    """Return how a function that is not partitioned says that its arguments and results are spread.

    An argument is spread as it is made, a result as it is seen by the return.
    """
    block = program.body(function)
    last = block.last_op
    assert last is not None, "a function ends with a return"
    arguments = [_said(program, _made(arg)) for arg in block.args]
    results = [_said(program, x.owner if isinstance(x.owner, ShardOp) else _made(x)) for x in last.operands]
    return Boundary(tuple(arguments), tuple(results))


def _made(value: SSAValue) -> ShardOp | None:
    # How a value is made or, if nothing says that, how its only kind of user sees it.
    found = [use.operation for use in value.uses if isinstance(use.operation, ShardOp) and use.index == 0]
    makers = [op for op in found if not op.annotate_for_users]
    if makers:
        return makers[0]
    return found[0] if len(found) == len(list(value.uses)) == 1 else None


def _said(program: Program, op: ShardOp | None) -> Sharding | None:
    if op is None:
        return None
    maker = op.sharding.owner
    sizes = [_constant(x) for x in maker.operands] if isinstance(maker, ShardingOp) else []
    if not isinstance(maker, ShardingOp) or None in sizes:
        raise ProgramError(
            f"the sharding of {op.src.type} depends on values, so arrays cannot be cut by it before the program runs.\n"
            "  use constant halos and offsets for arguments and results."
        )
    if "partial_axes" in maker.attributes:
        raise ProgramError(f"{op.src.type} is still to be reduced, so no device holds its part of the whole.")
    return POSITIONS[maker.name](Scope(program), maker, sizes)[0]


def _constant(value: SSAValue) -> Value:
    made = value.owner
    return constant(made) if isinstance(made, Operation) and made.name == "arith.constant" else None


# -- arrays ----------------------------------------------------------------------------------------------


def cut(array: np.ndarray, sharding: Sharding | None, devices: int) -> list[np.ndarray]:
    """Return what each device holds of a whole array; halos that reach outside are zero.

    >>> [x.tolist() for x in cut(np.arange(3), Sharding("g", (2,), ((0,),)), 2)]
    [[0, 1], [2]]
    """
    if sharding is None:
        return [array] * devices
    return [_region(array, sharding.box(array.shape, device)) for device in range(devices)]


def _region(array: np.ndarray, box: Sequence[tuple[int, int]]) -> np.ndarray:
    inside = tuple(slice(max(a, 0), min(b, n)) for (a, b), n in zip(box, array.shape, strict=True))
    outside = [(max(-a, 0), max(b - n, 0)) for (a, b), n in zip(box, array.shape, strict=True)]
    return np.pad(array[inside], outside) if any(map(any, outside)) else array[inside]


def owned(value: Value, sharding: Sharding | None, shape: Sequence[int], device: int) -> Value:
    """Return the part of what a device holds that it owns: without the halo."""
    if sharding is None:
        return value
    held, own = sharding.box(shape, device), sharding.owned(shape, device)
    wanted = tuple(b - a for a, b in held)
    if np.shape(value.data if isinstance(value, Poisoned) else value) != wanted:
        raise ProgramError(f"device {device} returns {type_text(value)}, but its shard has the shape {list(wanted)}.")
    where = tuple(slice(a - start, b - start) for (a, b), (start, _) in zip(own, held, strict=True))
    if isinstance(value, Poisoned):
        mask = value.mask[where]
        return Poisoned(value.data[where], mask, value.origin) if mask.any() else value.data[where]
    return value[where]


def joined(shards: Sequence[Value], sharding: Sharding | None, what: str) -> np.ndarray:
    """Return the whole of which devices hold shards.

    >>> joined([np.array([0, 1]), np.array([2])], Sharding("g", (2,), ((0,),)), "result 0")
    array([0, 1, 2])
    """
    if sharding is None:
        return defined(shards[0], f"{what} on device 0")
    shape = _whole_shape([x.shape for x in shards], sharding)
    out = np.empty(shape, shards[0].dtype)
    for device, shard in enumerate(shards):
        part = defined(owned(shard, sharding, shape, device), f"{what} on device {device}")
        out[tuple(slice(a, b) for a, b in sharding.owned(shape, device))] = part
    return out


def _whole_shape(shapes: Sequence[tuple[int, ...]], sharding: Sharding) -> tuple[int, ...]:
    # The sizes of what the devices along each split dim own, added up.
    out, halos = list(shapes[0]), list(sharding.halos)
    for dim, axes in enumerate(sharding.split_axes):
        if axes:
            halo = halos.pop(0) + halos.pop(0) if halos else 0
            members = group_of(sharding.grid_shape, axes, 0).devices
            out[dim] = sum(shapes[device][dim] - halo for device in members)
    return tuple(out)
