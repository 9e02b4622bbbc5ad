"""Unfoldings: which parts are drawn, and that there are never too many."""

from math import prod

from hypothesis import given
from hypothesis import strategies as st

from shardwise.pictures.unfolding import MOST_CELLS, MOST_PANELS, MOST_PARTS, unfold

COUNTS = st.lists(st.one_of(st.integers(1, 6), st.integers(1, 10**6)), max_size=8)


@given(COUNTS, st.integers(1, MOST_PARTS))
def test_parts_are_in_order_with_the_ends_kept(counts, most):
    for count, parts in zip(counts, unfold(counts, most).shown, strict=True):
        found = [part for part in parts if part is not None]
        assert found == sorted(set(found))
        assert (found[0], found[-1]) == (0, count - 1) or count == 1
        assert (None in parts) == (len(found) < count)
        assert parts.count(None) <= 1


@given(COUNTS)
def test_nothing_is_left_out_of_small_drawings(counts):
    if max(counts, default=1) <= MOST_PARTS and prod(counts) <= MOST_CELLS:
        assert unfold(counts).shown == tuple(tuple(range(count)) for count in counts)


@given(COUNTS)
def test_drawings_are_bounded(counts):
    found = unfold(counts)
    panels = found.panels
    assert 1 <= len(panels) <= MOST_PANELS + 1
    assert len(found.rows) <= MOST_PARTS + 1
    assert len(found.columns) <= MOST_PARTS + 1
    whole = [lead for lead in panels if None not in lead]
    real = [[part for part in parts if part is not None] for parts in (found.rows, found.columns)]
    if len(counts) <= 8:
        assert len(whole) * len(real[0]) * len(real[1]) <= max(MOST_CELLS, 4 * MOST_PANELS)
    left_out = prod(counts[:-2]) > len(whole)
    assert any(None in lead for lead in panels) == left_out
