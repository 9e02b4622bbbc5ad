"""Layers: the peak memory of a transformer's forward and backward pass, on one device, beside torch.

Both run on torch arrays and are measured in the same way: the allocations that torch's profiler saw, as they came.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.row import EQUAL, Row, counted

LAYERS = {"tiny": 2, "quick": 24, "full": 24}
BATCH, LENGTH, WIDTH, HEADS = 2, 64, 128, 4
EACH = WIDTH // HEADS
Weights = list[dict[str, Any]]


def row(layers: int) -> Row:
    """Return the peak memory of a network of so many layers."""
    values = weights(layers)
    ours, own_gradients = peak(our_step(values))
    theirs, gradients = peak(torch_step(values))
    pairs = [(a[k], b[k]) for a, b in zip(own_gradients, gradients, strict=True) for k in a]
    same = all(np.allclose(a.numpy(), b.numpy(), rtol=1e-2, atol=1e-3 * float(b.abs().max())) for a, b in pairs)
    size = f"{LENGTH}x{WIDTH}, batch {BATCH}"
    checked = EQUAL if same else "failed: other gradients"
    name, peers = f"{layers} layers, peak memory", {"torch": counted(theirs)}
    return Row("training", name, size, "1", "count", "bytes", counted(ours), peers, checked=checked)


def weights(layers: int) -> Weights:
    """Return the weights of each layer, as arrays."""
    rng = np.random.default_rng(1)
    shapes = {"qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH), "up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
    norms = {"scale1": 1.0, "shift1": 0.0, "scale2": 1.0, "shift2": 0.0}
    return [
        {k: rng.standard_normal(s, np.float32) / np.float32(s[0] ** 0.5) for k, s in shapes.items()}
        | {k: np.full(WIDTH, value, np.float32) for k, value in norms.items()}
        for _ in range(layers)
    ]


def network(x: Any, layers: Weights, library: Any) -> Any:
    """Return the sum of squares of what attention and a network of two layers, in turn, make of a value."""
    for w in layers:
        y = library.norm(x, w["scale1"], w["shift1"]) @ w["qkv"]
        parts = [y[..., k * WIDTH : (k + 1) * WIDTH].reshape((BATCH, LENGTH, HEADS, EACH)) for k in range(3)]
        q, k, v = (library.permute(part, (0, 2, 1, 3)) for part in parts)
        mixed = library.softmax(q @ k.mT * EACH**-0.5, -1) @ v
        x = x + library.permute(mixed, (0, 2, 1, 3)).reshape((BATCH, LENGTH, WIDTH)) @ w["out"]
        x = x + library.gelu(library.norm(x, w["scale2"], w["shift2"]) @ w["up"]) @ w["down"]
    return (x * x).sum()


def our_step(values: Weights) -> Callable[[], list[Any]]:
    """Return what makes the gradients by shardwise, on torch arrays."""
    import torch

    import shardwise as sw

    class Library:
        norm, permute, gelu = sw.layer_norm, sw.permute_dims, sw.gelu
        softmax = staticmethod(lambda x, dim: sw.softmax(x, axis=dim))

    x = sw.asarray(torch.tensor(_batch()))
    layers = [{k: sw.asarray(torch.tensor(v)) for k, v in w.items()} for w in values]
    step = sw.value_and_grad(lambda layers: network(x, layers, Library))
    return lambda: step(layers)[1]


def torch_step(values: Weights) -> Callable[[], list[Any]]:
    """Return what makes the gradients by torch."""
    import torch
    from torch.nn import functional

    class Library:
        permute, softmax = torch.permute, torch.softmax
        norm = staticmethod(lambda x, scale, shift: functional.layer_norm(x, (WIDTH,), scale, shift))
        gelu = staticmethod(lambda x: functional.gelu(x, approximate="tanh"))

    x = torch.tensor(_batch())
    layers = [{k: torch.tensor(v, requires_grad=True) for k, v in w.items()} for w in values]

    def step() -> list[Any]:
        network(x, layers, Library).backward()
        return [{k: v.grad for k, v in w.items()} for w in layers]

    return step


def _batch() -> np.ndarray:
    return np.random.default_rng(2).standard_normal((BATCH, LENGTH, WIDTH), np.float32)


def peak(step: Callable[[], Any]) -> tuple[int, Any]:
    """Return the most bytes that a step had allocated at once, and its result."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        out = step()
    results: Any = profiler.profiler
    events = [(e.start_ns(), e.nbytes()) for e in results.kineto_results.events() if e.name() == "[memory]"]
    level = most = 0
    for _, size in sorted(events):
        level += size
        most = max(most, level)
    return most, out
