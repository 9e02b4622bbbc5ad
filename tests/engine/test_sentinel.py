"""Who belongs to a launch, and how it is ended."""

import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

import pytest

from shardwise.engine import sentinel
from shardwise.engine.sentinel import VARIABLE, alive, end, members


def started(job: str, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(words or ("sleep", "600"), env=os.environ | {VARIABLE: job}, start_new_session=True)


def test_processes_are_known_by_their_mark_and_group() -> None:
    job = secrets.token_hex(8)
    assert members(job) == alive([], job) == []
    one = started(job)
    other = subprocess.Popen(["sleep", "600"], start_new_session=True)
    until = monotonic() + 10
    while members(job) != [one.pid] and monotonic() < until:
        sleep(0.02)
    assert members(job) == [one.pid]
    assert alive([other.pid], job) == sorted([one.pid, other.pid])
    end([other.pid], job, 5.0)
    assert [one.wait(10), other.wait(10)] == [-signal.SIGTERM] * 2
    assert alive([other.pid], job) == []


def test_who_does_not_end_when_asked_is_made_to(tmp_path: Path) -> None:
    job, ready = secrets.token_hex(8), tmp_path / "ready"
    deaf = started(job, "sh", "-c", "trap '' TERM; echo ready > $0; while :; do sleep 1; done", str(ready))
    until = monotonic() + 10
    while not ready.exists() and monotonic() < until:
        sleep(0.02)
    end([deaf.pid], job, 0.3)
    assert deaf.wait(10) == -signal.SIGKILL


@pytest.mark.parametrize("done", [True, False])
def test_a_launcher_that_did_not_say_done_has_its_processes_ended(done: bool) -> None:
    job = secrets.token_hex(8)
    process = started(job)
    command = [sys.executable, "-I", "-S", str(Path(sentinel.__file__)), job]
    subprocess.run(command, input=f"{process.pid}\n{'done' if done else ''}\n".encode(), check=True, timeout=30)
    assert (process.poll() is None) == done
    process.kill()
    process.wait()
