"""Every change of sharding, partitioned and run: each device gets its part, and nothing is sent that need not be."""

import random

import pytest

from shardwise.ir.passes import partition
from tests.ir.passes.transitions import GRIDS, check, check_sums, module_of, shape_for, splits, transitions

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


def random_sums(seed: int, count: int) -> None:
    rng = random.Random(seed)
    for _ in range(count):
        grid, rank = rng.choice(GRIDS[1:]), rng.randint(1, 3)
        every = splits(len(grid), rank)
        src, dst = rng.choice(every), rng.choice(every)
        free = [a for a in range(len(grid)) if all(a not in axes for axes in src)]
        if free:
            partial = sorted(rng.sample(free, rng.randint(1, len(free))))
            check_sums(grid, shape_for(grid, rank, rng.random() < 0.5), src, partial, dst)


def test_sums_that_are_pending_are_taken_on_the_way():
    random_sums(0, 150)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 11))
def test_many_sums(seed):
    random_sums(seed, 400)


@pytest.mark.parametrize(
    ("src", "dst"),
    [
        (((0,), ()), ((), (0,))),
        (((0, 1), ()), ((), ())),
        (((), ()), ((1, 0), ())),
        (((0, 1), ()), ((1, 0), ())),
        (((0,), (1,)), ((1,), (0,))),
    ],
)
def test_a_quarter_of_a_million_devices_cost_what_eight_cost(src, dst):
    small, large = (partition(module_of((n, n), (n * n, n * n), src, dst)) for n in (2, 512))
    # The same ops with larger numbers in them.
    assert [op.name for op in small.walk()] == [op.name for op in large.walk()]
