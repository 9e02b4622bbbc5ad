"""With partial values the total is c + t - 2 messages per element, + 1 where contributors and targets are apart."""

import pytest
from hypothesis import given, settings

from shardwise import Cut, Layout, P, ReduceOp, plan_reshard
from tests.plan import oracle
from tests.plan.cases import Transition, all_layouts, all_transitions, mesh_of, transitions

OPS = [op.value for op in ReduceOp]


def check(case: Transition, dtype: str = "int32") -> None:
    plan = plan_reshard(*case, dtype)
    want = oracle.least_total(plan)
    assert plan.received.total == plan.sent.total == want, f"{case.src} -> {case.dst}"
    if case.dst.reduce_op is ReduceOp.AVG:  # it is made by replicating: whoever scales might move less
        assert plan.lower_bound.total <= want
    else:
        assert plan.lower_bound.total == want
    oracle.run(plan)


SMALL = [((2, 2), (12,), 1), ((2, 2), (12, 6), 1), ((2, 2), (5, 7), 1), ((2, 3), (12,), 1), ((2, 3), (12, 6), 1)]
SMALL += [
    ((2, 3), (5, 7), 1),
    ((2, 2, 2), (16,), 5),
    ((2, 2, 2), (7,), 5),
    ((2, 2, 2), (8, 8), 37),
    ((2, 2, 2), (5, 6), 37),
]


@pytest.mark.parametrize(("mesh", "shape", "every"), SMALL)
def test_transitions_of_a_small_mesh_take_the_least_messages(mesh, shape, every):
    for case in list(all_transitions(mesh_of(*mesh), shape, partial=True))[::every]:
        check(case)


@pytest.mark.long
@pytest.mark.parametrize("shape", [(16,), (7,), (8, 8), (5, 6)])
def test_every_transition_of_three_axes_takes_the_least_messages(shape):
    for case in all_transitions(mesh_of(2, 2, 2), shape, partial=True):
        check(case)


@pytest.mark.parametrize(("mesh", "shape"), [((4, 4, 5), (80,)), ((6, 12), (144, 72))])
def test_on_more_devices_than_are_counted_the_estimates_find_the_least_too(mesh, shape):
    found = list(all_transitions(mesh_of(*mesh), shape, partial=True))
    for case in found[:: len(found) // 40]:
        plan = plan_reshard(*case, "int32")
        assert plan.received.total == plan.lower_bound.total, f"{case.src} -> {case.dst}"


@settings(max_examples=3 * settings().max_examples)
@given(transitions(partial=True, halo=False))
def test_generated_transitions_take_the_least_messages(case: Transition):
    check(case)


@given(transitions(partial=True))
def test_halos_and_partial_values_together_give_the_right_values(case: Transition):
    oracle.run(plan_reshard(*case, "int32"))


# Named cases on a 2x2 mesh, with the numbers: bytes of an int8 tensor of 8 x 8, in all.
NAMED = {
    # 2 contributors, 1 target that is one of them: 1 message for each of 64 elements, for each y
    "P -> S0": (P(unreduced=["x"]), P("x"), 128),
    # 4 contributors, 4 targets, the same devices: 4 + 4 - 2
    "[P, P] -> [R, R]": (P(unreduced=["x", "y"]), P(), 6 * 64),
    # 2 contributors (one half each), 2 targets: the half is where it was for half of the elements
    "[P, S0] -> [S0, R]": (P("y", unreduced=["x"]), P("x"), (2 + 2 - 2) * 32 + (2 + 2 - 2) * 32),
    # row half x of 2 contributors over y -> column half x on 2 devices: apart for half of the elements
    "[S0, P] -> [S1, R]": (P("x", unreduced=["y"]), P(None, "x"), 2 * 32 + 3 * 32),
    "P -> R": (P("y", unreduced=["x"]), P("y"), 2 * 64),
    "[P, P] -> [S0, S1]": (P(unreduced=["x", "y"]), P("x", "y"), 3 * 64),
}


@pytest.mark.parametrize("name", NAMED)
def test_named_transitions_move_as_many_bytes_as_they_must(name):
    src, dst, total = NAMED[name]
    mesh = mesh_of(2, 2)
    case = Transition(src.to_layout(2, mesh), dst.to_layout(2, mesh), (8, 8))
    assert plan_reshard(*case, "int8").received.total == total
    check(case, "int8")


@pytest.mark.parametrize("op", OPS)
def test_all_reductions_are_planned_alike(op):
    mesh, dtype = mesh_of(2, 3), "float32" if op == "avg" else "int32"
    for src in all_layouts(mesh, 1, True, op):
        for dst in all_layouts(mesh, 1, True, op):
            if src.partial or dst.partial:
                check(Transition(src, dst, (7,)), dtype)


@pytest.mark.parametrize("op", ["sum", "max", "avg"])
@pytest.mark.parametrize("other", ["sum", "max", "avg"])
def test_one_reduction_may_end_and_another_begin(op, other):
    mesh = mesh_of(2, 2)
    for src in all_layouts(mesh, 1, True, op):
        for dst in all_layouts(mesh, 1, True, other):
            check(Transition(src, dst, (6,)), "float32")


def test_an_average_becomes_pending_by_replicating():
    mesh = mesh_of(2, 2)
    plan = plan_reshard(Layout(mesh, ["y"]), Layout(mesh, [None], ["x"], "avg"), (8,), "float32")
    assert [str(step) for step in plan.steps] == ["all_gather over y"]


def test_only_what_the_target_keeps_is_reduced():
    mesh, one = mesh_of(4), mesh_of(2)
    cut = Layout(one, [Cut("x", offsets=(0, 6, 8))])
    for dst, boxes in (
        (Layout(mesh, ["x"]), {((2 * i, 2 * i + 2),) for i in range(4)}),
        (cut, {((0, 6),), ((6, 8),)}),
    ):
        plan = plan_reshard(Layout(mesh, [None], ["x"]), dst, (8,), "int8")
        moved = {t.box for d in oracle.names(plan) for step in plan.transfers(d) for t in step}
        assert moved == boxes
        assert plan.received.total == 3 * 8
        assert plan.rounds == 1


def test_between_meshes_contributions_go_straight_to_who_needs_them():
    old, new = mesh_of(3), mesh_of(5).fix()
    plan = plan_reshard(Layout(old, [None], ["x"]), Layout(new, [None]), (30,), "int8")
    assert plan.received.total == plan.lower_bound.total == (3 + 5 - 2) * 30
    oracle.run(plan)


def test_no_single_device_must_receive_anything_if_the_target_is_partial():
    mesh = mesh_of(4)
    plan = plan_reshard(Layout(mesh, ["x"]), Layout(mesh, [None], ["x"]), (8,), "int8")
    assert [plan.lower_bound.of(d) for d in range(4)] == [0] * 4
    assert plan.received.total == plan.lower_bound.total == 0
