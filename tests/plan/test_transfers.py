"""Sequences of transfers are the lists of what devices send and receive, at a cost that does not grow with the mesh."""

import sys
from collections.abc import Callable, Sequence
from itertools import combinations
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from shardwise import CPU, Cut, DeviceMesh, Layout, Plan, Transfer, plan_reshard
from shardwise.layout.tiling import box_size
from shardwise.plan.cells import Cells
from shardwise.plan.transfers import Transfers
from tests.plan.cases import Transition, all_transitions, mesh_of, sub_axis_layouts, transitions


def check(case: Sequence[Any], seen: set[str] | None = None) -> None:
    """Check that all there is to ask of a sequence is what the moves yield one by one."""
    plan = plan_reshard(case[0], case[1], case[2], "int8")
    for step in (each for own in plan.steps for each in (own, own.adjoint)):
        name, moves = step.slots.name, step.moves[:: -1 if step.reverses else 1]
        for slot in range(step.slots.count):
            for move, transfers in zip(moves, step.rounds(slot), strict=True):
                listed = [*move.incoming(slot), *move.outgoing(slot)]
                assert move.count_received(slot) == sum(box_size(t.box) for t in move.incoming(slot))
                assert move.count_sent(slot) == sum(box_size(t.box) for t in move.outgoing(slot))
                if step.reverses:
                    listed = [Transfer(target, source, box) for source, target, box in listed]
                check_sequence(transfers, listed, [Transfer(name(s), name(t), box) for s, t, box in listed])
                if seen is not None:
                    seen |= {f"{move.phase} {type(part.boxes).__name__}" for part in transfers.segments}


def check_sequence(transfers: Transfers, listed: list[Transfer[int]], named: list[Transfer[Any]]) -> None:
    assert list(transfers) == named
    assert transfers == named
    assert len(transfers) == len(named)
    assert [transfers[i] for i in range(-len(named), len(named))] == named * 2
    assert transfers[1::2] == named[1::2]
    assert repr(transfers) == repr(named)
    arrays, rank = transfers.arrays(), transfers.rank
    assert arrays.sources.tolist() == [t.source for t in listed]
    assert arrays.targets.tolist() == [t.target for t in listed]
    assert arrays.starts.shape == arrays.stops.shape == (len(listed), rank)
    assert arrays.starts.tolist() == [[start for start, _ in t.box] for t in listed]
    assert arrays.stops.tolist() == [[stop for _, stop in t.box] for t in listed]


@given(transitions(partial=True))
def test_sequences_are_what_moves_yield(case: Transition) -> None:
    check(case)


@pytest.mark.parametrize(
    ("sizes", "shape", "step"),
    [((2, 3), (6, 6), 17), ((2, 3), (5, 7), 19), ((2, 2, 2), (8, 3), 197), ((4, 3), (2, 1), 12), ((2, 3), (), 1)],
)
@pytest.mark.parametrize("partial", [False, True])
def test_sequences_of_whole_axes_are_what_moves_yield(sizes, shape, step, partial) -> None:
    seen: set[str] = set()
    for case in list(all_transitions(mesh_of(*sizes), shape, partial))[::step]:
        check(case, seen)
    if max(shape, default=0) > 4:
        assert {"reduce Cells", "spread Cells"} & seen if partial else "direct Cells" in seen


@pytest.mark.parametrize("sizes", [(12,), (2, 6), (8,)])
def test_sequences_of_sub_axes_are_what_moves_yield(sizes) -> None:
    # Of 12 and 6 positions some factors cross, so that slots have to be listed.
    rng, seen = Random(3), set[str]()
    found = sub_axis_layouts(mesh_of(*sizes), 1)
    for src, dst in [(rng.choice(found), rng.choice(found)) for _ in range(25)]:
        check((src, dst, (rng.choice([5, 12, 24]),)), seen)
    assert {"direct Cells", "reduce Cells"} <= seen
    assert "reduce list" in seen or sizes == (8,)


def test_sequences_of_halos_are_what_moves_yield() -> None:
    mesh = mesh_of(2, 3)
    cuts = [Cut(), Cut("x"), Cut("y"), Cut(("y", "x")), Cut("y", halo=(1, 2)), Cut("x", halo=1, edge="pad"),
            Cut("y", halo=(2, 0)), Cut("y", split="chunk"), Cut("y", offsets=(0, 4, 4, 9))]  # fmt: skip
    for old, new in combinations(cuts, 2):
        for src, dst in ((old, new), (new, old)):
            check((Layout(mesh, [src]), Layout(mesh, [dst]), (9,)))
            rest = "x" if {*src.axes, *dst.axes} == {"y"} else None
            check((Layout(mesh, [src, rest]), Layout(mesh, [dst, None]), (9, 4)))


def test_sequences_between_meshes_name_devices() -> None:
    old, new = mesh_of(2, 3), DeviceMesh((3, 2), ("u", "v"), [CPU(i) for i in (4, 0, 9, 2, 7, 5)])
    for src, dst in ((Layout(old, ["x"], ["y"]), Layout(new, ["v"])), (Layout(old, ["y"]), Layout(new, [None], ["u"]))):
        check((src, dst, (7,)))
    check((Layout(old, ["x", "y"]), Layout(old.transpose(), ["y", "x"]), (6, 6)))


# -- a sequence like a list ----------------------------------------------------------------------------


def test_an_item_that_is_not_there_is_named() -> None:
    plan = plan_reshard(Layout(mesh_of(2), ["x"]), Layout(mesh_of(2), [None]), (4,), "int8")
    (transfers,) = plan.transfers(0)
    with pytest.raises(IndexError, match=r"^there are 2 transfers, so no item 2\.$"):
        transfers[2]
    assert transfers != transfers[:1]
    assert transfers != tuple(transfers)
    assert Transfers(()) == []
    assert Transfers(()).arrays().starts.shape == (0, 0)


def test_arrays_are_as_small_as_their_numbers_allow() -> None:
    mesh = mesh_of(2)
    for size, dtype in ((2**31 - 1, np.int32), (2**31, np.int64)):
        (transfers,) = plan_reshard(Layout(mesh, ["x"]), Layout(mesh, [None]), (size,), "int8").transfers(0)
        arrays = transfers.arrays()  # pyright: ignore[reportAttributeAccessIssue]
        assert arrays.stops.dtype == dtype
        assert int(arrays.stops.max()) == size


# -- many devices ---------------------------------------------------------------------------------------

LARGE = DeviceMesh((256, 256), ("a", "b"))
SMALL = DeviceMesh((2, 2), ("a", "b"))
CASES = {
    "all_reduce": ([None, None], ["a", "b"], [None, None], []),
    "reduce_scatter": ([None, None], ["a", "b"], [("a", "b"), None], []),
    "all_gather": ([("a", "b"), None], [], [None, None], []),
    "permute": (["a", "b"], [], ["b", "a"], []),
    "reduced to other dims": (["a", None], ["b"], [None, "b"], []),
    "reduced by the others": (["a", None], ["b"], ["b", None], []),
    "reduced and gathered": (["a", None], ["b"], [None, None], []),
    "all_to_all": ([("a", "b"), None], [], [None, ("a", "b")], []),
}


def plan_on(mesh: DeviceMesh, name: str, shape: tuple[int, int]) -> Plan:
    old, pending, new, fresh = CASES[name]
    return plan_reshard(Layout(mesh, old, pending), Layout(mesh, new, fresh), shape, "int8")


def count_calls(function: Callable[[], object]) -> int:
    """How many Python calls it takes."""
    calls = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("name", CASES)
def test_what_one_of_many_does_is_counted_without_looking_at_the_others(name: str) -> None:
    found = []
    for mesh, shape in ((SMALL, (64, 64)), (LARGE, (2**17, 2**17))):
        plan, device = plan_on(mesh, name, shape), mesh.num_devices - 2

        def ask(plan: Plan = plan, device: int = device) -> None:
            for transfers in plan.transfers(device):
                for at in {0, len(transfers) // 3, len(transfers) - 1} if len(transfers) else ():
                    assert device in transfers[at][:2]
            plan.received.of(device)
            plan.sent.of(device)

        ask()
        found.append(count_calls(ask))
    few, many = found
    assert many <= 3 * few + 200


@pytest.mark.parametrize("name", ["all_gather", "reduce_scatter", "all_to_all"])
def test_all_of_it_is_there_as_arrays(name: str) -> None:
    mesh = DeviceMesh((64, 64), ("a", "b"))
    plan = plan_on(mesh, name, (2**13, 2**12))
    for transfers in plan.transfers(777):
        assert isinstance(transfers, Transfers)
        arrays, made = transfers.arrays(), []
        calls = count_calls(lambda transfers=transfers, made=made: made.append(transfers.arrays()))
        assert calls < 1000 < len(transfers)
        assert all(isinstance(part.boxes, Cells) for part in transfers.segments)
        for at in (0, 1, len(transfers) // 2, len(transfers) - 1):
            source, target, box = transfers[at]
            assert (arrays.sources[at], arrays.targets[at]) == (source, target)
            assert [tuple(ends) for ends in np.stack([arrays.starts[at], arrays.stops[at]], axis=1).tolist()] == [*box]
        sizes = (arrays.stops - arrays.starts).prod(axis=1)
        assert plan.received.of(777) == sizes[arrays.targets == 777].sum()
        assert plan.sent.of(777) == sizes[arrays.sources == 777].sum()


def test_a_long_sequence_shows_the_first_ones() -> None:
    (transfers,) = plan_on(LARGE, "all_gather", (2**17, 4)).transfers(0)
    text = repr(transfers)
    assert text.startswith("[Transfer(source=1, target=0, box=((2, 4), (0, 4))), Transfer(source=2,")
    assert text.endswith(", ... 131070 in all]")
    assert text.count("Transfer(") == 3
