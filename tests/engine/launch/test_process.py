"""One rank: what it is given, how it is watched, and what it is sent."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from time import monotonic, sleep
from types import SimpleNamespace
from typing import Any

import pytest

from shardwise import EngineError
from shardwise.engine.launch import process as processes
from shardwise.engine.launch.process import LISTENER, Process, reserve_port, start_process
from shardwise.engine.launch.screen import File
from tests.engine.launch.kept import Kept

SCREENS = File(Kept()), File(Kept("standard error"))


def wait_for(check: Any, seconds: float = 60.0) -> bool:
    end = monotonic() + seconds
    while not (value := check()) and monotonic() < end:
        sleep(0.01)
    return bool(value)


@pytest.fixture
def run() -> Iterator[Callable[..., Process]]:
    made: list[Process] = []

    def start(code: str, *args: str, listener: int | None = None) -> Process:
        made.append(start_process([sys.executable, "-I", "-S", "-c", code, *args], 0, 1, {}, SCREENS, listener))
        return made[-1]

    yield start
    for process in made:
        process.popen.kill()
        if process.popen.stdout is not None and not process.popen.stdout.closed:
            finish(process)


def finish(process: Process) -> tuple[bytes, bytes]:
    for pipe in (process.popen.stdout, process.popen.stderr):
        assert pipe is not None
        os.set_blocking(pipe.fileno(), True)
    return process.popen.communicate(timeout=60)


def test_a_command_that_is_not_there_is_named() -> None:
    with pytest.raises(EngineError, match="cannot start 'no-such-command': "):
        start_process(["no-such-command"], 0, 1, {}, SCREENS, None)


class Popen:
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


@pytest.mark.parametrize(("count", "cpus", "prefix", "threads"), [(10, 80, b"[3] ", "8"), (11, None, b"[ 3] ", "1")])
def test_prefixes_are_as_wide_as_the_last_rank_and_every_process_has_a_thread(
    monkeypatch: pytest.MonkeyPatch, count: int, cpus: int | None, prefix: bytes, threads: str
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: cpus)
    monkeypatch.setattr(processes.subprocess, "Popen", Popen)
    process = start_process(["train"], 3, count, {"MORE": "1"}, SCREENS, None)
    popen: Any = process.popen
    assert [stream.source for stream in process.streams] == [(prefix, 1), (prefix, 2)]
    assert [stream.holds for stream in process.streams] == [False, True]
    assert [stream.to for stream in process.streams] == list(SCREENS)
    assert process.errors is process.streams[1]
    assert popen.command == ["train"]
    assert popen.options["env"]["OMP_NUM_THREADS"] == threads
    assert popen.options["env"]["MORE"] == "1"
    assert popen.options["start_new_session"] is True
    assert not os.get_blocking(popen.stdout.fileno())
    popen.close()


def test_variables_that_the_user_set_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("OMP_NUM_THREADS", "3"), ("GLOO_SOCKET_IFNAME", "eth7"), (LISTENER, "9")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(processes.subprocess, "Popen", Popen)
    popen: Any = start_process(["train"], 0, 2, {}, SCREENS, None).popen
    env = popen.options["env"]
    assert (env["OMP_NUM_THREADS"], env["GLOO_SOCKET_IFNAME"]) == ("3", "eth7")
    assert LISTENER not in env  # that of another launch
    popen.close()


LISTENS = """
import json, os, socket, subprocess, sys
fd = int(os.environ["SHARDWISE_LISTEN_FD"])
listener = socket.socket(fileno=fd)
listener.listen()
client = socket.create_connection(listener.getsockname())
client.sendall(b"hello")
accepted = listener.accept()[0]
print(json.dumps([listener.getsockname(), accepted.recv(5).decode(), os.get_inheritable(fd)]))
"""


def test_one_process_has_the_port_and_nobody_else_can_take_it(run: Callable[..., Process]) -> None:
    with reserve_port() as reserved:
        address = reserved.getsockname()
        process = run(LISTENS, listener=reserved.fileno())
    out, err = finish(process)
    assert json.loads(out or err) == [list(address), "hello", True]


def test_nobody_is_given_a_port_that_is_reserved_and_its_program_can_still_take_it() -> None:
    with reserve_port() as reserved:
        address = reserved.getsockname()
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(address)
        with socket.socket() as own:  # as torch's store does
            own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            own.bind(address)
            own.listen()
            with socket.create_connection(address) as client, own.accept()[0] as accepted:
                client.sendall(b"x")
                assert accepted.recv(1) == b"x"


class Pid:
    def __init__(self, pid: int) -> None:
        self.pid = pid


def test_a_process_is_looked_at_until_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    states: list[Any] = [None, SimpleNamespace(si_code=os.CLD_KILLED, si_status=11)]
    popen: Any = Pid(1000)
    process = Process(0, popen, ())  # type: ignore[arg-type]
    monkeypatch.setattr(os, "waitid", lambda *given: states.pop(0))
    assert (process.code, process.ended) == (None, 0.0)
    assert not process.look()
    assert process.look()
    assert (process.code, process.ended > 0) == (-11, True)
    assert not process.look()  # which would ask for more
    process.code, states = None, [SimpleNamespace(si_code=os.CLD_EXITED, si_status=4)]
    assert process.look()
    assert process.code == 4


def test_a_process_that_is_stopped_is_noticed_once_and_woken_by_any_signal(run: Callable[..., Process]) -> None:
    process = run("import time; time.sleep(600)")
    assert process.look_for_stop() is None
    os.kill(process.popen.pid, signal.SIGSTOP)
    seen: list[Any] = []
    assert wait_for(lambda: seen.append(process.look_for_stop()) or seen[-1])
    assert seen[-1] == signal.SIGSTOP
    assert process.look_for_stop() is None
    process.tell(signal.SIGTERM)
    assert wait_for(process.look)
    assert process.code == -signal.SIGTERM
    finish(process)  # which reaps it
    process.tell(signal.SIGTERM)  # nobody is there
    assert process.look_for_stop() is None


ASKED = """
import signal, sys
if sys.argv[1:]: signal.signal(signal.SIGUSR2, lambda *given: sys.exit(7))
print("ready", flush=True)
while True: signal.pause()
"""


@pytest.mark.parametrize("handles", [False, True])
def test_only_who_handles_a_signal_is_asked(run: Callable[..., Process], handles: bool) -> None:
    process = run(ASKED, *["handles"] * handles)
    assert process.popen.stdout is not None
    os.set_blocking(process.popen.stdout.fileno(), True)
    assert process.popen.stdout.readline() == b"ready\n"
    assert process.ask(signal.SIGUSR2) == handles
    if not handles:
        process.tell(signal.SIGKILL)
    assert wait_for(process.look)
    assert process.code == (7 if handles else -signal.SIGKILL)
    assert not process.ask(signal.SIGUSR2)


def test_where_the_system_does_not_tell_nobody_is_asked() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    assert not processes._handles(process.pid, signal.SIGUSR2)
