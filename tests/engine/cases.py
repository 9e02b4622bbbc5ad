"""What devices hold under a layout, worked out from the definitions, and the checks that every engine must pass."""

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from shardwise import Layout, Plan, ReduceOp, plan_reshard
from shardwise.engine.arrays import to_numpy
from shardwise.engine.counters import Counters
from shardwise.engine.execute import program_of
from shardwise.engine.local.engine import LocalEngine
from shardwise.engine.storage import storage_of
from tests.layout.oracle import held_box, position
from tests.plan.cases import Transition

Shape = tuple[int, ...]

UFUNC: dict[ReduceOp, np.ufunc] = {
    ReduceOp.SUM: np.add,
    ReduceOp.PROD: np.multiply,
    ReduceOp.MAX: np.maximum,
    ReduceOp.MIN: np.minimum,
    ReduceOp.BOR: np.bitwise_or,
    ReduceOp.BXOR: np.bitwise_xor,
    ReduceOp.BAND: np.bitwise_and,
}


class Spread(NamedTuple):
    """A global value, and the array of each device under a layout."""

    value: np.ndarray
    arrays: list[np.ndarray]


def contributions(layout: Layout) -> int:
    """How many terms a value of this layout is the reduction of."""
    return prod(axis.size for axis in layout.partial)


def reduced(terms: Sequence[np.ndarray], op: ReduceOp | None) -> np.ndarray:
    """The terms reduced one after the other."""
    out = terms[0].copy()
    for term in terms[1:]:
        out = np.asarray(UFUNC[op or ReduceOp.SUM](out, term), out.dtype)
    return out


def piece(value: np.ndarray, layout: Layout, device: int) -> np.ndarray:
    """What a device holds of a value, zeros where it is padded."""
    box = held_box(layout, value.shape, device)
    out = np.zeros([stop - start for start, stop in box], value.dtype)
    inside = [(max(0, start), max(0, min(stop, size))) for (start, stop), size in zip(box, value.shape, strict=True)]
    if all(start < stop for start, stop in inside):
        here = tuple(slice(a - start, b - start) for (a, b), (start, _) in zip(inside, box, strict=True))
        out[(*here, ...)] = value[tuple(slice(a, b) for a, b in inside)]
    return out


def random_values(shape: Shape, dtype: Any, seed: int = 0) -> np.ndarray:
    """Small numbers of any dtype, exact in all of them."""
    rng, dtype = np.random.default_rng(seed), np.dtype(dtype)
    low = 0 if dtype.kind in "bu" else -5
    out = np.asarray(rng.integers(low, 2 if dtype.kind == "b" else 6, shape))
    return np.asarray(out + 1j * rng.integers(-5, 6, shape) if dtype.kind == "c" else out).astype(dtype)


def spread(layout: Layout, shape: Shape, dtype: Any = "int64", seed: int = 0) -> Spread:
    """A generated value under a layout; where that has partial axes, a contribution per position along them."""
    terms = [random_values(shape, dtype, seed + i) for i in range(contributions(layout))]
    arrays = []
    for device in range(layout.mesh.num_devices):
        arrays.append(piece(terms[position(layout.mesh, layout.partial, device)], layout, device))
    return Spread(reduced(terms, layout.reduce_op), arrays)


def stored(layout: Layout, shape: Shape, arrays: Sequence[Any]) -> list[Any]:
    """The distinct arrays of a tensor, from those of all devices."""
    return [arrays[holders[0]] for holders in storage_of(layout, shape).holders]


def claimed(plan: Plan) -> dict[str, int]:
    """The bytes between devices by kind of step, as the plan says."""
    out: dict[str, int] = {}
    for step in plan.steps:
        if not step.is_local and (size := step.received.total):
            out[step.kind] = out.get(step.kind, 0) + size
    return out


def run(engine: Any, case: Transition, arrays: Sequence[Any], dtype: Any = "int64") -> list[Any]:
    """What each device of the target's mesh holds after the reshard."""
    plan = plan_reshard(*case, dtype)
    out = engine.run(program_of(plan), stored(case.src, case.shape, arrays)) if plan.steps else stored(
        case.src, case.shape, arrays
    )  # fmt: skip
    storage = storage_of(case.dst, case.shape)
    assert len(out) == storage.count
    return [out[storage.index(device)] for device in range(case.dst.mesh.num_devices)]


def check_values(case: Transition, value: np.ndarray, arrays: Sequence[Any]) -> None:
    """Check that the devices of the target hold its shards of the value, bit for bit."""
    found = [to_numpy(array) for array in arrays]
    if not case.dst.partial:
        for device, array in enumerate(found):
            want = piece(value, case.dst, device)
            assert array.dtype == want.dtype
            assert array.shape == want.shape
            assert array.tobytes() == want.tobytes(), f"device {device} has wrong values"
        return
    groups: dict[tuple[Any, ...], dict[int, np.ndarray]] = {}
    for device, array in enumerate(found):
        key = held_box(case.dst, case.shape, device)
        at = position(case.dst.mesh, case.dst.partial, device)
        same = groups.setdefault(key, {}).setdefault(at, array)
        assert np.array_equal(same, array), f"device {device} differs from its replicas"
    for box, terms in groups.items():
        total = reduced([terms[at] for at in sorted(terms)], case.dst.reduce_op)
        inside = tuple(slice(max(0, -a), n - a) for (a, _), n in zip(box, case.shape, strict=True))
        want = value[tuple(slice(max(0, a), max(0, b)) for a, b in box)]
        assert np.array_equal(total[(*inside, ...)], want), "the contributions do not make up the value"


def check_counters(case: Transition, counters: Counters, dtype: Any = "int64") -> None:
    """Check that what was counted where bytes are copied is what the plan says, and that no byte is copied twice."""
    plan = plan_reshard(*case, dtype)
    assert counters.bytes_moved == claimed(plan)
    assert counters.total == plan.received.total
    program = program_of(plan)
    written = [job for stage in program.stages for job in (*stage.joins, *stage.reduces)]
    assert counters.bytes_copied + sum(r.size for s in program.stages for r in s.reduces) == sum(
        j.size for j in written
    )
    for stage in program.stages:
        for out, shape in enumerate(stage.shapes):
            size = sum(job.size for job in (*stage.joins, *stage.reduces) if job.out == out)
            whole = prod(shape) * np.dtype(dtype).itemsize
            assert size <= whole
            assert out not in stage.fresh or out in stage.blank or size == whole


def check(case: Transition, dtype: Any = "int64", seed: int = 0, engine: LocalEngine | None = None) -> None:
    """Run a reshard on the local engine and check values and counters."""
    engine = LocalEngine() if engine is None else engine
    engine.counters.reset()
    given = spread(case.src, case.shape, dtype, seed)
    before = [array.tobytes() for array in given.arrays]
    found = run(engine, case, given.arrays, dtype)
    check_values(case, given.value, found)
    check_counters(case, engine.counters, dtype)
    assert before == [array.tobytes() for array in given.arrays], "a source was written to"
