"""Staging: a bound for all steps of a mesh, and chunks that stay those of the step they were made for."""

from dataclasses import replace
from math import prod

import pytest
from hypothesis import given

from shardwise import Layout, plan_reshard
from shardwise.plan import staging as module
from shardwise.plan.staging import Staging, most_staging
from tests.plan.cases import Transition, all_transitions, mesh_of, transitions


def check_bound(case: Transition, many: int) -> None:
    """No step takes in more boxes than the bound, where at most `many` of them are made to share work evenly."""
    plan = plan_reshard(*case, "int8")
    if plan.search.numbers is not None:  # two meshes: then what each step takes in is counted
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MANY", many)
        most = most_staging(plan.search.slots.count, len(plan.shape))
        for step in plan.steps:  # anew, since a plan remembers what it was asked
            assert Staging(step.kind, step.axes, step.moves, 1, 0).least <= most


@given(transitions(partial=True))
def test_no_step_takes_in_more_boxes_than_the_bound(case: Transition):
    check_bound(case, 1)
    check_bound(case, 1024)


def test_the_bound_holds_on_every_transition_of_a_mesh():
    for case in all_transitions(mesh_of(2, 3, 2), (12,), partial=True):
        check_bound(case, 1)


@given(transitions(partial=True))
def test_a_step_keeps_its_chunks_when_something_else_of_it_changes(case: Transition):
    plan = plan_reshard(*case, "int16")
    for step in plan.steps:
        if step.is_local:
            continue
        tight = step.staged(step.least_staging + 2)
        facts = (tight.staging_bytes, tight.grain, tight.chunks)
        for other in (tight.adjoint, replace(tight, moves=tight.moves[:1]), replace(tight, axes=())):
            assert (other.staging_bytes, other.grain, other.chunks) == facts
        again = tight.staged(plan.memory_limit)
        assert (again, again.chunks, again.grain) == (step, step.chunks, step.grain)


def test_chunks_follow_from_the_boxes_that_travel():
    mesh = mesh_of(4)
    (step,) = plan_reshard(Layout(mesh, ["x", None]), Layout(mesh, [None, "x"]), (8, 8), "int32").steps
    for limit in range(step.least_staging, 200):
        staged = step.staged(limit)
        grain = staged.grain or (2, 2)  # what one device sends to another is 2 by 2
        assert staged.staging_bytes == prod(grain) * 4 * 4 <= limit
        assert staged.chunks == prod(-(-2 // n) for n in grain)
