"""Planning: how long a plan takes to make, by devices and by axes of the mesh; and what is asked for often."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

from benchmarks.clock import Case, Effort, first, interleaved, no_collection, within
from benchmarks.planners import GRAPH, GREEDY, PLANNERS, arrives, fake_mesh, planner
from benchmarks.row import EQUAL, Measure, Row
from benchmarks.transitions import Transition, drawn, layouts, named
from benchmarks.words import amount
from shardwise import DeviceMesh, Layout, Plan, plan_reshard

BY_AXES = ((2,), (2, 2), (2, 2, 2), (2, 2, 2, 2), (2, 2, 2, 2, 2))
BY_DEVICES = ((2, 2, 2), (4, 4, 4), (8, 8, 8), (16, 16, 16), (32, 32, 32), (64, 64, 256))
MILLION = (64, 64, 256)
PATIENCE = {"tiny": 0.2, "quick": 0.5, "full": 5.0}  # seconds after which a search is stopped and counted as that long
KINDS = {"axes": "random, 2 devices an axis", "devices": "random, 3 axes"}


def meshes(effort: Effort) -> list[tuple[str, tuple[int, ...]]]:
    """Return the meshes, and what they grow in."""
    axes = BY_AXES[:2] if effort.tiny else BY_AXES
    devices = BY_DEVICES if effort.full else BY_DEVICES[-1:] if effort.tiny else (*BY_DEVICES[::2], MILLION)
    return [*(("axes", mesh) for mesh in axes), *(("devices", mesh) for mesh in devices)]


def count(effort: Effort) -> int:
    """Return how many rows there will be."""
    return 2 * len(meshes(effort)) + 4


def rows(effort: Effort) -> Iterator[Row]:
    """Measure, and yield the rows."""
    for along, mesh in meshes(effort):
        yield from _random(along, mesh, effort)
    yield from _small(effort)


def _random(along: str, mesh: tuple[int, ...], effort: Effort) -> Iterator[Row]:
    """Cold planning of random transitions: ours and, on the same ones, DTensor's; and plans that were made before."""
    # Parts are even, what all receive can be counted in 64 bits, and no shape has met this mesh before: it is cold.
    ranks, size = (5, 2**8) if along == "axes" else (3, 2**20 if prod(mesh) > 2**12 else 2**12)
    cases = drawn(mesh, {"tiny": 5, "quick": 40, "full": 300}[effort.name], ranks, size)
    few = {"tiny": 2, "quick": 4, "full": 24}[effort.name] * (2 if len(mesh) < 4 else 1)
    prepared = [(*layouts(case), case.shape) for case in cases]
    plan_reshard(*prepared[0][:2], tuple(n * 2 for n in prepared[0][2]), "float32")  # imports and lookups
    with no_collection():
        ours = [first(Case.of(lambda args=args: plan_reshard(*args, "float32"))) for args in prepared]
    wrong = [case for case, (_, plan) in zip(cases, ours, strict=True) if not _least(case, plan)]
    checked = f"failed: ours moves more than the bound: {wrong[0]}" if wrong else EQUAL
    peers, notes = {}, [f"slowest of ours {amount(max(seconds for seconds, _ in ours), 'seconds')}"]
    warm = {"ours": _all_of([lambda args=args: plan_reshard(*args, "float32") for args in prepared])}
    with fake_mesh(mesh) as torch_mesh:
        for name, graph in PLANNERS.items():
            some = cases[:few] if graph else cases
            found = _planned(torch_mesh, some, graph, PATIENCE[effort.name])
            stopped = [infos is None for _, infos in found]
            peers[name] = Measure.of([seconds for seconds, _ in found])
            slowest = amount(max(seconds for seconds, _ in found), "seconds")
            stop = f", {sum(stopped)} of {len(some)} stopped after {PATIENCE[effort.name]} s" if any(stopped) else ""
            notes.append(f"of {name} {slowest}{stop}")
            lost = [c for c, (_, infos) in zip(some, found, strict=True) if infos is not None and not arrives(c, infos)]
            checked = f"failed: {name} does not arrive: {lost[0]}" if lost else checked
        # Its plans are remembered by what they are between, whichever search made them: the greedy one is quick.
        warm[GREEDY] = _all_of([planner(torch_mesh, case, graph=False, again=True) for case in cases])
        spent = interleaved(warm, effort, short=True)
    at = {along: float(prod(mesh) if along == "devices" else len(mesh))}
    cold = Measure.of([seconds for seconds, _ in ours])
    where = ("planning", KINDS[along], f"{len(cases)} transitions", named(mesh))
    yield Row(*where, "cold", "seconds", cold, peers, checked=checked, note=", ".join(notes), at=at)
    again = {name: Measure.of([s / len(cases) for s in seconds]) for name, seconds in spent.items()}
    missing = {GRAPH: "plans are remembered alike, whichever search made them"}
    yield Row(*where, "warm", "seconds", again.pop("ours"), again, checked=checked, missing=missing, at=at)


def _least(case: Transition, plan: Plan) -> bool:
    """Whether a plan moves the least bytes; on a large mesh some devices stand for all, and partial values for none."""
    if prod(case.mesh) <= 64:
        return plan.received.total == plan.lower_bound.total
    some = range(0, prod(case.mesh), prod(case.mesh) // 3)
    return "P" in case.src or all(plan.received.of(d) == plan.lower_bound.of(d) for d in some)


def _planned(mesh: Any, cases: list[Transition], graph: bool, limit: float) -> list[tuple[float, Any]]:
    planner(mesh, cases[0], graph)()
    calls = [planner(mesh, case, graph) for case in cases]
    with no_collection():
        return [within(call, limit) for call in calls]


def _all_of(calls: list[Callable[[], Any]]) -> Case:
    def run() -> None:
        for call in calls:
            call()

    return Case.of(run)


def _small(effort: Effort) -> Iterator[Row]:
    """What is asked for often, on a mesh of a million devices."""
    mesh = DeviceMesh(MILLION, ("a", "b", "c"))
    src, dst, shape = Layout(mesh, ["a", None]), Layout(mesh, [None, "a"]), (2**20, 2**20)
    plan = plan_reshard(src, dst, shape, "float32")
    calls = {
        "a plan made before": lambda: plan_reshard(src, dst, shape, "float32"),
        "a layout": lambda: Layout(mesh, ["a", ("b", "c")]),
        "one device's box": lambda: src.box(shape, 777_777),
        "one device's transfers, all-to-all over 64": lambda: plan.transfers(777_777),
    }
    for name, call in calls.items():
        spent = interleaved({"ours": Case.of(call)}, effort, short=True)
        yield Row("planning", name, "", named(MILLION), "warm", "seconds", Measure.of(spent["ours"]))
