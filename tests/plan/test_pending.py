"""Plans with pending values move the fewest elements that there are, and say so only where it is known."""

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest

from shardwise import CPU, DeviceMesh, Layout
from tests.plan.cases import Transition, mesh_of
from tests.plan.comparisons import compare, pending_transitions, pending_transitions_between_meshes

MESHES = [(2, 2), (2, 3), (2, 2, 2), (2, 3, 2)]
SHAPES = [(6,), (7,), (6, 6), (5, 7)]


def check_least(transitions: Iterable[Transition], dtype: Any) -> None:
    """Check that plans move the least, and that what they say about it is true."""
    failures = [
        comparison
        for comparison in compare(transitions, dtype)
        if comparison.received != comparison.least or comparison.bound > comparison.least or comparison.is_claimed
    ]
    worst = max(failures, key=lambda found: (found.received - found.least, found.bound), default=None)
    assert worst is None, f"{len(failures)} transitions, the worst {worst}"


def sample(rng: Random, transitions: list[Transition], count: int) -> list[Transition]:
    """Some of the transitions, or all."""
    return transitions if len(transitions) <= count else rng.sample(transitions, count)


@pytest.mark.parametrize("op", ["sum", "max"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("sizes", MESHES, ids=str)
def test_transitions_of_a_mesh_move_the_least(sizes: tuple[int, ...], shape: tuple[int, ...], op: str) -> None:
    check_least(sample(Random(str((sizes, shape, op))), pending_transitions(sizes, shape, op), 25), "int32")


KNOWN = [
    #    mesh     source                      target                  shape   least
    ((2, 3, 2), (["y", None], ["z"]), ([None, "y"], ["z"]), (6, 6), 72),
    ((2, 2, 2), ([None, None], ["x", "y"]), ([None, "x"], ["y"]), (6, 6), 3 * 36),
    ((2, 3, 2), ([None], ["x", "y"]), (["x"], ["y"]), (6,), 24),
    ((2, 3, 2), ([None], ["x", "z"]), (["z"], ["x"]), (6,), 24),
    ((2, 3, 2), ([None, "z"], ["y"]), (["z", None], ["y"]), (6, 6), 72),
    ((2, 2, 2), (["y", None], ["z"]), ([None, "y"], ["z"]), (5, 7), 51),
]


@pytest.mark.parametrize(("sizes", "before", "after", "shape", "least"), KNOWN)
def test_what_stays_at_home_is_not_moved(sizes, before, after, shape, least) -> None:
    mesh = mesh_of(*sizes)
    src, dst = (Layout(mesh, *arguments) for arguments in (before, after))
    for comparison in compare([Transition(src, dst, shape)], "int32"):
        assert comparison.received == comparison.bound == comparison.least == least


def test_pending_values_stay_on_devices_of_another_order() -> None:
    old, new = mesh_of(4), DeviceMesh((2, 2), ("u", "v"), [CPU(i) for i in (2, 0, 3, 1)])
    src, dst = Layout(old, [None], ["x"]), Layout(new, [None], ["u", "v"])
    for comparison in compare([Transition(src, dst, (8,)), Transition(dst, src, (8,))], "int32"):
        assert comparison.received == comparison.bound == comparison.least == 0


@pytest.mark.parametrize("op", ["prod", "bxor", "min", "band", "bor"])
def test_other_reductions_move_the_least(op: str) -> None:
    check_least(sample(Random(op), pending_transitions((2, 2, 2), (6, 6), op), 15), "int32")


@pytest.mark.parametrize(("op", "other"), [("sum", "max"), ("max", "sum"), ("max", "min")])
def test_reductions_that_differ_move_the_least(op: str, other: str) -> None:
    check_least(sample(Random(op + other), pending_transitions((2, 3, 2), (7,), op, other), 25), "int32")


@pytest.mark.parametrize("sizes", MESHES, ids=str)
def test_averages_that_end_move_the_least(sizes: tuple[int, ...]) -> None:
    ends = [case for case in pending_transitions(sizes, (6, 6), "avg") if not case.dst.partial]
    check_least(sample(Random(str(sizes)), ends, 20), "float32")


@pytest.mark.parametrize("op", ["avg", "sum"])
@pytest.mark.parametrize("sizes", MESHES, ids=str)
def test_a_plan_to_a_pending_average_claims_no_more_than_is_known(sizes: tuple[int, ...], op: str) -> None:
    begin = [case for case in pending_transitions(sizes, (12,), op, "avg") if case.dst.partial]
    for comparison in compare(sample(Random(str(sizes) + op), begin, 20), "float32"):
        # The least is that of devices that scale: who replicates an average instead moves as much or more.
        assert comparison.bound <= comparison.least <= comparison.received, comparison
        assert not comparison.is_claimed, comparison


@pytest.mark.parametrize("op", ["sum", "max"])
def test_transitions_between_meshes_move_the_least(op: str) -> None:
    check_least(pending_transitions_between_meshes(Random(op), 100, op), "int32")


@pytest.mark.long
@pytest.mark.parametrize("op", ["sum", "prod", "bxor", "max", "min", "band", "bor"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("sizes", MESHES, ids=str)
def test_all_transitions_of_a_mesh_move_the_least(sizes: tuple[int, ...], shape: tuple[int, ...], op: str) -> None:
    check_least(pending_transitions(sizes, shape, op), "int32")


@pytest.mark.long
@pytest.mark.parametrize(
    ("op", "other"), [("sum", "sum"), ("max", "max"), ("sum", "max"), ("max", "sum"), ("bor", "band")]
)
def test_many_transitions_between_meshes_move_the_least(op: str, other: str) -> None:
    check_least(pending_transitions_between_meshes(Random(op + other), 5000, op, other), "int32")
