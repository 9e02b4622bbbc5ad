"""`shardwise cost`: a table of collectives, and what is said about links that are none."""

import re

import pytest
from click.testing import CliRunner

from shardwise import Link, Links
from shardwise.cli import main
from tests.ir.passes.test_costing import WHOLE


def test_the_command():
    result = CliRunner().invoke(main, ["cost", "-", "--link", "1=0,1e6", "--link", "0,1e3"], input=WHOLE)
    assert result.exit_code == 0, result.output
    rows = [re.split(r"\s{2,}", row.strip()) for row in result.output.splitlines()]
    assert rows[0] == ["line", "collective", "over", "bytes per device", "bytes in all", "time"]
    assert rows[1][1:] == ["all_reduce", "@g [1]", "192", "1536", "192.0 us"]
    assert rows[2] == ["all", "192", "1536", "192.0 us"]
    assert rows[3] == ["memory per device: 352 bytes"]


@pytest.mark.parametrize(
    ("link", "message"),
    [
        ("fast", "--link is given as SECONDS,BYTES or AXIS=SECONDS,BYTES, such as 1=1e-6,400e9, got 'fast'."),
        ("x=1,2", "--link names a grid axis by its number, got 'x' in 'x=1,2'."),
        ("1,-2", "a Link needs a latency of 0 or more and a bandwidth above 0"),
    ],
)
def test_links_that_are_none(link, message):
    result = CliRunner().invoke(main, ["cost", "-", "--link", link], input=WHOLE)
    assert result.exit_code == 1
    assert message in result.output


def test_links_of_a_file(tmp_path):
    file = tmp_path / "links.json"
    Links({"axis1": Link(0, 1e6)}).save(file)
    given = CliRunner().invoke(main, ["cost", "-", "--links", str(file)], input=WHOLE)
    assert given.exit_code == 0, given.output
    assert given.output == CliRunner().invoke(main, ["cost", "-", "--link", "1=0,1e6"], input=WHOLE).output
    more = CliRunner().invoke(main, ["cost", "-", "--links", str(file), "--link", "1=0,1e3"], input=WHOLE)
    assert more.output == CliRunner().invoke(main, ["cost", "-", "--link", "1=0,1e3"], input=WHOLE).output


def test_links_of_a_file_along_other_axes_are_refused(tmp_path):
    file = tmp_path / "links.json"
    Links({"dp": Link()}).save(file)
    result = CliRunner().invoke(main, ["cost", "-", "--links", str(file)], input=WHOLE)
    assert result.exit_code == 1
    assert f"{file} has links along 'dp', but the axes of grids here are axis0, axis1." in result.output
    assert "shardwise calibrate --mesh axis0=2,axis1=2" in result.output
