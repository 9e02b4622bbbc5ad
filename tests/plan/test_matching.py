"""Matchings add up to the most of all ways to give each row a column of its own."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise.plan.matching import match


@st.composite
def tables(draw: st.DrawFn) -> list[list[int]]:
    columns = draw(st.integers(1, 5))
    row = st.lists(st.integers(0, 4), min_size=columns, max_size=columns)
    return draw(st.lists(row, max_size=columns))


@given(tables())
def test_no_other_way_adds_up_to_more(table: list[list[int]]) -> None:
    chosen = match(table)
    assert len(set(chosen)) == len(chosen) == len(table)
    ways = permutations(range(len(table[0])), len(table)) if table else [()]
    most = max(sum(row[column] for row, column in zip(table, way, strict=True)) for way in ways)
    assert sum(row[column] for row, column in zip(table, chosen, strict=True)) == most


@pytest.mark.parametrize(
    ("table", "want"),
    [
        ([], []),
        ([[7]], [0]),
        ([[0, 1], [0, 1]], {(0, 1), (1, 0)}),
        ([[5, 4, 0], [5, 0, 0], [4, 0, 3]], {(1, 0, 2)}),  # the first gives way
    ],
)
def test_named_tables(table: list[list[int]], want) -> None:
    assert match(table) == want if isinstance(want, list) else tuple(match(table)) in want
