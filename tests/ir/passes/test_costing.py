"""Costs: bytes are the planner's and those of a run, time follows the links, memory is what lives at once."""

import pytest

from shardwise.ir import parse_module
from shardwise.ir.passes import cost, partition
from shardwise.ir.passes.partitioning import partition_with_plans
from shardwise.plan.cost import Link, Links
from tests.ir.passes.transitions import module_of, planned, transitions

WHOLE = """shard.grid @g(shape = 2x4)
func.func @f(%x: tensor<8x8xf32>, %w: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %a = shard.sharding @g split_axes = [[0], [1]] : !shard.sharding
  %b = shard.sharding @g split_axes = [[1], []] : !shard.sharding
  %c = shard.sharding @g split_axes = [[0], []] : !shard.sharding
  %0 = shard.shard %x to %a : tensor<8x8xf32>
  %1 = shard.shard %w to %b : tensor<8x8xf32>
  %z = arith.constant dense<0.0> : tensor<8x8xf32>
  %2 = linalg.matmul ins(%0, %1 : tensor<8x8xf32>, tensor<8x8xf32>) outs(%z : tensor<8x8xf32>) -> tensor<8x8xf32>
  %3 = shard.shard %2 to %c : tensor<8x8xf32>
  return %3 : tensor<8x8xf32>
}"""


def test_the_bytes_of_a_program():
    found = cost(parse_module(WHOLE))
    (line,) = found.lines
    assert (line.place, line.name, line.grid, line.axes) == (9, "all_reduce", "g", (1,))
    assert line.received == 2 * 3 * 128 // 4
    assert found.total == 8 * line.received
    # Operands of 32 and 64 bytes, the zeros and the product.
    assert found.memory == 32 + 64 + 2 * 128
    local = cost(partition(parse_module(WHOLE)))
    assert (local.received, local.total, local.memory) == (found.received, found.total, found.memory)


@pytest.mark.parametrize(
    ("src", "dst"),
    [(((0,), ()), ((), (0,))), (((0, 1), ()), ((), ())), (((0,), (1,)), ((1,), (0,))), (((), ()), ((1, 0), ()))],
)
@pytest.mark.parametrize("shape", [(8, 8), (7, 9)])
def test_changes_of_sharding_cost_what_the_planner_says(src, dst, shape):
    module = module_of((2, 4), shape, src, dst)
    assert cost(module).total == planned(partition_with_plans(module).moves)


def test_whoever_has_nothing_to_do_in_a_round_receives_nothing():
    known = 0
    for grid in ((2, 2), (2, 3), (4, 2)):
        for shape in ((8, 12), (7, 9)):
            for src, dst in list(transitions(grid, 2))[::5]:
                partition_ = partition_with_plans(module_of(grid, shape, src, dst))
                total = cost(partition_.module).total
                assert total in (None, planned(partition_.moves)), (grid, shape, src, dst)
                known += total is not None
    assert known > 50


def test_an_exchange_that_is_a_chain_is_listed_as_its_collectives():
    module = module_of((32, 32), (32, 32, 32), ((0,), (), (1,)), ((), (0,), ()))
    lines = [(line.name, line.axes, line.received, line.total) for line in cost(module).lines]
    assert lines == [("all_to_all", (0,), 124, 126976), ("all_gather", (1,), 3968, 4063232)]
    local = [(line.name, line.axes, line.received, line.total) for line in cost(partition(module)).lines]
    assert local == lines


def test_time_follows_the_links():
    slow, fast = Link(0, 1e3), Link(0, 1e6)
    times = [cost(parse_module(WHOLE), links).time for links in (slow, fast, Links({"axis1": fast}, slow))]
    assert times == pytest.approx([0.192, 0.000192, 0.000192])


def test_every_collective_of_a_partitioned_module():
    text = """
shard.grid @g(shape = 2x4)
func.func @f(%x: tensor<8xi8>, %u: tensor<?xi8>) -> tensor<8xi8> {
  %0 = shard.all_gather %x on @g grid_axes = [1] gather_axis = 0 : tensor<8xi8> -> tensor<32xi8>
  %1 = shard.reduce_scatter %x on @g grid_axes = [0] scatter_axis = 0 : tensor<8xi8> -> tensor<4xi8>
  %2 = shard.all_to_all %x on @g grid_axes = [1] split_axis = 0 concat_axis = 0 : tensor<8xi8> -> tensor<8xi8>
  %3 = shard.broadcast %x on @g grid_axes = [1] root = [0] : (tensor<8xi8>) -> tensor<8xi8>
  %4 = shard.gather %x on @g grid_axes = [1] gather_axis = 0 root = [0] : (tensor<8xi8>) -> tensor<32xi8>
  %5 = shard.reduce %x on @g grid_axes = [1] root = [0] : (tensor<8xi8>) -> tensor<8xi8>
  %6 = shard.scatter %x on @g grid_axes = [1] scatter_axis = 0 root = [0] : (tensor<8xi8>) -> tensor<2xi8>
  %7 = shard.shift %x on @g grid_axes = [1] shift_axis = 1 offset = 1 rotate : tensor<8xi8> -> tensor<8xi8>
  %8 = shard.update_halo %x on @g split_axes = [[0]] halo_sizes = [1, 2] : tensor<8xi8>
  %9 = shard.all_slice %x on @g grid_axes = [1] slice_axis = 0 : tensor<8xi8> -> tensor<2xi8>
  return %x : tensor<8xi8>
}"""
    lines = {line.name: (line.received, line.total) for line in cost(parse_module(text)).lines}
    assert lines == {
        "all_gather": (24, 192),
        "reduce_scatter": (4, 32),
        "all_to_all": (6, 48),
        "broadcast": (8, 48),
        "gather": (24, 48),
        "reduce": (24, 48),
        "scatter": (2, 12),
        "shift": (8, 64),
        "update_halo": (3, 24),
    }
    assert cost(parse_module(text)).memory is None  # nothing says how large %u is
