"""Boxes with sources: whatever is done to them, every element comes from where it came from, and all is counted."""

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shardwise.engine.boxes import PlacedBox, group_rows, make_disjoint, merge_neighbours
from shardwise.layout.tiling import Box

SIDE = 6


@st.composite
def placed_lists(draw: st.DrawFn) -> list[PlacedBox]:
    """Boxes in a small tensor, which may overlap, each from one of a few sources."""
    rank = draw(st.integers(1, 3))
    ends = st.tuples(st.integers(0, SIDE - 1), st.integers(1, SIDE)).map(lambda e: (min(e[0], e[1] - 1), e[1]))
    out = []
    for _ in range(draw(st.integers(1, 8))):
        box = tuple(draw(ends) for _ in range(rank))
        out.append(PlacedBox(box, (draw(st.integers(0, 2)),), {"permute": draw(st.integers(0, 9))}))
    return out


def elements(box: Box) -> set[tuple[int, ...]]:
    return set(product(*(range(start, stop) for start, stop in box)))


def sources(parts: list[PlacedBox]) -> dict[tuple[int, ...], set[int]]:
    out: dict[tuple[int, ...], set[int]] = {}
    for part in parts:
        for element in elements(part.box):
            out.setdefault(element, set()).update(part.sources)
    return out


def total(parts: list[PlacedBox]) -> int:
    return sum(sum(part.traffic.values()) for part in parts)


@given(placed_lists())
def test_merging_keeps_elements_sources_and_counts(parts: list[PlacedBox]) -> None:
    found = merge_neighbours(parts)
    assert sources(found) == sources(parts)
    assert total(found) == total(parts)
    assert len(found) <= len(parts)


@given(placed_lists())
def test_disjoint_boxes_cover_each_element_once_from_one_of_its_sources(parts: list[PlacedBox]) -> None:
    before = sources(parts)
    found = make_disjoint(parts)
    counts = np.zeros((SIDE,) * len(parts[0].box), int)
    for part in found:
        counts[tuple(slice(*span) for span in part.box)] += 1
        assert all(set(part.sources) <= before[element] for element in elements(part.box))
    assert counts.max() == 1
    assert counts.sum() == len(before)
    assert total(found) == total(parts)


@given(placed_lists())
def test_joined_boxes_fill_their_outer_box_in_order(parts: list[PlacedBox]) -> None:
    apart = make_disjoint(parts)
    groups = group_rows(apart)
    assert sorted(id(part) for _, _, group in groups for part in group) == sorted(map(id, apart))
    for box, dim, group in groups:
        assert elements(box) == set().union(*(elements(part.box) for part in group))
        assert [part.box[dim][0] for part in group[1:]] == [part.box[dim][1] for part in group[:-1]]


def test_what_is_received_without_a_copy_is_counted_with_the_box_it_lies_in() -> None:
    sums, copy = PlacedBox(((0, 4),), (1, 2), {"reduce_scatter": 3}), PlacedBox(((1, 2),), (), {"all_gather": 5})
    (part,) = make_disjoint([sums, copy])
    assert part.traffic == {"reduce_scatter": 3, "all_gather": 5}


def test_a_scalar_is_a_box_without_dims() -> None:
    assert group_rows([PlacedBox((), (0,))]) == [((), 0, [PlacedBox((), (0,))])]
    assert merge_neighbours([]) == make_disjoint([]) == group_rows([]) == []


def test_a_grid_is_joined_along_the_dim_that_makes_fewest_groups() -> None:
    grid = [PlacedBox(((i, i + 1), (j, j + 1)), (2 * i + j,)) for i in range(2) for j in range(5)]
    assert [dim for _, dim, _ in group_rows(grid)] == [1, 1]
