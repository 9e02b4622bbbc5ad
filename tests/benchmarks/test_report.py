"""Reports: written and read, found in, refused."""

import json

import pytest

from benchmarks.report import ReportError, read, write
from benchmarks.row import Row, counted
from tests.benchmarks.cases import report

WRONG = Row("local", "a", "", "", "warm", "seconds", counted(1), checked="failed: A gives 2")


def test_a_report_is_read_as_it_was_written(tmp_path):
    write(report(), tmp_path / "report.json")
    assert read(tmp_path / "report.json") == report()


def test_the_fields_are_those_that_the_page_names():
    from tools.figures import SCHEMA

    given = report().to_json()
    for name in (*given, *given["rows"][0]):
        assert f"`{name}`" in SCHEMA
    assert (given["schema"], given["version"]) == ("shardwise-bench", 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "this is no report of `shardwise bench`"),
        (json.dumps({"schema": "shardwise-bench", "version": 2}), "has version 2; version 1 can be read"),
    ],
)
def test_files_that_are_no_reports(tmp_path, text, message):
    path = tmp_path / "report.json"
    path.write_text(text)
    with pytest.raises(ReportError, match=message):
        read(path)


def test_rows_are_found_by_what_tells_them_from_others():
    assert report().find("local", "S0 -> S1", "cold").state == "cold"
    assert report().find("traffic", "whole, in all").mesh == "2x2"
    with pytest.raises(ReportError, match=r"2 rows are 'local; S0 -> S1'; rows are:\n  local; S0 -> S1; 4 MiB"):
        report().find("local", "S0 -> S1")
    with pytest.raises(ReportError, match=r"0 rows are 'local; S0 -> S9'"):
        report().find("local", "S0 -> S9")


def test_a_wrong_result_or_an_area_that_stopped_makes_the_run_fail():
    assert not report().failed
    assert report(WRONG).failed
    assert report(failures={"gloo": "ended with 1"}).failed
