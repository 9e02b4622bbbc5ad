"""Launching: the processes of a program on this host, from their start to the end of the last of them."""

from __future__ import annotations

import os
import secrets
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import IO, Any

from shardwise.engine.launch import sentinel
from shardwise.engine.launch.output import Stream
from shardwise.errors import ArgumentError, EngineError

TICK = 0.05  # seconds between looks at the processes
HARD = 2.0  # seconds from asking a process to end to making it
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def launch(command: Sequence[str], count: int, *, port: int | None = None, grace: float = 2.0) -> int:
    """Run a command as `count` processes of one program and return what this process should exit with.

    Each has its RANK and the other variables that torchrun sets. When one fails, the others have `grace` seconds to
    find out and leave; then they are asked to end, and two seconds later made to. None is left behind, even if this
    process is killed.
    """
    if count < 1:
        raise ArgumentError(f"a program needs at least one process, got {count}.")
    _refuse_nesting()
    return _Launch(command, count, port or _free_port(), grace).run()


def _refuse_nesting() -> None:
    if sentinel.VARIABLE in os.environ or {"RANK", "WORLD_SIZE"} <= set(os.environ):
        rank, size = os.environ.get("RANK", "?"), os.environ.get("WORLD_SIZE", "?")
        raise EngineError(
            f"this is already rank {rank} of {size} of a launch: each of its processes would start a launch of its "
            "own, with the same ranks.\n"
            "  start one launch with as many processes as the mesh has devices; unset RANK and WORLD_SIZE if they are "
            "left over."
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass
class _Process:
    rank: int
    popen: subprocess.Popen[bytes]
    streams: tuple[Stream, Stream]
    code: int | None = None  # as Popen has it: minus the signal that ended it
    ended: float = 0.0

    @property
    def errors(self) -> Stream:
        return self.streams[1]

    def look(self) -> bool:
        """Return whether the process ended since the last look; it is not reaped, so that its number stays its own."""
        if self.code is not None:
            return False
        status = os.waitid(os.P_PID, self.popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if status is None:
            return False
        self.code = status.si_status if status.si_code == os.CLD_EXITED else -status.si_status
        self.ended = monotonic()
        return True


class _Launch:
    def __init__(self, command: Sequence[str], count: int, port: int, grace: float) -> None:
        self.command, self.count, self.port, self.grace = list(command), count, port, grace
        self.job = secrets.token_hex(8)
        self.processes: list[_Process] = []
        self.selector = selectors.DefaultSelector()
        self.schedule: list[tuple[float, signal.Signals]] = []  # what is sent to all, and when
        self.interrupted: int | None = None
        self.asked = False  # whether processes were told to end

    # -- the course --------------------------------------------------------------------------------

    def run(self) -> int:
        with self._sentinel() as guard, self._signals():
            try:
                for rank in range(self.count):
                    self.processes.append(self._start(rank))
                    guard.write(f"{self.processes[-1].popen.pid}\n".encode())
                    guard.flush()
                while any(process.code is None for process in self.processes):
                    self._step()
                self._drain()
                failed = self._report()
            finally:
                self._sweep()
                with suppress(OSError):
                    guard.write(b"done\n")
        if self.interrupted is not None:
            return 128 + self.interrupted
        return failed

    def _step(self) -> None:
        for key, _ in self.selector.select(TICK):
            self._read(key.fileobj, key.data)
        for process in self.processes:
            if process.look() and process.code != 0 and not self.schedule:
                self._plan([(self.grace, signal.SIGTERM), (self.grace + HARD, signal.SIGKILL)])
            elif process.code is None and not self.schedule:
                process.errors.look()
        if self.interrupted is not None and not self.asked:
            self._say("interrupted; stopping all")
            self._plan([(0.0, signal.SIGINT), (HARD, signal.SIGTERM), (2 * HARD, signal.SIGKILL)])
            self.asked = True
        while self.schedule and monotonic() >= self.schedule[0][0]:
            self._tell(self.schedule.pop(0)[1])
            self.asked = True

    def _plan(self, delays: Sequence[tuple[float, signal.Signals]]) -> None:
        self.schedule = [(monotonic() + delay, number) for delay, number in delays]

    def _tell(self, number: signal.Signals) -> None:
        for process in self.processes:
            if process.code is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.popen.pid, number)
                    os.killpg(process.popen.pid, signal.SIGCONT)  # one that is stopped cannot end
        if not self.schedule:  # the last: nothing may be left for the loop to wait for
            self.schedule = [(monotonic() + HARD, number)]

    # -- processes ---------------------------------------------------------------------------------

    def _start(self, rank: int) -> _Process:
        env = os.environ | {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(self.count),
            "LOCAL_WORLD_SIZE": str(self.count),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.port),
            "PYTHONUNBUFFERED": "1",
            sentinel.VARIABLE: self.job,
        }
        env.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
        env.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // self.count)))
        try:
            popen = subprocess.Popen(
                self.command,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise EngineError(f"cannot start {self.command[0]!r}: {error}.") from None
        prefix = f"[{rank:>{len(str(self.count - 1))}}] "
        streams = Stream(prefix, sys.stdout), Stream(prefix, sys.stderr, holds=True)
        for pipe, stream in zip((popen.stdout, popen.stderr), streams, strict=True):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self.selector.register(pipe, selectors.EVENT_READ, stream)
        return _Process(rank, popen, streams)

    def _read(self, pipe: Any, stream: Stream) -> bool:
        try:
            data = os.read(pipe.fileno(), 1 << 16)
        except BlockingIOError:
            return False
        if not data:
            self.selector.unregister(pipe)
            pipe.close()
            stream.end()
        stream.take(data)
        return bool(data)

    def _open_pipes(self) -> list[tuple[Any, Stream]]:
        return [(key.fileobj, key.data) for key in self.selector.get_map().values()]

    def _drain(self) -> None:
        # What was written is read to its end; a pipe that something else still holds open is not waited for.
        for pipe, stream in self._open_pipes():
            while self._read(pipe, stream):
                pass
            stream.end()

    def _sweep(self) -> None:
        groups = [process.popen.pid for process in self.processes]
        left = [p for p in sentinel.alive(groups, self.job) if p not in groups]
        if left and not self.asked:
            self._say(f"ending what was left behind: processes {', '.join(map(str, left))}")
        sentinel.end(groups, self.job, 0.5)
        for process in self.processes:
            process.popen.wait()
        for pipe, _ in self._open_pipes():
            pipe.close()
        self.selector.close()

    # -- what happened -----------------------------------------------------------------------------

    def _report(self) -> int:
        failed = [process for process in self.processes if process.code]
        for process in self.processes:
            if not process.code:
                process.errors.release()
        stopped = [p for p in failed if p.code in (-signal.SIGTERM, -signal.SIGKILL) and self.asked and p.ended]
        stopped = [p for p in stopped if p.ended > min(q.ended for q in failed)]
        rest = sorted((p for p in failed if p not in stopped), key=_blame)
        for place, process in enumerate(rest):
            self._say(f"rank {process.rank} failed{' first' * (place == 0)}: {_cause(process.code or 0)}")
            process.errors.release()
        for process in stopped:
            process.errors.release()
        if stopped:
            self._say(f"stopped: rank{'s' * (len(stopped) > 1)} {', '.join(str(p.rank) for p in stopped)}")
        code = (rest or failed)[0].code if failed else 0
        return 0 if not code else code if code > 0 else 128 - code

    def _say(self, text: str) -> None:
        print(f"shardwise run: {text}", file=sys.stderr, flush=True)

    # -- around it ---------------------------------------------------------------------------------

    @contextmanager
    def _sentinel(self) -> Generator[IO[bytes]]:
        command = [sys.executable, "-I", "-S", str(Path(sentinel.__file__)), self.job]
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            assert process.stdin is not None
            yield process.stdin
            with suppress(OSError):
                process.stdin.close()

    @contextmanager
    def _signals(self) -> Generator[None]:
        def note(number: int, frame: object) -> None:
            self.interrupted = number

        before = {number: signal.signal(number, note) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _blame(process: _Process) -> tuple[bool, float]:
    # First who does not blame another; then who failed first.
    began = process.errors.began
    return process.errors.is_consequence, process.ended if began is None else min(began, process.ended)


def _cause(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return f"ended by {signal.Signals(-code).name}"
    return f"ended by signal {-code}"
