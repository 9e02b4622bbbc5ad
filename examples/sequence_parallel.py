"""Sequence parallelism: the all-reduce of a Megatron block in two halves, with tokens spread in between.

Between tensor-parallel blocks every device holds all tokens, and repeats the same norm and residual on them. An
all-reduce is a reduce-scatter and an all-gather; stop after the first half, and each device holds a quarter of the
tokens, normalizes those, and gathers them when the next block starts. As many bytes as before, and a quarter of the
memory for all that lies between. Backwards, a gather becomes a reduce-scatter, and the other way round.

Run it: python examples/sequence_parallel.py, or on real processes: shardwise run -n 4 examples/sequence_parallel.py
"""

from typing import Any

import numpy as np

from shardwise import (
    DeviceMesh,
    P,
    Tensor,
    all_gather,
    gelu,
    init,
    layer_norm,
    matmul,
    reduce_scatter,
    shard,
    trace_communication,
    vjp,
)

TOKENS, WIDTH, HIDDEN = 32, 16, 64
MESH = DeviceMesh((4,), ("tp",))


def block(x: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """Return `x`, its tokens over tp, plus what the feed-forward block makes of it."""
    tokens = all_gather(layer_norm(x), 0)  # a quarter is normalized here, then all are gathered
    terms = matmul(gelu(matmul(tokens, up)), down)  # a pending sum over tp
    return x + reduce_scatter(terms, 0)


def plain_block(x: Any, up: Any, down: Any) -> Tensor:
    """Return the same without a word about communication, for tensors that are whole."""
    return x + matmul(gelu(matmul(layer_norm(x), up)), down)


def values() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return an input and two weights."""
    rng = np.random.default_rng(0)
    shapes = (TOKENS, WIDTH), (WIDTH, HIDDEN), (HIDDEN, WIDTH)
    x, up, down = (rng.standard_normal(shape, np.float32) / 4 for shape in shapes)
    return x, up, down


def spread(x: Any, up: Any, down: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return the tensors laid out: tokens over tp, columns of the first weight, rows of the second."""
    return shard(x, MESH, P("tp")), shard(up, MESH, P(None, "tp")), shard(down, MESH, P("tp"))


def main() -> None:
    """Run the block forwards and backwards, spread over four devices and whole on each, and compare."""
    arrays = values()
    tensors = spread(*arrays)
    with trace_communication() as forward:
        y, back = vjp(block, *tensors)
    with trace_communication() as backward:
        gradients = back(y)
    print("forward:", forward, "backward:", backward, sep="\n")
    print("tokens lie", y.type_text)

    plain, plain_back = vjp(plain_block, *[shard(a, MESH, P()) for a in arrays])
    np.testing.assert_allclose(y.gather().numpy(), plain.numpy(), rtol=1e-4, atol=1e-5)
    for gradient, expected in zip(gradients, plain_back(plain), strict=True):
        np.testing.assert_allclose(gradient.gather().numpy(), expected.numpy(), rtol=1e-4, atol=1e-4)
        print("gradient", gradient.type_text, "is that of the whole")


if __name__ == "__main__":
    init()
    main()
