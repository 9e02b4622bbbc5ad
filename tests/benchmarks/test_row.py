"""The form of rows: what is refused, what follows from their numbers, and that JSON gives them back."""

import json
from statistics import median

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchmarks.row import Floor, Measure, Row, counted
from tests.benchmarks.cases import rows, times

SECONDS = st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=40)


@given(SECONDS)
@example([205.14206377399867] * 2)  # of which a mean of quarters is rounded up
@example([0.1, *[205.14206377399867] * 6])
def test_a_measure_is_the_median_between_the_quartiles(values):
    found = Measure.of(values)
    assert found.median == pytest.approx(median(values))
    assert min(values) <= found.low <= found.median <= found.high <= max(values)
    assert found.count == len(values)
    assert sum(v <= found.low for v in values) >= 1
    assert sum(found.low <= v <= found.high for v in values) >= len(values) / 2 - 1


@pytest.mark.parametrize("numbers", [(2.0, 3.0, 4.0, 1), (2.0, 1.0, 1.5, 1), (-1.0, -1.0, 0.0, 1), (1.0, 1.0, 1.0, 0)])
def test_measures_that_are_none(numbers):
    with pytest.raises(ValueError, match="a Measure needs 0 <= low <= median <= high of at least one value"):
        Measure(*numbers)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"state": "hot"}, "a Row is one of warm, cold, count, got 'hot'"),
        ({"unit": "miles"}, "a Row is in one of seconds, bytes, times the bound, transitions, got 'miles'"),
        ({"checked": "perhaps"}, "a Row is checked 'equal' or 'failed: ...', got 'perhaps'"),
        ({"peers": {"A": counted(1)}, "missing": {"A": "?"}}, "peers are measured or missing, not both: A"),
    ],
)
def test_rows_that_are_none(change, message):
    fields = {"area": "local", "name": "a", "size": "", "mesh": "", "state": "warm", "unit": "seconds"}
    with pytest.raises(ValueError, match=message):
        Row(**(fields | {"ours": counted(1)} | change))


@given(st.floats(0.1, 10), st.floats(0.1, 10), st.floats(0.1, 10))
def test_what_follows_from_the_numbers(mine, theirs, least):
    peers = {"A": times(theirs), "B": times(2 * theirs)}
    row = Row("local", "a", "", "", "warm", "seconds", times(mine), peers, Floor("least", times(least)))
    assert row.ratio == mine / least
    assert row.best_peer == "A"
    assert row.versus("B") == 2 * theirs / mine
    assert row.versus("C") is None
    apart = 1.1 * mine < 0.9 * theirs or 1.1 * theirs < 0.9 * mine
    assert row.verdict == (("won" if mine < theirs else "lost") if apart else "even")


def test_without_peers_or_with_a_wrong_result_nothing_is_won():
    assert Row("local", "a", "", "", "warm", "seconds", times(1)).verdict == ""
    wrong = Row("local", "a", "", "", "warm", "seconds", times(1), {"A": times(9)}, checked="failed: A gives 2")
    assert (wrong.verdict, wrong.failed) == ("failed", True)


def test_json_gives_rows_back():
    for row in rows():
        assert Row.from_json(json.loads(json.dumps(row.to_json()))) == row
