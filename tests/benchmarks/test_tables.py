"""Tables: what they say about rows, and about the run."""

from dataclasses import replace

from benchmarks.tables import conditions, notes, summary
from tests.benchmarks.cases import report, rows


def test_notes_are_said_once_however_many_rows_have_them():
    row = replace(rows()[0], note="so it is")
    assert notes([row, replace(row, mesh="4x4")]) == [
        "whole, in all 72 transitions 2x2, whole, in all 72 transitions 4x4: so it is"
    ]
    many = [replace(row, mesh=str(n)) for n in range(7)]
    assert notes(many) == ["whole, in all 72 transitions 0 and 6 more: so it is"]
    assert notes([replace(rows()[1], checked="failed: A gives 2")]) == ["S0 -> S1 4 MiB 8: failed: A gives 2"]
    assert notes([rows()[3]]) == ["[x|y] -> R 4 MiB 2x4: JAX jit: ?"]


def test_a_busy_machine_is_named():
    assert "not to be relied on" not in conditions(report())
    assert "The machine was busy: times are not to be relied on." in conditions(replace(report(), load=1.5))


def test_the_summary_counts_how_rows_ended():
    assert summary(report()) == "7 rows in 1 s; against the best peer of each: 1 won, 0 even, 1 lost."
