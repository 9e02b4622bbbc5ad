"""Gradients of functions that return one number."""

import numpy as np
import pytest

from shardwise import (
    ArgumentError,
    DerivativeError,
    DeviceMesh,
    Layout,
    P,
    current_engine,
    explain,
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
    assert aux.numpy().tolist() == [1.0, 2.0]


def test_the_value_is_on_every_device_and_costs_one_number():
    x = shard(normal((8, 4), 0), MESH, P("dp", "tp"))
    loss = lambda x: total(x * x)  # noqa: E731
    counters = current_engine().counters
    counters.reset()
    gradient = grad(loss)(x)
    alone = counters.total
    assert alone == 0
    counters.reset()
    value, found = value_and_grad(loss)(x)
    assert value.layout is Layout.replicated(MESH, 0)
    assert counters.total == alone + 2 * (8 - 1) * 8  # eight contributors, eight targets
    assert explain(value_and_grad(loss), x).bytes == counters.total
    assert np.allclose(float(value), np.sum(x.numpy() ** 2))
    assert f"{value:.4f}" == format(value.item(), ".4f")
    assert f"{value}" == repr(value)
    assert np.array_equal(found.numpy(), gradient.numpy())


def test_a_value_that_an_op_has_resolved_is_not_sent_again():
    x = shard(normal((8,), 0), MESH, P("dp"))
    kept = []

    def loss(x):
        value = total(x * x)
        kept.append(value + 1.0)  # which needs the sum
        return value

    counters = current_engine().counters
    counters.reset()
    value_and_grad(loss)(x)
    assert counters.total == (2 + 8 - 2) * 8


def test_what_is_handed_on_is_plain_and_its_numbers_are_resolved():
    x = shard(normal((8, 4), 0), MESH, P("dp", "tp"))

    def loss(x):
        return total(x * x), {"mean": total(x) / 32, "rows": total(x, axis=1), "count": 3, "none": None}

    (value, aux), _ = value_and_grad(loss, has_aux=True)(x)
    gradient, again = grad(loss, has_aux=True)(x)
    for seen in (aux, again):
        assert seen["mean"].layout is value.layout is Layout.replicated(MESH, 0)
        assert np.allclose(float(seen["mean"]), x.numpy().mean())
        assert seen["rows"].layout.partial  # only numbers are resolved
        assert np.allclose(seen["rows"].numpy(), x.numpy().sum(axis=1))
        assert (seen["count"], seen["none"]) == (3, None)
    outer = grad(lambda x: grad(loss, has_aux=True)(x)[1]["mean"])(x)  # it was 0: what was handed on was watched still
    assert np.allclose(outer.numpy(), 1 / 32)
    assert np.allclose(gradient.numpy(), 2 * x.numpy())


def test_a_gradient_through_a_value_and_its_gradient():
    x = shard(np.array([1.0, 2.0]), MESH, P("dp"))

    def both(x):
        value, gradient = value_and_grad(lambda x: total(x * x * x))(x)
        return value + total(gradient)

    assert np.allclose(grad(both)(x).numpy(), [3.0 + 6.0, 12.0 + 12.0])


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
