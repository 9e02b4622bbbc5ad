"""Who sends what: holders share the load, and nobody hears from outside the group."""

import numpy as np
import pytest
from hypothesis import given, settings

from shardwise import CPU, Cut, DeviceMesh, Layout, plan_reshard
from shardwise.plan import moves, steps
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


# -- who reduces what ------------------------------------------------------------------------------------


@pytest.mark.parametrize("many", [1, 6])
def test_reducers_that_are_given_whole_cells_do_it_right_and_share_it(monkeypatch, many):
    # Where all who need a tile would cut it into too many boxes, each is given cells of its own. A limit of memory
    # that nobody uses keeps these plans apart from all others.
    monkeypatch.setattr(moves, "MANY", many)
    monkeypatch.setattr(steps, "MANY", many)
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
