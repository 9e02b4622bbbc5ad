"""Reshards and collectives on eight virtual devices, as ratios to one copy of the tensor: ours, NumPy, JAX, DTensor.

    python benchmarks/local.py [--quick] [--json out.json]

Ours and plain NumPy run in one process, each peer in a process of its own, beside the copy that times are divided by:
each round times the copy and then a row, of NumPy and of ours in turn, and the tables show the median over the rounds
of time / copy, with half the distance between the quartiles. A result is kept while the next one is made. The last
table is what a call costs above the copies that it makes, on tensors so small that nothing else matters.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle, product
from math import exp, log
from statistics import median, quantiles
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

Dims = tuple[str, str]  # per tensor dim, the mesh axes that split it, a letter each

MESHES = {"8": ((8,), ("x",)), "2x4": ((2, 4), ("x", "y"))}


class Row(NamedTuple):
    """One line of the tables: a reshard between two layouts, or a collective on shards of dim 0."""

    name: str
    mesh: str
    src: Dims
    dst: Dims | None = None


ROWS = [
    Row("S0 -> S1", "8", ("x", ""), ("", "x")),
    Row("S0 -> R", "8", ("x", ""), ("", "")),
    Row("[x|y] -> [y|x]", "2x4", ("x", "y"), ("y", "x")),
    Row("[x|y] -> R", "2x4", ("x", "y"), ("", "")),
    Row("[x|-] -> [-|y]", "2x4", ("x", ""), ("", "y")),
    Row("[xy|-] -> [yx|-]", "2x4", ("xy", ""), ("yx", "")),
    Row("R -> S0", "8", ("", ""), ("x", "")),
    Row("P -> R", "8", ("x", "")),  # eight arrays, each an eighth of the tensor, are added up
    Row("P -> S0", "8", ("x", "")),
    Row("shift", "8", ("x", "")),
]
CONTENDERS = ("ours", "numpy", "jax device_put", "jax jit", "dtensor")
PEERS = CONTENDERS[2:]
Call = Callable[[], Any]


class Case(NamedTuple):
    """A call to time, and what makes its argument, which is not timed."""

    call: Callable[[Any], Any]
    given: Call


Read = Callable[[Any], np.ndarray]  # the global value of a result


def wanted(row: Row, data: np.ndarray) -> np.ndarray:
    """Return what the global value must be."""
    shards = data.reshape(8, -1, data.shape[1])
    if row.name in ("P -> R", "P -> S0"):
        return shards.sum(axis=0)
    return np.roll(shards, 1, axis=0).reshape(data.shape) if row.name == "shift" else data


# -- contenders: each yields a row, the call to time and how to read its result ----------------------------


def ours(data: np.ndarray) -> Iterator[tuple[Row, Call, Read]]:
    from shardwise import DeviceMesh, P, all_reduce, reduce_scatter, shard, shift

    for row in ROWS:
        mesh = DeviceMesh(*MESHES[row.mesh])
        x = shard(data, mesh, P(*(tuple(axes) for axes in row.src)))
        calls: dict[str, Call] = {
            "P -> R": lambda x=x: all_reduce(x),
            "P -> S0": lambda x=x: reduce_scatter(x, 0),
            "shift": lambda x=x: shift(x, "x"),
        }
        if row.dst is None:
            yield row, calls[row.name], lambda y: y.numpy()
            continue
        to = shard(data[:8, :8], mesh, P(*(tuple(axes) for axes in row.dst))).layout
        yield row, lambda x=x, mesh=mesh, to=to: shard(x, mesh, to), lambda y: y.numpy()


def boxes(dims: Dims, mesh: str, size: int) -> list[tuple[slice, ...]]:
    """Return the part of the tensor in each distinct shard."""
    sizes = dict(zip(MESHES[mesh][1], MESHES[mesh][0], strict=True))
    cuts = []
    for axes in dims:
        count = int(np.prod([sizes[a] for a in axes], initial=1))
        cuts.append([slice(i * size // count, (i + 1) * size // count) for i in range(count)])
    return list(product(*cuts))


def numpy_ways(row: Row, data: np.ndarray) -> list[tuple[Call, Read]]:
    """Return the ways to write a row by hand, with all views and buffers ready and warm."""
    size = data.shape[0]
    sources = [(box, data[box].copy()) for box in boxes(row.src, row.mesh, size)]
    arrays = [array for _, array in sources]
    if row.name in ("P -> R", "P -> S0"):
        return _numpy_sums(arrays)
    if row.name == "shift":
        return [(lambda: [arrays[i - 1] for i in range(8)], np.concatenate)]
    if row.name == "R -> S0":
        return [(lambda: [arrays[0][i * size // 8 : (i + 1) * size // 8] for i in range(8)], np.concatenate)]
    if row.name.startswith("[xy|"):
        order = [x * 4 + y for y in range(4) for x in range(2)]  # which device's shard, not which part: no change
        return [(lambda: dict(zip(order, arrays, strict=True)), lambda _: np.concatenate(arrays))]
    assert row.dst is not None
    # A result is kept while the next is made, so there are two sets of buffers, used in turn.
    sets = [[(box, np.ones_like(data[box])) for box in boxes(row.dst, row.mesh, size)] for _ in range(2)]
    pairs = [_pairs(sources, targets) for targets in sets]

    def whole(_: Any) -> np.ndarray:
        out = np.empty_like(data)
        for box, target in sets[0]:
            out[box] = target
        return out

    runs = [[tuple(_runs(a) for a in pair) for pair in some] for some in pairs]
    by_source = [sorted(some, key=lambda pair: pair[1].__array_interface__["data"][0]) for some in (*pairs, *runs)]
    ways = [*zip(pairs[::2], pairs[1::2], strict=True), *zip(runs[::2], runs[1::2], strict=True)]
    ways += zip(by_source[::2], by_source[1::2], strict=True)
    return [(partial(_in_turn, _copied, cycle(way)), whole) for way in ways]


def _in_turn(call: Callable[[Any], None], turns: Iterator[Any]) -> None:
    call(next(turns))


def _pairs(sources: list[Any], targets: list[Any]) -> list[tuple[np.ndarray, np.ndarray]]:
    out = []
    for (here, target), (there, source) in product(targets, sources):
        common = [slice(max(a.start, b.start), min(a.stop, b.stop)) for a, b in zip(there, here, strict=True)]
        if all(c.start < c.stop for c in common):
            into, part = (
                tuple(slice(c.start - o.start, c.stop - o.start) for c, o in zip(common, box, strict=True))
                for box in (here, there)
            )
            out.append((target[into], source[part]))
    return out


def _runs(array: np.ndarray) -> np.ndarray:
    # Each row as one wide element: NumPy then copies without an inner loop.
    return array.view(np.dtype((np.void, array.shape[-1] * array.itemsize)))[:, 0]


def _copied(pairs: list[Any]) -> None:
    for target, source in pairs:
        np.copyto(target, source)


def _numpy_sums(arrays: list[np.ndarray]) -> list[tuple[Call, Read]]:
    outs = [np.ones_like(arrays[0]) for _ in range(2)]
    ways = []
    for block in (1 << 15, 1 << 16, 1 << 17, outs[0].size):
        turns = cycle([_cut([out, *arrays], block) for out in outs])
        ways.append((partial(_in_turn, _summed, turns), lambda _: outs[0]))
    return ways


def _cut(arrays: list[np.ndarray], block: int) -> list[list[np.ndarray]]:
    flat = [array.reshape(-1) for array in arrays]
    return [[a[i : i + block] for a in flat] for i in range(0, flat[0].size, block)]


def _summed(blocks: list[list[np.ndarray]]) -> None:
    for out, first, second, *rest in blocks:
        np.add(first, second, out=out)
        for term in rest:
            np.add(out, term, out=out)


def best_numpy(data: np.ndarray) -> Iterator[tuple[Row, Call, Read]]:
    for row in ROWS:
        ways = numpy_ways(row, data)
        yield row, *min(ways, key=lambda way: median(timed(way[0], 1) for _ in range(7 if len(ways) > 1 else 1)))


def jax_calls(data: np.ndarray, jitted: bool) -> Iterator[tuple[Row, Case, Read]]:
    os.environ["NPROC"] = "16"  # with fewer threads than devices, collectives can deadlock
    import jax

    jax.config.update("jax_num_cpu_devices", 8)
    from jax import lax
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as Spec

    def spec(dims: Dims) -> Any:
        return Spec(*(tuple(axes) or None for axes in dims))

    ring = [(i, (i + 1) % 8) for i in range(8)]
    for row in ROWS:
        mesh = jax.make_mesh(*MESHES[row.mesh], axis_types=(jax.sharding.AxisType.Auto,) * len(MESHES[row.mesh][0]))
        x = jax.device_put(data, NamedSharding(mesh, spec(row.src)))
        if row.dst is not None:
            to = NamedSharding(mesh, spec(row.dst))
            change = jax.jit(lambda a: a, out_shardings=to) if jitted else lambda a, to=to: jax.device_put(a, to)
        elif not jitted:
            continue
        else:
            body, out = {
                "P -> R": (lambda a: lax.psum(a, "x"), Spec()),
                "P -> S0": (lambda a: lax.psum_scatter(a, "x", tiled=True), Spec("x")),
                "shift": (lambda a: lax.ppermute(a, "x", ring), Spec("x")),
            }[row.name]
            change = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=spec(row.src), out_specs=out))

        def given(x: Any = x) -> Any:
            # JAX keeps a gathered value with the array that it was gathered from: each call gets another array.
            shards = [shard.data for shard in x.addressable_shards]
            return jax.make_array_from_single_device_arrays(x.shape, x.sharding, shards)

        yield row, Case(lambda x, change=change: change(x).block_until_ready(), given), np.asarray


def dtensor(data: np.ndarray) -> Iterator[tuple[Row, Call, Read]]:
    import logging

    import torch
    import torch.distributed as dist
    from torch.distributed._local_tensor import LocalTensorMode
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
    from torch.testing._internal.distributed.fake_pg import FakeStore

    logging.disable(logging.WARNING)
    dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())

    def placements(dims: Dims, axes: tuple[str, ...]) -> list[Any]:
        return [next((Shard(k) for k in range(2) if a in dims[k]), Replicate()) for a in axes]

    def read(y: Any) -> np.ndarray:
        with mode:
            found = y.full_tensor()
        return next(iter(found._local_tensors.values())).numpy()

    mode = LocalTensorMode(frozenset(range(8)))
    for row in ROWS:
        sizes, axes = MESHES[row.mesh]
        if row.name == "shift" or row.name.startswith("[xy|"):  # it has neither
            continue
        with mode:
            mesh = init_device_mesh("cpu", sizes, mesh_dim_names=axes)
            x = distribute_tensor(torch.from_numpy(data), mesh, placements(row.src, axes), src_data_rank=None)
            if row.dst is None:
                x = DTensor.from_local(x.to_local(), mesh, [Partial()], run_check=False)
        to = [Replicate()] if row.name == "P -> R" else placements(row.dst or row.src, axes)

        def change(x: Any = x, to: Any = to) -> Any:
            with mode:
                return x.redistribute(placements=to)

        yield row, change, read


# -- timing ------------------------------------------------------------------------------------------------


def timed(call: Call | Case, times: int) -> float:
    """Return the seconds of one call, each made while the result of the one before is still there."""
    case = call if isinstance(call, Case) else Case(lambda _: call(), lambda: None)
    held, seconds = None, 0.0
    for i in range(-2, times):  # after two, both results have had their buffers, and all is warm
        given = case.given()
        start = perf_counter()
        new = case.call(given)
        seconds += (perf_counter() - start) * (i >= 0)
        held = new
    del held
    return seconds / times


def measured(contenders: Sequence[str], mib: int, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Return the times of contenders' rows as ratios to the copy, one per round, the contenders in turn."""
    side = int((mib * 2**20 / 4) ** 0.5)
    data = np.random.default_rng(0).integers(-99, 99, (side, side)).astype(np.float32)
    into, times = np.ones_like(data), 8 if mib < 16 else 2
    makers: dict[str, Callable[[np.ndarray], Iterator[Any]]] = {
        "ours": ours,
        "numpy": best_numpy,
        "jax device_put": lambda d: jax_calls(d, False),
        "jax jit": lambda d: jax_calls(d, True),
        "dtensor": dtensor,
    }
    out: dict[str, dict[str, list[float]]] = {contender: {} for contender in contenders}
    for made in zip(*(makers[contender](data) for contender in contenders), strict=True):
        calls = {}
        for contender, (row, call, read) in zip(contenders, made, strict=True):
            found = read(call.call(call.given()) if isinstance(call, Case) else call())
            if not np.array_equal(found, wanted(row, data)):
                raise SystemExit(f"{contender} gets {row.name} wrong")
            del found
            calls[contender] = call, out[contender].setdefault(row.name, []), timed(call, 1) > 0.2
        slow = any(is_slow for _, _, is_slow in calls.values())
        for _ in range(min(rounds, 3) if slow else rounds):
            for call, ratios, is_slow in calls.values():
                copy = timed(lambda: np.copyto(into, data), times)
                ratios.append(timed(call, 1 if is_slow else times) / copy)
    return out


def overheads(rounds: int) -> list[dict[str, Any]]:
    """Return, for calls on 8x8 elements, the microseconds of the call and of the copies it makes."""
    from shardwise import DeviceMesh, P, all_gather, all_reduce, ppermute, shard
    from shardwise.engine.execute import compiled
    from shardwise.plan.plan import plan_reshard

    mesh = DeviceMesh((8,), ("x",))
    data = np.arange(64, dtype=np.float32).reshape(8, 8)
    x, spec = shard(data, mesh, P("x")), P(None, "x")
    y, whole, pending = shard(x, mesh, spec), shard(x, mesh, P()), shard(data, mesh, P(), partial_axes=["x"])
    across = plan_reshard(x.layout, y.layout, x.shape, x.dtype)
    ring = [(i, (i + 1) % 8) for i in range(8)]
    rows, columns = [np.ones((1, 8), "f4") for _ in range(8)], [np.ones((8, 1), "f4") for _ in range(8)]
    swap = [(columns[j][i : i + 1], rows[i][:, j : j + 1]) for j in range(8) for i in range(8)]
    gather = [(data[i : i + 1], rows[i]) for i in range(8)]

    terms, total = [np.ones((8, 8), "f4") for _ in range(8)], np.ones((8, 8), "f4")
    cases: list[tuple[str, Call, Call]] = [
        ("S0 -> S1: the engine alone", lambda: x.engine.run(compiled(across), x.arrays), lambda: _copied(swap)),
        ("S0 -> S1: shard(x, mesh, layout)", lambda: shard(x, mesh, y.layout), lambda: _copied(swap)),
        ("S0 -> S1: shard(x, mesh, P(None, 'x'))", lambda: shard(x, mesh, spec), lambda: _copied(swap)),
        ("S0 -> R: all_gather(x)", lambda: all_gather(x), lambda: _copied(gather)),
        ("R -> S0: shard(x, mesh, layout)", lambda: shard(whole, mesh, x.layout), lambda: None),
        ("P -> R: all_reduce(x) of partial values", lambda: all_reduce(pending), lambda: _summed([[total, *terms]])),
        ("P -> R: all_reduce(x) of shards", lambda: all_reduce(x), lambda: _summed([[total[:1], *rows]])),
        ("ppermute(x, ring)", lambda: ppermute(x, ring), lambda: None),
    ]
    out = []
    for name, call, copies in cases:
        pairs = [(timed(call, 500), timed(copies, 500)) for _ in range(rounds)]
        whole_us, copies_us = (median(column) * 1e6 for column in zip(*pairs, strict=True))
        out.append({"call": name, "microseconds": whole_us, "copies": copies_us, "above": whole_us - copies_us})
    return out


# -- tables ------------------------------------------------------------------------------------------------


def in_process(contenders: Sequence[str], mib: int, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Run contenders in a process of their own; their rows are empty where a package is not installed."""
    named = [word for contender in contenders for word in ("--contender", contender)]
    command = [sys.executable, __file__, *named, "--mib", str(mib), "--rounds", str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    if done.returncode:
        print(f"{', '.join(contenders)}: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return {contender: {} for contender in contenders}
    return json.loads(done.stdout.splitlines()[-1])


def shown(ratios: list[float] | None) -> str:
    """Return the median, and half the distance between the quartiles."""
    if not ratios:
        return "-"
    low, _, high = quantiles(ratios, n=4) if len(ratios) > 1 else (ratios[0],) * 3
    return f"{median(ratios):.2f} ± {(high - low) / 2:.2f}"


def summary(found: dict[str, dict[str, list[float]]]) -> dict[str, Any]:
    """Return the geometric means against each peer, over the rows that both have, and the worst rows."""
    ours = {name: median(ratios) for name, ratios in found["ours"].items()}
    out: dict[str, Any] = {}
    for other in CONTENDERS[1:]:
        both = {name: median(r) for name, r in found[other].items() if name in ours}
        if other == "numpy":  # what is only views takes no time worth a ratio
            both = {name: ratio for name, ratio in both.items() if ratio > 0.02}
        if both:
            out[f"{other} / ours"] = exp(sum(log(ratio / ours[name]) for name, ratio in both.items()) / len(both))
            worst = max(both, key=lambda name: ours[name] / both[name])
            out[f"worst against {other}"] = f"{worst}: {ours[worst] / both[worst]:.2f}"
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="few rounds")
    parser.add_argument("--json", help="where to write all numbers")
    parser.add_argument("--contender", choices=CONTENDERS, action="append", help=argparse.SUPPRESS)
    parser.add_argument("--mib", type=int, default=4, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.contender:
        print(json.dumps(measured(given.contender, given.mib, given.rounds)))
        return
    from rich.console import Console
    from rich.table import Table

    console, rounds, result = Console(width=110), 5 if given.quick else 21, {}
    for mib in (4, 64):
        found = in_process(("ours", "numpy"), mib, rounds)
        for peer in PEERS:
            found |= in_process((peer,), mib, rounds)
        table = Table("row", *CONTENDERS, title=f"time / copy of {mib} MiB, 8 devices")
        for row in ROWS:
            table.add_row(row.name.replace("[", r"\["), *(shown(found[c].get(row.name)) for c in CONTENDERS))
        console.print(table)
        totals = summary(found)
        for name, value in totals.items():
            console.print(f"  {name}: {value:.2f}" if isinstance(value, float) else f"  {name}: {value}", markup=False)
        result[f"{mib} MiB"] = {"ratios": found, "summary": totals}
    table = Table("call on 8x8 float32", "microseconds", "copies alone", "above them", title="what a call costs")
    result["overheads"] = overheads(5 if given.quick else 15)
    for case in result["overheads"]:
        table.add_row(case["call"], *(f"{case[k]:.1f}" for k in ("microseconds", "copies", "above")))
    console.print(table)
    if given.json:
        with open(given.json, "w") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
