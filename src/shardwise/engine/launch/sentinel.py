"""The sentinel: a small process that outlives a launcher which is killed, and ends what it started.

It runs alone, as a script without anything of this package: it reads the numbers of process groups from its standard
input until that closes, which happens however the launcher ends, and has nothing to do if the last word was "done".
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from time import monotonic, sleep

VARIABLE = "SHARDWISE_JOB"  # in the environment of every process that belongs to a launch
PATIENCE = 1.5  # seconds between asking processes to end and ending them


def members(job: str) -> list[int]:
    """Return the processes that have the mark of a launch in their environment, where the system tells it."""
    mark = f"{VARIABLE}={job}".encode()
    out: list[int] = []
    for process in _processes():
        with suppress(OSError), open(f"/proc/{process}/environ", "rb") as file:
            if mark in file.read().split(b"\0"):
                out.append(process)
    return out


def alive(groups: Iterable[int], job: str) -> list[int]:
    """Return the processes of a launch that have not ended: those of its groups, and those with its mark."""
    groups = set(groups)
    strays = {process for process in _processes() if _group(process) in groups}
    return sorted(strays | set(members(job)))


def tell(groups: Iterable[int], job: str, number: signal.Signals) -> None:
    """Send a signal to whole process groups, and to whoever left them."""
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
    for process in members(job):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, number)


def end(groups: Iterable[int], job: str, patience: float = PATIENCE) -> None:
    """End all processes of a launch: ask, wait a little, then make them."""
    groups = list(groups)
    if not alive(groups, job):
        return
    tell(groups, job, signal.SIGTERM)
    tell(groups, job, signal.SIGCONT)  # one that is stopped cannot end
    until = monotonic() + patience
    while alive(groups, job) and monotonic() < until:
        sleep(0.05)
    tell(groups, job, signal.SIGKILL)


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()] if os.path.isdir("/proc/self") else []


def _group(process: int) -> int | None:
    # The process group of a process that has not ended.
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            state, _, group, *_ = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if state in (b"Z", b"X") else int(group)


def main() -> None:
    """Wait for the launcher's end."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    job, words = sys.argv[1], sys.stdin.read().split()
    if not words or words[-1] != "done":
        end([int(word) for word in words], job)


if __name__ == "__main__":
    main()
