"""Each device fills its own array, whatever the layout."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise import AbstractEngine, BindingError, DeviceMesh, Layout, LocalEngine, P, ReduceOp, asarray
from shardwise.engine.arrays import identity, is_torch
from shardwise.layout.placement import reductions_of
from shardwise.layout.tiling import Box
from shardwise.prim.random.creation import constant, create, diagonal, progression, whole_progression
from tests.prim.cases import DTYPES, SHAPES, assert_holds, host_meshes, layouts_for, values


@st.composite
def new_tensors(draw: st.DrawFn) -> tuple[Layout, np.ndarray]:
    """A value and any layout for it: uneven, padded, partial."""
    shape, dtype = draw(SHAPES), draw(st.sampled_from(DTYPES))
    op = draw(st.sampled_from([None, *reductions_of(dtype)]))
    return draw(layouts_for(draw(host_meshes()), shape, op=op)), values(shape, dtype)


@given(new_tensors())
def test_every_device_holds_its_part_of_the_value(case: tuple[Layout, np.ndarray]):
    layout, value = case
    engine, largest = LocalEngine(), layout.max_local_bytes(value.shape, value.dtype)

    def fill(out: np.ndarray, box: Box) -> None:
        assert out.nbytes <= largest
        assert out.flags.c_contiguous
        out[...] = value[tuple(slice(*interval) for interval in box)]

    made = create(fill, value.shape, value.dtype, layout, engine)
    assert engine.counters.total == 0
    assert_holds(made, layout, value)


@pytest.mark.parametrize("op", list(ReduceOp))
def test_one_device_of_a_group_contributes_the_value_and_the_others_nothing(op: ReduceOp):
    dtype = np.dtype(float if op in reductions_of(np.dtype(float)) else int)
    layout = P(unreduced={"x": op}).to_layout(1, DeviceMesh((3,), ("x",)))
    made = create(constant(5), (2,), dtype, layout, LocalEngine())
    others = 5 if op is ReduceOp.AVG else identity(op, dtype)
    assert [made.local(device).tolist() for device in range(3)] == [[5, 5], [others] * 2, [others] * 2]
    assert made.numpy().tolist() == [5, 5]


def test_a_reduction_that_the_dtype_does_not_have_is_refused():
    layout = P(unreduced={"x": "band"}).to_layout(0, DeviceMesh((2,), ("x",)))
    with pytest.raises(BindingError, match="float64"):
        create(constant(1.0), (), np.dtype(float), layout, LocalEngine())


def test_the_abstract_engine_fills_nothing():
    def fail(out: np.ndarray, box: Box) -> None:
        raise AssertionError

    layout = P("x", "y").to_layout(2, DeviceMesh((2**10, 2**10), ("x", "y")))
    made = create(fail, (2**20, 2**20), np.dtype("float32"), layout, AbstractEngine())
    assert made.arrays[12345].shape == (1024, 1024)


def test_the_library_is_that_of_another_tensor():
    torch = pytest.importorskip("torch")
    like = asarray(torch.ones(2, dtype=torch.bfloat16))
    made = create(constant(3), (2,), like.dtype, like.layout, like.engine, like)
    assert is_torch(made.arrays[0])
    assert made.arrays[0].dtype == torch.bfloat16
    assert np.asarray(made.numpy()).tolist() == [3, 3]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint64"])
def test_whole_progressions_wrap_like_their_dtype(dtype: str):
    out = np.empty(40_000, dtype)
    whole_progression(-5, 3)(out, ((10, 40_010),))
    assert np.array_equal(out, (np.arange(10, 40_010) * 3 - 5).astype(dtype))


def test_progressions_do_not_depend_on_the_box():
    whole = np.empty(50_000)
    progression(0.1, 0.3, (49_999, 2.0))(whole, ((0, 50_000),))
    assert np.array_equal(whole[:-1], np.arange(49_999) * 0.3 + 0.1)
    assert whole[-1] == 2.0
    part = np.empty(20_000)
    progression(0.1, 0.3, (49_999, 2.0))(part, ((30_000, 50_000),))
    assert np.array_equal(part, whole[30_000:])


@given(st.integers(-9, 9), st.tuples(*[st.integers(0, 6)] * 4))
def test_diagonals_of_boxes(k: int, ends: tuple[int, ...]):
    box = tuple(sorted(ends[:2])), tuple(sorted(ends[2:]))
    out = np.full([b - a for a, b in box], 7)
    diagonal(k)(out, box)  # type: ignore[arg-type]
    assert np.array_equal(out, np.eye(6, k=k)[tuple(slice(*i) for i in box)])
