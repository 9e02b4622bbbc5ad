"""The tour: layouts, plans, real reshards and the training of a transformer on 2x4 virtual devices, in seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from shardwise import (
    Cut,
    DeviceMesh,
    Layout,
    P,
    Tensor,
    all_reduce,
    cross_entropy,
    einsum,
    embedding,
    gelu,
    halo_exchange,
    layer_norm,
    plan_reshard,
    shard,
    shard_map,
    shift,
    softmax,
    trace_communication,
    value_and_grad,
    vjp,
    where,
)
from shardwise.engine.log import CommunicationLog
from shardwise.pictures.text import layout_rich

SHAPE = (10, 16)


def show(console: Console | None = None) -> bool:
    """Print the tour, and return whether everything in it came out as plain NumPy says."""
    console = console or Console()
    mesh = DeviceMesh((2, 4), ("dp", "tp"))
    values = np.random.default_rng(0).integers(-9, 10, SHAPE).astype(np.float32)

    console.print(Rule("A mesh of 2 x 4 virtual devices"))
    console.print(Text(f"{mesh!r}: device 6 stands at {mesh.coords(6)}; groups along tp: {mesh.groups('tp')}\n"))

    console.print(Rule(f"Layouts of a tensor of {SHAPE[0]} x {SHAPE[1]}"))
    for title, layout in _layouts(mesh):
        console.print(Text.assemble((title, "bold"), f"  {layout}"))
        console.print(layout_rich(layout, SHAPE), end="\n\n")

    parts = (_reshards, _collectives, _derivative)
    return all([*(part(console, mesh, values) for part in parts), _training(console, mesh)])


def _layouts(mesh: DeviceMesh) -> list[tuple[str, Layout]]:
    return [
        ("rows over dp, columns over tp", P("dp", "tp").to_layout(2, mesh)),
        ("columns over tp; every column on two devices", P(None, "tp").to_layout(2, mesh)),
        ("rows over tp then dp: ten rows over eight devices", P(("tp", "dp")).to_layout(2, mesh)),
        ("rows over dp; each device along tp holds a term of a sum", P("dp", unreduced=["tp"]).to_layout(2, mesh)),
        ("rows over tp, with one row of each neighbour", Layout(mesh, [Cut("tp", halo=(1, 1)), None])),
    ]


def _reshards(console: Console, mesh: DeviceMesh, values: np.ndarray) -> bool:
    console.print(Rule("Resharding, with the fewest bytes that are possible"))
    x = shard(values, mesh, P("dp", "tp"))
    plan = plan_reshard(x.layout, P(("tp", "dp")).to_layout(2, mesh), x.shape, x.dtype)
    console.print(plan)
    console.print(plan.explain())
    return _verdict(console, "resharded", shard(x, mesh, P(("tp", "dp"))), values)


def _collectives(console: Console, mesh: DeviceMesh, values: np.ndarray) -> bool:
    console.print(Rule("What a program sends, step by step"))
    even = values[:8]
    with trace_communication() as log:
        x = shard(even, mesh, P("dp", "tp"))
        total = all_reduce(x, reduce_axes="tp")  # adds the four column blocks up
        shifted = shift(x, "dp")
        wide = halo_exchange(x, 0, 1)
        mixed = shard_map(_square_less_sum, mesh, P("dp", "tp"), P("dp", "tp"))(x)
    console.print(log)
    blocks = even.reshape(2, 4, SHAPE[1])
    return all(
        (
            _verdict(console, "all_reduce", total, even.reshape(8, 4, 4).sum(1)),
            _verdict(console, "shift", shifted, np.roll(even, 4, axis=0)),
            _verdict(console, "halo_exchange", wide, even),
            _verdict(console, "shard_map", mixed, (blocks**2 - blocks.sum(0)).reshape(even.shape)),
        )
    )


def _square_less_sum(block: Tensor) -> Tensor:
    return block * block - all_reduce(block, reduce_axes="dp")


def _derivative(console: Console, mesh: DeviceMesh, values: np.ndarray) -> bool:
    console.print(Rule("Differentiating through communication"))
    x = shard(values[:8], mesh, P("dp", "tp"))

    def sum_of_squares(x: Tensor) -> Tensor:
        return all_reduce(x * x, reduce_axes=("dp", "tp"))

    _, back = vjp(sum_of_squares, x)
    (gradient,) = back(np.ones((4, 4), np.float32))
    return _verdict(console, "gradient of the sum of squares", gradient, 2 * values[:8])


# -- a transformer -----------------------------------------------------------------------------------------

BATCH, TOKENS, WORDS, WIDTH, HEADS, SIZE, HIDDEN, LAYERS = 8, 12, 64, 16, 4, 4, 32, 2
Weights = dict[str, Any]

# How each weight is laid out on the mesh: heads, hidden units and words over tp. The batch is over dp.
ROWS, COLUMNS = P("tp"), P(None, "tp")
SPECS = dict.fromkeys(["q", "k", "v", "up"], COLUMNS) | dict.fromkeys(["words", "o", "down"], ROWS)
SPECS.update(places=P(), norm=P())


def _weights() -> Weights:
    rng = np.random.default_rng(1)
    shapes = dict.fromkeys("qkv", (WIDTH, HEADS, SIZE)) | {"o": (HEADS, SIZE, WIDTH)}
    shapes |= {"up": (WIDTH, HIDDEN), "down": (HIDDEN, WIDTH)}
    out: Weights = {f"{name}{k}": rng.standard_normal(shapes[name]) / 4 for k in range(LAYERS) for name in shapes}
    out |= {f"norm{k}": np.ones(WIDTH) for k in range(2 * LAYERS + 1)}
    return out | {"words": rng.standard_normal((WORDS, WIDTH)) / 2, "places": rng.standard_normal((TOKENS, WIDTH)) / 2}


def _text() -> tuple[np.ndarray, np.ndarray]:
    # Sequences to count on: each goes up by a number of its own.
    rng = np.random.default_rng(2)
    first, step = rng.integers(0, WORDS, (BATCH, 1)), rng.integers(1, 4, (BATCH, 1))
    text = (first + step * np.arange(TOKENS + 1)) % WORDS
    return text[:, :-1], text[:, 1:]


def _loss(w: Weights, tokens: Any, labels: Any) -> Tensor:
    x = embedding(tokens, w["words"]) + w["places"]
    for k in range(LAYERS):
        y = layer_norm(x, w[f"norm{2 * k}"])
        q, key, v = (einsum("btd,dhk->bhtk", y, w[f"{name}{k}"]) for name in "qkv")
        scores = where(np.tri(TOKENS, dtype=bool), einsum("bhtk,bhsk->bhts", q, key) / SIZE**0.5, -1e9)
        x = x + einsum("bhtk,hkd->btd", einsum("bhts,bhsk->bhtk", softmax(scores), v), w[f"o{k}"])
        y = layer_norm(x, w[f"norm{2 * k + 1}"])
        x = x + einsum("btf,fd->btd", gelu(einsum("btd,df->btf", y, w[f"up{k}"])), w[f"down{k}"])
    logits = einsum("btd,vd->btv", layer_norm(x, w[f"norm{2 * LAYERS}"]), w["words"])
    return cross_entropy(logits, labels)


def train(place: Callable[[np.ndarray, P], Any], steps: int) -> tuple[list[float], Weights]:
    """Train a small transformer, every tensor put where `place` puts it, and return its losses and weights."""
    weights = {name: place(value, SPECS[name.rstrip("0123456789")]) for name, value in _weights().items()}
    tokens, labels = (place(text, P("dp")) for text in _text())
    losses: list[float] = []
    for _ in range(steps):
        value, gradients = value_and_grad(_loss)(weights, tokens, labels)
        weights = {name: weights[name] - 0.3 * gradient for name, gradient in gradients.items()}
        losses.append(value.item())
    return losses, weights


def _training(console: Console, mesh: DeviceMesh, steps: int = 31) -> bool:
    """Train a transformer that is data- and tensor-parallel, beside the same on one device."""
    console.print(Rule("Training a transformer"))
    console.print(Text("The batch is spread over dp; heads, hidden units and the vocabulary are spread over tp."))
    with trace_communication() as log:
        train(lambda value, spec: shard(value, mesh, spec), 1)
    for axes, sent in _by_axes(log).items():
        console.print(Text(f"one step, both ways: {len(sent)} all-reduces over {axes}, {sum(sent)} bytes"))
    losses, weights = train(lambda value, spec: shard(value, mesh, spec), steps)
    plain_losses, plain = train(lambda value, spec: value, steps)
    for step in range(0, steps, 10):
        console.print(Text(f"step {step:2}: loss {losses[step]:.12f}, on one device {plain_losses[step]:.12f}"))
    same = np.allclose(losses, plain_losses, rtol=1e-9) and all(
        np.allclose(weights[name].numpy(), value.numpy(), rtol=1e-7, atol=1e-9) for name, value in plain.items()
    )
    word = ("equal to", "green") if same else ("different from", "red")
    console.print(Text.assemble(f"the curve of {steps} losses and all weights are ", word, " those of one device.\n"))
    return same


def _by_axes(log: CommunicationLog) -> dict[str, list[int]]:
    out: dict[str, list[int]] = {}
    for record in log:
        if record.bytes:
            out.setdefault(" and ".join(record.axes), []).append(record.bytes)
    return out


def _verdict(console: Console, name: str, got: Tensor, expected: np.ndarray) -> bool:
    same = np.array_equal(got.numpy(), expected)
    word = ("equal to", "green") if same else ("different from", "red")
    console.print(Text.assemble(f"{name}: {got.type_text} is ", word, " plain NumPy's.\n"))
    return same
