"""Activations against calculus and JAX: in any layout, dtype and library, and at the edge of numbers."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import shardwise as sw
from shardwise import DeviceMesh, P, asarray, grad, jvp, shard, shard_map, vjp, vmap
from shardwise.prim.arithmetic import activations
from tests.prim.cases import host_meshes, jax_of_eight, layouts_for, spread

M4 = DeviceMesh((4,), ("x",))
NAMES = ["sigmoid", "silu", "softplus", "gelu"]
INNER = np.array([-0.75, -0.25, 0.5, 0.8])
SLOPES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "sigmoid": lambda x: 0.25 / np.cosh(x / 2) ** 2,
    "softplus": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: (1 + np.exp(-x) * (1 + x)) / (1 + np.exp(-x)) ** 2,
}


@pytest.mark.parametrize("name", SLOPES)
def test_slopes_are_those_of_calculus(name: str) -> None:
    weight, slope = np.array([2.0, -1.0, 0.5, 3.0]), SLOPES[name]
    x, call = shard(INNER, M4, P("x")), getattr(activations, name)
    _, back = vjp(call, x)
    np.testing.assert_allclose(back(weight)[0].numpy(), slope(INNER) * weight, rtol=1e-12)
    np.testing.assert_allclose(jvp(call, (x,), (weight,))[1].numpy(), slope(INNER) * weight, rtol=1e-12)


def test_gelu_is_the_tanh_form() -> None:
    value = np.array([-2.0, 0.0, 2.0, 5.0])
    want = 0.5 * value * (1 + np.tanh(np.sqrt(2 / np.pi) * (value + 0.044715 * value**3)))
    np.testing.assert_allclose(activations.gelu(shard(value, M4, P("x"))).numpy(), want, rtol=1e-12)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_values_and_cotangents_in_any_layout(name: str, data: st.DataObject) -> None:
    jax = jax_of_eight()
    mesh = data.draw(host_meshes())
    shape = data.draw(st.lists(st.integers(0, 5), max_size=3).map(tuple))
    x, value = spread(data.draw(layouts_for(mesh, shape)), shape, np.dtype("float64"))
    ct, weight = spread(data.draw(layouts_for(mesh, shape)), shape, np.dtype("float64"), seed=5)
    want, want_back = jax.vjp(getattr(jax.nn, name), value)
    out, back = vjp(getattr(sw, name), x)
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(back(ct)[0].numpy(), want_back(weight)[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_of_derivatives_follow_jax(name: str) -> None:
    jax, ours, value = jax_of_eight(), getattr(sw, name), np.linspace(-4.0, 4.0, 16)
    theirs, x = getattr(jax.nn, name), shard(value, M4, P("x"))

    def third(g: Any, total: Any, f: Any) -> Any:
        return g(lambda x: total(g(lambda x: total(g(lambda x: total(f(x)))(x) ** 2))(x)))

    np.testing.assert_allclose(
        third(grad, sw.sum, ours)(x).numpy(), third(jax.grad, jax.numpy.sum, theirs)(value), rtol=1e-8, atol=1e-10
    )
    slope = lambda x: jvp(ours, (x,), (np.ones(16),))[1]  # noqa: E731
    want = jax.vmap(jax.grad(jax.grad(theirs)))(value)
    np.testing.assert_allclose(jvp(slope, (x,), (np.ones(16),))[1].numpy(), want, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(grad(lambda x: sw.sum(slope(x)))(x).numpy(), want, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_inside_maps_they_are_the_same(name: str) -> None:
    call, value = getattr(sw, name), np.linspace(-3.0, 3.0, 8)
    x = shard(value, M4, P("x"))
    want = grad(lambda x: sw.sum(call(x)))(x).numpy()
    inside = shard_map(lambda a: grad(lambda a: sw.sum(call(a)))(a), M4, P("x"), P("x"))(x)
    np.testing.assert_allclose(inside.numpy(), want, rtol=1e-14)
    outside = grad(lambda x: sw.sum(shard_map(call, M4, P("x"), P("x"))(x)))(x)
    np.testing.assert_allclose(outside.numpy(), want, rtol=1e-14)
    np.testing.assert_allclose(vmap(grad(call))(x).numpy(), want, rtol=1e-14)


EXTREMES = [0.0, -0.0, 1e-30, -1e-30, 5.0, -5.0, 80.0, -80.0, 104.0, -104.0, 1e4, -1e4, 1e30, -1e30]
LIMITS = {  # at minus infinity and at infinity, of the value and of the slope
    "sigmoid": ((0.0, 1.0), (0.0, 0.0)),
    "silu": ((0.0, np.inf), (0.0, 1.0)),
    "softplus": ((0.0, np.inf), (0.0, 1.0)),
    "gelu": ((0.0, np.inf), (0.0, 1.0)),
}


@pytest.mark.parametrize("library", [np.asarray, torch.tensor], ids=["numpy", "torch"])
@pytest.mark.parametrize("name", NAMES)
def test_nothing_overflows_and_the_slopes_have_their_limits(name: str, library: Any) -> None:
    wide = np.array(EXTREMES)
    with np.errstate(over="ignore"):
        steps = {
            "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
            "silu": lambda x: x / (1 + np.exp(-x)),
            "softplus": lambda x: np.logaddexp(x, 0),
            "gelu": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
        }
        want = steps[name](wide)
    call = getattr(sw, name)
    out, back = vjp(call, asarray(library(wide.astype("float32"))))
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-5, atol=1e-6)
    slopes = back(np.ones(len(EXTREMES), "float32"))[0].numpy()
    assert np.isfinite(slopes).all()
    far = np.array(EXTREMES) > 50
    np.testing.assert_allclose(slopes[far], 0.0 if name == "sigmoid" else 1.0)
    np.testing.assert_allclose(slopes[np.array(EXTREMES) < -50], 0.0, atol=1e-20)
    values, limits = LIMITS[name]
    out, back = vjp(call, asarray(library(np.array([-np.inf, np.inf]))))
    np.testing.assert_allclose(out.numpy(), values, atol=1e-30)
    np.testing.assert_allclose(back(np.ones(2))[0].numpy(), limits, atol=1e-30)
    assert np.isnan(call(asarray(library(np.array([np.nan])))).numpy()).all()


@pytest.mark.parametrize("library", [np.asarray, torch.tensor], ids=["numpy", "torch"])
@pytest.mark.parametrize("name", NAMES)
def test_small_floats_are_rounded_once(name: str, library: Any) -> None:
    value = np.linspace(-6.0, 6.0, 101).astype("float16")
    want, once = getattr(sw, name)(value.astype("float64")).numpy(), 2.0**-11
    np.testing.assert_allclose(getattr(sw, name)(library(value)).numpy().astype("float64"), want, rtol=once, atol=1e-6)
    slopes = grad(lambda x: sw.sum(getattr(sw, name)(x).astype("float64")))
    want = slopes(value.astype("float64")).numpy()
    np.testing.assert_allclose(slopes(library(value)).numpy().astype("float64"), want, rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_integers_and_complex_numbers_take_the_steps(name: str) -> None:
    whole, call = np.array([-2, 0, 3]), getattr(sw, name)
    np.testing.assert_allclose(call(whole).numpy(), call(whole.astype("float64")).numpy(), rtol=1e-12)
    if name != "softplus":
        z = np.array([0.5 + 0j, -1.0 + 0j])
        np.testing.assert_allclose(call(z).numpy(), call(np.real(z)).numpy(), rtol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_a_single_number_is_a_tensor_without_dims(name: str) -> None:
    call = getattr(sw, name)
    value, slope = sw.value_and_grad(call)(asarray(0.5))
    want = vjp(call, asarray([0.5]))
    assert (value.shape, slope.shape) == ((), ())
    assert (value.item(), slope.item()) == (want[0].item(), want[1]([1.0])[0].item())


def test_a_pending_cotangent_stays_pending() -> None:
    x, ct = shard(INNER, M4, P()), shard(np.ones(4), M4, P(unreduced=["x"]))
    counters = sw.current_engine().counters
    for name in NAMES:
        _, back = sw.vjp(getattr(sw, name), x)
        counters.reset()
        assert back(ct)[0].layout is x.layout
        assert counters.total == 8 * 4 * (4 + 4 - 2)  # the sum of the result, and nothing before
