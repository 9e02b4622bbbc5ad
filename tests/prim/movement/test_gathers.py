"""Gathers and scatters of any layouts, each the transpose of the other."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise import AbstractEngine, BindingError, Cut, DeviceMesh, P, engine_context, jvp, shard, vjp
from shardwise.layout.placement import ReduceOp
from shardwise.prim.movement.gathers import (
    gather,
    gather_rule,
    in_a_row,
    local_positions,
    positions,
    scatter,
    scatter_rule,
)
from tests.ops.cases import agrees, sent, tensors, transposed, without_values

MESH = DeviceMesh((2, 4), ("x", "y"))
FULL = st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint64"])
def test_positions_are_counted_from_the_start(dtype):
    index = np.array([0, 5, 100], dtype)
    assert positions(index, 300).tolist() == [0, 5, 100]
    assert positions(index, 300).dtype == np.int64
    if np.dtype(dtype).kind == "i":
        assert positions(-index, 300).tolist() == [0, 295, 200]
    assert positions(np.zeros((2, 0), dtype), 0).shape == (2, 0)
    with pytest.raises(BindingError, match="index 100 is out of range for a dim of 100 elements"):
        positions(index, 100)


def test_the_index_that_is_out_of_range_is_named():
    with pytest.raises(BindingError, match="index -4 is out of range for a dim of 3 elements"):
        positions(np.array([-4, 7]), 3)


@given(st.data(), FULL)
def test_local_positions_are_those_inside_a_box(data, sizes):
    numbers = np.arange(int(np.prod(sizes)))
    boxes = tuple(tuple(sorted((data.draw(st.integers(0, n)), data.draw(st.integers(0, n))))) for n in sizes)
    inside, local = local_positions(numbers, sizes, boxes)
    part = numbers.reshape(sizes)[tuple(slice(a, b) for a, b in boxes)]
    assert set(numbers[inside]) == set(part.ravel())
    assert np.array_equal(part.ravel()[local[inside]], numbers[inside])
    assert not local[~inside].any()


def test_dims_in_a_row():
    assert in_a_row(np.ones((2, 3, 4)), 1, 2).shape == (2, 12)
    assert in_a_row(np.ones((2, 3, 4)), 1, 1).shape == (2, 3, 4)


def test_rules():
    rule = gather_rule(3, 2, 1, False, ReduceOp.SUM)
    assert rule.out == ("d0", "i0", "i1", "d2")
    assert rule.reduced == (("d1", ReduceOp.SUM),)
    assert gather_rule(3, 1, 0, False, ReduceOp.SUM, 2).out == ("i0", "d2")
    assert gather_rule(3, 3, 1, True, ReduceOp.BOR).linear is None
    assert gather_rule(2, 2, 1, True, ReduceOp.SUM).operands == (("d0", "d1"), ("d0", "i0"))
    cut = Cut("y")
    back = scatter_rule(3, 2, 1, False, (cut,), (7,))
    assert back.operands == (("d0", "i0", "i1", "d2"), ("i0", "i1"))
    assert back.offered == (("d1", cut, 7),)


@given(st.data(), tensors(FULL))
def test_gather_of_several_dims_in_a_row(data, x):
    dim = data.draw(st.integers(0, x.ndim - 1))
    merged = data.draw(st.integers(1, x.ndim - dim))
    size = int(np.prod(x.shape[dim : dim + merged]))
    index = data.draw(tensors(((3,)), ["int64"], mesh=x.mesh, partial=False)) % size

    def theirs(v, i):
        return np.take(v.reshape(*v.shape[:dim], size, *v.shape[dim + merged :]), i, dim)

    agrees(lambda x, i: gather(x, i, dim=dim, along=False, merged=merged), theirs, x, index)


@given(st.data(), FULL)
def test_scatter_adds_up_whatever_the_layouts(data, shape):
    dim = data.draw(st.integers(0, len(shape) - 1))
    values = data.draw(tensors(shape, ["float64", "float32", "int8", "complex64"], seed=3))
    size = data.draw(st.integers(1, 6))
    own = tuple(size if k == dim else n for k, n in enumerate(shape))
    cut = data.draw(tensors(own, mesh=values.mesh, halo=False, partial=False)).layout.dims[dim]
    line = data.draw(tensors((shape[dim],), ["int64"], mesh=values.mesh, partial=False)) % size
    grid = data.draw(tensors(shape, ["int64"], mesh=values.mesh, partial=False)) % size

    def across(v, i):
        out = np.zeros(own, v.dtype)
        np.add.at(out, (slice(None),) * dim + (i,), v)
        return out

    def along(v, i):
        out = np.zeros(own, v.dtype)
        places = list(np.ogrid[tuple(slice(n) for n in shape)])
        places[dim] = i
        np.add.at(out, tuple(places), v)
        return out

    how = {"dim": dim, "sizes": (size,), "cuts": (cut,)}
    agrees(lambda v, i: scatter(v, i, along=False, **how), across, values, line)
    agrees(lambda v, i: scatter(v, i, along=True, **how), along, values, grid)
    if values.dtype == np.float64:
        transposed(lambda v: scatter(v, line, along=False, **how), values)
        transposed(lambda v: scatter(v, grid, along=True, **how), values)
        transposed(lambda v: gather(v, grid % shape[dim], dim=dim, along=True), values)


def test_a_pending_sum_passes_through_both():
    x = shard(np.arange(6.0), MESH, P(unreduced=["y"]))
    made, size = sent(lambda: gather(x, shard(np.array([5, 0]), MESH, P()), dim=0, along=False))
    assert str(made.layout) == "[-] sum(y)"
    assert size == 0
    index = shard(np.array([1, 0, 1, 1, 0, 1]), MESH, P())
    back, size = sent(lambda: scatter(x, index, dim=0, along=False, sizes=(2,), cuts=(Cut(),)))
    assert str(back.layout) == "[-] sum(y)"
    assert size == 0
    assert back.numpy().tolist() == [5.0, 10.0]
    # Where there is less before than after, what is pending is resolved before.
    assert not scatter(x, index, dim=0, along=False, sizes=(99,), cuts=(Cut(),)).layout.partial


def test_booleans_are_picked_by_a_pending_or():
    x = shard(np.arange(99) % 2 == 0, MESH, P("y"))
    made, size = sent(lambda: gather(x, shard(np.array([41, 2, 98]), MESH, P()), dim=0, along=False))
    assert made.layout.reduce_op is ReduceOp.BOR
    assert size == 0
    assert made.numpy().tolist() == [False, True, True]


def test_on_the_abstract_engine_no_index_is_looked_at():
    engine = AbstractEngine()
    with engine_context(engine):
        x = without_values(shard(np.ones((1, 3)), MESH, P(None, "y")), engine)
        index = without_values(shard(np.full(4, 99), MESH, P("x")), engine)
        made = gather(x, index, dim=0, along=False)
        assert str(made.layout) == "[x|y]"
        assert x[index].shape == (4, 3)
        assert x.at[index].set(1.0).shape == (1, 3)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_positions_at_the_ends_of_a_dim(library):
    torch = pytest.importorskip("torch")
    made = np.array if library == "numpy" else torch.tensor
    assert positions(made([0, 2]), 3).tolist() == [0, 2]
    assert positions(made([-3, -1, 2]), 3).tolist() == [0, 2, 2]
    assert positions(made([1, 2]), 3).tolist() == [1, 2]
    for wrong, low, high in ((3, 0, 3), (-4, -4, 0), (-4, -4, 3), (3, -3, 3)):
        with pytest.raises(BindingError, match=rf"^index {wrong} is out of range for a dim of 3 elements\.$"):
            positions(made([low, high]), 3)
    small = np.array([-1, 100], "int8") if library == "numpy" else torch.tensor([-1, 100], dtype=torch.int8)
    assert positions(small, 200).tolist() == [199, 100]
    assert positions(made([[1, 0]]), 2).tolist() == [[1, 0]]


def test_indices_of_the_right_kind_are_not_copied():
    index = np.array([0, 1])
    assert positions(index, 2) is index


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("along", [False, True])
def test_derivatives_of_picks_and_sums_whatever_the_library(library, along):
    torch = pytest.importorskip("torch")
    value = np.arange(12.0).reshape(6, 2)
    x = shard(value if library == "numpy" else torch.tensor(value), MESH, P("x"))
    lines = np.array([5, 0, 5, 3])
    index = np.stack([lines, lines[::-1]], axis=1) if along else lines
    given = shard(index, MESH, P())
    made, back = vjp(lambda x: gather(x, given, dim=0, along=along), x)
    want = np.take_along_axis(value, index, 0) if along else value[index]
    assert made.numpy().tolist() == want.tolist()
    ct, sums = np.arange(8.0).reshape(4, 2), np.zeros((6, 2))
    spots: Any = (index, np.arange(2)[None] if along else slice(None))
    np.add.at(sums, spots, ct)
    assert back(ct)[0].numpy().tolist() == sums.tolist()
    tangent = value[::-1].copy()
    pushed = jvp(lambda x: gather(x, given, dim=0, along=along), (x,), (tangent,))[1]
    assert pushed.numpy().tolist() == (np.take_along_axis(tangent, index, 0) if along else tangent[index]).tolist()
    how = {"dim": 0, "along": along, "sizes": (6,), "cuts": (Cut(),)}
    values = shard(ct, MESH, P())
    assert jvp(lambda v: scatter(v, given, **how), (values,), (ct,))[1].numpy().tolist() == sums.tolist()
    assert vjp(lambda v: scatter(v, given, **how), values)[1](value)[0].numpy().tolist() == want.tolist()


def test_indices_have_no_tangent_to_hand_on():
    x, index = shard(np.arange(3.0), MESH, P()), shard(np.array([2, 0]), MESH, P())
    out = gather(x, index, dim=0, along=False)
    assert gather.jvp is not None
    assert scatter.jvp is not None
    assert gather.jvp((None, x), out, x, index, dim=0, along=False) is None
    assert scatter.jvp((None, x), x, out, index, dim=0, along=False, sizes=(3,), cuts=(Cut(),)) is None


def test_a_device_without_elements_of_the_dim_adds_nothing():
    x = shard(np.array([-0.0, 7.0]), MESH, P("y"))  # two of four devices have none
    made = gather(x, shard(np.array([0, 1, 0]), MESH, P()), dim=0, along=False)
    assert made.numpy().tolist() == [0.0, 7.0, 0.0]
    assert np.signbit(made.numpy()).tolist() == [True, False, True]
