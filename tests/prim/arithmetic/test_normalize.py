"""Normalization in one go against JAX: in any layout, in both modes, nested, inside maps and in small floats."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import shardwise as sw
from shardwise import DeviceMesh, P, asarray, grad, jvp, layer_norm, rms_norm, shard, shard_map, vjp, vmap
from shardwise.prim.arithmetic.normalize import normalize_steps, scale_rows
from tests.prim.cases import host_meshes, jax_of_eight, layouts_for, spread

MESH = DeviceMesh((2, 4), ("a", "b"))
RANDOM = np.random.default_rng(0)
X, W, B = RANDOM.standard_normal((4, 8, 6)), RANDOM.standard_normal(6), RANDOM.standard_normal(6)
SPECS = [P(), P("a"), P(None, None, ("a", "b")), P("a", None, "b"), P(unreduced=["a"])]


def theirs(x: Any, w: Any, b: Any, dims: tuple[int, ...] = (-1,), centred: bool = True) -> Any:
    jnp = jax_of_eight().numpy
    x = x - x.mean(dims, keepdims=True) if centred else x
    return x / jnp.sqrt((x * x).mean(dims, keepdims=True) + 1e-5) * w + b


@settings(max_examples=40)
@given(st.data(), st.booleans())
def test_values_and_cotangents_in_any_layout(data: st.DataObject, centred: bool) -> None:
    jax = jax_of_eight()
    mesh = data.draw(host_meshes())
    shape = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple))
    dims = tuple(sorted(data.draw(st.sets(st.integers(0, len(shape) - 1)))))
    own = tuple(shape[k] for k in dims)
    x, value = spread(data.draw(layouts_for(mesh, shape)), shape, np.dtype("float64"))
    w, weight = spread(data.draw(layouts_for(mesh, own)), own, np.dtype("float64"), seed=5)
    at = [n if k in dims else 1 for k, n in enumerate(shape)]
    call = layer_norm if centred else rms_norm
    want, want_back = jax.vjp(lambda x, w: theirs(x, w.reshape(at), 0.0, dims, centred), value, weight)
    out, back = vjp(lambda x, w: call(x, w, axis=dims), x, w)
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-8, atol=1e-8)
    ct = np.cos(np.arange(float(want.size))).reshape(shape)
    for ours, peer in zip(back(ct), want_back(ct), strict=True):
        np.testing.assert_allclose(ours.numpy(), peer, rtol=1e-6, atol=1e-6 * max(1.0, np.abs(peer).max()))


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("centred", [True, False])
def test_derivatives_of_both_kinds_and_of_derivatives(spec: P, centred: bool) -> None:
    jax, x = jax_of_eight(), shard(X, MESH, spec)
    arrays = (X, W, B) if centred else (X, W)
    peer: Any = theirs if centred else lambda x, w: theirs(x, w, 0.0, centred=False)
    call = layer_norm if centred else rms_norm

    def twice(g: Any, total: Any, f: Any) -> Any:
        return g(lambda x: total(g(lambda x: total(f(x, *arrays[1:]) ** 3))(x) ** 2))

    want = twice(jax.grad, jax.numpy.sum, peer)(X)
    np.testing.assert_allclose(twice(grad, sw.sum, call)(x).numpy(), want, rtol=1e-7, atol=1e-7)
    moved = jvp(call, (x, *arrays[1:]), arrays)[1]
    np.testing.assert_allclose(moved.numpy(), jax.jvp(peer, arrays, arrays)[1], rtol=1e-9, atol=1e-9)
    ahead = jvp(lambda x: grad(lambda x: sw.sum(call(x, *arrays[1:]) ** 3))(x), (x,), (X,))[1]
    want = jax.jvp(lambda x: jax.grad(lambda x: jax.numpy.sum(peer(x, *arrays[1:]) ** 3))(x), (X,), (X,))[1]
    np.testing.assert_allclose(ahead.numpy(), want, rtol=1e-7, atol=1e-7)
    by_weight = grad(lambda w: sw.sum(grad(lambda x: sw.sum(call(x, w, *arrays[2:]) ** 2))(x) ** 2))(asarray(W))
    want = jax.grad(lambda w: (jax.grad(lambda x: (peer(x, w, *arrays[2:]) ** 2).sum())(X) ** 2).sum())(W)
    np.testing.assert_allclose(by_weight.numpy(), want, rtol=1e-7, atol=1e-7)


def test_inside_maps_each_place_has_its_own_rows_or_weights() -> None:
    jax = jax_of_eight()
    loss, peer = (lambda m, f: lambda x, w, b: m.sum(f(x, w, b) ** 2)), theirs
    want = jax.grad(loss(jax.numpy, peer), argnums=(0, 1, 2))(X, W, B)
    got = vmap(grad(loss(sw, layer_norm), argnums=(0, 1, 2)), in_axes=(0, None, None))(X, W, B)
    for ours, own, summed in zip(got, want, (False, True, True), strict=True):
        np.testing.assert_allclose(ours.numpy().sum(0) if summed else ours.numpy(), own, rtol=1e-9, atol=1e-9)
    weights = np.stack([W, 2 * W])
    many = vmap(grad(loss(sw, layer_norm)), in_axes=(None, 0, None))(X, weights, B)
    for ours, w in zip(many.numpy(), weights, strict=True):
        np.testing.assert_allclose(ours, jax.grad(loss(jax.numpy, peer))(X, w, B), rtol=1e-9, atol=1e-9)
    local = shard_map(lambda x: grad(lambda x: sw.sum(layer_norm(x, W, B) ** 2))(x), MESH, P("a", "b"), P("a", "b"))
    np.testing.assert_allclose(local(X).numpy(), want[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("library", [np.asarray, torch.tensor], ids=["numpy", "torch"])
def test_small_floats_are_computed_in_float32(library: Any) -> None:
    jax, x = jax_of_eight(), X.astype("float16")
    value, back = vjp(lambda x, w, b: layer_norm(x, w, b), *(asarray(library(a.astype("float16"))) for a in (X, W, B)))
    wide = [a.astype("float16").astype("float64") for a in (X, W, B)]
    want, want_back = jax.vjp(theirs, *wide)
    assert value.dtype == np.dtype("float16")
    np.testing.assert_allclose(value.numpy().astype("float64"), want, rtol=2e-3, atol=1e-3)
    ct = np.cos(np.arange(float(x.size))).reshape(x.shape).astype("float16")
    for ours, peer in zip(back(asarray(library(ct))), want_back(ct.astype("float64")), strict=True):
        np.testing.assert_allclose(ours.numpy().astype("float64"), peer, rtol=5e-3, atol=5e-3)


def test_steps_and_rows_are_the_same() -> None:
    x = asarray(X)
    steps = normalize_steps(x, dims=(2,), eps=1e-5, centred=True)
    np.testing.assert_allclose(layer_norm(x).numpy(), steps.numpy(), rtol=1e-14)
    mean, size = asarray(X.mean(2, keepdims=True)), asarray(np.sqrt(X.var(2, keepdims=True) + 1e-5))
    own = scale_rows(x, mean, size, 1.0, 0.0, dims=(-1,), eps=1e-5, dtype=np.dtype("float64"))
    np.testing.assert_allclose(own.numpy(), steps.numpy(), rtol=1e-12)


def test_backwards_two_numbers_per_row_are_sent_along_a_sharded_dim() -> None:
    x, counters = shard(X, MESH, P(None, "a", "b")), sw.current_engine().counters
    for call, numbers in ((layer_norm, 2), (rms_norm, 1)):
        _, back = vjp(call, x)
        ct = shard(X, MESH, P(None, "a", "b"))
        counters.reset()
        assert back(ct)[0].layout is x.layout
        assert counters.total == numbers * 4 * 8 * 8 * (4 + 4 - 2)
