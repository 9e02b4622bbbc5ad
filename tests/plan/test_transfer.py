"""Boxes cut into pieces and portions are the box again."""

from math import prod

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shardwise import Transfer
from shardwise.layout.tiling import box_size
from shardwise.plan.transfer import grain_of, pieces, portion
from tests.layout.oracle import Box, slices

SIZE = 9
BOXES = st.lists(st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)), max_size=3).map(
    lambda ends: tuple((min(e), max(e)) for e in ends)
)


def marked(boxes: list[Box], rank: int) -> np.ndarray:
    count = np.zeros([SIZE] * rank, dtype=int)
    for box in boxes:
        count[slices(box)] += 1
    return count


@given(BOXES, st.data())
def test_pieces_make_up_the_box_and_are_no_longer_than_the_grain(box, data):
    grain = data.draw(st.lists(st.integers(1, SIZE), min_size=len(box), max_size=len(box)))
    found = list(pieces(box, grain))
    assert (marked(found, len(box)) == marked([box], len(box))).all()
    assert all(stop - start <= most for one in found for (start, stop), most in zip(one, grain, strict=True))


@given(st.lists(st.integers(1, SIZE), max_size=4), st.integers(1, 100))
def test_a_grain_has_as_many_elements_as_are_allowed_and_cuts_leading_dims_first(largest, most):
    grain = grain_of(largest, most)
    assert prod(grain) <= most
    assert all(1 <= g <= size for g, size in zip(grain, largest, strict=True))
    whole = next((k for k in range(len(grain)) if grain[k:] == tuple(largest[k:])), len(grain))
    assert all(g == 1 for g in grain[: max(0, whole - 1)])


@given(st.lists(st.integers(0, SIZE), max_size=4), st.integers(1, 100))
def test_a_grain_cuts_even_where_a_dim_is_empty(largest, most):
    assert min(grain_of(largest, most), default=1) >= 1


@given(BOXES, st.integers(1, 12))
def test_portions_make_up_the_box_nearly_equally(box, count):
    found = [portion(box, count, i) for i in range(count)]
    whole = [one for one in found if len(one) == len(box)]
    assert (marked(whole, len(box)) == marked([box], len(box))).all()
    assert sum(map(box_size, found)) == box_size(box)
    if len(box) == 1:
        assert max(map(box_size, found)) - min(map(box_size, found)) <= 1


@given(st.lists(st.integers(1, SIZE), min_size=2, max_size=4), st.sampled_from([2, 3, 5, 7]))
def test_a_box_is_cut_along_its_first_dim_if_that_divides_and_else_along_its_longest(lengths, count):
    found = [portion(tuple((0, size) for size in lengths), count, i) for i in range(count)]
    cut = {dim for dim in range(len(lengths)) if len({box[dim] for box in found}) > 1}
    first = next((dim for dim, size in enumerate(lengths) if size > 1), 0)
    assert cut == {first if lengths[first] % count == 0 else lengths.index(max(lengths))}


@given(st.sampled_from([4, 6, 9, 10, 15]), st.integers(5, SIZE))
def test_the_factors_of_a_count_go_to_the_longest_pieces(count, size):
    # A square that the count does not divide is cut both ways, so that portions have short sides.
    if size % count == 0:
        return
    found = [portion(((0, size), (0, size)), count, i) for i in range(count)]
    cuts = [len({box[dim] for box in found}) for dim in range(2)]
    big = max(p for p in (2, 3, 5) if count % p == 0)
    assert cuts == [big, count // big]


def test_a_transfer_counts_its_elements():
    assert Transfer(0, 1, ((0, 2), (3, 6))).size == 6
