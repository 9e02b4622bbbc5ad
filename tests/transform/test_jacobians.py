"""Jacobians: those of JAX, of trees, in any layout."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import optree
import pytest

import shardwise as sw
from shardwise import ArgumentError, DerivativeError, DeviceMesh, P, asarray, hessian, jacfwd, jacrev, shard, shard_map
from tests.prim.cases import jax_of_eight

MESH = DeviceMesh((2, 3), ("x", "y"))

PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "a vector": lambda m, x: m.tanh(x) * m.sum(x),
    "a matrix": lambda m, x: m.reshape(x, (2, 3)).T @ m.reshape(x, (2, 3)),
    "a number": lambda m, x: m.sum(m.exp(x) * x),
    "a part": lambda m, x: x[1:4] * x[np.array([0, 0, 5])],
    "constant in part": lambda m, x: m.where(x > 0.0, x * x, 3.0),
}


X = np.random.default_rng(3).standard_normal(6)


@cache
def wanted(name: str) -> Any:
    jax = jax_of_eight()
    return np.asarray(jax.jacrev(lambda v: PROGRAMS[name](jax.numpy, v))(X))


@pytest.mark.parametrize("spec", [P(), P("x"), P(("y", "x"))])
@pytest.mark.parametrize("name", PROGRAMS)
def test_jacobians_are_those_of_jax(name: str, spec: Any) -> None:
    program, given, want = PROGRAMS[name], shard(X, MESH, spec), wanted(name)
    for jacobian in (jacfwd, jacrev):
        got = jacobian(lambda v: program(sw, v))(given)
        assert got.shape == want.shape
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-11, atol=1e-13)


def test_second_derivatives_are_those_of_jax() -> None:
    jax = jax_of_eight()
    x = np.random.default_rng(4).standard_normal((2, 3))
    got = hessian(lambda v: sw.sum(PROGRAMS["a vector"](sw, v) * v))(shard(x, MESH, P("x", "y")))
    want = jax.hessian(lambda v: jax.numpy.sum(PROGRAMS["a vector"](jax.numpy, v) * v))(x)
    assert got.shape == (2, 3, 2, 3)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-10, atol=1e-12)
    rows = hessian(lambda v: v * v * v)(shard(x[0], MESH, P("y")))
    np.testing.assert_allclose(rows.numpy(), jax.hessian(lambda v: v * v * v)(x[0]), rtol=1e-12)


@pytest.mark.parametrize("jacobian", [jacfwd, jacrev])
def test_trees_of_arguments_and_results_stay_trees(jacobian: Any) -> None:
    jax = jax_of_eight()
    tree = {"a": np.arange(1.0, 3.0), "b": (np.arange(2.0, 5.0),)}
    other = np.array(2.0)

    def f(m: Any, t: Any, c: Any) -> Any:
        return [t["a"] * m.sum(t["b"][0]), {"out": t["b"][0] * c}]

    ours = jacobian(lambda t, c: f(sw, t, c), (0, 1))(tree, other)
    theirs = getattr(jax, jacobian.__name__)(lambda t, c: f(jax.numpy, t, c), (0, 1))(tree, other)
    assert optree.tree_structure(ours) == optree.tree_structure(theirs)
    for got, want in zip(optree.tree_leaves(ours), optree.tree_leaves(theirs), strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-12)


def test_jacobians_inside_the_local_view_are_of_each_device() -> None:
    x = np.arange(6.0).reshape(2, 3)
    got = shard_map(lambda a: jacrev(lambda v: v * v)(a[0])[None], MESH, P("x"), P("x"))(x)
    np.testing.assert_allclose(got.numpy(), np.stack([np.diag(2 * row) for row in x]))


def test_what_has_no_jacobian_is_refused() -> None:
    with pytest.raises(ArgumentError, match="argnums=1 names an argument that 1 arguments do not have"):
        jacfwd(lambda x: x, 1)(np.ones(2))
    with pytest.raises(DerivativeError, match="the function returned float"):
        jacrev(lambda x: 3.0)(np.ones(2))
    with pytest.raises(DerivativeError, match="derivatives are with respect to floats or complex numbers"):
        jacrev(lambda x: x * 2)(np.arange(2))
    with pytest.raises(ArgumentError, match="hessian"):
        hessian(3)  # type: ignore[arg-type]


def test_a_jacobian_by_nothing_has_nothing_in_it() -> None:
    x = asarray([1.0, 2.0])
    for jacobian in (jacfwd, jacrev):
        assert jacobian(lambda x: x * x, argnums=())(x) == ()
        assert jacobian(lambda empty, x: {"y": x * x})({}, x) == {"y": {}}
    assert hessian(lambda x: sw.sum(x * x), argnums=())(x) == ()
