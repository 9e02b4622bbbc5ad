"""Windows: each device keeps what it has of one, and a value becomes the window of a larger one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise import AbstractEngine, Cut, DeviceMesh, Layout, P, Tensor, current_engine, shard
from shardwise.engine.abstract import AbstractArrays
from shardwise.engine.storage import storage_of
from shardwise.prim.tensor import move_to
from shardwise.prim.views.spans import Span, between, whole_but
from shardwise.prim.views.windows import cutting, inside, local_slices, window, window_layout, within
from tests.layout.oracle import owned_box, slices
from tests.ops.cases import agrees, lacking, sent, tensors, transposed

RANKED = st.lists(st.integers(0, 7), min_size=1, max_size=3).map(tuple)


@st.composite
def spans(draw: st.DrawFn, size: int) -> Span:
    """Every so many elements of a dim, all of them inside it."""
    step = draw(st.integers(1, 3))
    start = draw(st.integers(0, size))
    length = draw(st.integers(0, max(0, -((start - size) // step))))
    return Span(start, length, step)


def picked(value: np.ndarray, index: tuple[Span, ...]) -> np.ndarray:
    for dim, span in enumerate(index):
        value = np.take(value, span.start + np.arange(span.length) * span.step, dim)
    return value


@given(st.integers(0, 9).flatmap(lambda size: st.tuples(st.just(size), spans(size))), st.data())
def test_a_span_knows_which_of_its_elements_lie_where(case, data):
    size, span = case
    low = data.draw(st.integers(0, size))
    high = data.draw(st.integers(low, size))
    elements = [span.start + i * span.step for i in range(span.length)]
    first, last = span.inside(low, high)
    assert [i for i, e in enumerate(elements) if low <= e < high] == list(range(first, last))


def test_between_and_whole_but():
    assert between(2, 5) == Span(2, 3)
    assert between(5, 2) == Span(5, 0)
    assert whole_but((4, 5), 1, Span(1, 2)) == (Span(0, 4), Span(1, 2))


@given(st.data(), tensors(RANKED, partial=False, halo=False))
def test_a_device_holds_of_a_window_exactly_what_it_had(data, x):
    index = tuple(data.draw(spans(size)) for size in x.shape)
    numbers = np.arange(x.size).reshape(x.shape)
    part = picked(numbers, index)
    layout = window_layout(x.layout, x.shape, index)
    for device in range(x.mesh.num_devices):
        had = set(numbers[slices(owned_box(x.layout, x.shape, device))].ravel().tolist())
        has = part[slices(owned_box(layout, part.shape, device))].ravel().tolist()
        assert set(has) == had & set(part.ravel().tolist())
        where = local_slices(index, layout.box(part.shape, device), x.layout.box(x.shape, device))
        assert np.array_equal(numbers[slices(owned_box(x.layout, x.shape, device))][where].ravel(), has)


@given(st.data(), tensors(RANKED))
def test_a_window_is_taken_without_sending_anything(data, x):
    index = tuple(data.draw(spans(size)) for size in x.shape)
    made = agrees(lambda x: window(x, index=index), lambda v: picked(v, index), x)
    assert made.layout.partial == x.layout.partial
    assert sent(lambda: window(x, index=index))[1] == 0


@given(st.data(), tensors(RANKED))
def test_a_value_becomes_the_window_of_one_that_is_zero_elsewhere(data, y):
    spread = [data.draw(spans(size + 4).filter(lambda s: s.step < 3)) for size in y.shape]
    index = tuple(Span(s.start, n, s.step) for s, n in zip(spread, y.shape, strict=True))
    shape = tuple(s.start + n * s.step + 1 for s, n in zip(index, y.shape, strict=True))
    layout = data.draw(tensors(shape, mesh=y.mesh, partial=False, halo=False)).layout

    def theirs(v):
        out = np.zeros(shape, v.dtype)
        out[tuple(slice(s.start, s.start + s.length * s.step, s.step) for s in index)] = v
        return out

    made = agrees(lambda y: within(y, index=index, layout=layout, shape=shape), theirs, y)
    assert made.layout.dims == layout.dims
    if not y.layout.partial and not y.layout.has_halo:
        _, size = sent(lambda: within(y, index=index, layout=layout, shape=shape))
        numbers = np.full(shape, -1)
        numbers[tuple(slice(s.start, s.start + s.length * s.step, s.step) for s in index)] = np.arange(y.size).reshape(
            y.shape
        )
        assert size == lacking([numbers], [y.layout], [y.shape], layout) * y.dtype.itemsize


@given(st.data(), tensors(RANKED, ["float64"]))
def test_windows_and_places_are_transposes(data, x):
    index = tuple(data.draw(spans(size)) for size in x.shape)
    transposed(lambda x: window(x, index=index), x)
    small = Tensor(x.arrays, x.layout, x.shape, x.dtype, x.engine)
    room = tuple(Span(1, n) for n in x.shape)
    shape = tuple(n + 2 for n in x.shape)
    transposed(lambda x: within(x, index=room, layout=Layout.replicated(x.mesh, x.ndim), shape=shape), small)


def test_a_pending_sum_stays_pending_inside_a_larger_value():
    mesh = DeviceMesh((2, 2), ("x", "y"))
    y = shard(np.arange(4.0), mesh, P("x", unreduced=["y"]))
    made, size = sent(lambda: within(y, index=(Span(0, 4),), layout=P("x").to_layout(1, mesh), shape=(4,)))
    assert str(made.layout) == "[x] sum(y)"
    assert size == 0
    # An axis that splits the larger value cannot be pending too.
    made = within(y, index=(Span(0, 4),), layout=P("y").to_layout(1, mesh), shape=(6,))
    assert str(made.layout) == "[y]"
    assert made.numpy().tolist() == [0.0, 1.0, 2.0, 3.0, 0.0, 0.0]


def test_a_window_on_a_large_mesh_is_a_formula():
    mesh = DeviceMesh((1 << 20,), ("x",))
    layout, shape = P("x").to_layout(1, mesh), (1 << 30,)
    x = Tensor(
        AbstractArrays(storage_of(layout, shape), np.dtype("int8")), layout, shape, np.dtype("int8"), AbstractEngine()
    )
    assert window(x, index=(Span(0, 1 << 30),)).layout is layout


# -- regions of regions, and windows that are cut in one go ----------------------------------------------


def test_a_region_of_a_region_is_that_of_the_array():
    array = np.arange(40)
    for start in range(3):
        for step in (None, 1, 2, 3):
            outer = (slice(start, 38, step), ...)
            seen = array[outer]
            for low in range(4):
                for high in range(low, 6):
                    inner = (slice(low, high), ...)
                    assert array[inside(outer, inner)].tolist() == seen[inner].tolist()
    some = (slice(1, 8, 2), ...)
    assert inside(some, ()) is some
    both = inside((slice(1, 8, 2), slice(0, 4), ...), (slice(1, 3), slice(2, 2), ...))
    assert both == (slice(3, 6, 2), slice(0, 0), ...)


def test_spans_have_a_step_of_one_unless_another_is_given():
    assert Span(2, 3).step == 1
    assert Span(2, 3) == Span(2, 3, 1) != Span(2, 3, 2)


@pytest.mark.parametrize("src", [["x", None], [("y", "x"), None], ["x", "y"], [None, None]], ids=str)
@pytest.mark.parametrize("dst", [["x", None], [None, "y"], [None, None]], ids=str)
def test_a_window_that_is_cut_in_one_go_is_the_one_in_two_steps(src, dst):
    mesh = DeviceMesh((2, 2), ("x", "y"))
    value = np.arange(56.0).reshape(8, 7)
    x, target = shard(value, mesh, Layout(mesh, src)), Layout(mesh, dst)
    for index in (
        (Span(1, 4), Span(0, 7)),
        (Span(0, 4, 2), Span(2, 3, 2)),
        (Span(7, 1), Span(6, 1)),
        (Span(3, 0), Span(0, 7)),
    ):
        program = cutting(x.layout, target, x.shape, index, x.dtype)
        if program is None:
            continue
        counters = current_engine().counters
        counters.reset()
        arrays = current_engine().run(program, x.arrays)
        size = counters.total
        made = Tensor(arrays, target, program.target.shape, x.dtype, x.engine)
        assert np.array_equal(made.numpy(), picked(value, index))
        _, want = sent(lambda index=index: move_to(window(x, index=index), target))
        assert size == want


def test_windows_are_cut_in_one_go_where_that_is_one_round_of_copies_of_little():
    mesh = DeviceMesh((2,), ("x",))
    own, whole, index = P("x").to_layout(1, mesh), P().to_layout(1, mesh), (Span(1, 4),)
    assert cutting(own, whole, (8,), index, np.dtype("float64")) is not None
    assert cutting(Layout(mesh, [Cut("x", halo=1)]), whole, (8,), index, np.dtype("float64")) is None
    large = (Span(1, (1 << 15) - 1),)
    assert cutting(own, whole, (1 << 15,), large, np.dtype("int8")) is not None
    large = (Span(1, 1 << 15),)
    assert cutting(own, whole, (1 << 16,), large, np.dtype("int8")) is None
    pending = P(unreduced=["x"]).to_layout(1, mesh)
    assert cutting(pending, whole, (8,), index, np.dtype("float64")) is None
