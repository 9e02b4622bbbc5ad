"""Dispatch: what calls cost on tensors so small that nothing else matters, eight devices on a 2x4 mesh."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.clock import Case, Effort, first, interleaved
from benchmarks.local import changes, compared
from benchmarks.row import EQUAL, Floor, Measure, Row
from benchmarks.virtual import Read, dtensor_devices, jax_devices, jax_mesh

SIDE = 16
SIZES, AXES = (2, 4), ("dp", "tp")
ON_SHARDS = "NumPy on the shards"
Call = Callable[[], Any]
Calls = dict[str, Call]


def wanted(x: np.ndarray) -> dict[str, np.ndarray]:
    """Return what each op must give."""
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
    }


OPS = tuple(wanted(np.zeros((SIDE, SIDE), np.float32)))


def count(effort: Effort) -> int:
    """Return how many rows there will be."""
    return 2 * (len(OPS) + len(changes(effort)))


def rows(effort: Effort) -> Iterator[Row]:
    """Measure, and yield the rows."""
    x = np.random.default_rng(0).standard_normal((SIDE, SIDE)).astype(np.float32)
    contenders = {name: maker(x) for name, maker in CONTENDERS.items()}
    by_hand = numpy_ops(x)
    for op, want in wanted(x).items():
        yield from _op(
            op, want, {name: (calls[op], read) for name, (calls, read) in contenders.items()}, by_hand, effort
        )
    for change in changes(effort):
        data = np.arange(4096, dtype=np.float32).reshape(64, 64)
        for row in compared("dispatch", change, data, "64x64", effort):
            yield replace(row, name=f"reshard {row.name}")


def _op(
    op: str, want: np.ndarray, found: dict[str, tuple[Call, Read]], by_hand: Calls, effort: Effort
) -> Iterator[Row]:
    colds, wrong = {}, []
    for name, (call, read) in found.items():
        seconds, result = first(Case.of(call))
        colds[name] = Measure.of([seconds])
        if not np.allclose(read(result), want, rtol=1e-4, atol=1e-5):
            wrong.append(name)
    checked = f"failed: another result: {', '.join(wrong)}" if wrong else EQUAL
    where = ("dispatch", op, f"{SIDE}x{SIDE}", "2x4")
    yield Row(*where, "cold", "seconds", colds.pop("ours"), colds, checked=checked)
    cases = {name: Case.of(call) for name, (call, _) in found.items()} | {ON_SHARDS: Case.of(by_hand[op])}
    warm = {name: Measure.of(seconds) for name, seconds in interleaved(cases, effort, short=True).items()}
    mine, floor = warm.pop("ours"), Floor(ON_SHARDS, warm.pop(ON_SHARDS))
    yield Row(*where, "warm", "seconds", mine, warm, floor, checked)


def numpy_ops(x: np.ndarray) -> Calls:
    """Return the ops as plain NumPy calls on shards of the layouts that ours have; results are not put together."""
    tiles = [x[i * 8 : i * 8 + 8, j * 4 : j * 4 + 4].copy() for i in range(2) for j in range(4)]
    halves, columns = [x[:8].copy(), x[8:].copy()], [x[:, j * 4 : j * 4 + 4].copy() for j in range(4)]
    rows = [x[i * 2 : i * 2 + 2].copy() for i in range(8)]

    def soft(a: np.ndarray) -> np.ndarray:
        out = np.exp(a - np.maximum.reduce(a, axis=1, keepdims=True))
        out /= np.add.reduce(out, axis=1, keepdims=True)
        return out

    return {
        "add": lambda: [np.add(a, a) for a in tiles],
        "multiply by a number": lambda: [np.multiply(a, 2.0) for a in tiles],
        "exp": lambda: [np.exp(a) for a in tiles],
        "matmul": lambda: [np.matmul(a, b) for a in halves for b in columns],
        "sum": lambda: [np.add.reduce(a, axis=1) for a in rows],
        "reshape": lambda: [a.reshape(2, 4, 4) for a in rows],
        "slice x[1:]": lambda: [np.concatenate([a[1:], b[:1]]) for a, b in pairwise(rows)],
        "softmax": lambda: [soft(a) for a in rows],
    }


def our_ops(x: np.ndarray) -> tuple[Calls, Read]:
    """Return our calls."""
    from shardwise import DeviceMesh, P, add, exp, matmul, multiply, reshape, shard, softmax
    from shardwise import sum as total

    mesh = DeviceMesh(SIZES, AXES)
    tiles, halves, columns = (shard(x, mesh, spec) for spec in (P("dp", "tp"), P("dp"), P(None, "tp")))
    rows = shard(x, mesh, P(("dp", "tp")))
    calls: Calls = {
        "add": lambda: add(tiles, tiles),
        "multiply by a number": lambda: multiply(tiles, 2.0),
        "exp": lambda: exp(tiles),
        "matmul": lambda: matmul(halves, columns),
        "sum": lambda: total(rows, axis=1),
        "reshape": lambda: reshape(rows, (SIDE, SIDE // 4, 4)),
        "slice x[1:]": lambda: rows[1:],
        "softmax": lambda: softmax(rows),
    }
    return calls, lambda y: y.numpy()


def jax_ops(x: np.ndarray, jitted: bool) -> tuple[Calls, Read]:
    """Return JAX's calls, each compiled or not."""
    jax = jax_devices()
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as Spec

    mesh = jax_mesh(SIZES, AXES)
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
    ready = {name: (jax.jit(run) if jitted else run, args) for name, (run, args) in functions.items()}
    return {name: lambda r=run, a=args: r(*a).block_until_ready() for name, (run, args) in ready.items()}, np.asarray


def dtensor_ops(x: np.ndarray) -> tuple[Calls, Read]:
    """Return DTensor's calls."""
    local = dtensor_devices()
    from torch.distributed.tensor import Replicate, Shard

    mesh = local.mesh(SIZES, AXES)
    cuts = [Shard(0), Shard(1)], [Shard(0), Replicate()], [Replicate(), Shard(1)], [Shard(0), Shard(0)]
    tiles, halves, columns, rows = (local.placed(x, mesh, cut) for cut in cuts)
    calls: Calls = {
        "add": lambda: tiles + tiles,
        "multiply by a number": lambda: tiles * 2.0,
        "exp": lambda: tiles.exp(),
        "matmul": lambda: halves @ columns,
        "sum": lambda: rows.sum(1),
        "reshape": lambda: rows.reshape(SIDE, SIDE // 4, 4),
        "slice x[1:]": lambda: rows[1:],
        "softmax": lambda: local.torch.softmax(rows, 1),
    }
    return {name: local.within(call) for name, call in calls.items()}, local.read


CONTENDERS: dict[str, Callable[[np.ndarray], tuple[Calls, Read]]] = {
    "ours": our_ops,
    "JAX": lambda x: jax_ops(x, jitted=False),
    "JAX jit": lambda x: jax_ops(x, jitted=True),
    "DTensor": dtensor_ops,
}
