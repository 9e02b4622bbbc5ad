"""Folding: what rules of simplification ask, and where the ops they make go."""

import pytest
from xdsl.dialects import arith
from xdsl.dialects.builtin import i32
from xdsl.ir import Operation

from shardwise.ir import parse_module
from shardwise.ir.passes.folding import Folding, axes_of, maker
from shardwise.ir.passes.layouts import grids_of
from shardwise.ir.passes.replication import Replication
from shardwise.ir.shard import AllGatherOp, AllReduceOp

TEXT = """
shard.grid @g(shape = 2x3)
shard.grid @open(shape = 2x?)
func.func @f(%x: tensor<6xi32>, %y: tensor<?xf32>, %n: i32) -> tensor<6xi32> {
  %once = shard.all_reduce %x on @g grid_axes = [1, 0] : tensor<6xi32> -> tensor<6xi32>
  %twice = shard.all_reduce %once on @g grid_axes = [1] : tensor<6xi32> -> tensor<6xi32>
  %alone = shard.all_reduce %twice on @g grid_axes = [] : tensor<6xi32> -> tensor<6xi32>
  %unknown = shard.all_reduce %twice on @open grid_axes = [1] : tensor<6xi32> -> tensor<6xi32>
  return %alone : tensor<6xi32>
}
"""


def setting() -> tuple[Folding, dict[str, AllReduceOp]]:
    module = parse_module(TEXT)
    found = {op.results[0].name_hint or "": op for op in module.walk() if isinstance(op, AllReduceOp)}
    grids = grids_of(module)
    return Folding(grids, Replication(grids), found["alone"]), found


def test_axes_and_how_many_devices_they_have() -> None:
    f, ops = setting()
    assert [axes_of(op) for op in ops.values()] == [(1, 0), (1,), (), (1,)]
    assert [f.count(op) for op in ops.values()] == [6, 3, 1, None]


def test_the_maker_of_a_value_is_found_if_nobody_else_uses_it() -> None:
    _, ops = setting()
    assert maker(ops["once"].results[0], AllReduceOp) is ops["once"]
    assert maker(ops["once"].results[0], AllGatherOp) is None
    assert maker(ops["twice"].results[0], AllReduceOp) is None  # used twice
    assert maker(ops["twice"].results[0], AllReduceOp, alone=False) is ops["twice"]
    assert maker(ops["unknown"].results[0], AllReduceOp) is None  # used by nobody
    assert maker(ops["once"].operands[0], AllReduceOp) is None  # an argument


def test_ops_go_before_the_one_that_is_looked_at_and_have_its_place() -> None:
    f, ops = setting()
    made = f.add(arith.ConstantOp.from_int_and_width(3, i32))
    assert made.owner is ops["alone"].prev_op
    assert isinstance(made.owner, Operation)
    assert made.owner.location == ops["alone"].location


@pytest.mark.parametrize("name", ["once", "twice"])
def test_a_group_outside_of_the_grid_has_no_known_size(name: str) -> None:
    f, ops = setting()
    lost = Folding(grids_of(parse_module("shard.grid @g(shape = 2)")), f.replication, f.op)
    assert lost.count(ops[name]) is None
