"""`shardwise postmortem`: who was first is named, nothing important is cut away, and nothing hostile is shown."""

import json
import os
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner, Result

from shardwise.cli import main
from shardwise.engine.recording import record as records
from shardwise.engine.recording.folder import VARIABLE
from shardwise.engine.recording.recorder import Recorder
from tests.engine.recording.histories import FAULTS, make_history, write_history


def run(*args: object, width: int = 120) -> Result:
    return CliRunner().invoke(main, ["postmortem", *map(str, args)], env={"COLUMNS": str(width)})


def words(text: str) -> str:
    """The text without the places where its lines are broken."""
    return " ".join(text.split())


def job(folder: Path, size: int = 3, text: str = "", iteration: int | None = 7) -> None:
    """Rank 1 was killed after its first call; the others waited for it, and said so."""
    folder.mkdir(exist_ok=True)
    for rank in range(size):
        now = [50.0]
        recorder = Recorder(folder, rank, size, 8, clock=lambda now=now: now[0], wall=lambda: 1.7e9)
        group = tuple(range(size))
        slot = recorder.begin(1, 1, "all_gather of float32[8]" + text, "/data/me/train.py:3" + text, iteration, group)
        now[0] += 0.5
        recorder.agree(slot)
        now[0] += 0.25
        recorder.end(slot, 1024, 1024)
        if rank != 1:
            slot = recorder.begin(
                2, 2, "all_reduce of float32[8]", "/data/me/a_long_name_of_a_file.py:4", iteration, group
            )
            recorder.wait_for(slot, (1,))
            now[0] += 2.0
            recorder.note("rank 1: its connection closed without a goodbye" + text)
            recorder.fail(slot, "RankLost: rank 1 was lost" + text + "\n  more", (1,))
            recorder.dump("rank 1 was lost" + text)
            recorder.close(False, "it left with RankLost: rank 1 was lost" + text)
        recorder._detach()


@pytest.fixture(autouse=True)
def processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(records, "ticks_of", lambda pid: 0)  # none of these processes lives


SENTENCE = (
    "rank 1 was first: it was killed or crashed (no end in its record), after all_gather (sequence 1, iteration 7) at "
    "me/train.py:3; ranks 0, 2 waited for it in all_reduce at me/a_long_name_of_a_file.py:4 for 2 s."
)


def test_a_wide_terminal_has_a_table_of_ranks_and_one_of_calls(tmp_path: Path) -> None:
    job(tmp_path)
    result = run(tmp_path, width=140)
    assert result.exit_code == 0, result.output
    lines = [line.rstrip() for line in result.output.splitlines()]
    assert lines[0].startswith("3 ranks, from 2023-11-1")
    assert SENTENCE in words(result.output)
    table = lines[lines.index("") + 1 :]
    assert table[0].split() == "rank state last call sequence iteration since for waits for line".split()
    assert table[1].split()[:5] == ["0", "failed", "all_reduce", "2", "7"]
    assert table[1].split()[6:] == ["2", "s", "1", "me/a_long_name_of_a_file.py:4"]
    assert table[2].split()[:6] == ["1", "killed", "after", "all_gather", "1", "7"]
    assert table[5].split() == "time call group number iteration came last took bytes line".split()
    assert table[6].split()[1:] == [
        "all_gather",
        "0-2",
        "1",
        "7",
        "2,",
        "0",
        "us",
        "later",
        "750",
        "ms",
        "3",
        "KiB",
        "me/train.py:3",
    ]
    assert table[7].split()[1:] == [
        "all_reduce",
        "0-2",
        "2",
        "7",
        "not",
        "1",
        "failed",
        "me/a_long_name_of_a_file.py:4",
    ]
    assert table[9] == "ranks 0, 2: RankLost: rank 1 was lost"
    assert table[10][12:] == " ranks 0, 2: rank 1: its connection closed without a goodbye"
    assert words(" ".join(table[11:])) == f"stacks of Python: {tmp_path}/rank-*.stacks, of 0,2"


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120])
def test_a_narrow_terminal_has_the_same_and_nothing_is_cut_away(tmp_path: Path, width: int) -> None:
    job(tmp_path)
    text = run(tmp_path, width=width).output
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert SENTENCE in words(text)
    squeezed = "".join(text.split())  # long words may be broken
    for part in ("failed", "killed", "2s", "750ms", "3KiB", "a_long_name_of_a_file.py:4", "sequence", "iteration"):
        assert part in squeezed, part
    assert "not1" in squeezed or "1didnotcome" in squeezed
    if width == 80:
        row = "all_reduce (sequence 2, iteration 7) at me/a_long_name_of_a_file.py:4, 2 s for 1"
        assert row.replace(" ", "") in squeezed


def test_columns_in_which_nothing_stands_are_left_out(tmp_path: Path) -> None:
    job(tmp_path, iteration=None)
    assert "iteration" not in run(tmp_path).output
    assert " sequence " in run(tmp_path).output


@pytest.mark.parametrize("fault", FAULTS)
def test_every_kind_of_history_is_shown_at_any_width(tmp_path: Path, fault: str) -> None:
    for seed in range(3):
        random = Random(f"shown {fault} {seed}")
        (folder := tmp_path / str(seed)).mkdir()
        write_history(random, make_history(random, fault, bool(seed % 2)), folder)
        for width in (80, 120):
            result = run(folder, width=width)
            assert result.exit_code == 0, result.output
            assert max(map(len, result.output.splitlines())) <= width
            assert "…" not in result.output
            assert json.loads(run(folder, "--json").output)["verdict"]["sentence"] in words(result.output)


def test_so_many_calls_as_asked_for(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 0, 1, 64)
    for n in range(1, 41):
        recorder.end(recorder.begin(n, n, "permute", f"train.py:{n}", None, (0,)), 0, 0)
        recorder.note(f"event {n}")
    recorder.close(clean=False)
    for calls in (0, 3, 10, 40):
        text = run(tmp_path, "--calls", calls).output
        assert [f"train.py:{n}" in text.split("time", 1)[-1] for n in (40 - calls, 41 - calls)] == [
            False,
            calls > 0,
        ] or not calls
        assert text.count("rank 0: event ") == calls
    assert "time" not in run(tmp_path, "--calls", 0).output.splitlines()[-1]


def test_of_very_many_ranks_those_that_matter_are_shown(tmp_path: Path) -> None:
    job(tmp_path, 3)
    for rank in (0, 2):
        (tmp_path / f"rank-{rank}.record").unlink()
    recorder = Recorder(tmp_path, 799, 800, 8, wall=lambda: 1.8e9)
    recorder.wait_for(recorder.begin(1, 1, "permute", "train.py:1", None, (700, 799)), (700,))
    recorder._detach()
    text = run(tmp_path).output
    assert "\n 700  absent" in text
    assert "\n 799  killed" in text
    assert text.count("  absent") == 63
    assert "and 736 ranks more; --json has all" in text
    assert len(json.loads(run(tmp_path, "--json").output)["absent"]) == 799


def test_json_has_all(tmp_path: Path) -> None:
    job(tmp_path)
    (tmp_path / "rank-9.record").write_bytes(b"nonsense")
    result = run(tmp_path, "--json")
    data: dict[str, Any] = json.loads(result.output)
    assert data["verdict"]["first"] == [1]
    assert data["verdict"]["waiters"] == [0, 2]
    assert data["verdict"]["line"] == "/data/me/train.py:3"
    assert data["verdict"]["sentence"] == SENTENCE
    assert (data["size"], data["absent"]) == (3, [])
    assert [(rank, value["state"]) for rank, value in data["ranks"].items()] == [
        ("0", "failed"),
        ("1", "killed"),
        ("2", "failed"),
    ]
    first, last = data["ranks"]["0"]["entries"]
    assert (first["sequence"], first["iteration"], first["received"], first["sent"]) == (1, 7, 1024, 1024)
    assert (first["ended"] - first["began"], last["failed"] - last["began"]) == (0.75, 2.0)
    assert (last["waits"], last["failure"]) == ([1], "RankLost: rank 1 was lost\n  more")
    assert data["ranks"]["0"]["path"] == str(tmp_path / "rank-0.record")
    assert data["problems"] == ["rank-9.record is not a record of shardwise, or was cut off."]


def test_a_trace_has_what_every_rank_did_and_waited_for(tmp_path: Path) -> None:
    job(tmp_path / "records")
    path = tmp_path / "trace.json"
    assert run(tmp_path / "records", "--trace", path).exit_code == 0
    events = [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]
    spans = sorted((event["pid"], event["name"], event["dur"]) for event in events)
    assert spans == [
        (0, "all_gather", 250_000.0),
        (0, "waiting for others", 500_000.0),
        (0, "waiting for others", 2_000_000.0),
        (1, "all_gather", 250_000.0),
        (1, "waiting for others", 500_000.0),
        (2, "all_gather", 250_000.0),
        (2, "waiting for others", 500_000.0),
        (2, "waiting for others", 2_000_000.0),
    ]
    assert {event["args"]["line"] for event in events} == {"/data/me/train.py:3", "/data/me/a_long_name_of_a_file.py:4"}
    result = run(tmp_path / "records", "--trace", tmp_path / "gone" / "trace.json")
    assert result.exit_code == 1
    assert f"--trace {tmp_path}/gone/trace.json cannot be written: No such file or directory." in words(result.output)


HOSTILE = "\x1b[2J\x1b]0;title\x07\r\u202e\x9b31m"


def test_nothing_hostile_is_shown(tmp_path: Path) -> None:
    folder = tmp_path / "a\x1b[1mb"
    job(folder, text=HOSTILE)
    for name in ("rank-0\x1b[2J.stacks", "rank-\x1b[2J.record", "rank-5.record"):
        (folder / name).write_bytes(b"hostile")
    for args in ((), ("--json",), ("--calls", "0")):
        result = run(folder, *args)
        assert result.exit_code == 0, result.output
        assert all(c.isprintable() or c == "\n" for c in result.output)
        assert "\\x1b[2J" in result.output.replace("\\\\", "\\") or args == ("--calls", "0")


def test_a_line_that_is_broken_cannot_look_like_another(tmp_path: Path) -> None:
    job(tmp_path, text="\nnothing went wrong")
    assert "\nnothing went wrong" not in run(tmp_path, width=300).output.replace("\\n", "|")


def test_what_is_wrong_is_said_in_one_line_and_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place, text in (
        (tmp_path / "gone", f"Error: {tmp_path}/gone does not exist; expected a folder with records"),
        (tmp_path / "file", f"Error: {tmp_path}/file is a file; expected a folder with records"),
        (
            tmp_path,
            f"Error: {tmp_path} has no records of processes: expected rank-0.record and so on.\n  it has: file\n",
        ),
    ):
        result = run(place)
        assert result.exit_code == 1
        assert result.output.startswith(text)
        assert isinstance(result.exception, SystemExit)


def test_without_a_folder_it_is_that_of_the_newest_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "mine"))
    job(tmp_path / "mine")
    assert "rank 1 was first" in run().output
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert "Error: there are no records in " in run().output
    home = tmp_path / f"shardwise-{os.geteuid()}"
    home.mkdir()
    job(home / "newest", iteration=12)
    assert "iteration 12" in words(run().output)
