"""`shardwise calibrate`: a real run of processes, and what is said before any are started."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from shardwise import Link, Links
from shardwise.cli import main
from shardwise.commands.calibrate import link_table
from shardwise.plan.link_file import Origin


@pytest.mark.xdist_group("processes")
def test_it_measures_and_writes_a_file_that_explain_reads(tmp_path: Path) -> None:
    file = tmp_path / "links.json"
    command = [sys.executable, "-c", "from shardwise.cli import main; main()", "calibrate", "-n", "2"]
    command += ["--mesh", "dp=2", "--largest", "1", "--repeats", "1", "-o", str(file)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stderr
    links = Links.load(file)
    assert [name for name, _ in links.axes] == ["dp"]
    assert links.origin is not None
    assert links.origin.sizes == tuple(1024 * 4**k for k in range(6))
    assert "[0] round 2 of 2" in found.stdout
    assert found.stdout.endswith(f"{link_table(links)}\nwritten: {file}\n")
    shown = CliRunner().invoke(
        main, ["explain", "--mesh", "dp=2", "--shape", "8", "--from", "dp", "--to", "-", "--links", str(file)]
    )
    assert shown.exit_code == 0, shown.output
    assert f"{links.axes[0][1].bandwidth / 1e9:.3g} GB/s" in shown.output


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["-n", "1"], 2, "1 is not in the range x>=2"),
        (["-n", "4", "--mesh", "2x2"], 1, "a mesh is written as axes with their sizes, such as dp=2,tp=4, got '2x2'"),
        (["-n", "4", "--mesh", "dp=2"], 1, "--mesh dp=2 has 2 devices, but there are 4 processes."),
        (["-n", "4", "-o", "none/links.json"], 1, "there is no folder 'none' to write 'links.json' into."),
        (["-n", "4", "-o", "."], 1, "-o names the file to write, and '.' is a folder."),
        (["-n", "4", "--largest", "0"], 2, "0 is not in the range 1<=x<=4096"),
    ],
)
def test_what_cannot_be_measured_is_said_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, message: str
) -> None:
    monkeypatch.setattr("shardwise.engine.launch.launcher.launch", lambda *_, **__: pytest.fail("it started"))
    found = CliRunner().invoke(main, ["calibrate", *words])
    assert found.exit_code == code
    assert message in found.output


def test_who_fails_decides_the_exit_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("shardwise.engine.launch.launcher.launch", lambda *_, **__: 7)
    assert CliRunner().invoke(main, ["calibrate", "-n", "2", "-o", str(tmp_path / "links.json")]).exit_code == 7


def test_the_table_says_how_it_was_measured() -> None:
    origin = Origin("2026-01-02T03:04:05Z", ("host",), "0.1.0", "dp=2, tp=2", (1024, 1 << 20), 9, 1.234)
    links = Links({"dp": Link(1e-3, 1e9, 2e-4), "tp": Link(5e-4, 2e9)}, Link(1e-3, 1e9, 2e-4), origin=origin)
    assert link_table(links).splitlines() == [
        "axis        latency  a further message  bandwidth",
        "dp             1 ms             200 us     1 GB/s",
        "tp           500 us                  -     2 GB/s",
        "all others     1 ms             200 us     1 GB/s",
        "2 sizes, 1 KiB to 1 MiB a device, 9 times each, on dp=2, tp=2",
        "predicted times are off by a factor of 1.23 (geometric mean)",
    ]
    assert link_table(Links(default=Link(1e-3, 1e9))).splitlines()[1].startswith("all ")
