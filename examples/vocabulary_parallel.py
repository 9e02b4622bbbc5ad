"""Vocabulary parallelism: an embedding and a cross-entropy over a vocabulary that no device holds whole.

The table of the vocabulary is the largest tensor of many models. Cut by words, each device looks up the tokens that
it knows and contributes nothing for the others: the sum over devices is the embedding. At the end each device has the
logits of its words; the loss needs three numbers per token from all of them (the largest logit, the sum of the
exponentials, the logit of the label), so logits never travel, and neither does the table.

Run it: python examples/vocabulary_parallel.py, or on real processes: shardwise run -n 4 examples/vocabulary_parallel.py
"""

from typing import Any

import numpy as np

from shardwise import (
    DeviceMesh,
    P,
    Tensor,
    cross_entropy,
    einsum,
    embedding,
    init,
    shard,
    tanh,
    trace_communication,
    vjp,
)

TOKENS, WIDTH, WORDS = 16, 8, 256
MESH = DeviceMesh((4,), ("tp",))


def loss(table: Any, tokens: np.ndarray, labels: np.ndarray) -> Tensor:
    """Return the loss of a tiny language model: the next word by the same table that reads the last one."""
    states = tanh(embedding(tokens, table))  # a pending sum over tp, resolved for tanh: (tokens, width)
    logits = einsum("td,vd->tv", states, table)  # (tokens, words over tp)
    return cross_entropy(logits, labels)


def values() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a table, tokens and the labels that follow them."""
    rng = np.random.default_rng(0)
    text = rng.integers(0, WORDS, TOKENS + 1)
    return rng.standard_normal((WORDS, WIDTH), np.float32), text[:-1], text[1:]


def main() -> None:
    """Find the loss and its gradient, the table spread over four devices and whole on each, and compare."""
    values_of_table, tokens, labels = values()
    table = shard(values_of_table, MESH, P("tp"))
    with trace_communication() as forward:
        value, back = vjp(lambda table: loss(table, tokens, labels), table)
    with trace_communication() as backward:
        (gradient,) = back(1.0)
    print("forward:", forward, "backward:", backward, sep="\n")
    print(f"the table has {table.nbytes} bytes, the logits would have {TOKENS * WORDS * 4}")

    plain, plain_back = vjp(lambda table: loss(table, tokens, labels), shard(values_of_table, MESH, P()))
    found = value.gather().item()
    np.testing.assert_allclose(found, plain.item(), rtol=1e-5)
    np.testing.assert_allclose(gradient.gather().numpy(), plain_back(1.0)[0].numpy(), rtol=1e-4, atol=1e-6)
    print(f"loss {found:.4f} and gradient {gradient.type_text} are those of the whole table")


if __name__ == "__main__":
    init()
    main()
