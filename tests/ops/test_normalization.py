"""Normalization and losses against JAX and NumPy, and the few numbers that they send."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardwise
from shardwise import ArgumentError, BindingError, DeviceMesh, P, cross_entropy, grad, layer_norm, rms_norm, shard
from tests.ops.cases import agrees, sent, tensors
from tests.ops.peers import check
from tests.prim.cases import jax_of_eight

MESH = DeviceMesh((2, 4), ("x", "y"))
FULL = st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple)
FLOATS = ["float32", "float64"]


def normal(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def their_layer_norm(v, w, b, dims, eps=1e-5):
    out = (v - v.mean(dims, keepdims=True)) / np.sqrt(v.var(dims, keepdims=True) + v.dtype.type(eps))
    shape = [n if k in dims else 1 for k, n in enumerate(v.shape)]
    return out * w.reshape(shape) + b.reshape(shape)


@settings(max_examples=30)
@given(st.data(), tensors(FULL, FLOATS))
def test_layer_norm_and_rms_norm(data, x):
    dims = tuple(sorted(data.draw(st.sets(st.integers(0, x.ndim - 1), min_size=1))))
    own = tuple(x.shape[k] for k in dims)
    w, b = (data.draw(tensors(own, [x.dtype], mesh=x.mesh, seed=k)) for k in (5, 6))
    given_axis = tuple(k - x.ndim for k in dims)

    def their_rms_norm(v, w):
        size = np.sqrt((v * v).mean(dims, keepdims=True) + v.dtype.type(1e-5))
        return v / size * w.reshape([n if k in dims else 1 for k, n in enumerate(v.shape)])

    agrees(
        lambda x, w, b: layer_norm(x, w, b, axis=given_axis),
        lambda v, w, b: their_layer_norm(v, w, b, dims),
        x,
        w,
        b,
        exact=False,
    )
    agrees(lambda x, w: rms_norm(x, w, axis=given_axis), their_rms_norm, x, w, exact=False)


@settings(max_examples=30)
@given(st.data(), tensors(FULL, FLOATS), st.sampled_from(["mean", "sum", "none"]))
def test_cross_entropy(data, x, reduction):
    dim = data.draw(st.integers(0, x.ndim - 1))
    classes = x.shape[dim]
    labels = data.draw(tensors(x.shape[:dim] + x.shape[dim + 1 :], ["int64", "int8"], mesh=x.mesh, partial=False))
    ignored = data.draw(st.sampled_from([None, 0]))

    def theirs(v, i):
        i = i % classes
        top = v.max(dim, keepdims=True)
        logs = v - top - np.log(np.exp(v - top).sum(dim, keepdims=True))
        loss = -np.take_along_axis(logs, np.expand_dims(i, dim), dim).squeeze(dim)
        if ignored is None:
            return loss if reduction == "none" else getattr(np, reduction)(loss)
        count = (i != ignored).astype(v.dtype)
        loss = loss * count
        return loss if reduction == "none" else loss.sum() if reduction == "sum" else loss.sum() / count.sum()

    with np.errstate(invalid="ignore"):
        agrees(
            lambda x, i: cross_entropy(x, i % classes, axis=dim, reduction=reduction, ignore_index=ignored),
            theirs,
            x,
            labels,
            exact=False,
        )


def test_labels_that_are_ignored_may_be_out_of_range():
    logits, labels = normal((4, 5)), np.array([1, -100, 4, -100])
    x, i = shard(logits, MESH, P("x", "y")), shard(labels, MESH, P("x"))
    kept = cross_entropy(logits[[0, 2]], labels[[0, 2]]).item()
    assert np.isclose(cross_entropy(x, i, ignore_index=-100).item(), kept)
    found = grad(lambda x: cross_entropy(x, i, ignore_index=-100))(x)
    assert found.layout is x.layout
    assert not found.numpy()[[1, 3]].any()


def test_large_logits_do_not_overflow():
    x = shard(np.array([[1e4, 0.0, -1e4], [-1e4, -1e4, -1e4]]), MESH, P("x", "y"))
    assert np.allclose(cross_entropy(x, np.array([0, 2]), reduction="none").numpy(), [0.0, np.log(3.0)])


@pytest.mark.parametrize("seed", range(2))
def test_values_and_derivatives_follow_jax(seed):
    jax = jax_of_eight()
    jnp = jax.numpy
    a, w, b, labels = normal((6, 5)), normal(5, 1), normal(5, 2), np.array([0, 4, 2, 2, 1, 3])

    def theirs(x, w, b):
        mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) / jnp.sqrt(var + 1e-5) * w + b

    def loss(x):
        return -jnp.take_along_axis(jax.nn.log_softmax(x), labels[:, None], 1)[:, 0]

    check(layer_norm, theirs, a, w, b, seed=seed)
    check(rms_norm, lambda x, w: x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w, a, w, seed=seed)
    check(lambda x: layer_norm(x, axis=(0, 1)), lambda x: (x - x.mean()) / jnp.sqrt(x.var() + 1e-5), a, seed=seed)
    check(lambda x: cross_entropy(x, labels), lambda x: loss(x).mean(), a, seed=seed)
    check(lambda x: cross_entropy(x, labels, reduction="none") ** 2, lambda x: loss(x) ** 2, a, seed=seed)


def test_second_derivatives():
    jax = jax_of_eight()
    jnp = jax.numpy
    value, labels = normal((4, 5)), np.array([0, 4, 2, 2])
    x = shard(value, MESH, P("x", "y"))

    def theirs(x):
        made = (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(made), labels[:, None], 1))

    ours = lambda x: cross_entropy(layer_norm(x), labels)  # noqa: E731
    found = grad(lambda x: shardwise.sum(shardwise.sin(grad(ours)(x))))(x)
    want = jax.grad(lambda x: jnp.sum(jnp.sin(jax.grad(theirs)(x))))(value)
    assert found.layout is x.layout
    assert np.allclose(found.numpy(), want)


# -- bytes -----------------------------------------------------------------------------------------------

ROWS = 6
EACH = 8 * (4 + 4 - 2)  # bytes to resolve one float64 of which 4 devices have a contribution and all want the result
X = shard(normal((ROWS, 37)), MESH, P("x", "y"))


@pytest.mark.parametrize(
    ("call", "numbers"),
    [
        (lambda: layer_norm(X), 2),  # a mean and a variance per row
        (lambda: layer_norm(X, shard(normal(37), MESH, P("y")), shard(normal(37), MESH, P("y"))), 2),
        (lambda: rms_norm(X), 1),
        (
            lambda: cross_entropy(X, shard(np.arange(ROWS), MESH, P("x")), reduction="none"),
            3,
        ),  # max, sum, its own logit
    ],
)
def test_along_a_sharded_dim_a_few_numbers_per_row_are_sent(call, numbers):
    made, size = sent(call)
    assert size == numbers * ROWS * EACH
    assert not made.layout.partial


def test_along_a_dim_that_is_not_sharded_nothing_is_sent():
    x = shard(normal((8, 5)), MESH, P(("x", "y")))
    labels = shard(np.zeros(8, int), MESH, P(("x", "y")))
    for call in (
        lambda: layer_norm(x),
        lambda: layer_norm(x, np.ones(5), np.ones(5)),
        lambda: rms_norm(x, np.ones(5)),
        lambda: cross_entropy(x, labels, reduction="none"),
        lambda: cross_entropy(x, labels, reduction="sum"),
    ):
        assert sent(call)[1] == 0


def test_the_loss_of_a_vocabulary_in_shards_sends_no_logits_also_backwards():
    x, labels = shard(normal((6, 4000)), MESH, P("x", "y")), shard(np.arange(6), MESH, P("x"))
    found, size = sent(lambda: grad(lambda x: cross_entropy(x, labels))(x))
    assert found.layout is x.layout
    assert size < 20 * ROWS * EACH < x.nbytes / 16


# -- refusals --------------------------------------------------------------------------------------------

ONES = np.ones((4, 3))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: layer_norm(ONES, np.ones(4)),
            BindingError,
            r"layer_norm: weight must have the shape \(3,\).*got \(4,\)",
        ),
        (lambda: layer_norm(ONES, None, np.ones((1, 3))), BindingError, r"layer_norm: bias must have the shape \(3,\)"),
        (lambda: layer_norm(ONES, axis=2), BindingError, "layer_norm: axis 2 is out of range"),
        (lambda: rms_norm(ONES, np.ones(2)), BindingError, r"rms_norm: weight must have the shape \(3,\) of the dims"),
        (lambda: rms_norm(ONES, axis=(1, 1)), BindingError, "rms_norm: a dim is named twice"),
        (lambda: cross_entropy(ONES, np.zeros(4)), ArgumentError, "cross_entropy: labels are integers, got float64"),
        (lambda: cross_entropy(ONES, np.zeros(3, int)), BindingError, r"without dim 1, \(4,\), got \(3,\)"),
        (lambda: cross_entropy(ONES, [0] * 4, reduction="avg"), ArgumentError, "'mean', 'sum' or 'none', got 'avg'"),  # type: ignore[arg-type]
        (lambda: cross_entropy(ONES, [0, 1, 2, 3]), BindingError, "index 3 is out of range for a dim of 3 elements"),
        (lambda: cross_entropy(ONES, [0] * 4, axis=3), BindingError, "cross_entropy: axis 3 is out of range"),
    ],
)
def test_what_does_not_fit_says_so(call, error, text):
    with pytest.raises(error, match=text):
        call()
