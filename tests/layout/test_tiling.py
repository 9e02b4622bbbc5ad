"""Intervals and boxes against NumPy, element by element."""

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise import BindingError
from shardwise.layout.tiling import DimTiling, box_size, intersect, subtract
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
    assert dim.largest == max(stop - start for start, stop in map(dim.held, range(dim.parts)))


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
        assert tiling.owned(tile) == tiling.box(device)
        for divisor, at in tiling.digits(tile).items():
            size = next(s for axes in tiling.radix for d, s in axes if d == divisor)
            assert device // divisor % size == at
    assert set(tiling.over(tiling.bounds)) >= {t for t in tiles if box_size(tiling.owned(t))}


def test_zero_elements_over_many_parts():
    for split in ("balanced", "chunk"):
        dim = DimTiling(0, 4, split)
        assert [dim.interval(p) for p in range(4)] == [(0, 0)] * 4
        assert dim.over(0, 0) == range(0)
        assert dim.largest == 0
