"""Arithmetic on eight virtual devices (a 2x4 mesh): the overhead of tiny ops, and a training step; with peers.

    python benchmarks/arithmetic.py [--quick] [--json out.json]

The first table is what a call costs on tensors so small that nothing else matters, above the plain NumPy calls on the
same shards, in microseconds per distinct shard. The second is a step of training (forward, backward, update) of a
network of two layers, 1024-4096-1024, batch 256, float32: batch over two devices, hidden units over four; as a ratio
to the same step in plain NumPy on one device, which is written by hand. Ours and NumPy run in one process in turn;
each peer runs in a process of its own, beside the same NumPy step. Tables show medians over rounds, with half the
distance between the quartiles. All results are checked first.

What our calls take above NumPy's is processor time of the one thread that makes them, and so is the row of the second
table that says so, in which NumPy has one thread: other programs on the machine do not disturb that. All else is time
as it passes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from statistics import median, quantiles
from time import perf_counter, thread_time
from typing import Any, NamedTuple

import numpy as np

SIDE = 16
CONTENDERS = ("ours", "jax", "jax jit", "dtensor")
OPS = ("add", "multiply by a number", "exp", "matmul", "sum", "reshape", "slice x[1:]", "softmax")
BATCH, WIDTH, HIDDEN = 256, 1024, 4096
RATE = 100.0  # so large that a step changes the weights as much as they are large, and a wrong one is seen
Call = Callable[[], Any]


class Op(NamedTuple):
    """An op to time, how to read its result, and how many distinct shards the result has."""

    call: Call
    read: Callable[[Any], np.ndarray]
    shards: int = 8


def tiny() -> np.ndarray:
    """Return the tensor that ops are timed on."""
    return np.random.default_rng(0).standard_normal((SIDE, SIDE)).astype(np.float32)


def wanted(name: str, x: np.ndarray) -> np.ndarray:
    """Return what an op must give."""
    powers = np.exp(x - x.max(1, keepdims=True))
    return {
        "add": x + x,
        "multiply by a number": x * np.float32(2),
        "exp": np.exp(x),
        "matmul": x @ x,
        "sum": x.sum(1),
        "reshape": x.reshape(SIDE, SIDE // 4, 4),
        "slice x[1:]": x[1:],
        "softmax": powers / powers.sum(1, keepdims=True),
    }[name]


# -- tiny ops ----------------------------------------------------------------------------------------------


def numpy_ops(x: np.ndarray) -> Iterator[tuple[str, Op]]:
    """Yield the ops as plain NumPy calls on shards of the layouts that ours have; results are not put together."""
    tiles = [x[i * 8 : i * 8 + 8, j * 4 : j * 4 + 4].copy() for i in range(2) for j in range(4)]
    halves, columns = [x[:8].copy(), x[8:].copy()], [x[:, j * 4 : j * 4 + 4].copy() for j in range(4)]
    rows = [x[i * 2 : i * 2 + 2].copy() for i in range(8)]

    def soft(a: np.ndarray) -> np.ndarray:
        out = np.exp(a - np.maximum.reduce(a, axis=1, keepdims=True))
        out /= np.add.reduce(out, axis=1, keepdims=True)
        return out

    calls: dict[str, Call] = {
        "add": lambda: [np.add(a, a) for a in tiles],
        "multiply by a number": lambda: [np.multiply(a, 2.0) for a in tiles],
        "exp": lambda: [np.exp(a) for a in tiles],
        "matmul": lambda: [np.matmul(a, b) for a in halves for b in columns],
        "sum": lambda: [np.add.reduce(a, axis=1) for a in rows],
        "reshape": lambda: [a.reshape(2, 4, 4) for a in rows],
        "slice x[1:]": lambda: [np.concatenate([a[1:], b[:1]]) for a, b in pairwise(rows)],
        "softmax": lambda: [soft(a) for a in rows],
    }
    for name in OPS:
        yield name, Op(calls[name], lambda _, name=name: wanted(name, x))


def our_ops(x: np.ndarray) -> Iterator[tuple[str, Op]]:
    from shardwise import DeviceMesh, P, add, exp, matmul, multiply, reshape, shard, softmax
    from shardwise import sum as total

    mesh = DeviceMesh((2, 4), ("dp", "tp"))
    tiles, halves, columns = (shard(x, mesh, spec) for spec in (P("dp", "tp"), P("dp"), P(None, "tp")))
    rows = shard(x, mesh, P(("dp", "tp")))
    calls: dict[str, Call] = {
        "add": lambda: add(tiles, tiles),
        "multiply by a number": lambda: multiply(tiles, 2.0),
        "exp": lambda: exp(tiles),
        "matmul": lambda: matmul(halves, columns),
        "sum": lambda: total(rows, axis=1),
        "reshape": lambda: reshape(rows, (SIDE, SIDE // 4, 4)),
        "slice x[1:]": lambda: rows[1:],
        "softmax": lambda: softmax(rows),
    }
    for name in OPS:
        yield name, Op(calls[name], lambda y: y.numpy())


def jax_ops(x: np.ndarray, jitted: bool) -> Iterator[tuple[str, Op]]:
    jax = jax_of_eight()
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as Spec

    mesh = jax.make_mesh((2, 4), ("dp", "tp"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    specs = Spec("dp", "tp"), Spec("dp"), Spec(None, "tp"), Spec(("dp", "tp"))
    tiles, halves, columns, rows = (jax.device_put(x, NamedSharding(mesh, spec)) for spec in specs)
    functions: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "add": (lambda a, b: a + b, (tiles, tiles)),
        "multiply by a number": (lambda a: a * 2.0, (tiles,)),
        "exp": (jax.numpy.exp, (tiles,)),
        "matmul": (jax.numpy.matmul, (halves, columns)),
        "sum": (lambda a: a.sum(1), (rows,)),
        "reshape": (lambda a: a.reshape(SIDE, SIDE // 4, 4), (rows,)),
        "slice x[1:]": (lambda a: a[1:], (rows,)),
        "softmax": (lambda a: jax.nn.softmax(a, axis=1), (rows,)),
    }
    for name in OPS:
        function, args = functions[name]
        ready = jax.jit(function) if jitted else function
        yield name, Op(lambda ready=ready, args=args: ready(*args).block_until_ready(), np.asarray)


def dtensor_ops(x: np.ndarray) -> Iterator[tuple[str, Op]]:
    torch, mode, placed, read = dtensor_of_eight()
    from torch.distributed.tensor import Replicate, Shard

    tiles, halves = placed(x, [Shard(0), Shard(1)]), placed(x, [Shard(0), Replicate()])
    columns, rows = placed(x, [Replicate(), Shard(1)]), placed(x, [Shard(0), Shard(0)])
    calls: dict[str, Call] = {
        "add": lambda: tiles + tiles,
        "multiply by a number": lambda: tiles * 2.0,
        "exp": lambda: tiles.exp(),
        "matmul": lambda: halves @ columns,
        "sum": lambda: rows.sum(1),
        "reshape": lambda: rows.reshape(SIDE, SIDE // 4, 4),
        "slice x[1:]": lambda: rows[1:],
        "softmax": lambda: torch.softmax(rows, 1),
    }

    def within(call: Call) -> Any:
        with mode:
            return call()

    for name in OPS:
        yield name, Op(lambda call=calls[name]: within(call), read)


# -- peers -------------------------------------------------------------------------------------------------


def jax_of_eight() -> Any:
    os.environ["NPROC"] = "16"  # with fewer threads than devices, collectives can deadlock
    import jax

    jax.config.update("jax_num_cpu_devices", 8)
    return jax


def dtensor_of_eight() -> tuple[Any, ...]:
    """Return torch, the mode, and how to place an array and to read a tensor."""
    import logging

    import torch
    import torch.distributed as dist
    from torch.distributed._local_tensor import LocalTensorMode
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import distribute_tensor
    from torch.testing._internal.distributed.fake_pg import FakeStore

    logging.disable(logging.WARNING)
    dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
    mode = LocalTensorMode(frozenset(range(8)))
    with mode:
        mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))

    def placed(array: np.ndarray, placements: Any) -> Any:
        with mode:
            return distribute_tensor(torch.from_numpy(array), mesh, placements, src_data_rank=None)

    def read(y: Any) -> np.ndarray:
        with mode, torch.no_grad():
            found = y.full_tensor()
        return next(iter(found._local_tensors.values())).numpy()

    return torch, mode, placed, read


# -- a training step ---------------------------------------------------------------------------------------


def network() -> tuple[np.ndarray, ...]:
    """Return a batch, its targets, and two weights."""
    rng = np.random.default_rng(1)
    shapes = (BATCH, WIDTH), (BATCH, WIDTH), (WIDTH, HIDDEN), (HIDDEN, WIDTH)
    return tuple(
        rng.standard_normal(shape, np.float32) / scale for shape, scale in zip(shapes, (1, 1, 32, 64), strict=True)
    )


Step = Callable[[], tuple[Any, Any]]  # the weights after a step from the same start


def numpy_step() -> tuple[Step, Callable[[Any], np.ndarray]]:
    x, y, up, down = network()

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

    return step, lambda a: a


def our_step() -> tuple[Step, Callable[[Any], np.ndarray]]:
    from shardwise import DeviceMesh, P, matmul, mean, relu, shard, square, value_and_grad

    mesh = DeviceMesh((2, 4), ("dp", "tp"))
    specs = P("dp"), P("dp"), P(None, "tp"), P("tp")
    x, y, up, down = (shard(a, mesh, spec) for a, spec in zip(network(), specs, strict=True))

    def loss(up: Any, down: Any) -> Any:
        return mean(square(matmul(relu(matmul(x, up)), down) - y))

    def step() -> tuple[Any, Any]:
        _, (by_up, by_down) = value_and_grad(loss, argnums=(0, 1))(up, down)
        return up - RATE * by_up, down - RATE * by_down

    return step, lambda a: a.numpy()


def jax_step() -> tuple[Step, Callable[[Any], np.ndarray]]:
    jax = jax_of_eight()
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as Spec

    mesh = jax.make_mesh((2, 4), ("dp", "tp"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    specs = Spec("dp"), Spec("dp"), Spec(None, "tp"), Spec("tp")
    put = [jax.device_put(a, NamedSharding(mesh, spec)) for a, spec in zip(network(), specs, strict=True)]

    def loss(weights: Any, x: Any, y: Any) -> Any:
        return jax.numpy.mean((jax.nn.relu(x @ weights[0]) @ weights[1] - y) ** 2)

    @jax.jit
    def update(weights: Any, x: Any, y: Any) -> Any:
        gradients = jax.grad(loss)(weights, x, y)
        return [w - RATE * g for w, g in zip(weights, gradients, strict=True)]

    def step() -> Any:
        return jax.block_until_ready(update(put[2:], *put[:2]))

    return step, np.asarray


def dtensor_step() -> tuple[Step, Callable[[Any], np.ndarray]]:
    torch, mode, placed, read = dtensor_of_eight()
    from torch.distributed.tensor import Replicate, Shard

    cuts = [Shard(0), Replicate()], [Shard(0), Replicate()], [Replicate(), Shard(1)], [Replicate(), Shard(0)]
    x, y, up, down = (placed(a, cut) for a, cut in zip(network(), cuts, strict=True))

    def step() -> tuple[Any, Any]:
        with mode:
            first, second = up.detach().requires_grad_(), down.detach().requires_grad_()
            loss = ((torch.relu(x @ first) @ second).redistribute(placements=cuts[0]) - y).pow(2).mean()
            by_up, by_down = torch.autograd.grad(loss, (first, second))
            with torch.no_grad():
                return tuple(
                    w - RATE * g.redistribute(placements=w.placements) for w, g in ((up, by_up), (down, by_down))
                )

    return step, read


STEPS = {"ours": our_step, "jax jit": jax_step, "dtensor": dtensor_step}


# -- timing ------------------------------------------------------------------------------------------------


def timed(call: Call, times: int, clock: Callable[[], float] = perf_counter) -> float:
    """Return the seconds of one call, by a clock."""
    start = clock()
    for _ in range(times):
        call()
    return (clock() - start) / times


def close(name: str, contender: str, got: np.ndarray, want: np.ndarray) -> None:
    if not np.allclose(got, want, rtol=1e-4, atol=1e-5):
        raise SystemExit(f"{contender} gets {name} wrong")


def measured_ops(contender: str, rounds: int) -> dict[str, list[float]]:
    """Return the microseconds of a call of each op, one per round; of ours also above NumPy's, per shard."""
    x = tiny()
    makers: dict[str, Callable[[], Iterator[tuple[str, Op]]]] = {
        "ours": lambda: our_ops(x),
        "jax": lambda: jax_ops(x, False),
        "jax jit": lambda: jax_ops(x, True),
        "dtensor": lambda: dtensor_ops(x),
    }
    out: dict[str, list[float]] = {}
    plain = dict(numpy_ops(x))
    for name, op in makers[contender]():
        close(name, contender, op.read(op.call()), wanted(name, x))
        times = max(3, min(300, int(0.01 / timed(op.call, 5))))
        timed(op.call, times)
        for _ in range(rounds):
            out.setdefault(name, []).append(timed(op.call, times) * 1e6)
            if contender == "ours":
                spent, kernels = (timed(call, times, thread_time) * 1e6 for call in (op.call, plain[name].call))
                out.setdefault(f"{name}: NumPy on the shards", []).append(kernels)
                out.setdefault(f"{name}: above it", []).append((spent - kernels) / op.shards)
    return out


def measured_steps(contender: str, rounds: int) -> dict[str, list[float]]:
    """Return seconds of steps of a contender and of NumPy, in turn."""
    clock = thread_time if os.environ.get("OPENBLAS_NUM_THREADS") == "1" else perf_counter
    plain, _ = numpy_step()
    step, read = STEPS[contender]()
    for name, got, want in zip(("up", "down"), step(), plain(), strict=True):
        close(name, contender, read(got), want)
    out: dict[str, list[float]] = {"step": [], "numpy": []}
    for _ in range(rounds):
        out["step"].append(timed(step, 1, clock))
        out["numpy"].append(timed(plain, 1, clock))
    return out


def in_process(what: str, contender: str, rounds: int, **variables: str) -> dict[str, list[float]]:
    """Measure a contender in a process of its own; nothing where a package is not installed."""
    command = [sys.executable, __file__, "--what", what, "--contender", contender, "--rounds", str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, env=os.environ | variables)
    if done.returncode:
        print(f"{contender}: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return {}
    return json.loads(done.stdout.splitlines()[-1])


# -- tables ------------------------------------------------------------------------------------------------


def spread(values: list[float]) -> float:
    """Return half the distance between the quartiles."""
    if len(values) < 2:
        return 0.0
    low, _, high = quantiles(values, n=4)
    return (high - low) / 2


def shown(values: list[float] | None, digits: int = 1) -> str:
    return f"{median(values):.{digits}f} ± {spread(values):.{digits}f}" if values else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="few rounds")
    parser.add_argument("--json", help="where to write all numbers")
    parser.add_argument("--what", choices=("ops", "steps"), help=argparse.SUPPRESS)
    parser.add_argument("--contender", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.what:
        measure = measured_ops if given.what == "ops" else measured_steps
        print(json.dumps(measure(given.contender, given.rounds)))
        return
    from rich.console import Console
    from rich.table import Table

    console, rounds = Console(width=120), 5 if given.quick else 21
    ops = {c: in_process("ops", c, rounds) for c in CONTENDERS}
    table = Table("op on 16x16 float32", "NumPy", *CONTENDERS, "above NumPy, per shard", title="microseconds")
    result: dict[str, Any] = {"ops": ops, "above NumPy per shard": {}}
    for name in OPS:
        above, kernels = (ops["ours"].get(f"{name}: {what}", []) for what in ("above it", "NumPy on the shards"))
        result["above NumPy per shard"][name] = {"median": median(above), "spread": spread(above)} if above else None
        table.add_row(name, shown(kernels), *(shown(ops[c].get(name), 0) for c in CONTENDERS), shown(above, 2))
    console.print(table)

    table = Table("contender", "milliseconds", "ratio to NumPy", title=f"a training step, {WIDTH}-{HIDDEN}-{WIDTH}")
    result["steps"] = {}
    one = ("ours on one core, processor time", "ours", {"OPENBLAS_NUM_THREADS": "1"})
    for title, contender, variables in (one, *((name, name, {}) for name in STEPS)):
        found = in_process("steps", contender, rounds, **variables)
        if found:
            ratios = [a / b for a, b in zip(found["step"], found["numpy"], strict=True)]
            result["steps"][title] = found | {"ratio": median(ratios), "spread": spread(ratios)}
            table.add_row(title, shown([1e3 * s for s in found["step"]]), shown(ratios, 2))
    console.print(table)
    if given.json:
        with open(given.json, "w") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
