"""Softmax along a whole dim against JAX: values, derivatives both ways, and the cases at the edge of numbers."""

from typing import Any

import numpy as np
import pytest

from shardwise import DeviceMesh, Layout, P, current_engine, grad, jvp, log_softmax, shard, softmax, vjp
from shardwise import sum as total
from tests.prim.cases import jax_of_eight

MESH = DeviceMesh((2, 4), ("a", "b"))
X = np.random.default_rng(0).standard_normal((4, 8, 6))
SPECS = [P(), P("a"), P("a", "b"), P(None, "b"), P("b", None, "a"), P(None, None, ("a", "b"))]


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_values_and_derivatives_are_those_of_jax(spec: P, axis: int) -> None:
    jax = jax_of_eight()
    x, weights = shard(X, MESH, spec), np.cos(np.arange(X.size)).reshape(X.shape)
    want, want_back = jax.vjp(lambda x: jax.nn.softmax(x, axis=axis), X)
    counters = current_engine().counters
    counters.reset()
    y, back = vjp(lambda x: softmax(x, axis=axis), x)
    (found,) = back(shard(weights, MESH, spec))
    # Along a whole dim nothing is sent; along a sharded one, numbers per row.
    assert (counters.total == 0) == (not x.layout.dims[axis].axes)
    np.testing.assert_allclose(y.numpy(), want, rtol=1e-12)
    np.testing.assert_allclose(found.numpy(), want_back(weights)[0], rtol=1e-9, atol=1e-15)
    moved = jvp(lambda x: softmax(x, axis=axis), (x,), (shard(weights, MESH, spec),))[1]
    want_moved = jax.jvp(lambda x: jax.nn.softmax(x, axis=axis), (X,), (weights,))[1]
    np.testing.assert_allclose(moved.numpy(), want_moved, rtol=1e-9, atol=1e-15)


def test_second_derivatives() -> None:
    jax = jax_of_eight()

    def twice(m: Any, g: Any, s: Any) -> Any:
        return g(lambda x: m(g(lambda x: m(s(x) ** 3))(x) ** 2))

    want = twice(jax.numpy.sum, jax.grad, jax.nn.softmax)(X[0])
    found = twice(total, grad, softmax)(shard(X[0], MESH, P("b")))
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("spec", [P(), P("a")])
def test_infinities_overflow_and_nothing_at_all(spec: P) -> None:
    big = np.array([[1000.0, 1000.0, 0.0], [-np.inf, 0.0, -np.inf]])
    np.testing.assert_allclose(softmax(shard(big, MESH, spec)).numpy(), [[0.5, 0.5, 0.0], [0.0, 1.0, 0.0]])


@pytest.mark.parametrize("function", [softmax, log_softmax])
@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "int32"])
def test_of_nothing_there_is_nothing_in_any_layout(function: Any, dtype: str) -> None:
    of_one = function(np.ones(1, np.dtype(dtype))).dtype
    pending = Layout(MESH, [None, None], ["a"])
    for spec in (P(), P("a"), P("b", "a"), P(None, ("a", "b")), pending):
        for shape, axis in (((2, 0), 1), ((2, 0), 0), ((0, 3), 0), ((0, 0), -1)):
            if spec is pending and np.dtype(dtype).kind == "i":
                continue
            found = function(shard(np.zeros(shape, np.dtype(dtype)), MESH, spec), axis=axis)
            assert (found.shape, found.dtype, found.numpy().size) == (shape, of_one, 0)
    x = shard(np.zeros((2, 0)), MESH, P(None, "a"))
    assert grad(lambda x: total(function(x)))(x).shape == (2, 0)


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
def test_the_dtype_stays(dtype: str) -> None:
    x = shard(np.zeros((2, 4), np.dtype(dtype)), MESH, P("a"))
    assert softmax(x).dtype == np.dtype(dtype)
    assert np.array_equal(softmax(x).numpy().astype(float), np.full((2, 4), 0.25))
