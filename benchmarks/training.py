"""Training: a step of a network of two layers, forward, backward and update, on eight devices (a 2x4 mesh)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks import layers
from benchmarks.clock import Case, Effort, first, interleaved
from benchmarks.row import EQUAL, Floor, Measure, Row
from benchmarks.virtual import Read, dtensor_devices, jax_devices, jax_mesh

Sizes = tuple[int, int, int]  # batch, width, hidden
NETWORKS: dict[str, tuple[Sizes, ...]] = {
    "tiny": ((16, 32, 64),),
    "quick": ((256, 256, 1024), (256, 1024, 4096)),
    "full": ((64, 64, 256), (256, 256, 1024), (256, 1024, 4096)),
}
MESH, AXES = (2, 4), ("dp", "tp")
ONE_DEVICE = "NumPy, one device"
RATE = 100.0  # so large that a step changes the weights as much as they are large, and a wrong one is seen
Step = Callable[[], tuple[Any, Any]]  # the weights after a step from the same start


def count(effort: Effort) -> int:
    """Return how many rows there will be."""
    return 2 * len(NETWORKS[effort.name]) + 1


def rows(effort: Effort) -> Iterator[Row]:
    """Measure, and yield the rows."""
    for sizes in NETWORKS[effort.name]:
        values = network(sizes)
        made = {name: maker(values) for name, maker in CONTENDERS.items()}
        want = numpy_step(values)()
        colds, wrong = {}, []
        for name, (step, read) in made.items():
            seconds, weights = first(Case.of(step))
            colds[name] = Measure.of([seconds])
            pairs = zip(map(read, weights), want, strict=True)
            if not all(np.allclose(got, wish, rtol=1e-4, atol=1e-5) for got, wish in pairs):
                wrong.append(name)
        checked = f"failed: other weights: {', '.join(wrong)}" if wrong else EQUAL
        batch, width, hidden = sizes
        where = ("training", f"{width}-{hidden}-{width}", f"batch {batch}", "2x4")
        yield Row(*where, "cold", "seconds", colds.pop("ours"), colds, checked=checked)
        cases = {name: Case.of(step) for name, (step, _) in made.items()} | {ONE_DEVICE: Case.of(numpy_step(values))}
        warm = {name: Measure.of(seconds) for name, seconds in interleaved(cases, effort).items()}
        mine, floor = warm.pop("ours"), Floor(ONE_DEVICE, warm.pop(ONE_DEVICE))
        note = f"NumPy's products use up to {os.environ.get('OPENBLAS_NUM_THREADS', os.cpu_count())} threads"
        yield Row(*where, "warm", "seconds", mine, warm, floor, checked, note=note)
    yield layers.row(layers.LAYERS[effort.name])


def network(sizes: Sizes) -> tuple[np.ndarray, ...]:
    """Return a batch, its targets, and two weights."""
    batch, width, hidden = sizes
    rng = np.random.default_rng(1)
    shapes = (batch, width), (batch, width), (width, hidden), (hidden, width)
    scales = 1, 1, width**0.5, hidden**0.5
    return tuple(
        rng.standard_normal(s, np.float32) / np.float32(scale) for s, scale in zip(shapes, scales, strict=True)
    )


def numpy_step(values: tuple[np.ndarray, ...]) -> Step:
    """Return the step written by hand, on one device."""
    x, y, up, down = values

    def step() -> tuple[np.ndarray, np.ndarray]:
        before = x @ up
        hidden = np.maximum(before, 0)
        slope = hidden @ down
        slope -= y
        slope *= 2 / slope.size
        by_down = hidden.T @ slope
        back = slope @ down.T
        back *= before > 0
        by_up = x.T @ back
        return up - RATE * by_up, down - RATE * by_down

    return step


def our_step(values: tuple[np.ndarray, ...]) -> tuple[Step, Read]:
    """Return our step."""
    from shardwise import DeviceMesh, P, matmul, mean, relu, shard, square, value_and_grad

    mesh = DeviceMesh(MESH, AXES)
    specs = P("dp"), P("dp"), P(None, "tp"), P("tp")
    x, y, up, down = (shard(a, mesh, spec) for a, spec in zip(values, specs, strict=True))

    def loss(up: Any, down: Any) -> Any:
        return mean(square(matmul(relu(matmul(x, up)), down) - y))

    def step() -> tuple[Any, Any]:
        _, (by_up, by_down) = value_and_grad(loss, argnums=(0, 1))(up, down)
        return up - RATE * by_up, down - RATE * by_down

    return step, lambda a: a.numpy()


def jax_step(values: tuple[np.ndarray, ...]) -> tuple[Step, Read]:
    """Return JAX's step, compiled."""
    jax = jax_devices()
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as Spec

    mesh = jax_mesh(MESH, AXES)
    specs = Spec("dp"), Spec("dp"), Spec(None, "tp"), Spec("tp")
    put = [jax.device_put(a, NamedSharding(mesh, spec)) for a, spec in zip(values, specs, strict=True)]

    def loss(weights: Any, x: Any, y: Any) -> Any:
        return jax.numpy.mean((jax.nn.relu(x @ weights[0]) @ weights[1] - y) ** 2)

    @jax.jit
    def update(weights: Any, x: Any, y: Any) -> Any:
        gradients = jax.grad(loss)(weights, x, y)
        return [w - RATE * g for w, g in zip(weights, gradients, strict=True)]

    return (lambda: jax.block_until_ready(update(put[2:], *put[:2]))), np.asarray


def dtensor_step(values: tuple[np.ndarray, ...]) -> tuple[Step, Read]:
    """Return DTensor's step, with pending sums resolved where they must be."""
    local = dtensor_devices()
    torch = local.torch
    from torch.distributed.tensor import Replicate, Shard

    mesh = local.mesh(MESH, AXES)
    cuts = [Shard(0), Replicate()], [Shard(0), Replicate()], [Replicate(), Shard(1)], [Replicate(), Shard(0)]
    x, y, up, down = (local.placed(a, mesh, cut) for a, cut in zip(values, cuts, strict=True))

    def step() -> tuple[Any, Any]:
        first, second = up.detach().requires_grad_(), down.detach().requires_grad_()
        loss = ((torch.relu(x @ first) @ second).redistribute(placements=cuts[0]) - y).pow(2).mean()
        by_up, by_down = torch.autograd.grad(loss, (first, second))
        with torch.no_grad():
            pairs = ((up, by_up), (down, by_down))
            new_up, new_down = (w - RATE * g.redistribute(placements=w.placements) for w, g in pairs)
        return new_up, new_down

    return local.within(step), local.read


CONTENDERS: dict[str, Callable[[tuple[np.ndarray, ...]], tuple[Step, Read]]] = {
    "ours": our_step,
    "JAX jit": jax_step,
    "DTensor": dtensor_step,
}
