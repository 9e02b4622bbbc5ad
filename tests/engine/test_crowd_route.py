"""Routes between meshes where a device stands in several slots, played by all processes in one."""

from random import Random
from typing import Any

import numpy as np
import pytest

from shardwise import CPU, Layout, plan_reshard
from shardwise.engine.arrays import identity, reduce_into
from shardwise.engine.execute import compiled
from shardwise.engine.route import Leg, Part, Route
from shardwise.engine.storage import storage_of
from shardwise.engine.survey import route_of
from shardwise.layout.placement import ReduceOp
from tests.layout.oracle import held_box, position
from tests.plan.cases import Move, crowded_moves, mesh_of
from tests.prim.cases import part, reduced, same, values

RANKS = 6
Arrays = dict[int, np.ndarray]


def cut(arrays: Arrays, found: Part) -> np.ndarray:
    return arrays[found.slot][found.where] if found.where else arrays[found.slot]


def routes(move: Move, limit: int | None = None) -> list[Route]:
    program, out = compiled(plan_reshard(*move, memory_limit=limit)), []
    for rank in range(RANKS):
        program.__dict__.pop("_route", None)
        out.append(route_of(program, rank))
    return out


def play(legs: list[Leg], states: list[Arrays], dtype: np.dtype) -> list[Arrays]:
    """What all processes hold after one leg."""
    made: list[Arrays] = []
    for leg, state in zip(legs, states, strict=True):
        blank = 0 if leg.filling is None or leg.filling is ReduceOp.AVG else identity(leg.filling, dtype)
        out = {o.slot: np.full(o.shape, blank if o.blank else 77, dtype) for o in leg.outs}
        for into, source in leg.copies:
            cut(out, into)[...] = cut(state, source)
        made.append(out)
    left = [list(leg.rounds) for leg in legs]
    while any(left):
        for leg, out, state, rounds in zip(legs, made, states, left, strict=True):
            while rounds and not rounds[0].talks:
                alone = rounds.pop(0)
                give(alone, out)
                take(alone, out, state, [], leg.op)
        some = {rank: rounds.pop(0) for rank, rounds in enumerate(left) if rounds}
        mail: dict[tuple[int, int], np.ndarray] = {}
        assert len({round_.call for round_ in some.values()}) <= 1
        for rank, round_ in some.items():
            give(round_, made[rank])
            for message in round_.sends:
                arrays = made[rank] if round_.spreads else states[rank]
                mail[rank, message.rank] = np.concatenate([cut(arrays, p).ravel() for p in message.parts])
        for rank, round_ in some.items():
            came = [(m, mail.pop((m.rank, rank))) for m in round_.receives]
            take(round_, made[rank], states[rank], came, legs[rank].op)
        assert not mail, "a message is sent that nobody receives"
    return made


def give(round_: Any, out: Arrays) -> None:
    for into, source in round_.handed:
        cut(out, into)[...] = cut(out, source)


def take(round_: Any, out: Arrays, state: Arrays, came: list[Any], op: ReduceOp | None) -> None:
    assert all(message.size == len(data) for message, data in came)
    if not round_.sums:
        for message, data in came:
            at = 0
            for found in message.parts:
                size = int(np.prod(found.shape))
                cut(out, found)[...] = data[at : at + size].reshape(found.shape)
                at += size
        return
    buffer = np.concatenate([np.empty(0, next(iter(out.values())).dtype), *(data for _, data in came)])
    for found, terms in round_.sums:
        size = int(np.prod(found.shape))
        arrays = []
        for term in terms:
            arrays.append(
                cut(state, term) if isinstance(term, Part) else buffer[term : term + size].reshape(found.shape)
            )
        reduce_into(cut(out, found), arrays, op or ReduceOp.SUM)


def check(move: Move, limit: int | None = None) -> None:
    """Play a reshard and compare what every slot holds with the value."""
    src, dst, shape, dtype = move
    old, new, found = storage_of(src, shape), storage_of(dst, shape), routes(move, limit)
    terms = [values(shape, dtype, seed) for seed in range(int(np.prod([a.size for a in src.partial])))]
    states: list[Arrays] = []
    for route in found:
        state = {}
        for slot, index in route.starts:
            at = position(src.mesh, src.partial, old.holder(index))
            state[slot] = part(terms[at], held_box(src, shape, old.holder(index)))
        states.append(state)
    moved = 0
    for legs in zip(*(route.legs for route in found), strict=True):
        moved += sum(r.received for leg in legs for r in leg.rounds) + sum(n for leg in legs for _, n in leg.near)
        states = play(list(legs), states, dtype)
    assert moved * dtype.itemsize == plan_reshard(*move).received.total
    value = reduced(terms, src.reduce_op or ReduceOp.SUM)
    groups: dict[Any, dict[int, np.ndarray]] = {}
    for slot, device in enumerate(dst.mesh.devices):
        ends = dict(found[device.id].ends)
        array = states[device.id][ends[new.index(slot)]]
        box = held_box(dst, shape, slot)
        assert array.shape == tuple(stop - start for start, stop in box)
        term = groups.setdefault(box, {}).setdefault(position(dst.mesh, dst.partial, slot), array)
        assert np.array_equal(term, array), "replicas differ"
    for box, parts in groups.items():
        got, want = reduced(list(parts.values()), dst.reduce_op or ReduceOp.SUM), part(value, box)
        inside = tuple(slice(max(0, -a), n - a) for (a, _), n in zip(box, shape, strict=True))
        exact = ReduceOp.AVG not in (src.reduce_op, dst.reduce_op)
        assert same(got[(*inside, ...)], want[(*inside, ...)], exact), (src, dst)


def test_processes_with_several_slots_make_the_value() -> None:
    for seed in range(40):
        check(crowded_moves(Random(seed)))


@pytest.mark.long
def test_many_processes_with_several_slots_make_the_value() -> None:
    for seed in range(1000, 3000):
        check(crowded_moves(Random(seed)))


def test_what_is_too_large_to_stage_goes_in_chunks() -> None:
    few = mesh_of(4)
    src = Layout(few, [None, None], ["x"])
    dst = Layout(type(few)((3,), ("z",), [CPU(1), CPU(4), CPU(1)]), [None, "z"])
    move = Move(src, dst, (4, 6), np.dtype("int64"))
    plan = plan_reshard(*move, memory_limit=256)
    assert plan.steps[0].chunks > 1
    check(move, 256)
