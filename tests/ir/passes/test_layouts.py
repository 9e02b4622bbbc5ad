"""Shardings are layouts, and layouts shardings: there and back."""

import random

import pytest
from xdsl.dialects.builtin import DYNAMIC_INDEX, f32
from xdsl.ir import Block

from shardwise.errors import ProgramError
from shardwise.ir import parse_module
from shardwise.ir.passes.layouts import Grids, grids_of, is_sayable, local_type, sharding_of
from shardwise.ir.shard import ShardingOp
from shardwise.layout.cut import Cut
from shardwise.layout.layout import Layout
from tests.ir.passes.programs import Program

GRIDS = Grids({"g": (2, 3, 2)})
MESH = GRIDS.mesh("g")


@pytest.mark.parametrize("seed", range(60))
def test_there_and_back(seed):
    rng = random.Random(seed)
    shape = tuple(rng.choice((1, 4, 7, 12)) for _ in range(rng.randint(1, 3)))
    writer = Program(rng, (2, 3, 2), details=True)
    name = writer.sharding(shape)
    module = parse_module("\n".join(["shard.grid @g(shape = 2x3x2)", *writer.lines]))
    op = module.body.block.last_op
    assert isinstance(op, ShardingOp)
    assert name == f"%{op.result.name_hint}"
    layout = GRIDS.layout(op.result, len(shape))
    again = sharding_of(layout, shape)
    assert GRIDS.layout(again.result, len(shape)) is layout
    for device in range(MESH.num_devices):  # the type of a shard says what all devices have in common
        sizes = local_type(layout, shape, f32).get_shape()
        pairs = zip(sizes, layout.local_shape(shape, device), strict=True)
        assert all(known in (DYNAMIC_INDEX, size) for known, size in pairs)


def test_bounds_that_are_not_said_are_those_of_equal_shards():
    layout = Layout(MESH, [Cut("axis0", offsets=(0, 1, 4)), Cut("axis1")])
    op = sharding_of(layout, (4, 7))
    assert op.static_sharded_dims_offsets.get_values() == (0, 1, 4, 0, 3, 5, 7)


def test_halos_and_offsets_exclude_each_other():
    assert is_sayable(Layout(MESH, [Cut("axis0", halo=(1, 1), edge="pad"), Cut("axis1")]))
    assert not is_sayable(Layout(MESH, [Cut("axis0", halo=(1, 1), edge="pad"), Cut("axis1", offsets=(0, 1, 1, 4))]))


def test_grids_of_a_module():
    module = parse_module("shard.grid @a(shape = 2x?)\nshard.grid @b(shape = 3)")
    assert grids_of(module).shapes == {"a": (2, -1), "b": (3,)}
    assert grids_of(module, {"a": (2, 4)}).shapes == {"a": (2, 4), "b": (3,)}


def test_partial_axes_of_llvm_19():
    module = parse_module(
        """
mesh.mesh @g(shape = 2x3x2)
%t = "test.op"() : () -> tensor<4xf32>
%0 = mesh.shard %t to <@g, [[0]], partial = max[2]> : tensor<4xf32>
""",
        allow_unregistered=True,
    )
    op = next(op for op in module.walk() if isinstance(op, ShardingOp))
    layout = GRIDS.layout(op.result, 1)
    assert str(layout) == "[axis0] max(axis2)"
    assert GRIDS.layout(sharding_of(layout, (4,)).result, 1) is layout


def test_shardings_that_are_arguments():
    block = Block(arg_types=[sharding_of(Layout(MESH, ["axis0"]), (4,)).result.type])
    with pytest.raises(ProgramError, match=r"a sharding is not made by shard\.sharding"):
        GRIDS.layout(block.args[0], 1)
