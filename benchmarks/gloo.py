"""Reshards between four processes over gloo: ours, DTensor's redistribute and raw torch.distributed calls.

    python benchmarks/gloo.py [--quick] [--json out.json]

Four processes on this machine, each with one thread. All contenders run in the same processes, in turn; before each
call the processes meet at a barrier, and a round's time is that of the slowest. The tables show medians over the
rounds. Ours is guarded, as it is by default; a table of its own shows what that costs. "raw" is the collective that a
person would call by hand, with the packing that it needs: one all_to_all_single of just the bytes that are needed,
all_gather_into_tensor, all_reduce or reduce_scatter_tensor. The other tables are what an op costs that moves nothing,
and a training step that is data- and tensor-parallel over 2x2 processes.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from math import exp, log
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

SIZE = 4
Call = Callable[[], Any]
Box = tuple[slice, slice]


class Row(NamedTuple):
    """A transition: per mesh axis, a dim that it splits, "R" or "P"."""

    name: str
    src: tuple[Any, ...]
    dst: tuple[Any, ...]


ROWS = [
    Row("S0 -> S1", (0,), (1,)),
    Row("S0 -> R", (0,), ("R",)),
    Row("P -> R", ("P",), ("R",)),
    Row("P -> S0", ("P",), (0,)),
    Row("[S0,S1] -> [S1,S0]", (0, 1), (1, 0)),
    Row("[S0,S0] -> [S1,S1]", (0, 0), (1, 1)),
    Row("[S0,S0] -> [R,S0]", (0, 0), ("R", 0)),
    Row("[R,S0] -> [S0,S1]", ("R", 0), (0, 1)),
    Row("[S0,R] -> [R,S0]", (0, "R"), ("R", 0)),
    Row("[P,P] -> [R,R]", ("P", "P"), ("R", "R")),
    Row("[P,S0] -> [S0,R]", ("P", 0), (0, "R")),
]
CONTENDERS = ("ours", "dtensor", "raw")


# -- geometry, by hand ---------------------------------------------------------------------------------


def grid(row: Row) -> tuple[int, ...]:
    return (SIZE,) if len(row.src) == 1 else (2, 2)


def box(roles: tuple[Any, ...], sizes: tuple[int, ...], rank: int, side: int) -> Box:
    """The part of a square tensor that a rank has under roles."""
    spans = [[0, side], [0, side]]
    for axis, role in enumerate(roles):
        at = rank if len(sizes) == 1 else (rank // 2, rank % 2)[axis]
        if role in (0, 1):
            start, stop = spans[role]
            width = (stop - start) // sizes[axis]
            spans[role] = [start + at * width, start + (at + 1) * width]
    return slice(*spans[0]), slice(*spans[1])


# -- contenders ----------------------------------------------------------------------------------------


def ours(row: Row, data: np.ndarray) -> tuple[Call, Callable[[Any], np.ndarray]]:
    from shardwise import DeviceMesh, Layout, from_shards, shard

    sizes, rank = grid(row), int(os.environ["RANK"])
    mesh = DeviceMesh(sizes, ("x", "y")[: len(sizes)])

    def layout(roles: tuple[Any, ...]) -> Layout:
        dims = [[n for n, role in zip(mesh.axis_names, roles, strict=True) if role == dim] for dim in (0, 1)]
        return Layout(mesh, dims, [n for n, role in zip(mesh.axis_names, roles, strict=True) if role == "P"])

    src, dst = layout(row.src), layout(row.dst)
    x = from_shards({rank: given(row, data)}, mesh, src, data.shape)
    return lambda: shard(x, mesh, dst), lambda y: np.asarray(y.local(rank))


def given(row: Row, data: np.ndarray) -> np.ndarray:
    """What this process holds before: its box, of a term that depends on where it is along partial axes."""
    rank, sizes = int(os.environ["RANK"]), grid(row)
    at = (rank,) if len(sizes) == 1 else (rank // 2, rank % 2)
    term = sum(position for position, role in zip(at, row.src, strict=True) if role == "P")
    return np.ascontiguousarray(data[box(row.src, sizes, rank, len(data))]) + np.float32(term)


def dtensor(row: Row, data: np.ndarray) -> tuple[Call, Callable[[Any], np.ndarray]]:
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

    mesh = init_device_mesh("cpu", grid(row))
    kinds: dict[Any, Any] = {0: Shard(0), 1: Shard(1), "R": Replicate(), "P": Partial()}
    x = DTensor.from_local(torch.from_numpy(given(row, data)), mesh, [kinds[r] for r in row.src], run_check=False)
    to = [kinds[r] for r in row.dst]
    return lambda: x.redistribute(mesh, to), lambda y: y.to_local().numpy()


def raw(row: Row, data: np.ndarray) -> tuple[Call, Callable[[Any], np.ndarray]]:
    import torch
    import torch.distributed as dist

    x, side = torch.from_numpy(given(row, data)), len(data)
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    if row.name == "S0 -> R":
        return lambda: _made(x.new_empty(side, side), lambda out: gather(out, x)), lambda y: y.numpy()
    if row.name in ("P -> R", "[P,P] -> [R,R]"):
        return lambda: _made(x.clone(), dist.all_reduce), lambda y: y.numpy()
    if row.name == "P -> S0":
        return lambda: _made(x.new_empty(side // SIZE, side), lambda out: scatter(out, x)), lambda y: y.numpy()
    if row.name == "[P,S0] -> [S0,R]":
        return _raw_mixed(row, x, side), lambda y: y.numpy()
    return _raw_exchange(row, x, side), lambda y: y.numpy()


def _made(out: Any, call: Callable[[Any], Any]) -> Any:
    call(out)
    return out


def _raw_exchange(row: Row, x: Any, side: int) -> Call:
    """One all_to_all_single of the boxes that each rank lacks, each from one holder."""
    import torch
    import torch.distributed as dist

    rank, sizes = dist.get_rank(), grid(row)
    have = [box(row.src, sizes, r, side) for r in range(SIZE)]
    need = [box(row.dst, sizes, r, side) for r in range(SIZE)]

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


def _raw_mixed(row: Row, x: Any, side: int) -> Call:
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
        works = [dist.irecv(out[(1 - at) * quarter : (2 - at) * quarter], other), dist.isend(share, other)]
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


# -- timing ----------------------------------------------------------------------------------------------


def timed(calls: Sequence[Call], rounds: int) -> list[float]:
    """The medians over rounds of the slowest process's time of each call, run in turn."""
    import torch
    import torch.distributed as dist

    kept: list[Any] = [None] * len(calls)  # a result is kept while the next is made
    out = torch.zeros(rounds, len(calls), dtype=torch.float64)
    for i in range(-2, rounds):
        for k, call in enumerate(calls):
            dist.barrier()
            start = perf_counter()
            kept[k] = call()
            seconds = perf_counter() - start
            if i >= 0:
                out[i, k] = seconds
    dist.all_reduce(out, op=dist.ReduceOp.MAX)
    return [median(column.tolist()) for column in out.T]


def reshards(quick: bool) -> list[dict[str, Any]]:
    found = []
    for megabytes in (4, 64):
        side = int((megabytes * 2**20 // 4) ** 0.5)
        data = np.random.default_rng(0).integers(-9, 10, (side, side)).astype(np.float32)
        for row in ROWS:
            made = [contender(row, data) for contender in (ours, dtensor, raw)]
            results = [read(call()) for call, read in made]
            assert all(np.array_equal(result, results[0]) for result in results), row.name
            times = timed([call for call, _ in made], 3 if quick else 21 if megabytes == 4 else 9)
            found.append({"MiB": megabytes, "transition": row.name} | dict(zip(CONTENDERS, times, strict=True)))
    return found


def guard(quick: bool) -> list[dict[str, Any]]:
    """What it costs that processes compare their calls before any data moves, beside a barrier of gloo."""
    import torch.distributed as dist

    from shardwise import DeviceMesh, P, current_engine, shard

    wire = current_engine().wire  # type: ignore[attr-defined]
    watching, mesh, out = wire.guard, DeviceMesh((SIZE,), ("x",)), []

    def under(guard: Any, call: Call) -> Call:
        def run() -> Any:
            wire.guard = guard
            return call()

        return run

    for side in (16, 1024):
        x = shard(np.ones((side, side), "float32"), mesh, P("x"))
        calls: dict[str, Call] = {"all_gather": x.gather, "all_to_all": lambda x=x: shard(x, mesh, P(None, "x"))}
        for name, call in calls.items():
            contenders = under(watching, call), under(None, call), dist.barrier
            times = timed(contenders, 5 if quick else 101)
            row = {"KiB": side * side // 256, "step": name}
            out.append(row | dict(zip(("guarded", "unguarded", "barrier"), times, strict=True)))
    wire.guard = watching
    return out


def dispatch(quick: bool) -> list[dict[str, Any]]:
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    from shardwise import DeviceMesh, P, shard

    mesh = DeviceMesh((SIZE,), ("x",))
    ours = {"numpy": shard(np.ones((8, 8), "float32"), mesh, P("x")), "torch": shard(torch.ones(8, 8), mesh, P("x"))}
    theirs = DTensor.from_local(torch.ones(2, 8), init_device_mesh("cpu", (SIZE,)), [Shard(0)])
    out = []
    ops: dict[str, Callable[[Any], Any]] = {"x + x": lambda x: x + x, "x * 2.0": lambda x: x * 2.0}
    for name, op in ops.items():
        row: dict[str, Any] = {"op": name}
        for label, x in (*ours.items(), ("dtensor", theirs)):
            row[label] = median(_loop(op, x, 200 if quick else 2000) for _ in range(5))
        out.append(row)
    return out


def _loop(op: Callable[[Any], Any], x: Any, count: int) -> float:
    start = perf_counter()
    for _ in range(count):
        op(x)
    return (perf_counter() - start) / count


def training(quick: bool) -> list[dict[str, Any]]:
    out = []
    for batch, width, hidden in ((256, 256, 1024), (256, 1024, 4096)):
        rng = np.random.default_rng(0)
        shapes = (batch, width), (batch, width), (width, hidden), (hidden, width)
        values = [rng.standard_normal(shape).astype(np.float32) / shape[0] ** 0.5 for shape in shapes]
        steps = {
            "ours": _our_step(values, torch_shards=True, still=True),
            "ours, numpy": _our_step(values, torch_shards=False, still=True),
            "ours, fewest bytes": _our_step(values, torch_shards=True, still=False),
        }
        steps["dtensor"] = _dtensor_step(values)
        first = [float(step()) for step in steps.values()]
        assert np.allclose(first, first[0], rtol=1e-4), first
        times = timed(list(steps.values()), 3 if quick else 9)
        out.append({"batch, width, hidden": [batch, width, hidden]} | dict(zip(steps, times, strict=True)))
    return out


def _our_step(values: list[np.ndarray], torch_shards: bool, still: bool) -> Call:
    # `still`: operands stay where they are, and only pending sums are resolved, as DTensor does it. The solver that is
    # used otherwise sends the fewest bytes: the activations of this batch are smaller than the gradients of the
    # weights, so it gathers them, and both halves of the data-parallel pair compute the gradients of all rows.
    import torch

    from shardwise import DeviceMesh, GreedyReshard, P, PartialsOnly, matmul, mean, mode, relu, shard, value_and_grad

    mesh = DeviceMesh((2, 2), ("dp", "tp"))
    ready = [torch.from_numpy(value) for value in values] if torch_shards else values
    specs = P("dp"), P("dp"), P(None, "tp"), P("tp")
    x, y, *weights = (shard(value, mesh, spec) for value, spec in zip(ready, specs, strict=True))

    def loss(weights: list[Any]) -> Any:
        error = matmul(relu(matmul(x, weights[0])), weights[1]) - y
        return mean(error * error)

    @mode(PartialsOnly() if still else GreedyReshard())
    def step() -> Any:
        value, gradients = value_and_grad(loss)(weights)
        weights[:] = [w - 0.01 * g for w, g in zip(weights, gradients, strict=True)]
        return value.gather().item()

    return step


def _dtensor_step(values: list[np.ndarray]) -> Call:
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (2, 2))
    places = [Shard(0), Replicate()], [Shard(0), Replicate()], [Replicate(), Shard(1)], [Replicate(), Shard(0)]
    x, y, *weights = (
        distribute_tensor(torch.from_numpy(value), mesh, p) for value, p in zip(values, places, strict=True)
    )
    weights = [w.requires_grad_() for w in weights]

    def step() -> Any:
        error = torch.relu(x @ weights[0]) @ weights[1] - y
        loss = (error * error).mean()
        gradients = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            for w, g in zip(weights, gradients, strict=True):
                w -= 0.01 * g.redistribute(mesh, w.placements)
        return loss.full_tensor().item()

    return step


# -- the program -----------------------------------------------------------------------------------------


def worker(quick: bool, path: str) -> None:
    import torch

    import shardwise

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    engine = shardwise.init("torch")
    found = {
        "guard": guard(quick),
        "reshards": reshards(quick),
        "dispatch": dispatch(quick),
        "training": training(quick),
    }
    if engine.rank == 0:  # type: ignore[attr-defined]
        Path(path).write_text(json.dumps(found), encoding="utf-8")


def start(quick: bool) -> dict[str, Any]:
    """Run the benchmark in four processes and return what they found."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "found.json")
        common = {"WORLD_SIZE": str(SIZE), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        common |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        command = [sys.executable, __file__, "--worker", path, *(["--quick"] if quick else [])]
        workers = [
            subprocess.Popen(command, env=os.environ | common | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
            for rank in range(SIZE)
        ]
        codes = [process.wait() for process in workers]
        if any(codes):
            sys.exit(f"the processes ended with {codes}")
        return json.loads(Path(path).read_text(encoding="utf-8"))


def mean_of(ratios: Sequence[float]) -> float:
    return exp(sum(map(log, ratios)) / len(ratios))


def show(found: dict[str, Any]) -> None:
    print("Reshards, milliseconds; DTensor / ours is how many times faster ours is.\n")
    print(f"{'MiB':>4} {'transition':20} {'ours':>9} {'DTensor':>9} {'raw':>9} {'DTensor/ours':>13} {'raw/ours':>9}")
    for row in found["reshards"]:
        ours, theirs, raw = (row[c] * 1e3 for c in CONTENDERS)
        name = row["transition"]
        print(f"{row['MiB']:4} {name:20} {ours:9.2f} {theirs:9.2f} {raw:9.2f} {theirs / ours:13.2f} {raw / ours:9.2f}")
    for peer in ("dtensor", "raw"):
        ratios = [row[peer] / row["ours"] for row in found["reshards"]]
        print(f"{peer} / ours: geometric mean {mean_of(ratios):.2f}, least {min(ratios):.2f}")
    print("\nThe guard, microseconds of a step with it, without it, and of a barrier.\n")
    for row in found["guard"]:
        times = (f"{label} {row[label] * 1e6:.0f}" for label in ("guarded", "unguarded", "barrier"))
        print("  ".join([f"{row['KiB']:5} KiB {row['step']:10}", *times]))
    print("\nAn op that moves nothing, microseconds.\n")
    for row in found["dispatch"]:
        print("  ".join([row["op"], *(f"{label} {row[label] * 1e6:.1f}" for label in ("numpy", "torch", "dtensor"))]))
    print("\nA training step over 2x2 processes, milliseconds.\n")
    for row in found["training"]:
        sizes = row.pop("batch, width, hidden")
        print("  ".join([str(sizes), *(f"{label} {seconds * 1e3:.1f}" for label, seconds in row.items())]))
        row["batch, width, hidden"] = sizes


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="few rounds, to see that it works")
    parser.add_argument("--json", help="write the results to this file too")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.quick, options.worker)
    else:
        results = start(options.quick)
        show(results)
        if options.json:
            Path(options.json).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
