"""The logarithm of a sum of exponentials against JAX: in any layout, in both modes, nested, and what it sends."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import shardwise as sw
from shardwise import DeviceMesh, P, asarray, grad, jvp, logsumexp, shard, vjp
from shardwise.prim.arithmetic.logsumexp import log_of_sum, sum_over, times_shares
from shardwise.prim.arithmetic.logsumexp import logsumexp as row
from tests.prim.cases import host_meshes, jax_of_eight, layouts_for, spread

MESH = DeviceMesh((2, 4), ("a", "b"))
X = np.random.default_rng(0).standard_normal((4, 8, 6))
SPECS = [P(), P("a"), P("a", "b"), P(None, None, ("a", "b")), P(unreduced=["a"])]


@given(st.data())
def test_values_and_cotangents_in_any_layout(data: st.DataObject) -> None:
    jax = jax_of_eight()
    mesh = data.draw(host_meshes())
    shape = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple))
    dims = tuple(sorted(data.draw(st.sets(st.integers(0, len(shape) - 1)))))
    x, value = spread(data.draw(layouts_for(mesh, shape)), shape, np.dtype("float64"))
    want, want_back = jax.vjp(lambda x: jax.scipy.special.logsumexp(x, axis=dims), value)
    out, back = vjp(lambda x: logsumexp(x, axis=dims), x)
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-9, atol=1e-9)
    ct = np.cos(np.arange(float(want.size))).reshape(want.shape)
    np.testing.assert_allclose(back(ct)[0].numpy(), want_back(ct)[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_derivatives_of_both_kinds_and_of_derivatives(spec: P) -> None:
    jax, x = jax_of_eight(), shard(X, MESH, spec)

    def twice(g: Any, total: Any, f: Any) -> Any:
        return g(lambda x: total(g(lambda x: total(f(x) ** 2))(x) ** 2))

    def theirs(x: Any) -> Any:
        return jax.scipy.special.logsumexp(x, axis=(0, 2))

    def ours(x: Any) -> Any:
        return logsumexp(x, axis=(0, 2))

    want = twice(jax.grad, jax.numpy.sum, theirs)(X)
    np.testing.assert_allclose(twice(grad, sw.sum, ours)(x).numpy(), want, rtol=1e-8, atol=1e-12)
    moved = jvp(ours, (x,), (X,))[1]
    np.testing.assert_allclose(moved.numpy(), jax.jvp(theirs, (X,), (X,))[1], rtol=1e-10)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_the_dtype_is_that_of_sums_and_of_slopes_its_own(dtype: str) -> None:
    x = shard(X.astype(np.dtype(dtype)), MESH, P("a", None, "b"))
    wide = np.dtype("float64") if dtype == "float64" else np.dtype("float32")
    value = x.numpy().astype("float64")
    out = row(x, (2,))
    assert out.dtype == sum_over(x, (2,), x.dtype).dtype == wide
    np.testing.assert_allclose(out.numpy(), np.log(np.exp(value).sum(2)), rtol=1e-6)
    slopes = grad(lambda x: sw.sum(logsumexp(x, axis=2)))(x)
    assert slopes.dtype == np.dtype(dtype)
    want = np.exp(value) / np.exp(value).sum(2, keepdims=True)
    np.testing.assert_allclose(slopes.numpy().astype("float64"), want, rtol=1e-2 if wide != dtype else 1e-6)


@pytest.mark.parametrize("library", [np.asarray, torch.tensor], ids=["numpy", "torch"])
def test_infinities_and_what_would_overflow(library: Any) -> None:
    rows = np.array([[1e300, 1e300], [-1e300, -1e300], [-np.inf, 3.0], [np.inf, 0.0]])
    assert logsumexp(asarray(library(rows)), axis=1).numpy().tolist() == [1e300, -1e300, 3.0, np.inf]
    (back,) = vjp(lambda x: logsumexp(x, axis=1), asarray(library(rows[:3])))[1](np.ones(3))
    np.testing.assert_allclose(back.numpy(), [[0.5, 0.5], [0.5, 0.5], [0.0, 1.0]], rtol=1e-15)


def test_shares_sum_to_one() -> None:
    x, top = asarray(X), asarray(X.max(2, keepdims=True))
    level = sw.expand_dims(log_of_sum(x, top, dims=(2,)), axis=2)
    shares = times_shares(asarray(np.ones((4, 8, 1))), x, top, level)
    np.testing.assert_allclose(sw.sum(shares, axis=2).numpy(), np.ones((4, 8)))


def test_the_way_back_sends_nothing() -> None:
    x, counters = shard(X, MESH, P("a", None, "b")), sw.current_engine().counters
    _, back = vjp(lambda x: logsumexp(x, axis=2), x)
    ct = shard(np.ones((4, 8)), MESH, P("a"))
    counters.reset()
    assert back(ct)[0].layout is x.layout
    assert counters.total == 0
