"""Creation functions against NumPy: every layout, nothing moved, nothing larger than a shard."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardwise as sw
from shardwise import (
    CPU,
    AbstractEngine,
    ArgumentError,
    BindingError,
    Cut,
    DeviceMesh,
    Layout,
    LayoutError,
    LocalEngine,
    P,
    Partial,
    Replicated,
    Sharded,
    Tensor,
    current_engine,
    engine_context,
    halo_exchange,
    jvp,
    shard,
    vjp,
)
from shardwise.engine.arrays import is_torch
from shardwise.layout.placement import reductions_of
from tests.prim.cases import DTYPES, SHAPES, assert_holds, host_meshes, layouts_for, spread

MESH = DeviceMesh((2, 3), ("x", "y"))


def check(make: Any, want: np.ndarray, data: st.DataObject) -> None:
    """What is made in any layout is the value, each device has its part, and nothing was sent."""
    op = data.draw(st.sampled_from([None, *reductions_of(want.dtype)]))
    layout = data.draw(layouts_for(data.draw(host_meshes()), want.shape, op=op))
    with engine_context(LocalEngine()) as engine:
        made = make(layout=layout)
        assert engine.counters.total == 0
        assert engine.counters.copies == 0
        most = sum(array.nbytes for array in made.arrays)
        assert engine.counters.bytes_allocated <= most + 4096 * len(made.arrays)  # what a buffer is rounded up to
        assert_holds(made, layout, want)


# -- constants -----------------------------------------------------------------------------------------


@given(st.data(), SHAPES, st.sampled_from(DTYPES), st.sampled_from(["zeros", "ones"]))
def test_zeros_and_ones(data: st.DataObject, shape: tuple[int, ...], dtype: np.dtype, name: str):
    check(lambda **where: getattr(sw, name)(shape, dtype=dtype, **where), getattr(np, name)(shape, dtype), data)


@given(st.data(), SHAPES, st.sampled_from([3, -2.5, True, 1 + 2j, np.float32(0.1), np.int8(-7)]))
def test_full_has_the_dtype_of_its_value(data: st.DataObject, shape: tuple[int, ...], value: Any):
    check(lambda **where: sw.full(shape, value, **where), np.full(shape, value), data)


@given(st.data(), SHAPES, st.sampled_from(DTYPES))
def test_what_is_like_a_tensor_has_its_layout(data: st.DataObject, shape: tuple[int, ...], dtype: np.dtype):
    op = data.draw(st.sampled_from([None, *reductions_of(dtype)]))
    layout = data.draw(layouts_for(data.draw(host_meshes()), shape, op=op))
    x, _ = spread(layout, shape, dtype)
    assert_holds(sw.zeros_like(x), layout.resolved(), np.zeros(shape, dtype))
    assert_holds(sw.empty_like(x), layout.resolved(), np.zeros(shape, dtype))
    assert_holds(sw.ones_like(x, dtype="int16"), layout.resolved(), np.ones(shape, "int16"))
    assert_holds(sw.full_like(x, True), layout.resolved(), np.full(shape, 1, dtype))


def test_what_is_like_a_tensor_can_lie_elsewhere():
    x = sw.ones((4, 6), mesh=MESH, layout=P("x"))
    assert str(sw.zeros_like(x, layout=P("y"), mesh=MESH).layout) == "[y|-]"
    assert sw.zeros_like(x, mesh=MESH).layout.is_replicated
    assert sw.zeros_like(x, device=CPU(3)).device == CPU(3)


def test_what_is_like_a_torch_tensor_is_one():
    torch = pytest.importorskip("torch")
    x = shard(torch.ones((4, 3), dtype=torch.float32), MESH, P("x"))
    made = sw.full_like(x, 2.5)
    assert all(is_torch(array) for array in made.arrays)
    assert (x + made).numpy().tolist() == [[3.5] * 3] * 4


def test_what_is_like_a_tensor_is_a_constant_to_derivatives():
    value, back = vjp(lambda x: x * sw.ones_like(x), np.array([2.0, 3.0]))
    assert value.numpy().tolist() == [2, 3]
    assert back(np.ones(2))[0].numpy().tolist() == [1, 1]
    assert jvp(lambda x: sw.zeros_like(x), (np.ones(2),), (np.ones(2),))[1].numpy().tolist() == [0, 0]


# -- progressions ----------------------------------------------------------------------------------------


@given(st.data(), *[st.integers(-30, 30)] * 2, st.integers(-5, 5).filter(bool))
def test_arange_of_integers(data: st.DataObject, start: int, stop: int, step: int):
    dtype = data.draw(st.sampled_from([None, *map(np.dtype, ("int8", "int64", "float32", "bfloat16", "complex64"))]))
    want = np.arange(start, stop, step).astype(dtype or int)
    check(lambda **where: sw.arange(start, stop, step, dtype=dtype, **where), want, data)


@given(st.data(), *[st.floats(-20, 20, allow_subnormal=False)] * 2, st.floats(0.3, 4), st.booleans())
def test_arange_of_floats(data: st.DataObject, start: float, stop: float, step: float, down: bool):
    step = -step if down else step
    count = len(np.arange(start, stop, step))
    exact = [Fraction(start) + i * Fraction(step) for i in range(count)]
    made = sw.arange(start, stop, step)
    assert made.shape == (count,)
    assert made.dtype == np.float64
    for value, want in zip(made.numpy().tolist(), exact, strict=True):
        assert abs(Fraction(value) - want) <= Fraction(2**-52) * (abs(Fraction(start)) + abs(want))
    check(lambda **where: sw.arange(start, stop, step, **where), made.numpy(), data)


def test_arange_from_zero_and_to_the_ends_of_the_dtypes():
    assert sw.arange(3).numpy().tolist() == [0, 1, 2]
    assert sw.arange(2.5).numpy().tolist() == [0, 1, 2]
    assert sw.arange(5, 0).shape == (0,)
    high = sw.arange(2**64 - 3, 2**64, dtype="uint64", mesh=MESH, layout=P("y"))
    assert high.numpy().tolist() == [2**64 - 3, 2**64 - 2, 2**64 - 1]
    low = sw.arange(-(2**63), 2**63, 2**62)
    assert low.numpy().tolist() == [-(2**63), -(2**62), 0, 2**62]


@given(st.data(), *[st.floats(-9, 9, allow_subnormal=False)] * 2, st.integers(0, 12), st.booleans())
def test_linspace_is_that_of_numpy(data: st.DataObject, start: float, stop: float, num: int, endpoint: bool):
    dtype = data.draw(st.sampled_from([None, *map(np.dtype, ("float32", "float16", "int8", "complex64"))]))
    want = np.linspace(start, stop, num, endpoint=endpoint, dtype=dtype)
    check(lambda **where: sw.linspace(start, stop, num, dtype=dtype, endpoint=endpoint, **where), want, data)


def test_linspace_between_complex_numbers():
    got = sw.linspace(1, 2 + 3j, 7, mesh=MESH, layout=P("y"))
    assert np.allclose(got.numpy(), np.linspace(1, 2 + 3j, 7), rtol=1e-15)
    assert got.dtype == np.complex128


# -- matrices --------------------------------------------------------------------------------------------


@given(st.data(), st.integers(0, 7), st.one_of(st.none(), st.integers(0, 7)), st.integers(-8, 8))
def test_eye_is_that_of_numpy(data: st.DataObject, rows: int, columns: int | None, k: int):
    dtype = data.draw(st.sampled_from(DTYPES))
    want = np.eye(rows, columns, k, dtype=dtype)
    check(lambda **where: sw.eye(rows, columns, k=k, dtype=dtype, **where), want, data)


@pytest.mark.parametrize("name", ["tril", "triu"])
def test_triangles(name: str):
    value = np.arange(60.0).reshape(3, 4, 5)
    x = shard(value, MESH, P(None, "x", "y"))
    for k in (-2, 0, 3):
        got = getattr(sw, name)(x, k=k)
        assert got.layout is x.layout
        assert np.array_equal(got.numpy(), getattr(np, name)(value, k))


@pytest.mark.parametrize("indexing", ["xy", "ij"])
@pytest.mark.parametrize("count", range(4))
def test_meshgrid_is_that_of_numpy(indexing: Any, count: int):
    vectors = [np.arange(4.0), np.arange(6), np.array(2.5)][:count]
    specs = [P("x"), P("y"), P()]
    grids = sw.meshgrid(*(shard(v, MESH, s) for v, s in zip(vectors, specs, strict=False)), indexing=indexing)
    want = np.meshgrid(*vectors, indexing=indexing)
    assert len(grids) == len(want)
    for a, b in zip(grids, want, strict=True):
        assert a.dtype == b.dtype
        assert np.array_equal(a.numpy(), b)
    if count == 2:
        assert {str(grid.layout) for grid in grids} == {"[y|x]" if indexing == "xy" else "[x|y]"}


def test_a_meshgrid_of_vectors_on_the_same_axis_splits_one_dim_and_keeps_derivatives():
    x = shard(np.arange(4.0), MESH, P("x"))
    a, b = sw.meshgrid(x, x, indexing="ij")
    assert [str(a.layout), str(b.layout)] == ["[x|-]", "[x|-]"]
    _, back = vjp(lambda x: sw.meshgrid(x, np.ones(3))[0], x)
    assert back(np.ones((3, 4)))[0].numpy().tolist() == [3] * 4


# -- where ---------------------------------------------------------------------------------------------


def test_any_description_of_a_layout_is_understood():
    want = "[x|y]"
    specs = [P("x", "y"), [Sharded(0), Sharded(1)], Layout(MESH, ["x", "y"])]
    assert {str(sw.zeros((4, 6), mesh=MESH, layout=spec).layout) for spec in specs} == {want}
    pending = sw.ones((4, 6), mesh=MESH, layout=[Partial(), Replicated()])
    assert str(pending.layout) == "[-|-] sum(x)"
    assert [float(np.asarray(pending.local(d)).sum()) for d in (0, 3)] == [24, 0]
    assert pending.numpy().sum() == 24


def test_halos_are_filled_as_halo_exchange_fills_them():
    for edge in ("clip", "pad"):
        layout = Layout(MESH, [Cut("y", halo=(1, 2), edge=edge)])
        made = sw.arange(1, 12, layout=layout)
        exchanged = halo_exchange(sw.arange(1, 12, mesh=MESH, layout=P("y")), 0, (1, 2), edge=edge)
        assert made.layout is exchanged.layout
        for device in range(6):
            assert np.array_equal(made.local(device), exchanged.local(device))
    assert made.local(0).tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert made.local(2).tolist() == [8, 9, 10, 11, 0, 0]


def test_a_tensor_of_2_to_the_40_elements_on_the_abstract_engine():
    mesh = DeviceMesh((2**12, 2**8), ("x", "y"))
    with engine_context(AbstractEngine()) as engine:
        for made in (
            sw.zeros((2**20, 2**20), mesh=mesh, layout=P("x", "y")),
            sw.eye(2**20, mesh=mesh, layout=P("x", "y")),
            sw.tril(sw.ones((2**20, 2**20), mesh=mesh, layout=P("x", "y"))),
            sw.random.normal(sw.random.key(0), (2**20, 2**20), mesh=mesh, layout=P("x", "y")),
        ):
            assert made.arrays[0].shape == (2**8, 2**12)
            assert made.arrays[2**20 - 1].shape == (2**8, 2**12)
        assert sw.arange(2**40, mesh=mesh, layout=P(("x", "y"))).arrays[77].shape == (2**20,)
        assert sw.linspace(0, 1, 2**40, mesh=mesh, layout=P(("x", "y"))).arrays[77].shape == (2**20,)
    assert engine.counters.total == 0
    assert engine.counters.bytes_allocated == 0


def test_a_replicated_tensor_is_made_once():
    counters = current_engine().counters
    counters.reset()
    made = sw.ones(10, mesh=MESH, layout=P("x"))
    assert counters.kernel_calls == 2
    assert len(made.arrays) == 2
    assert isinstance(made, Tensor)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: sw.zeros((2, -1)), BindingError, "0 or more, got -1"),
        (lambda: sw.zeros("ab"), ArgumentError, "a shape is a tuple of ints"),  # type: ignore[arg-type]
        (lambda: sw.zeros(2, dtype="U3"), ArgumentError, "zeros: a dtype of numbers or bools was expected, got <U3"),
        (lambda: sw.zeros((2, 2), layout=P("x")), LayoutError, "mesh"),
        (lambda: sw.zeros(2, mesh=MESH, device=CPU(0)), ArgumentError, "give device, or mesh and layout"),
        (lambda: sw.zeros(2, mesh=DeviceMesh((2,), ("z",)), layout=Layout(MESH, ["x"])), LayoutError, "belongs to"),
        (lambda: sw.zeros(2, mesh=MESH, layout=Layout(MESH, ["x", None])), BindingError, "has 2 dims"),
        (lambda: sw.full(2, [1, 2]), ArgumentError, r"full: the value to fill with is one number, got \[1, 2\]"),
        (lambda: sw.full(2, 1.5, dtype=int), ArgumentError, "int64 cannot hold 1.5.\n  give a dtype such as float64"),
        (lambda: sw.full(2, 300, dtype="int8"), BindingError, "300 is out of range for int8"),
        (lambda: sw.full_like(sw.zeros(2, dtype="uint8"), -1), BindingError, "-1 is out of range for uint8"),
        (lambda: sw.arange(0, 5, 0), BindingError, "a step of 0"),
        (lambda: sw.arange(0, 300, dtype="int8"), BindingError, "299 is out of range for int8, which holds -128 to"),
        (lambda: sw.arange(0.5, 3, dtype="int8"), ArgumentError, "int8 cannot hold steps from 0.5 by 1"),
        (lambda: sw.arange(1j), ArgumentError, "arange: stop is a finite number, got 1j"),  # type: ignore[arg-type]
        (lambda: sw.arange(0, 1e300, 1e-300), BindingError, "too many steps"),
        (lambda: sw.linspace(0, "a", 3), ArgumentError, "start and stop are numbers, got 'a'"),  # type: ignore[arg-type]
        (lambda: sw.linspace(0, 1, -3), BindingError, "got -3"),
        (lambda: sw.linspace(0, 1j, 3, dtype=float), ArgumentError, "float64 cannot hold"),
        (lambda: sw.linspace(0, 300, 3, dtype="int8"), BindingError, "300.0 is out of range for int8"),
        (lambda: sw.linspace(0, float("inf"), 3), BindingError, "no even steps"),
        (lambda: sw.eye(3, k=1.5), ArgumentError, "eye: k is the number of a diagonal, an int, got 1.5"),  # type: ignore[arg-type]
        (
            lambda: sw.tril(np.ones(3)),
            BindingError,
            r"tril: a tensor of at least 2 dims was expected, got shape \(3,\)",
        ),
        (lambda: sw.meshgrid(np.ones((2, 2))), BindingError, r"vectors were expected, got shape \(2, 2\)"),
        (lambda: sw.meshgrid([1], indexing="yx"), ArgumentError, "'xy' or 'ij', got 'yx'"),  # type: ignore[arg-type]
    ],
)
def test_what_does_not_fit_says_so(call: Any, error: type[Exception], text: str):
    with pytest.raises(error, match=text):
        call()
