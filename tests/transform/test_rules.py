"""Derivatives that are given: used wherever the function is differentiated, mapped or run inside devices, as in JAX."""

import gc
import weakref
from functools import cache
from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import BindingError, DerivativeError, DeviceMesh, P, custom_jvp, custom_vjp, grad, shard, shard_map, vmap
from tests.prim.cases import jax_of_eight

MESH = DeviceMesh((2, 3), ("x", "y"))
X = np.random.default_rng(0).standard_normal((2, 3))
W = np.array(2.0)


def ours() -> Any:
    """Sums of squares times a number, with slopes that are wrong in a way that shows where they come from."""
    f = custom_vjp(lambda x, w: sw.sum(x * x) * w)
    f.defvjp(
        lambda x, w: (f(x, w), (x, w)), lambda kept, ct: (ct * 3.0 * kept[0] * kept[1], ct * 7.0 * sw.sum(kept[0]))
    )
    return f


def theirs() -> Any:
    jax = jax_of_eight()
    f = jax.custom_vjp(lambda x, w: (x * x).sum() * w)
    f.defvjp(lambda x, w: (f(x, w), (x, w)), lambda kept, ct: (ct * 3.0 * kept[0] * kept[1], ct * 7.0 * kept[0].sum()))
    return f


PROGRAMS: dict[str, Any] = {
    "itself": lambda m, f, s, x, w: m.grad(lambda x, w: f(x, w) * f(x, w), (0, 1))(x, w),
    "twice": lambda m, f, s, x, w: m.grad(lambda x: s(m.grad(f)(x, w)))(x),
    "a map of slopes": lambda m, f, s, x, w: m.vmap(m.grad(f), (0, None))(x, w),
    "slopes of a map": lambda m, f, s, x, w: m.grad(lambda x, w: s(m.vmap(f, (0, None))(x, w)), (0, 1))(x, w),
    "slopes of a shared argument": lambda m, f, s, x, w: m.grad(lambda w: s(m.vmap(lambda r: f(r, w))(x)))(w),
    "maps of maps": lambda m, f, s, x, w: m.grad(lambda x: s(m.vmap(m.vmap(f, (0, None)), (0, None))(x[None], w)))(x),
    "rows": lambda m, f, s, x, w: m.jacrev(lambda x: m.vmap(f, (0, None))(x, w))(x),
}


@cache
def wanted(name: str) -> Any:
    jax = jax_of_eight()
    return PROGRAMS[name](jax, theirs(), jax.numpy.sum, X, W)


@pytest.mark.parametrize("spec", [P(), P("x"), P("x", "y")])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_reverse_derivative_is_used_as_jax_uses_it(name: str, spec: Any) -> None:
    got = PROGRAMS[name](sw, ours(), sw.sum, shard(X, MESH, spec), W)
    want = wanted(name)
    for a, b in zip(*(v if isinstance(v, tuple) else (v,) for v in (got, want)), strict=True):
        np.testing.assert_allclose(a.numpy(), b, rtol=1e-12)


def test_inside_devices_it_is_used_too() -> None:
    f = ours()
    outside = shard_map(lambda x: f(x, W)[None, None], MESH, P("x", "y"), P("x", "y"))
    np.testing.assert_allclose(grad(lambda x: sw.sum(outside(x)))(X).numpy(), 3.0 * X * 2.0)
    inside = shard_map(lambda x: grad(f)(x, W), MESH, P("x", "y"), P("x", "y"))
    np.testing.assert_allclose(inside(X).numpy(), 3.0 * X * 2.0)

    def backward(kept: Any, ct: Any) -> Any:
        return (sw.all_reduce(ct, reduce_axes="x") + sw.axis_index("x"),)

    g = custom_vjp(lambda x: x * 1.0, lambda x: (x * 1.0, ()), backward)
    slopes = grad(lambda x: sw.sum(shard_map(g, MESH, P("x"), P("x"))(x)))(np.zeros((2, 1)))
    # Each of three equal copies along y has a third of the cotangent, and their sum comes back.
    np.testing.assert_allclose(slopes.numpy(), [[3 * (2 / 3 + 0)], [3 * (2 / 3 + 1)]])


def test_a_function_of_plain_arrays_gets_a_derivative() -> None:
    sort = custom_vjp(
        lambda x: sw.local_call(np.sort, x),
        lambda x: (sw.local_call(np.sort, x), sw.local_call(np.argsort, x)),
        lambda order, ct: (sw.zeros_like(ct).at[order].set(ct),),
    )
    weights = np.arange(4.0)
    f = shard_map(lambda x: sort(x) * weights, MESH, P("x"), P("x"))
    x = np.array([3.0, 1.0, 2.0, 0.0, 5.0, 4.0, 7.0, 6.0])
    np.testing.assert_allclose(grad(lambda x: sw.sum(f(x)))(x).numpy(), [3, 1, 2, 0, 1, 0, 3, 2])


def test_trees_go_in_and_out_and_none_is_no_cotangent() -> None:
    def forward(p: Any, n: Any) -> Any:
        return {"y": p["a"] * 2.0, "z": p["b"][0]}, 5.0

    f = custom_vjp(lambda p, n: forward(p, n)[0], forward, lambda k, ct: ({"a": ct["y"] * k, "b": [None]}, None))
    params = {"a": sw.asarray(np.ones(2)), "b": [sw.asarray(np.ones(3))]}
    found = grad(lambda p: sw.sum(f(p, 3)["y"]) + sw.sum(f(p, 3)["z"]))(params)
    np.testing.assert_allclose(found["a"].numpy(), 5.0)
    np.testing.assert_allclose(found["b"][0].numpy(), 0.0)
    assert f(params, 3)["y"].numpy().tolist() == [2.0, 2.0]


def test_nothing_but_what_is_kept_stays_alive() -> None:
    seen: list[Any] = []

    def forward(x: Any) -> Any:
        inner, kept = sw.exp(x), sw.sin(x)
        seen.extend(weakref.ref(y.arrays[0]) for y in (inner, kept))
        return inner * 2.0, kept

    f = custom_vjp(lambda x: sw.exp(x) * 2.0, forward, lambda kept, ct: (ct * kept,))
    _, back = sw.vjp(lambda x: sw.sum(f(x)), np.ones(1000))
    gc.collect()
    assert [ref() is None for ref in seen] == [True, False]
    np.testing.assert_allclose(back(np.array(1.0))[0].numpy(), np.sin(1.0))


# -- forward ---------------------------------------------------------------------------------------------


def cube(custom: Any) -> Any:
    f = custom(lambda x: x * x * x)
    f.defjvp(lambda primals, tangents: (f(*primals), 5.0 * primals[0] * tangents[0]))
    return f


FORWARD: dict[str, Any] = {
    "tangents": lambda m, f, s, x: m.jvp(lambda x: f(x) * 2.0, (x,), (x + 1.0,))[1],
    "cotangents": lambda m, f, s, x: m.grad(lambda x: s(f(x) * x))(x),
    "maps": lambda m, f, s, x: m.vmap(lambda r: m.jvp(f, (r,), (r * 3.0,))[1])(x),
    "tangents of a map": lambda m, f, s, x: m.jvp(m.vmap(f), (x,), (x,))[1],
    "cotangents of a map": lambda m, f, s, x: m.grad(lambda x: s(m.vmap(f)(x)))(x),
    "twice": lambda m, f, s, x: m.grad(lambda x: s(m.grad(lambda x: s(f(x)))(x)))(x),
    "columns": lambda m, f, s, x: m.jacfwd(lambda r: f(r))(x[0]),
}


@cache
def wanted_forward(name: str) -> Any:
    jax = jax_of_eight()
    return FORWARD[name](jax, cube(jax.custom_jvp), jax.numpy.sum, X)


@pytest.mark.parametrize("spec", [P(), P("x", "y")])
@pytest.mark.parametrize("name", FORWARD)
def test_a_forward_derivative_is_used_both_ways_as_jax_does(name: str, spec: Any) -> None:
    got = FORWARD[name](sw, cube(custom_jvp), sw.sum, shard(X, MESH, spec))
    np.testing.assert_allclose(got.numpy(), wanted_forward(name), rtol=1e-12)


def test_a_forward_derivative_inside_devices() -> None:
    f = cube(custom_jvp)
    inside = shard_map(f, MESH, P("x", "y"), P("x", "y"))
    np.testing.assert_allclose(grad(lambda x: sw.sum(inside(x)))(X).numpy(), 5.0 * X)
    np.testing.assert_allclose(sw.jvp(inside, (X,), (X,))[1].numpy(), 5.0 * X * X)
    np.testing.assert_allclose(inside(X).numpy(), X**3)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: grad(custom_vjp(_total))(X), DerivativeError, r"_total has no derivative yet.\n  .*_total.defvjp"),
        (lambda: grad(custom_jvp(_total))(X), DerivativeError, r"_total has no derivative yet.\n  .*_total.defjvp"),
        (
            lambda: sw.jvp(ours(), (X, W), (X, W)),
            DerivativeError,
            r"reverse derivative only.*\n  custom_jvp",
        ),
        (lambda: grad(custom_vjp(_total, _total, _total))(X), DerivativeError, "forward of _total returns"),
        (
            lambda: grad(custom_vjp(_total, lambda x: (_total(x), x), lambda k, ct: ct))(X),
            DerivativeError,
            "a cotangent for each of 1 arguments, got Tensor",
        ),
        (
            lambda: grad(custom_vjp(_total, lambda x: (_total(x), x), lambda k, ct: (k[:1],)))(X),
            BindingError,
            r"is float64\[2, 3\], and its cotangent float64\[1, 3\]",
        ),
        (lambda: sw.jvp(custom_jvp(_total, lambda p, t: 3), (X,), (X,)), DerivativeError, "the rule of _total returns"),
        (lambda: custom_vjp(3), sw.ArgumentError, "custom_vjp"),  # type: ignore[arg-type]
        (lambda: custom_vjp(_total, 3, _total), sw.ArgumentError, "custom_vjp: forward"),  # type: ignore[arg-type]
        (lambda: custom_jvp(_total, 3), sw.ArgumentError, "custom_jvp: rule"),  # type: ignore[arg-type]
        (
            lambda: grad(lambda x: custom_vjp(lambda y: sw.sum(y * x), lambda y: (sw.sum(y * x), y), _total)(x))(X),
            DerivativeError,
            "uses a tensor that is being differentiated and is no argument of it",
        ),
    ],
)
def test_rules_that_are_missing_or_wrong_are_named(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def _total(x: Any) -> Any:
    return sw.sum(x)


def test_maps_have_the_value_of_the_function() -> None:
    np.testing.assert_allclose(vmap(ours(), (0, None))(X, W).numpy(), 2.0 * (X * X).sum(1))
