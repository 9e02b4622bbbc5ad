"""Every change of sharding, partitioned and run: each device gets its part, and nothing is sent that need not be."""

import pytest

from tests.ir.passes.transitions import GRIDS, check, shape_for, transitions

# A grid, a shape, and both shardings; every transition on an even and on an uneven shape.
EVERY = [
    (grid, shape_for(grid, rank, even), src, dst)
    for grid in GRIDS
    for rank in (1, 2, 3)
    for src, dst in transitions(grid, rank)
    for even in (True, False)
]
# A tenth, the shapes taking turns, with all grids, ranks and kinds of steps among them.
SOME = EVERY[::21]
BATCHES = 50


def test_there_are_thousands():
    # Upstream is right in 5, 46, 130 and 363 of these.
    cases = (((2,), 2), ((2, 3), 2), ((2, 3), 3), ((2, 2, 2), 2))
    assert [len(list(transitions(*case))) for case in cases] == [6, 110, 342, 2352]
    assert len(EVERY) == 2 * 14686
    assert len(SOME) > 1390


@pytest.mark.parametrize("batch", range(10))
def test_a_tenth_of_all_transitions(batch):
    for case in SOME[batch::10]:
        check(*case)


@pytest.mark.long
@pytest.mark.parametrize("batch", range(BATCHES))
def test_all_transitions(batch):
    for case in EVERY[batch::BATCHES]:
        check(*case)
