"""Records of jobs that go wrong: `shardwise postmortem` names who was first, their line, and what others waited for."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from tests.faults.job import HARD, WAITING, Job, Rank, environment

COMMAND = [sys.executable, "-c", "from shardwise.cli import main; main()"]
LINES = Path(__file__).with_name("situations.py").read_text().splitlines()


def line_with(text: str, start: str = "") -> str:
    """The line of the situations with a text, after another one, as postmortems name it."""
    after = next(n for n, line in enumerate(LINES) if line.startswith(start))
    number = next(n for n, line in enumerate(LINES[after:], after + 1) if text in line)
    return f"faults/situations.py:{number}"


CALLED = "all_gather (sequence 1)"
FIRST_CALL = line_with("x.gather()", "def rows(")


def record(job: Job, situation: str, *args: Any, **env: str) -> Path:
    """Start the ranks of a situation, which record into a folder; return it."""
    folder = job.folder / "records"
    job.start(situation, *args, only=[{"SHARDWISE_RECORD": str(folder)} | env] * 3)
    return folder


def ask(folder: Path, *args: str) -> str:
    env = environment(COLUMNS="100")
    return subprocess.run(
        [*COMMAND, "postmortem", str(folder), *args], env=env, check=True, text=True, capture_output=True
    ).stdout


def known(folder: Path) -> dict[str, Any]:
    """What is known after the end of a job: the record of every rank is there."""
    data = json.loads(ask(folder, "--json"))
    assert (sorted(data["ranks"]), data["absent"], data["problems"]) == (["0", "1", "2"], [], [])
    verdict = data["verdict"]
    assert "/".join(verdict["line"].split("/")[-2:]) in verdict["sentence"]
    return data


def wait_for(check: Callable[[], bool], seconds: float = 30.0) -> bool:
    end = monotonic() + seconds
    while not check() and monotonic() < end:
        sleep(0.05)
    return check()


def test_a_process_that_is_killed_is_named_by_a_command(job: Job) -> None:
    folder = record(job, "killed", 1, False, "all_gather")
    job.wait()
    text = " ".join(ask(folder).split())
    assert f"rank 1 was first: it was killed or crashed (no end in its record), after {CALLED} at {FIRST_CALL}" in text
    second = line_with("report(", "def killed(")
    for rank in (0, 2):
        assert f" {rank} left " in text
    assert f" in all_gather at {second} for " in text
    assert " 1 killed " in text
    assert "stacks of Python: " in text


def test_a_job_that_runs_is_asked_and_leaves_nothing_behind_when_it_ends_well(job: Job) -> None:
    folder = record(job, "asleep_until_told", 1, SHARDWISE_TIMEOUT=str(HARD))
    ranks = job.ranks
    waiting = line_with("report(", "def asleep_until_told(")
    number = waiting.rpartition(":")[2]
    stacks = [folder / f"rank-{rank}.stacks" for rank in range(3)]
    # Who has come here heeds the signal, which would end it before.
    assert wait_for(lambda: all((job.folder / f"{rank} is at the first call").exists() for rank in range(3)), 60)

    def is_written(rank: Rank, what: str) -> bool:
        os.kill(rank.pid, signal.SIGUSR2)
        return what in stacks[int(rank.name)].read_text()

    # One waits for another in C, and one sleeps: both write where they are, meanwhile.
    assert wait_for(lambda: is_written(ranks[0], f'situations.py", line {number} in <lambda>'))
    assert wait_for(lambda: is_written(ranks[0], "in _look"))
    assert wait_for(lambda: is_written(ranks[2], "in _look"))
    assert wait_for(lambda: is_written(ranks[1], "in asleep_until_told"))
    verdict = json.loads(ask(folder, "--json"))["verdict"]
    assert (verdict["kind"], verdict["first"], verdict["waiters"]) == ("waiting", [1], [0, 2])
    assert f"wait for it in all_gather at {waiting} for " in verdict["sentence"]
    (job.folder / "wake").touch()
    job.wait()
    assert [rank.code for rank in ranks] == [0, 0, 0]
    assert [rank.said["error"] for rank in ranks] == [None] * 3
    assert list(folder.iterdir()) == []


def test_an_iteration_that_one_has_skipped(job: Job) -> None:
    folder = record(job, "skips", 1)
    job.wait()
    data, trace = known(folder), job.folder / "trace.json"
    assert data["verdict"]["kind"] == "mismatch"
    assert data["verdict"]["first"] == [1]
    sentence = data["verdict"]["sentence"]
    for iteration in (1001, 1002):
        assert f" in iteration {iteration} at {line_with('x.gather()', 'def skips(')}" in sentence
    assert f"rank 1 had gone on after ValueError: no data at {Path(__file__).parent}/situations.py:" in sentence
    ask(folder, "--trace", str(trace))
    spans = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
    assert {event["pid"] for event in spans} == {0, 1, 2}
    assert {"init", "all_gather", "waiting for others"} <= {event["name"] for event in spans}


def raised(verdict: dict[str, Any]) -> None:
    assert (verdict["kind"], verdict["first"], verdict["waiters"]) == ("failed", [1], [0, 2])
    assert verdict["sentence"].startswith(
        f"rank 1 was first: it left with ValueError: bad luck, after all_gather (sequence 1) at {FIRST_CALL}"
    )
    assert f" in all_gather at {line_with('report(', 'def told_of_raise(')}" in verdict["sentence"]


def left(verdict: dict[str, Any]) -> None:
    assert (verdict["kind"], verdict["first"], verdict["waiters"]) == ("left", [1], [0, 2])
    assert verdict["sentence"].startswith(
        "rank 1 was first: it came to the end of its program, or raised SystemExit, after "
    )


def killed_inside(verdict: dict[str, Any]) -> None:
    assert (verdict["kind"], verdict["first"], verdict["waiters"]) == ("killed", [1], [0, 2])
    line = line_with("report(", "def killed(")
    assert f"(no end in its record), in all_gather (sequence 2) at {line}; " in verdict["sentence"]


def without_memory(verdict: dict[str, Any]) -> None:
    assert verdict["first"] == [1]
    assert verdict["waiters"] == [0, 2]
    assert verdict["sentence"].startswith("rank 1 was first: it gave up at sequence ")
    assert "MemoryError" in verdict["sentence"]


def different(verdict: dict[str, Any]) -> None:
    assert verdict["kind"] == "mismatch"
    assert 1 in verdict["first"]
    assert "rank 1 to all_to_all of float32[512, 512] [x|-] -> [-|x] at faults/situations.py:" in verdict["sentence"]
    assert " to all_gather of float32[512, 512] [x|-] -> [-|-] at faults/situations.py:" in verdict["sentence"]


def in_a_circle(verdict: dict[str, Any]) -> None:
    line = line_with("report(", "def circle(")
    assert (verdict["kind"], sorted(verdict["first"]), verdict["waiters"]) == ("circle", [0, 1, 2], [])
    for rank in range(3):
        assert f"rank {rank} for rank {(rank + 1) % 3} in all_gather (sequence 2) at {line}" in verdict["sentence"]


def crossing(verdict: dict[str, Any]) -> None:
    assert (verdict["kind"], verdict["first"], verdict["waiters"]) == ("mismatch", [0, 1], [2])
    assert "rank 1 to all_gather of float32[6, 6] " in verdict["sentence"]


def at_the_start(verdict: dict[str, Any]) -> None:
    assert (verdict["kind"], verdict["first"], verdict["waiters"]) == ("killed", [1], [0, 2])
    assert f"in init (sequence 0) at {line_with('report(', 'def starts_in_vain(')}" in verdict["sentence"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("situation", "args", "check"),
    [
        ("told_of_raise", (1,), raised),
        ("leaves", (1,), left),
        ("killed", (1, True, "all_gather"), killed_inside),
        ("cannot_allocate", (1,), without_memory),
        ("differs", ("function", 1), different),
        ("circle", (), in_a_circle),
        ("crossed", (), crossing),
        ("starts_in_vain", (1,), at_the_start),
    ],
)
def test_who_was_first_is_named(
    job: Job, situation: str, args: tuple[Any, ...], check: Callable[[dict[str, Any]], None]
) -> None:
    folder = record(job, situation, *args, **WAITING)
    job.wait()
    check(known(folder)["verdict"])


@pytest.mark.long
def test_a_process_that_is_stopped(job: Job) -> None:
    folder = record(job, "stopped", 1, **WAITING)
    others = [job.ranks[0], job.ranks[2]]
    job.wait(others)
    data = known(folder)
    assert data["ranks"]["1"]["state"] == "stopped"
    verdict = data["verdict"]
    assert (verdict["kind"], verdict["first"], verdict["waiters"]) == ("late", [1], [0, 2])
    assert verdict["sentence"].startswith(
        f"rank 1 was late: it is stopped; it was after all_gather (sequence 1) at {FIRST_CALL}"
    )
    os.kill(job.ranks[1].pid, signal.SIGCONT)
    job.wait()


SCRIPT = """
import os, signal, sys
import numpy as np
import shardwise as sw
sw.init("torch")
x = sw.shard(np.ones((4, 4), "float32"), sw.DeviceMesh((2,), ("x",)), sw.P("x"))
x.gather()
if sys.argv[1] == "kill" and os.environ["RANK"] == "1":
    os.kill(os.getpid(), signal.SIGKILL)
x.gather()
"""


@pytest.mark.long
def test_a_launcher_says_where_the_records_are(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    env = environment(TMPDIR=str(tmp_path))
    home = tmp_path / f"shardwise-{os.geteuid()}"
    for word, code in (("stay", 0), ("kill", 128 + signal.SIGKILL)):
        command = [*COMMAND, "run", "-n", "2", str(script), word]
        result = subprocess.run(command, env=env, capture_output=True, text=True, timeout=HARD)
        assert result.returncode == code, result.stderr
        assert len(list(home.iterdir())) == (word == "kill")
    (folder,) = home.iterdir()
    assert f"what every rank did last: shardwise postmortem {folder}" in result.stderr
    newest = subprocess.run([*COMMAND, "postmortem", "--json"], env=env, check=True, capture_output=True, text=True)
    for verdict in (json.loads(ask(folder, "--json"))["verdict"], json.loads(newest.stdout)["verdict"]):
        assert (verdict["kind"], verdict["first"]) == ("killed", [1])
        assert verdict["line"] == f"{script}:7"
