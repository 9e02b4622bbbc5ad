"""`shardwise explain`: what it prints and writes, and what is said about what it cannot read."""

from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from shardwise import DeviceMesh, Layout, Link, Links, plan_reshard
from shardwise.cli import main
from shardwise.pictures.report import report

MESH = DeviceMesh((2, 4), ("dp", "tp"))
GIVEN = {"--mesh": "dp=2,tp=4", "--shape": "1024x4096", "--from": "dp,tp", "--to": "tp,dp"}


def explain(**more: str) -> Result:
    options = GIVEN | {f"--{name.strip('_')}": value for name, value in more.items()}
    args = [word for name, value in options.items() for word in (name, value)]
    return CliRunner(env={"COLUMNS": "120"}).invoke(main, ["explain", *args])


def plan(**more):
    return plan_reshard(Layout(MESH, ["dp", "tp"]), Layout(MESH, ["tp", "dp"]), (1024, 4096), "float32", **more)


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


def test_it_prints_the_report():
    result = explain()
    assert result.exit_code == 0, result.output
    assert lines(result.output) == lines(report(plan()).text)


def test_it_writes_a_page_and_a_drawing(tmp_path):
    result = explain(html=str(tmp_path / "page.html"), svg=str(tmp_path / "plan.svg"))
    assert result.exit_code == 0, result.output
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == report(plan()).html
    svg = (tmp_path / "plan.svg").read_text(encoding="utf-8")
    assert svg == report(plan()).svg + "\n"
    ElementTree.fromstring(svg)


@pytest.mark.parametrize("links", ["dp=1e-5,1e9 tp=1e-6,4e11", "dp=1e-5,1e9;tp=1e-6,4e11"])
def test_links_change_the_cost(links):
    result = explain(links=links)
    assert result.exit_code == 0, result.output
    assert lines(result.output) == lines(report(plan(links={"dp": Link(1e-5, 1e9), "tp": Link(1e-6, 4e11)})).text)
    assert "links: dp 10 us, 1 GB/s; tp 1 us, 400 GB/s" in result.output


def test_links_may_be_given_one_by_one_and_for_all():
    args = [word for pair in GIVEN.items() for word in pair]
    result = CliRunner().invoke(main, ["explain", *args, "--links", "dp=1e-5,1e9", "--links", "2e-6,5e9"])
    assert result.exit_code == 0, result.output
    assert "links: dp 10 us, 1 GB/s; tp 2 us, 5 GB/s" in result.output


def test_links_may_come_from_a_file_and_be_overruled(tmp_path):
    file = tmp_path / "links.json"
    Links({"dp": Link(1e-5, 1e9), "tp": Link(1e-6, 4e11)}).save(file)
    result = explain(links=str(file))
    assert result.exit_code == 0, result.output
    assert "links: dp 10 us, 1 GB/s; tp 1 us, 400 GB/s" in result.output
    args = [word for pair in GIVEN.items() for word in pair]
    result = CliRunner().invoke(main, ["explain", *args, "--links", str(file), "--links", "dp=2e-6,5e9"])
    assert "links: dp 2 us, 5 GB/s; tp 1 us, 400 GB/s" in result.output


def test_clusters_are_known_by_name():
    mesh = DeviceMesh((2, 4), ("dp", "tp"))
    result = explain(cluster="dgx-h100")
    assert result.exit_code == 0, result.output
    assert lines(result.output) == lines(report(plan(links=Links.cluster("dgx-h100", mesh))).text)
    assert "links: dp 11.8 us + 3.4 us a further message, 450 GB/s; tp 11.8 us + 3.4 us" in result.output
    result = explain(mesh="dp=2,tp=16", cluster="dgx-h100")
    assert "dp 18 us + 9.6 us a further message, 50 GB/s; tp (2 positions) 18 us" in result.output


def test_partial_values_and_other_dtypes():
    result = explain(from_="[tp|-] sum(dp)", to="dp", dtype="bfloat16")
    assert result.exit_code == 0, result.output
    assert "[tp|-] sum(dp) -> [dp|-]  bfloat16[1024x4096] on dp=2, tp=4" in result.output
    assert "reduce_scatter" in result.output


def test_a_million_devices():
    result = explain(mesh="x=64,y=64,z=256", from_="x", to="-,z")
    assert result.exit_code == 0, result.output
    assert "mesh x=64, y=64, z=256: 1048576 devices" in result.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mesh": "dp=2,tp"}, "a mesh is written as axes with their sizes, such as dp=2,tp=4, got 'tp' in 'dp=2,tp'."),
        ({"mesh": "dp=2,dp=4"}, "mesh axis names must differ, got 'dp' twice"),
        ({"shape": "1024*4096"}, "a shape is written as sizes such as 1024x4096, got '1024*4096'."),
        ({"from_": "dp,pt"}, "unknown mesh axis 'pt' in the layout 'dp,pt'.\n  mesh axes: dp=2, tp=4"),
        ({"to": "dp,tp,-"}, "the layout 'dp,tp,-' has 3 dims, the shape has 2."),
        ({"to": "dp mean(tp)"}, "unknown reduction 'mean'.\n  reductions: sum, avg, min, max"),
        ({"from_": "tp/offsets(0,1,2,3,4)"}, "the offsets (0, 1, 2, 3, 4) of dim 0 must end at its size 1024"),
        ({"to": "tp+-(900,0)"}, "halo of dim 0 is 900 wide"),
        ({"dtype": "float31"}, "float31"),
        ({"from_": "sum(dp)", "dtype": "bool"}, "reduction 'sum' is not defined for bool.\n  reductions of bool: min"),
        (
            {"links": "fast"},
            "--links is given as SECONDS,BYTES or AXIS=SECONDS,BYTES, such as dp=1e-6,400e9, got 'fast'.",
        ),
        ({"links": "pt=1,2"}, "unknown mesh axis 'pt' in --links pt=1,2.\n  mesh axes: dp=2, tp=4"),
        ({"links": "none.json"}, "none.json cannot be read: No such file or directory."),
        ({"cluster": "dgx"}, "there is no cluster 'dgx'.\n  clusters: dgx-a100, dgx-h100, "),
        (
            {"cluster": "dgx-h100", "links": "none.json"},
            "links come from one file or one cluster, got --cluster, --links none.json.",
        ),
        ({"links": "dp=1,-2"}, "a Link needs a latency of 0 or more and a bandwidth above 0"),
        ({"html": "no/such/folder/page.html"}, "--html no/such/folder/page.html cannot be written: No such file"),
        ({"svg": "no/such/folder/x.svg"}, "--svg no/such/folder/x.svg cannot be written: No such file"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_said(options, message):
    result = explain(**options)
    assert result.exit_code == 1
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert message in result.output


def test_what_is_missing_is_named():
    result = CliRunner().invoke(main, ["explain", "--mesh", "x=2"])
    assert result.exit_code == 2
    assert "Missing option '--shape'" in result.output
