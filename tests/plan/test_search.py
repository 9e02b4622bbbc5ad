"""The cheapest candidate depends on the links; what it moves does not."""

import numpy as np
import pytest
from hypothesis import given

from shardwise import Layout, Link, P, plan_reshard
from shardwise.layout.placement import reductions_of
from tests.plan import oracle
from tests.plan.cases import mesh_of, transitions

MESH = mesh_of(2, 8)
SLOW, FAST = Link(1e-5, 1e9), Link(1e-6, 4e11)
EVEN = {"x": FAST, "y": FAST}
MACHINES = {"x": SLOW, "y": FAST}  # 2 machines of 8
SIZE = 2**20


def kinds(src: P, dst: P, links=None, mesh=MESH, shape=(SIZE,)) -> list[str]:
    a, b = src.to_layout(len(shape), mesh), dst.to_layout(len(shape), mesh)
    plan = plan_reshard(a, b, shape, "float32", links=links)
    assert plan.received.total == plan.lower_bound.total
    return [str(step) for step in plan.steps]


def test_an_all_reduce_is_done_level_by_level_where_one_link_is_slow():
    src, dst = P(unreduced=["x", "y"]), P()
    assert kinds(src, dst) == ["all_reduce over x, y"]
    assert kinds(src, dst, EVEN) == ["all_reduce over x, y"]
    assert kinds(src, dst, MACHINES) == ["reduce_scatter over y", "all_reduce over x", "all_gather over y"]


def test_a_gather_is_done_level_by_level_where_one_link_is_slow():
    src, dst = P(("y", "x")), P()
    assert kinds(src, dst) == ["all_gather over y, x"]
    assert kinds(src, dst, MACHINES) == ["all_gather over x", "all_gather over y"]


def test_a_small_tensor_takes_the_fewest_rounds_over_any_links():
    assert kinds(P(unreduced=["x", "y"]), P(), MACHINES, shape=(16,)) == ["all_reduce over x, y"]
    assert kinds(P(("y", "x")), P(), MACHINES, shape=(16,)) == ["all_gather over y, x"]


def test_an_axis_that_spans_machines_has_links_for_its_sub_axes():
    mesh = mesh_of(16)
    links = {"x:(1)2": SLOW, "x:(2)8": FAST}
    assert kinds(P(unreduced=["x"]), P(), links, mesh) == [
        "reduce_scatter over x:(2)8",
        "all_reduce over x:(1)2",
        "all_gather over x:(2)8",
    ]


def test_a_shape_that_does_not_divide_keeps_the_single_collective():
    assert kinds(P(unreduced=["x", "y"]), P(), MACHINES, shape=(SIZE + 1,)) == ["all_reduce over x, y"]


@pytest.mark.parametrize("links", [None, EVEN, MACHINES], ids=["default", "even", "machines"])
def test_every_choice_gives_the_right_values_and_the_same_total(links):
    small = {n: Link(0, link.bandwidth) for n, link in links.items()} if links else None  # so that bytes decide
    for src, dst in ((P(unreduced=["x", "y"]), P()), (P(("y", "x")), P()), (P("y", unreduced=["x"]), P())):
        a, b = src.to_layout(1, MESH), dst.to_layout(1, MESH)
        plan = plan_reshard(a, b, (32,), "int32", links=small)
        assert plan.received.total == plan_reshard(a, b, (32,), "int32").received.total
        oracle.run(plan)


def test_the_time_of_a_plan_is_that_of_its_steps():
    plan = plan_reshard(Layout(MESH, [None], ["x", "y"]), Layout(MESH, [None]), (SIZE,), "int8", links=MACHINES)
    assert plan.time == pytest.approx(sum(step.time for step in plan.steps))
    part = SIZE / 8 * 7  # what a device receives over the fast links, each way
    slow = SIZE / 8  # what it receives over the slow link, in two rounds of half each
    assert plan.time == pytest.approx(2 * (1e-6 + part / 4e11) + 2 * 1e-5 + slow / 1e9, rel=1e-6)


CARRIED = [("bfloat16", "sum"), ("float16", "avg"), ("float8_e4m3fn", "prod")]


@pytest.mark.parametrize(("dtype", "op"), CARRIED)
def test_what_is_added_up_in_two_hops_is_float32_in_between(dtype, op):
    src, dst = Layout(MESH, [None], ["x", "y"], op), Layout(MESH, [None])
    plan = plan_reshard(src, dst, (SIZE,), dtype, links=MACHINES)
    item = plan.dtype.itemsize
    assert [str(step) for step in plan.steps] == ["reduce_scatter over y", "all_reduce over x", "all_gather over y"]
    assert [step.widths for step in plan.steps] == [(item, 4), (4, item), (item, item)]
    part = SIZE // 8  # of each of 8 devices, of which one in the other machine has the same
    each = [7 * part * item, part // 2 * 4 + part // 2 * item, 7 * part * item]
    assert [step.received.of(3) for step in plan.steps] == each
    assert [step.sent.of(3) for step in plan.steps] == each
    assert [sum(step.estimates) for step in plan.steps] == each
    assert plan.received.total == plan.traffic().sum() == 16 * sum(each)
    assert plan.steps[1].staging_bytes == part // 2 * 4 * 2


def test_the_largest_of_small_floats_are_not_carried_as_float32():
    src, dst = Layout(MESH, [None], ["x", "y"], "max"), Layout(MESH, [None])
    assert {step.widths for step in plan_reshard(src, dst, (SIZE,), "bfloat16", links=MACHINES).steps} == {None}


@given(transitions(partial=True))
def test_without_links_nothing_is_added_up_twice(case):
    ops = {layout.reduce_op for layout in (case.src, case.dst)} - {None}
    dtype = "float16" if ops <= {*reductions_of(np.dtype("float16"))} else "int16"
    if not ops <= {*reductions_of(np.dtype(dtype))}:  # averages of bits
        return
    plan = plan_reshard(case.src, case.dst, case.shape, dtype)
    assert sum(move.reduces for step in plan.steps for move in step.moves) <= 1
    assert {step.widths for step in plan.steps} <= {None}
