"""Planners of DTensor: what they plan for a transition, and the bytes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

from benchmarks.transitions import Roles, Transition

GREEDY, GRAPH = "DTensor greedy", "DTensor graph"
PLANNERS = {GREEDY: False, GRAPH: True}
Plan = Callable[[], list[Any]]


@contextmanager
def fake_mesh(sizes: tuple[int, ...]) -> Iterator[Any]:
    """Give a torch mesh over a process group that launches nothing; planning needs no groups along its axes."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import _redistribute as redistribute
    from torch.testing._internal.distributed.fake_pg import FakeStore

    # A plan remembered for an equal mesh that is another object would be found, but slowly.
    redistribute._gen_transform_infos.cache_clear()
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=prod(sizes))
    try:
        yield DeviceMesh("cpu", torch.arange(prod(sizes)).view(sizes), _init_backend=False, _rank=0)
    finally:
        dist.destroy_process_group()


def placements(roles: Roles) -> tuple[Any, ...]:
    """Return roles in DTensor's words."""
    from torch.distributed.tensor import Partial, Replicate, Shard

    return tuple(Replicate() if r == "R" else Partial() if r == "P" else Shard(int(r)) for r in roles)


def planner(mesh: Any, case: Transition, graph: bool, again: bool = False) -> Plan:
    """Return what plans a transition, with nothing remembered from before, or with what was (`again`)."""
    import torch
    from torch.distributed.tensor import _redistribute as redistribute
    from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

    meta = TensorMeta(torch.Size(case.shape), (1,) * len(case.shape), torch.float32)
    src, dst = (DTensorSpec(mesh, placements(side), tensor_meta=meta) for side in (case.src, case.dst))
    if again:
        return lambda: redistribute._gen_transform_infos(src, dst, graph)
    redistribute.clear_redistribute_planner_cache()
    return lambda: redistribute._gen_transform_infos_non_cached(src, dst, graph)


def arrives(case: Transition, infos: list[Any]) -> bool:
    """Whether the steps of a plan lead from one side of a transition to the other."""
    now = list(placements(case.src))
    for info in infos:
        _, now[info.mesh_dim] = info.src_dst_placements
    return tuple(now) == placements(case.dst)


def received(case: Transition, infos: list[Any], itemsize: int = 4) -> float:
    """Return what all devices receive in a plan of DTensor, with each collective done as well as it can be.

    All-reduces one after the other are one over the flattened axes, as DTensor makes them where it has such a mesh; for
    other collectives that is the same.
    """
    local = prod(case.shape) / prod(n for n, p in zip(case.mesh, case.src, strict=True) if isinstance(p, int))
    total = 0.0
    for (old, new), n in _merged(case, infos):
        if old.is_partial():
            total += local * (n - 1) / n * (2 if new.is_replicate() else 1)
            local /= 1 if new.is_replicate() else n
        elif old.is_shard() and new.is_replicate():
            total += local * (n - 1)
            local *= n
        elif old.is_shard():
            total += local * (n - 1) / n
        elif new.is_shard():
            local /= n
    return total * prod(case.mesh) * itemsize


def _merged(case: Transition, infos: list[Any]) -> Iterator[tuple[tuple[Any, Any], int]]:
    """Yield from what to what each collective leads, and over how many devices."""
    reduced, pair = 1, (None, None)
    for info in infos:
        (old, new), n = info.src_dst_placements, case.mesh[info.mesh_dim]
        if old.is_partial() and new.is_replicate():
            reduced, pair = reduced * n, (old, new)
            continue
        if reduced > 1:
            yield pair, reduced
            reduced = 1
        yield (old, new), n
    if reduced > 1:
        yield pair, reduced
