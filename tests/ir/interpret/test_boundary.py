"""Whole arrays are cut as shardings say, and put together again."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise.errors import ProgramError
from shardwise.ir import parse_module
from shardwise.ir.interpret.boundary import boundary_of, cut, joined
from shardwise.ir.module.program import program_of
from shardwise.ir.module.shardings import Sharding
from shardwise.ir.module.values import undefined

SHARDINGS = [((), ()), ((0,), ()), ((1,), (0,)), ((0, 1), ()), ((), (1, 0))]


@given(st.sampled_from(SHARDINGS), st.integers(0, 20), st.integers(0, 20), st.integers(0, 2), st.integers(0, 2))
def test_what_is_cut_can_be_put_together(axes, rows, columns, low, high):
    if min(rows, columns) < 12:  # a halo is no wider than a neighbour's shard
        low = high = 0
    x = np.arange(rows * columns).reshape(rows, columns)
    split = sum(map(bool, axes))
    sharding = Sharding("g", (2, 3), axes, halos=(low, high) * split)
    shards = cut(x, sharding, 6)
    np.testing.assert_array_equal(joined(shards, sharding, "x"), x)
    # Every device holds its box of the padded array: that is what NumPy's own padding gives.
    padded = np.pad(x, [(low, high) if a else (0, 0) for a in axes])
    for device, shard in enumerate(shards):
        start = [a + (low if dim else 0) for (a, _), dim in zip(sharding.box(x.shape, device), axes, strict=True)]
        where = tuple(slice(a, a + n) for a, n in zip(start, shard.shape, strict=True))
        np.testing.assert_array_equal(shard, padded[where])


def test_the_whole_of_what_nobody_defines_is_an_error():
    sharding = Sharding("g", (2,), ((0,),))
    shards = [np.zeros(2), undefined((1,), np.dtype("float64"), "shard.shift (%y) at line 3")]
    with pytest.raises(ProgramError) as error:
        joined(shards, sharding, "result 0")
    assert str(error.value) == "result 0 on device 1 is undefined: shard.shift (%y) at line 3 left it so."


def boundary(body: str, result: str = "%y"):
    module = parse_module(f"""
      shard.grid @g(shape = 2x3)
      func.func @f(%x: tensor<6x6xf32>, %n: i64) -> tensor<6x6xf32> {{
        %rows = shard.sharding @g split_axes = [[0]] : !shard.sharding
        %columns = shard.sharding @g split_axes = [[], [1, 0]] : !shard.sharding
        %open = shard.sharding @g split_axes = [[0]] halo_sizes = [%n, 1] : !shard.sharding
        {body}
        return {result} : tensor<6x6xf32>
      }}""")
    program = program_of(module)
    return boundary_of(program, program.function("f"))


ROWS, COLUMNS = Sharding("g", (2, 3), ((0,),)), Sharding("g", (2, 3), ((), (1, 0)))


def test_arguments_lie_as_they_are_made_and_results_as_they_are_seen():
    found = boundary("""%a = shard.shard %x to %rows : tensor<6x6xf32>
        %y = shard.shard %a to %columns annotate_for_users : tensor<6x6xf32>""")
    assert found.arguments == (ROWS, None)
    assert found.results == (COLUMNS,)


def test_one_user_annotation_says_how_an_argument_lies():
    found = boundary("%y = shard.shard %x to %rows annotate_for_users : tensor<6x6xf32>")
    assert found.arguments == (ROWS, None)


def test_what_nothing_is_said_about_is_whole():
    found = boundary("%y = arith.addf %x, %x : tensor<6x6xf32>")
    assert found.arguments == (None, None)
    assert found.results == (None,)


def test_constants_may_be_values():
    found = boundary("""%c = arith.constant 2 : i64
        %halo = shard.sharding @g split_axes = [[0]] halo_sizes = [%c, 1] : !shard.sharding
        %y = shard.shard %x to %halo : tensor<6x6xf32>""")
    assert found.results == (Sharding("g", (2, 3), ((0,),), halos=(2, 1)),)


def test_shardings_that_depend_on_values_cannot_cut_inputs():
    with pytest.raises(ProgramError, match="depends on values, so arrays cannot be cut by it before the program runs"):
        boundary("%y = shard.shard %x to %open : tensor<6x6xf32>")
