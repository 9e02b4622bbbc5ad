"""Routes: what all processes do together is the plan, message by message."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise import CPU, Accelerator, Cut, DeviceMesh, Layout, Link, ReduceOp, plan_reshard
from shardwise.engine.execute import Program, permutation, program_of
from shardwise.engine.routes.route import Message, Part, Route
from shardwise.engine.routes.route_builder import route_of
from shardwise.engine.storage import storage_of
from tests.engines.cases import process_moves
from tests.plan.cases import mesh_of
from tests.prim.cases import Move

SIZE = 6


def routes(move: Move) -> list[Route]:
    plan = plan_reshard(*move)
    out = []
    for rank in range(SIZE):
        out.append(route_of(program_of(plan), rank))
    return out


def _described(message: Message) -> tuple[int, list[tuple[int, ...]]]:
    return message.size, [part.shape for part in message.parts]


def reshard(src: Layout, dst: Layout, shape: tuple[int, ...]) -> Program:
    return program_of(plan_reshard(src, dst, shape, "int8"))


@given(process_moves(SIZE))
def test_every_message_is_sent_as_it_is_received(move: Move) -> None:
    found = routes(move)
    for number in range(max(len(route.legs) for route in found)):
        legs = [route.legs[number] for route in found]
        # Rounds of a group are numbered alike in all its processes; others have none.
        groups = {round_.call.ranks for leg in legs for round_ in leg.rounds if round_.talks}
        for group in groups:
            rounds = [[r for r in legs[rank].rounds if r.call.ranks == group and r.talks] for rank in group]
            assert len({len(some) for some in rounds}) == 1
            for some in zip(*rounds, strict=True):
                assert len({(r.call, r.straight, r.gathers, r.on_accelerators) for r in some}) == 1
                pairs = list(zip(group, some, strict=True))
                sent = {(rank, m.rank): _described(m) for rank, r in pairs for m in r.sends}
                came = {(m.rank, rank): _described(m) for rank, r in pairs for m in r.receives}
                assert sent == came
                assert all(a != b for a, b in sent)


@given(process_moves(SIZE))
def test_processes_receive_what_the_plan_says(move: Move) -> None:
    plan, total = plan_reshard(*move), 0
    for route in routes(move):
        for leg in route.legs:
            total += sum(count for _, count in leg.near) + sum(round_.received for round_ in leg.rounds)
    assert total * move.dtype.itemsize == plan.received.total


def test_a_route_is_worked_out_once() -> None:
    program = reshard(Layout(mesh_of(4), ["x", None]), Layout(mesh_of(4), [None, "x"]), (8, 8))
    assert route_of(program, 1) is route_of(program, 1)
    assert route_of(program, 2).starts == ((2, 2),)


def test_a_reshard_that_keeps_a_part_is_a_view() -> None:
    (leg,) = route_of(reshard(Layout(mesh_of(4), [None]), Layout(mesh_of(4), ["x"]), (8,)), 3).legs
    assert leg.views == ((3, Part(3, (slice(6, 8), ...), (2,))),)
    assert not leg.outs
    assert not leg.copies
    assert not leg.rounds


def test_who_sends_the_same_to_all_packs_it_once() -> None:
    (leg,) = route_of(reshard(Layout(mesh_of(4), [None, "x"]), Layout(mesh_of(4), [None, None]), (8, 8)), 0).legs
    (round_,) = leg.rounds
    assert round_.straight
    assert round_.gathers
    assert len({id(message.parts) for message in round_.sends}) == 1
    assert [out.blank for out in leg.outs] == [False]  # all of it comes
    assert round_.call.reduction is None
    assert not round_.on_accelerators


def test_a_group_talks_among_itself_and_names_its_reduction() -> None:
    mesh = mesh_of(2, 2)
    program = reshard(Layout(mesh, [None], ["y"], "max"), Layout(mesh, ["y"]), (8,))
    for rank, group in enumerate([(0, 1), (0, 1), (2, 3), (2, 3)]):
        (leg,) = route_of(program, rank).legs
        (round_,) = leg.rounds
        assert round_.call.ranks == group
        assert round_.call.reduction == "max"
        assert leg.op is ReduceOp.MAX


def test_a_round_is_on_accelerators_only_where_all_are() -> None:
    for devices, want in (([Accelerator(0), Accelerator(1)], True), ([Accelerator(0), CPU(1)], False)):
        mesh = DeviceMesh((2,), ("x",), devices)
        (leg,) = route_of(reshard(Layout(mesh, ["x"]), Layout(mesh, [None]), (8,)), 0).legs
        assert leg.rounds[0].on_accelerators is want


@pytest.mark.parametrize("root", [0, 2])
def test_a_call_names_the_only_device_that_gives_or_takes(root: int) -> None:
    alone, mesh = Layout.replicated(DeviceMesh.single(CPU(root)), 1), mesh_of(4)
    for src, dst in ((alone, Layout(mesh, [None])), (Layout(mesh, ["x"]), alone)):
        (leg,) = route_of(reshard(src, dst, (8,)), 1).legs
        call = leg.rounds[0].call
        assert call.root == root
        assert call.ranks == (0, 1, 2, 3)
        assert (call.step, call.shape, call.dtype, call.reduction) == ("exchange", (8,), "int8", None)


@given(st.data())
def test_permutations_keep_what_is_there(data: st.DataObject) -> None:
    mesh = DeviceMesh((2, 3), ("a", "b"))
    storage = storage_of(Layout(mesh, [("a", "b")]), (12,))
    order = data.draw(st.permutations(range(6)))
    sources = tuple(s if data.draw(st.booleans()) else None for s in order)
    picks = tuple(sources)
    program = permutation(storage, picks, tuple(int(p is not None) for p in picks), np.dtype("int8"), sources)
    sent, came = set(), set()
    for rank in range(6):
        (leg,) = route_of(program, rank).legs
        assert bool(leg.outs) == (sources[rank] != rank)
        assert all(out.blank == (sources[out.slot] is None) for out in leg.outs)
        for round_ in leg.rounds:
            sent |= {(rank, message.rank) for message in round_.sends}
            came |= {(message.rank, rank) for message in round_.receives}
    assert sent == came == {(s, t) for t, s in enumerate(sources) if s is not None and s != t}


@pytest.mark.parametrize("devices", [8, 3])
def test_processes_count_sums_that_are_carried_as_float32(devices: int) -> None:
    # Also where processes have several devices, which give each other their contributions.
    mesh = DeviceMesh((2, 4), ("x", "y"), [CPU(i % devices) for i in range(8)])
    links = {"x": Link(0, 1e6), "y": Link(0, 1e12)}
    plan = plan_reshard(Layout(mesh, [None], ["x", "y"]), Layout(mesh, [None]), (64,), "bfloat16", links=links)
    program, total = program_of(plan), 0
    for rank in range(devices):
        legs = route_of(program, rank).legs
        assert [leg.dtype for leg in legs] == [np.dtype("float32"), None, None]
        for before, leg in zip((2, 4, 2), legs, strict=True):
            total += 2 * sum(count for _, count in leg.near)
            total += sum(round_.received * (2 if round_.spreads else before) for round_ in leg.rounds)
    assert total == plan.received.total


LINE, PLANE = mesh_of(4), mesh_of(2, 2)
PAIRS = DeviceMesh((2, 2), ("x", "y"), [CPU(i) for i in (0, 0, 1, 1)])  # two devices in each process
SPLIT, WHOLE, TERMS = Layout(LINE, ["x"]), Layout(LINE, [None]), Layout(LINE, [None], ["x"])


@pytest.mark.parametrize(
    ("src", "dst", "shape", "rounds"),
    [
        (SPLIT, WHOLE, (8,), ["all_gather straight gathers talks"]),
        (SPLIT, WHOLE, (7,), ["all_gather straight talks"]),  # not all send as much
        (SPLIT, WHOLE, (3,), ["all_gather straight talks"]),  # one sends nothing
        (SPLIT, WHOLE, (0,), []),
        (Layout(LINE, ["x", None]), Layout(LINE, [None, "x"]), (8, 8), ["all_to_all talks"]),
        (TERMS, SPLIT, (8,), ["reduce_scatter straight talks"]),
        (TERMS, WHOLE, (8,), ["all_reduce straight talks", "all_reduce straight gathers talks spreads"]),
        (TERMS, WHOLE, (7,), ["all_reduce straight talks", "all_reduce straight talks spreads"]),
        (SPLIT, Layout(LINE, [Cut("x", halo=(1, 1), edge="clip")]), (8,), ["halo_exchange straight talks"]),
        (Layout(PLANE, [("x", "y")]), Layout(PLANE, [("y", "x")]), (8,), ["permute straight talks"]),
        (SPLIT, Layout(DeviceMesh((2,), ("z",), [CPU(2), CPU(1)]), ["z"]), (8,), ["exchange talks"]),
        (Layout(PAIRS, [("x", "y")]), Layout(PAIRS, [None]), (8,), ["all_gather straight talks"]),  # two of a process
        (Layout(PAIRS, ["y"]), Layout(PAIRS, [None]), (8,), []),  # all of it is here
        (Layout(PAIRS, [None], ["y"]), Layout(PAIRS, [None]), (8,), ["all_reduce straight"]),
    ],
    ids=str,
)
def test_a_round_says_how_its_messages_go(src: Layout, dst: Layout, shape: tuple[int, ...], rounds: list[str]) -> None:
    program = reshard(src, dst, shape)
    for rank in sorted({device.id for device in src.mesh.devices}):
        (leg,) = route_of(program, rank).legs
        said = []
        for round_ in leg.rounds:
            names = [name for name in ("straight", "gathers", "talks", "spreads") if getattr(round_, name)]
            said.append(" ".join([round_.call.step, *names]))
        assert said == rounds


def test_a_gather_in_chunks_is_not_one_call() -> None:
    plan = plan_reshard(TERMS, WHOLE, (64,), "int8", memory_limit=24)
    (step,) = plan.steps
    assert step.chunks > 1
    (leg,) = route_of(program_of(plan), 0).legs
    assert len(leg.rounds) == 2 * step.chunks
    assert not any(round_.gathers for round_ in leg.rounds)
    assert sum(round_.received for round_ in leg.rounds) == step.received.of(0)


def test_what_devices_of_a_process_give_each_other_is_near_and_not_sent() -> None:
    program = reshard(Layout(PAIRS, [("x", "y")]), Layout(PAIRS, [None]), (8,))
    (leg,) = route_of(program, 1).legs
    assert leg.near == (("all_gather", 2 + 2),)  # each of the two takes the other's
    (round_,) = leg.rounds
    assert [(m.rank, m.size, [p.slot for p in m.parts]) for m in round_.sends] == [(0, 8, [2, 2, 3, 3])]
    assert [(m.rank, m.size, [p.slot for p in m.parts]) for m in round_.receives] == [(0, 8, [2, 3, 2, 3])]
    assert [(into.slot, source.slot) for into, source in leg.copies] == [(2, 2), (3, 3), (2, 3), (3, 2)]
    assert [(out.slot, out.blank) for out in leg.outs] == [(2, False), (3, False)]


def test_arrays_that_nothing_fills_begin_as_identities() -> None:
    for dst, blank, filling in [
        (Layout(LINE, [Cut("x", halo=(1, 1), edge="pad")]), [True, False, False, True], None),
        (Layout(LINE, [Cut("x", halo=(1, 1), edge="clip")]), [False] * 4, None),
        (Layout(LINE, [None], ["x"], "max"), [True] * 4, ReduceOp.MAX),
    ]:
        legs = [route_of(reshard(SPLIT, dst, (8,)), rank).legs[-1] for rank in range(4)]
        assert [out.blank for leg in legs for out in leg.outs] == blank
        assert {leg.filling for leg in legs} == {filling}
