"""Steps: their chunks fit into the staging buffer, their groups hold all who talk, their adjoints are transposed."""

import re
from collections import Counter
from dataclasses import replace
from itertools import combinations, pairwise
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise import Cut, Layout, Plan, PlanError, Step, plan_reshard
from shardwise.plan.steps import ADJOINTS, add_bytes
from tests.plan import oracle
from tests.plan.cases import Transition, all_transitions, mesh_of, transitions

# -- staging -------------------------------------------------------------------------------------------


def check_chunks(plan: Plan) -> None:
    for step in plan.steps:
        assert step.staging_bytes <= plan.memory_limit
        for device in oracle.names(plan):
            parts = [t for chunk in range(step.chunks) for t in step.transfers(device, chunk)]
            assert covered(parts, plan.shape) == covered(step.transfers(device), plan.shape)
            for move in step.moves:  # one round at a time
                one = replace(step, moves=(move,))
                for chunk in range(step.chunks):
                    moved = [t for t in one.transfers(device, chunk) if t.target == device]
                    assert sum(t.size for t in moved) * step.itemsize <= step.staging_bytes
    assert plan.staging_bytes == max((step.staging_bytes for step in plan.steps), default=0)


def covered(transfers, shape) -> Counter:
    """How often each element goes from where to where."""
    index = np.arange(int(np.prod(shape))).reshape(shape)
    return Counter((s, t, i) for s, t, box in transfers for i in index[oracle.region(box)].ravel().tolist())


@given(transitions(partial=True), st.integers(1, 40))
def test_no_device_stages_more_than_the_limit(case: Transition, factor: int):
    smallest = least_limit(case)
    check_chunks(plan_reshard(*case, "int32", memory_limit=smallest))
    check_chunks(plan_reshard(*case, "int32", memory_limit=smallest * factor))
    check_chunks(plan_reshard(*case, "int32"))


def least_limit(case: Transition) -> int:
    """The smallest limit, as the error for a smaller one says; the one just below is refused too."""
    try:
        plan_reshard(*case, "int32", memory_limit=0)
    except PlanError as error:
        found = re.search(r"the smallest limit that would do is (\d+) bytes", str(error))
        assert found is not None
        smallest = int(found[1])
        with pytest.raises(PlanError, match=f"memory_limit={smallest - 1} is too small"):
            plan_reshard(*case, "int32", memory_limit=smallest - 1)
        return smallest
    return 0


def test_the_default_limit_is_64_mib():
    mesh = mesh_of(8)
    src, dst = Layout(mesh, ["x", None]), Layout(mesh, [None, "x"])
    plan = plan_reshard(src, dst, (2**14, 2**14), "float32")
    assert plan.memory_limit == 2**26
    assert (plan.staging_bytes, plan.steps[0].chunks) == (2**26, 2)
    assert plan_reshard(src, dst, (2**10, 2**10), "float32").steps[0].chunks == 1


def test_chunks_of_a_gather():
    mesh = mesh_of(2)
    plan = plan_reshard(Layout(mesh, ["x", None]), Layout(mesh, [None, None]), (4, 6), "int8", memory_limit=12)
    (step,) = plan.steps
    assert (step.staging_bytes, step.chunks) == (12, 2)
    assert step.transfers(0, 1) == [(1, 0, ((3, 4), (0, 6))), (0, 1, ((1, 2), (0, 6)))]


def test_a_limit_that_is_too_small_is_refused_with_the_smallest_that_would_do():
    mesh = mesh_of(4)
    with pytest.raises(PlanError) as caught:
        plan_reshard(Layout(mesh, ["x"]), Layout(mesh, [None]), (8,), "int32", memory_limit=15)
    assert str(caught.value) == (
        "memory_limit=15 is too small for all_gather over x: a device takes in up to 4 boxes at once.\n"
        "  the smallest limit that would do is 16 bytes."
    )


def test_the_smallest_limit_is_that_of_the_whole_plan():
    mesh = mesh_of(2, 4)
    case = Transition(Layout(mesh, ["y"], ["x"]), Layout(mesh, [Cut("x", halo=1)]), (8,))
    plan_reshard(*case, "int32", memory_limit=least_limit(case))


def most_boxes(plan: Plan, step: Step) -> int:
    """The most boxes that one device takes in during one round."""
    names = oracle.names(plan)
    rounds = (found for slot in range(len(names)) for found in zip(step.rounds(slot), [names[slot]] * 2, strict=False))
    return max((sum(t.target == name for t in moved) for moved, name in rounds), default=0)


@pytest.mark.parametrize(("mesh", "shape"), [((2, 3), (12, 36)), ((2, 2, 2), (16, 16)), ((8,), (64, 64))])
def test_where_parts_are_equal_the_staging_buffer_has_little_to_spare(mesh, shape):
    # A gather and an all-to-all count the box that a device has already; else there is one per sender.
    for case in list(all_transitions(mesh_of(*mesh), shape))[:: 37 if len(mesh) > 2 else 3]:
        plan = plan_reshard(*case, "int16")
        for step in plan.steps:
            if step.is_local:
                assert (step.least_staging, step.staging_bytes) == (0, 0)
                continue
            boxes = most_boxes(plan, step)
            own = step.kind in ("all_gather", "all_to_all")
            slack = {"all_gather": (1,), "all_to_all": (1,), "permute": (0,), "exchange": (0, 1, 2)}[step.kind]
            assert step.least_staging - 2 * boxes in [2 * n for n in slack], str(step)
            largest = max(t.size for slot in range(len(oracle.names(plan))) for t in step.transfers(slot))
            if own or step.kind == "permute":
                assert step.staging_bytes == step.least_staging * largest


@pytest.mark.parametrize("mesh", [(6,), (2, 3), (2, 2, 2)])
def test_a_reduction_stages_one_share_of_every_contribution(mesh):
    whole = mesh_of(*mesh)
    names, size = whole.axis_names, whole.num_devices
    for dst, kind in ((Layout(whole, [None, names]), "reduce_scatter"), (Layout(whole, [None, None]), "all_reduce")):
        (step,) = plan_reshard(Layout(whole, [None, None], names), dst, (4, 48 * size), "int16").steps
        assert step.kind == kind
        assert step.least_staging == 2 * size
        assert step.staging_bytes == 2 * size * 4 * 48


# -- groups ----------------------------------------------------------------------------------------------


def test_groups_are_those_of_the_axes():
    mesh = mesh_of(2, 2)
    plan = plan_reshard(Layout(mesh, ["y", None]), Layout(mesh, [None, "x"]), (4, 4), "int8")
    assert [(str(step), step.groups) for step in plan.steps] == [
        ("slice over x", []),
        ("all_gather over y", [(0, 1), (2, 3)]),
    ]
    turned = plan_reshard(Layout(mesh, ["y"]), Layout(mesh.transpose(), [None]), (4,), "int8")
    devices = mesh.devices
    assert turned.steps[0].groups == [devices[:2], devices[2:]]
    other = plan_reshard(Layout(mesh, ["y"]), Layout(mesh_of(3), [None]), (4,), "int8")
    assert other.steps[0].groups == [devices]


# -- adjoints --------------------------------------------------------------------------------------------


def boxes_mask(plan: Plan, boxes) -> np.ndarray:
    out = np.zeros(plan.shape, dtype=bool)
    for box in boxes:
        out[oracle.region(box)] = True
    return out


def supports(plan: Plan, step: Step) -> tuple[np.ndarray, ...]:
    """What each device has before the step, between its two rounds if it has two, and after it."""
    slots = range(len(oracle.names(plan)))
    out = []
    shares = next((move.shares for move in step.moves if move.shares), step.shares)
    shared = [] if shares is None else [boxes_mask(plan, (box for _, box in shares.boxes_to_reduce(s))) for s in slots]
    kept = [] if shares is None else [boxes_mask(plan, shares.boxes_to_keep(s)) for s in slots]
    out.append(
        oracle.spread_masks(plan, step.before)
        if isinstance(step.before, Layout)
        else np.array(kept if step.is_local else shared)
    )
    if len(step.moves) == 2:
        out.append(np.array(shared))
    reduced = bool(step.moves) and step.moves[-1].reduces
    if isinstance(step.after, Layout):
        out.append(oracle.spread_masks(plan, step.after))
    else:
        out.append(np.array(shared if reduced else kept))
    return tuple(out)


def forward(plan: Plan, step: Step, x: np.ndarray) -> np.ndarray:
    """What the step does: copies are put, contributions are added, identities are zero."""
    names = oracle.names(plan)
    place = {name: i for i, name in enumerate(names)}
    before, *later = supports(plan, step)
    have = before.copy()
    for at, (move, after) in enumerate(zip(step.moves, later, strict=False)):
        y = np.where(have, x, 0)
        for slot, name in enumerate(names):
            for t in list(step.rounds(slot))[at]:
                if t.target == name:
                    here = (slot, *oracle.region(t.box))
                    piece = x[(place[t.source], *oracle.region(t.box))]
                    y[here] = y[here] + piece if move.reduces else piece
        x, have = np.where(after, y, 0), after
    kept = [step.kept(name) for name in names]
    mask = np.array([a if k is None else boxes_mask(plan, k) for a, k in zip(later[-1], kept, strict=True)])
    return np.where(mask & later[-1], x, 0)


def transposed(plan: Plan, step: Step, y: np.ndarray) -> np.ndarray:
    """What the adjoint does, by its docstring: what is kept, plus all that is received, round by round."""
    names, adjoint = oracle.names(plan), step.adjoint
    place = {name: i for i, name in enumerate(names)}
    states = list(supports(plan, step))[::-1]
    kept = [adjoint.kept(name) for name in names]
    if adjoint.shares is not None:
        y = np.where([boxes_mask(plan, k or ()) for k in kept], y, 0)
    if adjoint.is_local:
        return np.where(states[-1] & states[0], y, 0)
    rounds = [list(adjoint.rounds(slot)) for slot in range(len(names))]
    for at, (old, new) in enumerate(pairwise(states)):
        x = np.where(old & new, y, 0)
        for slot, name in enumerate(names):
            for t in rounds[slot][at]:
                if t.target == name:
                    x[(slot, *oracle.region(t.box))] += y[(place[t.source], *oracle.region(t.box))]
        y = x
    return y


def check_adjoint(plan: Plan, seen: set[str]) -> None:
    rng = np.random.default_rng(0)
    for step in plan.steps:
        before, *_, after = supports(plan, step)
        x = np.where(before, rng.integers(-9, 10, before.shape), 0)
        y = np.where(after, rng.integers(-9, 10, after.shape), 0)
        assert (forward(plan, step, x) * y).sum() == (x * transposed(plan, step, y)).sum(), str(step)
        adjoint = step.adjoint
        assert adjoint.adjoint == step
        assert (adjoint.before, adjoint.after) == (step.after, step.before)
        assert adjoint.received.each.tolist() == step.sent.each.tolist()
        assert adjoint.sent.each.tolist() == step.received.each.tolist()
        seen |= {step.kind, adjoint.kind}


def test_the_adjoint_of_every_kind_of_step_is_its_transpose():
    mesh, seen = mesh_of(2, 3), set()
    for case in all_transitions(mesh, (5, 7), partial=True):
        check_adjoint(plan_reshard(*case, "int8"), seen)
    for case in all_transitions(mesh, (6, 6)):
        check_adjoint(plan_reshard(*case, "int8"), seen)
    for old, new in (
        (Cut("y"), Cut("y", halo=1)),
        (Cut("y", halo=(1, 2)), Cut("y", halo=(2, 0))),
        (Cut("y", halo=2), Cut("x")),
    ):
        check_adjoint(plan_reshard(Layout(mesh, [old]), Layout(mesh, [new]), (9,), "int8"), seen)
    assert seen == set(ADJOINTS)


@given(transitions(partial=True))
def test_the_adjoint_of_a_generated_step_is_its_transpose(case: Transition):
    check_adjoint(plan_reshard(*case, "int8"), set())


def test_adjoints_are_named_for_what_they_do():
    mesh = mesh_of(4)
    named = {}
    for src, dst in (
        (Layout(mesh, ["x"]), Layout(mesh, [None])),
        (Layout(mesh, [None]), Layout(mesh, ["x"])),
        (Layout(mesh, [None], ["x"]), Layout(mesh, ["x"])),
        (Layout(mesh, [None], ["x"]), Layout(mesh, [None])),
        (Layout(mesh, [None]), Layout(mesh, [None], ["x"])),
        (Layout(mesh, ["x"]), Layout(mesh, [Cut("x", halo=1)])),
    ):
        (step,) = plan_reshard(src, dst, (8,), "int8").steps
        named[step.kind] = step.adjoint.kind
    assert named == {
        "all_gather": "reduce_scatter",
        "slice": "fill",
        "reduce_scatter": "all_gather",
        "all_reduce": "all_reduce",
        "fill": "fill",
        "halo_exchange": "halo_accumulate",
    }


# -- estimates -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mesh", [(2, 3), (2, 2, 2)])
def test_the_cost_model_sees_the_busiest_device(mesh):
    for case in all_transitions(mesh_of(*mesh), (24, 24)):
        for step in plan_reshard(*case, "int8").steps:
            assert sum(step.estimates) == pytest.approx(step.received.max)


@pytest.mark.parametrize("mesh", [(2, 3), (2, 2, 2), (8,)])
def test_the_cost_model_knows_the_bytes_of_reductions(mesh):
    whole = mesh_of(*mesh)
    for axes in (axes for k in range(whole.ndim) for axes in combinations(whole.axis_names, k + 1)):
        others = [name for name in whole.axis_names if name not in axes]
        n, src = prod(map(whole.axis_size, axes)), Layout(whole, [None, others], axes)
        local = 24 * 24 * 2 // prod(map(whole.axis_size, others))
        for dst, rounds in ((Layout(whole, [axes, others]), 1), (Layout(whole, [None, others]), 2)):
            (step,) = plan_reshard(src, dst, (24, 24), "int16").steps
            assert step.received.each.tolist() == [rounds * local * (n - 1) // n] * whole.num_devices
            assert step.estimates == pytest.approx([local * (n - 1) / n] * rounds)


@pytest.mark.parametrize(("most", "count"), [(2**62, 1), (2**62, 2), (2**62 - 1, 2), (2**61, 4), (2**40, 3)])
def test_sums_of_bytes_are_exact_around_what_numpy_holds(most, count):
    assert add_bytes(np.full(count, most)) == most * count
