"""Ring attention: causal attention over a sequence that no device holds whole, keys and values passed around a ring.

Each device has a block of queries, and of keys and values. In as many rounds as there are devices it attends to the
block of keys and values that it has, and sends that on to the next device. The softmax is put together as blocks come
by: the largest score so far, the sum of exponentials relative to it, and the sum of values weighted by those. What
one device does is written with `shard_map`; its collective, `ppermute`, is differentiated like anything else: the
cotangents travel around the ring the other way.

Run it: python examples/ring_attention.py, or on real processes: shardwise run -n 4 examples/ring_attention.py
"""

from functools import partial
from typing import Any

import numpy as np

from shardwise import (
    DeviceMesh,
    P,
    Tensor,
    axis_index,
    einsum,
    exp,
    greater_equal,
    init,
    maximum,
    ppermute,
    shard,
    shard_map,
    softmax,
    stop_gradient,
    trace_communication,
    vjp,
    where,
)
from shardwise import max as largest
from shardwise import sum as total

TOKENS, HEADS, SIZE, DEVICES = 32, 2, 8, 4
MESH = DeviceMesh((DEVICES,), ("sp",))
BLOCK = TOKENS // DEVICES
FAR = -1e30  # a score that leaves no weight


def attend(queries: Any, keys: Any, values: Any) -> Any:
    """Return what one device's queries find in all keys and values, which come by block by block."""
    me, line = axis_index("sp"), np.arange(BLOCK)
    here = me * BLOCK + line[:, None]  # the positions of the queries
    so_far = look(queries, keys, values, greater_equal(here, me * BLOCK + line))
    for turn in range(1, DEVICES):
        keys, values = pass_on(keys), pass_on(values)
        there = (me - turn) % DEVICES * BLOCK + line  # these keys come from `turn` devices back
        so_far = merge(so_far, look(queries, keys, values, greater_equal(here, there)))
    _, weight, found = so_far
    return found / weight


def look(queries: Any, keys: Any, values: Any, seen: Any) -> tuple[Any, Any, Any]:
    """Return the top score of each query in one block, and the sums of weights and of weighted values below it."""
    scores = where(seen, einsum("hqk,hsk->hqs", queries, keys) / SIZE**0.5, FAR)
    top = stop_gradient(largest(scores, axis=-1, keepdims=True))  # the quotient of the sums does not depend on it
    weights = exp(scores - top)
    return top, total(weights, axis=-1, keepdims=True), einsum("hqs,hsk->hqk", weights, values)


def merge(one: tuple[Any, Any, Any], other: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
    """Return what two blocks give together, with all weights relative to the higher top."""
    top = maximum(one[0], other[0])
    first, second = exp(one[0] - top), exp(other[0] - top)
    return top, one[1] * first + other[1] * second, one[2] * first + other[2] * second


# Every device sends to the next; the last to the first.
pass_on = partial(ppermute, permutation=[(i, (i + 1) % DEVICES) for i in range(DEVICES)], axis="sp")
ring_attention = shard_map(attend, MESH, P(None, "sp"), P(None, "sp"))


def attention(queries: Any, keys: Any, values: Any) -> Tensor:
    """Return the same in one go, for a sequence that is whole."""
    scores = einsum("hqk,hsk->hqs", queries, keys) / SIZE**0.5
    return einsum("hqs,hsk->hqk", softmax(where(np.tri(TOKENS, dtype=bool), scores, FAR)), values)


def values() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return queries, keys and values, by head, token and feature."""
    rng = np.random.default_rng(0)
    queries, keys, found = (rng.standard_normal((HEADS, TOKENS, SIZE)) for _ in range(3))
    return queries, keys, found


def main() -> None:
    """Attend forwards and backwards, spread over four devices and whole on each, and compare."""
    arrays = values()
    tensors = [shard(a, MESH, P(None, "sp")) for a in arrays]
    with trace_communication() as forward:
        y, back = vjp(ring_attention, *tensors)
    with trace_communication() as backward:
        gradients = back(y)
    print("forward:", forward, "backward:", backward, sep="\n")

    plain, plain_back = vjp(attention, *[shard(a, MESH, P()) for a in arrays])
    np.testing.assert_allclose(y.gather().numpy(), plain.numpy(), rtol=1e-9, atol=1e-12)
    for gradient, expected in zip(gradients, plain_back(plain), strict=True):
        np.testing.assert_allclose(gradient.gather().numpy(), expected.numpy(), rtol=1e-9, atol=1e-12)
        print("gradient", gradient.type_text, "is that of the whole")


if __name__ == "__main__":
    init()
    main()
