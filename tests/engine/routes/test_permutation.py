"""Handovers: what each process does when whole arrays change hands, against the list of who gives to whom."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from shardwise import CPU, Accelerator, DeviceMesh, Layout
from shardwise.engine.execute import Program, permutation
from shardwise.engine.routes.permutation import permutation_route
from shardwise.engine.routes.route import Part, Route
from shardwise.engine.storage import storage_of
from tests.plan.cases import mesh_of

INT8 = np.dtype("int8")
MESH = mesh_of(2, 2)


def handed(layout: Layout, shape: tuple[int, ...], sources: tuple[int | None, ...]) -> Program:
    storage = storage_of(layout, shape)
    picks = tuple(None if s is None else storage.index(s) for s in sources)
    firsts = [picks[device] for device in storage.firsts]
    return permutation(storage, tuple(firsts), (1,) * storage.count, INT8, sources)


def simulated(layout: Layout, shape: tuple[int, ...], sources: tuple[int | None, ...]) -> dict[int, Any]:
    """What each device holds after all processes have done their routes, as the number of the device it came from."""
    program, mesh = handed(layout, shape, sources), layout.mesh
    ranks = [device.id for device in mesh.devices]
    routes: dict[int, Route] = {rank: permutation_route(program, rank) for rank in sorted(set(ranks))}
    mail: dict[tuple[int, int], list[tuple[int, tuple[int, ...]]]] = {}
    for rank, route in routes.items():
        for round_ in route.legs[0].rounds:
            assert round_.straight
            assert [m.rank for m in round_.sends] == sorted(m.rank for m in round_.sends)
            for message in round_.sends:
                assert message.size == sum(int(np.prod(part.shape)) for part in message.parts)
                mail[rank, message.rank] = [(part.slot, part.shape) for part in message.parts]
                assert all(ranks[part.slot] == rank for part in message.parts)
    out: dict[int, Any] = {}
    for rank, route in routes.items():
        (leg,) = route.legs
        for out_ in leg.outs:
            assert out_.device == mesh.device(out_.slot)
            out[out_.slot] = None if out_.blank else "?"
        for slot, part in leg.views:
            assert part.where == ()
            out[slot] = part.slot
        for round_ in leg.rounds:
            for message in round_.receives:
                letters = mail.pop((message.rank, rank))
                assert [shape for _, shape in letters] == [part.shape for part in message.parts]
                for (source, _), part in zip(letters, message.parts, strict=True):
                    out[part.slot] = source
    assert not mail, "something is sent that nobody takes"
    return out


@pytest.mark.parametrize("ids", [(0, 1, 2, 3), (0, 0, 1, 1), (1, 0, 1, 0), (2, 2, 2, 2)])
def test_every_device_ends_with_the_array_of_its_source(ids: tuple[int, ...]) -> None:
    mesh = DeviceMesh((2, 2), ("x", "y"), [CPU(i) for i in ids])
    for dims in ([("x", "y")], ["x"], [None]):
        layout = Layout(mesh, dims)
        storage = storage_of(layout, (8,))
        for sources in list(product((None, 0, 1, 2, 3), repeat=4))[::7]:
            alike: dict[int, Any] = {}
            for t, s in enumerate(sources):  # devices that hold one array get one array
                alike.setdefault(storage.index(t), None if s is None else storage.index(s))
            if any(alike[storage.index(t)] != (None if s is None else storage.index(s)) for t, s in enumerate(sources)):
                continue
            got = simulated(layout, (8,), sources)
            for target, source in enumerate(sources):
                want = None if source is None else storage.index(source)
                assert (None if got[target] is None else storage.index(got[target])) == want, (ids, dims, sources)


def test_what_is_there_is_kept_and_what_is_near_is_not_sent() -> None:
    mesh = DeviceMesh((4,), ("x",), [CPU(i) for i in (0, 0, 1, 1)])
    layout = Layout(mesh, ["x"])
    route = permutation_route(handed(layout, (8,), (0, 0, 1, 2)), 0)
    (leg,) = route.legs
    assert leg.views == ((0, Part(0, (), (2,))), (1, Part(0, (), (2,))))
    assert leg.near == (("permute", 2),)  # the second gets what the first of its process has
    (round_,) = leg.rounds
    assert [(m.rank, [p.slot for p in m.parts], m.size) for m in round_.sends] == [(1, [1], 2)]
    assert round_.receives == ()
    assert not leg.copies
    assert (leg.op, leg.filling) == (None, None)
    other = permutation_route(handed(layout, (8,), (0, 0, 1, 2)), 1).legs[0]
    assert [(o.slot, o.shape, o.blank) for o in other.outs] == [(2, (2,), False)]
    assert other.views == ((3, Part(2, (), (2,))),)


def test_the_call_is_the_same_in_every_process() -> None:
    layout = Layout(MESH, [("x", "y"), None])
    routes = [permutation_route(handed(layout, (8, 3), (1, 2, 3, 0)), rank) for rank in range(4)]
    (call,) = {round_.call for route in routes for round_ in route.legs[0].rounds}
    assert call[:8] == ("permute", (0, 1, 2, 3), (8, 3), "int8", "[x y|-]", "[x y|-]", None, None)
    assert call.meshes == "DeviceMesh(x=2, y=2)"
    (other,) = permutation_route(handed(layout, (8, 3), (1, 0, 3, 2)), 0).legs[0].rounds
    assert other.call._replace(plan=call.plan) == call
    assert other.call.plan != call.plan
    assert len(call.plan) == 16


@pytest.mark.parametrize(
    ("shape", "sources"), [((8,), (0, 1, 2, 3)), ((0,), (1, 2, 3, 0)), ((8,), (None,) * 4), ((0, 4), (1, 0, 2, 3))]
)
def test_without_anything_to_send_there_is_no_call(shape: tuple[int, ...], sources: Any) -> None:
    layout = Layout(MESH, [("x", "y"), *[None] * (len(shape) - 1)])
    for rank in range(4):
        assert permutation_route(handed(layout, shape, sources), rank).legs[0].rounds == ()


def test_all_take_part_even_those_that_have_nothing_to_send() -> None:
    layout = Layout(MESH, [("x", "y")])
    program = handed(layout, (8,), (1, 1, 2, 3))
    for rank in range(4):
        (round_,) = permutation_route(program, rank).legs[0].rounds
        assert [m.rank for m in round_.sends] == ([0] if rank == 1 else [])
        assert [m.rank for m in round_.receives] == ([1] if rank == 0 else [])
    outside = permutation_route(program, 7)
    assert outside.starts == outside.ends == ()
    assert outside.legs[0].rounds == ()


def test_arrays_start_and_end_where_they_are_stored() -> None:
    mesh = DeviceMesh((2, 2), ("x", "y"), [CPU(i) for i in (0, 0, 1, 1)])
    route = permutation_route(handed(Layout(mesh, ["y"]), (8,), (1, 0, 3, 2)), 1)
    assert route.starts == ((2, 0), (3, 1))
    assert sorted(route.ends) == [(0, 2), (1, 3)]
    replicated = permutation_route(handed(Layout(mesh, [None]), (8,), (0, 0, 0, 0)), 1)
    assert replicated.ends == ((0, 2),)  # the first of its devices that hold it


def test_accelerators_are_told_of_only_where_all_are_ones() -> None:
    for devices, want in (
        ([Accelerator(0), Accelerator(1)], True),
        ([Accelerator(0), CPU(1)], False),
        ([CPU(0), CPU(1)], False),
    ):
        layout = Layout(DeviceMesh((2,), ("x",), devices), ["x"])
        (round_,) = permutation_route(handed(layout, (4,), (1, 0)), 0).legs[0].rounds
        assert round_.on_accelerators is want


def test_messages_are_in_the_order_of_ranks_whatever_the_order_of_devices() -> None:
    turned = Layout(DeviceMesh((4,), ("x",), [CPU(i) for i in (3, 2, 1, 0)]), ["x"])
    (round_,) = permutation_route(handed(turned, (8,), (3, 3, 3, 3)), 0).legs[0].rounds
    assert [(m.rank, m.size) for m in round_.sends] == [(1, 2), (2, 2), (3, 2)]
    several = Layout(DeviceMesh((4,), ("x",), [CPU(i) for i in (0, 0, 2, 1)]), ["x"])
    (round_,) = permutation_route(handed(several, (8,), (2, 3, 2, 3)), 0).legs[0].rounds
    assert [(m.rank, [part.slot for part in m.parts]) for m in round_.receives] == [(1, [1]), (2, [0])]
