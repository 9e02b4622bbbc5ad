"""Who sends what: holders share the load, and nobody hears from outside the group."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from shardwise import CPU, Cut, DeviceMesh, Layout, plan_reshard
from shardwise.layout.tiling import Box, box_size
from shardwise.plan import moves, staging
from shardwise.plan.holders import Holders
from shardwise.plan.moves import DirectMove, Move, ReduceMove, Shares, SpreadMove
from tests.plan import oracle
from tests.plan.cases import Transition, all_transitions, mesh_of, transitions
from tests.plan.test_steps import check_chunks


def fair_share(case: Transition) -> float:
    """The least that the busiest device must send, in elements, if transfers could be cut at will.

    Without halos a device holds one tile: all who lack elements of it are served by its holders alone.
    """
    plan = plan_reshard(*case, "int8")
    held, need = oracle.spread_masks(plan, plan.src), oracle.spread_masks(plan, plan.dst)
    lacking = (need & ~held).sum(axis=0)
    tiles = {mask.tobytes(): mask for mask in held if mask.any()}
    holders = {key: sum(mask.tobytes() == key for mask in held) for key in tiles}
    return max((float(lacking[mask].sum()) / holders[key] for key, mask in tiles.items()), default=0.0)


def check_shared(case: Transition) -> None:
    plan = plan_reshard(*case, "int8")
    sizes = [t.size for d in oracle.names(plan) for step in plan.transfers(d) for t in step]
    fair = fair_share(case)
    assert fair <= plan.sent.max + 1e-9
    assert plan.sent.max <= fair + max(sizes, default=0)


@pytest.mark.parametrize(("mesh", "shape"), [((2, 3), (12, 12)), ((2, 2, 2), (16, 8)), ((4, 3), (12, 24))])
def test_no_device_sends_more_than_a_transfer_above_its_share(mesh, shape):
    for case in all_transitions(mesh_of(*mesh), shape):
        check_shared(case)


@settings(max_examples=3 * settings().max_examples)
@given(transitions(halo=False))
def test_where_parts_differ_an_exchange_still_shares_evenly(case: Transition):
    # A slice before a collective fixes who sends, so that unequal slices are unequal loads.
    plan = plan_reshard(*case, "int8")
    if len(plan.steps) == 1:
        check_shared(case)


def test_every_holder_serves_its_own_copy():
    mesh = mesh_of(2, 4)
    plan = plan_reshard(Layout(mesh, ["x"]), Layout(mesh, [None]), (8,), "int8")
    assert plan.traffic().tolist() == (np.kron([[0, 4], [4, 0]], np.eye(4, dtype=int))).tolist()


def test_holders_outside_the_new_mesh_share_the_sending():
    old, new = mesh_of(4), mesh_of(8).fix()
    plan = plan_reshard(Layout(old, [None]), Layout(new, [None]), (100,), "int8")
    assert plan.sent.each.tolist() == [100] * 4 + [0] * 4
    assert plan.received.each.tolist() == [0] * 4 + [100] * 4


@settings(max_examples=3 * settings().max_examples)
@given(transitions(partial=True))
def test_transfers_stay_within_the_groups_of_their_step(case: Transition):
    for step in plan_reshard(*case, "int8").steps:
        home = {device: i for i, group in enumerate(step.groups) for device in group}
        assert len(home) == sum(map(len, step.groups))
        for device in home:
            assert {home[end] for t in step.transfers(device) for end in t[:2]} <= {home[device]}
        if step.is_local:
            assert step.groups == []


@pytest.mark.parametrize("partial", [False, True])
def test_transfers_stay_within_the_groups_on_three_axes(partial):
    for case in list(all_transitions(mesh_of(2, 3, 2), (12, 5), partial))[:: 31 if partial else 7]:
        for step in plan_reshard(*case, "int8").steps:
            home = {device: i for i, group in enumerate(step.groups) for device in group}
            assert all(home[t.source] == home[t.target] for d in home for t in step.transfers(d))


@pytest.mark.parametrize(
    ("src", "dst"),
    [
        ([Cut("x", halo=(0, 1)), "y"], [Cut("x", halo=(0, 1)), "y:(1)2"]),  # rows of the halo come from across x
        ([Cut("x", halo=1), Cut("y")], [Cut("x", halo=1), Cut("y", halo=1)]),  # and so do corners
    ],
)
def test_what_a_halo_reaches_over_is_in_the_group(src, dst):
    mesh = DeviceMesh((2, 4), ("x", "y"))
    plan = plan_reshard(Layout(mesh, src), Layout(mesh, dst), (4, 8), "int8")
    for step in plan.steps:
        home = {device: i for i, group in enumerate(step.groups) for device in group}
        for device in range(8):
            assert {home[end] for t in step.transfers(device) for end in t[:2]} <= {home[device]}


# -- one move, slot by slot ----------------------------------------------------------------------------


def cells(box: Box) -> set[tuple[int, ...]]:
    return set(product(*(range(a, b) for a, b in box)))


def both_ways(move: Move, slots: Sequence[int]) -> list[Any]:
    """All transfers of a move between slots, after checking that senders and receivers agree about them."""
    came: list[Any] = sorted(t for slot in slots for t in move.incoming(slot))
    went: list[Any] = sorted(t for slot in slots for t in move.outgoing(slot))
    assert came == went
    assert len(set(came)) == len(came)
    assert all(t.size and t.source != t.target for t in came)
    return came


ROWS: list[list[Any]] = [
    [None, None],
    ["x", None],
    ["y", "x"],
    [("y", "x"), None],
    [None, Cut("y", offsets=(0, 0, 5, 5))],
    [Cut("x", halo=(1, 1)), None],
    [Cut("y", halo=(0, 1), edge="pad"), "x"],
    [Cut("x", split="chunk"), Cut("y", halo=(1, 0))],
]


@pytest.mark.parametrize("src", ROWS, ids=str)
def test_a_direct_move_brings_exactly_what_is_lacking(src: list[Any]) -> None:
    mesh, shape = mesh_of(2, 3), (7, 5)
    for dst in ROWS:
        a, b = Holders(Layout(mesh, src), shape), Holders(Layout(mesh, dst), shape)
        move = DirectMove(a, b)
        assert not move.reduces
        found = both_ways(move, range(6))
        for slot in range(6):
            need, own = cells(b.box(slot) or ()), cells(a.box(slot) or ())
            came = [e for t in found if t.target == slot for e in cells(t.box)]
            assert len(came) == len(set(came)) == move.count_received(slot)
            assert set(came) == need - own
        for t in found:
            tile = a.tile(t.source)
            assert tile is not None
            assert cells(t.box) <= cells(a.tiling.tile_box(tile))  # a halo is handed on by nobody


def test_along_batch_axes_every_position_moves_by_itself() -> None:
    mesh = mesh_of(2, 3)
    x = mesh.axis("x")
    for src, dst in product([[None], ["y"]], [[None], ["y"]]):
        a, b = Holders(Layout(mesh, src, ["x"]), (7,)), Holders(Layout(mesh, dst, ["x"]), (7,))
        move = DirectMove(a, b, (x,))
        assert x in move.separate_axes
        for t in both_ways(move, range(6)):
            assert t.source // 3 == t.target // 3


@pytest.mark.parametrize(
    ("src", "dst", "symmetric", "apart"),
    [
        (["x"], [None], True, ["y"]),
        ([None], ["x"], False, ["y"]),
        (["y"], ["x"], False, []),
        ([("x", "y")], [None], True, []),
        (["y"], ["y"], True, ["x"]),
    ],
)
def test_taking_from_the_nearest_is_fair_unless_replicas_are_split(src, dst, symmetric, apart) -> None:
    mesh = mesh_of(2, 3)
    a, b = Layout(mesh, src), Layout(mesh, dst)
    move = DirectMove(Holders(a, (6,)), Holders(b, (6,)))
    assert move.is_symmetric is symmetric
    assert [str(axis) for axis in move.separate_axes] == apart
    listed = DirectMove(Holders(a, (6,), tuple(range(6))), Holders(b, (6,), tuple(range(6))))
    assert not listed.is_symmetric
    assert listed.separate_axes == ()


def shares(src: Layout, dst: Layout, shape: tuple[int, ...], **axes: Any) -> Shares:
    return Shares(Holders(src, shape), Holders(dst, shape), **axes)


PENDING = [(src, dst) for src in ([None, None], ["y", None], [None, Cut("y", split="chunk")]) for dst in ROWS[:5]]


@pytest.mark.parametrize(("src", "dst"), PENDING, ids=str)
def test_every_element_is_reduced_once_by_who_needs_it(src: list[Any], dst: list[Any]) -> None:
    mesh, shape = mesh_of(2, 3), (7, 5)
    x = mesh.axis("x")
    some = shares(Layout(mesh, src), Layout(mesh, dst), shape, pending=(x,))
    reducer = {}
    for slot in range(6):
        own, tile = cells(some.dst.box(slot) or ()), some.dst.tile(slot)
        assert tile is not None
        for source, box in some.boxes_to_reduce(slot):
            assert cells(box) <= own & cells(some.src.tiling.tile_box(source))
            for element in cells(box):
                assert (element, tile) not in reducer, "reduced twice"
                reducer[element, tile] = slot
    wanted = {(e, some.dst.tile(slot)) for slot in range(6) for e in cells(some.dst.box(slot) or ())}
    assert set(reducer) == wanted
    for (element, tile), slot in reducer.items():
        # One that also contributes, if there is one.
        able = [d for d in range(6) if some.dst.tile(d) == tile]
        giving = [d for d in able if element in cells(some.src.box(d) or ())]
        assert slot in (giving or able)
    reduce = ReduceMove(some)
    assert reduce.reduces
    assert [list(reduce.boxes_to_reduce(d)) for d in range(6)] == [list(some.boxes_to_reduce(d)) for d in range(6)]
    found = both_ways(reduce, range(6))
    for (element, _), slot in reducer.items():
        came = [t.source for t in found if t.target == slot and element in cells(t.box)]
        holders = [d for d in range(6) if element in cells(some.src.box(d) or ())]
        have = {s // 3 for s in (*came, *([slot] if slot in holders else []))}  # positions along x
        assert have == {0, 1}
        assert len(came) == 2 - (slot in holders)
    spread = SpreadMove(some)
    assert not spread.reduces
    handed = both_ways(spread, range(6))
    for slot in range(6):
        came = [e for t in handed if t.target == slot for e in cells(t.box)]
        made = [e for _, box in some.boxes_to_reduce(slot) for e in cells(box)]
        assert sorted([*came, *made]) == sorted(cells(some.dst.box(slot) or ()))
        assert sorted(e for box in some.boxes_to_keep(slot) for e in cells(box)) == sorted([*came, *made])


def test_one_position_along_fresh_axes_is_given_the_value() -> None:
    mesh = mesh_of(2, 3)
    x, y = mesh.axis("x"), mesh.axis("y")
    for pending, src, dst in (((), ["x"], [None]), ((), ["y"], [None]), ((x,), [None], [None]), ((y,), ["x"], [None])):
        for fresh in ((x,), (y,)):
            some = shares(Layout(mesh, src), Layout(mesh, dst), (6,), pending=pending, fresh=fresh)
            kept = [sorted(e for box in some.boxes_to_keep(d) for e in cells(box)) for d in range(6)]
            for other in range(3 if fresh == (x,) else 2):
                line = [d for d in range(6) if (d % 3 if fresh == (x,) else d // 3) == other]
                assert sorted(e for d in line for e in kept[d]) == sorted(cells(((0, 6),)))
            move = SpreadMove(some) if pending else DirectMove(some.src, some.dst, (), some)
            for t in both_ways(move, range(6)):
                if pending:
                    assert some.dst.position(t.source, fresh) == some.dst.position(t.target, fresh)
                assert cells(t.box) <= set(kept[t.target])


def test_the_position_where_fewest_lack_it_is_given_the_value() -> None:
    mesh = mesh_of(2, 3)
    some = shares(Layout(mesh, ["x"]), Layout(mesh, [None]), (6,), pending=(), fresh=(mesh.axis("x"),))
    move = DirectMove(some.src, some.dst, (), some)
    assert both_ways(move, range(6)) == []
    kept = [sorted(e for box in some.boxes_to_keep(d) for e in cells(box)) for d in range(6)]
    assert kept == [[(0,), (1,), (2,)]] * 3 + [[(3,), (4,), (5,)]] * 3


@pytest.mark.parametrize(
    ("parts", "able", "each"),
    [
        (32, 32, 32),  # 1024 boxes: all share every cell
        (33, 32, 1),  # one more: each is given cells of its own, in turn
        (64, 48, 1),
        (8, 129, 17),  # fewer cells than devices: a few share each
        (8, 128, 128),
    ],
)
def test_where_boxes_would_be_very_many_each_is_given_cells_of_its_own(parts: int, able: int, each: int) -> None:
    old, new = mesh_of(parts, 2), DeviceMesh((able,), ("x",), [CPU(1000 + i) for i in range(able)])
    numbers = tuple(range(2 * parts + able))
    src = Holders(Layout(old, ["x"]), (parts * able,), numbers[: 2 * parts])
    dst = Holders(Layout(new, [None]), (parts * able,), numbers[2 * parts :])
    some = Shares(src, dst, (old.axis("y"),))
    found = [some.reducers((i,), (0,), numbers[-1]) for i in range(parts)]
    assert max(map(len, found)) == each
    assert min(map(len, found)) >= each - 1
    assert set().union(*found) == set(numbers[2 * parts :])
    if each == 1:
        assert [only for (only,) in found] == [numbers[2 * parts + i % able] for i in range(parts)]
    elif each < able:
        assert [slot for some in found for slot in some] == list(numbers[2 * parts :])  # each its own
    sizes = [sum(box_size(box) for _, box in some.boxes_to_reduce(slot)) for slot in numbers[2 * parts :]]
    assert sum(sizes) == parts * able
    assert sum(1 for _ in some.boxes_to_reduce(0)) == 0  # one that is not in the new mesh


def test_cells_are_counted_from_the_first_that_a_target_meets() -> None:
    old, new = mesh_of(66, 2), DeviceMesh((2, 32), ("x", "y"), [CPU(1000 + i) for i in range(64)])
    src = Holders(Layout(old, ["x"]), (66,), tuple(range(132)))
    dst = Holders(Layout(new, ["x"]), (66,), tuple(range(132, 196)))
    some = Shares(src, dst, (old.axis("y"),))
    for half in range(2):
        able = range(132 + 32 * half, 164 + 32 * half)
        found = [some.reducers((33 * half + i,), (half,), able[0]) for i in range(33)]
        assert found == [[able[i % 32]] for i in range(33)]


def test_outsiders_take_no_part() -> None:
    old, new = mesh_of(2), DeviceMesh((2,), ("x",), [CPU(2), CPU(3)])
    a, b = Holders(Layout(old, [None]), (4,), (0, 1)), Holders(Layout(new, ["x"]), (4,), (2, 3))
    some = Shares(a, b, (old.axis("x"),))
    assert list(some.boxes_to_keep(0)) == list(some.boxes_to_reduce(1)) == []
    assert list(ReduceMove(some).outgoing(2)) == list(ReduceMove(some).incoming(0)) == []
    assert list(SpreadMove(some).incoming(0)) == list(SpreadMove(some).outgoing(0)) == []
    assert list(DirectMove(a, b).outgoing(3)) == list(DirectMove(a, b).incoming(0)) == []
    assert DirectMove(a, b).count_received(0) == 0
    assert DirectMove(a, b).count_received(2) == 2
    assert len(both_ways(ReduceMove(some), range(4))) == 4


def test_holders_are_given_targets_until_they_have_their_share() -> None:
    # Two holders outside of the new mesh; five targets of 4, 1, 1, 1, 1 elements: the first two are 4 and 4.
    old, new = mesh_of(2), DeviceMesh((5,), ("x",), [CPU(10 + i) for i in range(5)])
    a = Holders(Layout(old, [None]), (8,), (0, 1))
    b = Holders(Layout(new, [Cut("x", offsets=(0, 4, 5, 6, 7, 8))]), (8,), (2, 3, 4, 5, 6))
    found = both_ways(DirectMove(a, b), range(7))
    sent = [sum(t.size for t in found if t.source == holder) for holder in (0, 1)]
    assert sent == [4, 4]


def test_shares_say_what_they_are_shares_of() -> None:
    mesh = mesh_of(2, 3)
    some = shares(Layout(mesh, [None], ["x"]), Layout(mesh, ["y"], ["x"]), (6,), pending=())
    assert str(some) == f"shares of {Layout(mesh, ['y'])}"


# -- who reduces what ------------------------------------------------------------------------------------


@pytest.mark.parametrize("many", [1, 6])
def test_reducers_that_are_given_whole_cells_do_it_right_and_share_it(monkeypatch, many):
    # Where all who need a tile would cut it into too many boxes, each is given cells of its own. A limit of memory
    # that nobody uses keeps these plans apart from all others.
    monkeypatch.setattr(moves, "MANY", many)
    monkeypatch.setattr(staging, "MANY", many)
    for sizes, shape in (((2, 3), (12, 6)), ((2, 2, 2), (8, 8)), ((6, 2), (7, 5))):
        for case in list(all_transitions(mesh_of(*sizes), shape, partial=True))[::211]:
            plan = plan_reshard(*case, "int8", memory_limit=2**26 - many)
            oracle.run(plan)
            assert plan.received.total == plan.sent.total == oracle.least_total(plan)
            check_chunks(plan)


def test_cells_go_to_their_reducers_in_turn():
    # 64 devices need all of it, none of which contributes: 64 contributors of a sum over y, in 16 tiles.
    old = DeviceMesh((16, 4), ("x", "y"))
    new = DeviceMesh((8,), ("u",), [CPU(100 + i) for i in range(8)])
    plan = plan_reshard(Layout(old, ["x"], ["y"]), Layout(new, [None]), (4096,), "int8")
    reduce = plan.steps[0]
    took = [reduce.received.of(device) for device in new.devices]
    assert took == [4 * 4096 // 8] * 8  # every one of eight reduces an eighth, of four contributions each


@pytest.mark.parametrize("tiles", [64, 16, 4])
def test_devices_that_only_need_a_sum_share_its_cells_evenly(tiles):
    # Some 2000 boxes are too many: the cells are dealt out, whole (at most as many devices as cells) or cut.
    old = DeviceMesh((tiles, 2), ("x", "y"))
    count = 2048 // tiles
    new = DeviceMesh((count,), ("u",), [CPU(10000 + i) for i in range(count)])
    plan = plan_reshard(Layout(old, ["x"], ["y"]), Layout(new, [None]), (8192,), "int8")
    took = [plan.steps[0].received.of(device) for device in new.devices]
    assert took == [2 * 8192 // count] * count
