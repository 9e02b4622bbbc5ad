"""Running sums from either end of a dim."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise import DeviceMesh, P, ReduceOp, shard
from shardwise.prim.arithmetic.cumulate import cumulate
from tests.ops.cases import agrees, sent, tensors, transposed

MESH = DeviceMesh((2, 4), ("x", "y"))
RANKED = st.lists(st.integers(0, 7), min_size=1, max_size=3).map(tuple)


@given(st.data(), tensors(RANKED, ["float64", "float32", "int64", "uint8", "complex64", "float16", "bfloat16"]))
def test_running_sums_from_either_end(data, x):
    dim, reverse = data.draw(st.integers(0, x.ndim - 1)), data.draw(st.booleans())

    def theirs(v):
        v = np.flip(v, dim) if reverse else v
        out = np.cumsum(v, dim, dtype=v.dtype)
        return np.flip(out, dim) if reverse else out

    exact = x.layout.reduce_op is not ReduceOp.AVG  # averages are no whole numbers
    made = agrees(lambda x: cumulate(x, dim=dim, reverse=reverse), theirs, x, exact=exact)
    assert made.layout is x.layout.resolved().without_halo()
    if x.dtype == np.float64:
        transposed(lambda x: cumulate(x, dim=dim, reverse=reverse), x)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("size", [0, 1, 3, 8, 1000])
def test_each_device_receives_the_totals_of_the_others(size, reverse):
    x = shard(np.arange(float(size)), MESH, P(("x", "y")))
    assert sent(lambda: cumulate(x, dim=0, reverse=reverse))[1] == 8 * 7 * 8
    whole = shard(np.arange(float(size)), MESH, P())
    assert sent(lambda: cumulate(whole, dim=0, reverse=reverse))[1] == 0


def test_negative_zeros_stay_negative_from_either_end():
    x = shard(np.full(5, -0.0), MESH, P(("x", "y")))
    for reverse in (False, True):
        assert np.signbit(cumulate(x, dim=0, reverse=reverse).numpy()).all()


def test_nan_and_inf_reach_what_comes_after_them_only():
    value = np.array([1.0, 2.0, np.inf, 4.0, np.nan, 6.0])
    got = cumulate(shard(value, MESH, P("y")), dim=0, reverse=False).numpy()
    assert np.array_equal(got, np.cumsum(value), equal_nan=True)
