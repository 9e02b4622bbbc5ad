"""Local: reshards and collectives on eight virtual devices in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from benchmarks import byhand
from benchmarks.clock import Case, Effort, first, interleaved, timed
from benchmarks.row import EQUAL, Floor, Measure, Row
from benchmarks.virtual import Read, dtensor_devices, jax_anew, jax_devices, jax_mesh

Dims = tuple[str, str]  # per tensor dim, the mesh axes that split it, a letter each

MESHES = {"8": ((8,), ("x",)), "2x4": ((2, 4), ("x", "y"))}
MEBIBYTES = {"tiny": (1,), "quick": (4, 64), "full": (4, 64)}
BY_HAND = "NumPy by hand"


@dataclass(frozen=True, slots=True)
class Change:
    """A reshard between two layouts, or a collective on shards of dim 0."""

    name: str
    mesh: str
    src: Dims
    dst: Dims | None = None

    def grid(self, dims: Dims) -> byhand.Grid:
        """Return into how many parts each dim is cut."""
        sizes = dict(zip(MESHES[self.mesh][1], MESHES[self.mesh][0], strict=True))
        rows, columns = (prod(sizes[a] for a in axes) for axes in dims)
        return rows, columns

    def wanted(self, data: np.ndarray) -> np.ndarray:
        """Return what the global value must be."""
        shards = data.reshape(8, -1, data.shape[1])
        if self.name in ("P -> R", "P -> S0"):
            return shards.sum(axis=0)
        return np.roll(shards, 1, axis=0).reshape(data.shape) if self.name == "shift" else data


CHANGES = [
    Change("S0 -> S1", "8", ("x", ""), ("", "x")),
    Change("S0 -> R", "8", ("x", ""), ("", "")),
    Change("[x|y] -> [y|x]", "2x4", ("x", "y"), ("y", "x")),
    Change("[x|y] -> R", "2x4", ("x", "y"), ("", "")),
    Change("[x|-] -> [-|y]", "2x4", ("x", ""), ("", "y")),
    Change("[xy|-] -> [yx|-]", "2x4", ("xy", ""), ("yx", "")),
    Change("R -> S0", "8", ("", ""), ("x", "")),
    Change("P -> R", "8", ("x", "")),  # eight arrays, each an eighth of the tensor, are added up
    Change("P -> S0", "8", ("x", "")),
    Change("shift", "8", ("x", "")),
]


def changes(effort: Effort) -> list[Change]:
    """Return what is measured."""
    return CHANGES[::4] if effort.tiny else CHANGES


def count(effort: Effort) -> int:
    """Return how many rows there will be."""
    return 2 * len(changes(effort)) * len(MEBIBYTES[effort.name])


def rows(effort: Effort) -> Iterator[Row]:
    """Measure, and yield the rows."""
    for mebibytes in MEBIBYTES[effort.name]:
        data = square(mebibytes)
        into = np.ones_like(data)
        copy = interleaved({"copy": Case.of(lambda into=into, data=data: np.copyto(into, data))}, effort)["copy"]
        for change in changes(effort):
            for row in compared("local", change, data, f"{mebibytes} MiB", effort):
                yield row if row.state == "cold" else _noted(row, Measure.of(copy))


def square(mebibytes: float) -> np.ndarray:
    """Return a square tensor of whole numbers, so that sums are exact in any order."""
    side = int((mebibytes * 2**20 / 4) ** 0.5)
    return np.random.default_rng(0).integers(-99, 99, (side, side)).astype(np.float32)


def _noted(row: Row, copy: Measure) -> Row:
    return replace(row, note=f"one copy of the tensor takes {copy.median * 1e3:.3g} ms")


def compared(area: str, change: Change, data: np.ndarray, size: str, effort: Effort) -> Iterator[Row]:
    """Measure one change: first calls, then all in turn."""
    found: dict[str, tuple[Case, Read]] = {"ours": ours(change, data)}
    missing = {}
    for name, maker in PEERS.items():
        made = maker(change, data)
        if isinstance(made, str):
            missing[name] = made
        else:
            found[name] = made
    want = change.wanted(data)
    colds, wrong = {}, []
    for name, (case, read) in found.items():
        seconds, result = first(case)
        colds[name] = Measure.of([seconds])
        if not np.array_equal(read(result), want):
            wrong.append(name)
        del result
    call, read = best(by_hand(change, data))
    wrong += [BY_HAND] if not np.array_equal(read(call()), want) else []
    checked = f"failed: another result: {', '.join(wrong)}" if wrong else EQUAL
    where = (area, change.name, size, change.mesh)
    yield Row(*where, "cold", "seconds", colds.pop("ours"), colds, checked=checked, missing=missing)
    cases = {name: case for name, (case, _) in found.items()} | {BY_HAND: Case.of(call)}
    warm = {name: Measure.of(seconds) for name, seconds in interleaved(cases, effort).items()}
    mine, floor = warm.pop("ours"), Floor(BY_HAND, warm.pop(BY_HAND))
    yield Row(*where, "warm", "seconds", mine, warm, floor, checked, missing)


# -- contenders: each gives the call to time and how to read its result, or why it has none -----------------


def ours(change: Change, data: np.ndarray) -> tuple[Case, Read]:
    """Return our call."""
    from shardwise import DeviceMesh, Layout, P, all_reduce, reduce_scatter, shard, shift

    mesh = DeviceMesh(*MESHES[change.mesh])
    x = shard(data, mesh, P(*(tuple(axes) for axes in change.src)))
    if change.dst is not None:
        to = Layout(mesh, [tuple(axes) for axes in change.dst])
        return Case.of(lambda: shard(x, mesh, to)), lambda y: y.numpy()
    calls: dict[str, Callable[[], Any]] = {
        "P -> R": lambda: all_reduce(x),
        "P -> S0": lambda: reduce_scatter(x, 0),
        "shift": lambda: shift(x, "x"),
    }
    return Case.of(calls[change.name]), lambda y: y.numpy()


def by_hand(change: Change, data: np.ndarray) -> list[tuple[Callable[[], Any], Read]]:
    """Return the ways to write a change by hand."""
    shards = list(data.reshape(8, -1, data.shape[1]).copy())  # of dim 0, by all devices
    if change.name in ("P -> R", "P -> S0"):
        return byhand.sums(shards)
    if change.name == "shift":
        return [(lambda: [shards[i - 1] for i in range(8)], np.concatenate)]
    if change.name == "R -> S0":
        size = len(data)
        return [(lambda: [data[i * size // 8 : (i + 1) * size // 8] for i in range(8)], np.concatenate)]
    if change.name.startswith("[xy|"):
        order = [x * 4 + y for y in range(4) for x in range(2)]  # which device's shard, not which part: no change
        return [(lambda: dict(zip(order, shards, strict=True)), lambda _: np.concatenate(shards))]
    assert change.dst is not None
    return byhand.reshards(data, change.grid(change.src), change.grid(change.dst))


def best(ways: list[tuple[Callable[[], Any], Read]]) -> tuple[Callable[[], Any], Read]:
    """Return the fastest way."""
    if len(ways) == 1:
        return ways[0]
    return min(ways, key=lambda way: min(timed(Case.of(way[0]), 1, warm=1) for _ in range(4)))


def jax_call(change: Change, data: np.ndarray, jitted: bool) -> tuple[Case, Read] | str:
    """Return JAX's call: device_put, or a compiled function."""
    jax = jax_devices()
    from jax import lax
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as Spec

    def spec(dims: Dims) -> Any:
        return Spec(*(tuple(axes) or None for axes in dims))

    mesh = jax_mesh(*MESHES[change.mesh])
    x = jax.device_put(data, NamedSharding(mesh, spec(change.src)))
    if change.dst is not None:
        to = NamedSharding(mesh, spec(change.dst))
        run = jax.jit(lambda a: a, out_shardings=to) if jitted else lambda a: jax.device_put(a, to)
    elif not jitted:
        return "device_put adds nothing up, and does not shift"
    else:
        ring = [(i, (i + 1) % 8) for i in range(8)]
        body, out = {
            "P -> R": (lambda a: lax.psum(a, "x"), Spec()),
            "P -> S0": (lambda a: lax.psum_scatter(a, "x", tiled=True), Spec("x")),
            "shift": (lambda a: lax.ppermute(a, "x", ring), Spec("x")),
        }[change.name]
        run = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=spec(change.src), out_specs=out))
    return Case(lambda a: run(a).block_until_ready(), lambda: jax_anew(x)), np.asarray


def dtensor_call(change: Change, data: np.ndarray) -> tuple[Case, Read] | str:
    """Return DTensor's call: redistribute."""
    if change.name == "shift" or change.name.startswith("[xy|"):
        return "has no shift, and no order of axes but that of the mesh"
    local = dtensor_devices()
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

    sizes, axes = MESHES[change.mesh]
    mesh = local.mesh(sizes, axes)

    def placements(dims: Dims) -> list[Any]:
        return [next((Shard(k) for k in range(2) if a in dims[k]), Replicate()) for a in axes]

    x = local.placed(data, mesh, placements(change.src))
    if change.dst is None:
        with local.mode:
            x = DTensor.from_local(x.to_local(), mesh, [Partial()], run_check=False)
    to = [Replicate()] if change.name == "P -> R" else placements(change.dst or change.src)
    return Case.of(local.within(lambda: x.redistribute(placements=to))), local.read


PEERS: dict[str, Callable[[Change, np.ndarray], tuple[Case, Read] | str]] = {
    "JAX device_put": lambda change, data: jax_call(change, data, jitted=False),
    "JAX jit": lambda change, data: jax_call(change, data, jitted=True),
    "DTensor": dtensor_call,
}
