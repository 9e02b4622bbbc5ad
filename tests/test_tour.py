"""The transformer of the tour: its losses are those of one device, and of JAX, and it sends what the textbook says."""

from typing import Any

import numpy as np

from shardwise import DeviceMesh, P, shard, trace_communication, vjp
from shardwise import tour as t
from tests.prim.cases import jax_of_eight

MESH = DeviceMesh((2, 4), ("dp", "tp"))
STEPS = 6


def on_mesh(value: np.ndarray, spec: P) -> Any:
    return shard(value, MESH, spec)


def jax_loss(jax: Any, w: Any, tokens: np.ndarray, labels: np.ndarray) -> Any:
    jnp = jax.numpy

    def norm(x: Any, scale: Any) -> Any:
        return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5) * scale

    x = w["words"][tokens] + w["places"]
    for k in range(t.LAYERS):
        y = norm(x, w[f"norm{2 * k}"])
        q, key, v = (jnp.einsum("btd,dhk->bhtk", y, w[f"{name}{k}"]) for name in "qkv")
        scores = jnp.where(np.tri(t.TOKENS, dtype=bool), jnp.einsum("bhtk,bhsk->bhts", q, key) / t.SIZE**0.5, -1e9)
        x = x + jnp.einsum("bhts,bhsk,hkd->btd", jax.nn.softmax(scores), v, w[f"o{k}"])
        x = x + jax.nn.gelu(norm(x, w[f"norm{2 * k + 1}"]) @ w[f"up{k}"]) @ w[f"down{k}"]
    scores = jax.nn.log_softmax(norm(x, w[f"norm{2 * t.LAYERS}"]) @ w["words"].T)
    return -jnp.take_along_axis(scores, labels[..., None], -1).mean()


def test_the_loss_curve_is_that_of_one_device_and_of_jax() -> None:
    jax = jax_of_eight()
    losses, weights = t.train(on_mesh, STEPS)
    plain_losses, plain = t.train(lambda value, spec: value, STEPS)
    np.testing.assert_allclose(losses, plain_losses, rtol=1e-11)
    for name, value in plain.items():
        np.testing.assert_allclose(weights[name].numpy(), value.numpy(), rtol=1e-8, atol=1e-11)

    theirs, want = t._weights(), []
    step = jax.jit(jax.value_and_grad(lambda w: jax_loss(jax, w, *t._text())))
    for _ in range(STEPS):
        value, gradients = step(theirs)
        theirs = {name: theirs[name] - 0.3 * gradient for name, gradient in gradients.items()}
        want.append(float(value))
    np.testing.assert_allclose(losses, want, rtol=1e-9)
    assert losses[-1] < losses[0]


def test_weights_and_gradients_stay_where_they_were_put() -> None:
    _, weights = t.train(on_mesh, 1)
    for name, value in t._weights().items():
        assert weights[name].layout is shard(value, MESH, t.SPECS[name.rstrip("0123456789")]).layout


def test_a_step_sends_what_megatron_sends() -> None:
    weights = {name: on_mesh(value, t.SPECS[name.rstrip("0123456789")]) for name, value in t._weights().items()}
    tokens, labels = (on_mesh(text, P("dp")) for text in t._text())
    with trace_communication() as forward:
        loss, back = vjp(lambda w: t._loss(w, tokens, labels), weights)
    with trace_communication() as backward:
        back(1.0)
    assert {record.kind for log in (forward, backward) for record in log if record.bytes} == {"all_reduce"}

    # One all-reduce over tp for the embedding, two per layer; and the same backwards. Each half of the batch has its.
    states = 2 * (4 - 1) * t.BATCH * t.TOKENS * t.WIDTH * 8
    sent = [record.bytes for record in forward if record.bytes]
    number = 2 * (2 - 1) * 4 * 8  # the loss, over dp, of each of the four along tp
    assert sorted(sent) == sorted([states] * (1 + 2 * t.LAYERS) + [states // t.WIDTH] * 3 + [number])
    over_tp = [record.bytes for record in backward if record.axes == ("tp",) and record.bytes]
    assert over_tp == [states] * (1 + 2 * t.LAYERS)
    # And one over dp for each weight, in which devices along tp have different parts or, of a norm, terms.
    over_dp = [record for record in backward if "dp" in record.axes and record.bytes]
    assert len(over_dp) == len(weights)
    assert loss.shape == ()
