"""A pool of processes on the torch engine, started once; whatever happens in them, the tests go on in bounded time."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import shardwise

ROOT = Path(__file__).parent.parent.parent
START = 120.0  # seconds until all processes must have started: imports take most of it, on a busy machine


def reserve_port() -> socket.socket:
    """A socket that has a port, so that the system gives it to nobody else; a program can still listen there."""
    out = socket.socket()
    out.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    out.bind(("127.0.0.1", 0))
    return out


def port_of(reserved: socket.socket) -> int:
    return reserved.getsockname()[1]


class Pool:
    """As many processes as ranks; each call runs one function in all of them."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._workers: list[tuple[subprocess.Popen[bytes], Connection]] = []

    def run(self, function: Callable[..., Any], *args: Any, timeout: float = 60.0) -> list[Any]:
        """Run a function, known by its module and name, in every process; return the results by rank."""
        if not self._workers:
            self._start()
        return self._asked((function.__module__, function.__name__, args), timeout)

    @property
    def pids(self) -> list[int]:
        return [process.pid for process, _ in self._workers]

    def close(self) -> None:
        """End all processes."""
        for _, connection in self._workers:
            connection.close()
        for process, _ in self._workers:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._workers = []

    def _start(self) -> None:
        with reserve_port() as reserved:
            for rank in range(self.size):
                self._workers.append(self._make_worker(rank, port_of(reserved)))
            self._collected(START)

    def _make_worker(self, rank: int, port: int) -> tuple["subprocess.Popen[bytes]", Connection]:
        ours, theirs = Pipe()
        paths = [str(Path(shardwise.__file__).parent.parent), str(ROOT)]
        env = os.environ | {
            "RANK": str(rank),
            "WORLD_SIZE": str(self.size),
            "LOCAL_RANK": str(rank),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([*paths, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]),
        }
        command = [sys.executable, "-W", "error::FutureWarning", "-m", "tests.engines.worker", str(theirs.fileno())]
        process = subprocess.Popen(command, cwd=ROOT, env=env, pass_fds=[theirs.fileno()])
        theirs.close()
        return process, ours

    def _asked(self, message: Any, timeout: float) -> list[Any]:
        for _, connection in self._workers:
            connection.send(message)
        return self._collected(timeout)

    def _collected(self, timeout: float) -> list[Any]:
        # The first process that fails says why: those that wait for it in vain would only hide it.
        end, answers = monotonic() + timeout, dict[int, Any]()
        failed: list[str] = []
        while len(answers) < self.size and not failed:
            for rank, (_, connection) in enumerate(self._workers):
                if rank not in answers and connection.poll(0.001):
                    try:
                        kind, answers[rank] = connection.recv()
                    except (EOFError, ConnectionError):
                        kind, answers[rank] = "failed", "the process ended."
                    if kind == "failed":
                        failed.append(f"rank {rank}: {answers[rank]}")
            if monotonic() > end:
                failed.append(f"no answer of ranks {sorted(set(range(self.size)) - set(answers))} in {timeout} s")
        if not failed:
            return [answers[rank] for rank in range(self.size)]
        for process, _ in self._workers:
            process.send_signal(signal.SIGUSR1)  # where it is, on stderr
        sleep(0.2)
        for process, _ in self._workers:
            process.kill()
        self.close()
        raise AssertionError("\n".join(failed))
