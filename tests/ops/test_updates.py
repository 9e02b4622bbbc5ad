"""Functional updates against NumPy and JAX, and what they send."""

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
    grad,
    jvp,
    mode,
    shard,
    vjp,
)
from tests.ops.cases import agrees, lacking, sent, tensors
from tests.ops.peers import check
from tests.ops.test_indexing import FULL, KEYS, advanced_keys, basic_keys, slices_of
from tests.prim.cases import DTYPES, jax_of_eight

MESH = DeviceMesh((2, 4), ("x", "y"))
NUMBERS = [t for t in DTYPES if t.kind != "b"]


def put(value: np.ndarray, key: Any, new: Any) -> np.ndarray:
    out = value.copy()
    out[key] = new
    return out


def added(value: np.ndarray, key: Any, new: Any) -> np.ndarray:
    out = value.copy()
    np.add.at(out, key, new)
    return out


@given(st.data(), tensors())
def test_a_basic_index(data, x):
    key = data.draw(basic_keys(x.shape))
    shape = x.numpy()[key].shape
    new = data.draw(tensors(shape, [x.dtype], mesh=x.mesh, seed=9))
    agrees(lambda x, new: x.at[key].set(new), lambda v, n: put(v, key, n), x, new)
    if x.dtype.kind != "b":
        agrees(lambda x, new: x.at[key].add(new), lambda v, n: added(v, key, n), x, new)
    assert np.array_equal(x.at[key].get().numpy(), x.numpy()[key])


@given(st.data(), tensors(FULL, NUMBERS))
def test_arrays_of_integers_where_the_last_of_several_counts(data, x):
    key = data.draw(advanced_keys(x.shape))
    shape = x.numpy()[key].shape
    new = data.draw(tensors(shape, [x.dtype], mesh=x.mesh, seed=9))
    agrees(lambda x, new: x.at[key].set(new), lambda v, n: put(v, key, n), x, new)
    agrees(lambda x, new: x.at[key].add(new), lambda v, n: added(v, key, n), x, new)


@given(st.data(), tensors(FULL, ["float32"]))
def test_values_broadcast_and_are_cast(data, x):
    key = data.draw(basic_keys(x.shape))
    assert np.array_equal(x.at[key].set(7).numpy(), put(x.numpy(), key, 7))
    assert np.array_equal(x.at[key].add(2.5).numpy(), added(x.numpy(), key, np.float32(2.5)))
    shape = x.numpy()[key].shape[-1:]
    new = np.arange(float(np.prod(shape))).reshape(shape)
    made = x.at[key].set(new)
    assert made.dtype == np.float32
    assert np.array_equal(made.numpy(), put(x.numpy(), key, new))


def test_an_update_leaves_the_tensor_alone():
    x = shard(np.zeros(8), MESH, P("y"))
    y = x.at[2:5].set(1.0)
    z = y.at[np.array([0, 0])].add(1.0)
    assert x.numpy().tolist() == [0.0] * 8
    assert y.numpy().tolist() == [0, 0, 1, 1, 1, 0, 0, 0]
    assert z.numpy().tolist() == [2, 0, 1, 1, 1, 0, 0, 0]


def test_repeated_indices_whatever_the_layout():
    index, new = np.array([3, 0, 3, 7, 3]), np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    for spec in (P(), P("y"), P(("y", "x"))):
        x = shard(np.zeros(8), MESH, spec)
        for i_spec in (P(), P("x"), P(("x", "y"))):
            i, n = shard(index, MESH, i_spec), shard(new, MESH, P("y"))
            assert np.array_equal(x.at[i].set(n).numpy(), put(np.zeros(8), index, new))
            assert np.array_equal(x.at[i].add(n).numpy(), added(np.zeros(8), index, new))


@pytest.mark.parametrize("spec", [P("y"), P(("x", "y")), P()], ids=str)
def test_an_update_has_the_layout_of_what_is_updated(spec):
    x = shard(np.arange(9.0), MESH, spec)
    assert x.at[:].add(shard(np.ones(9), MESH, P("x"))).layout is x.layout
    assert x.at[:].set(shard(np.ones(9), MESH, P("x"))).layout is x.layout
    repeated = np.array([4, 4])
    for y in (
        x.at[1:7].set(0.0),
        x.at[::-2].add(1.0),
        x.at[repeated].set(2.0),
        x.at[[8]].add(1.0),
        x.at[0].set(3),
    ):
        assert y.layout is x.layout


# -- bytes -----------------------------------------------------------------------------------------------


@given(st.data(), tensors(FULL, ["float32"], partial=False, halo=False))
def test_a_window_that_is_written_moves_only_what_changes_device(data, x):
    key = tuple(data.draw(slices_of(n)) for n in x.shape)
    window = np.arange(x.size).reshape(x.shape)[key]
    new = data.draw(tensors(window.shape, ["float32"], mesh=x.mesh, partial=False, halo=False))
    own = np.full(x.shape, -1)
    own[key] = np.arange(window.size).reshape(window.shape)
    wanted = lacking([own], [new.layout], [new.shape], x.layout)
    for call in (lambda: x.at[key].set(new), lambda: x.at[key].add(new)):
        made, size = sent(call)
        assert made.layout is x.layout
        assert size == wanted * 4


def test_updates_of_what_every_device_has_send_nothing():
    x = shard(np.zeros((8, 6)), MESH, P("x", "y"))
    index = np.array([7, 0, 7])
    for call in (
        lambda: x.at[1:6].set(1.0),
        lambda: x.at[:, ::2].add(np.ones(3)),
        lambda: x.at[index].set(np.arange(6.0)),
        lambda: x.at[index].add(np.arange(6.0)),
        lambda: x.at[:, index % 6].set(np.ones((8, 3))),
        lambda: x.at[2, 3].set(4.0),
    ):
        made, size = sent(call)
        assert size == 0
        assert made.layout is x.layout


def test_several_arrays_on_dims_that_do_not_divide_send_nothing_of_the_tensor():
    value = np.arange(35.0).reshape(7, 5)
    x, i, j = shard(value, MESH, P("y", "x")), np.array([6, 0, 6]), np.array([4, 1, 4])
    found, size = sent(lambda: x[i, j])
    assert size == 0
    assert str(found.layout) == "[-] sum(x, y)"
    assert np.array_equal(found.numpy(), value[i, j])
    for made, size in (sent(lambda: x.at[i, j].add(1.0)), sent(lambda: x.at[i, j].set(np.arange(3.0)))):
        assert size == 0
        assert made.layout is x.layout
    found, size = sent(lambda: vjp(lambda x: x[i, j], x)[1](shard(np.ones(3), MESH, P()))[0])
    assert size == 0
    assert np.array_equal(found.numpy(), added(np.zeros((7, 5)), (i, j), 1.0))


def test_empty_indices_of_empty_dims():
    empty = np.array([], int)
    for shape in ((0, 3), (3, 0), (0, 0)):
        x = shard(np.ones(shape), MESH, P("x", "y"))
        assert x[empty, empty].shape == (0,)
        assert x.at[empty, empty].set(np.ones(0)).shape == shape
        assert x.at[empty, empty].add(1.0).shape == shape
        assert x.at[empty].set(1.0).shape == shape
        assert grad(lambda x: shardwise.sum(x[empty, empty]))(x).shape == shape


def test_values_for_repeated_indices_are_gathered_and_the_tensor_is_not():
    x = shard(np.zeros((1000, 6)), MESH, P("y"))
    index, new = shard(np.arange(4), MESH, P("y")), shard(np.ones((4, 6)), MESH, P("y"))
    made, size = sent(lambda: x.at[index].set(new))
    # Which of several values comes last is only known where all of them are: 4 groups of one row and one index each.
    assert size == (4 * 6 * 8 + 4 * 8) * 6
    assert made.layout is x.layout


# -- derivatives -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", KEYS[::3], ids=lambda key: " ".join(str(key).split()))
def test_values_and_derivatives_follow_jax(key):
    jnp = jax_of_eight().numpy
    value = np.random.default_rng(0).standard_normal((6, 5, 4))
    new = np.random.default_rng(1).standard_normal(value[key].shape)
    seed = len(str(key))
    check(lambda x, u: x.at[key].add(u * u), lambda x, u: jnp.asarray(x).at[key].add(u * u), value, new, seed=seed)
    check(lambda x, u: x.at[key].set(u * u), lambda x, u: jnp.asarray(x).at[key].set(u * u), value, new, seed=seed)


@given(st.data(), tensors(FULL, ["float64"]))
def test_only_the_last_of_repeated_values_has_a_derivative(data, x):
    key = data.draw(advanced_keys(x.shape))
    new = data.draw(tensors(x.numpy()[key].shape, ["float64"], mesh=x.mesh, seed=9))
    out, back = vjp(lambda x, new: x.at[key].set(new), x, new)
    ct = np.random.default_rng(0).integers(-3, 4, out.shape).astype("float64")
    by_x, by_new = back(ct)
    numbers = put(np.full(x.shape, -1), key, np.arange(new.size).reshape(new.shape))
    want = np.zeros(new.size)
    want[numbers[numbers >= 0]] = ct[numbers >= 0]
    assert np.array_equal(by_new.numpy().ravel(), want)
    assert np.array_equal(by_x.numpy(), np.where(numbers < 0, ct, 0.0))
    assert by_x.layout is x.layout.resolved()
    assert by_new.layout is new.layout.resolved()
    tangents = [np.random.default_rng(k).integers(-3, 4, y.shape).astype("float64") for k, y in enumerate((x, new))]
    moved = jvp(lambda x, new: x.at[key].set(new), (x, new), tangents)[1]
    assert np.array_equal(moved.numpy(), put(tangents[0], key, tangents[1]))


@given(st.data(), tensors(FULL, ["float64"]))
def test_all_of_repeated_values_that_are_added_have_a_derivative(data, x):
    key = data.draw(advanced_keys(x.shape))
    new = data.draw(tensors(x.numpy()[key].shape, ["float64"], mesh=x.mesh, seed=9))
    out, back = vjp(lambda x, new: x.at[key].add(new), x, new)
    ct = np.random.default_rng(0).integers(-3, 4, out.shape).astype("float64")
    by_x, by_new = back(ct)
    assert np.array_equal(by_new.numpy(), ct[key])
    assert np.array_equal(by_x.numpy(), ct)
    assert by_new.layout is new.layout.resolved()


def test_derivatives_by_one_operand_alone():
    x, new = shard(np.arange(6.0), MESH, P("y")), np.array([1.0, 2.0])
    index = np.array([1, 1])
    for key, kept, new_ones in ((index, 5, 1), (slice(2, 4), 4, 2)):
        moved = jvp(lambda x, key=key: x.at[key].set(new), (x,), (np.ones(6),))[1]
        assert moved.numpy().sum() == kept
        moved = jvp(lambda n, key=key: x.at[key].set(n), (new,), (np.ones(2),))[1]
        assert moved.numpy().sum() == new_ones
        assert jvp(lambda n, key=key: x.at[key].add(n), (new,), (np.ones(2),))[1].numpy().sum() == 2
        assert np.array_equal(grad(lambda n, key=key: shardwise.sum(x.at[key].add(n)))(new).numpy(), [1.0, 1.0])


def test_derivatives_follow_finite_differences():
    rng = np.random.default_rng(0)
    value, direction = rng.standard_normal(7), rng.standard_normal(7)
    index = np.array([5, 0, 5])

    def f(x):
        return shardwise.sum(shardwise.sin(x.at[index].set(x[:3] * x[2:5]).at[1:3].add(x[4:6])) * x)

    def g(v):
        return np.sum(np.sin(added(put(v, index, v[:3] * v[2:5]), slice(1, 3), v[4:6])) * v)

    x, step = shard(value, MESH, P(("y", "x"))), 1e-6
    want = (g(value + step * direction) - g(value - step * direction)) / (2 * step)
    assert np.isclose(jvp(f, (x,), (direction,))[1].item(), want, rtol=1e-7)
    assert np.isclose(np.vdot(grad(f)(x).numpy(), direction), want, rtol=1e-7)


def test_second_derivatives():
    jax = jax_of_eight()
    jnp = jax.numpy
    value, index = np.random.default_rng(0).standard_normal(7), np.array([5, 0, 3])
    x = shard(value, MESH, P("y"))
    ours = lambda x: shardwise.sum(x.at[index].set(x[:3] * x[2:5]).at[1:3].add(x[4:6] ** 2) ** 3)  # noqa: E731
    theirs = lambda x: jnp.sum(x.at[index].set(x[:3] * x[2:5]).at[1:3].add(x[4:6] ** 2) ** 3)  # noqa: E731
    found = grad(lambda x: shardwise.sum(shardwise.sin(grad(ours)(x))))(x)
    want = jax.grad(lambda x: jnp.sum(jnp.sin(jax.grad(theirs)(x))))(jnp.asarray(value))
    assert found.layout is x.layout
    assert np.allclose(found.numpy(), want)


# -- solvers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["set", "add"])
def test_an_update_that_reshards_is_refused_reported_or_warned_of(name):
    x = shard(np.zeros((9, 4)), MESH, P("y"))
    index = shard(np.arange(3), MESH, P("x"))
    new = shard(np.ones((3, 4)), MESH, P("y"))
    call = lambda: getattr(x.at[index], name)(new)  # noqa: E731
    with mode(NoReshard()), pytest.raises(LayoutError) as error:
        call()
    text = str(error.value)
    assert text.startswith("NoReshard does not allow what this sends.")
    assert f"x.at[...].{name} at" in text
    assert "test_updates.py" in text
    assert "fix: x" in text
    with (
        mode(GreedyReshard(on_reshard="raise")),
        pytest.raises(LayoutError, match=rf"{name} at .* reshards"),
    ):
        call()
    with (
        mode(GreedyReshard(on_reshard="warn")),
        pytest.warns(ReshardWarning, match=rf"{name} at .* \(\d+ bytes"),
    ):
        call()


# -- refusals --------------------------------------------------------------------------------------------

X = shard(np.ones((4, 3)), MESH, P("y"))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: X.at[4].set(0), BindingError, "index 4 is out of range for a dim of 4 elements"),
        (lambda: X.at[[4]].set(0), BindingError, "index 4 is out of range for a dim of 4 elements"),
        (lambda: X.at[[0, -5]].add(0), BindingError, "index -5 is out of range for a dim of 4 elements"),
        (lambda: X.at[1:3].set(np.ones(2)), BindingError, r"values of shape \(2,\) do not fit the \(2, 3\) elements"),
        (lambda: X.at[[0, 1]].add(np.ones((3, 3))), BindingError, r"values of shape \(3, 3\) do not fit the \(2, 3\)"),
        (lambda: X.at[0].set(np.ones((1, 1, 3))), BindingError, r"values of shape \(1, 1, 3\) do not fit the \(3,\)"),
        (lambda: X.at[X > 0].set(0), ArgumentError, "a shape that depends on values"),
        (lambda: X.at[0.5].set(0), ArgumentError, "arrays of integers, got float"),
        (lambda: X.at[0, 0, 0].set(0), BindingError, "an index with 3 entries does not fit a tensor with 2 dims"),
        (lambda: X.at[0].set("a"), ArgumentError, "numbers were expected|nested numbers"),
    ],
)
def test_what_does_not_fit_says_so(call, error, text):
    with pytest.raises(error, match=text):
        call()
