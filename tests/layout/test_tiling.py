"""Intervals and boxes against NumPy, element by element."""

from collections.abc import Iterator
from itertools import accumulate, combinations_with_replacement, pairwise, product
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise import BindingError
from shardwise.layout.tiling import DimTiling, Tiling, box_size, intersect, subtract, tile_of
from tests.layout.oracle import Box, lengths, slices
from tests.layout.strategies import bound_layouts, cuts

SIZE = 7


@st.composite
def dim_tilings(draw: st.DrawFn) -> DimTiling:
    parts, size = draw(st.integers(1, 30)), draw(st.integers(0, 40))
    return DimTiling(size, parts, **draw(cuts(parts, size)))


@st.composite
def boxes(draw: st.DrawFn, rank: int) -> Box:
    ends = st.lists(st.integers(0, SIZE), min_size=2, max_size=2)
    return tuple((min(e), max(e)) for e in (draw(ends) for _ in range(rank)))


def marked(*boxes: Box, rank: int) -> np.ndarray:
    """How often each element of a small tensor is in one of the boxes."""
    count = np.zeros([SIZE] * rank, dtype=int)
    for box in boxes:
        count[slices(box)] += 1
    return count


@given(dim_tilings())
def test_intervals_are_consecutive_and_as_long_as_they_should_be(dim):
    found = [dim.interval(part) for part in range(dim.parts)]
    assert [stop - start for start, stop in found] == lengths(dim.size, dim.parts, dim.split, dim.offsets)
    assert [0, *(stop for _, stop in found)] == [*(start for start, _ in found), dim.size]
    assert dim.is_even == (len({stop - start for start, stop in found}) == 1)


@given(dim_tilings())
def test_every_element_knows_its_part(dim):
    for position in range(dim.size):
        start, stop = dim.interval(dim.part_of(position))
        assert start <= position < stop


@given(dim_tilings(), st.integers(0, 40), st.integers(0, 40))
def test_the_parts_over_an_interval_are_those_that_meet_it(dim, a, b):
    start, stop = min(a, b, dim.size), min(max(a, b), dim.size)
    meeting = [p for p in range(dim.parts) if intersect((dim.interval(p),), ((start, stop),))]
    found = dim.over(start, stop)
    assert set(meeting) <= set(found)
    empty = {p for p in found if dim.interval(p)[0] == dim.interval(p)[1]}
    assert set(found) - empty == set(meeting)


@given(dim_tilings())
def test_the_largest_is_the_longest_held_interval(dim):
    dim.check("dim 0")
    assert dim.largest == max(stop - start for start, stop in map(dim.extent, range(dim.parts)))


@given(
    st.integers(1, 12),
    st.integers(0, 30),
    st.sampled_from(["balanced", "chunk"]),
    st.integers(0, 4),
    st.integers(0, 4),
)
def test_a_halo_fits_exactly_when_the_neighbours_have_it(parts, size, split: Any, low, high):
    own = lengths(size, parts, split)
    fits = low <= min(own[:-1], default=9) and high <= min(own[1:], default=9)
    dim = DimTiling(size, parts, split, halo=(low, high))
    if fits:
        dim.check("dim 0")
        return
    with pytest.raises(BindingError, match=r"halo of dim 0 is \d+ wide"):
        dim.check("dim 0")


@given(st.data())
def test_boxes_intersect_and_subtract_like_sets(data):
    rank = data.draw(st.integers(0, 3))
    a, b = data.draw(boxes(rank)), data.draw(boxes(rank))
    common = intersect(a, b)
    both = (marked(a, rank=rank) > 0) & (marked(b, rank=rank) > 0)
    assert (common is not None) == bool(both.any())
    if common is not None:
        assert np.array_equal(marked(common, rank=rank), both)
    assert intersect(b, a) == common
    left = subtract(a, b)
    assert np.array_equal(marked(*left, rank=rank), (marked(a, rank=rank) > 0) & ~both)
    assert all(box_size(box) for box in left)
    assert sum(map(box_size, left)) == box_size(a) - (0 if common is None else box_size(common))
    assert sum(map(box_size, subtract(a, None))) == box_size(a) == prod(stop - start for start, stop in a)


def test_boxes_of_no_dims_have_one_element():
    assert box_size(()) == 1
    assert intersect((), ()) == ()
    assert subtract((), ()) == []
    assert subtract((), None) == [()]


@given(bound_layouts())
def test_tiles_and_digits(case):
    tiling = case.layout.tiling(case.shape)
    tiles = list(tiling.tiles())
    assert tiles == [tuple(map(int, t)) for t in np.ndindex(*(dim.parts for dim in tiling.dims))]
    assert tiling.bounds == tuple((0, size) for size in case.shape)
    for device in range(case.layout.mesh.num_devices):
        tile = tiling.tile(device)
        assert tiling.tile_box(tile) == tiling.box(device)
        for divisor, at in tiling.digits(tile).items():
            size = next(s for axes in tiling.radix for d, s in axes if d == divisor)
            assert device // divisor % size == at
    assert set(tiling.over(tiling.bounds)) >= {t for t in tiles if box_size(tiling.tile_box(t))}


def test_zero_elements_over_many_parts():
    for split in ("balanced", "chunk"):
        dim = DimTiling(0, 4, split)
        assert [dim.interval(p) for p in range(4)] == [(0, 0)] * 4
        assert dim.over(0, 0) == range(0)
        assert dim.largest == 0


# -- every small dim ---------------------------------------------------------------------------------


def small_dims(most_parts: int = 4, most: int = 5) -> Iterator[DimTiling]:
    """Every dim of a few elements and parts, cut in every way, with every small halo that fits."""
    for parts, size in product(range(1, most_parts + 1), range(most + 1)):
        inner = combinations_with_replacement(range(size + 1), parts - 1)
        ways: list[tuple[Any, Any]] = [
            ("balanced", None),
            ("chunk", None),
            *(("offsets", (0, *i, size)) for i in inner),
        ]
        for (split, offsets), low, high, edge in product(ways, range(3), range(3), ("clip", "pad")):
            own = lengths(size, parts, split, offsets)
            if low <= min(own[:-1], default=9) and high <= min(own[1:], default=9):
                yield DimTiling(size, parts, split, offsets, (low, high), edge)


DIMS = list(small_dims())


def bounds(dim: DimTiling) -> list[tuple[int, int]]:
    """What each part owns, from the lengths alone."""
    ends = [0, *accumulate(lengths(dim.size, dim.parts, dim.split, dim.offsets))]
    return list(pairwise(ends))


def reach(dim: DimTiling, part: int) -> tuple[int, int]:
    """What a part holds: a halo on each side, but none outside of the dim unless it is padded."""
    (start, stop), (low, high) = bounds(dim)[part], dim.halo
    first, last = part == 0, part == dim.parts - 1
    pads = dim.edge == "pad"
    return start - (0 if first and not pads else low), stop + (0 if last and not pads else high)


def test_every_small_dim_owns_and_holds_what_the_definitions_say() -> None:
    assert len(DIMS) > 1000
    for dim in DIMS:
        dim.check("dim 0")
        owned, held = bounds(dim), [reach(dim, part) for part in range(dim.parts)]
        assert [dim.interval(part) for part in range(dim.parts)] == owned
        assert [dim.extent(part) for part in range(dim.parts)] == held
        assert dim.largest == max(stop - start for start, stop in held)
        assert dim.is_even == (len({stop - start for start, stop in owned}) == 1)
        for position in range(dim.size):
            (want,) = [part for part, (start, stop) in enumerate(owned) if start <= position < stop]
            assert dim.part_of(position) == want


def test_who_holds_some_of_an_interval_is_found_exactly() -> None:
    for dim in DIMS:
        held = [dim.extent(part) for part in range(dim.parts)]
        for start in range(dim.size):
            for stop in range(start + 1, dim.size + 1):
                meeting = {part for part, (a, b) in enumerate(held) if max(a, start) < min(b, stop)}
                found = dim.holding(start, stop)
                assert meeting <= set(found), (dim, start, stop)
                assert {p for p in found if held[p][0] < held[p][1]} == meeting, (dim, start, stop)
                assert found.start in meeting
                assert found.stop - 1 in meeting
            assert dim.over(start, start) == range(0)


def test_the_first_and_last_part_over_an_interval_meet_it() -> None:
    for dim in DIMS:
        owned = bounds(dim)
        for start in range(dim.size):
            for stop in range(start + 1, dim.size + 1):
                meeting = [part for part, (a, b) in enumerate(owned) if max(a, start) < min(b, stop)]
                assert dim.over(start, stop) == range(meeting[0], meeting[-1] + 1)


def test_a_dim_is_balanced_without_halos_unless_said_otherwise() -> None:
    dim = DimTiling(5, 2)
    assert (dim.split, dim.offsets, dim.halo, dim.edge) == ("balanced", None, (0, 0), "clip")


@pytest.mark.parametrize(
    ("dim", "side", "width", "smallest"),
    [
        (DimTiling(7, 3, halo=(3, 0)), "low", 3, 2),  # 3, 2, 2: the last gives nobody its end
        (DimTiling(7, 3, halo=(0, 3)), "high", 3, 2),
        (DimTiling(5, 3, "chunk", halo=(0, 2)), "high", 2, 1),  # 2, 2, 1
        (DimTiling(5, 4, "chunk", halo=(0, 1)), "high", 1, 0),  # 2, 2, 1, 0
        (DimTiling(5, 4, "chunk", halo=(2, 0)), "low", 2, 1),
        (DimTiling(6, 3, "offsets", (0, 4, 5, 6), (2, 0)), "low", 2, 1),
        (DimTiling(9, 4, "offsets", (0, 3, 4, 7, 9), (0, 2)), "high", 2, 1),
    ],
)
def test_a_halo_that_is_too_wide_says_how_wide_it_may_be(dim: DimTiling, side: str, width: int, smallest: int) -> None:
    with pytest.raises(BindingError) as caught:
        dim.check("dim 2")
    assert str(caught.value) == (
        f"the {side} halo of dim 2 is {width} wide, but a neighbour's shard has only {smallest} of the {dim.size} "
        f"elements.\n  use a halo of at most {smallest}, or fewer devices."
    )


def test_a_halo_may_be_as_wide_as_the_neighbour_and_wider_than_who_gives_none() -> None:
    DimTiling(5, 3, "chunk", halo=(2, 1)).check("dim 0")  # 2, 2, 1: the last one gives its 1, the others 2
    DimTiling(5, 4, "chunk", halo=(1, 0)).check("dim 0")  # 2, 2, 1, 0
    DimTiling(6, 2, "offsets", (0, 6, 6), (6, 0)).check("dim 0")
    DimTiling(3, 1, halo=(9, 9)).check("dim 0")  # one part has no neighbours


def test_offsets_must_end_at_the_size() -> None:
    DimTiling(8, 2, "offsets", (0, 3, 8)).check("dim 0")
    for last in (7, 9):
        with pytest.raises(BindingError) as caught:
            DimTiling(8, 2, "offsets", (0, 3, last)).check("dim 1")
        assert str(caught.value) == (f"the offsets (0, 3, {last}) of dim 1 must end at its size 8, they end at {last}.")


def test_a_tile_is_read_from_the_positions_of_a_device_major_to_minor() -> None:
    # A mesh of 2 x 3 x 4: dim 0 is cut by the last axis and then the first, dim 1 by none, dim 2 by the second.
    radix = (((1, 4), (12, 2)), (), ((4, 3),))
    dims = (DimTiling(16, 8), DimTiling(5, 1), DimTiling(7, 3, halo=(1, 1)))
    tiling = Tiling(dims, radix)
    for device, (x, y, z) in enumerate(product(range(2), range(3), range(4))):
        tile = (z * 2 + x, 0, y)
        assert tile_of(radix, device) == tiling.tile(device) == tile
        assert tiling.digits(tile) == {1: z, 12: x, 4: y}
        assert tiling.box(device) == ((2 * tile[0], 2 * tile[0] + 2), (0, 5), [(0, 3), (3, 5), (5, 7)][y])
        assert tiling.held_box(device) == (*tiling.box(device)[:2], [(0, 4), (2, 6), (4, 7)][y])
    assert tiling.largest == (2, 5, 4)
    assert tiling.bounds == ((0, 16), (0, 5), (0, 7))
    assert list(tiling.over(((3, 5), (0, 5), (2, 3)))) == [(1, 0, 0), (2, 0, 0)]
    assert list(tiling.over(((3, 3), (0, 5), (2, 3)))) == []
