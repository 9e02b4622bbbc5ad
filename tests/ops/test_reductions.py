"""Reductions over dims against NumPy and JAX."""

import numpy as np
import pytest

import shardwise
from shardwise import ArgumentError, BindingError, DeviceMesh, P, current_engine, shard
from tests.ops.peers import check

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
