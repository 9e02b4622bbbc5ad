"""By hand: every way to write a reshard or a sum gives the same, in buffers of its own."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.byhand import block, reshards, sums, whole
from benchmarks.local import CHANGES, by_hand

PARTS = st.sampled_from([(1, 1), (2, 1), (1, 4), (2, 4), (4, 2), (8, 1), (1, 8), (8, 8)])


@given(PARTS, PARTS)
def test_every_way_to_reshard_gives_the_tensor_each_time(src, dst):
    data = np.arange(16 * 24, dtype=np.float32).reshape(16, 24)
    assert np.array_equal(whole(block(data, src)), data)
    for call, read in reshards(data, src, dst):
        call()
        call()  # the other set of buffers
        assert np.array_equal(read(None), data)


@given(st.integers(2, 9), st.integers(1, 5))
def test_every_way_to_add_up_gives_the_sum(count, rows):
    terms = [np.full((rows, 3), float(i), np.float32) for i in range(count)]
    for call, read in sums(terms):
        call()
        assert np.array_equal(read(None), sum(terms))


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_every_change_is_written_by_hand(change):
    data = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    for call, read in by_hand(change, data):
        assert np.array_equal(read(call()), change.wanted(data))
