"""Traffic as it is drawn: the flows of a step are its transfers, and large groups are told in words."""

import pytest

from shardwise import Layout, plan_reshard
from shardwise.pictures.plan import unit_of
from shardwise.pictures.traffic import MOST_LISTED, MOST_SENDERS, rounds, sentence
from tests.plan.cases import mesh_of


def transfers(step) -> dict[tuple[int, int], int]:
    out: dict[tuple[int, int], int] = {}
    for device in range(step.slots.count):
        for t in step.transfers(device):
            if t.target == device:
                out[t.source, t.target] = out.get((t.source, t.target), 0) + t.size * step.itemsize
    return out


@pytest.mark.parametrize(
    ("sizes", "src", "dst"),
    [((4,), ["x", None], [None, "x"]), ((2, 3), ["y", None], [None, None]), ((4, 4), ["x", "y"], ["y", "x"])],
)
def test_all_devices_of_a_small_mesh_are_shown(sizes, src, dst) -> None:
    mesh = mesh_of(*sizes)
    (step,) = plan_reshard(Layout(mesh, src), Layout(mesh, dst), (12, 12), "int16").steps
    (found,) = rounds(step)
    assert found.is_whole
    assert found.slots == tuple(range(mesh.num_devices))
    want = transfers(step)
    assert {pair: found.bytes(*pair) for pair in found.flows} == want
    assert found.most == max(want.values())
    assert found.bytes(0, 0) == 0
    assert found.title == f"all {mesh.num_devices} devices"
    assert not found.reduces
    assert found.name(0) == "0"


def test_both_rounds_of_an_all_reduce() -> None:
    mesh = mesh_of(4)
    (step,) = plan_reshard(Layout(mesh, [None], ["x"]), Layout(mesh, [None]), (8,), "int8").steps
    first, second = rounds(step)
    assert (first.title, second.title) == ("round 1 of 2, all 4 devices", "round 2 of 2, all 4 devices")
    assert (first.reduces, second.reduces) == (True, False)
    back = rounds(step.adjoint)
    assert [r.reduces for r in back] == [False, True]
    assert {(b, a): found for (a, b), found in second.flows.items()} == back[0].flows


def test_of_a_large_mesh_one_group_is_shown() -> None:
    mesh = mesh_of(2, 16)
    (step,) = plan_reshard(Layout(mesh, ["x", None]), Layout(mesh, [None, None]), (32, 4), "int8").steps
    (found,) = rounds(step)
    assert not found.is_whole
    assert found.slots == (0, 16)
    assert found.title == "one group of 2 devices, of 16"
    want = transfers(step)
    assert {pair: found.bytes(*pair) for pair in found.flows} == {p: n for p, n in want.items() if set(p) <= {0, 16}}


def test_a_large_group_is_told_in_words() -> None:
    mesh = mesh_of(2, MOST_SENDERS + 1)
    (step,) = plan_reshard(Layout(mesh, ["y"]), Layout(mesh, [None]), (17,), "int32").steps
    (found,) = rounds(step)
    assert found.slots == ()
    assert found.title == f"groups of {MOST_SENDERS + 1} devices, 2 of them"
    assert len(found.listed) == MOST_LISTED
    assert sentence(found, found.listed[0]) == "1 → 0: [1:2], 4 B"
    assert found.most == 0


def test_sizes_are_written_in_the_largest_unit_that_fits() -> None:
    units = {0: "B", 1023: "B", 1024: "KiB", 1024**2 - 1: "KiB", 1024**2: "MiB", 1024**3: "GiB", 1024**4: "TiB"}
    assert {size: unit_of(size)[0] for size in units} == units
    assert unit_of(1024**7) == ("PiB", 1024**5)
    assert unit_of(5000) == ("KiB", 1024)
