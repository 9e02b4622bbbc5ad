"""A transition that is a collective plans as that collective, told here from sets of elements alone."""

from collections import Counter
from collections.abc import Iterator
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise import Cut, Layout, P, plan_reshard
from shardwise.layout.tiling import DimTiling
from shardwise.plan.kinds import is_nested, is_same_cut
from tests.layout.strategies import cuts
from tests.plan import oracle
from tests.plan.cases import Transition, all_transitions, mesh_of, transitions

MESH = mesh_of(2, 3, 4)


def steps(src: Layout | P, dst: Layout | P, shape: tuple[int, ...] = (24, 48, 24)) -> list[str]:
    a, b = (part.to_layout(len(shape), MESH) if isinstance(part, P) else part for part in (src, dst))
    return [str(step) for step in plan_reshard(a, b, shape, "float32").steps]


SAME: list = [
    (P("x"), P("x"), []),
    # gathers, over one group for all axes that are gathered
    (P("x"), P(), ["all_gather over x"]),
    (P("x", "y"), P(), ["all_gather over x, y"]),
    (P(("x", "y")), P(), ["all_gather over x, y"]),
    (P(("x", "y")), P("x"), ["all_gather over y"]),
    (P("x", None), P(None, "y"), ["slice over y", "all_gather over x"]),
    (P("z:(1)2"), P(), ["all_gather over z:(1)2"]),
    (P("z"), P("z:(1)2"), ["all_gather over z:(2)2"]),
    # slices
    (P(), P("x"), ["slice over x"]),
    (P(), P(("y", "x"), "z"), ["slice over y, x, z"]),
    (P("x"), P(("x", "z"), "y"), ["slice over z, y"]),
    # all-to-alls
    (P("x", None), P(None, "x"), ["all_to_all over x"]),
    (P("x", "y"), P(None, None, ("x", "y")), ["all_to_all over x, y"]),
    (P(("x", "y"), None), P(None, ("y", "x")), ["all_to_all over x, y"]),
    (P(("x", "y"), None), P("x", "y"), ["all_to_all over y"]),
    (P("x", None), P(None, ("y", "x")), ["slice over y", "all_to_all over x"]),
    (P("x", None, "z"), P(None, "x", ("z", "y")), ["slice over y", "all_to_all over x"]),
    # permutes
    (P(("x", "y")), P(("y", "x")), ["permute over x, y"]),
    (P(("x", "y"), "z"), P(("y", "x"), "z"), ["permute over x, y"]),
    (P(("x", "y", "z")), P(("z", "y", "x")), ["permute over x, y, z"]),
    # what is none of these
    (P("x"), P("y"), ["exchange over x, y"]),
    (P("x", None), P(None, ("x", "y")), ["exchange over x, y"]),
    (P(("x", "y")), P("y"), ["exchange over x, y"]),
    (P(("x", "y")), P(("x", "z")), ["exchange over y, z"]),  # whoever differs in x has nothing to say
    (P(("x", "y"), "z"), P(("x", "z"), "y"), ["exchange over y, z"]),
    # reductions
    (P(unreduced=["x"]), P("x"), ["reduce_scatter over x"]),
    (P("y", "z", unreduced=["x"]), P("y", "z"), ["all_reduce over x"]),
    (P(unreduced=["x", "y", "z"]), P(), ["all_reduce over x, y, z"]),
    (P(unreduced=["x", "y", "z"]), P(None, ("z", "y"), "x"), ["reduce_scatter over x, y, z"]),
    (P(unreduced=["x"]), P(unreduced=["x"]), []),
    (
        P("z:(1)2", ("y", "z:(2)2"), unreduced=["x"]),
        P(None, ("y", "z:(2)2"), unreduced=["x"]),
        ["all_gather over z:(1)2"],
    ),
    (P(("y", "z"), None, unreduced=["x"]), P("y", "z", unreduced=["x"]), ["all_to_all over z"]),
    (P(unreduced=["x"]), P("y", unreduced=["x"]), ["slice over y"]),
    # fills
    (P(), P(unreduced=["x"]), ["fill over x"]),
    (P("y"), P("y", unreduced=["x", "z"]), ["fill over x, z"]),
    (P(), P("y", unreduced=["x"]), ["fill over x"]),
    (P("x"), P(unreduced=["x"]), ["fill over x"]),
]


@pytest.mark.parametrize(("src", "dst", "want"), SAME, ids=str)
def test_a_transition_plans_as_the_collective_that_it_is(src, dst, want):
    assert steps(src, dst) == want


HALOS = [
    (Cut("y"), Cut("y", halo=(1, 2)), ["halo_exchange over y"]),
    (Cut("y", halo=(1, 1)), Cut("y", halo=(1, 2)), ["halo_exchange over y"]),
    (Cut("y", halo=(1, 2)), Cut("y", halo=(1, 0)), ["slice"]),
    (Cut("y", halo=(1, 2)), Cut("y"), ["slice"]),
    (Cut("y"), Cut("y", halo=1, edge="pad"), ["halo_exchange over y"]),
    (Cut("y", halo=1), Cut("y", halo=1, edge="pad"), ["fill"]),
    (Cut(), Cut((), halo=1, edge="pad"), ["fill"]),
    (Cut(("x", "y")), Cut(("x", "y"), halo=1), ["halo_exchange over x, y"]),
    (Cut("x", halo=1), Cut("y", halo=1), ["exchange over x, y"]),
    (Cut("y", halo=(0, 1)), Cut("y", halo=(1, 0)), ["halo_exchange over y"]),
    (Cut("y", halo=2), Cut("y", halo=1), ["slice"]),
    (Cut("y", halo=1, edge="pad"), Cut("y", halo=1, edge="pad"), []),
    (Cut("y", halo=(1, 2), edge="pad"), Cut("y", halo=(1, 0), edge="pad"), ["fill"]),
    (Cut("y", halo=1, edge="pad"), Cut("y", halo=1), ["slice"]),
    (Cut("y", halo=1, edge="pad"), Cut("y"), ["slice"]),
    (Cut("y", halo=1), Cut(("y", "x")), ["slice"]),
    (Cut("y"), Cut(("y", "x"), halo=1), ["exchange over x, y"]),
    (Cut("y"), Cut(("y", "x"), halo=(0, 1)), ["exchange over x, y"]),
    (Cut("y"), Cut(("y", "x"), halo=(1, 0)), ["exchange over x, y"]),
    (Cut(("x", "y"), halo=1), Cut(("x", "z:(1)2"), halo=1), ["exchange over x, y, z"]),
    (Cut("y", halo=1), Cut(), ["exchange over y"]),
    # a dim that is not split has no neighbours, and what lies outside is only there to be filled
    (Cut((), halo=1, edge="pad"), Cut(), ["slice"]),
    (Cut((), halo=2, edge="pad"), Cut((), halo=1), ["slice"]),
    (Cut((), halo=1), Cut((), halo=2), []),
    (Cut((), halo=1), Cut(), []),
]


@pytest.mark.parametrize(("old", "new", "want"), HALOS, ids=str)
def test_a_halo_that_grows_is_exchanged_and_one_that_shrinks_is_sliced(old, new, want):
    assert steps(Layout(MESH, [old]), Layout(MESH, [new]), (24,)) == want
    for other in (None, "z:(2)2"):  # what happens in one dim does not depend on another that stays
        assert steps(Layout(MESH, [old, other]), Layout(MESH, [new, other]), (24, 6)) == want
        assert steps(Layout(MESH, [other, old]), Layout(MESH, [other, new]), (6, 24)) == want


@given(transitions(partial=True))
def test_a_layout_is_its_own_target_without_a_step(case: Transition):
    for layout in case[:2]:
        plan = plan_reshard(layout, layout, case.shape, "int8", memory_limit=0)
        assert (plan.steps, plan.time, plan.rounds, plan.staging_bytes) == ((), 0, 0, 0)


# -- collectives by their definitions --------------------------------------------------------------------


def definitions(case: Transition) -> Iterator[str]:
    """The collectives that a transition is, if what can be sliced first is."""
    held, need = (oracle.masks(layout, case.shape) for layout in (case.src, case.dst))
    if not (need & ~held).any():
        yield "slice"
        return
    if Counter(m.tobytes() for m in held) == Counter(m.tobytes() for m in need):
        yield "permute"
    names = case.src.mesh.axis_names
    for axes in (axes for k in range(len(names)) for axes in combinations(names, k + 1)):
        groups = [list(group) for group in case.src.mesh.groups(axes)]
        if all(is_gather(held[g], need[g]) for g in groups):
            yield f"all_gather over {', '.join(axes)}"
        if all(is_all_to_all(held[g], need[g]) for g in groups):
            yield f"all_to_all over {', '.join(axes)}"


def is_gather(held: np.ndarray, need: np.ndarray) -> bool:
    """Whether all members of a group need the same, of which each holds a part of its own."""
    parts = held & need[0]
    return bool((need == need[0]).all() and apart(parts) and (parts.any(axis=0) == need[0]).all())


def is_all_to_all(held: np.ndarray, need: np.ndarray) -> bool:
    """Whether each member of a group has a box for each, no two need the same, and together that is all."""
    whole = need.any(axis=0)
    parts = held & whole
    if not apart(parts) or not apart(need) or (parts.any(axis=0) != whole).any():
        return False
    return all(is_box(part) and all((part & one).any() for one in need) for part in parts)


def apart(parts: np.ndarray) -> bool:
    return bool((parts.sum(axis=0) <= 1).all() and all(part.any() for part in parts))


def is_box(part: np.ndarray) -> bool:
    return bool(part[tuple(slice(i.min(), i.max() + 1) for i in part.nonzero())].all())


@pytest.mark.parametrize("sizes", [(2, 3), (2, 2, 2)])
@pytest.mark.parametrize("shape", [(24, 24), (9, 10)])
def test_a_plan_says_which_collective_it_is(sizes, shape):
    for case in all_transitions(mesh_of(*sizes), shape):
        plan = plan_reshard(*case, "int8")
        found = list(definitions(case))
        *first, last = plan.steps or (None,)
        assert [step.kind for step in first] in ([], ["slice"])
        if last is None:
            assert (oracle.masks(case.src, shape) == oracle.masks(case.dst, shape)).all()
        elif last.kind in ("slice", "permute"):
            assert last.kind in found
        elif last.kind != "exchange":
            assert f"{last.kind} over {', '.join(sorted(map(str, last.axes)))}" in found


@pytest.mark.parametrize("sizes", [(2, 3), (2, 2, 2)])
def test_an_exchange_is_none_of_the_collectives(sizes):
    # With equal parts; where parts differ in length, an all-to-all after a slice may stay an exchange.
    exchanges = 0
    for case in all_transitions(mesh_of(*sizes), (24, 24)):
        plan = plan_reshard(*case, "int8")
        if any(step.kind == "exchange" for step in plan.steps):
            exchanges += 1
            assert list(definitions(case)) == []
    assert exchanges == {(2, 3): 42, (2, 2, 2): 1500}[sizes]


@pytest.mark.parametrize("sizes", [(2, 3), (2, 2, 2)])
def test_without_partial_values_one_round_is_enough(sizes):
    for case in all_transitions(mesh_of(*sizes), (5, 7)):
        plan = plan_reshard(*case, "int8")
        assert plan.rounds == (plan.received.total > 0)
        assert sum(not step.is_local for step in plan.steps) == plan.rounds


# -- cuts ------------------------------------------------------------------------------------------------


@given(st.data(), st.integers(0, 30), st.integers(1, 6), st.integers(1, 6))
def test_cuts_nest_exactly_when_their_boundaries_do(data, size, parts, ratio):
    fine = DimTiling(size, parts * ratio, **data.draw(cuts(parts * ratio, size, halo=False)))
    coarse = DimTiling(size, parts, **data.draw(cuts(parts, size, halo=False)))
    ends = [(0, *(cut.interval(i)[1] for i in range(cut.parts))) for cut in (fine, coarse)]
    assert is_nested(fine, coarse) == (ends[0][::ratio] == ends[1])
    assert is_same_cut(fine, coarse) == (ends[0] == ends[1])


def test_cuts_nest_exactly_when_every_boundary_does():
    # Offsets that are those of an even cut but for one, moved by one, differ from it at any one place.
    rng = np.random.default_rng(0)
    nests = 0
    for size, parts, ratio in product(range(0, 19, 3), range(1, 8), range(1, 4)):
        fines = [DimTiling(size, parts * ratio, split) for split in SPLITS]
        coarses = [DimTiling(size, parts, split) for split in SPLITS]
        for fine in list(fines):
            ends = (0, *(fine.interval(i)[1] for i in range(fine.parts)))
            coarses += [
                DimTiling(size, parts, offsets=move_one(ends[::ratio], at)) for at in {0, parts // 2, parts - 1}
            ]
            fines.append(DimTiling(size, parts * ratio, offsets=move_one(ends, int(rng.integers(len(ends))))))
        for fine, coarse in product(fines, coarses):
            ends = [[0, *(cut.interval(i)[1] for i in range(cut.parts))] for cut in (fine, coarse)]
            assert is_nested(fine, coarse) == (ends[0][::ratio] == ends[1]), (fine, coarse)
            nests += ends[0][::ratio] == ends[1]
    assert nests > 1000


def test_even_cuts_nest_exactly_when_every_boundary_does():
    for size, parts, ratio in product(range(40), range(1, 10), range(1, 4)):
        for splits in product(SPLITS, repeat=2):
            fine, coarse = DimTiling(size, parts * ratio, splits[0]), DimTiling(size, parts, splits[1])
            ends = [[0, *(cut.interval(i)[1] for i in range(cut.parts))] for cut in (fine, coarse)]
            assert is_nested(fine, coarse) == (ends[0][::ratio] == ends[1]), (fine, coarse)


SPLITS: list[Any] = ["balanced", "chunk"]


def move_one(ends: tuple[int, ...], at: int) -> tuple[int, ...]:
    """The boundaries, one of those between the first and the last a little later if there is room."""
    if not 0 < at < len(ends) - 1 or ends[at] == ends[at + 1]:
        return ends
    return (*ends[:at], ends[at] + 1, *ends[at + 1 :])
