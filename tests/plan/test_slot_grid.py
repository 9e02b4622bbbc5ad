"""Slots along axes are those that lists of them say."""

from itertools import product
from random import Random

import numpy as np
import pytest

from shardwise import DeviceMesh
from shardwise.layout.axis import Axis, has_crossing
from shardwise.plan.slot_grid import Digits, SlotGrid, common_digits, find_alike, project
from tests.plan.cases import factored


def grids(seed: int, sizes: tuple[int, ...]) -> list[tuple[SlotGrid, tuple[Axis, ...]]]:
    """Grids along some axes of a mesh, in any order, from any slot at position 0."""
    rng, out = Random(seed), []
    mesh = DeviceMesh(sizes, tuple("xyz"[: len(sizes)]))
    for axes in factored(mesh):
        some = tuple(rng.sample(list(axes), rng.randint(0, len(axes))))
        digits = tuple((mesh.divisor(a), a.size) for a in some)
        slot = rng.randrange(mesh.num_devices)
        out.append((SlotGrid(slot - project(digits, slot), digits), some))
    return out


def listed(grid: SlotGrid) -> list[int]:
    ranges = [range(0, divisor * size, divisor) for divisor, size in grid.digits]
    return [grid.first + sum(steps) for steps in product(*ranges)]


MESHES = [(12,), (2, 6), (2, 2, 3), (4, 4)]


@pytest.mark.parametrize("sizes", MESHES)
def test_a_grid_is_the_list_of_its_slots(sizes: tuple[int, ...]) -> None:
    for seed in range(3):
        for grid, _ in grids(seed, sizes):
            slots, rng = listed(grid), Random(seed)
            assert list(grid) == slots == [grid[i] for i in range(len(grid))] == grid.array.tolist()
            assert grid == slots
            assert grid[-1] == slots[-1]
            assert (grid == slots[1:], grid == [*slots[:-1], 99], grid == "slots") == (False, False, False)
            assert [slot in grid for slot in range(-1, 30)] == [slot in slots for slot in range(-1, 30)]
            assert [grid.index(slot) for slot in slots] == list(range(len(slots)))
            low, high = sorted(rng.randrange(len(slots) + 1) for _ in range(2))
            part, want = grid[low:high], slots[low:high]
            assert list(part) == want == part.array.tolist() == [part[i] for i in range(len(part))]
            assert part == want
            assert len(part) == len(want)
            assert [slot in part for slot in slots] == [slot in want for slot in slots]
            assert [part.index(slot) for slot in want] == list(range(len(want)))
            with pytest.raises(IndexError):
                grid[len(slots)]


@pytest.mark.parametrize("sizes", MESHES)
def test_grids_have_in_common_what_both_list(sizes: tuple[int, ...]) -> None:
    crossed = 0
    for (a, some), (b, others) in product(grids(1, sizes), grids(2, sizes)):
        both = a.intersect(b)
        assert list(both) == [slot for slot in a if slot in listed(b)]
        assert list(a[1:].intersect(b)) == [slot for slot in listed(a)[1:] if slot in listed(b)]
        shared = common_digits(a.digits, b.digits)
        crossed += shared is None
        assert (shared is None) == has_crossing(some, others)
        assert shared is None or isinstance(both, SlotGrid) or both == ()
    if sizes in ((12,), (4, 4)):  # the factors of 4 nest, those of 12 may not
        assert (crossed > 0) == (sizes == (12,))


@pytest.mark.parametrize("sizes", MESHES)
def test_slots_at_the_same_position_are_found(sizes: tuple[int, ...]) -> None:
    for (a, _), (b, _) in product(grids(3, sizes), grids(4, sizes)):
        digits: Digits = b.digits
        for like in (0, 7, 11):
            want = [i for i, slot in enumerate(a) if project(digits, slot) == project(digits, like)]
            for slots in (a, list(a)):
                found = find_alike(slots, digits, like)
                assert (list(range(len(a))) if found is None else found.tolist()) == want


def test_a_slot_that_is_not_there_is_named() -> None:
    with pytest.raises(
        ValueError, match=r"^slot 1 is not in SlotGrid\(first=0, digits=\(\(2, 2\),\), window=None\)\.$"
    ):
        SlotGrid(0, ((2, 2),)).index(1)


def test_a_million_slots_are_not_listed() -> None:
    grid, other = SlotGrid(0, ((2**10, 2**30), (1, 2**10))), SlotGrid(5, ((2**20, 2**20),))
    assert len(grid) == 2**40
    assert grid[2**39] == 2**39
    both = grid.intersect(other)
    assert isinstance(both, SlotGrid)
    assert (len(both), both[3], both.index(5 + 2**22)) == (2**20, 5 + 3 * 2**20, 4)
    assert np.array_equal(SlotGrid(3, ((1, 4),)).array, [3, 4, 5, 6])
