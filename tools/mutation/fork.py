"""Forks: tasks in processes of their own, a few at a time, that begin with everything imported that takes long."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

MEMORY = 8 << 30  # bytes that one process may hold: a changed size may ask for all there are


@dataclass(frozen=True)
class Task:
    """What a process does, and the seconds after which it is ended."""

    name: str
    run: Callable[[], None]
    seconds: float


def run_tasks(tasks: Iterable[Task], jobs: int) -> Iterator[tuple[Task, int]]:
    """Run each task in a fork, `jobs` at a time; yield those that end, with their status as `waitpid` gives it."""
    waiting = iter(tasks)
    running: dict[int, tuple[Task, float]] = {}
    try:
        while True:
            while len(running) < jobs and (task := next(waiting, None)) is not None:
                running[_fork(task)] = (task, time.monotonic() + task.seconds)
            if not running:
                return
            time.sleep(0.02)
            for pid in list(running):
                done, status = os.waitpid(pid, os.WNOHANG)
                task, end = running[pid]
                if not done and time.monotonic() > end:
                    os.kill(pid, signal.SIGKILL)
                    done, status = os.waitpid(pid, 0)
                if done:
                    del running[pid]
                    _end_group(pid)
                    yield task, status
    finally:
        for pid in running:
            _end_group(pid)


def _end_group(pid: int) -> None:
    # Processes that a test started and did not end.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _fork(task: Task) -> int:
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1) if os.environ.get("MUTANTS_SHOW") else (0, 1, 2):
            os.dup2(null, stream)
        task.run()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)
