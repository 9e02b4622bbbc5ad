"""Windows: each device keeps what it has of one, and a value becomes the window of a larger one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shardwise import AbstractEngine, DeviceMesh, Layout, P, Tensor, shard
from shardwise.engine.abstract import AbstractArrays
from shardwise.engine.storage import storage_of
from shardwise.prim.windows import Span, between, local_slices, whole_but, window, windowed, within
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
    layout = windowed(x.layout, x.shape, index)
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
