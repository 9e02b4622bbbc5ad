"""What a launch refuses, what it does by the clock, and what it says; whole launches are tested in tests/faults."""

import json
import os
import re
import secrets
import signal
import subprocess
import sys
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from shardwise import ArgumentError, EngineError
from shardwise.engine.launch import launcher as launching
from shardwise.engine.launch import output
from shardwise.engine.launch.launcher import _blame, _cause, _Launch, launch
from shardwise.engine.launch.output import Stream
from shardwise.engine.launch.process import Process
from shardwise.engine.launch.screen import File, Source, Terminal
from tests.engine.launch.kept import Kept, shown


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "SHARDWISE_JOB", "SHARDWISE_SECRET", "SHARDWISE_RECORD"):
        monkeypatch.delenv(name, raising=False)


def launched(
    command: list[str], count: int = 1, port: int | None = 1, grace: float = 2.0
) -> tuple[_Launch, list[Kept]]:
    sinks = [Kept(), Kept("standard error")]
    return _Launch(command, count, port, grace, (File(sinks[0]), File(sinks[1]))), sinks


def test_no_processes_are_no_program() -> None:
    with pytest.raises(ArgumentError, match="at least one process, got 0"):
        launch([sys.executable], 0)


@pytest.mark.parametrize("variables", [{"RANK": "1", "WORLD_SIZE": "4"}, {"SHARDWISE_JOB": "ab"}])
def test_a_launch_inside_a_launch_is_refused(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(EngineError, match=r"(?s)this is already rank . of . of a launch.*unset RANK and WORLD_SIZE"):
        launch([sys.executable], 2)


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
names += ["GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "OMP_NUM_THREADS", "SHARDWISE_LISTEN_FD"]
said = {name: os.environ.get(name) for name in names}
said |= {"leads": os.getsid(0) == os.getpid(), "in": sys.stdin.read(), "job": len(os.environ["SHARDWISE_JOB"])}
said |= {"secret": os.environ["SHARDWISE_SECRET"], "record": os.path.isdir(os.environ["SHARDWISE_RECORD"])}
print(json.dumps(said))
print("bad", file=sys.stderr)
"""


def test_each_process_gets_its_variables_and_a_session_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 9)
    assert launch([sys.executable, "-I", "-S", "-c", CHILD], 2, port=4321) == 0
    out, err = capfd.readouterr()
    assert sorted(err.splitlines()) == ["[0] bad", "[1] bad"]
    lines = sorted(out.splitlines())
    assert [line[:4] for line in lines] == ["[0] ", "[1] "]
    said = [json.loads(line[4:]) for line in lines]
    assert len({each["secret"] for each in said}) == 1
    for rank, each in enumerate(said):
        assert re.fullmatch("[0-9a-f]{64}", each.pop("secret"))
        assert each == {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": "2",
            "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "4321",
            "PYTHONUNBUFFERED": "1",
            "GLOO_SOCKET_IFNAME": "lo" if sys.platform == "linux" else "lo0",
            "NCCL_SOCKET_IFNAME": "lo" if sys.platform == "linux" else "lo0",
            "OMP_NUM_THREADS": "4",
            "leads": True,
            "in": "",
            "job": 16,
            "record": True,
            "SHARDWISE_LISTEN_FD": None,
        }


def test_the_secret_of_the_user_is_kept_and_every_job_has_another(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, "-I", "-S", "-c", "import os; print(os.environ['SHARDWISE_SECRET'])"]
    for _ in range(2):
        assert launch(command, 1) == 0
    one, two = capfd.readouterr().out.splitlines()
    assert one != two
    monkeypatch.setenv("SHARDWISE_SECRET", secret := secrets.token_hex(32))
    assert launch(command, 1) == 0
    assert capfd.readouterr().out == f"[0] {secret}\n"


def test_the_first_process_alone_has_the_port(capfd: pytest.CaptureFixture[str]) -> None:
    code = (
        "import os, socket; n = os.environ.get('SHARDWISE_LISTEN_FD'); port = os.environ['MASTER_PORT']\n"
        "print(port if n is None else socket.socket(fileno=int(n)).getsockname() == ('127.0.0.1', int(port)))"
    )
    assert launch([sys.executable, "-I", "-S", "-c", code], 2) == 0
    first, second = sorted(capfd.readouterr().out.splitlines())
    assert first == "[0] True"
    assert re.fullmatch(r"\[1\] \d+", second)


# -- the course, by a clock that stands still ------------------------------------------------------------


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(launching, "monotonic", lambda: self.now)
        monkeypatch.setattr("shardwise.engine.launch.process.monotonic", lambda: self.now)


class Pid:
    def __init__(self, pid: int) -> None:
        self.pid = pid


class Ranks:
    """A launch whose processes end when the test says so, and the signals that were sent to them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int, grace: float = 3.0) -> None:
        self.clock, self.sent = Clock(monkeypatch), list[tuple[int, int]]()
        self.launch, self.sinks = launched(["train"], count, 1, grace)
        self.out = [Kept() for _ in range(count)]
        for rank, to in enumerate(self.out):
            popen: Any = Pid(1000 + rank)
            streams = Stream(Source(b""), File(Kept())), Stream(Source(b"", 2), File(to), holds=True)
            self.launch.processes.append(Process(rank, popen, streams))
        self.stops: dict[int, int] = {}  # by number: the signal
        self.ends: dict[int, tuple[int, int]] = {}  # by number: the code of si_code, and the status
        monkeypatch.setattr(launching, "TICK", 0.0)
        monkeypatch.setattr(os, "waitid", self._look)
        monkeypatch.setattr(os, "killpg", lambda pid, number: self.sent.append((pid - 1000, number)))

    def _look(self, kind: int, pid: int, options: int) -> Any:
        assert kind == os.P_PID
        if options == os.WSTOPPED | os.WNOHANG:
            stop = self.stops.pop(pid - 1000, None)
            return stop and SimpleNamespace(si_code=os.CLD_STOPPED, si_status=stop)
        assert options == os.WEXITED | os.WNOHANG | os.WNOWAIT
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

    def said(self) -> list[str]:
        """What the launch has said itself since it was asked last."""
        lines, self.sinks[1].pieces = self.sinks[1].lines, []
        return [line.removeprefix("shardwise run: ") for line in lines]

    def report(self) -> tuple[int, list[str]]:
        return self.launch._report(), self.said()


TERM, KILL, INT, CONT = signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGCONT


def told(number: int, *ranks: int) -> list[tuple[int, int]]:
    return [pair for rank in ranks for pair in ((rank, number), (rank, CONT))]


def test_when_one_fails_the_others_are_asked_after_the_grace_and_made_to_end_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ranks = Ranks(monkeypatch, 4)
    assert ranks.step(100.0) == []
    ranks.exit(0, 0)
    assert ranks.step(101.0) == []
    assert ranks.launch.schedule == []  # who is done does not end the others
    ranks.exit(2, 5)
    assert ranks.step(102.0) == []
    assert (ranks.launch.schedule, ranks.launch.due) == ([(3.0, TERM), (2.0, KILL)], 105.0)
    assert not ranks.launch.asked
    assert all(sink.drops for sink in ranks.sinks)
    assert ranks.step(104.9) == []
    ranks.exit(3, 1)
    assert ranks.step(104.95) == []
    assert ranks.launch.due == 105.0  # a second failure changes nothing
    assert ranks.step(105.0) == told(TERM, 1)
    assert ranks.launch.asked
    assert ranks.step(106.9) == []
    assert ranks.step(107.0) == told(KILL, 1)
    assert (ranks.launch.schedule, ranks.launch.due) == ([(2.0, KILL)], 109.0)  # until it is gone
    ranks.exit(1, -KILL)
    ranks.step(107.5)
    assert [p.code for p in ranks.launch.processes] == [0, -KILL, 5, 1]
    assert [p.ended for p in ranks.launch.processes] == [101.0, 107.5, 102.0, 104.95]
    assert ranks.report() == (
        5,
        ["rank 2 failed first: exit code 5", "rank 3 failed: exit code 1", "stopped: rank 1"],
    )


def test_a_launcher_that_was_stopped_itself_gives_all_the_time_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = Ranks(monkeypatch, 2)
    ranks.exit(1, 1)
    ranks.step(100.0)
    assert ranks.step(160.0) == told(TERM, 0)  # and not SIGKILL at the same moment
    assert ranks.step(161.9) == []
    assert ranks.step(162.0) == told(KILL, 0)


def test_an_interrupt_is_passed_on_and_then_made_stronger(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = Ranks(monkeypatch, 2)
    ranks.step(100.0)
    ranks.launch.signals.append(INT)
    assert ranks.step(100.0) == told(INT, 0, 1)
    assert ranks.said() == ["interrupted; stopping all"]
    ranks.exit(1, -INT)
    assert ranks.step(101.9) == []
    assert ranks.step(102.0) == told(TERM, 0)
    assert ranks.step(103.9) == []
    assert ranks.step(104.0) == told(KILL, 0)
    assert ranks.said() == []  # said once


def test_a_second_interrupt_is_harder_at_once_but_two_at_the_same_moment_are_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ranks = Ranks(monkeypatch, 1)
    ranks.launch.signals.extend([INT, TERM])
    assert ranks.step(100.0) == told(INT, 0)
    ranks.launch.signals.append(INT)
    assert ranks.step(100.1) == []
    assert ranks.said() == ["interrupted; stopping all"]
    ranks.launch.signals.append(INT)
    assert ranks.step(100.5) == told(TERM, 0)
    assert ranks.said() == ["interrupted again; not waiting any longer"]
    ranks.launch.signals.append(INT)
    assert ranks.step(101.0) == told(KILL, 0)
    assert ranks.launch.interrupted == INT  # the first


def test_an_interrupt_after_a_failure_is_passed_on_or_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    for now, number in ((101.0, INT), (103.5, KILL)):
        ranks = Ranks(monkeypatch, 2)
        ranks.exit(1, 1)
        ranks.step(100.0)
        if number == KILL:
            assert ranks.step(103.0) == told(TERM, 0)
        ranks.launch.signals.append(INT)
        assert ranks.step(now) == told(number, 0)
        assert ranks.said() == ["interrupted; stopping all" if number == INT else "interrupted; not waiting any longer"]


def test_a_process_that_is_stopped_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = Ranks(monkeypatch, 2)
    ranks.stops[1] = signal.SIGSTOP
    ranks.step(100.0)
    ranks.step(101.0)
    assert ranks.said() == ["rank 1 is stopped (SIGSTOP); kill -CONT 1001 lets it go on"]
    ranks.exit(0, 1)
    ranks.stops[1] = signal.SIGTSTP
    ranks.step(102.0)
    assert ranks.said() == []  # it is about to be ended


def test_stacks_are_asked_for_and_their_place_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = Ranks(monkeypatch, 3)
    asked: list[int] = []
    monkeypatch.setattr(Process, "ask", lambda self, number: number == signal.SIGUSR2 and self.rank in asked)
    ranks.launch.signals.append(signal.SIGUSR2)
    ranks.step(100.0)
    assert ranks.said()[0].startswith("no rank writes its stacks: they have not come to shardwise.init")
    assert not ranks.launch.records.keeps
    asked += [0, 2]
    ranks.launch.signals.append(signal.SIGUSR2)
    ranks.step(100.0)
    assert ranks.said() == [f"the stacks of ranks 0, 2 are in {ranks.launch.records.folder}/rank-*.stacks"]
    assert ranks.launch.records.keeps
    assert ranks.launch.interrupted is None


def test_a_launcher_that_goes_on_draws_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = Ranks(monkeypatch, 1)
    screen = Terminal(Kept())
    ranks.launch.screens = (screen, screen)
    screen.put(Source(b"> "), b"50%", b"\r")
    ranks.step(100.0)
    assert screen._drawn == ["> 50%"]
    ranks.launch.signals.append(signal.SIGCONT)
    ranks.launch._heed()
    assert screen._drawn == []


def test_a_process_that_is_gone_already_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = Ranks(monkeypatch, 2)

    def killpg(pid: int, number: int) -> None:
        ranks.sent.append((pid - 1000, number))
        if pid == 1000:
            raise ProcessLookupError

    monkeypatch.setattr(os, "killpg", killpg)
    ranks.launch._plan([(0.0, TERM)])
    ranks.launch._tell()
    assert ranks.sent == [(0, TERM), *told(TERM, 1)]


def test_tracebacks_of_processes_that_go_on_are_printed_while_nothing_is_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(output, "PATIENCE", -1.0)
    ranks = Ranks(monkeypatch, 2)
    text = "Traceback (most recent call last):\n"
    ranks.launch.processes[0].errors.take(text.encode())
    ranks.step(100.0)
    assert ranks.out[0].data.decode() == text
    ranks.exit(1, 1)
    ranks.step(101.0)
    ranks.launch.processes[0].errors.take(text.encode())
    ranks.step(102.0)
    assert ranks.out[0].data.decode() == text  # the second is held back: it may be a consequence


class Pipes:
    """The two outputs of a process, which the test writes."""

    def __init__(self, launch: _Launch, *streams: Stream) -> None:
        ends = [os.pipe() for _ in streams]
        self.reads, self.writes = [os.fdopen(r, "rb", buffering=0) for r, _ in ends], [w for _, w in ends]
        for pipe, stream in zip(self.reads, streams, strict=True):
            os.set_blocking(pipe.fileno(), False)
            launch.pipes[pipe] = stream
        self.launch = launch

    def close(self) -> None:
        self.launch.selector.close()
        for end in self.writes:
            os.close(end)
        for pipe in self.reads:
            pipe.close()


def test_what_processes_write_is_printed_while_they_run(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks, to = Ranks(monkeypatch, 1), [Kept(), Kept()]
    pipes = Pipes(ranks.launch, *[Stream(Source(b"> "), File(sink)) for sink in to])
    for k, (first, second) in enumerate([(b"one\n", b""), (b"t", b"three\n"), (b"wo\n", b"four\n")]):
        for end, data in zip(pipes.writes, (first, second), strict=True):
            os.write(end, data)
        assert ranks.step(100.0 + k) == []
    assert [sink.data for sink in to] == [b"> one\n> two\n", b"> three\n> four\n"]
    pipes.close()


def test_who_writes_to_a_full_output_waits_until_it_should_end(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks, to = Ranks(monkeypatch, 2), [Kept(), Kept()]
    pipes = Pipes(ranks.launch, *[Stream(Source(b"> "), File(sink)) for sink in to])
    to[0].waiting = to[0].room
    for end in pipes.writes:
        os.write(end, b"one\n")
    ranks.step(100.0)
    assert [sink.data for sink in to] == [b"", b"> one\n"]
    to[0].waiting = 0
    ranks.step(101.0)
    assert to[0].data == b"> one\n"
    to[0].waiting = to[0].room
    os.write(pipes.writes[0], b"two\n")
    ranks.step(102.0)
    assert to[0].data == b"> one\n"
    ranks.exit(1, 1)
    ranks.step(103.0)
    ranks.step(103.1)
    assert to[0].data == b"> one\n> two\n"  # which a sink that is full would count, and drop
    pipes.close()


def test_what_keeps_output_from_being_written_is_said_once_on_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = Ranks(monkeypatch, 1)
    out, err = ranks.sinks
    out.trouble = "No space left on device"
    ranks.step(100.0)
    ranks.step(101.0)
    text = "cannot write to the standard output: No space left on device; the job goes on without it"
    assert (out.data, ranks.said()) == (b"", [text])
    err.trouble = "Broken pipe"
    ranks.step(102.0)
    assert ranks.said() == []
    assert out.data == b"shardwise run: cannot write to the standard error: Broken pipe; the job goes on without it\n"


def test_what_the_launcher_says_can_be_shown_whatever_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = Ranks(monkeypatch, 1)
    ranks.launch.err.encoding = "ascii"
    ranks.launch._say("a\x1b[2Jb\r\u2028é\udcff\nnext")
    assert ranks.sinks[1].data == (
        b"shardwise run: a\\x1b[2Jb\nshardwise run: \nshardwise run: \\xe9\\udcff\nshardwise run: next\n"
    )
    ranks.launch.err.encoding = "utf-8"
    ranks.launch._say("a\x07\x9b\tb é")
    assert ranks.sinks[1].data.decode().splitlines()[4:] == ["shardwise run: a\\x07\\x9b\\tb é"]


# -- the live line -----------------------------------------------------------------------------------------


def test_the_live_line_is_that_of_the_thread_and_goes_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = Ranks(monkeypatch, 1)
    screen = Terminal(Kept())
    ranks.launch.screens, ranks.launch.err, ranks.launch.live_screen = (screen, screen), screen, screen
    made: Any = SimpleNamespace(text="1 rank")
    ranks.launch.live_line = made
    ranks.step(100.0)
    assert screen._drawn == ["1 rank"]
    made.text = ""
    screen._due = 0.0
    ranks.step(101.0)
    assert screen._drawn == []
    made.text = "1 rank again"
    screen._due = 0.0
    ranks.step(102.0)
    ranks.launch._finish(0)
    assert (screen.live, shown(screen.sink.data)) == ("", [""])  # type: ignore[attr-defined]


@pytest.mark.parametrize("has_folder", [True, False])
@pytest.mark.parametrize("has_screen", [True, False])
def test_there_is_a_live_line_where_it_can_stand_and_records_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, has_screen: bool, has_folder: bool
) -> None:
    made: list[Any] = []
    monkeypatch.setattr(launching, "LiveLine", lambda progress: made.append(progress))
    ranks = Ranks(monkeypatch, 2)
    ranks.launch.live_screen = Terminal(Kept()) if has_screen else None
    ranks.launch.records.folder = tmp_path if has_folder else None
    ranks.launch._start_live_line()
    assert [(each.folder, each.sessions) for each in made] == (
        [(tmp_path, {0: 1000, 1: 1001})] if has_screen and has_folder else []
    )


@pytest.mark.parametrize("live", [True, False])
def test_the_user_may_want_no_live_line(monkeypatch: pytest.MonkeyPatch, live: bool) -> None:
    screen, seen = Terminal(Kept()), list[Any]()
    monkeypatch.setattr(launching, "open_screens", lambda: (screen, screen))
    monkeypatch.setattr(_Launch, "run", lambda self: seen.append(self.live_screen) or 0)
    assert launch(["train"], 1, live=live) == 0
    assert seen == [screen if live else None]


# -- what happened ---------------------------------------------------------------------------------------


def finish(ranks: Ranks, *ends: tuple[int, float]) -> None:
    for process, (code, ended) in zip(ranks.launch.processes, ends, strict=True):
        process.code, process.ended = code, ended


def test_all_that_ended_well_is_a_success_and_what_they_wrote_is_printed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ranks = Ranks(monkeypatch, 2)
    ranks.launch.processes[1].errors.take(b"Traceback (most recent call last):\n")
    finish(ranks, (0, 101.0), (0, 102.0))
    assert ranks.report() == (0, [])
    assert ranks.out[1].data.decode() == "Traceback (most recent call last):\n"


def test_who_blames_another_is_named_after_who_does_not_and_tracebacks_follow_that_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ranks = Ranks(monkeypatch, 3)
    order: list[int] = []
    for rank, process in enumerate(ranks.launch.processes):
        monkeypatch.setattr(process.errors, "release", lambda rank=rank: order.append(rank))
    ranks.launch.processes[0].errors.is_consequence = True
    ranks.launch.processes[2].errors.began = 90.0  # its traceback began before rank 1 ended
    finish(ranks, (1, 101.0), (2, 102.0), (3, 103.0))
    code, lines = ranks.report()
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
def test_only_who_was_asked_to_end_was_stopped(monkeypatch: pytest.MonkeyPatch, asked: bool) -> None:
    ranks = Ranks(monkeypatch, 3)
    ranks.launch.asked = asked
    for process in ranks.launch.processes:
        process.errors.take(b"Traceback (most recent call last):\n")
        process.errors.began = None
    finish(ranks, (-KILL, 101.0), (-TERM, 102.0), (-KILL, 103.0))
    code, lines = ranks.report()
    assert code == 128 + KILL
    first = "rank 0 failed first: ended by SIGKILL"
    rest = ["stopped: ranks 1, 2"] if asked else ["rank 1 failed: ended by SIGTERM", "rank 2 failed: ended by SIGKILL"]
    assert lines == [first, *rest]
    assert [to.data.decode() for to in ranks.out] == ["Traceback (most recent call last):\n"] * 3


def test_one_that_ended_by_another_signal_was_not_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ranks = Ranks(monkeypatch, 2)
    ranks.launch.asked = True
    finish(ranks, (1, 101.0), (-signal.SIGSEGV, 102.0))
    assert ranks.report() == (1, ["rank 0 failed first: exit code 1", "rank 1 failed: ended by SIGSEGV"])


# -- pipes, signals and what is left -----------------------------------------------------------------------


def test_pipes_are_read_to_their_end_and_let_go() -> None:
    (one, _), to = launched(["train"]), Kept()
    pipes = Pipes(one, Stream(Source(b"> "), File(to)), Stream(Source(b"> "), File(to)))
    (pipe, other) = pipes.reads
    assert one._read(pipe) == 0  # nothing is there, and it is not waited for
    os.write(pipes.writes[0], b"a" * 60000 + b"\nrest")
    assert one._read(pipe) == 60005
    assert to.data == b"> " + b"a" * 60000 + b"\n"
    os.write(pipes.writes[0], b"more")
    os.close(pipes.writes.pop(0))
    one._drain()  # the second is still open at the other end
    assert to.data.endswith(b"\n> restmore\n")
    assert one.pipes == {}
    assert pipe.closed
    assert other.closed
    pipes.close()


def test_what_writes_without_end_is_read_for_as_much_as_a_pipe_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    (one, _), to = launched(["train"]), Kept()
    pipes = Pipes(one, Stream(Source(b"> "), File(to)))
    monkeypatch.setattr(os, "read", lambda *given: b"y\n" * (1 << 15))
    one._drain()
    assert to.data.count(b"y") == launching.PIPE / 2
    pipes.close()


def test_what_is_left_behind_is_named_unless_it_was_told_to_end(
    monkeypatch: pytest.MonkeyPatch,
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
        pipes = Pipes(ranks.launch, Stream(Source(b"> "), File(Kept())))
        ranks.launch._sweep()
        assert pipes.reads[0].closed
        pipes.close()
        assert waited == [1]
        assert ended.pop() == ([1000], ranks.launch.job, 0.5)
        assert ranks.said() == ([] if asked else ["ending what was left behind: processes 5, 6"])


HEEDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2, signal.SIGCONT)


def test_signals_are_noted_and_handlers_come_back() -> None:
    one, _ = launched(["train"])
    before = [signal.getsignal(number) for number in HEEDED]
    with one._signals():
        for number in HEEDED:
            signal.raise_signal(number)
    assert list(one.signals) == list(HEEDED)
    assert [signal.getsignal(number) for number in HEEDED] == before


def test_after_the_end_signals_change_nothing_for_a_process_that_exits() -> None:
    one, _ = launched(["train"])
    one.exits = True
    before = {number: signal.getsignal(number) for number in HEEDED}
    try:
        with one._signals():
            pass
        assert [signal.getsignal(number) for number in HEEDED] == [signal.SIG_IGN] * len(HEEDED)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_what_nohup_ignores_stays_ignored() -> None:
    one, _ = launched(["train"])
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with one._signals():
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert not one.signals


def test_an_interrupted_launch_returns_the_number_of_the_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    one, _ = launched([sys.executable, "-I", "-S", "-c", "pass"])
    monkeypatch.setattr(one, "_report", lambda: setattr(one, "interrupted", int(signal.SIGTERM)) or 3)
    assert one.run() == 128 + signal.SIGTERM


# -- the end -----------------------------------------------------------------------------------------------


class Stuck(Kept):
    """A sink that nobody reads; it is asked so often, and something happens then."""

    def __init__(self, happens: Any) -> None:
        super().__init__()
        self.happens, self.asked, self.waiting = happens, 0, 7

    def finish(self, seconds: float) -> bool:
        self.asked += 1
        self.happens(self.asked)
        return not self.waiting


def stuck(monkeypatch: pytest.MonkeyPatch, happens: Any) -> tuple[_Launch, Stuck, Clock, Kept]:
    clock, err = Clock(monkeypatch), Kept("standard error")
    out = Stuck(lambda asked: happens(one, clock, asked))
    one = _Launch(["train"], 1, 1, 2.0, (File(out), File(err)))
    return one, out, clock, err


def test_who_reads_slowly_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def happens(one: _Launch, clock: Clock, asked: int) -> None:
        clock.now += 100.0
        if asked == 50:
            out.waiting = 0

    one, out, _, err = stuck(monkeypatch, happens)
    one._finish(0)
    assert out.asked >= 50
    assert err.data == b""


@pytest.mark.parametrize("is_before", [True, False])
def test_after_an_interrupt_a_second_is_left_to_read(monkeypatch: pytest.MonkeyPatch, is_before: bool) -> None:
    def happens(one: _Launch, clock: Clock, asked: int) -> None:
        clock.now += 0.25
        if asked == 8 and not is_before:
            one.signals.append(TERM)

    one, _, clock, err = stuck(monkeypatch, happens)
    one.interrupted = INT if is_before else None
    one._finish(0)
    assert one.interrupted == (INT if is_before else TERM)
    assert clock.now - 100.0 < (2.0 if is_before else 4.0)
    assert err.data == b"shardwise run: 7 bytes of the standard output were not written: nobody reads it\n"


def test_what_was_dropped_is_counted_on_the_output_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = Ranks(monkeypatch, 1)
    ranks.sinks[0].dropped = 12
    ranks.launch._finish(0)
    assert ranks.said() == ["12 bytes of the standard output were dropped: nobody read them in time"]
    ranks.sinks[0].trouble = "Broken pipe"
    ranks.launch._finish(0)
    assert ranks.said() == [
        "cannot write to the standard output: Broken pipe; the job goes on without it",
        "12 bytes of the standard output were not written: Broken pipe",
    ]


@pytest.mark.parametrize(("code", "interrupted"), [(0, None), (1, None), (0, INT)])
def test_records_are_named_after_any_end_but_a_clean_one(
    monkeypatch: pytest.MonkeyPatch, code: int, interrupted: int | None
) -> None:
    ranks = Ranks(monkeypatch, 1)
    monkeypatch.setattr(ranks.launch.records, "tell", lambda: ["who was first", "where it is"])
    ranks.launch.interrupted = interrupted
    ranks.launch._finish(code)
    assert ranks.said() == (["who was first", "where it is"] if code or interrupted else [])


# -- the sentinel ------------------------------------------------------------------------------------------


class Alone:
    """What stands in for the process of the sentinel."""

    made: ClassVar[list["Alone"]] = []
    stopped = False

    def __init__(self, command: list[str], **options: Any) -> None:
        self.command, self.options, self.stdin, self.killed = command, options, BytesIO(), False
        self.text = b""
        Alone.made.append(self)

    def wait(self, seconds: float | None = None) -> None:
        assert self.stdin.closed
        if seconds is not None and Alone.stopped:
            raise subprocess.TimeoutExpired("sentinel", seconds)

    def kill(self) -> None:
        self.killed = True


@pytest.mark.parametrize("stopped", [False, True])
def test_the_sentinel_is_started_alone_and_not_waited_for_if_it_is_stopped(
    monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    monkeypatch.setattr(Alone, "made", [])
    monkeypatch.setattr(Alone, "stopped", stopped)
    monkeypatch.setattr(launching.subprocess, "Popen", Alone)
    one, _ = launched(["train"])
    with one._sentinel() as guard:
        (process,) = Alone.made
        assert guard is process.stdin
    assert process.killed == stopped
    assert process.command == [sys.executable, "-I", "-S", launching.sentinel.__file__, one.job]
    assert process.options["start_new_session"] is True


def test_an_interrupt_while_the_sentinel_is_waited_for_changes_nothing() -> None:
    """All has ended by then; who is stopped is not left behind."""
    one, sinks = launched([sys.executable, "-I", "-S", "-c", "print(1)"])
    make = one._sentinel

    @contextmanager
    def sentinel() -> Any:
        with make() as guard:
            yield guard
            signal.raise_signal(signal.SIGINT)

    one._sentinel = sentinel
    assert one.run() == 0
    assert sinks[0].data == b"[0] 1\n"


def test_a_launch_goes_on_without_its_sentinel() -> None:
    one, sinks = launched([sys.executable, "-I", "-S", "-c", "print(1)"], 2)

    class Broken(BytesIO):
        def flush(self) -> None:
            raise BrokenPipeError

    @contextmanager
    def sentinel() -> Any:
        yield Broken()

    one._sentinel = sentinel
    assert one.run() == 0
    assert sorted(sinks[0].lines) == ["[0] 1", "[1] 1"]


def test_one_of_the_two_variables_alone_is_no_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    assert launch([sys.executable, "-I", "-S", "-c", "pass"], 1) == 0
