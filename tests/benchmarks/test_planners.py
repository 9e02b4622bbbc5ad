"""DTensor's planners: their plans arrive, and their bytes are counted as collectives that are done well."""

import pytest

from benchmarks.planners import PLANNERS, arrives, fake_mesh, planner, received
from benchmarks.transitions import Transition, every

pytest.importorskip("torch")
BYTES = 16 * 16 * 4


@pytest.mark.parametrize(
    ("src", "dst", "total"),
    [
        ((0, "R"), ("R", "R"), 4 * BYTES // 2),  # each device lacks a half
        ((0, "R"), (1, "R"), 4 * BYTES // 4),
        (("R", "R"), (0, 1), 0),
        (("P", "R"), ("R", "R"), 4 * BYTES),  # half of the terms, and half of the sums
        (("P", "R"), (0, "R"), 4 * BYTES // 2),
        (("P", "P"), ("R", "R"), 4 * 2 * BYTES * 3 // 4),  # one all-reduce over four, not two over two
    ],
)
def test_the_bytes_of_collectives(src, dst, total):
    case = Transition((2, 2), src, dst, (16, 16))
    with fake_mesh(case.mesh) as mesh:
        infos = planner(mesh, case, graph=False)()
    assert received(case, infos) == total


@pytest.mark.parametrize("graph", PLANNERS.values(), ids=PLANNERS)
def test_all_plans_arrive(graph):
    cases = every((2, 2), False, (16, 16)) + every((2, 2), True, (16, 16))
    with fake_mesh((2, 2)) as mesh:
        for case in cases:
            infos = planner(mesh, case, graph)()
            assert arrives(case, infos)
            assert not infos or not arrives(case, infos[:-1])
