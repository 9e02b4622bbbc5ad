"""Broadcasting against NumPy, and sums as its adjoint."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise import BindingError, DeviceMesh, Layout, P, jvp, shard, vjp
from shardwise.prim.arithmetic.broadcast import broadcast, broadcast_shape, operand_layout, sum_to, unbroadcast
from shardwise.prim.tensor import asarray
from tests.prim.cases import assert_holds, held, host_meshes, layouts_for, same, spread


@st.composite
def shapes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A shape, and one that broadcasts to it."""
    full = tuple(draw(st.lists(st.integers(0, 5), max_size=3)))
    kept = full[draw(st.integers(0, len(full))) :]
    return full, tuple(1 if draw(st.booleans()) else size for size in kept)


@given(st.data())
def test_broadcast_repeats_and_sum_to_adds_up_again(data: st.DataObject) -> None:
    mesh = data.draw(host_meshes())
    full, small = data.draw(shapes())
    x, want = spread(data.draw(layouts_for(mesh, small)), small)
    target = data.draw(layouts_for(mesh, full, halo=False))
    y = broadcast(x, layout=target, shape=full)
    assert_holds(y, target, np.broadcast_to(want, full))
    z, value = spread(data.draw(layouts_for(mesh, full)), full, seed=3)
    total = sum_to(z, shape=small)
    lead = len(full) - len(small)
    dims = tuple(k for k in range(len(full)) if k < lead or small[k - lead] != full[k])
    assert same(total.numpy(), value.sum(dims).reshape(small))
    # One is the adjoint of the other, each way.
    inner = (np.asarray(y) * value).sum()
    assert np.isclose((want * total.numpy()).sum(), inner)
    assert same(vjp(lambda x: broadcast(x, layout=target, shape=full), x)[1](value)[0].numpy(), total.numpy())
    assert same(vjp(lambda z: sum_to(z, shape=small), z)[1](want)[0].numpy(), np.broadcast_to(want, full).copy())
    assert same(jvp(lambda z: sum_to(z, shape=small), (z,), (value,))[1].numpy(), total.numpy())


def test_only_small_sums_are_sent() -> None:
    mesh = DeviceMesh((2, 4), ("a", "b"))
    x = shard(np.ones((8, 3)), mesh, P("b"))
    total = sum_to(x, shape=(3,))
    assert total.layout is Layout(mesh, [None], ["b"])
    assert [h.tolist() for h in held(total)] == [[2.0] * 3] * 8


def test_operand_layouts() -> None:
    mesh = DeviceMesh((2, 4), ("a", "b"))
    layout = Layout(mesh, ["a", "b"])
    assert operand_layout(layout, (4, 8), (8,)) is Layout(mesh, ["b"])
    assert operand_layout(layout, (4, 8), (1, 8)) is Layout(mesh, [None, "b"])
    assert operand_layout(layout, (4, 1), (4, 1)) is layout
    assert broadcast_shape((2, 1), (3,), ()) == (2, 3)
    with pytest.raises(BindingError, match=r"shapes \(2,\) and \(3,\) do not broadcast"):
        broadcast_shape((2,), (3,))


def test_what_was_not_broadcast_stays() -> None:
    x = asarray(np.ones(3))
    assert unbroadcast(x, 2.0) is x
    assert unbroadcast(x, x) is x
    assert same(unbroadcast(x, asarray(1.0)).numpy(), np.array(3.0))
