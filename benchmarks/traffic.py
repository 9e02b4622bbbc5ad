"""Traffic: the bytes of all transitions on a mesh, against the least possible."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.clock import Effort
from benchmarks.planners import PLANNERS, arrives, fake_mesh, planner, received
from benchmarks.row import EQUAL, Floor, Row, Unit, counted
from benchmarks.transitions import Transition, every, layouts, named
from shardwise import plan_reshard, shard

MESHES = ((2, 2), (4, 4), (8, 8), (2, 2, 2))
SHAPE = (8192, 8192)  # so that bytes, not latencies, decide in cost models
BOUND = "lower bound"


def meshes(effort: Effort) -> tuple[tuple[int, ...], ...]:
    """Return the meshes that are looked at."""
    return MESHES[:1] if effort.tiny else MESHES


def count(effort: Effort) -> int:
    """Return how many rows there will be."""
    return 6 * len(meshes(effort))


def rows(effort: Effort) -> Iterator[Row]:
    """Count, and yield the rows."""
    for mesh in meshes(effort):
        for partial in (False, True):
            # A search of DTensor's graph on three axes takes milliseconds, and there are thousands.
            cases = every(mesh, partial, SHAPE)
            yield from _rows(mesh, partial, cases if effort.full or len(mesh) < 3 else cases[:: len(cases) // 60])


def _rows(mesh: tuple[int, ...], partial: bool, cases: list[Transition]) -> Iterator[Row]:
    plans = [plan_reshard(*layouts(case), case.shape, "float32") for case in cases]
    bounds = [plan.lower_bound.total for plan in plans]
    moved = {"ours": [float(plan.received.total) for plan in plans]}
    wrong = [f"ours: {case.src} -> {case.dst}" for case in cases if not _right(case)]
    with fake_mesh(mesh) as torch_mesh:
        for name, graph in PLANNERS.items():
            found = [planner(torch_mesh, case, graph)() for case in cases]
            moved[name] = [received(case, infos) for case, infos in zip(cases, found, strict=True)]
            pairs = zip(cases, found, strict=True)
            wrong += [f"{name}: {case.src} -> {case.dst}" for case, infos in pairs if not arrives(case, infos)]
    kind, size = ("partial" if partial else "whole"), f"{len(cases)} transitions"
    checked = f"failed: {wrong[0]}" if wrong else EQUAL
    least: dict[str, float] = {"in all": sum(bounds), "worst": 1.0, "above the bound": 0.0}
    units: dict[str, Unit] = {"in all": "bytes", "worst": "times the bound", "above the bound": "transitions"}
    for what, unit in units.items():
        values = {who: counted(_total(what, bytes_, bounds)) for who, bytes_ in moved.items()}
        ours, floor = values.pop("ours"), Floor(BOUND, counted(least[what]))
        yield Row("traffic", f"{kind}, {what}", size, named(mesh), "count", unit, ours, values, floor, checked)


def _total(what: str, moved: list[float], bounds: list[int]) -> float:
    if what == "in all":
        return sum(moved)
    if what == "worst":
        return max(m / b for m, b in zip(moved, bounds, strict=True) if b)
    return float(sum(m > b * (1 + 1e-9) for m, b in zip(moved, bounds, strict=True)))


def _right(case: Transition) -> bool:
    """Whether the plan of a transition, run on a tensor that is small, gives the tensor."""
    data = np.arange(256, dtype=np.float32).reshape(16, 16)
    src, dst = layouts(case)
    x = shard(data, src.mesh, src)
    return np.array_equal(shard(x, dst.mesh, dst).numpy(), data)
