"""Processes: the ranks of a launch on this host."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

from shardwise.engine.launch.output import Stream
from shardwise.engine.launch.screen import Screen, Source
from shardwise.errors import EngineError

INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")  # where the libraries listen
LISTENER = "SHARDWISE_LISTEN_FD"  # tells rank 0 which of its file descriptors has the port


@dataclass
class Process:
    """One rank: its process, what it writes, and how it ended."""

    rank: int
    popen: subprocess.Popen[bytes]
    streams: tuple[Stream, Stream]
    code: int | None = None  # as Popen has it: minus the signal that ended it
    ended: float = 0.0

    @property
    def errors(self) -> Stream:
        """What it writes on its standard error."""
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

    def look_for_stop(self) -> signal.Signals | None:
        """Return the signal that stopped the process since the last look, if it is stopped."""
        with suppress(ChildProcessError, ValueError):
            status = os.waitid(os.P_PID, self.popen.pid, os.WSTOPPED | os.WNOHANG)
            if status is not None and status.si_code == os.CLD_STOPPED:
                return signal.Signals(status.si_status)
        return None

    def tell(self, number: signal.Signals) -> None:
        """Send a signal to the process and all in its group; one that is stopped is woken, or it cannot end."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.popen.pid, number)
            os.killpg(self.popen.pid, signal.SIGCONT)

    def ask(self, number: signal.Signals) -> bool:
        """Send a signal to the process alone, if it handles it: it would end one that does not."""
        if self.code is not None or not _handles(self.popen.pid, number):
            return False
        os.kill(self.popen.pid, number)
        return True


def reserve_port() -> socket.socket:
    """Return a socket that has a port, so that nobody else is given it; its owner has yet to listen.

    It does not listen here, so that a program which makes a torch.distributed of its own can still use the port.
    """
    out = socket.socket()
    out.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    out.bind(("127.0.0.1", 0))
    return out


def start_process(
    command: Sequence[str], rank: int, count: int, more: dict[str, str], screens: Sequence[Screen], listener: int | None
) -> Process:
    """Start one rank, in a session of its own; rank 0 may get a socket that has the port."""
    env = os.environ | {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "PYTHONUNBUFFERED": "1",
        **more,
    }
    for name in INTERFACES:
        env.setdefault(name, "lo" if sys.platform == "linux" else "lo0")
    env.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // count)))
    env.pop(LISTENER, None)
    if listener is not None:
        env[LISTENER] = str(listener)
    try:
        popen = subprocess.Popen(
            list(command),
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            pass_fds=() if listener is None else (listener,),
        )
    except OSError as error:
        raise EngineError(f"cannot start {command[0]!r}: {error}.") from None
    prefix = f"[{rank:>{len(str(count - 1))}}] ".encode()
    out, err = (Stream(Source(prefix, k + 1), screen, holds=k == 1) for k, screen in enumerate(screens))
    for pipe in (popen.stdout, popen.stderr):
        assert pipe is not None
        os.set_blocking(pipe.fileno(), False)
    return Process(rank, popen, (out, err))


def _handles(process: int, number: signal.Signals) -> bool:
    # Where the system does not tell, nobody is asked.
    with suppress(OSError), open(f"/proc/{process}/status", "rb") as file:
        for line in file:
            if line.startswith(b"SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False
