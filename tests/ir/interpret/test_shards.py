"""Whole arrays are cut as layouts say, and put together again."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise.errors import ProgramError
from shardwise.ir.interpret.shards import cut, join
from shardwise.ir.module.shardings import Sharding
from shardwise.ir.module.values import undefined_tensor

SHARDINGS = [((), ()), ((0,), ()), ((1,), (0,)), ((0, 1), ()), ((), (1, 0))]


@given(st.sampled_from(SHARDINGS), st.integers(0, 20), st.integers(0, 20), st.integers(0, 2), st.integers(0, 2))
def test_what_is_cut_can_be_put_together(axes, rows, columns, low, high):
    if min(rows, columns) < 12:  # a halo is no wider than a neighbour's shard
        low = high = 0
    x = np.arange(rows * columns).reshape(rows, columns)
    split = sum(map(bool, axes))
    layout = Sharding("g", (2, 3), axes, halos=(low, high) * split).layout(2)
    shards = cut(x, layout, 6)
    np.testing.assert_array_equal(join(shards, layout, "x"), x)
    # Every device holds its box of the padded array: that is what NumPy's own padding gives.
    padded = np.pad(x, [(low, high) if a else (0, 0) for a in axes])
    for device, shard in enumerate(shards):
        start = [a + (low if dim else 0) for (a, _), dim in zip(layout.held_box(x.shape, device), axes, strict=True)]
        where = tuple(slice(a, a + n) for a, n in zip(start, shard.shape, strict=True))
        np.testing.assert_array_equal(shard, padded[where])


def test_the_whole_of_what_nobody_defines_is_an_error():
    layout = Sharding("g", (2,), ((0,),)).layout(1)
    shards = [np.zeros(2), undefined_tensor((1,), np.dtype("float64"), "shard.shift (%y) at line 3")]
    with pytest.raises(ProgramError) as error:
        join(shards, layout, "result 0")
    assert str(error.value) == "result 0 on device 1 is undefined: shard.shift (%y) at line 3 left it so."
