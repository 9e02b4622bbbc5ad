"""Functions on shapes against NumPy and JAX, and what they send."""

import numpy as np
import pytest

from shardwise import (
    ArgumentError,
    BindingError,
    DeviceMesh,
    P,
    broadcast_to,
    current_engine,
    expand_dims,
    permute_dims,
    reshape,
    shard,
    squeeze,
)
from tests.ops.peers import check

MESH = DeviceMesh((2, 4), ("x", "y"))
RESHAPES = [
    ((4, 6), (24,)), ((24,), (4, 6)), ((8, 3), (3, 8)), ((8, 4), (2, 4, 4)), ((2, 4, 4), (8, 4)), ((4, 1, 6), (4, 6)),
    ((4, 6), (4, 1, 6, 1)), ((16,), (2, 2, 2, 2)), ((5, 7), (35,)), ((1,), ()), ((), (1, 1)), ((0, 3), (3, 0)),
    ((6, 6), (4, 9)),
]  # fmt: skip
STAYS = [
    ((8, 6), P("y"), (48,), "[y]"), ((48,), P("y"), (8, 6), "[y|-]"), ((8, 8), P("x", "y"), (2, 4, 8), "[x|-|y]"),
    ((64,), P(("x", "y")), (2, 4, 8), "[x|y|-]"), ((2, 4, 8), P("x", "y"), (64,), "[x y]"),
    ((8,), P("y"), (2, 4), "[y:(1)2|y:(2)2]"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new"), RESHAPES, ids=str)
def test_reshape(old, new):
    import jax.numpy as jnp

    for seed in range(6):
        check(
            lambda x: reshape(x, new),
            lambda x: jnp.reshape(x, new),
            np.random.default_rng(0).standard_normal(old),
            seed=seed,
        )


@pytest.mark.parametrize(("old", "spec", "new", "layout"), STAYS, ids=str)
def test_reshape_keeps_the_sharding_where_the_factors_allow_it(old, spec, new, layout):
    values = np.arange(float(np.prod(old))).reshape(old)
    counters = current_engine().counters
    x = shard(values, MESH, spec)
    counters.reset()
    y = reshape(x, new)
    assert str(y.layout) == layout
    assert counters.total == 0
    assert np.array_equal(y.numpy(), values.reshape(new))


def test_permute_expand_squeeze_and_broadcast():
    import jax.numpy as jnp

    value = np.random.default_rng(0).standard_normal((4, 1, 6))
    for seed in range(4):
        check(lambda x: permute_dims(x, (2, 0, 1)), lambda x: jnp.permute_dims(x, (2, 0, 1)), value, seed=seed)
        check(lambda x: expand_dims(x, axis=-1), lambda x: jnp.expand_dims(x, -1), value, seed=seed)
        check(lambda x: squeeze(x, 1), lambda x: jnp.squeeze(x, 1), value, seed=seed)
        check(lambda x: broadcast_to(x, (2, 4, 5, 6)), lambda x: jnp.broadcast_to(x, (2, 4, 5, 6)), value, seed=seed)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: reshape(np.ones(6), (4,)), BindingError, "has 6 elements"),
        (lambda: reshape(np.ones(6), (-1, 4)), BindingError, "cannot hold"),
        (lambda: reshape(np.ones(6), (-1, -1)), ArgumentError, "at most one -1"),
        (lambda: permute_dims(np.ones((2, 3)), (0, 0)), BindingError, "no order of 2 dims"),
        (lambda: squeeze(np.ones((2, 3)), 0), BindingError, "has size 2, not 1"),
        (lambda: expand_dims(np.ones(2), axis=3), BindingError, "out of range"),
        (lambda: broadcast_to(np.ones((2, 3)), (3,)), BindingError, "does not broadcast"),
    ],
)
def test_what_does_not_fit_says_so(call, error, text):
    with pytest.raises(error, match=text):
        call()
