"""Growth: reshards in one process by the size of the tensor, by the devices and by the axes of the mesh."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import numpy as np

from benchmarks import byhand
from benchmarks.clock import Case, Effort, interleaved
from benchmarks.local import BY_HAND, Change, best, by_hand, dtensor_call, jax_call, ours, square
from benchmarks.row import EQUAL, Floor, Measure, Row
from benchmarks.transitions import named
from benchmarks.words import amount
from shardwise import DeviceMesh, Layout, P, shard

KIBIBYTES = {"tiny": (64,), "quick": (16, 256, 4096, 65536), "full": (4, 16, 64, 256, 1024, 4096, 16384, 65536)}
DEVICES = {"tiny": (4,), "quick": (2, 8, 32, 64), "full": (2, 4, 8, 16, 32, 64, 128, 256)}
AXES = {"tiny": (2,), "quick": (1, 2, 3, 4), "full": (1, 2, 3, 4, 5, 6)}
CHANGE = Change("S0 -> S1", "8", ("x", ""), ("", "x"))


def count(effort: Effort) -> int:
    """Return how many rows there will be."""
    return len(KIBIBYTES[effort.name]) + len(DEVICES[effort.name]) + len(AXES[effort.name])


def rows(effort: Effort) -> Iterator[Row]:
    """Measure, and yield the rows."""
    for kibibytes in KIBIBYTES[effort.name]:
        yield by_bytes(square(kibibytes / 1024), effort)
    for devices in DEVICES[effort.name]:
        yield by_devices(devices, effort)
    for axes in AXES[effort.name]:
        yield by_axes(axes, effort)


def by_bytes(data: np.ndarray, effort: Effort) -> Row:
    """Measure S0 -> S1 on eight devices, beside the peers."""
    makers: dict[str, Callable[[], Any]] = {
        "ours": lambda: ours(CHANGE, data),
        "JAX device_put": lambda: jax_call(CHANGE, data, jitted=False),
        "JAX jit": lambda: jax_call(CHANGE, data, jitted=True),
        "DTensor": lambda: dtensor_call(CHANGE, data),
    }
    made = {name: maker() for name, maker in makers.items()}
    wrong = [name for name, (case, read) in made.items() if not np.array_equal(read(case.call(case.given())), data)]
    cases = {name: case for name, (case, _) in made.items()} | {BY_HAND: Case.of(best(by_hand(CHANGE, data))[0])}
    at, size = {"bytes": float(data.nbytes)}, amount(data.nbytes, "bytes")
    return _row("S0 -> S1 on 8 devices", size, "8", cases, at, wrong, effort)


def by_devices(devices: int, effort: Effort) -> Row:
    """Measure S0 -> S1 of a tensor that gives every device 64 KiB: as many boxes as the square of the devices."""
    side = int((devices * 2**16 / 4) ** 0.5) // devices * devices
    data = np.arange(side * side, dtype=np.float32).reshape(side, side)
    mesh = DeviceMesh((devices,), ("x",))
    x, to = shard(data, mesh, P("x")), Layout(mesh, [None, "x"])
    wrong = [] if np.array_equal(shard(x, mesh, to).numpy(), data) else ["ours"]
    hand = best(byhand.reshards(data, (devices, 1), (1, devices)))[0]
    cases = {"ours": Case.of(lambda: shard(x, mesh, to)), BY_HAND: Case.of(hand)}
    size = f"{amount(data.nbytes, 'bytes')}"
    return _row("S0 -> S1, 64 KiB a device", size, str(devices), cases, {"devices": float(devices)}, wrong, effort)


def by_axes(axes: int, effort: Effort) -> Row:
    """Measure a tensor of 4 MiB whose dim 0 is split by all axes of a mesh, and then dim 1, in the other order."""
    sizes, names = (2,) * axes, tuple("abcdef"[:axes])
    data = square(4)
    mesh = DeviceMesh(sizes, names)
    x, to = shard(data, mesh, P(names)), Layout(mesh, [None, names[::-1]])
    wrong = [] if np.array_equal(shard(x, mesh, to).numpy(), data) else ["ours"]
    hand = best(byhand.reshards(data, (prod(sizes), 1), (1, prod(sizes))))[0]
    cases = {"ours": Case.of(lambda: shard(x, mesh, to)), BY_HAND: Case.of(hand)}
    name = "all axes from dim 0 to dim 1, in the other order"
    return _row(name, "4 MiB", named(sizes), cases, {"axes": float(axes)}, wrong, effort)


def _row(
    name: str, size: str, mesh: str, cases: dict[str, Case], at: dict[str, float], wrong: list[str], effort: Effort
) -> Row:
    found = {who: Measure.of(seconds) for who, seconds in interleaved(cases, effort).items()}
    checked = f"failed: another result: {', '.join(wrong)}" if wrong else EQUAL
    mine, floor = found.pop("ours"), Floor(BY_HAND, found.pop(BY_HAND))
    return Row("growth", name, size, mesh, "warm", "seconds", mine, found, floor, checked, at=at)
