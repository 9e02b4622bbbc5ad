"""The page on planning: its examples run, and its figures are those of the benchmark's results."""

import doctest
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "planning.md"
RESULTS = json.loads((ROOT / "benchmarks" / "results" / "planning.json").read_text())


def test_the_examples_run():
    found = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.attempted > 8
    assert found.failed == 0


@pytest.mark.parametrize("row", RESULTS["times"], ids=lambda row: str(row["mesh"]))
def test_the_times_are_those_measured(row):
    cells = ["x".join(map(str, row["mesh"]))]
    for who in ("shardwise", "greedy", "graph"):
        found = row.get(who)
        more = ">" if found and found["stopped"] else ""
        cells += [short(found["median"] * 1e3), more + short(found["worst"] * 1e3)] if found else ["-", "-"]
    assert f"| {' | '.join(cells)} |" in PAGE.read_text()


@pytest.mark.parametrize("row", RESULTS["bytes"], ids=lambda row: f"{row['mesh']} {row['partial']}")
def test_the_bytes_are_those_counted(row):
    cells = [
        "x".join(map(str, row["mesh"])),
        "partial" if row["partial"] else "whole",
        short(row["shardwise"]["total"]),
    ]
    cells += [short(row[who][what]) for who in ("greedy", "graph") for what in ("total", "worst")]
    assert f"| {' | '.join(cells)} |" in PAGE.read_text()


def test_the_small_things_are_those_measured():
    for name in ("a plan made before", "a layout on it", "one device's box"):
        assert f"{RESULTS['small'][name] * 1e6:.2g} µs" in PAGE.read_text()


def short(number: float) -> str:
    return f"{number:.3g}" if number < 1000 else f"{number:.0f}"
