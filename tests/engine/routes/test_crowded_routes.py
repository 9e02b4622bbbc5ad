"""Routes between meshes where a device stands in several slots, played by all processes in one."""

from random import Random
from typing import Any

import numpy as np
import pytest

from shardwise import CPU, Accelerator, DeviceMesh, Layout, plan_reshard
from shardwise.engine.arrays import identity, reduce_into
from shardwise.engine.execute import program_of
from shardwise.engine.routes.route import Leg, Out, Part, Route
from shardwise.engine.routes.route_builder import route_of
from shardwise.engine.storage import storage_of
from shardwise.layout.placement import ReduceOp
from tests.layout.oracle import held_box, position
from tests.plan.cases import Move, crowded_moves, mesh_of
from tests.prim.cases import part, reduced, same, values

RANKS = 6
Arrays = dict[int, np.ndarray]


def cut(arrays: Arrays, found: Part) -> np.ndarray:
    return arrays[found.slot][found.where] if found.where else arrays[found.slot]


def moved_to(layout: Layout, *kinds: type[CPU] | type[Accelerator]) -> Layout:
    """The layout on devices of other kinds, in turn, with the same numbers."""
    mesh = layout.mesh
    devices = [kinds[slot % len(kinds)](device.id) for slot, device in enumerate(mesh.devices)]
    there = DeviceMesh(mesh.mesh_shape, mesh.axis_names, devices)
    return Layout(there, layout.dims, layout.partial, layout.reduce_op or ReduceOp.SUM)


def line(name: str, *devices: CPU | Accelerator) -> DeviceMesh:
    return DeviceMesh((len(devices),), (name,), devices)


def routes(move: Move, limit: int | None = None) -> list[Route]:
    program, out = program_of(plan_reshard(*move, memory_limit=limit)), []
    for rank in range(RANKS):
        out.append(route_of(program, rank))
    return out


def play(legs: list[Leg], states: list[Arrays], dtype: np.dtype) -> list[Arrays]:
    """What all processes hold after one leg."""
    made: list[Arrays] = []
    for leg, state in zip(legs, states, strict=True):
        blank = 0 if leg.filling is None or leg.filling is ReduceOp.AVG else identity(leg.filling, dtype)
        out = {o.slot: np.full(o.shape, blank if o.blank else 77, dtype) for o in leg.outs}
        out |= {slot: cut(state, source) for slot, source in leg.views}
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
    for into, source in round_.local_copies:
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


def test_devices_of_one_process_give_each_other_what_is_counted_and_not_sent() -> None:
    # The same numbers are the same processes, but other devices.
    for seed in range(25):
        move = crowded_moves(Random(seed))
        check(Move(move.src, moved_to(move.dst, Accelerator), *move[2:]))
        check(Move(moved_to(move.src, Accelerator), moved_to(move.dst, CPU, CPU, Accelerator), *move[2:]))


def test_what_a_process_has_on_another_device_is_near() -> None:
    src = Layout(line("x", CPU(0), CPU(1)), ["x"])
    dst = Layout(line("z", Accelerator(0), Accelerator(1), Accelerator(1), Accelerator(0)), ["z"])
    found = routes(Move(src, dst, (8,), np.dtype("int8")))
    assert [leg.near for route in found for leg in route.legs] == [(("exchange", 2),)] * 2 + [()] * 4
    assert [(route.starts, route.ends) for route in found[:3]] == [
        (((0, 0),), ((0, 0), (3, 3))),
        (((1, 1),), ((1, 1), (2, 2))),
        ((), ()),
    ]
    (leg,) = found[0].legs
    assert leg.outs == (Out(0, Accelerator(0), (2,), False), Out(3, Accelerator(0), (2,), False))
    assert leg.copies == ((Part(0, (), (2,)), Part(0, (slice(0, 2), ...), (2,))),)
    assert [leg.rounds for route in found[2:] for leg in route.legs] == [()] * 4  # who has no device has no part in it
    at_home = routes(Move(src, moved_to(dst, CPU), (8,), np.dtype("int8")))
    assert [leg.near for route in at_home for leg in route.legs] == [()] * 6


def test_a_round_is_on_accelerators_only_where_all_devices_of_both_meshes_are() -> None:
    here, there = (CPU(0), CPU(1)), (Accelerator(0), Accelerator(1))
    for old, new, want in [
        (there, there, True),
        (here, there, False),
        (there, here, False),
        ((*there, CPU(2)), there, False),
        (there, (CPU(2), *there), False),
    ]:
        src, dst = Layout(line("x", *old, *old), ["x"]), Layout(line("z", *new[::-1], *new), ["z"])
        talking = [
            round_.on_accelerators
            for route in routes(Move(src, dst, (24,), np.dtype("int8")))
            for leg in route.legs
            for round_ in leg.rounds
            if round_.talks
        ]
        assert talking
        assert set(talking) == {want}
        assert all(type(on) is bool for on in talking)


def test_a_call_tells_all_that_processes_must_agree_about() -> None:
    src = Layout(line("x", CPU(0), CPU(4), CPU(4)), [None], ["x"], "max")
    dst = Layout(line("z", CPU(2), CPU(4), CPU(2)), [None])
    move = Move(src, dst, (6,), np.dtype("int16"))
    calls = [[round_.call for leg in route.legs for round_ in leg.rounds] for route in routes(move)]
    assert calls[0] == calls[2] == calls[4]
    assert calls[1] == calls[3] == calls[5] == []
    text = f"{src.mesh!r} -> {dst.mesh!r}"
    digest = plan_reshard(*move).digest
    assert calls[0] == [
        ("reduce_scatter", (0, 2, 4), (6,), "int16", "[-] max(x)", "shares of [-]", "max", None, digest, text),
        ("all_gather", (0, 2, 4), (6,), "int16", "shares of [-]", "[-]", "max", None, digest, text),
    ]
    back = routes(Move(Layout(dst.mesh, ["z"]), Layout(src.mesh, [None], ["x"], "min"), (6,), np.dtype("int16")))
    assert {round_.call.reduction for route in back for leg in route.legs for round_ in leg.rounds} == {"min"}


@pytest.mark.parametrize("root", [0, 3])
def test_a_call_names_the_only_device_that_gives_or_takes(root: int) -> None:
    alone, many = Layout.replicated(DeviceMesh.single(CPU(root)), 1), Layout(line("x", CPU(1), CPU(2), CPU(1)), ["x"])
    for src, dst in ((alone, many), (many, alone)):
        found = routes(Move(src, dst, (6,), np.dtype("int8")))
        assert {round_.call.root for route in found for leg in route.legs for round_ in leg.rounds} == {root}


def test_arrays_that_become_terms_begin_as_identities_and_others_do_not() -> None:
    crowd, split = line("z", CPU(2), CPU(1), CPU(2)), Layout(line("x", CPU(0), CPU(1), CPU(1)), ["x"])
    for partial, blank, filling in ((["z"], True, ReduceOp.MAX), ([], False, None)):
        found = routes(Move(split, Layout(crowd, [None], partial, "max"), (6,), np.dtype("int8")))
        legs = [leg for route in found for leg in route.legs]
        assert {out.blank for leg in legs for out in leg.outs} == {blank}
        assert {(leg.op, leg.filling) for leg in legs} == {(None, filling)}
    summed = routes(Move(Layout(split.mesh, [None], ["x"], "max"), Layout(crowd, [None]), (6,), np.dtype("int8")))
    assert {(leg.op, leg.filling) for route in summed for leg in route.legs} == {(ReduceOp.MAX, None)}
