"""Deeds: how a process makes its fault happen, at the moment that was drawn for it."""

import ctypes
import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
import torch.distributed as dist

import shardwise as sw
from shardwise import P, Tensor
from tests.soak.fault import BEFORE_START, IN_START, INSIDE, JOINING, LONG, SHORT, THREAD, Fault
from tests.soak.program import all_of

SPARE = 8 << 20  # bytes that a process without memory may still take
ROWS = 9216  # 72 MiB, which is more than the C library has set aside for any thread
NONSENSE = {
    "text": ("beats", b"\0\0\0\4\x1b[2J"),
    "json": ("beats", b'\0\0\0\x2e{"kind": "stop", "ranks": [1], "error": "none"}'[: 4 + 0x2E]),
    "header": ("beats", b"\xff" * 64),
    "calls": ("calls", b"\0\0\0\x09nonsense!"),
}


class SkippedError(ValueError):
    """An error that the program catches, and goes on with its next iteration."""


class LeavingError(Exception):
    """The program comes to its end."""


def write_json(path: Path, what: Any) -> None:
    """Write a file that nobody sees in part."""
    path.with_suffix(".part").write_text(json.dumps(what))
    path.with_suffix(".part").rename(path)


class Deeds:
    """The faults of this process; each happens once."""

    def __init__(self, faults: list[Fault], folder: Path) -> None:
        self._left, self._folder = faults, folder

    def reach(self, moment: str, iteration: int = 0, operation: int = 0) -> None:
        """Come to a moment at which something may happen."""
        for fault in list(self._left):
            if (fault.moment, fault.iteration, fault.operation) == (moment, iteration, operation):
                self._commit(fault)

    def begin(self, iteration: int) -> None:
        """Begin an iteration: something may happen while it goes on."""
        for fault in self._left:
            if fault.iteration == iteration and fault.moment == THREAD:
                self._start_thread(fault)
            if fault.iteration == iteration and fault.moment == INSIDE:
                self._wait_for_data(fault)

    def prepare(self) -> None:
        """Be about to start."""
        for fault in list(self._left):
            if fault.moment == BEFORE_START:
                self._commit(fault)
            elif fault.moment == IN_START:
                self._start_thread(fault)
            elif fault.moment == JOINING:
                before: Any = dist.init_process_group
                dist.init_process_group = self._before(fault, before)

    def odd(self, iteration: int) -> str:
        """The other call that this process makes at the end of an iteration."""
        for fault in list(self._left):
            if fault.kind == "differs" and fault.iteration == iteration:
                self._note(fault)
                return fault.variant
        return ""

    def _wait_for_data(self, fault: Fault) -> None:
        wire: Any = sw.current_engine().wire  # type: ignore[attr-defined]
        wire._start_letters = self._before(fault, wire._start_letters)

    def _before(self, fault: Fault, function: Callable[..., Any]) -> Callable[..., Any]:
        def act(*args: Any, **more: Any) -> Any:
            if fault in self._left:
                self._commit(fault)
            return function(*args, **more)

        return act

    def _start_thread(self, fault: Fault) -> None:
        def act() -> None:
            sleep(fault.seconds)
            self._commit(fault)

        threading.Thread(target=act, name="soak", daemon=True).start()

    def _note(self, fault: Fault, resume: float | None = None) -> None:
        # When it happened, by a clock that all processes of this host have; and how long the process is to be stopped.
        self._left.remove(fault)
        note = vars(fault) | {"at": monotonic(), "resume": resume}
        write_json(self._folder / f"fault-{fault.rank}.json", note)

    def _commit(self, fault: Fault) -> None:
        self._note(fault, {"paused": SHORT, "stopped": -1.0}.get(fault.kind))
        ACTS[fault.kind](fault)


def _send_nonsense(fault: Fault) -> None:
    guard: Any = sw.current_engine().wire.guard  # type: ignore[attr-defined]
    kind, data = NONSENSE[fault.variant]
    channels = guard.watchdog._channels if kind == "beats" else guard._channels
    with guard.watchdog.changed:
        for channel in channels.values():
            channel._going += data
            channel.flush()


def _lose_memory(fault: Fault) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + SPARE
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


def make_large(size: int) -> Tensor:
    """What is larger, as a whole, than all that a process without memory may take."""
    return sw.shard(np.zeros((ROWS, 2048), "float32"), all_of(size), P("x"))


def gather_often(x: Tensor) -> list[Tensor]:
    """Gather it, and keep what is made: buffers that were used before may be used again."""
    return [x.gather(), x.gather()]


def restore_memory() -> None:
    """Take as much as is needed again, to tell what happened."""
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _fork(fault: Fault) -> None:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            sw.init("local")
            x = sw.shard(np.arange(12.0), all_of(3), P("x"))
            code = int(not np.array_equal((x + x).gather().numpy(), 2 * np.arange(12.0)))
        finally:
            os._exit(code)
    end = monotonic() + SHORT + 60
    while (found := os.waitpid(pid, os.WNOHANG)) == (0, 0) and monotonic() < end:
        sleep(0.01)
    if found == (0, 0):
        os.kill(pid, signal.SIGKILL)
    assert found == (pid, 0), f"a fork did not compute, or did not end: {found}"


def _print_in_vain(fault: Fault) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, 1)
    os.close(writer)
    print("step", fault.iteration, flush=True)


def _raise(error: BaseException) -> None:
    raise error


def _hold(seconds: float) -> None:
    ctypes.PyDLL(None).usleep(int(1e6 * seconds))


ACTS: dict[str, Callable[[Fault], None]] = {
    "killed": lambda fault: os.kill(os.getpid(), signal.SIGKILL),
    "stopped": lambda fault: os.kill(os.getpid(), signal.SIGSTOP),
    "paused": lambda fault: os.kill(os.getpid(), signal.SIGSTOP),
    "raises": lambda fault: _raise(ValueError("bad luck")),
    "interrupted": lambda fault: os.kill(os.getpid(), signal.SIGINT),
    "skips": lambda fault: _raise(SkippedError("no data")),
    "exits": lambda fault: sys.exit(3),
    "leaves": lambda fault: _raise(LeavingError()),
    "no memory": _lose_memory,
    "late": lambda fault: sleep(SHORT),
    "holds": lambda fault: _hold(SHORT),
    "holds long": lambda fault: _hold(LONG),
    "nonsense": _send_nonsense,
    "forks": _fork,
    "no reader": _print_in_vain,
}
