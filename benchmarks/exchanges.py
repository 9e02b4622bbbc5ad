"""Exchanges: reshards between four processes over gloo, as ours, as DTensor's redistribute, and as raw calls."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

SIZE = 4
Call = Callable[[], Any]
Read = Callable[[Any], np.ndarray]  # what this process holds of a result
Box = tuple[slice, slice]


@dataclass(frozen=True, slots=True)
class Change:
    """A transition: per mesh axis, a dim that it splits, "R" or "P"."""

    name: str
    src: tuple[Any, ...]
    dst: tuple[Any, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The mesh: all four in a row, or two by two."""
        return (SIZE,) if len(self.src) == 1 else (2, 2)


CHANGES = [
    Change("S0 -> S1", (0,), (1,)),
    Change("S0 -> R", (0,), ("R",)),
    Change("P -> R", ("P",), ("R",)),
    Change("P -> S0", ("P",), (0,)),
    Change("[S0,S1] -> [S1,S0]", (0, 1), (1, 0)),
    Change("[S0,S0] -> [S1,S1]", (0, 0), (1, 1)),
    Change("[S0,S0] -> [R,S0]", (0, 0), ("R", 0)),
    Change("[R,S0] -> [S0,S1]", ("R", 0), (0, 1)),
    Change("[S0,R] -> [R,S0]", (0, "R"), ("R", 0)),
    Change("[P,P] -> [R,R]", ("P", "P"), ("R", "R")),
    Change("[P,S0] -> [S0,R]", ("P", 0), (0, "R")),
]


# -- geometry, by hand ---------------------------------------------------------------------------------


def box(roles: tuple[Any, ...], sizes: tuple[int, ...], rank: int, side: int) -> Box:
    """Return the part of a square tensor that a rank has under roles."""
    spans = [[0, side], [0, side]]
    for axis, role in enumerate(roles):
        at = rank if len(sizes) == 1 else (rank // 2, rank % 2)[axis]
        if role in (0, 1):
            start, stop = spans[role]
            width = (stop - start) // sizes[axis]
            spans[role] = [start + at * width, start + (at + 1) * width]
    return slice(*spans[0]), slice(*spans[1])


def given(change: Change, data: np.ndarray) -> np.ndarray:
    """Return what this process holds before: its box, of a term that depends on where it is along partial axes."""
    rank, sizes = int(os.environ["RANK"]), change.sizes
    at = (rank,) if len(sizes) == 1 else (rank // 2, rank % 2)
    term = sum(position for position, role in zip(at, change.src, strict=True) if role == "P")
    return np.ascontiguousarray(data[box(change.src, sizes, rank, len(data))]) + np.float32(term)


# -- contenders ----------------------------------------------------------------------------------------


def ours(change: Change, data: np.ndarray) -> tuple[Call, Read]:
    """Return our reshard, guarded as it is by default, of NumPy arrays."""
    from shardwise import DeviceMesh, Layout, from_shards, shard

    rank = int(os.environ["RANK"])
    mesh = DeviceMesh(change.sizes, ("x", "y")[: len(change.sizes)])

    def layout(roles: tuple[Any, ...]) -> Layout:
        dims = [[n for n, role in zip(mesh.axis_names, roles, strict=True) if role == dim] for dim in (0, 1)]
        return Layout(mesh, dims, [n for n, role in zip(mesh.axis_names, roles, strict=True) if role == "P"])

    src, dst = layout(change.src), layout(change.dst)
    x = from_shards({rank: given(change, data)}, mesh, src, data.shape)
    return lambda: shard(x, mesh, dst), lambda y: np.asarray(y.local(rank))


@cache
def dtensor_mesh(sizes: tuple[int, ...], names: str) -> Any:
    """Return a mesh of DTensor's, with its axes flattened too, so that it may merge collectives over them."""
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=tuple(names[: len(sizes)]))
    if len(sizes) > 1:
        mesh._flatten()
    return mesh


def dtensor(change: Change, data: np.ndarray, graph: bool = False) -> tuple[Call, Read]:
    """Return DTensor's redistribute, as its greedy planner or its graph search plans it."""
    import torch
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
    from torch.distributed.tensor._redistribute import use_min_cost_redistribution_plan

    # Plans are remembered by their meshes: under other names the two planners do not meet each other's.
    mesh = dtensor_mesh(change.sizes, "gh" if graph else "xy")
    kinds: dict[Any, Any] = {0: Shard(0), 1: Shard(1), "R": Replicate(), "P": Partial()}
    local = torch.from_numpy(given(change, data))
    x = DTensor.from_local(local, mesh, [kinds[r] for r in change.src], run_check=False)
    to = [kinds[r] for r in change.dst]

    def call() -> Any:
        with use_min_cost_redistribution_plan(graph):
            return x.redistribute(mesh, to)

    return (call if graph else lambda: x.redistribute(mesh, to)), lambda y: y.to_local().numpy()


def raw(change: Change, data: np.ndarray) -> list[Call]:
    """Return the ways to write it by hand: the collective that a person would call, with the packing that it needs."""
    import torch
    import torch.distributed as dist

    x, side = torch.from_numpy(given(change, data)), len(data)
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

    def share() -> Any:  # gloo's own reduce_scatter sends every byte twice
        came = torch.empty_like(x)
        dist.all_to_all_single(came, x)
        return came.view(SIZE, side // SIZE, side).sum(0)

    if change.name == "S0 -> R":
        return [lambda: _made(x.new_empty(side, side), lambda out: gather(out, x))]
    if change.name in ("P -> R", "[P,P] -> [R,R]"):
        both = lambda: _made(x.new_empty(side, side), lambda out: gather(out, share()))  # noqa: E731
        return [lambda: _made(x.clone(), dist.all_reduce), both]
    if change.name == "P -> S0":
        return [lambda: _made(x.new_empty(side // SIZE, side), lambda out: scatter(out, x)), share]
    return [_mixed(x, side) if change.name == "[P,S0] -> [S0,R]" else _exchange(change, x, side)]


def _made(out: Any, call: Callable[[Any], Any]) -> Any:
    call(out)
    return out


def _exchange(change: Change, x: Any, side: int) -> Call:
    """Return one all_to_all_single of the boxes that each rank lacks, each from one holder."""
    import torch
    import torch.distributed as dist

    rank, sizes = dist.get_rank(), change.sizes
    have = [box(change.src, sizes, r, side) for r in range(SIZE)]
    need = [box(change.dst, sizes, r, side) for r in range(SIZE)]

    def source(part: Box, target: int) -> int:
        holders = [r for r in range(SIZE) if _inside(part, have[r])]
        return target if target in holders else holders[target % len(holders)]

    parts: dict[tuple[int, int], Box] = {}
    for target in range(SIZE):
        for holder in range(SIZE):
            part = _common(have[holder], need[target])
            if part is not None and source(part, target) == holder:
                parts[holder, target] = part
    sends = [parts.get((rank, r)) if r != rank else None for r in range(SIZE)]
    receives = [parts.get((r, rank)) if r != rank else None for r in range(SIZE)]

    def call() -> Any:
        packed = torch.cat([x[_at(p, have[rank])].reshape(-1) for p in sends if p] or [x.new_empty(0)])
        came = x.new_empty(sum(_count(p) for p in receives))
        dist.all_to_all_single(came, packed, [_count(p) for p in receives], [_count(p) for p in sends])
        out = x.new_empty([s.stop - s.start for s in need[rank]])
        if (rank, rank) in parts:
            own = parts[rank, rank]
            out[_at(own, need[rank])] = x[_at(own, have[rank])]
        at = 0
        for p in receives:
            if p:
                into = out[_at(p, need[rank])]
                into.copy_(came[at : at + _count(p)].view(into.shape))
                at += _count(p)
        return out

    return call


def _mixed(x: Any, side: int) -> Call:
    # Rows of y are summed over x and then belong to x: two terms of each half go to who keeps it.
    import torch.distributed as dist

    rank = dist.get_rank()
    half = side // 2
    holders = {0: (0, 2), 1: (1, 3)}  # the terms of each half of the rows
    keepers = {0: (0, 1), 1: (2, 3)}

    def call() -> Any:
        mine, quarter = rank % 2, half // 2
        pieces = [x[:quarter], x[quarter:]]
        sends = [0] * SIZE
        for i, target in enumerate(keepers[mine]):
            sends[target] = pieces[i].numel()
        packed = x.reshape(-1)
        which = rank // 2
        receives = [quarter * side if r in holders[which] else 0 for r in range(SIZE)]
        came = x.new_empty(sum(receives))
        dist.all_to_all_single(came, packed, receives, sends)
        share = came.view(2, quarter, side).sum(0)
        out = x.new_empty(half, side)
        at = keepers[which].index(rank)
        out[at * quarter : (at + 1) * quarter] = share
        other = keepers[which][1 - at]
        works: list[Any] = [dist.irecv(out[(1 - at) * quarter : (2 - at) * quarter], other), dist.isend(share, other)]
        for work in works:
            work.wait()
        return out

    return call


def _common(a: Box, b: Box) -> Box | None:
    out = tuple(slice(max(s.start, t.start), min(s.stop, t.stop)) for s, t in zip(a, b, strict=True))
    return out if all(s.start < s.stop for s in out) else None  # type: ignore[return-value]


def _inside(a: Box, b: Box) -> bool:
    return all(t.start <= s.start and s.stop <= t.stop for s, t in zip(a, b, strict=True))


def _at(a: Box, inside: Box) -> Box:
    return tuple(slice(s.start - t.start, s.stop - t.start) for s, t in zip(a, inside, strict=True))  # type: ignore[return-value]


def _count(part: Box | None) -> int:
    return 0 if part is None else int(np.prod([s.stop - s.start for s in part]))
