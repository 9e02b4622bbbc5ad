"""Whoever does what transitions say, slot by slot, has the value in the end."""

from functools import reduce
from random import Random
from typing import Any

import numpy as np
from hypothesis import given

from shardwise import DeviceMesh, Layout, Link, plan_reshard
from shardwise.engine.arrays import identity
from shardwise.layout.tiling import Box
from shardwise.plan.transition import Transition, transitions
from tests.layout.oracle import held_box, position
from tests.plan.cases import Transition as Case
from tests.plan.cases import crowded_moves, mesh_of
from tests.plan.cases import transitions as cases

OPS: dict[str, Any] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
}
LOST = 10**9  # stands where a device has nothing


def inside(box: Box, shape: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(max(0, start), min(stop, size)) for (start, stop), size in zip(box, shape, strict=True))


def play(transition: Transition, arrays: list[np.ndarray], shape: tuple[int, ...]) -> list[np.ndarray]:
    """What every slot of the target holds, each array as large as the whole tensor."""
    blank = LOST if transition.filling is None else identity(transition.filling, np.dtype("int64"))
    out = [np.full(shape, blank) for _ in range(transition.after.mesh.num_devices)]
    for _, move in transition.moves:
        for slot, into in enumerate(out):
            for sources, _, box in move.reductions(slot):
                where, op = inside(box, shape), OPS[str(transition.before.reduce_op)]
                into[where] = reduce(op, [arrays[source][where] for source in sources])
        givers = [array.copy() for array in out] if move.spreads else arrays
        for slot, into in enumerate(out) if not move.reduces else ():
            for source, _, box in (*move.stays(slot), *move.arrivals(slot)):
                into[inside(box, shape)] = givers[source][inside(box, shape)]
        for slot, into in enumerate(out):
            for giver, _, box, source in move.local_copies(slot):
                where = inside(box, shape)
                assert source is None or np.array_equal(arrays[source][where], out[giver][where])
                into[where] = out[giver][where]
    return out


def check(src: Layout, dst: Layout, shape: tuple[int, ...]) -> bool:
    """Play a reshard and compare what every slot holds with the value; averages of whole numbers are left out."""
    if not {str(op) for op in (src.reduce_op, dst.reduce_op) if op is not None} <= set(OPS):
        return False
    plan = plan_reshard(src, dst, shape, "int64")
    rng = np.random.default_rng(0)
    terms: dict[int, np.ndarray] = {}
    arrays = []
    for slot in range(src.mesh.num_devices):
        term = terms.setdefault(position(src.mesh, src.partial, slot), rng.integers(1, 4, shape))
        array, where = np.full(shape, LOST), inside(held_box(src, shape, slot), shape)
        array[where] = term[where]
        arrays.append(array)
    for transition in transitions(plan):
        assert all(move.phase == "direct" for _, move in transition.moves) or transition.before.reduce_op is not None
        arrays = play(transition, arrays, shape)
    value = reduce(OPS[str(src.reduce_op or "sum")], terms.values())
    numbers = range(dst.mesh.num_devices)
    if plan.search.dst is not dst:  # the target's mesh is put into the axes of the source's
        numbers = [plan.search.slots.find(dst.mesh.device(slot)) for slot in numbers]
    groups: dict[Box, dict[int, np.ndarray]] = {}
    for slot, number in enumerate(numbers):
        box = held_box(dst, shape, slot)
        got = arrays[number][inside(box, shape)]
        first = groups.setdefault(box, {}).setdefault(position(dst.mesh, dst.partial, slot), got)
        assert np.array_equal(first, got), "replicas differ"
    for box, parts in groups.items():
        assert np.array_equal(reduce(OPS[str(dst.reduce_op or "sum")], parts.values()), value[inside(box, shape)])
    return True


@given(cases(partial=True))
def test_every_slot_makes_its_array(case: Case) -> None:
    check(*case)


def test_every_slot_makes_its_array_where_devices_stand_in_several() -> None:
    assert sum(check(*crowded_moves(Random(seed))[:3]) for seed in range(80)) > 20


def test_steps_between_which_devices_hold_shares_are_one_transition() -> None:
    mesh = mesh_of(2, 2)
    plan = plan_reshard(Layout(mesh, ["x"], ["y"]), Layout(mesh, [None]), (8,), "int8")
    (transition,) = transitions(plan)
    assert transition.steps == plan.steps
    assert [step.kind for step in plan.steps] == ["reduce_scatter", "all_gather"]
    assert (transition.before, transition.after) == (plan.src, plan.dst)
    assert [move.phase for _, move in transition.moves] == ["reduce", "spread"]


def test_a_local_step_moves_nothing() -> None:
    mesh = mesh_of(4)
    (transition,) = transitions(plan_reshard(Layout(mesh, [None]), Layout(mesh, ["x"]), (8,), "int8"))
    ((step, move),) = transition.moves
    assert step.is_local
    assert [list(move.stays(slot)) for slot in range(4)] == [
        [(slot, slot, ((2 * slot, 2 * slot + 2),))] for slot in range(4)
    ]
    assert not any([*move.arrivals(slot), *move.departures(slot)] for slot in range(4))


def test_sums_that_are_added_up_further_are_not_rounded() -> None:
    mesh = DeviceMesh((2, 4), ("x", "y"))
    links = {"x": Link(0, 1e6), "y": Link(0, 1e12)}
    plan = plan_reshard(Layout(mesh, [None], ["x", "y"]), Layout(mesh, [None]), (64,), "bfloat16", links=links)
    assert [str(transition.dtype) for transition in transitions(plan)] == ["float32", "bfloat16", "bfloat16"]


def test_values_that_become_partial_stand_among_identities() -> None:
    mesh = mesh_of(4)
    src, dst = Layout(mesh, ["x"]), Layout(mesh, [None], ["x"], "max")
    (transition,) = transitions(plan_reshard(src, dst, (8,), "int8"))
    assert str(transition.filling) == "max"
    (back,) = transitions(plan_reshard(dst, src, (8,), "int8"))
    assert back.filling is None
