"""Figures: README and docs say what the committed run says, and nothing that was measured is written by hand."""

import pytest

from benchmarks.areas import NAMES
from benchmarks.report import ReportError, read
from benchmarks.tables import conditions
from tests.benchmarks.cases import report
from tools.figures import PAGE, ROOT, RUN, benchmarks_page, figure, filled, pages, stale, unmarked

COMMITTED = read(RUN)


def test_all_pages_are_those_of_the_committed_run():
    late = [page.relative_to(ROOT).as_posix() for page in stale(COMMITTED)]
    assert not late, f"{', '.join(late)}: not what benchmarks/results/full.json says; run `make figures`"


def test_the_committed_run_is_whole():
    assert not COMMITTED.failed
    assert COMMITTED.effort == "full"
    assert {row.area for row in COMMITTED.rows} == set(NAMES)
    keys = [row.key for row in COMMITTED.rows]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_nothing_measured_is_written_by_hand(page):
    assert unmarked(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("takes 3.5 µs or 20 ms", ["3.5 µs", "20 ms"]),
        ("is 4 times faster, 3x slower, 2.5× as fast", ["4 times fast", "3x slow", "2.5× as fast"]),
        ("a tenth of a millisecond", ["a tenth of a millisecond"]),
        ("```\ntime 346 us\n```\nand `178 us`", []),
        ("<!-- figure: ours a; b -->3 ms<!-- /figure -->", []),
        ("within 5 seconds, 2 times the bytes, 64 MiB, 8x16", []),
    ],
)
def test_what_looks_measured(text, found):
    assert unmarked(text) == found


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("ours local; S0 -> S1; warm", "2 ms"),
        ("floor local; S0 -> S1; warm", "1 ms"),
        ("ratio local; S0 -> S1; warm", "2×"),
        ('"JAX jit" local; S0 -> S1; warm', "4 ms"),
        ('against "JAX jit" local; S0 -> S1; warm', "2×"),
        ('mean "DTensor" local', "4×"),
        ("machine", str(report().machine)),
        ("run", conditions(report())),
    ],
)
def test_each_kind_of_figure(key, text):
    assert figure(report(), key) == text
    page = f"It is <!-- figure: {key} -->old<!-- /figure -->, yes."
    assert filled(page, report()) == f"It is <!-- figure: {key} -->{text}<!-- /figure -->, yes."


def test_a_table_and_plots_stand_alone():
    table = figure(report(), "table local")
    assert table.startswith("\n\n| row | size | mesh |")
    line = next(line for line in table.splitlines() if line.startswith(r"| [x\|y] -> R"))
    assert (
        line.replace("\u00a0", " ") == r"| [x\|y] -> R | 4 MiB | 2x4 | warm | 2 ms ±10% | – | – | 1 ms ±10% | 2× |  |"
    )
    assert figure(report(), "table traffic").strip().splitlines()[0] == "| row | size | mesh | ours |"
    assert "cold" not in figure(report(), "table local; warm")
    assert figure(report(), "plots growth").count("<svg") == 1


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ('"MPI" local; S0 -> S1; warm', "has no peer 'MPI'; it has DTensor, JAX jit"),
        ("table locale", "no rows for 'table' are 'locale'.\n  areas: traffic, local, growth"),
        ("theirs local; S0 -> S1; warm", "the figure 'theirs local; S0 -> S1; warm' is none: ours, floor, ratio"),
        ("ours local; S9", "0 rows are 'local; S9'"),
    ],
)
def test_figures_that_are_none(key, message):
    with pytest.raises(ReportError) as caught:
        figure(report(), key)
    assert message in str(caught.value)


def test_the_page_of_results_names_all_areas_and_the_schema():
    text = benchmarks_page(report()).replace("\u00a0", " ")
    for words in ("## Bytes against the lower bound", "## How it grows", "## The report as JSON", "won 2× (JAX jit)"):
        assert words in text
    assert PAGE.exists()
