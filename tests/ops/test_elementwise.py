"""Elementwise functions against NumPy and JAX."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given

import shardwise
from shardwise import BindingError, DeviceMesh, P, current_engine, shard
from tests.ops.cases import agrees, sent, tensors
from tests.ops.peers import check
from tests.prim.arithmetic.declared import BITS_OF_TWO, PLAIN, TWO
from tests.prim.cases import DTYPES, jax_of_eight

MESH = DeviceMesh((2, 4), ("x", "y"))
SHAPES = [((4, 7), (4, 7)), ((4, 7), (7,)), ((4, 1), (1, 7)), ((4, 7), ()), ((5, 1, 3), (4, 1)), ((0, 3), (1, 3))]


def numbers(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.1, 0.9, shape)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", sorted({*PLAIN} - {"acosh", "logical_not"}))
def test_functions_of_one_tensor(name: str, seed: int):
    import jax.numpy as jnp

    check(getattr(shardwise, name), getattr(jnp, name), numbers((4, 7), seed), seed=seed)


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("name", sorted({*TWO} - {"nextafter"}))
def test_functions_of_two_tensors_broadcast(name: str, shapes: Any):
    import jax.numpy as jnp

    for seed in range(2):
        check(getattr(shardwise, name), getattr(jnp, name), numbers(shapes[0], 1), numbers(shapes[1], 2), seed=seed)


@pytest.mark.parametrize("name", ["relu", "gelu", "silu", "softplus", "sigmoid"])
def test_activations(name: str):
    import jax

    for seed in range(3):
        value = np.random.default_rng(seed).standard_normal((4, 7))
        check(getattr(shardwise, name), getattr(jax.nn, name), value, seed=seed)


def test_acosh_where_and_clip():
    import jax.numpy as jnp

    a, b = numbers((4, 7), 1), numbers((7,), 2)
    check(shardwise.acosh, jnp.arccosh, a + 2)
    check(lambda x, y: shardwise.where(x > y, x, y * 2.0), lambda x, y: jnp.where(x > y, x, y * 2.0), a, b)
    check(lambda x: shardwise.clip(x, 0.3, 0.6), lambda x: jnp.clip(x, 0.3, 0.6), a)


@pytest.mark.parametrize("name", BITS_OF_TWO)
def test_bits(name: str):
    a, b = np.arange(24).reshape(4, 6), np.arange(6) % 3
    got = getattr(shardwise, name)(shard(a, MESH, P("x")), shard(b, MESH, P("y")))
    assert np.array_equal(got.numpy(), getattr(np, name)(a, b))


@pytest.mark.parametrize("name", ["logical_and", "logical_or", "logical_xor"])
def test_logic(name: str):
    a, b = np.arange(8) % 2 == 0, np.arange(8) % 3 == 0
    got = getattr(shardwise, name)(shard(a, MESH, P("x")), shard(b, MESH, P("y")))
    assert np.array_equal(got.numpy(), getattr(np, name)(a, b))
    assert np.array_equal(shardwise.logical_not(shard(a, MESH, P("x"))).numpy(), ~a)
    assert np.array_equal((~shard(a, MESH, P("x"))).numpy(), ~a)


def test_casts_and_their_derivative():
    x = shard(np.array([1.7, -1.7]), MESH, P("x"))
    assert shardwise.astype(x, "int8").numpy().tolist() == [1, -1]
    y, back = shardwise.vjp(lambda x: shardwise.astype(x, "float32"), x)
    assert y.dtype == np.float32
    assert back(np.ones(2, "float32"))[0].dtype == np.float64


def test_nan_inf_and_negative_zero_follow_numpy():
    values = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0])
    x = shard(values, MESH, P(("x", "y")))
    with np.errstate(all="ignore"):
        for name in ("maximum", "minimum", "add", "multiply", "copysign"):
            assert getattr(shardwise, name)(x, x).numpy().tobytes() == getattr(np, name)(values, values).tobytes()


def test_operators_are_the_functions():
    a, b = np.array([5, 7, 9, 12]), np.array([2, 2, 4, 5])
    x, y = shard(a, MESH, P("x")), shard(b, MESH, P("y"))
    pairs = [
        (x + y, a + b), (x - y, a - b), (x * y, a * b), (x / y, a / b), (x // y, a // b), (x % y, a % b), (x**y, a**b),
        (x < y, a < b), (x <= y, a <= b), (x > y, a > b), (x >= y, a >= b), (x & y, a & b),
        (x | y, a | b), (x ^ y, a ^ b),
        (-x, -a), (+x, a), (abs(-x), a), (~x, ~a), (2 + x, 2 + a), (20 - x, 20 - a), (3 * x, 3 * a), (60 // x, 60 // a),
        (2**x, 2**a), (13 % x, 13 % a), (1 & x, 1 & a),
    ]  # fmt: skip
    for got, want in pairs:
        assert np.array_equal(got.numpy(), want)


def test_a_pending_sum_passes_through_what_is_linear_and_nothing_is_sent():
    x = shard(np.arange(8.0), MESH, P("x", unreduced=["y"]))
    counters = current_engine().counters
    counters.reset()
    for y in (x + x, x - x, -x, x * 3.0, x * shard(np.arange(8.0), MESH, P("x"))):
        assert [str(a) for a in y.layout.partial] == ["y"]
    assert counters.total == 0
    assert not (x + 1.0).layout.partial  # a number would be added once per contribution
    assert np.array_equal((x + 1.0).numpy(), np.arange(8.0) + 1)
    assert np.array_equal((x * x).numpy(), np.arange(8.0) ** 2)


def test_a_pending_maximum_passes_through_what_is_monotone():
    x = shardwise.max(shard(np.arange(8.0).reshape(2, 4), MESH, P(None, "y")), axis=1)
    assert str(x.layout) == "[-] max(y)"
    assert str(shardwise.exp(x).layout) == "[-] max(y)"
    assert np.allclose(shardwise.exp(x).numpy(), np.exp([3.0, 7.0]))
    assert not shardwise.sin(x).layout.partial


@pytest.mark.parametrize("name", ["sqrt", "log", "log1p", "log2", "log10", "asin", "acosh", "atanh"])
def test_a_contribution_outside_the_domain_does_not_hide_the_maximum(name: str):
    values = np.array([[-5.0, 0.5, -7.0, -9.0], [-2.0, -3.0, 0.25, -4.0]]) + (2 if name == "acosh" else 0)
    got = getattr(shardwise, name)(shardwise.max(shard(values, MESH, P(None, "y")), axis=1))
    assert np.allclose(got.numpy(), getattr(np, name)(values.max(1)))


def test_two_shard_orders_of_the_same_axes_do_not_mix():
    values = np.arange(8.0)
    a, b = shard(values, MESH, P(("x", "y"))), shard(values, MESH, P(("y", "x")))
    assert np.array_equal((a + b).numpy(), values * 2)


def test_shapes_that_do_not_broadcast():
    with pytest.raises(BindingError, match=r"shapes \(2,\) and \(3,\) do not broadcast"):
        shardwise.add(np.ones(2), np.ones(3))


# -- complex numbers -------------------------------------------------------------------------------------


@given(tensors(dtypes=[t for t in DTYPES if t.kind in "fc"]))
def test_parts_of_complex_numbers(x):
    agrees(shardwise.conj, np.conj, x)
    agrees(shardwise.real, np.real, x)
    agrees(shardwise.imag, np.imag, x)


def test_a_pending_sum_passes_through_parts_of_complex_numbers():
    x = shard(np.arange(8.0) * (1 + 2j), MESH, P("x", unreduced=["y"]))
    for name in ("conj", "real", "imag"):
        made, size = sent(lambda name=name: getattr(shardwise, name)(x))
        assert size == 0
        assert [str(axis) for axis in made.layout.partial] == ["y"]
        assert np.array_equal(made.numpy(), getattr(np, name)(np.arange(8.0) * (1 + 2j)))


@pytest.mark.parametrize("name", ["conj", "real", "imag"])
@pytest.mark.parametrize("kind", ["float64", "complex128"])
def test_derivatives_of_parts_of_complex_numbers_follow_jax(name: str, kind: str):
    jax = jax_of_eight()
    rng = np.random.default_rng(0)

    def some(dtype: Any) -> np.ndarray:
        out = rng.standard_normal((4, 3)) + 1j * rng.standard_normal((4, 3))
        return out.astype(dtype) if np.dtype(dtype).kind == "c" else out.real

    value, tangent = some(kind), some(kind)
    theirs = getattr(jax.numpy, name)
    x = shard(value, MESH, P("x", "y"))
    with jax.enable_x64(True):
        want, back = jax.vjp(theirs, value)
        cotangent = some(want.dtype)
        found, ours = shardwise.vjp(getattr(shardwise, name), x)
        assert found.dtype == want.dtype
        got = ours(cotangent)[0]
        assert got.layout is x.layout
        assert got.dtype == value.dtype
        assert np.allclose(got.numpy(), back(jax.numpy.asarray(cotangent))[0])
        moved = shardwise.jvp(getattr(shardwise, name), (x,), (tangent,))[1]
        assert np.allclose(moved.numpy(), jax.jvp(theirs, (value,), (tangent,))[1])
