"""Launching: the processes of a program on this host, from their start to the end of the last of them."""

from __future__ import annotations

import os
import secrets
import selectors
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import IO

from shardwise.engine.launch import sentinel
from shardwise.engine.launch.live_line import LiveLine
from shardwise.engine.launch.output import Stream
from shardwise.engine.launch.process import Process, reserve_port, start_process
from shardwise.engine.launch.progress import Progress
from shardwise.engine.launch.records import Records
from shardwise.engine.launch.screen import Screen, Source, find_live, open_screens
from shardwise.errors import ArgumentError, EngineError, printable

TICK = 0.05  # seconds between looks at the processes
HARD = 2.0  # seconds from asking a process to end to making it
LAST = 1.0  # seconds in which the rest of the output is written after an interrupt
TWICE = 0.2  # seconds within which signals count as one: a terminal and a program may both pass on a Ctrl-C
PIPE = 1 << 20  # bytes that a pipe can hold
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STACKS = signal.SIGUSR2
OURS = Source(b"shardwise run: ", 0)


def launch(
    command: Sequence[str],
    count: int,
    *,
    port: int | None = None,
    grace: float = 2.0,
    live: bool = True,
    exits: bool = False,
) -> int:
    """Run a command as `count` processes of one program and return what this process should exit with.

    Each has its RANK and the other variables that torchrun sets. When one fails, the others have `grace` seconds to
    find out and leave; then they are asked to end, and two seconds later made to. None is left behind, even if this
    process is killed. Whoever reads the output, or does not, changes nothing of that. On a terminal a live line says
    how far all are. If this process `exits` then, signals that come after the end change nothing any more.
    """
    if count < 1:
        raise ArgumentError(f"a program needs at least one process, got {count}.")
    _refuse_nesting()
    screens = open_screens()
    return _Launch(command, count, port, grace, screens, find_live(screens) if live else None, exits).run()


def _refuse_nesting() -> None:
    if sentinel.VARIABLE in os.environ or {"RANK", "WORLD_SIZE"} <= set(os.environ):
        rank, size = os.environ.get("RANK", "?"), os.environ.get("WORLD_SIZE", "?")
        raise EngineError(
            f"this is already rank {rank} of {size} of a launch: each of its processes would start a launch of its "
            "own, with the same ranks.\n"
            "  start one launch with as many processes as the mesh has devices; unset RANK and WORLD_SIZE if they are "
            "left over."
        )


class _Launch:
    def __init__(
        self,
        command: Sequence[str],
        count: int,
        port: int | None,
        grace: float,
        screens: tuple[Screen, Screen],
        live: Screen | None = None,
        exits: bool = False,
    ) -> None:
        self.command, self.count, self.port, self.grace = list(command), count, port, grace
        self.screens, self.err, self.live_screen = screens, screens[1], live
        self.sinks = list(dict.fromkeys(screen.sink for screen in screens))
        self.exits, self.job = exits, secrets.token_hex(8)
        self.records = Records(self.job)
        self.live_line: LiveLine | None = None
        self.processes: list[Process] = []
        self.pipes: dict[IO[bytes], Stream] = {}  # those that are open
        self.selector = selectors.DefaultSelector()  # of those that are read now
        self.schedule: list[
            tuple[float, signal.Signals]
        ] = []  # what is sent to all, so long after what was sent before
        self.due = 0.0  # when the first of them is
        self.signals = deque[int]()  # that have come
        self.interrupted: int | None = None
        self.interrupt_time = 0.0
        self.asked = False  # whether processes were told to end
        self.said = set[str]()  # what is wrong with the output, and was said

    # -- the course --------------------------------------------------------------------------------

    def run(self) -> int:
        """Run all from the start to the end; signals are noted all the time."""
        with self._signals():
            return self._run()

    def _run(self) -> int:
        self.records.open()
        try:
            with self._sentinel() as guard:
                try:
                    self._start(guard)
                    self._start_live_line()
                    while any(process.code is None for process in self.processes):
                        self._step()
                    self._drain()
                    code = self._report()
                finally:
                    self._sweep()
                    with suppress(OSError):
                        guard.write(b"done\n")
                        guard.flush()
                self._finish(code)
        finally:
            if self.live_line is not None:
                self.live_line.close()
            for sink in self.sinks:
                sink.close()
            self.records.close()
        return code if self.interrupted is None else 128 + self.interrupted

    def _start(self, guard: IO[bytes]) -> None:
        more = {sentinel.VARIABLE: self.job, **self.records.env}
        if not os.environ.get("SHARDWISE_SECRET"):
            more["SHARDWISE_SECRET"] = secrets.token_hex(32)
        with ExitStack() as stack:
            listener = None
            if self.port is None:
                reserved = stack.enter_context(reserve_port())
                self.port, listener = reserved.getsockname()[1], reserved.fileno()
            more["MASTER_PORT"] = str(self.port)
            for rank in range(self.count):
                inherits = listener if rank == 0 else None
                process = start_process(self.command, rank, self.count, more, self.screens, inherits)
                self.processes.append(process)
                for pipe, stream in zip((process.popen.stdout, process.popen.stderr), process.streams, strict=True):
                    assert pipe is not None
                    self.pipes[pipe] = stream
                with suppress(OSError):  # somebody ended the sentinel
                    guard.write(f"{process.popen.pid}\n".encode())
                    guard.flush()

    def _start_live_line(self) -> None:
        if self.live_screen is not None and self.records.folder is not None:
            sessions = {process.rank: process.popen.pid for process in self.processes}
            self.live_line = LiveLine(Progress(self.records.folder, sessions))

    def _step(self) -> None:
        self._let_in()
        for key, _ in self.selector.select(TICK):
            self._read(key.data)
        self._complain()
        for process in self.processes:
            if process.look():
                if process.code != 0 and not self.schedule:
                    self._plan([(self.grace, signal.SIGTERM), (HARD, signal.SIGKILL)])
            elif process.code is None and not self.schedule:
                self._look_at(process)
        for number in self._heed():
            self._interrupt(number)
        if self.schedule and monotonic() >= self.due:
            self._tell()
        if self.live_line is not None and self.live_screen is not None:
            self.live_screen.live = self.live_line.text
        for screen in self.screens:
            screen.look()

    def _look_at(self, process: Process) -> None:
        for stream in process.streams:
            stream.look()
        number = process.look_for_stop()
        if number is not None:
            pid = process.popen.pid
            self._say(f"rank {process.rank} is stopped ({number.name}); kill -CONT {pid} lets it go on")

    def _plan(self, steps: Sequence[tuple[float, signal.Signals]]) -> None:
        self.schedule, self.due = list(steps), monotonic() + steps[0][0]
        for sink in self.sinks:
            sink.drops = True  # from now on nobody waits for a reader

    def _tell(self) -> None:
        # One at a time, and the next so long after it: this process may have been stopped itself.
        _, number = self.schedule.pop(0)
        for process in self.processes:
            if process.code is None:
                process.tell(number)
        self.asked = True
        self.schedule = self.schedule or [(HARD, number)]  # until all are gone
        self.due = monotonic() + self.schedule[0][0]

    def _interrupt(self, number: int) -> None:
        is_same = self.interrupted is not None and monotonic() - self.interrupt_time < TWICE
        self.interrupt_time = monotonic()
        if is_same:
            return
        again = " again" * (self.interrupted is not None)
        self.interrupted = self.interrupted or number
        if self.asked:
            self._say(f"interrupted{again}; not waiting any longer")
            self.due = monotonic()
            return
        self._say("interrupted; stopping all")
        self._plan([(0.0, signal.SIGINT), (HARD, signal.SIGTERM), (HARD, signal.SIGKILL)])
        self.asked = True

    def _heed(self) -> list[int]:
        # Return the signals that have come and ask for the end.
        ends: list[int] = []
        while self.signals:
            number = self.signals.popleft()
            if number in ENDS:
                ends.append(number)
            elif number == STACKS:
                self._ask_for_stacks()
            else:  # it was stopped, and the terminal used by others
                for screen in self.screens:
                    screen.forget()
        return ends

    def _ask_for_stacks(self) -> None:
        ranks = [process.rank for process in self.processes if process.ask(STACKS)]
        if ranks:
            self.records.keeps = True
            self._say(f"the stacks of {_names(ranks)} are in {self.records.folder}/rank-*.stacks")
        else:
            self._say("no rank writes its stacks: they have not come to shardwise.init, or have no place for records")

    # -- output ------------------------------------------------------------------------------------

    def _let_in(self) -> None:
        # Who writes to a full sink waits, as it would without this process between; not if it should end.
        readable = self.selector.get_map()
        for pipe, stream in self.pipes.items():
            is_wanted = bool(self.schedule) or not stream.to.sink.is_full
            if is_wanted and pipe not in readable:
                self.selector.register(pipe, selectors.EVENT_READ, pipe)
            elif not is_wanted and pipe in readable:
                self.selector.unregister(pipe)

    def _read(self, pipe: IO[bytes]) -> int:
        # Return how much there was.
        try:
            data = os.read(pipe.fileno(), 1 << 16)
        except BlockingIOError:
            return 0
        self.pipes[pipe].take(data)
        if not data:
            self._close(pipe)
        return len(data)

    def _close(self, pipe: IO[bytes]) -> None:
        self.pipes.pop(pipe).end()
        if pipe in self.selector.get_map():
            self.selector.unregister(pipe)
        pipe.close()

    def _drain(self) -> None:
        # What was written before the end is read; something else may still hold a pipe open, and write without end.
        for pipe in list(self.pipes):
            left = PIPE
            while pipe in self.pipes and left > 0 and (size := self._read(pipe)):
                left -= size
            if pipe in self.pipes:
                self._close(pipe)

    def _sweep(self) -> None:
        groups = [process.popen.pid for process in self.processes]
        left = [p for p in sentinel.alive(groups, self.job) if p not in groups]
        if left and not self.asked:
            self._say(f"ending what was left behind: processes {', '.join(map(str, left))}")
        sentinel.end(groups, self.job, 0.5)
        for process in self.processes:
            process.popen.wait()
        for pipe in list(self.pipes):
            self._close(pipe)
        self.selector.close()

    def _finish(self, code: int) -> None:
        # The last words; then who reads the output may take its time, unless this process is told to end.
        if code or self.interrupted is not None:
            for line in self.records.tell():
                self._say(line)
        for screen in self.screens:
            screen.end()
        for sink in self.sinks:
            if sink.dropped and sink.trouble is None:
                self._say(f"{sink.dropped} bytes of the {sink.name} were dropped: nobody read them in time")
        end = monotonic() + LAST
        while not all(sink.finish(TICK) for sink in self.sinks):
            if (numbers := self._heed()) and self.interrupted is None:
                self.interrupted, end = numbers[0], monotonic() + LAST
            if self.interrupted is not None and monotonic() > end:
                break
        self._complain()
        for sink in self.sinks:
            if lost := sink.waiting + (sink.dropped if sink.trouble else 0):
                why = sink.trouble or "nobody reads it"
                self._say(f"{lost} bytes of the {sink.name} were not written: {why}", but=sink)
        for sink in self.sinks:
            sink.finish(TICK)

    def _complain(self) -> None:
        # Say once what keeps output from being written, on the other one; the job goes on.
        for sink in self.sinks:
            if sink.trouble is not None and sink.name not in self.said:
                self.said.add(sink.name)
                self._say(f"cannot write to the {sink.name}: {sink.trouble}; the job goes on without it", but=sink)

    def _say(self, text: str, but: object = None) -> None:
        # A screen is of one piece with all that is written there; of two, the one that can be written to.
        screen = self.err if self.err.sink is not but else self.screens[0]
        for line in text.splitlines():
            screen.put(OURS, printable(line, keep="").encode(screen.encoding, "backslashreplace"), b"\n", must=True)

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
            self._say(f"stopped: {_names([p.rank for p in stopped])}")
        code = (rest or failed)[0].code if failed else 0
        return 0 if not code else code if code > 0 else 128 - code

    # -- around it ---------------------------------------------------------------------------------

    @contextmanager
    def _sentinel(self) -> Generator[IO[bytes]]:
        command = [sys.executable, "-I", "-S", str(Path(sentinel.__file__)), self.job]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert process.stdin is not None
        try:
            yield process.stdin
        finally:
            with suppress(OSError):
                process.stdin.close()
            try:
                process.wait(HARD)
            except subprocess.TimeoutExpired:  # it is stopped, or was never let run
                process.kill()
                process.wait()

    @contextmanager
    def _signals(self) -> Generator[None]:
        def note(number: int, frame: object) -> None:
            self.signals.append(number)

        before = {number: signal.getsignal(number) for number in (*ENDS, STACKS, signal.SIGCONT)}
        heeded = [number for number, handler in before.items() if handler != signal.SIG_IGN]  # nohup ignores SIGHUP
        for number in heeded:
            signal.signal(number, note)
        try:
            yield
        finally:
            for number in heeded:
                signal.signal(number, signal.SIG_IGN if self.exits else before[number])


def _blame(process: Process) -> tuple[bool, float]:
    # First who does not blame another; then who failed first.
    began = process.errors.began
    return process.errors.is_consequence, process.ended if began is None else min(began, process.ended)


def _cause(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return f"ended by {signal.Signals(-code).name}"
    return f"ended by signal {-code}"


def _names(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
