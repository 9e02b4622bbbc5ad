"""Who belongs to a launch, and how it is ended."""

import os
import secrets
import signal
import subprocess
import sys
from io import StringIO
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from shardwise.engine.launch import sentinel
from shardwise.engine.launch.sentinel import VARIABLE, alive, end, members


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


# -- without processes ------------------------------------------------------------------------------------


class Signals:
    """Processes that are alive as often as the test says, and what was sent to them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, alive: list[list[int]]) -> None:
        self.sent, self.now, self.alive = list[tuple[str, int, int]](), 0.0, alive
        monkeypatch.setattr(os, "killpg", self._group)
        monkeypatch.setattr(os, "kill", lambda pid, number: self.sent.append(("process", pid, number)))
        monkeypatch.setattr(sentinel, "members", lambda job: [9] if job == "job" else [])
        monkeypatch.setattr(sentinel, "alive", lambda groups, job: self.alive.pop(0) if self.alive else [])
        monkeypatch.setattr(sentinel, "monotonic", lambda: self.now)
        monkeypatch.setattr(sentinel, "sleep", self._sleep)

    def _group(self, group: int, number: int) -> None:
        self.sent.append(("group", group, number))
        if group == 3:
            raise ProcessLookupError
        if group == 4:
            raise PermissionError

    def _sleep(self, seconds: float) -> None:
        assert 0 < seconds <= 0.1
        self.now = round(self.now + seconds, 6)


def both(number: int, *groups: int) -> list[tuple[str, int, int]]:
    return [*(("group", group, number) for group in groups), ("process", 9, number)]


def test_groups_and_those_who_left_them_are_told_whoever_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    signals = Signals(monkeypatch, [])
    sentinel.tell([3, 4, 5], "job", signal.SIGTERM)
    assert signals.sent == both(signal.SIGTERM, 3, 4, 5)


def test_where_nobody_is_left_nobody_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    signals = Signals(monkeypatch, [[]])
    end([5], "job")
    assert signals.sent == []


def test_they_are_asked_and_woken_and_made_to_end_after_the_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    signals = Signals(monkeypatch, [[5]] * 100)
    end(iter([5]), "job")
    assert signals.now == 1.5  # and not a moment longer
    assert signals.sent == [x for n in (signal.SIGTERM, signal.SIGCONT, signal.SIGKILL) for x in both(n, 5)]
    quick = Signals(monkeypatch, [[5], [5], []])
    end([5], "job")
    assert quick.now == pytest.approx(0.05)


@pytest.mark.parametrize(("said", "ended"), [("7\n8\n", [[7, 8]]), ("7\ndone\n", []), ("", [[]])])
def test_the_last_word_decides(monkeypatch: pytest.MonkeyPatch, said: str, ended: list[list[int]]) -> None:
    found, ignored = list[tuple[list[int], str]](), list[tuple[int, object]]()
    monkeypatch.setattr(sys, "argv", ["sentinel", "job"])
    monkeypatch.setattr(sys, "stdin", StringIO(said))
    monkeypatch.setattr(signal, "signal", lambda number, handler: ignored.append((number, handler)))
    monkeypatch.setattr(sentinel, "end", lambda groups, job: found.append((groups, job)))
    sentinel.main()
    assert found == [(groups, "job") for groups in ended]
    assert ignored == [(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]


def test_who_has_ended_and_was_not_waited_for_is_of_no_group() -> None:
    assert sentinel._group(os.getpid()) == os.getpgrp()
    assert sentinel._group(1 << 30) is None
    process = subprocess.Popen(["true"], start_new_session=True)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert sentinel._group(process.pid) is None
    process.wait()


def test_where_the_system_tells_nothing_there_are_no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert os.getpid() in sentinel._processes()
    monkeypatch.setattr(os.path, "isdir", lambda path: False)
    assert sentinel._processes() == []


@pytest.mark.parametrize(("name", "calls"), [("__main__", 1), ("shardwise.engine.launch.sentinel", 0)])
def test_it_waits_only_where_it_is_the_program(monkeypatch: pytest.MonkeyPatch, name: str, calls: int) -> None:
    said, ignored = StringIO("done\n"), list[Any]()
    monkeypatch.setattr(sys, "argv", ["sentinel", "job"])
    monkeypatch.setattr(sys, "stdin", said)
    monkeypatch.setattr(signal, "signal", lambda number, handler: ignored.append((number, handler)))
    loader: Any = sentinel.__loader__
    exec(loader.get_code("shardwise.engine.launch.sentinel"), vars(sentinel) | {"__name__": name})
    assert said.tell() == 5 * calls
    assert ignored == [(n, signal.SIG_IGN) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] * calls
