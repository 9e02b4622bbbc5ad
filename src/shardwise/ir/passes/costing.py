"""Costs: what a module sends between devices, how long that takes under a model of the links, and what it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import TypeVar

import numpy as np
from xdsl.dialects import tensor
from xdsl.dialects.builtin import DYNAMIC_INDEX, ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue

from shardwise.errors import seal
from shardwise.ir.module.program import is_partitioned
from shardwise.ir.module.values import dtype_of
from shardwise.ir.passes.device_numbers import DeviceNumbers
from shardwise.ir.passes.folding import axes_of
from shardwise.ir.passes.layouts import Grids, grids_of, numbers
from shardwise.ir.passes.partitioning import partition_with_plans
from shardwise.ir.place import place_of
from shardwise.ir.shard import CollectiveOperation, RecvOp, UpdateHaloOp
from shardwise.ir.shard.attributes import split_dims
from shardwise.ir.types import is_tensor
from shardwise.layout.mesh import DeviceMesh
from shardwise.plan.cost import Link, Links, move_time
from shardwise.plan.steps import Step

Number = TypeVar("Number", int, float)


@seal
@dataclass(frozen=True, slots=True)
class Line:
    """One collective: where and what it is, over which grid axes, and its bytes and seconds; None is not known."""

    place: int  # the line of the op that needs it
    name: str
    grid: str
    axes: tuple[int, ...]
    received: int | None  # by the device that receives most
    total: int | None
    time: float | None


@seal
@dataclass(frozen=True, slots=True)
class Cost:
    """What a module costs: its collectives, and the bytes that one device holds at most at a time.

    Every value has memory of its own, from where it is made to where it is last used.
    """

    lines: tuple[Line, ...]
    memory: int | None

    @property
    def total(self) -> int | None:
        """The bytes between all devices."""
        return _sum([line.total for line in self.lines])

    @property
    def received(self) -> int | None:
        """The bytes that a device receives at most."""
        return _sum([line.received for line in self.lines])

    @property
    def time(self) -> float | None:
        """The seconds of all collectives, one after another."""
        return _sum([line.time for line in self.lines])


def _sum(terms: Sequence[Number | None]) -> Number | None:
    # Not known where a term is not.
    known = [term for term in terms if term is not None]
    return sum(known) if len(known) == len(terms) else None  # type: ignore[return-value]


def cost(module: ModuleOp, links: Links | Mapping[str, Link] | Link | None = None) -> Cost:
    """Return what a module costs; one on whole tensors is partitioned for that.

    Links are per grid axis, called axis0, axis1, ...

    >>> from shardwise.ir.text import parse_module
    >>> costs = cost(
    ...     parse_module('''
    ... shard.grid @g(shape = 4)
    ... func.func @f(%x: tensor<2xf32>) -> tensor<8xf32> {
    ...   %0 = shard.all_gather %x on @g grid_axes = [0] gather_axis = 0 : tensor<2xf32> -> tensor<8xf32>
    ...   return %0 : tensor<8xf32>
    ... }''')
    ... )
    >>> costs.received, costs.total, costs.memory
    (24, 96, 40)
    """
    model, grids = Links.of(links), grids_of(module)
    if is_partitioned(module) or not grids.shapes:
        return Cost(tuple(_lines(module, grids, model)), _memory(module, {}))
    partition = partition_with_plans(module)
    lines = [
        _planned_line(move.op, step, move.plan.src.mesh, model)
        for move in partition.moves
        for step in move.steps
        if not step.is_local
    ]
    return Cost(tuple(lines), _memory(partition.module, partition.largest))


def _planned_line(op: Operation, step: Step, mesh: DeviceMesh, links: Links) -> Line:
    levels = links.on(mesh, step.axes) or [(mesh.num_devices, links.default)]
    time = sum(move_time(levels, size) for size in step.loads)
    received = step.received
    return Line(
        place_of(op).line or 0, step.kind, mesh.name, tuple(numbers(step.axes)), received.max, received.total, time
    )


# -- modules that are partitioned already ----------------------------------------------------------------

# The bytes that a device of a group of n receives, of those of its operand and its result, and how many do.
Count = Callable[[int, int, int], tuple[int, int]]
COUNTS: dict[str, Count] = {
    "shard.all_gather": lambda n, a, b: (b - a, n),
    "shard.all_reduce": lambda n, a, b: (2 * b * (n - 1) // n, n),
    "shard.all_to_all": lambda n, a, b: (b * (n - 1) // n, n),
    "shard.broadcast": lambda n, a, b: (b, n - 1),
    "shard.gather": lambda n, a, b: (b - a, 1),
    "shard.recv": lambda n, a, b: (b, n),
    "shard.reduce": lambda n, a, b: (b * (n - 1), 1),
    "shard.reduce_scatter": lambda n, a, b: (b * (n - 1), n),
    "shard.scatter": lambda n, a, b: (b, n - 1),
    "shard.shift": lambda n, a, b: (b, n),
}


def _lines(module: ModuleOp, grids: Grids, links: Links) -> Iterator[Line]:
    places = {
        name: DeviceNumbers(grids.mesh(name)) for name, shape in grids.shapes.items() if min(shape, default=0) > 0
    }
    for op in module.walk():
        if isinstance(op, UpdateHaloOp):
            yield _halo_line(op, grids, links)
        elif isinstance(op, RecvOp) and (each := _received(op, places.get(op.grid_name))) is not None:
            mesh = grids.mesh(op.grid_name)
            yield _line(op, mesh, axes_of(op), int(each.max()), int(each.sum()), links)
        elif isinstance(op, CollectiveOperation) and op.name in COUNTS:
            axes = axes_of(op)
            mesh = grids.mesh(op.grid_name)
            count = prod(mesh.mesh_shape[a] for a in axes)
            a, b = size_of(op.operands[0]), size_of(op.results[0])
            received, receivers = (None, 0) if a is None or b is None else COUNTS[op.name](count, a, b)
            total = None if received is None else received * receivers * (mesh.num_devices // count)
            yield _line(op, mesh, axes, received, total, links)


def _received(op: RecvOp, numbers: DeviceNumbers | None) -> np.ndarray | None:
    # The bytes that each device receives: some may have nothing to do, and parts may differ in size.
    room, kind = op.operands[0].owner, op.results[0].type
    each = None if numbers is None else numbers.doing(op)
    if numbers is None or each is None or not is_tensor(kind):
        return None
    sizes: list[np.ndarray | int | None] = [n for n in kind.get_shape() if n != DYNAMIC_INDEX]
    if len(sizes) < len(kind.get_shape()):
        sizes += map(numbers.of, room.dynamic_sizes) if isinstance(room, tensor.EmptyOp) else [None]
    each = each * dtype_of(kind).itemsize
    for size in sizes:
        if size is None:
            return None
        each = each * size
    return each


def _line(
    op: Operation, mesh: DeviceMesh, axes: tuple[int, ...], received: int | None, total: int | None, links: Links
) -> Line:
    levels = links.on(mesh, [mesh.axis(f"axis{a}") for a in axes])
    time = None if received is None else move_time(levels, received)
    name = op.name.removeprefix("shard.")
    return Line(place_of(op).line or 0, name, mesh.name, axes, received, total, time)


def _halo_line(op: UpdateHaloOp, grids: Grids, links: Links) -> Line:
    # Each device is taken to have neighbours on both sides.
    mesh = grids.mesh(op.grid_name)
    lists = split_dims(op.split_axes)
    halos, whole = list(op.static_halo_sizes.get_values()), size_of(op.destination)
    inner = list(op.destination.type.get_shape()) if is_tensor(op.destination.type) else []
    for dim, axes in enumerate(lists):
        if axes and halos:
            inner[dim] -= int(halos.pop(0)) + int(halos.pop(0))
    item = dtype_of(op.destination.type).itemsize
    known = None if whole is None or op.halo_sizes else whole - prod(inner) * item
    used = tuple(sorted({a for axes in lists for a in axes}))
    return _line(op, mesh, used, known, None if known is None else known * mesh.num_devices, links)


# -- memory ----------------------------------------------------------------------------------------------


def size_of(value: SSAValue) -> int | None:
    """Return the bytes of a value: none if it is no tensor, None if its size is not known."""
    if not is_tensor(value.type):
        return 0
    shape = value.type.get_shape()
    return None if DYNAMIC_INDEX in shape else prod(shape) * dtype_of(value.type).itemsize


def _memory(module: ModuleOp, largest: Mapping[SSAValue, int]) -> int | None:
    peaks = [
        _peak(op.body.blocks[0], largest) for op in module.body.block.ops if isinstance(op, FuncOp) and op.body.blocks
    ]
    return None if None in peaks else max((n for n in peaks if n is not None), default=0)


def _peak(block: Block, largest: Mapping[SSAValue, int]) -> int | None:
    # Each value from its op to its last use; what ops have inside comes on top.
    places = {op: k for k, op in enumerate(block.ops)}
    changes = [0] * (len(places) + 2)  # before the first op, at each op, and after the last
    for value in [*block.args, *(x for op in places for x in op.results)]:
        size = size_of(value) if value not in largest else largest[value]
        if size is None:
            size = _largest_known(value, largest)
        if size is None:
            return None
        start = places[value.owner] + 1 if isinstance(value.owner, Operation) else 0
        uses = [block.find_ancestor_op_in_block(use.operation) for use in value.uses]
        last = max((places[op] + 1 for op in uses if op is not None), default=start)
        changes[start] += size
        changes[last + 1] -= size
    live = list(accumulate(changes))
    inner = [max((_peak(child, largest) or 0 for child in _bodies(op)), default=0) for op in places]
    return max(live[0], *(own + inside for own, inside in zip(live[1:], inner, strict=False)), 0)


def _bodies(op: Operation) -> list[Block]:
    if op.name.startswith(("linalg.", "tensor.")):
        return []
    return [block for region in op.regions for block in region.blocks]


def _largest_known(value: SSAValue, largest: Mapping[SSAValue, int]) -> int | None:
    # A piece is not larger than what it is taken from, nor what is filled than what it is to be.
    return max((largest[x] for x in _near(value) if x in largest), default=None)


def _near(value: SSAValue) -> Iterator[SSAValue]:
    seen: set[SSAValue] = set()
    stack = [value]
    while stack and len(seen) < 64:
        x = stack.pop()
        if x in seen:
            continue
        seen.add(x)
        yield x
        if isinstance(x.owner, Operation):
            stack += [y for y in x.owner.operands if is_tensor(y.type)]
        stack += [r for use in x.uses for r in use.operation.results if is_tensor(r.type)]
