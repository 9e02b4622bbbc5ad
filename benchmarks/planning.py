"""How long planning takes and how many bytes plans move, beside DTensor's planner in the same run.

python benchmarks/planning.py [--quick] [--json results.json]
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import random
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from itertools import chain, product
from math import inf, prod
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.table import Table

from shardwise import DeviceMesh, Layout, Partial, PlacementMapping, Replicated, Sharded, plan_reshard

MESHES = ((2,), (2, 2), (2, 2, 2), (2, 2, 2, 2), (2, 2, 2, 2, 2))
LARGE = (64, 64, 256)
BYTES = ((2, 2), (4, 4), (2, 2, 2))
LARGE_TENSOR = (8192, 8192)  # so that bytes, not latencies, decide in cost models
PATIENCE = 5.0  # seconds after which a search is stopped and counted as that long


@dataclass(frozen=True)
class Transition:
    """One placement per mesh axis, before and after: R, P, or the dim that the axis splits."""

    mesh: tuple[int, ...]
    src: tuple[str | int, ...]
    dst: tuple[str | int, ...]
    shape: tuple[int, ...]


# -- the cases -------------------------------------------------------------------------------------------


def random_transitions(mesh: tuple[int, ...], count: int) -> list[Transition]:
    """Distinct transitions of tensors of rank 1 to 5, from any placements to any without partial values."""
    rng, found = random.Random(0), {}
    for _ in range(50 * count):
        rank = rng.randint(1, 5)
        src = tuple(rng.choice(["R", "P", *range(rank)]) for _ in mesh)
        dst = tuple(rng.choice(["R", *range(rank)]) for _ in mesh)
        if src != dst:
            found[src, dst, rank] = None
        if len(found) == count:
            break
    size = 2**20 if prod(mesh) > 2**12 else 2**12
    return [Transition(mesh, src, dst, (size,) * rank) for src, dst, rank in found]


def all_transitions(mesh: tuple[int, ...], partial: bool) -> list[Transition]:
    """Every transition of a tensor of rank 2; with `partial`, those that reduce something."""
    roles: list[str | int] = ["R", 0, 1]
    before = product([*roles, "P"], repeat=len(mesh))
    found = [(src, dst) for src in before for dst in product(roles, repeat=len(mesh))]
    return [Transition(mesh, s, d, LARGE_TENSOR) for s, d in found if s != d and ("P" in s) == partial]


def layouts(case: Transition) -> tuple[Layout, Layout]:
    mesh = DeviceMesh(case.mesh, tuple("abcde"[: len(case.mesh)]))
    kinds: dict[str | int, Any] = {"R": Replicated(), "P": Partial(), **{k: Sharded(k) for k in range(5)}}
    a, b = (PlacementMapping(mesh, [kinds[p] for p in side]) for side in (case.src, case.dst))
    return a.to_layout(len(case.shape)), b.to_layout(len(case.shape))


# -- DTensor ---------------------------------------------------------------------------------------------


@contextmanager
def dtensor_mesh(sizes: tuple[int, ...]) -> Iterator[Any]:
    """A torch mesh over a process group that launches nothing."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=prod(sizes))
    try:
        yield init_device_mesh("cpu", sizes)
    finally:
        dist.destroy_process_group()


def dtensor_planner(mesh: Any, case: Transition, graph: bool) -> Callable[[], list[Any]]:
    """What plans a transition, with nothing remembered from before."""
    import torch
    from torch.distributed.tensor import Partial as TorchPartial
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor import _redistribute as planner
    from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

    kinds: dict[str | int, Any] = {"R": Replicate(), "P": TorchPartial(), **{k: Shard(k) for k in range(5)}}
    meta = TensorMeta(torch.Size(case.shape), (1,) * len(case.shape), torch.float32)
    src, dst = (DTensorSpec(mesh, tuple(kinds[p] for p in side), tensor_meta=meta) for side in (case.src, case.dst))
    planner.clear_redistribute_planner_cache()
    return lambda: planner._gen_transform_infos_non_cached(src, dst, graph)


def dtensor_bytes(case: Transition, infos: list[Any], itemsize: int = 4) -> float:
    """What all devices receive in a plan of DTensor, with each collective done as well as it can be."""
    local = prod(case.shape) / prod(n for n, p in zip(case.mesh, case.src, strict=True) if isinstance(p, int))
    total = 0.0
    for info in infos:
        (old, new), n = info.src_dst_placements, case.mesh[info.mesh_dim]
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


# -- measuring -------------------------------------------------------------------------------------------


def timed(call: Callable[[], Any], limit: float = inf) -> tuple[float, Any]:
    """The seconds of one call and its result, or the limit and None."""

    def stop(*_: Any) -> None:
        raise TimeoutError

    if limit < inf:
        signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, limit)
    start = perf_counter()
    try:
        result = call()
        return perf_counter() - start, result
    except TimeoutError:
        return limit, None
    finally:
        if limit < inf:
            signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def summary(times: list[float], stopped: int = 0) -> dict[str, Any]:
    return {"cases": len(times), "median": median(times), "worst": max(times), "stopped": stopped}


def plan_times(mesh: tuple[int, ...], count: int, peers: bool) -> dict[str, Any]:
    """Cold planning of random transitions: ours and, on the same ones, DTensor's."""
    cases = random_transitions(mesh, count)
    prepared = [(*layouts(case), case.shape) for case in cases]
    plan_reshard(*prepared[0][:2], tuple(n * 2 for n in prepared[0][2]), "float32")  # imports and lookups
    with no_collection():
        ours = [timed(lambda args=args: plan_reshard(*args, "float32"))[0] for args in prepared]
    out: dict[str, Any] = {"mesh": mesh, "shardwise": summary(ours)}
    if not peers:
        return out
    with dtensor_mesh(mesh) as torch_mesh:
        for name, graph, some in (("greedy", False, cases), ("graph", True, cases[: 200 // 4 ** len(mesh) + 8])):
            dtensor_planner(torch_mesh, cases[0], graph)()
            with no_collection():
                found = [timed(dtensor_planner(torch_mesh, case, graph), PATIENCE) for case in some]
            out[name] = summary([t for t, _ in found], sum(infos is None for _, infos in found))
    return out


def plan_bytes(mesh: tuple[int, ...], partial: bool, most: int) -> dict[str, Any]:
    """The bytes of all transitions on a mesh, against the least possible."""
    cases = all_transitions(mesh, partial)
    every = -(-len(cases) // most)
    cases = cases[::every]
    plans = [plan_reshard(*layouts(case), case.shape, "float32") for case in cases]
    bounds = [plan.lower_bound.total for plan in plans]
    out: dict[str, Any] = {"mesh": mesh, "partial": partial, "cases": len(cases), "one_in": every}
    out["shardwise"] = ratios([plan.received.total for plan in plans], bounds)
    with dtensor_mesh(mesh) as torch_mesh:
        for name, graph in (("greedy", False), ("graph", True)):
            moved = [dtensor_bytes(case, dtensor_planner(torch_mesh, case, graph)()) for case in cases]
            out[name] = ratios(moved, bounds)
    return out


def ratios(moved: list[Any], bounds: list[int]) -> dict[str, Any]:
    needed = [(m, b) for m, b in zip(moved, bounds, strict=True) if b]
    return {
        "total": sum(moved) / sum(bounds),
        "worst": max(m / b for m, b in needed),
        "at_bound": sum(m <= b * (1 + 1e-9) for m, b in zip(moved, bounds, strict=True)) / len(bounds),
        "needless": sum(m > 0 and not b for m, b in zip(moved, bounds, strict=True)),
    }


def repeated(call: Callable[[], Any], times: int) -> float:
    """The seconds of one call, the best of five runs of many."""
    with no_collection():
        return min(timed(lambda: [call() for _ in range(times)])[0] for _ in range(5)) / times


def small_things(quick: bool) -> dict[str, float]:
    """What is asked for often: a plan made before, a layout, one device's box, on a mesh of a million devices."""
    mesh, times = DeviceMesh(LARGE, ("a", "b", "c")), 1000 if quick else 20000
    src, dst, shape = Layout(mesh, ["a", None]), Layout(mesh, [None, "a"]), (2**20, 2**20)
    plan_reshard(src, dst, shape, "float32")
    return {
        "a plan made before": repeated(lambda: plan_reshard(src, dst, shape, "float32"), times),
        "a mesh of a million devices": repeated(lambda: DeviceMesh(LARGE, ("a", "b", "c")), times),
        "a layout on it": repeated(lambda: Layout(mesh, ["a", ("b", "c")]), times),
        "one device's box": repeated(lambda: src.box(shape, 777_777), times),
        "one device's transfers, all-to-all over 64": repeated(
            lambda: plan_reshard(src, dst, shape, "float32").transfers(777_777), 20
        ),
    }


def machine() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    return {
        "cores": os.cpu_count(),
        "processor": model,
        "python": platform.python_version(),
        **{name: version(name) for name in ("shardwise", "numpy", "torch")},
    }


# -- showing ---------------------------------------------------------------------------------------------


def milliseconds(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return ["-", "-"]
    more = ">" if found["stopped"] else ""
    return [f"{found['median'] * 1e3:.3g}", f"{more}{found['worst'] * 1e3:.3g}"]


def show(results: dict[str, Any]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 110)
    table = Table(title="Cold planning, ms (median, worst)", title_justify="left")
    for name in ("mesh", "shardwise", "", "DTensor greedy", "", "DTensor graph", ""):
        table.add_column(name, justify="right" if name != "mesh" else "left")
    for row in results["times"]:
        columns = (milliseconds(row.get(who)) for who in ("shardwise", "greedy", "graph"))
        table.add_row("x".join(map(str, row["mesh"])), *chain.from_iterable(columns))
    console.print(table)
    table = Table(title="Bytes of all transitions of rank 2, as multiples of the least possible", title_justify="left")
    for name in ("mesh", "values", "transitions", "who", "in all", "worst", "at the bound", "needless"):
        table.add_column(name, justify="left" if name in ("mesh", "values", "who") else "right")
    for row in results["bytes"]:
        where = ["x".join(map(str, row["mesh"])), "partial" if row["partial"] else "whole", str(row["cases"])]
        for who in ("shardwise", "greedy", "graph"):
            found = row[who]
            numbers = [f"{found['total']:.3g}", f"{found['worst']:.3g}", f"{found['at_bound']:.0%}"]
            table.add_row(*where, who, *numbers, str(found["needless"]))
    console.print(table)
    table = Table(title="Small things, microseconds", title_justify="left")
    table.add_column("what")
    table.add_column("time", justify="right")
    for name, seconds in results["small"].items():
        table.add_row(name, f"{seconds * 1e6:.3g}")
    console.print(table)


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description="Planning: time and bytes, beside DTensor's planner.")
    parser.add_argument("--quick", action="store_true", help="fewer cases, in seconds")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    given = parser.parse_args(argv)
    count = 20 if given.quick else 400
    meshes = MESHES[:3] if given.quick else MESHES
    results = {
        "machine": machine(),
        "times": [plan_times(mesh, count, peers=True) for mesh in meshes] + [plan_times(LARGE, count, peers=False)],
        "bytes": [
            plan_bytes(mesh, partial, 30 if given.quick else 10**6) for mesh in BYTES for partial in (False, True)
        ],
        "small": small_things(given.quick),
    }
    show(results)
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
