"""Gradients of functions that return one number."""

import numpy as np
import pytest

from shardwise import (
    ArgumentError,
    DerivativeError,
    DeviceMesh,
    P,
    current_engine,
    grad,
    matmul,
    shard,
    tanh,
    value_and_grad,
)
from shardwise import sum as total
from tests.prim.cases import jax_of_eight

MESH = DeviceMesh((2, 4), ("dp", "tp"))


def normal(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def test_a_data_and_tensor_parallel_network_has_the_gradients_of_the_plain_one():
    jax = jax_of_eight()
    jnp = jax.numpy
    x, a, b = normal((8, 6), 0), normal((6, 16), 1), normal((16, 3), 2)

    def loss(weights, x):
        hidden = tanh(matmul(x, weights["a"]))
        return total(matmul(hidden, weights["b"]) * matmul(hidden, weights["b"]))

    def plain(weights, x):
        return jnp.sum((jnp.tanh(x @ weights["a"]) @ weights["b"]) ** 2)

    weights = {"a": shard(a, MESH, P(None, "tp")), "b": shard(b, MESH, P("tp"))}
    value, found = value_and_grad(loss)(weights, shard(x, MESH, P("dp")))
    want_value, want = jax.value_and_grad(plain)({"a": a, "b": b}, x)
    assert np.allclose(value.numpy(), want_value)
    for name, weight in weights.items():
        assert found[name].layout is weight.layout
        assert np.allclose(found[name].numpy(), want[name])


def test_argnums_and_aux():
    f = lambda x, y: (total(x * y), x)  # noqa: E731
    x, y = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    (by_y, by_x), aux = grad(f, argnums=(1, 0), has_aux=True)(x, y)
    assert by_y.numpy().tolist() == [1.0, 2.0]
    assert by_x.numpy().tolist() == [3.0, 4.0]
    assert aux is not None


def test_gradients_nest():
    f = lambda x: total(x * x * x)  # noqa: E731
    x = shard(np.array([1.0, 2.0]), MESH, P("dp"))
    second = grad(lambda x: total(grad(f)(x)))(x)
    assert np.allclose(second.numpy(), [6.0, 12.0])
    assert second.layout is x.layout


def test_a_data_parallel_gradient_costs_one_reduction_per_parameter():
    x, w = normal((8, 6), 0), normal((6, 4), 1)
    tensors = shard(w, MESH, P()), shard(x, MESH, P("dp"))
    counters = current_engine().counters
    counters.reset()
    found = grad(lambda w, x: total(matmul(x, w)))(*tensors)
    assert found.layout is tensors[0].layout
    sent = dict(counters.bytes_moved)
    assert sum(sent.values()) == w.nbytes * (2 + 8 - 2), sent  # two contributors, eight targets


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: grad(lambda x: x * 2.0)(np.ones(2)), DerivativeError, r"a 0-d tensor; the function returned \(2,\)"),
        (lambda: grad(total, argnums=1)(np.ones(2)), ArgumentError, "argnums=1"),
    ],
)
def test_what_has_no_gradient_says_so(call, error, text):
    with pytest.raises(error, match=text):
        call()
