"""`shardwise bench`: what it writes, and what it says where something is wrong."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.areas import AREAS
from benchmarks.row import Row, counted
from shardwise.cli import main
from tests.benchmarks.cases import report

WRONG = Row("local", "a", "", "", "warm", "seconds", counted(1), checked="failed: A gives 2")


@pytest.fixture
def ran(monkeypatch):
    """Which areas were asked for, and how; nothing is measured."""
    asked = []

    def run(areas, effort):
        asked.append(([area.name for area in areas], effort.name))
        return report()

    monkeypatch.setattr("benchmarks.run.run", run)
    return asked


def test_the_areas_are_listed():
    result = CliRunner().invoke(main, ["bench", "--list"])
    assert result.exit_code == 0, result.output
    assert [line.split()[0] for line in result.output.splitlines()] == [area.name for area in AREAS]


def test_a_report_is_shown_and_written(ran, tmp_path):
    files = tmp_path / "report.json", tmp_path / "report.html"
    only = ["--only", "local", "gloo", "--only", "traffic"]
    options = [*only, "--quick", "--json", str(files[0]), "--html", str(files[1])]
    result = CliRunner().invoke(main, ["bench", *options])
    assert result.exit_code == 0, result.output
    assert ran == [(["traffic", "local", "gloo"], "quick")]
    for words in (
        "Bytes against the lower bound",
        "won 2× (JAX jit)",
        "7 rows in 1 s",
        "a processor, 2 cores",
        "ours 1.00",
    ):
        assert words in result.output
    assert json.loads(files[0].read_text(encoding="utf-8")) == report().to_json()
    assert files[1].read_text(encoding="utf-8").startswith("<!doctype html>")


def test_all_areas_are_measured_in_full_where_nothing_is_said(ran):
    assert CliRunner().invoke(main, ["bench"]).exit_code == 0
    assert ran == [([area.name for area in AREAS], "full")]


@pytest.mark.parametrize("made", [report(WRONG), report(failures={"gloo": "ended with 1"})])
def test_a_wrong_result_is_shown_and_the_exit_status_is_1(monkeypatch, made):
    monkeypatch.setattr("benchmarks.run.run", lambda areas, effort: made)
    result = CliRunner().invoke(main, ["bench"])
    assert result.exit_code == 1
    assert "failed: A gives 2" in result.output or "gloo failed: ended with 1" in result.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--only", "locale"], "Error: unknown area 'locale'.\n  areas: traffic, planning, local,"),
        (["--json", "nowhere/report.json"], "there is no folder 'nowhere' to write 'report.json' into."),
    ],
)
def test_what_is_refused_before_anything_is_measured(ran, options, message):
    result = CliRunner().invoke(main, ["bench", *options])
    assert result.exit_code == 1
    assert message in result.output
    assert ran == []


def test_a_missing_peer_names_the_extra(monkeypatch):
    monkeypatch.setattr("benchmarks.areas.find_spec", lambda name: None)
    result = CliRunner().invoke(main, ["bench", "--only", "local"])
    assert result.exit_code == 1
    assert "pip install 'shardwise[jax,torch]'" in result.output


def test_an_installation_without_a_checkout_says_so(monkeypatch):
    monkeypatch.setattr("shardwise.commands.bench.CHECKOUT", Path("/nowhere"))
    result = CliRunner().invoke(main, ["bench", "--quick"])
    assert result.exit_code == 1
    assert "the benchmarks are part of a checkout of shardwise" in result.output
