"""All shardings by split_axes of a grid, and modules that go from one to another."""

from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement, permutations
from math import prod

import numpy as np
from xdsl.dialects.builtin import ModuleOp, TensorType, i32
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region

from shardwise.ir import execute_on_devices, verify
from shardwise.ir.interpret.shards import cut
from shardwise.ir.module.shardings import Sharding
from shardwise.ir.passes.layouts import local_type
from shardwise.ir.passes.partitioning import Reshard, partition_with_plans
from shardwise.ir.passes.resharding import reshard
from shardwise.ir.passes.writer import Writer
from shardwise.ir.shard import GridOp, ShardingOp, ShardOp
from shardwise.layout.layout import Layout
from shardwise.layout.mesh import DeviceMesh
from tests.ir.passes.traffic import counted

Split = tuple[tuple[int, ...], ...]
GRIDS = [(2,), (2, 3), (4, 2), (2, 2, 2)]


def splits(axes: int, rank: int) -> list[Split]:
    """Every way to split the dims of a tensor by grid axes, in every order."""
    out = []
    for count in range(axes + 1):
        for order in permutations(range(axes), count):
            for dims in combinations_with_replacement(range(rank), count):
                out.append(tuple(tuple(a for a, d in zip(order, dims, strict=True) if d == k) for k in range(rank)))
    return list(dict.fromkeys(out))


def shape_for(grid: tuple[int, ...], rank: int, even: bool) -> tuple[int, ...]:
    size = prod(grid)
    return (size,) * rank if even else (size + 1, 5, 2 * size - 1)[:rank]


def transitions(grid: tuple[int, ...], rank: int) -> Iterator[tuple[Split, Split]]:
    found = splits(len(grid), rank)
    return ((a, b) for a in found for b in found if a != b)


def module_of(grid: tuple[int, ...], shape: Sequence[int], src: Split, dst: Split) -> ModuleOp:
    """A function that takes a tensor in one sharding and returns it in another."""
    kind = TensorType(i32, shape)
    block = Block(arg_types=[kind])
    a, b = (ShardingOp("g", split, None, None) for split in (src, dst))
    made = ShardOp(block.args[0], a)
    seen = ShardOp(made, b, annotate_for_users=True)
    block.add_ops([a, b, made, seen, ReturnOp(seen)])
    return ModuleOp([GridOp("g", grid), FuncOp("f", ([kind], [kind]), Region(block))])


def check(grid: tuple[int, ...], shape: tuple[int, ...], src: Split, dst: Split) -> None:
    """Partition one transition and run it: every device gets its part, and the bytes are those of the plan."""
    made_of = partition_with_plans(module_of(grid, shape, src, dst))
    local = made_of.module
    verify(local)
    whole = np.arange(prod(shape), dtype="int32").reshape(shape)
    a, b = (Sharding("g", grid, split).layout(len(shape)) for split in (src, dst))
    with counted() as traffic:
        made = execute_on_devices(local, cut(whole, a, prod(grid)))
    for device, (got, wanted) in enumerate(zip(made, cut(whole, b, prod(grid)), strict=True)):
        assert isinstance(got, np.ndarray), (device, got)
        np.testing.assert_array_equal(got, wanted, f"device {device}")
    assert traffic.bytes == planned(made_of.moves), (src, dst)


def planned(moves: Sequence[Reshard]) -> int:
    """The bytes that the planner says all devices receive; never more than they lack."""
    for move in moves:
        assert move.plan.received.total == move.plan.lower_bound.total
        assert sum(step.received.total for step in move.steps if step.moves) == move.plan.received.total
    return sum(move.plan.received.total for move in moves)


def check_sums(grid: tuple[int, ...], shape: tuple[int, ...], src: Split, partial: Sequence[int], dst: Split) -> None:
    """Bring together contributions along some grid axes while the sharding changes: the sums, by the plan's bytes."""
    mesh = DeviceMesh(grid, [f"axis{k}" for k in range(len(grid))], name="g")
    before, after = (Layout(mesh, [[f"axis{a}" for a in axes] for axes in split]) for split in (src, dst))
    before = Layout(mesh, before.dims, [f"axis{a}" for a in partial])
    block = Block(arg_types=[local_type(before, shape, i32)])
    writer = Writer(block)
    made_of = reshard(writer, block.args[0], before, after, shape)
    result, plan = made_of.value, made_of.plan
    block.add_op(ReturnOp(result))
    writer.finish(block)
    kinds = [block.args[0].type], [result.type]
    module = ModuleOp([GridOp("g", grid), FuncOp("f", kinds, Region(block))])
    verify(module)
    rng = np.random.default_rng(0)
    terms = rng.integers(-9, 10, (*(grid[a] for a in partial), *shape), dtype="int32")
    whole = terms.sum(axis=tuple(range(len(partial))), dtype="int32")
    devices = range(prod(grid))
    inputs = [_part(terms[tuple(mesh.coords(d)[a] for a in partial)], before, d) for d in devices]
    with counted() as traffic:
        made = execute_on_devices(module, inputs)
    for device, got in zip(devices, made, strict=True):
        assert isinstance(got, np.ndarray), (device, got)
        np.testing.assert_array_equal(got, _part(whole, after, device), f"device {device}")
    assert plan is not None
    assert traffic.bytes == plan.received.total, (src, partial, dst)


def _part(whole: np.ndarray, layout: Layout, device: int) -> np.ndarray:
    return whole[tuple(slice(a, b) for a, b in layout.box(whole.shape, device))]
