"""Megatron's attention block: heads over four devices, and one all-reduce each way.

Heads do not talk to each other until the output projection mixes them. So the projections to queries, keys and values
are cut by heads, and each device attends with its own; the output projection is cut by heads too, and leaves each
device with a term of a sum. The layer norm before the block and the residual around it see whole tokens, which every
device has, and cost nothing; backwards, cotangents flow through them as pending sums and are added up once, at the end.

Run it: python examples/megatron_attention.py, or on real processes: shardwise run -n 4 examples/megatron_attention.py
"""

from typing import Any

import numpy as np

from shardwise import DeviceMesh, P, Tensor, einsum, init, layer_norm, shard, softmax, trace_communication, vjp, where

BATCH, TOKENS, WIDTH, HEADS, SIZE = 2, 8, 16, 4, 4
MESH = DeviceMesh((4,), ("tp",))
Weights = dict[str, Any]


def block(x: Any, weights: Weights) -> Tensor:
    """Return `x` plus what causal attention over its tokens adds to it."""
    tokens = layer_norm(x)
    queries, keys, found = (einsum("btd,dhk->bhtk", tokens, weights[name]) for name in "qkv")
    scores = einsum("bhtk,bhsk->bhts", queries, keys) / SIZE**0.5
    earlier = np.tri(scores.shape[2], dtype=bool)  # a token sees itself and what came before it
    mixed = einsum("bhts,bhsk->bhtk", softmax(where(earlier, scores, -1e9)), found)
    return x + einsum("bhtk,hkd->btd", mixed, weights["o"])  # the pending sum over tp is resolved to be added to x


def values() -> tuple[np.ndarray, Weights]:
    """Return an input and the weights of the four projections."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((BATCH, TOKENS, WIDTH), np.float32)
    weights = {name: rng.standard_normal((WIDTH, HEADS, SIZE), np.float32) / 4 for name in "qkv"}
    return x, weights | {"o": rng.standard_normal((HEADS, SIZE, WIDTH), np.float32) / 4}


def spread(x: Any, weights: Weights) -> tuple[Tensor, Weights]:
    """Return the tensors laid out: every projection by its heads."""
    by_head = {"q": P(None, "tp"), "k": P(None, "tp"), "v": P(None, "tp"), "o": P("tp")}
    return shard(x, MESH, P()), {name: shard(weights[name], MESH, spec) for name, spec in by_head.items()}


def main() -> None:
    """Run the block forwards and backwards, spread over four devices and whole on each, and compare."""
    x, weights = values()
    tensors = spread(x, weights)
    with trace_communication() as forward:
        y, back = vjp(block, *tensors)
    with trace_communication() as backward:
        by_x, by_weights = back(y)
    print("forward:", forward, "backward:", backward, sep="\n")

    everywhere = {name: shard(weight, MESH, P()) for name, weight in weights.items()}
    plain, plain_back = vjp(block, shard(x, MESH, P()), everywhere)  # the same function, all on every device
    plain_by_x, plain_by_weights = plain_back(plain)
    np.testing.assert_allclose(y.gather().numpy(), plain.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(by_x.gather().numpy(), plain_by_x.numpy(), rtol=1e-4, atol=1e-4)
    for name, gradient in by_weights.items():
        expected = plain_by_weights[name].numpy()
        np.testing.assert_allclose(gradient.gather().numpy(), expected, rtol=1e-4, atol=1e-4)
        print(f"gradient of {name}:", gradient.type_text, "is that of the whole")


if __name__ == "__main__":
    init()
    main()
