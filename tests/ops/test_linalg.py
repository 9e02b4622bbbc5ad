"""Products of tensors against NumPy and JAX."""

import numpy as np
import pytest

from shardwise import (
    ArgumentError,
    BindingError,
    DeviceMesh,
    P,
    current_engine,
    einsum,
    matmul,
    shard,
    tensordot,
)
from tests.ops.peers import check

MESH = DeviceMesh((2, 4), ("dp", "tp"))
PAIRS = [
    ((4, 6), (6, 5)), ((6,), (6, 5)), ((4, 6), (6,)), ((6,), (6,)), ((3, 4, 6), (3, 6, 5)), ((3, 4, 6), (6, 5)),
    ((3, 1, 4, 6), (2, 6, 5)), ((1, 4, 6), (3, 6, 5)), ((1, 4, 6), (1, 6, 5)), ((2, 1, 4, 6), (6,)), ((0, 6), (6, 3)),
]  # fmt: skip
TEXTS = [
    ("ij,jk->ik", [(4, 6), (6, 5)]), ("...ij,jk->...ik", [(2, 3, 4), (4, 5)]), ("ij,jk", [(3, 4), (4, 5)]),
    ("ij->", [(3, 4)]), ("ij->ji", [(3, 4)]), ("...i,...i->...", [(2, 3, 4), (2, 3, 4)]),
    ("ij,jk,kl->il", [(4, 6), (6, 5), (5, 3)]), ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
    ("i,j->ij", [(4,), (6,)]),
]  # fmt: skip


def normal(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize("shapes", PAIRS, ids=str)
def test_matmul(shapes):
    import jax.numpy as jnp

    for seed in range(4):
        check(matmul, jnp.matmul, normal(shapes[0], 1), normal(shapes[1], 2), seed=seed)


@pytest.mark.parametrize(("text", "shapes"), TEXTS, ids=str)
def test_einsum(text, shapes):
    import jax.numpy as jnp

    for seed in range(4):
        values = [normal(shape, k) for k, shape in enumerate(shapes)]
        check(lambda *x: einsum(text, *x), lambda *x: jnp.einsum(text, *x), *values, seed=seed)


def test_tensordot():
    import jax.numpy as jnp

    a, b = normal((3, 4, 5)), normal((5, 3, 2))
    check(
        lambda a, b: tensordot(a, b, axes=([0, 2], [1, 0])),
        lambda a, b: jnp.tensordot(a, b, axes=([0, 2], [1, 0])),
        a,
        b,
    )
    check(lambda a, b: tensordot(a, b, axes=1), lambda a, b: jnp.tensordot(a, b, axes=1), a, b)


def test_a_megatron_mlp_sends_one_all_reduce_forward():
    x, a, b = normal((8, 16)), normal((16, 32), 1), normal((32, 16), 2)
    tensors = shard(x, MESH, P("dp")), shard(a, MESH, P(None, "tp")), shard(b, MESH, P("tp"))
    counters = current_engine().counters
    counters.reset()
    y = matmul(matmul(tensors[0], tensors[1]), tensors[2])
    assert str(y.layout) == "[dp|-] sum(tp)"
    assert counters.total == 0
    whole = shard(y, MESH, P("dp"))
    assert list(counters.bytes_moved) == ["all_reduce"]
    assert counters.total == 8 * 16 * 8 * 2 * (4 - 1)  # elements x bytes x 2 (n - 1) messages each
    assert np.allclose(whole.numpy(), x @ a @ b)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: matmul(np.ones((2, 3)), np.ones((2, 3))), BindingError, "do not fit together"),
        (lambda: matmul(1.0, np.ones(3)), BindingError, "at least one dim"),
        (lambda: matmul(np.ones((2, 3, 4)), np.ones((3, 4, 5))), BindingError, "do not broadcast"),
        (lambda: einsum("ij,jk->ik", np.ones((2, 3))), ArgumentError, "names 2 operands, got 1"),
        (lambda: einsum("ii->i", np.ones((2, 2))), ArgumentError, "repeated in 'ii'"),
        (lambda: einsum("ij->k", np.ones((2, 2))), ArgumentError, "'k' in the result"),
        (lambda: einsum("ij,jk->ik", np.ones((2, 3)), np.ones((4, 5))), BindingError, "'j' has size 3"),
        (lambda: tensordot(np.ones((2, 3)), np.ones((2, 3)), axes=1), BindingError, "does not fit"),
    ],
)
def test_what_does_not_fit_says_so(call, error, text):
    with pytest.raises(error, match=text):
        call()
