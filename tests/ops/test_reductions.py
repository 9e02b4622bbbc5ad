"""Reductions over dims against NumPy and JAX."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardwise
from shardwise import (
    ArgumentError,
    BindingError,
    Cut,
    DeviceMesh,
    Layout,
    P,
    ReduceOp,
    argmax,
    argmin,
    cumulative_sum,
    current_engine,
    from_shards,
    grad,
    jvp,
    norm,
    shard,
    topk,
)
from tests.ops.cases import agrees, sent, tensors, transposed
from tests.ops.peers import check
from tests.prim.cases import DTYPES, jax_of_eight

MESH = DeviceMesh((2, 4), ("x", "y"))
AXES = [None, 0, -1, (0, 2), ()]


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize(
    ("name", "axis"),
    [(n, a) for n in ("sum", "mean", "var", "max", "min", "prod") for a in AXES] + [("std", a) for a in AXES[:-1]],
    ids=str,
)
def test_reductions(name, axis, keepdims):
    import jax.numpy as jnp

    value = np.random.default_rng(0).permutation(60).reshape(4, 5, 3) / 30.0 + 0.1
    for seed in range(2):
        check(
            lambda x: getattr(shardwise, name)(x, axis=axis, keepdims=keepdims),
            lambda x: getattr(jnp, name)(x, axis=axis, keepdims=keepdims),
            value,
            seed=seed,
        )


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 1)], ids=str)
def test_logsumexp(axis):
    from jax.scipy.special import logsumexp

    value = np.random.default_rng(1).standard_normal((4, 5, 3)) * 100
    check(lambda x: shardwise.logsumexp(x, axis=axis), lambda x: logsumexp(x, axis=axis), value)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax(axis):
    import jax

    for seed in range(3):
        value = np.random.default_rng(seed).standard_normal((4, 5, 3))
        check(lambda x: shardwise.softmax(x, axis=axis), lambda x: jax.nn.softmax(x, axis=axis), value, seed=seed)
        check(
            lambda x: shardwise.log_softmax(x, axis=axis), lambda x: jax.nn.log_softmax(x, axis=axis), value, seed=seed
        )


def test_any_and_all():
    values = np.arange(12).reshape(3, 4) % 5 > 0
    x = shard(values, MESH, P("x", "y"))
    for axis in (None, 0, 1):
        assert np.array_equal(shardwise.any(x, axis=axis).numpy(), values.any(axis))
        assert np.array_equal(shardwise.all(x, axis=axis).numpy(), values.all(axis))


def test_products_with_zeros_have_exact_derivatives():
    for zeros in ([], [2], [1, 2]):
        value = np.arange(1.0, 9.0)
        value[zeros] = 0
        _, back = shardwise.vjp(shardwise.prod, shard(value, MESH, P(("x", "y"))))
        others = [np.prod(np.delete(value, k)) for k in range(8)]
        assert np.allclose(back(np.ones(()))[0].numpy(), others)


def test_ties_share_the_derivative_evenly():
    _, back = shardwise.vjp(shardwise.max, shard(np.array([1.0, 3.0, 3.0, 2.0]), MESH, P("y")))
    assert back(np.ones(()))[0].numpy().tolist() == [0.0, 0.5, 0.5, 0.0]


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint8", "bool"])
def test_sums_of_ints_widen_as_numpy_does(dtype):
    values = (np.arange(40).reshape(5, 8) % 2 * 100).astype(dtype)
    got, want = shardwise.sum(shard(values, MESH, P("x", "y")), axis=0), np.sum(values, axis=0)
    assert got.dtype == want.dtype
    assert np.array_equal(got.numpy(), want)


def test_nan_and_inf_follow_numpy_also_on_empty_shards():
    values = np.array([1.0, np.nan, -np.inf])  # three elements on eight devices
    x = shard(values, MESH, P(("x", "y")))
    with np.errstate(all="ignore"):
        for name in ("sum", "max", "min", "prod", "mean"):
            assert np.array_equal(getattr(shardwise, name)(x).numpy(), getattr(np, name)(values), equal_nan=True)
        clean = shard(np.array([-3.0, -2.0]), MESH, P(("x", "y")))
        assert shardwise.max(clean).item() == -2.0
        assert shardwise.min(clean).item() == -3.0


def test_only_the_small_partial_results_are_sent():
    x = shard(np.ones((64, 32)), MESH, P("x", "y"))
    counters = current_engine().counters
    counters.reset()
    total = shardwise.sum(x)
    assert counters.total == 0
    assert total.item() == 64 * 32
    shard(total, MESH, P())
    assert counters.total == 8 * (8 + 8 - 2)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: shardwise.sum(np.ones((2, 3)), axis=2), BindingError, "axis 2 is out of range"),
        (lambda: shardwise.sum(np.ones((2, 3)), axis=(0, -2)), BindingError, "named twice"),
        (lambda: shardwise.sum(np.ones((2, 3)), axis=True), ArgumentError, "an int or a tuple of ints"),
        (lambda: shardwise.max(np.ones((0, 3)), axis=0), BindingError, "has no value"),
    ],
)
def test_what_is_wrong_says_so(call, error, text):
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "bfloat16", "float32"])
def test_a_pending_maximum_of_any_float_is_the_value(dtype):
    import ml_dtypes  # noqa: F401 (registers the dtypes)

    values = np.array([-3.0, 2.0, 1.0, -1.0]).astype(dtype)
    x = shard(values, MESH, P(unreduced={"x": "max"}))
    assert np.array_equal(x.numpy().astype("float32"), values.astype("float32"))


# -- where, how much, how far ----------------------------------------------------------------------------

RANKED = st.lists(st.integers(0, 7), min_size=1, max_size=3).map(tuple)
FULL = st.lists(st.integers(1, 7), min_size=1, max_size=3).map(tuple)
REAL = [t for t in DTYPES if t.kind != "c"]
WIDE = {"b": "int64", "i": "int64", "u": "uint64"}


@given(st.data(), tensors(FULL, REAL))
def test_argmax_and_argmin(data, x):
    axis = data.draw(st.sampled_from([None, *range(-x.ndim, x.ndim)]))
    keepdims = data.draw(st.booleans())
    for ours, theirs in ((argmax, np.argmax), (argmin, np.argmin)):
        agrees(
            lambda x, f=ours: f(x, axis=axis, keepdims=keepdims), lambda v, f=theirs: f(v, axis, keepdims=keepdims), x
        )


def test_argmax_of_a_scalar_and_of_dims_beside_an_empty_one():
    assert argmax(np.array(3.0)).item() == 0
    assert argmax(np.ones((0, 3)), axis=1).shape == (0,)
    assert argmin(shard(np.ones((0, 3)), MESH, P("y")), axis=1).dtype == np.int64


@pytest.mark.parametrize("name", ["argmax", "argmin", "max", "min", "sum", "prod", "any", "all", "mean", "norm"])
def test_what_shards_come_to_is_read_only_also_beside_empty_shards(name):
    mesh = DeviceMesh((4,), ("x",))
    for offsets in ((0, 0, 1, 2, 2), (0, 1, 1, 1, 2), (0, 2, 2, 2, 2), (0, 0, 0, 0, 2)):
        x = from_shards(
            [np.ones(b - a) for a, b in pairwise(offsets)], mesh, Layout(mesh, [Cut("x", offsets=offsets)]), (2,)
        )
        out = getattr(shardwise, name)(x)
        for array in (*(s.array for s in out.shards), *map(out.local, range(4)), out.numpy()):
            assert type(array) is np.ndarray
            assert not array.flags.writeable


@pytest.mark.parametrize("spec", [P(), P("y"), P(("y", "x")), P("x", "y")], ids=str)
def test_argmax_finds_the_first_of_ties_and_of_nans(spec):
    value = np.array([[1.0, np.nan, 3.0, np.nan, 3.0], [2.0, 5.0, 5.0, -0.0, 0.0], [-0.0, 0.0, -0.0, 0.0, 0.0]])
    x = shard(value, MESH, spec)
    for axis in (None, 0, 1):
        assert np.array_equal(argmax(x, axis=axis).numpy(), np.argmax(value, axis))
        assert np.array_equal(argmin(x, axis=axis).numpy(), np.argmin(value, axis))


@given(st.data(), tensors(RANKED))
def test_cumulative_sum(data, x):
    dim = data.draw(st.integers(-x.ndim, x.ndim - 1))
    initial = data.draw(st.booleans())
    wide = np.dtype(WIDE.get(x.dtype.kind, x.dtype))

    def theirs(v):
        out = np.cumsum(v, dim, dtype=wide)
        first = np.zeros([1 if k == dim % x.ndim else n for k, n in enumerate(v.shape)], wide)
        return np.concatenate([first, out], dim) if initial else out

    exact = x.layout.reduce_op is not ReduceOp.AVG  # averages are no whole numbers
    agrees(lambda x: cumulative_sum(x, axis=dim, include_initial=initial), theirs, x, exact=exact)


def test_cumulative_sum_in_another_dtype():
    x = shard(np.full(9, 100, "int8"), MESH, P("y"))
    assert cumulative_sum(x).numpy().tolist() == list(range(100, 1000, 100))
    small = cumulative_sum(x, dtype="int8")
    assert small.dtype == np.int8
    assert np.array_equal(small.numpy(), np.cumsum(np.full(9, 100, "int8"), dtype="int8"))


ORDERS = [2, 1, 0, 3, 0.5, -1, np.inf, -np.inf]


@given(st.data(), tensors(FULL, ["float32", "float64", "complex64"]), st.sampled_from(ORDERS))
def test_norm(data, x, order):
    axis = data.draw(st.sampled_from([None, *range(-x.ndim, x.ndim), tuple(range(x.ndim))]))
    keepdims = data.draw(st.booleans())

    def theirs(v):
        return np.linalg.vector_norm(v, axis=axis, keepdims=keepdims, ord=order)

    with np.errstate(divide="ignore"):
        agrees(lambda x: norm(x, axis=axis, keepdims=keepdims, ord=order), theirs, x, exact=False)


@given(st.data(), tensors(RANKED, REAL))
def test_topk(data, x):
    dim = data.draw(st.integers(-x.ndim, x.ndim - 1))
    k = data.draw(st.integers(0, x.shape[dim]))

    def theirs(v):
        rank = v.astype("float64")
        order = np.argsort(-rank, dim, kind="stable")
        where = np.take(order, np.arange(k), dim)
        return np.take_along_axis(v, where, dim), where

    agrees(lambda x: topk(x, k, axis=dim), theirs, x)


@given(st.data(), tensors(FULL, ["float32", "float64"]))
def test_means_variances_and_softmax_in_any_layout(data, x):
    dim = data.draw(st.integers(0, x.ndim - 1))

    def softmax(v):
        top = np.exp(v - v.max(dim, keepdims=True))
        return top / top.sum(dim, keepdims=True)

    agrees(lambda x: shardwise.mean(x, axis=dim), lambda v: v.mean(dim), x, exact=False)
    agrees(lambda x: shardwise.var(x, axis=dim), lambda v: v.var(dim), x, exact=False)
    agrees(lambda x: shardwise.softmax(x, axis=dim), softmax, x, exact=False)


# -- bytes -----------------------------------------------------------------------------------------------

ROWS = 6
SPREAD = shard(np.random.default_rng(0).standard_normal((ROWS, 37)), MESH, P("x", "y"))
EACH = 8 * (4 + 4 - 2)  # bytes to resolve one float64 of which 4 devices have a contribution and all want the result


@pytest.mark.parametrize(
    ("call", "before", "pending"),
    [
        (lambda x: argmax(x, axis=1), ROWS * EACH, ROWS * EACH),  # the best values, then the smallest positions
        (lambda x: argmin(x, axis=1), ROWS * EACH, ROWS * EACH),
        (lambda x: shardwise.sum(x, axis=1), 0, ROWS * EACH),
        (lambda x: shardwise.max(x, axis=1), 0, ROWS * EACH),
        (lambda x: shardwise.prod(x, axis=1), 0, ROWS * EACH),
        (lambda x: shardwise.mean(x, axis=1), ROWS * EACH, 0),
        (lambda x: norm(x, axis=1), ROWS * EACH, 0),
        (lambda x: norm(x, axis=1, ord=1), 0, ROWS * EACH),
        (lambda x: norm(x, axis=1, ord=np.inf), 0, ROWS * EACH),
        (lambda x: shardwise.var(x, axis=1), 2 * ROWS * EACH, 0),
        (lambda x: shardwise.std(x, axis=1), 2 * ROWS * EACH, 0),
        (lambda x: shardwise.logsumexp(x, axis=1), 2 * ROWS * EACH, 0),
        (lambda x: shardwise.softmax(x, axis=1), 2 * ROWS * EACH, 0),
        (lambda x: shardwise.log_softmax(x, axis=1), 2 * ROWS * EACH, 0),
        (lambda x: cumulative_sum(x, axis=1), ROWS * 8 * 4 * 3, 0),  # each of 4 devices gets 3 totals
        (lambda x: topk(x, 2)[1], ROWS * (8 + 8) * 2 * 4 * 3, 0),  # and 3 times 2 values with their positions
    ],
)
def test_along_a_sharded_dim_only_small_partial_results_are_sent(call, before, pending):
    made, size = sent(lambda: call(SPREAD))
    assert size == before
    assert bool(made.layout.partial) == bool(pending)
    assert sent(lambda: shard(made, MESH, P("x") if made.ndim == 1 else made.layout.resolved()))[1] == pending


def test_along_dims_that_are_not_sharded_nothing_is_sent():
    x = shard(np.arange(40.0).reshape(8, 5), MESH, P(("x", "y")))
    for name in ("sum", "prod", "max", "min", "mean", "var", "std", "logsumexp", "softmax", "log_softmax", "argmax",
                 "argmin", "norm", "cumulative_sum"):  # fmt: skip
        made, size = sent(lambda name=name: getattr(shardwise, name)(x, axis=1))
        assert size == 0, name
        assert not made.layout.partial
    assert sent(lambda: topk(x, 3))[1] == 0


def test_cumulative_sums_move_only_totals():
    x = shard(np.arange(1000.0), MESH, P(("x", "y")))
    made, size = sent(lambda: cumulative_sum(x))
    assert size == 8 * 7 * 8  # each device gets the totals of the 7 others, however long the dim
    assert made.layout is x.layout
    assert np.array_equal(made.numpy(), np.cumsum(np.arange(1000.0)))
    _, size = sent(lambda: cumulative_sum(shard(np.arange(3.0), MESH, P("y"))))
    assert size <= 8 * 3 * 8


# -- derivatives -----------------------------------------------------------------------------------------


@given(st.data(), tensors(RANKED, ["float64"]))
def test_the_derivative_of_a_running_sum_is_its_transpose(data, x):
    dim = data.draw(st.integers(0, x.ndim - 1))
    transposed(lambda x: cumulative_sum(x, axis=dim), x)
    transposed(lambda x: cumulative_sum(x, axis=dim, include_initial=True), x)


def test_derivatives_follow_jax():
    jax = jax_of_eight()
    jnp = jax.numpy
    value = np.random.default_rng(0).standard_normal((6, 5))
    for seed in range(3):
        check(lambda x: cumulative_sum(x * x, axis=0), lambda x: jnp.cumsum(x * x, axis=0), value, seed=seed)
        for order in (1, 2, 3, np.inf, -np.inf, 0):
            check(
                lambda x, o=order: norm(x, axis=1, ord=o),
                lambda x, o=order: jnp.linalg.vector_norm(x, axis=1, ord=o),
                value,
                seed=seed,
            )
        check(lambda x: topk(x * x, 3)[0], lambda x: jax.lax.top_k(x * x, 3)[0], value, seed=seed)
        check(lambda x: x * argmax(x, axis=1, keepdims=True), lambda x: x * jnp.argmax(x, 1, keepdims=True), value)


def test_derivatives_follow_finite_differences():
    rng = np.random.default_rng(0)
    value, direction = rng.standard_normal((4, 5)), rng.standard_normal((4, 5))

    def f(x):
        return shardwise.sum(shardwise.sin(cumulative_sum(x, axis=1)) * topk(x, 5)[0]) * norm(x, ord=3)

    def g(v):
        return np.sum(np.sin(np.cumsum(v, 1)) * -np.sort(-v, 1)) * np.sum(np.abs(v) ** 3) ** (1 / 3)

    x, step = shard(value, MESH, P("x", "y")), 1e-6
    want = (g(value + step * direction) - g(value - step * direction)) / (2 * step)
    assert np.isclose(jvp(f, (x,), (direction,))[1].item(), want, rtol=1e-7)
    found = grad(f)(x)
    assert found.layout is x.layout
    assert np.isclose(np.vdot(found.numpy(), direction), want, rtol=1e-7)


def test_second_derivatives():
    jax = jax_of_eight()
    jnp = jax.numpy
    value = np.random.default_rng(0).standard_normal((3, 4))
    x = shard(value, MESH, P("x", "y"))
    ours = lambda x: shardwise.sum(cumulative_sum(x * x, axis=1) ** 2 * x) + norm(topk(x, 2)[0])  # noqa: E731
    theirs = lambda x: jnp.sum(jnp.cumsum(x * x, 1) ** 2 * x) + jnp.linalg.norm(jax.lax.top_k(x, 2)[0])  # noqa: E731
    found = grad(lambda x: shardwise.sum(shardwise.sin(grad(ours)(x))))(x)
    want = jax.grad(lambda x: jnp.sum(jnp.sin(jax.grad(theirs)(x))))(value)
    assert found.layout is x.layout
    assert np.allclose(found.numpy(), want)


# -- special values --------------------------------------------------------------------------------------

SPECIAL = {
    "nan": [1.0, np.nan, -np.inf, 2.0, 0.0],
    "inf": [1.0, np.inf, 3.0, np.inf, -2.0],
    "both infinities": [np.inf, 1.0, -np.inf, 0.5, 2.0],
    "negative zeros": [-0.0, -0.0, -0.0, -0.0, -0.0],
    "one of each zero": [-0.0, 1.0, 0.0, 2.0, -0.0],
    "overflow": [1e308, 1e308, -1e308, 1e308, 1e308],
}


@pytest.mark.parametrize("spec", [P(), P(None, "y"), P(None, ("x", "y")), P("x", "y"), P("y")], ids=str)
@pytest.mark.parametrize("case", SPECIAL)
def test_reductions_of_special_values_follow_numpy(case, spec):
    value = np.array([SPECIAL[case], SPECIAL[case][::-1], [1.0] * 5])
    x = shard(value, MESH, spec)
    with np.errstate(all="ignore"):
        for name in ("sum", "prod", "max", "min", "mean", "argmax", "argmin", "cumulative_sum"):
            for axis in (0, 1):
                if case == "overflow" and name in ("sum", "mean", "cumulative_sum") and axis == 1:
                    continue  # whether it overflows depends on the order of the sums
                got = getattr(shardwise, name)(x, axis=axis).numpy()
                want = np.cumsum(value, axis) if name == "cumulative_sum" else getattr(np, name)(value, axis=axis)
                assert np.array_equal(got, want, equal_nan=True), (name, axis, got, want)
                if case == "negative zeros":
                    assert np.array_equal(np.signbit(got), np.signbit(want)), (name, axis, got, want)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint64"])
@pytest.mark.parametrize("spec", [P(), P("y"), P(("x", "y"))], ids=str)
def test_integers_overflow_as_in_numpy(dtype, spec):
    top = np.iinfo(dtype).max
    value = np.array([top, top, 2, top, 3], dtype)
    x = shard(value, MESH, spec)
    with np.errstate(all="ignore"):
        for name in ("sum", "prod", "max", "min", "mean", "argmax", "argmin"):
            got, want = getattr(shardwise, name)(x).numpy(), getattr(np, name)(value)
            assert got.dtype == want.dtype
            assert np.isclose(got, want) if name == "mean" else got == want, name
        got, want = cumulative_sum(x).numpy(), np.cumsum(value)
        assert got.dtype == want.dtype
        assert np.array_equal(got, want)
        assert np.array_equal(cumulative_sum(x, dtype=dtype).numpy(), np.cumsum(value, dtype=dtype))
        assert shardwise.sum(x, dtype=dtype).item() == np.sum(value, dtype=dtype)


def test_means_and_variances_of_half_precision_do_not_overflow():
    for dtype in ("float16", "bfloat16"):
        value = np.full((4, 1000), 200.0).astype(dtype)
        value[:, ::2] = 0
        x = shard(value, MESH, P("x", "y"))
        assert shardwise.mean(x, axis=1).dtype == value.dtype
        assert np.array_equal(shardwise.mean(x, axis=1).numpy().astype("float32"), np.full(4, 100.0))
        assert np.array_equal(shardwise.std(x, axis=1).numpy().astype("float32"), np.full(4, 100.0))
    exact = np.array([60000, 60000, 1], "float16")
    assert shardwise.mean(shard(exact, MESH, P("x"))).item() == np.mean(exact)


def test_topk_takes_nan_for_the_largest_wherever_it_lies():
    value = np.array([1.0, np.nan, 3.0, np.inf, -np.inf, 2.0, np.nan])
    for spec in (P(), P("y"), P(("x", "y"))):
        values, indices = topk(shard(value, MESH, spec), 4)
        assert indices.numpy().tolist() == [1, 6, 3, 2]
        assert np.array_equal(values.numpy(), value[[1, 6, 3, 2]], equal_nan=True)


def test_the_item_of_a_pending_value_is_the_global_value():
    x = shard(np.arange(10.0), MESH, P("y"))
    for call, want in (
        (shardwise.sum, 45.0),
        (shardwise.max, 9.0),
        (shardwise.min, 0.0),
        (argmax, 9),
        (lambda x: norm(x, ord=1), 45.0),
    ):
        made = call(x)
        assert made.layout.partial
        assert made.item() == want
        assert float(made) == want


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: argmax(np.ones((0, 3))), BindingError, r"argmax over an empty dim has no value: shape \(0, 3\)"),
        (lambda: argmin(np.ones((0, 3)), axis=0), BindingError, "argmin over an empty dim has no value"),
        (lambda: argmax(np.ones(3), axis=1), BindingError, "argmax: axis 1 is out of range for a tensor with 1 dims"),
        (lambda: argmax(np.ones(3), axis=0.5), ArgumentError, "argmax: axis is an int, or None .* got 0.5"),  # type: ignore[arg-type]
        (lambda: argmax(np.ones((2, 2)), axis=(0, 1)), ArgumentError, r"argmax: axis is an int.*got \(0, 1\)"),  # type: ignore[arg-type]
        (lambda: norm(np.ones(3), axis=-2), BindingError, "norm: axis -2 is out of range"),
        (lambda: norm(np.ones(3), ord="fro"), ArgumentError, "norm: ord is a number, got 'fro'"),  # type: ignore[arg-type]
        (lambda: cumulative_sum(np.ones((2, 2))), ArgumentError, "cumulative_sum needs an axis for a tensor with 2"),
        (lambda: cumulative_sum(np.array(1.0)), ArgumentError, "cumulative_sum needs an axis for a tensor with 0"),
        (lambda: cumulative_sum(np.ones(2), axis=3), BindingError, "cumulative_sum: axis 3 is out of range"),
        (lambda: topk(np.ones(3), 4), BindingError, "topk: k is between 0 and 3, the size of dim 0, got 4"),
        (lambda: topk(np.ones(3), -1), BindingError, "topk: k is between 0 and 3"),
        (lambda: topk(np.ones(3), 1.0), BindingError, "topk: k is between 0 and 3, .* got 1.0"),  # type: ignore[arg-type]
        (lambda: topk(np.ones(3), 1, axis=1), BindingError, "topk: axis 1 is out of range"),
        (lambda: argmax(np.ones(2) + 1j), ArgumentError, "argmax: complex numbers have no order"),
        (lambda: topk(np.ones(2) + 1j, 1), ArgumentError, "topk: complex numbers have no order"),
    ],
)
def test_what_a_position_a_norm_or_a_running_sum_refuses(call, error, text):
    with pytest.raises(error, match=text):
        call()


# -- complex numbers -------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(st.data())
def test_the_variance_of_complex_numbers_is_real(data: st.DataObject) -> None:
    x = data.draw(tensors(shape=(4, 3), dtypes=("complex64", "complex128")))
    axis = data.draw(st.sampled_from([None, 0, 1, (0, 1)]))
    correction = data.draw(st.sampled_from([0.0, 1.0]))
    agrees(
        lambda x: (shardwise.var(x, axis=axis, correction=correction), shardwise.std(x, axis=axis, keepdims=True)),
        lambda x: (np.var(x, axis=axis, ddof=correction), np.std(x, axis=axis, keepdims=True)),
        x,
        exact=False,
    )


def slopes(f: Any, value: np.ndarray) -> np.ndarray:
    """The derivative of a real function by differences: by the real part, minus i times that by the imaginary part."""
    out = np.zeros(value.shape, value.dtype)
    for at in np.ndindex(value.shape):
        for unit in (1, 1j) if value.dtype.kind == "c" else (1,):
            step = np.zeros_like(value)
            step[at] = 1e-6 * unit
            out[at] += np.conj(unit) * (f(value + step) - f(value - step)) / 2e-6
    return out


def rms(z: np.ndarray) -> np.ndarray:
    return z / np.sqrt((np.abs(z) ** 2).mean(-1, keepdims=True) + 1e-5)


def test_derivatives_of_complex_variances_and_norms() -> None:
    rng = np.random.default_rng(0)
    value, scale = rng.standard_normal((4, 3)) + 1j * rng.standard_normal((4, 3)), rng.standard_normal(3)
    x = shard(value, DeviceMesh((2,), ("x",)), P("x"))
    pairs: list[tuple[Any, Any]] = [
        (lambda z: shardwise.var(z, axis=0), lambda z: np.var(z, axis=0)),
        (lambda z: shardwise.std(z, axis=1, correction=1.0), lambda z: np.std(z, axis=1, ddof=1)),
        (lambda z: (shardwise.layer_norm(z) * scale).real, lambda z: (rms(z - z.mean(-1, keepdims=True)) * scale).real),
        (lambda z: (shardwise.rms_norm(z) * scale).real, lambda z: (rms(z) * scale).real),
    ]
    for ours, theirs in pairs:
        assert np.allclose(ours(x).numpy(), theirs(value))
        found = grad(lambda z, f=ours: shardwise.sum(f(z)))(x)
        assert np.allclose(found.numpy(), slopes(lambda z, f=theirs: f(z).sum(), value))


def test_a_real_operand_that_meets_a_complex_one_has_a_real_gradient() -> None:
    rng = np.random.default_rng(0)
    value, scale = rng.standard_normal((4, 3)) + 1j * rng.standard_normal((4, 3)), rng.standard_normal(3)
    x = shard(value, DeviceMesh((2,), ("x",)), P("x"))
    for ours, theirs in (
        (lambda r: (x * r).real, lambda r: (value * r).real),
        (lambda r: (x / r).imag, lambda r: (value / r).imag),
        (lambda r: shardwise.matmul(x, r).imag, lambda r: (value @ r).imag),
    ):
        found = grad(lambda r, f=ours: shardwise.sum(f(r)))(scale)
        assert found.dtype == "float64"
        assert np.allclose(found.numpy(), slopes(lambda r, f=theirs: f(r).sum(), scale))
