"""The same function in JAX: values, and both derivatives, over random layouts."""

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from shardwise import DeviceMesh, P, Tensor, jvp, shard, vjp
from tests.prim.cases import jax_of_eight

MESH = DeviceMesh((2, 3), ("a", "b"))


def spread(value: np.ndarray, random: Random, partial: bool = True) -> Tensor:
    """A value in a random layout: each axis splits a dim, is replicated or, now and then, partial."""
    dims: list[list[str]] = [[] for _ in range(value.ndim)]
    pending: list[str] = []
    names = list(MESH.axis_names)
    random.shuffle(names)
    for name in names:
        role = random.randint(-2 if partial and random.random() < 0.5 else -1, value.ndim - 1)
        if role == -2:
            pending.append(name)
        elif role >= 0:
            dims[role].append(name)
    return shard(value, MESH, P(*map(tuple, dims), unreduced=pending))


def check(ours: Callable[..., Tensor], theirs: Callable[..., Any], *values: np.ndarray, seed: int = 0) -> None:
    """Value, reverse and forward derivative of `ours` agree with JAX's of `theirs`."""
    jax = jax_of_eight()
    random, rng = Random(seed), np.random.default_rng(seed)
    with jax.enable_x64(True):
        tensors = [spread(value, random) for value in values]
        got, want = ours(*tensors), np.asarray(theirs(*values))
        assert got.shape == want.shape
        assert np.allclose(got.numpy(), want, equal_nan=True), [str(t.layout) for t in tensors]
        if want.dtype.kind != "f":
            return
        cotangent = rng.standard_normal(want.shape)
        expected = jax.vjp(theirs, *values)[1](jax.numpy.asarray(cotangent, want.dtype))
        found = vjp(ours, *tensors)[1](cotangent)
        for tensor, a, b in zip(tensors, found, expected, strict=True):
            assert a.layout is tensor.layout.resolved()
            assert np.allclose(a.numpy(), np.asarray(b), equal_nan=True), [str(t.layout) for t in tensors]
        tangents = [rng.standard_normal(value.shape) for value in values]
        moved = jvp(ours, tensors, tangents)[1].numpy()
        assert np.allclose(moved, np.asarray(jax.jvp(theirs, values, tuple(tangents))[1]), equal_nan=True)
        if want.dtype == np.float64:
            _finite_differences(ours, tensors, tangents, moved, found, cotangent)


def _finite_differences(
    ours: Callable[..., Tensor],
    tensors: list[Tensor],
    tangents: list[np.ndarray],
    moved: Any,
    found: Any,
    cotangent: Any,
) -> None:
    # Along the tangents, both derivatives agree with what the function itself says a small step away.
    step = 1e-6
    ahead, behind = (
        ours(*(shard(x.numpy() + sign * step * t, x.mesh, x.layout) for x, t in zip(tensors, tangents, strict=True)))
        for sign in (1, -1)
    )
    slope = (ahead.numpy() - behind.numpy()) / (2 * step)
    fine = np.isfinite(slope) & np.isfinite(moved)
    size = np.abs(moved[fine]).max(initial=1.0)
    assert np.allclose(moved[fine], slope[fine], rtol=1e-4, atol=1e-5 * size)
    if fine.all():
        back = sum(float(np.sum(a.numpy() * t)) for a, t in zip(found, tangents, strict=True))
        assert np.isclose(back, float(np.sum(slope * cotangent)), rtol=1e-3, atol=1e-4 * size * max(1, slope.size))
