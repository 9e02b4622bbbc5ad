"""Jobs: ranks that are made for one test, watched, and gone after it, whatever it does."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np

import shardwise
from tests.engines.pool import port_of, reserve_port

ROOT = Path(__file__).parent.parent.parent
SOURCE = Path(shardwise.__file__).parent.parent
PATIENT, HEARTBEAT = 30.0, 1.0  # a timeout that nobody waits for: a busy machine may take its time to send data
TIMEOUT = 5.0
WAITING = {"SHARDWISE_TIMEOUT": str(TIMEOUT)}  # for those that wait for it
QUICK = {"SHARDWISE_TIMEOUT": "2", "SHARDWISE_HEARTBEAT": "0.3"}  # for those that time out
SOON = 12.0  # seconds from a call to an error that is known at once, but for a busy machine
HARD = 90.0  # seconds after which a test is over, however busy the machine
START = 180.0


def environment(**more: str) -> dict[str, str]:
    named = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "SHARDWISE_JOB")}
    return named | {
        "SHARDWISE_TIMEOUT": str(PATIENT),
        "SHARDWISE_HEARTBEAT": str(HEARTBEAT),
        "SHARDWISE_START_TIMEOUT": "60",
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.pathsep.join([str(SOURCE), str(ROOT)]),
        **more,
    }


def left_behind(sessions: set[int]) -> list[int]:
    """The processes of some sessions that have not ended."""
    out = []
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        with suppress(OSError):
            state, _, _, session, *_ = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            if state not in "ZX" and int(session) in sessions:
                out.append(int(name))
    return out


def shared_memory(pids: set[int]) -> list[str]:
    """The segments of shared memory that some processes made and did not remove."""
    return [name for name in os.listdir("/dev/shm") if any(str(pid) in name.split("_") for pid in pids)]


def segments() -> set[str]:
    """All segments of shared memory."""
    return set(os.listdir("/dev/shm"))


def leaked(before: set[str], first: int) -> list[str]:
    """The segments that were made since, by processes that began after a first one and have ended.

    Names tell whose they are: on this machine others make segments too.
    """
    out, last = list[str](), int(Path("/proc/sys/kernel/pid_max").read_text())
    for name in segments() - before:
        numbers = [int(word) for word in re.findall(r"\d+", name)]
        lives = any(Path(f"/proc/{number}").exists() for number in numbers)
        if not lives and any(first <= number <= last for number in numbers):
            out.append(name)
    return sorted(segments() & set(out))  # one that ended just now may have removed its own


def check_saved(ranks: list["Rank"], error: str, side: int) -> None:
    """After an error each saved its rows, ended cleanly, and was told at once that nothing can be shared any more."""
    whole = np.arange(side * side, dtype="float32").reshape(side, side)
    for rank in ranks:
        assert rank.code == 0, rank.err
        saved = np.load(rank.folder / f"{rank.name}.npy")
        start, stop = rank.said["rows"]
        assert 0 < stop - start < side
        np.testing.assert_array_equal(saved, whole[start:stop])
        assert rank.said["again"] == error


class Zygote:
    """Makes ranks quickly."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.zygote"],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **request: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@dataclass
class Rank:
    """One process: its number, how it ended, and what it wrote."""

    name: str
    pid: int
    folder: Path
    code: int | None = None

    @property
    def out(self) -> str:
        return self._read("out")

    @property
    def err(self) -> str:
        return self._read("err")

    def _read(self, kind: str) -> str:
        path = self.folder / f"{self.name}.{kind}"
        return path.read_text() if path.exists() else ""

    @property
    def said(self) -> dict[str, Any]:
        """The last line that it printed, which is JSON."""
        return json.loads(self.out.splitlines()[-1])


@dataclass
class Job:
    """The ranks of one test."""

    zygote: Zygote
    folder: Path
    port: int = 0
    ranks: list[Rank] = field(default_factory=list)
    reserved: socket.socket = field(default_factory=reserve_port)

    def __post_init__(self) -> None:
        self.port = port_of(self.reserved)

    def start(self, situation: str, *args: Any, size: int = 3, only: list[dict[str, str]] | None = None) -> list[Rank]:
        """Make the ranks of a situation; `only` changes the environments of those that are made."""
        for place, changed in enumerate([{}] * size if only is None else only):
            env = {
                "RANK": str(place),
                "LOCAL_RANK": str(place),
                "WORLD_SIZE": str(size),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(self.port),
                "FOLDER": str(self.folder),
            } | changed
            pid = self.zygote.ask(
                do="fork", env=env, situation=situation, args=args, out=str(self.folder), name=str(place)
            )
            self.ranks.append(Rank(str(place), pid, self.folder))
        return self.ranks

    def run(self, situation: str, *args: Any, **more: Any) -> list[Rank]:
        """Make the ranks of a situation, and wait for their end."""
        self.start(situation, *args, **more)
        self.wait()
        return self.ranks

    def wait(self, some: list[Rank] | None = None, seconds: float = HARD) -> None:
        """Wait for the end of some ranks, or all."""
        some, end = self.ranks if some is None else some, monotonic() + seconds
        while any(rank.code is None for rank in some):
            self._look()
            if monotonic() > end:
                running = [rank.name for rank in some if rank.code is None]
                raise AssertionError(f"ranks {running} did not end in {seconds} s:\n{self.errors()}")
            sleep(0.02)

    def _look(self) -> None:
        found = self.zygote.ask(do="look", pids=[rank.pid for rank in self.ranks])
        for rank in self.ranks:
            rank.code = found.get(str(rank.pid))

    def errors(self) -> str:
        return "\n".join(f"rank {rank.name}: {rank.err[-2000:]}" for rank in self.ranks)

    def close(self) -> list[str]:
        """Kill what is left; return what should not have been."""
        self.reserved.close()
        self._look()
        ended = {rank.pid for rank in self.ranks if rank.code is not None}
        wrong = [f"process {pid} was left behind" for pid in left_behind(ended)]
        pids = {rank.pid for rank in self.ranks}
        for pid in left_behind(pids):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        end = monotonic() + 10
        while any(rank.code is None for rank in self.ranks) and monotonic() < end:
            self._look()
            sleep(0.02)
        return wrong + [f"shared memory {name} was left behind" for name in shared_memory(pids)]
