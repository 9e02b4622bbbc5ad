"""Gloo: reshards, tiny ops, the guard and training steps over four processes of this machine, each with one thread.

All contenders run in the same processes, in turn. Before each call the processes meet at a barrier, and a round's time
is that of the slowest.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.clock import EFFORTS, Effort, looped
from benchmarks.exchanges import CHANGES, SIZE, Call, Change, dtensor, ours, raw
from benchmarks.process import of_line, to_line
from benchmarks.row import EQUAL, Floor, Measure, Row
from benchmarks.training import Sizes, network
from benchmarks.transitions import named

MEBIBYTES = {"tiny": (1,), "quick": (4, 64), "full": (4, 16, 64)}
NETWORKS: dict[str, tuple[Sizes, ...]] = {
    "tiny": ((16, 32, 64),),
    "quick": ((256, 256, 1024),),
    "full": ((256, 256, 1024), (256, 1024, 4096)),
}
BY_HAND = "torch.distributed by hand"
GRAPH = "DTensor graph"


def changes(effort: Effort) -> list[tuple[int, Change]]:
    """Return what is measured, on how many MiB; where time is short, few of the large ones, in which peers are slow."""
    few = {"tiny": 0, "quick": 8, "full": 64}[effort.name]  # up to this size, all
    return [(size, c) for size in MEBIBYTES[effort.name] for c in (CHANGES if size <= few else CHANGES[::4])]


def count(effort: Effort) -> int:
    """Return how many rows there will be."""
    return 2 * len(changes(effort)) + 12 + 2 + 3 * len(NETWORKS[effort.name])


def rows(effort: Effort) -> Iterator[Row]:
    """Start the processes, and yield the rows that the first of them writes."""
    return of_processes("benchmarks.gloo", effort)


def of_processes(module: str, effort: Effort) -> Iterator[Row]:
    """Run a module as four processes over gloo, and yield the rows that the first of them writes."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    common = {"WORLD_SIZE": str(SIZE), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    common |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-m", module, effort.name]
    workers = [
        subprocess.Popen(
            command,
            env=os.environ | common | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
            text=True,
        )
        for rank in range(SIZE)
    ]
    try:
        assert workers[0].stdout is not None
        with workers[0].stdout as lines:
            yield from filter(None, map(of_line, lines))
        codes = [worker.wait(60) for worker in workers]
        if any(codes):
            raise RuntimeError(f"the processes ended with {codes}")
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


# -- in each process -------------------------------------------------------------------------------------


def slowest(seconds: list[list[float]]) -> list[list[float]]:
    """Return the times of the slowest process; all ask."""
    import torch
    import torch.distributed as dist

    out = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(out, op=dist.ReduceOp.MAX)
    return out.tolist()


def once(call: Call) -> tuple[float, Any]:
    """Return the seconds of a call that all processes begin together, and its result."""
    import torch.distributed as dist

    dist.barrier()
    start = perf_counter()
    result = call()
    return perf_counter() - start, result


def together(calls: Mapping[str, Call], effort: Effort) -> dict[str, Measure]:
    """Return the times of calls, made in turn, while the results of the ones before are still there."""
    kept: dict[str, Any] = {}

    def one_round() -> list[float]:
        times = []
        for name, call in calls.items():
            seconds, kept[name] = once(call)
            times.append(seconds)
        return times

    one_round()
    (warm,) = slowest([one_round()])
    rounds = max(effort.least, min(effort.most, int(effort.seconds / sum(warm))))
    found = slowest([one_round() for _ in range(rounds)])
    return {name: Measure.of(column) for name, column in zip(calls, zip(*found, strict=True), strict=True)}


def agreed(right: bool) -> bool:
    """Whether it is right in every process."""
    return not slowest([[0.0 if right else 1.0]])[0][0]


def best(ways: list[Call]) -> Call:
    """Return the fastest of several ways, the same in all processes."""
    if len(ways) == 1:
        return ways[0]
    for way in ways:
        way()
    times = slowest([[once(way)[0] for way in ways] for _ in range(5)])
    at = min(range(len(ways)), key=lambda k: min(times[i][k] for i in range(5)))
    return ways[at]


def reshards(effort: Effort) -> Iterator[Row]:
    """Measure reshards."""
    for mebibytes, change in changes(effort):
        side = int((mebibytes * 2**20 // 4) ** 0.5)
        data = np.random.default_rng(0).integers(-9, 10, (side, side)).astype(np.float32)
        made = {"ours": ours(change, data), "DTensor": dtensor(change, data)}
        if len(change.sizes) > 1:
            made[GRAPH] = dtensor(change, data, graph=True)
        by_hand = best(raw(change, data))
        want, colds, wrong = by_hand().numpy(), {}, []
        for name, (call, read) in made.items():
            seconds, result = once(call)
            colds[name] = Measure.of(slowest([[seconds]])[0])
            if not agreed(np.array_equal(read(result), want)):
                wrong.append(name)
        checked = f"failed: another result: {', '.join(wrong)}" if wrong else EQUAL
        missing = {} if GRAPH in made else {GRAPH: "over one axis it plans as the greedy one does"}
        at = {"bytes": float(mebibytes * 2**20)}
        where = ("gloo", change.name, f"{mebibytes} MiB", named(change.sizes))
        yield Row(*where, "cold", "seconds", colds.pop("ours"), colds, checked=checked, missing=missing)
        warm = together({name: call for name, (call, _) in made.items()} | {BY_HAND: by_hand}, effort)
        mine, floor = warm.pop("ours"), Floor(BY_HAND, warm.pop(BY_HAND))
        yield Row(*where, "warm", "seconds", mine, warm, floor, checked, missing, at=at)


def guard(effort: Effort) -> Iterator[Row]:
    """Measure what it costs that processes compare and record their calls, beside a barrier of gloo."""
    import torch.distributed as dist

    from shardwise import DeviceMesh, P, current_engine, shard

    wire = current_engine().wire  # type: ignore[attr-defined]
    watching, mesh = wire.guard, DeviceMesh((SIZE,), ("x",))
    keeping = watching.recorder

    def under(guard: Any, call: Call, recorder: Any = keeping) -> Call:
        def run() -> Any:
            wire.guard, watching._recorder = guard, recorder
            return call()

        return run

    for side in (16, 1024):
        x = shard(np.ones((side, side), "float32"), mesh, P("x"))
        calls: dict[str, Call] = {"all_gather": x.gather, "all_to_all": lambda x=x: shard(x, mesh, P(None, "x"))}
        for name, call in calls.items():
            ways = {"guarded": under(watching, call), "unguarded": under(None, call)}
            ways["guarded, not recorded"] = under(watching, call, None)
            found = together(ways | {"barrier": under(watching, dist.barrier)}, effort)
            floor = Floor("a barrier of gloo", found.pop("barrier"))
            for how, measure in found.items():
                size = f"{side * side // 256} KiB"
                yield Row("gloo", f"{name}, {how}", size, str(SIZE), "warm", "seconds", measure, floor=floor)
    wire.guard, watching._recorder = watching, keeping


def tiny_ops(effort: Effort) -> Iterator[Row]:
    """Measure ops that move nothing, on shards of torch; the floor is torch on one shard."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    from shardwise import DeviceMesh, P, shard

    mesh, plain, rank = DeviceMesh((SIZE,), ("x",)), torch.ones(2, 8), int(os.environ["RANK"])
    x = shard(torch.ones(8, 8), mesh, P("x"))
    theirs = DTensor.from_local(plain, init_device_mesh("cpu", (SIZE,)), [Shard(0)])
    ops: dict[str, Callable[[Any], Any]] = {"x + x": lambda x: x + x, "x * 2.0": lambda x: x * 2.0}
    for name, op in ops.items():
        right = torch.equal(op(theirs).to_local(), op(plain)) and np.array_equal(op(x).local(rank), op(plain))
        checked = EQUAL if agreed(right) else "failed: another result"
        times = 20 if effort.tiny else 500
        contenders = {"ours": x, "DTensor": theirs, "torch": plain}
        spent = [[looped(lambda v=v, op=op: op(v), times) for v in contenders.values()] for _ in range(effort.most)]
        columns = zip(*slowest(spent), strict=True)
        measures = {who: Measure.of(column) for who, column in zip(contenders, columns, strict=True)}
        floor = Floor("torch on one shard", measures.pop("torch"))
        yield Row("gloo", name, "8x8", str(SIZE), "warm", "seconds", measures.pop("ours"), measures, floor, checked)


def training(effort: Effort) -> Iterator[Row]:
    """Measure training steps."""
    from benchmarks.parallel import dtensor_step, our_step, raw_step

    for batch, width, hidden in NETWORKS[effort.name]:
        values = network((batch, width, hidden))
        made = {
            "training": our_step(values),
            "training, shards of NumPy": our_step(values, torch_shards=False),
            "training, fewest bytes": our_step(values, still=False),
            "DTensor": dtensor_step(values),
        }
        step, see = raw_step(values)
        *weights, loss = step()
        want, wrong = [*map(see, weights), loss], []
        for name, (call, read) in made.items():
            *weights, loss = call()
            pairs = zip([*map(read, weights), loss], want, strict=True)
            if not agreed(all(np.allclose(got, wish, rtol=1e-4, atol=1e-5) for got, wish in pairs)):
                wrong.append(name)
        checked = f"failed: other weights, or another loss: {', '.join(wrong)}" if wrong else EQUAL
        found = together({name: call for name, (call, _) in made.items()} | {BY_HAND: step}, effort)
        peers, floor = {"DTensor": found.pop("DTensor")}, Floor(BY_HAND, found.pop(BY_HAND))
        for name, measure in found.items():
            size = f"{width}-{hidden}-{width}, batch {batch}"
            yield Row("gloo", name, size, "2x2", "warm", "seconds", measure, peers, floor, checked)


def main(name: str) -> None:
    """Measure in this process, which is one of four; the first writes the rows."""
    import torch

    import shardwise

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    engine = shardwise.init("torch")
    for measured in (reshards, guard, tiny_ops, training):
        for row in measured(EFFORTS[name]):
            if engine.rank == 0:  # type: ignore[attr-defined]
                print(to_line(row), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
