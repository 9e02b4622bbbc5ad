"""Checkpointed functions: the same derivatives of any order, with less memory and one more run."""

import numpy as np
import pytest

import shardwise as sw
from shardwise import DerivativeError, DeviceMesh, P, checkpoint, explain, grad, jvp, shard, tanh, vjp

MESH = DeviceMesh((2, 2), ("x", "y"))
X = shard(np.random.default_rng(0).standard_normal((4, 6)), MESH, P("x"))
W = shard(np.random.default_rng(1).standard_normal((6, 6)), MESH, P(None, "y"))


def layer(x, w):
    h = tanh(x @ w)
    return {"h": h, "total": sw.sum(h), "name": "layer"}


def network(layer):
    def loss(x, w):
        first = layer(x, w)
        second = layer(first["h"], w)
        return sw.sum(second["h"] * first["h"]) + first["total"] * second["total"]

    return loss


def same(a, b):
    assert a.layout is b.layout
    np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12)


def test_gradients_by_all_arguments_are_the_same():
    plain, kept = (grad(network(f), argnums=(0, 1))(X, W) for f in (layer, checkpoint(layer)))
    for a, b in zip(plain, kept, strict=True):
        same(a, b)


def test_derivatives_nest():
    def second(f):
        return grad(lambda x: sw.sum(grad(lambda x: network(f)(x, W))(x) ** 2.0))(X)

    def mixed(f):
        return jvp(lambda x: grad(lambda x: network(f)(x, W))(x), (X,), (X,))[1]

    def forward(f):
        return jvp(lambda x: network(f)(x, W), (X,), (X,))[1]

    def kept_twice(f):
        return grad(lambda x: network(checkpoint(f))(x, W))(X)

    for derivative in (second, mixed, forward, kept_twice):
        same(derivative(layer), derivative(checkpoint(layer)))


def test_results_without_a_cotangent_and_other_leaves_pass():
    out, back = vjp(lambda x: checkpoint(layer)(x, W)["h"], X)
    assert checkpoint(layer)(X, W)["name"] == "layer"
    same(back(out)[0], vjp(lambda x: layer(x, W)["h"], X)[1](out)[0])


def test_arguments_may_be_trees_with_numbers_and_integers():
    def scaled(tree, factor):
        return sw.take(tree["x"], tree["rows"], axis=0) * factor

    rows = np.array([1, 1, 3])
    kept = grad(lambda x: sw.sum(checkpoint(scaled)({"x": x, "rows": rows}, 3.0)))(X)
    np.testing.assert_allclose(kept.numpy(), np.array([0.0, 6.0, 0.0, 3.0])[:, None] * np.ones(6))


def test_memory_is_that_of_the_arguments():
    def block(x, w):  # 12 results that a tape keeps, of which the last is an argument of the next
        x = x @ w
        for _ in range(3):
            x = tanh(sw.exp(tanh(tanh(x) * 2.0)) * 0.1)
        return x

    def deep(f):
        def loss(x, w):
            for _ in range(30):
                x = f(x, w)
            return sw.sum(x)

        return explain(grad(loss, argnums=(0, 1)), X, W)

    plain, kept = deep(block), deep(checkpoint(block))
    assert kept.peak_memory < plain.peak_memory / 4


def test_the_function_runs_once_more():
    runs = []

    def counted(x, w):
        runs.append(x.level)
        return layer(x, w)

    grad(lambda x: network(counted)(x, W))(X)
    assert runs == [1, 1]
    runs.clear()
    grad(lambda x: network(checkpoint(counted))(x, W))(X)
    assert runs == [0, 0, 1, 1]  # forwards without a tape, then again with one


def test_a_tensor_that_is_no_argument_is_refused():
    with pytest.raises(DerivativeError, match=r"<lambda>, which is checkpointed, uses a tensor that is being"):
        grad(lambda x: sw.sum(checkpoint(lambda y: y * x)(x)))(X)
