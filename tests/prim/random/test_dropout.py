"""Dropping elements by their place in the global tensor."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise import DeviceMesh, LayoutError, NoReshard, P, ReduceOp, current_engine, jvp, mode, shard, vjp
from shardwise.layout.placement import reductions_of
from shardwise.prim.random.dropout import PASSING, dropout
from shardwise.prim.random.generator import Key
from tests.prim.cases import FLOATS, SHAPES, assert_holds, host_meshes, layouts_for, spread

KEY = Key(1, 2)
HALF = 2**63


def mask_of(shape: tuple[int, ...]) -> np.ndarray:
    """What is kept on one device."""
    return dropout(shard(np.ones(shape), DeviceMesh((1,), ("x",)), P()), key=KEY, chance=HALF).numpy() != 0


@given(st.data(), SHAPES, st.sampled_from([*FLOATS, np.dtype("complex64")]))
def test_what_is_kept_does_not_depend_on_the_layout(data: st.DataObject, shape: tuple[int, ...], dtype: np.dtype):
    op = data.draw(st.sampled_from([None, *reductions_of(dtype)]))
    layout = data.draw(layouts_for(data.draw(host_meshes()), shape, op=op))
    x, value = spread(layout, shape, dtype)
    counters = current_engine().counters
    counters.reset()
    got = dropout(x, key=KEY, chance=HALF)
    want = np.where(mask_of(shape), value * dtype.type(2), dtype.type(0))
    passes = layout.reduce_op in PASSING
    assert_holds(got, layout if passes else layout.resolved(), want)
    assert counters.total == 0 or not passes


def test_a_pending_product_is_resolved_first_because_each_term_would_be_scaled():
    x = shard(np.full(64, 3.0), DeviceMesh((2,), ("x",)), P(unreduced={"x": ReduceOp.PROD}))
    got = dropout(x, key=KEY, chance=HALF)
    assert set(got.numpy()) == {0.0, 6.0}
    assert not got.layout.partial


def test_dropped_elements_are_zero_whatever_they_were():
    value = np.full(100, np.nan)
    got = dropout(shard(value, DeviceMesh((4,), ("x",)), P("x")), key=KEY, chance=HALF).numpy()
    assert np.array_equal(got == 0, ~mask_of((100,)))
    assert np.isnan(got[mask_of((100,))]).all()


@pytest.mark.parametrize("layout", [P("x"), P(None, "x"), P(unreduced=["x"]), P()])
def test_both_derivatives_use_the_same_mask(layout: P):
    mesh, rng = DeviceMesh((3,), ("x",)), np.random.default_rng(0)
    x = shard(rng.standard_normal((8, 9)), mesh, layout)
    change, mask = rng.standard_normal((8, 9)), mask_of((8, 9))

    def fn(x):
        return dropout(x, key=KEY, chance=HALF)

    out, back = vjp(fn, x)
    assert np.array_equal(out.numpy() != 0, mask)
    assert np.array_equal(back(change)[0].numpy(), np.where(mask, 2 * change, 0))
    assert np.array_equal(jvp(fn, (x,), (change,))[1].numpy(), np.where(mask, 2 * change, 0))
    twice = vjp(lambda x: vjp(lambda y: fn(y) * y, x)[1](np.ones((8, 9)))[0], x)[1](change)[0]
    assert np.allclose(twice.numpy(), np.where(mask, 4 * change, 0))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_torch_tensors_are_dropped_alike(dtype: str):
    torch = pytest.importorskip("torch")
    value = torch.ones((6, 7), dtype=getattr(torch, dtype))
    got = dropout(shard(value, DeviceMesh((2, 2), ("x", "y")), P("x", "y")), key=KEY, chance=HALF)
    assert str(got.arrays[0].dtype) == f"torch.{dtype}"
    assert np.array_equal(got.numpy().astype("float32"), 2 * mask_of((6, 7)))


def test_what_resolving_a_product_sends_is_said_in_the_name_of_dropout():
    x = shard(np.full(64, 3.0), DeviceMesh((2,), ("x",)), P(unreduced={"x": ReduceOp.PROD}))
    with mode(NoReshard()), pytest.raises(LayoutError, match=r"dropout at .* reshards its operands"):
        dropout(x, key=KEY, chance=HALF)
