"""Megatron's feed-forward block: two matrix products over four devices, and one all-reduce each way.

The first weight is cut by columns, so each device makes a quarter of the hidden units from the whole input, and the
activation needs nobody else. The second weight is cut by rows: each device multiplies its hidden units and has a term
of the result. Adding those terms up is the only communication of the forward pass. Backwards it is the same story
read from right to left: the cotangent of the input is the sum of one term per device.

Run it: python examples/megatron_mlp.py, or on real processes: shardwise run -n 4 examples/megatron_mlp.py
"""

from typing import Any

import numpy as np

from shardwise import DeviceMesh, P, Tensor, all_reduce, gelu, init, matmul, shard, trace_communication, vjp

TOKENS, WIDTH, HIDDEN = 32, 16, 64
MESH = DeviceMesh((4,), ("tp",))


def feed_forward(x: Any, up: Any, down: Any) -> Tensor:
    """Return what becomes of tokens; nothing in it says where anything lies."""
    hidden = gelu(matmul(x, up))  # (tokens, hidden units over tp)
    return matmul(hidden, down)  # a pending sum over tp


def block(x: Any, up: Any, down: Any) -> Tensor:
    """Return the same with the sum resolved, so that every device has the result."""
    return all_reduce(feed_forward(x, up, down))


def values() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return an input and two weights."""
    rng = np.random.default_rng(0)
    shapes = (TOKENS, WIDTH), (WIDTH, HIDDEN), (HIDDEN, WIDTH)
    x, up, down = (rng.standard_normal(shape, np.float32) / 4 for shape in shapes)
    return x, up, down


def spread(x: Any, up: Any, down: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return the tensors laid out: columns of the first weight over tp, rows of the second."""
    return shard(x, MESH, P()), shard(up, MESH, P(None, "tp")), shard(down, MESH, P("tp"))


def main() -> None:
    """Run the block forwards and backwards, spread over four devices and whole on each, and compare."""
    arrays = values()
    tensors = spread(*arrays)
    with trace_communication() as forward:
        y, back = vjp(block, *tensors)
    with trace_communication() as backward:
        gradients = back(y)  # the cotangent of half the sum of squares
    print("forward:", forward, "backward:", backward, sep="\n")

    plain, plain_back = vjp(feed_forward, *[shard(a, MESH, P()) for a in arrays])  # the same with all on every device
    np.testing.assert_allclose(y.gather().numpy(), plain.numpy(), rtol=1e-4, atol=1e-5)
    for gradient, expected in zip(gradients, plain_back(plain), strict=True):
        np.testing.assert_allclose(gradient.gather().numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)
        print("gradient", gradient.type_text, "is that of the whole")


if __name__ == "__main__":
    init()
    main()
