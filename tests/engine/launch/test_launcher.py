"""What a launch refuses, what it does by the clock, and what it says; whole launches are tested in tests/faults."""

import json
import os
import selectors
import signal
import socket
import sys
from io import BytesIO, StringIO
from types import SimpleNamespace
from typing import Any

import pytest

from shardwise import ArgumentError, EngineError
from shardwise.engine.launch import launcher as launching
from shardwise.engine.launch import output
from shardwise.engine.launch.launcher import _blame, _cause, _free_port, _Launch, _Process, launch
from shardwise.engine.launch.output import Stream


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "SHARDWISE_JOB"):
        monkeypatch.delenv(name, raising=False)


def test_no_processes_are_no_program() -> None:
    with pytest.raises(ArgumentError, match="at least one process, got 0"):
        launch([sys.executable], 0)


@pytest.mark.parametrize("variables", [{"RANK": "1", "WORLD_SIZE": "4"}, {"SHARDWISE_JOB": "ab"}])
def test_a_launch_inside_a_launch_is_refused(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(EngineError, match=r"(?s)this is already rank . of . of a launch.*unset RANK and WORLD_SIZE"):
        launch([sys.executable], 2)


def test_a_command_that_is_not_there_is_named() -> None:
    with pytest.raises(EngineError, match="cannot start 'no-such-command': "):
        launch(["no-such-command"], 1)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (0, "exit code 0"),
        (3, "exit code 3"),
        (-9, "ended by SIGKILL"),
        (-11, "ended by SIGSEGV"),
        (-99, "ended by signal 99"),
    ],
)
def test_ends_in_words(code: int, text: str) -> None:
    assert _cause(code) == text


def test_the_code_of_a_program_is_returned(capfd: pytest.CaptureFixture[str]) -> None:
    assert launch([sys.executable, "-c", "print(1)"], 1) == 0
    assert launch([sys.executable, "-c", "raise SystemExit(7)"], 1) == 7
    assert capfd.readouterr().out == "[0] 1\n"


# -- the variables that each process gets ---------------------------------------------------------------

CHILD = """
import json, os, sys
names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "PYTHONUNBUFFERED"]
names += ["GLOO_SOCKET_IFNAME", "OMP_NUM_THREADS"]
said = {name: os.environ.get(name) for name in names}
said |= {"leads": os.getsid(0) == os.getpid(), "in": sys.stdin.read(), "job": len(os.environ["SHARDWISE_JOB"])}
print(json.dumps(said))
print("bad", file=sys.stderr)
"""


def test_each_process_gets_its_variables_and_a_session_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("GLOO_SOCKET_IFNAME", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 9)
    assert launch([sys.executable, "-I", "-S", "-c", CHILD], 2, port=4321) == 0
    out, err = capfd.readouterr()
    assert sorted(err.splitlines()) == ["[0] bad", "[1] bad"]
    lines = sorted(out.splitlines())
    assert [line[:4] for line in lines] == ["[0] ", "[1] "]
    for rank, line in enumerate(lines):
        assert json.loads(line[4:]) == {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": "2",
            "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "4321",
            "PYTHONUNBUFFERED": "1",
            "GLOO_SOCKET_IFNAME": "lo" if sys.platform == "linux" else "lo0",
            "OMP_NUM_THREADS": "4",
            "leads": True,
            "in": "",
            "job": 16,
        }


class Started:
    """What stands in for Popen: it keeps what it was asked for, and has two pipes."""

    def __init__(self, command: list[str], **options: Any) -> None:
        self.command, self.options, self.pid = command, options, 77
        ends = [os.pipe() for _ in range(2)]
        self.stdout, self.stderr = (os.fdopen(r, "rb", buffering=0) for r, _ in ends)
        self.writes = [w for _, w in ends]

    def close(self) -> None:
        for end in self.writes:
            os.close(end)
        self.stdout.close()
        self.stderr.close()


@pytest.mark.parametrize(("count", "cpus", "prefix", "threads"), [(10, 80, "[3] ", "8"), (11, None, "[ 3] ", "1")])
def test_prefixes_are_as_wide_as_the_last_rank_and_every_process_has_a_thread(
    monkeypatch: pytest.MonkeyPatch, count: int, cpus: int | None, prefix: str, threads: str
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: cpus)
    monkeypatch.setattr(launching.subprocess, "Popen", Started)
    one = _Launch(["train"], count, 1, 2.0)
    process = one._start(3)
    popen: Any = process.popen
    assert [stream.prefix for stream in process.streams] == [prefix] * 2
    assert [stream.holds for stream in process.streams] == [False, True]
    assert [stream.to for stream in process.streams] == [sys.stdout, sys.stderr]
    assert popen.command == ["train"]
    assert popen.options["env"]["OMP_NUM_THREADS"] == threads
    assert popen.options["start_new_session"] is True
    assert not os.get_blocking(popen.stdout.fileno())
    assert [key.data for key in one.selector.get_map().values()] == list(process.streams)
    one.selector.close()
    popen.close()


def test_variables_that_the_user_set_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7")
    monkeypatch.setattr(launching.subprocess, "Popen", Started)
    one = _Launch(["train"], 2, 1, 2.0)
    popen: Any = one._start(0).popen
    env = popen.options["env"]
    assert (env["OMP_NUM_THREADS"], env["GLOO_SOCKET_IFNAME"]) == ("3", "eth7")
    one.selector.close()
    popen.close()


# -- the course, by a clock that stands still ------------------------------------------------------------


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(launching, "monotonic", lambda: self.now)


class Pid:
    def __init__(self, pid: int) -> None:
        self.pid = pid


class Ranks:
    """A launch whose processes end when the test says so, and the signals that were sent to them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int, grace: float = 3.0) -> None:
        self.clock, self.sent = Clock(monkeypatch), list[tuple[int, int]]()
        self.launch = _Launch(["train"], count, 1, grace)
        self.out = [StringIO() for _ in range(count)]
        for rank, to in enumerate(self.out):
            popen: Any = Pid(1000 + rank)
            streams = Stream("", StringIO()), Stream("", to, holds=True)
            self.launch.processes.append(_Process(rank, popen, streams))
        self.ends: dict[int, tuple[int, int]] = {}  # by number: the code of si_code, and the status
        monkeypatch.setattr(launching, "TICK", 0.0)
        monkeypatch.setattr(os, "waitid", self._look)
        monkeypatch.setattr(os, "killpg", lambda pid, number: self.sent.append((pid - 1000, number)))

    def _look(self, kind: int, pid: int, options: int) -> Any:
        assert (kind, options) == (os.P_PID, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if pid - 1000 not in self.ends:
            return None
        code, status = self.ends[pid - 1000]
        return SimpleNamespace(si_code=code, si_status=status)

    def exit(self, rank: int, code: int) -> None:
        self.ends[rank] = (os.CLD_EXITED, code) if code >= 0 else (os.CLD_KILLED, -code)

    def step(self, now: float) -> list[tuple[int, int]]:
        self.clock.now, before = now, len(self.sent)
        self.launch._step()
        return self.sent[before:]

    def report(self, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
        code = self.launch._report()
        return code, [line.removeprefix("shardwise run: ") for line in capsys.readouterr().err.splitlines()]


TERM, KILL, INT, CONT = signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGCONT


def told(number: int, *ranks: int) -> list[tuple[int, int]]:
    return [pair for rank in ranks for pair in ((rank, number), (rank, CONT))]


def test_when_one_fails_the_others_are_asked_after_the_grace_and_made_to_end_later(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = Ranks(monkeypatch, 4)
    assert ranks.step(100.0) == []
    ranks.exit(0, 0)
    assert ranks.step(101.0) == []
    assert ranks.launch.schedule == []  # who is done does not end the others
    ranks.exit(2, 5)
    assert ranks.step(102.0) == []
    assert ranks.launch.schedule == [(105.0, TERM), (107.0, KILL)]
    assert not ranks.launch.asked
    assert ranks.step(104.9) == []
    ranks.exit(3, 1)
    assert ranks.step(104.95) == []
    assert ranks.launch.schedule[0][0] == 105.0  # a second failure changes nothing
    assert ranks.step(105.0) == told(TERM, 1)
    assert ranks.launch.asked
    assert ranks.step(106.9) == []
    assert ranks.step(107.0) == told(KILL, 1)
    assert ranks.launch.schedule == [(109.0, KILL)]  # until it is gone
    ranks.exit(1, -KILL)
    ranks.step(107.5)
    assert [p.code for p in ranks.launch.processes] == [0, -KILL, 5, 1]
    assert [p.ended for p in ranks.launch.processes] == [101.0, 107.5, 102.0, 104.95]
    assert ranks.report(capsys) == (
        5,
        ["rank 2 failed first: exit code 5", "rank 3 failed: exit code 1", "stopped: rank 1"],
    )


def test_a_process_is_looked_at_until_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = Ranks(monkeypatch, 1)
    (process,) = ranks.launch.processes
    assert (process.code, process.ended, process.errors) == (None, 0.0, process.streams[1])
    assert not process.look()
    ranks.exit(0, -11)
    assert process.look()
    assert process.code == -11
    ranks.exit(0, 4)
    assert not process.look()
    assert process.code == -11


def test_an_interrupt_is_passed_on_and_then_made_stronger(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = Ranks(monkeypatch, 2)
    ranks.step(100.0)
    ranks.launch.interrupted = INT
    assert ranks.step(100.0) == told(INT, 0, 1)
    assert capsys.readouterr().err == "shardwise run: interrupted; stopping all\n"
    ranks.exit(1, -INT)
    assert ranks.step(101.9) == []
    assert ranks.step(102.0) == told(TERM, 0)
    assert ranks.step(103.9) == []
    assert ranks.step(104.0) == told(KILL, 0)
    assert capsys.readouterr().err == ""  # said once


def test_a_process_that_is_gone_already_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = Ranks(monkeypatch, 2)

    def killpg(pid: int, number: int) -> None:
        ranks.sent.append((pid - 1000, number))
        if pid == 1000:
            raise ProcessLookupError

    monkeypatch.setattr(os, "killpg", killpg)
    ranks.launch._tell(TERM)
    assert ranks.sent == [(0, TERM), *told(TERM, 1)]


def test_tracebacks_of_processes_that_go_on_are_printed_while_nothing_is_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(output, "PATIENCE", -1.0)
    ranks = Ranks(monkeypatch, 2)
    text = "Traceback (most recent call last):\n"
    ranks.launch.processes[0].errors.take(text.encode())
    ranks.step(100.0)
    assert ranks.out[0].getvalue() == text
    ranks.exit(1, 1)
    ranks.step(101.0)
    ranks.launch.processes[0].errors.take(text.encode())
    ranks.step(102.0)
    assert ranks.out[0].getvalue() == text  # the second is held back: it may be a consequence


def test_what_processes_write_is_printed_while_they_run(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks, started, to = Ranks(monkeypatch, 1), Started([]), [StringIO(), StringIO()]
    for pipe, out in zip((started.stdout, started.stderr), to, strict=True):
        os.set_blocking(pipe.fileno(), False)
        ranks.launch.selector.register(pipe, selectors.EVENT_READ, Stream("> ", out))
    for k, (first, second) in enumerate([(b"one\n", b""), (b"t", b"three\n"), (b"wo\n", b"four\n")]):
        for end, data in zip(started.writes, (first, second), strict=True):
            os.write(end, data)
        assert ranks.step(100.0 + k) == []
    assert [out.getvalue() for out in to] == ["> one\n> two\n", "> three\n> four\n"]
    ranks.launch.selector.close()
    started.close()


# -- what happened ---------------------------------------------------------------------------------------


def finish(ranks: Ranks, *ends: tuple[int, float]) -> None:
    for process, (code, ended) in zip(ranks.launch.processes, ends, strict=True):
        process.code, process.ended = code, ended


def test_all_that_ended_well_is_a_success_and_what_they_wrote_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = Ranks(monkeypatch, 2)
    ranks.launch.processes[1].errors.take(b"Traceback (most recent call last):\n")
    finish(ranks, (0, 101.0), (0, 102.0))
    assert ranks.report(capsys) == (0, [])
    assert ranks.out[1].getvalue() == "Traceback (most recent call last):\n"


def test_who_blames_another_is_named_after_who_does_not_and_tracebacks_follow_that_order(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = Ranks(monkeypatch, 3)
    order: list[int] = []
    for rank, process in enumerate(ranks.launch.processes):
        monkeypatch.setattr(process.errors, "release", lambda rank=rank: order.append(rank))
    ranks.launch.processes[0].errors.is_consequence = True
    ranks.launch.processes[2].errors.began = 90.0  # its traceback began before rank 1 ended
    finish(ranks, (1, 101.0), (2, 102.0), (3, 103.0))
    code, lines = ranks.report(capsys)
    assert (code, order) == (3, [2, 1, 0])
    assert lines == ["rank 2 failed first: exit code 3", "rank 1 failed: exit code 2", "rank 0 failed: exit code 1"]


def test_who_ended_before_its_traceback_is_judged_by_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = Ranks(monkeypatch, 1)
    (process,) = ranks.launch.processes
    process.ended = 5.0
    assert _blame(process) == (False, 5.0)
    process.errors.began = 4.0
    assert _blame(process) == (False, 4.0)
    process.errors.began, process.errors.is_consequence = 6.0, True
    assert _blame(process) == (True, 5.0)


@pytest.mark.parametrize("asked", [True, False])
def test_only_who_was_asked_to_end_was_stopped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], asked: bool
) -> None:
    ranks = Ranks(monkeypatch, 3)
    ranks.launch.asked = asked
    for process in ranks.launch.processes:
        process.errors.take(b"Traceback (most recent call last):\n")
        process.errors.began = None
    finish(ranks, (-KILL, 101.0), (-TERM, 102.0), (-KILL, 103.0))
    code, lines = ranks.report(capsys)
    assert code == 128 + KILL
    first = "rank 0 failed first: ended by SIGKILL"
    rest = ["stopped: ranks 1, 2"] if asked else ["rank 1 failed: ended by SIGTERM", "rank 2 failed: ended by SIGKILL"]
    assert lines == [first, *rest]
    assert [to.getvalue() for to in ranks.out] == ["Traceback (most recent call last):\n"] * 3


def test_one_that_ended_by_another_signal_was_not_stopped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = Ranks(monkeypatch, 2)
    ranks.launch.asked = True
    finish(ranks, (1, 101.0), (-signal.SIGSEGV, 102.0))
    assert ranks.report(capsys) == (1, ["rank 0 failed first: exit code 1", "rank 1 failed: ended by SIGSEGV"])


# -- pipes, signals and what is left -----------------------------------------------------------------------


def test_pipes_are_read_to_their_end_and_let_go() -> None:
    one, to = _Launch(["train"], 1, 1, 2.0), StringIO()
    stream, started = Stream("> ", to), Started([])
    os.set_blocking(started.stdout.fileno(), False)
    one.selector.register(started.stdout, 1, stream)
    assert one._read(started.stdout, stream) is False  # nothing is there, and it is not waited for
    os.write(started.writes[0], b"a" * 60000 + b"\nrest")
    assert one._read(started.stdout, stream) is True
    assert to.getvalue() == "> " + "a" * 60000 + "\n"
    one._drain()  # a pipe that is still open at the other end
    assert to.getvalue().endswith("> rest\n")
    assert len(one.selector.get_map()) == 1
    os.write(started.writes[0], b"more")
    os.close(started.writes.pop(0))
    one._drain()
    assert to.getvalue().endswith("> rest\n> more\n")
    assert len(one.selector.get_map()) == 0
    assert started.stdout.closed
    one.selector.close()
    started.close()


def test_what_is_left_behind_is_named_unless_it_was_told_to_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended: list[tuple[list[int], str, float]] = []
    monkeypatch.setattr(launching.sentinel, "alive", lambda groups, job: [1000, 5, 6])
    monkeypatch.setattr(launching.sentinel, "end", lambda *found: ended.append(found))
    for asked in (False, True):
        ranks = Ranks(monkeypatch, 1)
        ranks.launch.asked = asked
        waited: list[int] = []
        popen: Any = ranks.launch.processes[0].popen
        popen.wait = lambda waited=waited: waited.append(1)
        read, write = os.pipe()
        pipe = os.fdopen(read, "rb")
        ranks.launch.selector.register(pipe, 1)
        ranks.launch._sweep()
        os.close(write)
        assert pipe.closed
        assert waited == [1]
        assert ended.pop() == ([1000], ranks.launch.job, 0.5)
        said = "" if asked else "shardwise run: ending what was left behind: processes 5, 6\n"
        assert capsys.readouterr().err == said


def test_an_interrupt_is_noted_and_handlers_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    one = _Launch(["train"], 1, 1, 2.0)
    names = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in names]
    with one._signals():
        for number in names:
            one.interrupted = None
            signal.raise_signal(number)
            assert one.interrupted == number
    assert [signal.getsignal(number) for number in names] == before


def test_an_interrupted_launch_returns_the_number_of_the_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    one = _Launch([sys.executable, "-I", "-S", "-c", "pass"], 1, 1, 2.0)
    monkeypatch.setattr(one, "_report", lambda: setattr(one, "interrupted", int(signal.SIGTERM)) or 3)
    assert one.run() == 128 + signal.SIGTERM


def test_the_sentinel_is_told_the_groups_and_that_all_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    said, commands = BytesIO(), []

    class Alone:
        def __init__(self, command: list[str], **options: Any) -> None:
            commands.append((command, options))
            self.stdin = said

        def __enter__(self) -> "Alone":
            return self

        def __exit__(self, *_: object) -> None:
            self.text = said.closed

    monkeypatch.setattr(launching.subprocess, "Popen", Alone)
    one = _Launch(["train"], 1, 1, 2.0)
    with one._sentinel() as guard:
        assert guard is said
        assert not said.closed
    assert said.closed
    ((command, options),) = commands
    assert command == [sys.executable, "-I", "-S", launching.sentinel.__file__, one.job]
    assert options["start_new_session"] is True


def test_the_launch_has_a_port_that_is_free() -> None:
    port = _free_port()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", port))


def test_one_of_the_two_variables_alone_is_no_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    assert launch([sys.executable, "-I", "-S", "-c", "pass"], 1) == 0
