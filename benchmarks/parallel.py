"""Parallel training: a step of a network of two layers over 2x2 processes, batch over two, hidden units over two.

A step gives the new weights, spread as the old ones, and the loss as a number in every process.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.training import RATE

Step = Callable[[], tuple[Any, Any, float]]  # the weights after a step, as this process holds them, and the loss before
Read = Callable[[Any], np.ndarray]
SIZES = (2, 2)


def our_step(values: tuple[np.ndarray, ...], torch_shards: bool = True, still: bool = True) -> tuple[Step, Read]:
    """Return our step, on shards of torch or of NumPy.

    `still`: operands stay where they are, and only pending sums are resolved, as DTensor does it. The solver that is
    used otherwise sends the fewest bytes: the activations of this batch are smaller than the gradients of the weights,
    so it gathers them, and both halves of the data-parallel pair compute the gradients of all rows.
    """
    import torch

    from shardwise import DeviceMesh, GreedyReshard, P, PartialsOnly, matmul, mean, mode, relu, shard, value_and_grad

    mesh, rank = DeviceMesh(SIZES, ("dp", "tp")), int(os.environ["RANK"])
    ready = [torch.from_numpy(value) for value in values] if torch_shards else values
    specs = P("dp"), P("dp"), P(None, "tp"), P("tp")
    x, y, *weights = (shard(value, mesh, spec) for value, spec in zip(ready, specs, strict=True))

    def loss(weights: list[Any]) -> Any:
        error = matmul(relu(matmul(x, weights[0])), weights[1]) - y
        return mean(error * error)

    @mode(PartialsOnly() if still else GreedyReshard())
    def step() -> Any:
        value, gradients = value_and_grad(loss)(weights)
        new = [w - RATE * shard(g, mesh, w.layout) for w, g in zip(weights, gradients, strict=True)]
        return *new, value.item()

    return step, lambda w: np.asarray(w.local(rank))


def dtensor_step(values: tuple[np.ndarray, ...]) -> tuple[Step, Read]:
    """Return DTensor's step."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", SIZES)
    places = [Shard(0), Replicate()], [Shard(0), Replicate()], [Replicate(), Shard(1)], [Replicate(), Shard(0)]
    spread: list[Any] = [
        distribute_tensor(torch.from_numpy(value), mesh, p) for value, p in zip(values, places, strict=True)
    ]
    x, y, weights = spread[0], spread[1], [w.requires_grad_() for w in spread[2:]]

    def step() -> Any:
        error = (torch.relu(x @ weights[0]) @ weights[1]).redistribute(mesh, places[0]) - y
        value: Any = (error * error).mean()
        gradients: Any = torch.autograd.grad(value, weights)
        with torch.no_grad():
            pairs = zip(weights, gradients, strict=True)
            new = [w - RATE * g.redistribute(mesh, w.placements) for w, g in pairs]
            return *new, value.full_tensor().item()

    return step, lambda w: w.to_local().numpy()


def raw_step(values: tuple[np.ndarray, ...]) -> tuple[Step, Read]:
    """Return the step by hand: torch on what this process holds, four all-reduces, derivatives written out."""
    import torch
    import torch.distributed as dist

    rank, batch, hidden = dist.get_rank(), values[0].shape[0] // 2, values[2].shape[1] // 2
    rows, units = (slice(at * n, (at + 1) * n) for at, n in ((rank // 2, batch), (rank % 2, hidden)))
    cuts = values[0][rows], values[1][rows], values[2][:, units], values[3][units]
    x, y, up, down = (torch.from_numpy(np.ascontiguousarray(value)) for value in cuts)
    groups = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3], [0, 2], [1, 3])]
    over_tp, over_dp = groups[rank // 2], groups[2 + rank % 2]
    scale = 2 / (values[1].size)

    def step() -> Any:
        activations = torch.relu(x @ up)
        slope = activations @ down
        dist.all_reduce(slope, group=over_tp)
        slope.sub_(y)
        value = torch.linalg.vector_norm(slope).square()
        dist.all_reduce(value, group=over_dp)
        slope.mul_(scale)
        by_down = activations.T @ slope
        back = (slope @ down.T).mul_(activations > 0)
        by_up = x.T @ back
        dist.all_reduce(by_up, group=over_dp)
        dist.all_reduce(by_down, group=over_dp)
        return up - RATE * by_up, down - RATE * by_down, value.item() / values[1].size

    return step, lambda w: w.numpy()
