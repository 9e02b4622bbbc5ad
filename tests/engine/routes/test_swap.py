"""Two devices add up in one round: as many bytes as sharing out the reducing, and the same sums."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise import Cut, DeviceMesh, Layout, Link, plan_reshard
from shardwise.engine.routes.swap import SwapMove, rounds_of
from shardwise.layout.tiling import box_size
from shardwise.plan.plan import Plan

MESHES = [DeviceMesh((2,), ("p",)), DeviceMesh((3, 2), ("a", "p")), DeviceMesh((2, 2, 2), ("a", "p", "b"))]


@st.composite
def summed(draw: st.DrawFn) -> Plan:
    """A sum over the axis of two devices, with the other axes anywhere."""
    mesh = draw(st.sampled_from(MESHES))
    shape = tuple(draw(st.lists(st.integers(0, 7), min_size=1, max_size=3)))
    dims: list[list[str]] = [[] for _ in shape]
    for axis in mesh.axis_names:
        if axis != "p":
            dims[draw(st.integers(0, len(shape) - 1))].append(axis)
    cuts = [Cut(axes, split=draw(st.sampled_from(["balanced", "chunk"]))) for axes in dims]
    return plan_reshard(Layout(mesh, cuts, ["p"]), Layout(mesh, cuts), shape, "float32")


@given(summed())
def test_a_swap_sends_as_much_as_the_plan_says(plan: Plan) -> None:
    (step,) = plan.steps
    (swap,) = rounds_of(step)
    assert isinstance(swap, SwapMove)
    slots = range(plan.src.mesh.num_devices)
    coming = [t for slot in slots for t in swap.incoming(slot)]
    assert sorted(coming) == sorted(t for slot in slots for t in swap.outgoing(slot))
    for slot in slots:
        size = [sum(box_size(t.box) for t in moved) for moved in (swap.incoming(slot), swap.outgoing(slot))]
        assert [4 * n for n in size] == [step.received.of(slot), step.sent.of(slot)]


@given(summed())
def test_both_reduce_all_that_they_need_in_the_same_order(plan: Plan) -> None:
    (step,) = plan.steps
    (swap,) = rounds_of(step)
    assert isinstance(swap, SwapMove)
    for slot in range(plan.src.mesh.num_devices):
        held = plan.dst.tiling(plan.shape).box(slot)
        assert sum(box_size(box) for _, box in swap.boxes_to_reduce(slot)) == box_size(held)
        for tile, box in swap.boxes_to_reduce(slot):
            terms = swap.shares.src.sources(tile, slot, swap.shares.pending)
            assert len(terms) == 2
            assert slot in terms
            assert terms == sorted(terms)
            came = [t.source for t in swap.incoming(slot) if t.box == box]
            assert not box_size(box) or came == [other for other in terms if other != slot]


@pytest.mark.parametrize("size", [3, 4, 8])
def test_more_than_two_share_out_the_reducing(size: int) -> None:
    mesh = DeviceMesh((size,), ("p",))
    (step,) = plan_reshard(Layout(mesh, [None], ["p"]), Layout(mesh, [None]), (64,), "float32").steps
    assert rounds_of(step) == step.moves


def test_chunks_are_not_swapped() -> None:
    mesh = MESHES[0]
    layouts = Layout(mesh, [None], ["p"]), Layout(mesh, [None])
    (step,) = plan_reshard(*layouts, (64,), "float32", memory_limit=64).steps
    assert step.chunks > 1
    assert rounds_of(step) == step.moves


def test_a_swap_stages_no_more_than_the_step_says() -> None:
    for mesh, size in product(MESHES, (1, 5, 64)):
        layouts = Layout(mesh, [None], ["p"]), Layout(mesh, [None])
        for step in plan_reshard(*layouts, (size,), "float64").steps:
            for move in rounds_of(step):
                if isinstance(move, SwapMove):
                    most = max(sum(box_size(t.box) for t in move.incoming(s)) for s in range(mesh.num_devices))
                    assert most * np.dtype("float64").itemsize <= step.staging_bytes


@pytest.mark.parametrize("sizes", [(2, 4), (2, 2), (2, 2, 2)])
def test_what_is_handed_on_smaller_than_it_came_is_not_swapped(sizes: tuple[int, ...]) -> None:
    # Two hops of 16-bit floats: sums come as float32, and what is handed on is rounded.
    mesh = DeviceMesh(sizes, tuple("pab"[: len(sizes)]))
    links = {name: Link(0, 1e6 if name == "p" else 1e12) for name in mesh.axis_names}
    layouts = Layout(mesh, [None], mesh.axis_names), Layout(mesh, [None])
    for dtype, widths in (("bfloat16", (4, 2)), ("float32", None)):
        plan = plan_reshard(*layouts, (64,), dtype, links=links)
        (step,) = (step for step in plan.steps if step.kind == "all_reduce")
        assert step.widths == widths
        assert isinstance(rounds_of(step)[0], SwapMove) == (widths is None)
        assert isinstance(rounds_of(replace(step, widths=(4, 4)))[0], SwapMove)
        others = [other for other in plan.steps if other is not step]
        assert all(rounds_of(other) == other.moves for other in others)
