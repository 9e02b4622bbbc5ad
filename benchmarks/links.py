"""Links: what plans say that reshards take over measured links, beside what they take, on four processes over gloo.

Links and reshards are measured in turn, several times, so that both meet the same neighbours on the machine.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from math import exp, log
from statistics import median
from typing import Any

import numpy as np

from benchmarks.clock import EFFORTS, Effort
from benchmarks.exchanges import Call, Change, ours
from benchmarks.gloo import agreed, changes, of_processes, once, slowest
from benchmarks.process import to_line
from benchmarks.row import EQUAL, Floor, Measure, Row, counted
from benchmarks.transitions import named

MEASURED = "measured"
SIZES = {"tiny": (1 << 12, 1 << 16), "quick": None, "full": None}  # bytes of messages; None: all that there are
TURNS = {"tiny": 1, "quick": 3, "full": 5}
REPEATS = {"tiny": 1, "quick": 3, "full": 3}  # of each size of message, in each turn
WARM = 2


def count(effort: Effort) -> int:
    """Return how many rows there will be."""
    return len(changes(effort)) + 2


def rows(effort: Effort) -> Iterator[Row]:
    """Start the processes, and yield the rows that the first of them writes."""
    return of_processes("benchmarks.links", effort)


# -- in each process -------------------------------------------------------------------------------------


def predicted(effort: Effort) -> Iterator[Row]:
    """Measure links and reshards in turn, and yield what was predicted of each reshard beside what was measured."""
    from shardwise import DeviceMesh, Links

    name, cases = effort.name, changes(effort)
    says: list[list[float]] = [[] for _ in cases]
    takes: list[list[float]] = [[] for _ in cases]
    right = [True for _ in cases]
    for _ in range(TURNS[name]):
        links: dict[tuple[int, ...], Any] = {}
        for sizes in ((4,), (2, 2)):
            mesh = DeviceMesh(sizes, ("x", "y")[: len(sizes)])
            links[sizes] = Links.measure(mesh, sizes=SIZES[name], repeats=REPEATS[name])
        for k, (mebibytes, change) in enumerate(cases):
            side = int((mebibytes * 2**20 // 4) ** 0.5)
            call, read = ours(change, np.ones((side, side), np.float32))
            right[k] &= agreed(is_right(change, read(call())))
            says[k].append(predict(change, side, links[change.sizes]))
            takes[k] += timed(call, effort)
    factors: list[float] = []
    for (mebibytes, change), foretold, seconds, fine in zip(cases, says, takes, right, strict=True):
        found, wanted = Measure.of(foretold), Measure.of(seconds)
        factors.append(max(found.median / wanted.median, wanted.median / found.median))
        where = ("links", change.name, f"{mebibytes} MiB", named(change.sizes), "warm", "seconds")
        yield Row(*where, found, floor=Floor(MEASURED, wanted), checked=EQUAL if fine else "failed: another result")
    mean, size = exp(sum(map(log, factors)) / len(factors)), f"{len(factors)} reshards"
    yield Row("links", "off by, geometric mean", size, "", "count", "times the bound", counted(mean))
    yield Row("links", "off by, worst", size, "", "count", "times the bound", counted(max(factors)))


def timed(call: Call, effort: Effort) -> list[float]:
    """Return the seconds of calls of one turn, each that of the slowest process, while the result before is there."""
    spent: list[float] = []
    kept: Any = None
    for _ in range(WARM + 1):
        seconds, kept = once(call)
        spent.append(seconds)
    ((warm,),) = slowest([[median(spent)]])
    turns = TURNS[effort.name]
    rounds = max(2, min(effort.most // turns + 1, int(effort.seconds / turns / warm)))
    times: list[float] = []
    for _ in range(rounds):
        seconds, kept = once(call)
        times.append(seconds)
    del kept
    return slowest([times])[0]


def predict(change: Change, side: int, links: Any) -> float:
    """Return what the plan of a change says that it takes."""
    from shardwise import DeviceMesh, Layout, plan_reshard

    mesh = DeviceMesh(change.sizes, ("x", "y")[: len(change.sizes)])

    def layout(roles: tuple[Any, ...]) -> Layout:
        dims = [[n for n, role in zip(mesh.axis_names, roles, strict=True) if role == dim] for dim in (0, 1)]
        return Layout(mesh, dims, [n for n, role in zip(mesh.axis_names, roles, strict=True) if role == "P"])

    return plan_reshard(layout(change.src), layout(change.dst), (side, side), "float32", links=links).time


def is_right(change: Change, found: np.ndarray) -> bool:
    """Whether a result is right: terms are ones, plus where they stand along the axes that are added up."""
    terms = [1]
    for role, size in zip(change.src, change.sizes, strict=True):
        terms = [term + at for term in terms for at in range(size if role == "P" else 1)]
    return bool((found == sum(terms)).all())


def main(name: str) -> None:
    """Measure in this process, which is one of four; the first writes the rows."""
    import torch

    import shardwise

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    engine = shardwise.init("torch")
    for row in predicted(EFFORTS[name]):
        if engine.rank == 0:  # type: ignore[attr-defined]
            print(to_line(row), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
