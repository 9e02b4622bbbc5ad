"""Indexing against NumPy and JAX, and the bytes of each kind of index."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardwise
from shardwise import (
    ArgumentError,
    BindingError,
    DeviceMesh,
    GreedyReshard,
    LayoutError,
    NoReshard,
    P,
    ReshardWarning,
    asarray,
    current_engine,
    embedding,
    grad,
    jvp,
    mode,
    one_hot,
    shard,
    take,
    take_along_axis,
    vjp,
)
from tests.ops.cases import agrees, moves_only_what_changes_device, sent, tensors, transposed
from tests.ops.peers import check
from tests.prim.cases import DTYPES, host_meshes, jax_of_eight

MESH = DeviceMesh((2, 4), ("x", "y"))
RANKED = st.lists(st.integers(0, 7), min_size=1, max_size=3).map(tuple)
FULL = st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple)


@st.composite
def slices_of(draw: st.DrawFn, size: int) -> slice:
    """Any slice, in and out of range."""
    ends = st.none() | st.integers(-size - 2, size + 2)
    return slice(draw(ends), draw(ends), draw(st.none() | st.integers(-3, 3).filter(bool)))


@st.composite
def basic_keys(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Integers, slices, None and an ellipsis, as many as fit a shape."""
    count = draw(st.integers(0, len(shape)))
    head = draw(st.integers(0, count))
    dots = draw(st.booleans()) or head < count
    sizes = [*shape[:head], *shape[len(shape) - (count - head) :]]
    key: list[Any] = []
    for size in sizes:
        whole = draw(st.booleans()) or not size
        key.append(draw(slices_of(size)) if whole else draw(st.integers(-size, size - 1)))
    if dots:
        key.insert(head, Ellipsis)
    for _ in range(draw(st.integers(0, 2))):
        key.insert(draw(st.integers(0, len(key))), None)
    return tuple(key)


@st.composite
def indices_for(draw: st.DrawFn, size: int, max_dims: int = 2) -> np.ndarray:
    """Indices into a dim, also counted from the end."""
    shape = tuple(draw(st.lists(st.integers(0, 4 if size else 0), max_size=max_dims)))
    if not size:
        shape = (*shape, 0)
    values = draw(st.lists(st.integers(-size, max(-size, size - 1)), min_size=int(np.prod(shape)), max_size=40))
    dtype = draw(st.sampled_from(["int64", "int32", "int8"]))
    return np.array(values[: int(np.prod(shape))], dtype).reshape(shape)


@st.composite
def advanced_keys(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Arrays of integers that broadcast, beside slices, integers and None."""
    count = draw(st.integers(1, 4))
    key: list[Any] = []
    for size in shape:
        kind = draw(st.sampled_from(["array", "array", "slice", "int", "mask"]))
        if kind == "slice":
            key.append(draw(slices_of(size)))
        elif kind == "int":
            key.append(draw(st.integers(-size, size - 1)))
        elif kind == "mask":
            on = draw(st.lists(st.booleans(), min_size=size, max_size=size))
            fits = sum(on) in (1, count)
            key.append(np.array(on) if fits else slice(None))
        else:
            lead = draw(st.sampled_from([(count,), (1,), (2, 1), (1, count)]))
            values = draw(st.lists(st.integers(-size, size - 1), min_size=8, max_size=8))
            key.append(np.array(values[: int(np.prod(lead))]).reshape(lead))
    if draw(st.booleans()):
        key.insert(draw(st.integers(0, len(key))), None)
    return tuple(key)


# -- basic indexing --------------------------------------------------------------------------------------


@given(st.data(), tensors())
def test_slices_integers_and_new_dims(data, x):
    key = data.draw(basic_keys(x.shape))
    agrees(lambda x: x[key], lambda v: v[key], x)


@given(st.data(), tensors(RANKED, ["float32", "int8"], partial=False, halo=False))
def test_a_slice_moves_only_what_changes_device(data, x):
    key = tuple(data.draw(slices_of(size)) for size in x.shape)
    moves_only_what_changes_device(lambda x: x[key], lambda v: v[key], x)


def test_a_slice_along_a_dim_that_is_not_sharded_sends_nothing():
    x = shard(np.arange(40.0).reshape(8, 5), MESH, P(("x", "y")))
    for key in (np.s_[:, 1:3], np.s_[:, ::-1], np.s_[:, ::2], np.s_[:, -1], np.s_[None, :, None, 4:0:-2], np.s_[...]):
        assert sent(lambda key=key: x[key])[1] == 0


def test_a_pending_sum_stays_pending_where_nothing_has_to_move():
    x = shard(np.arange(40.0).reshape(8, 5), MESH, P("x", unreduced=["y"]))
    y, size = sent(lambda: x[:, 1:3])
    assert str(y.layout) == "[x|-] sum(y)"
    assert size == 0
    assert np.array_equal(y.numpy(), np.arange(40.0).reshape(8, 5)[:, 1:3])


def test_the_element_of_a_pending_sum_is_the_global_value():
    x = shard(np.arange(8.0), MESH, P("x", unreduced=["y"]))
    assert x[3].item() == 3.0
    assert float(x[-1]) == 7.0
    assert int(shard(np.array(5), MESH, P(unreduced=["x", "y"]))) == 5
    assert shardwise.max(shard(np.arange(7.0), MESH, P(("y", "x")))).item() == 6.0


def test_a_slice_that_does_not_divide_is_not_silently_replicated():
    y = shard(np.arange(9.0), MESH, P("y"))[1:8]
    assert str(y.layout) == "[y]"
    assert [len(y.local(i)) for i in range(4)] == [2, 2, 2, 1]


def test_two_shard_orders_of_the_same_axes_do_not_mix_under_an_index():
    value = np.arange(13.0)
    for spec in (P(("x", "y")), P(("y", "x"))):
        x = shard(value, MESH, spec)
        assert np.array_equal(x[2:11:3].numpy(), value[2:11:3])
        assert np.array_equal(take(x, [12, 0, 5]).numpy(), value[[12, 0, 5]])
    both = shard(value, MESH, P(("x", "y")))[3:] + shard(value, MESH, P(("y", "x")))[:-3]
    assert np.array_equal(both.numpy(), value[3:] + value[:-3])


# -- arrays of integers ----------------------------------------------------------------------------------


@given(st.data(), tensors(RANKED))
def test_take(data, x):
    dim = data.draw(st.integers(-x.ndim, x.ndim - 1))
    index = data.draw(indices_for(x.shape[dim]))
    ours, theirs = (lambda x: take(x, index, axis=dim)), (lambda v: np.take(v, index.astype("int64"), dim))
    agrees(ours, theirs, x)
    spread = data.draw(tensors(index.shape, ["int64"], mesh=x.mesh, partial=False))
    if x.shape[dim]:
        agrees(
            lambda x, i: take(x, i % x.shape[dim], axis=dim), lambda v, i: np.take(v, i % v.shape[dim], dim), x, spread
        )


@given(st.data(), tensors(RANKED))
def test_take_along_axis(data, x):
    dim = data.draw(st.integers(0, x.ndim - 1))
    count = data.draw(st.integers(0, 4)) if x.shape[dim] else 0
    shape = tuple(count if k == dim else n for k, n in enumerate(x.shape))
    index = data.draw(tensors(shape, ["int64"], mesh=x.mesh, partial=False))
    n = max(1, x.shape[dim])
    agrees(
        lambda x, i: take_along_axis(x, i % n - n, axis=dim),
        lambda v, i: np.take_along_axis(v, i % n - n, dim),
        x,
        index,
    )


@given(st.data(), tensors(FULL))
def test_arrays_beside_slices(data, x):
    key = data.draw(advanced_keys(x.shape))
    agrees(lambda x: x[key], lambda v: v[key], x)


@given(st.data(), st.lists(st.integers(0, 6), min_size=2, max_size=2).map(tuple))
def test_embedding(data, shape):
    table = data.draw(tensors(shape, ["float32", "float64", "float16"]))
    index = data.draw(indices_for(shape[0]))
    agrees(lambda t: embedding(index, t), lambda v: v[index], table)


@given(st.data(), host_meshes(), st.lists(st.integers(0, 5), max_size=2).map(tuple))
def test_one_hot(data, mesh, shape):
    x = data.draw(tensors(shape, ["int64", "int8", "uint8"], mesh=mesh))
    classes = data.draw(st.integers(0, 5))
    agrees(
        lambda i: one_hot(i, classes, dtype="float32"),
        lambda i: (i[..., None] == np.arange(classes)).astype("float32"),
        x,
    )


def test_one_hot_on_a_sharded_dim_of_classes_sends_nothing():
    index = np.array([0, 6, -1, 3, 7])
    x = shard(index, MESH, P("x"))
    made, size = sent(lambda: one_hot(x, 7, axis_layout="y"))
    assert str(made.layout) == "[x|y]"
    assert size == 0
    assert np.array_equal(made.numpy(), index[:, None] == np.arange(7))
    assert made.local(0).shape == (3, 2)


def test_an_index_may_be_a_tensor_of_one_integer_or_a_list():
    x = shard(np.arange(10.0).reshape(5, 2), MESH, P("y"))
    assert x[asarray(3)].numpy().tolist() == [6.0, 7.0]
    assert x[[0, -1]].numpy().tolist() == [[0.0, 1.0], [8.0, 9.0]]
    assert x[np.int8(2), np.array(1)].item() == 5.0
    assert x[np.array([True, False, False, True, False])].numpy().tolist() == [[0.0, 1.0], [6.0, 7.0]]
    assert x[[]].shape == (0, 2)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint64"])
def test_small_integers_index_large_dims(dtype):
    value = np.arange(600.0).reshape(300, 2)
    index = np.array([0, 127, 5], dtype)
    x = shard(value, MESH, P(("x", "y")))
    for ours, theirs in (
        (lambda i: take(x, i, axis=0), lambda i: value[i]),
        (lambda i: x[i, i % 2], lambda i: value[i, i % 2]),
        (lambda i: x.at[i].set(1.0), lambda i: np.where(np.isin(np.arange(300), i)[:, None], 1.0, value)),
    ):
        assert np.array_equal(ours(index).numpy(), theirs(index))
        if index.dtype.kind == "i":
            assert np.array_equal(ours(-index).numpy(), theirs(-index.astype("int64") % 300))


@pytest.mark.parametrize("dtype", [t for t in DTYPES if t.kind in "fV"], ids=str)
def test_picking_keeps_the_sign_of_zero_nan_and_inf(dtype):
    value = np.array([-0.0, 0.0, np.nan, np.inf, -np.inf, 1.0]).astype(dtype)
    index = np.array([0, 1, 2, 3, 4, 5, 0])
    for spec in (P("y"), P(("y", "x")), P()):
        x = shard(value, MESH, spec)
        for got in (take(x, index), x[index], take_along_axis(x, index)):
            got = np.asarray(got.gather().numpy())
            assert np.array_equal(np.signbit(got.astype("float64")), np.signbit(value[index].astype("float64")))
            assert np.array_equal(got.astype("float64"), value[index].astype("float64"), equal_nan=True)


# -- bytes -----------------------------------------------------------------------------------------------


def test_picking_from_a_sharded_dim_sends_only_the_small_result():
    table = shard(np.arange(800.0).reshape(100, 8), MESH, P("y"))
    index = np.array([[3, 99], [0, 50], [3, 3]])
    made, size = sent(lambda: embedding(index, table))
    assert str(made.layout) == "[-|-|-] sum(y)"
    assert size == 0
    whole, size = sent(lambda: shard(made, MESH, P()))
    assert size == 48 * 8 * (4 + 8 - 2)  # 4 contributions to each element, which 8 devices want
    assert np.array_equal(whole.numpy(), np.arange(800.0).reshape(100, 8)[index])


def test_picking_from_dims_that_are_not_sharded_sends_nothing():
    x = shard(np.arange(80.0).reshape(8, 10), MESH, P(("x", "y")))
    index = np.array([1, 9, 1])
    rows = np.arange(8)[:, None] % 3
    for call in (
        lambda: take(x, index, axis=1),
        lambda: x[:, index],
        lambda: x[:, index[:, None], None],
        lambda: take_along_axis(x, shard(rows, MESH, P(("x", "y"))), axis=1),
        lambda: embedding(shard(np.arange(8), MESH, P(("x", "y"))), np.ones((9, 3))),
    ):
        made, size = sent(call)
        assert size == 0
        assert not made.layout.partial


def test_the_gradient_of_a_vocabulary_sharded_table_sends_nothing():
    table = shard(np.arange(33.0).reshape(11, 3), MESH, P("y"))
    index = np.array([[3, 10, 3], [0, 5, 10]])
    _, back = vjp(lambda t: embedding(index, t), table)
    ct = shard(np.arange(18.0).reshape(2, 3, 3), MESH, P())
    found, size = sent(lambda: back(ct)[0])
    assert size == 0
    assert found.layout is table.layout
    want = np.zeros((11, 3))
    np.add.at(want, index, np.arange(18.0).reshape(2, 3, 3))
    assert np.array_equal(found.numpy(), want)


def test_the_gradient_of_a_replicated_table_by_sharded_indices_is_one_reduction():
    table = shard(np.arange(33.0).reshape(11, 3), MESH, P())
    index = shard(np.arange(99) % 5, MESH, P(("x", "y")))
    _, back = vjp(lambda t: embedding(index, t), table)
    ct = shard(np.ones((99, 3)), MESH, P(("x", "y")))
    found, size = sent(lambda: back(ct)[0])
    assert size == 33 * 8 * (8 + 8 - 2)
    assert np.array_equal(found.numpy()[:, 0], np.bincount(np.arange(99) % 5, minlength=11))


# -- derivatives -----------------------------------------------------------------------------------------


@given(st.data(), tensors(RANKED, ["float64"]))
def test_the_derivative_of_a_slice_is_its_transpose(data, x):
    key = data.draw(basic_keys(x.shape))
    transposed(lambda x: x[key], x)


@given(st.data(), tensors(FULL, ["float64"]))
def test_the_derivative_of_an_array_index_is_its_transpose(data, x):
    key = data.draw(advanced_keys(x.shape))
    transposed(lambda x: x[key], x)


@given(st.data(), tensors(RANKED, ["float64", "complex128"]))
def test_the_derivatives_of_take_are_their_transposes(data, x):
    dim = data.draw(st.integers(0, x.ndim - 1))
    index = data.draw(indices_for(x.shape[dim]))
    transposed(lambda x: take(x, index, axis=dim), x)
    if x.shape[dim]:
        shape = tuple(3 if k == dim else n for k, n in enumerate(x.shape))
        along = data.draw(tensors(shape, ["int64"], mesh=x.mesh, partial=False)) % x.shape[dim]
        transposed(lambda x: take_along_axis(x, along, axis=dim), x)


K, J = np.array([[0, -1], [3, 2]]), np.array([1, 3])
KEYS = [
    np.s_[2], np.s_[-1, 2], np.s_[1:4], np.s_[::2, ::-1], np.s_[..., 1], np.s_[:, None, 2:4], np.s_[::-2, 1:, ::-1],
    np.s_[4:1], K, np.s_[:, K], np.s_[K, J], np.s_[K, :, J], np.s_[1:5, J, ::-1], np.s_[0, :, J], np.s_[None, J, :, 1],
    np.s_[:, 1, J], np.s_[J, None, :, J], np.s_[1, 2, 3], np.s_[...], np.s_[np.array([], int)],
    np.s_[:, np.array([True, False, True, True, False])],
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS, ids=lambda key: " ".join(str(key).split()))
def test_values_and_derivatives_follow_jax(key):
    jnp = jax_of_eight().numpy
    value = np.random.default_rng(0).standard_normal((6, 5, 4))
    seed = len(str(key))
    check(lambda x: x[key] * x[key], lambda x: jnp.asarray(x)[key] * jnp.asarray(x)[key], value, seed=seed)


def test_take_and_embedding_follow_jax():
    jnp = jax_of_eight().numpy
    value, rows = np.random.default_rng(0).standard_normal((6, 5)), np.array([[0, 4, 4]] * 6)
    for seed in range(2):
        check(lambda x: take(x, K, axis=1), lambda x: jnp.take(x, K, axis=1), value, seed=seed)
        check(lambda x: embedding(K, x * x), lambda x: (x * x)[K], value, seed=seed)
        check(lambda x: take_along_axis(x, rows), lambda x: jnp.take_along_axis(x, rows, axis=-1), value, seed=seed)


def test_derivatives_follow_finite_differences():
    rng = np.random.default_rng(0)
    value, direction = rng.standard_normal((5, 3)), rng.standard_normal((5, 3))
    x = shard(value, MESH, P("y"))

    def f(x):
        rows = x[np.array([4, 1, 4])]
        return shardwise.sum(shardwise.sin(rows[:, ::-1]) * take(x, [0, 2, 2], axis=0) ** 2)

    def g(v):
        return np.sum(np.sin(v[[4, 1, 4]][:, ::-1]) * v[[0, 2, 2]] ** 2)

    step = 1e-6
    want = (g(value + step * direction) - g(value - step * direction)) / (2 * step)
    assert np.isclose(jvp(f, (x,), (direction,))[1].item(), want, rtol=1e-7)
    assert np.isclose(np.vdot(grad(f)(x).numpy(), direction), want, rtol=1e-7)


def test_second_derivatives():
    jax = jax_of_eight()
    jnp = jax.numpy
    value = np.random.default_rng(0).standard_normal(7)
    x, i = shard(value, MESH, P(("y", "x"))), np.array([6, 0, 0, 3])
    ours = lambda x: shardwise.sum(x[i] * x[::-2] * take(x, i) * x[1:5])  # noqa: E731
    theirs = lambda x: jnp.sum(x[i] * x[::-2] * x[i] * x[1:5])  # noqa: E731
    found = grad(lambda x: shardwise.sum(shardwise.sin(grad(ours)(x))))(x)
    want = jax.grad(lambda x: jnp.sum(jnp.sin(jax.grad(theirs)(x))))(value)
    assert found.layout is x.layout
    assert np.allclose(found.numpy(), want)


# -- solvers ---------------------------------------------------------------------------------------------


def test_a_gather_that_reshards_is_refused_reported_or_warned_of():
    table = shard(np.ones((6, 4)), MESH, P("y"))
    index = shard(np.zeros(8, int), MESH, P("y"))  # y cannot serve both the rows and the indices
    with mode(NoReshard()), pytest.raises(LayoutError) as error:
        embedding(index, table)
    text = str(error.value)
    assert text.startswith("NoReshard does not allow what this sends.")
    assert "embedding at" in text
    assert "test_indexing.py" in text
    assert "operand 0: [y|-] -> [-|-]" in text
    assert "fix: x0 = shard(x0, mesh, P(None, None))" in text
    with (
        mode(GreedyReshard(on_reshard="raise")),
        pytest.raises(LayoutError, match=r"embedding at .* reshards"),
    ):
        embedding(index, table)
    with (
        mode(GreedyReshard(on_reshard="warn")),
        pytest.warns(ReshardWarning, match=r"embedding at .*\d+ bytes in all"),
    ):
        embedding(index, table)
    with mode(NoReshard()):
        assert embedding(shard(np.zeros(8, int), MESH, P("x")), table).shape == (8, 4)


# -- refusals --------------------------------------------------------------------------------------------

X = shard(np.ones((4, 3)), MESH, P("y"))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: X[4], BindingError, "index 4 is out of range for a dim of 4 elements"),
        (lambda: X[0, -4], BindingError, "index -4 is out of range for a dim of 3 elements"),
        (lambda: X[np.array([0, 4])], BindingError, "index 4 is out of range for a dim of 4 elements"),
        (lambda: X[:, np.array([0, -4])], BindingError, "index -4 is out of range for a dim of 3"),
        (lambda: X[0, 0, 0], BindingError, "an index with 3 entries does not fit a tensor with 2 dims"),
        (lambda: X[..., ...], ArgumentError, r"one ellipsis \(...\), got several"),
        (lambda: X[X > 0], ArgumentError, r"a shape that depends on values.\n  use where\(mask, x, other\)"),
        (lambda: X[True], ArgumentError, "a shape that depends on values"),
        (lambda: X["a"], ArgumentError, "integers, slices, None, ... and arrays of integers, got str"),
        (lambda: X[1.5], ArgumentError, "integers, slices, None, ... and arrays of integers, got float"),
        (lambda: X[np.array([0.5])], ArgumentError, "an index: indices are integers, got float64"),
        (lambda: X[np.array([0, 1]), np.array([0, 1, 2])], BindingError, r"shapes \(2,\) and \(3,\) do not broadcast"),
        (lambda: take(X, [4], axis=0), BindingError, "index 4 is out of range for a dim of 4 elements"),
        (lambda: take(X, [0]), ArgumentError, "take needs an axis for a tensor with 2 dims"),
        (lambda: take(X, [0.5], axis=0), ArgumentError, "take: indices are integers, got float64"),
        (lambda: take(X, [0], axis=2), BindingError, "take: axis 2 is out of range"),
        (lambda: take_along_axis(X, [[0]]), BindingError, r"do not fit a tensor of shape \(4, 3\) along dim 1"),
        (lambda: take_along_axis(X, [0]), BindingError, "all other dims must be equal.\n  use broadcast_to first"),
        (lambda: take_along_axis(X, [[True]] * 4), ArgumentError, "take_along_axis: indices are integers, got bool"),
        (lambda: embedding([0], np.ones(3)), BindingError, r"embedding: a table has two dims, got shape \(3,\)"),
        (lambda: embedding([0.0], X), ArgumentError, "embedding: indices are integers, got float64"),
        (lambda: embedding([-5], X), BindingError, "index -5 is out of range for a dim of 4"),
        (lambda: one_hot([0.5], 3), ArgumentError, "one_hot: indices are integers, got float64"),
        (lambda: X[..., np.ones(2, bool)], BindingError, r"mask of shape \(2,\) does not fit dim 1 and on .* \(4, 3\)"),
        (lambda: X[np.ones((3, 2), bool)], BindingError, r"mask of shape \(3, 2\) does not fit .* \(4, 3\)"),
    ],
)
def test_what_does_not_fit_says_so(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_a_small_slice_is_copied_from_the_arrays_themselves_and_once():
    value = np.arange(16.0).reshape(8, 2)
    x, counters = shard(value, DeviceMesh((4,), ("x",)), P("x")), current_engine().counters
    x[1:]
    counters.reset()
    assert np.array_equal(x[1:].numpy(), value[1:])
    assert (counters.kernel_calls, counters.copies, counters.bytes_copied) == (0, 6, 6 * 16)  # the last part is a view
    assert counters.bytes_moved == {"exchange": 3 * 16}
