"""Vital signs: what can be found out about a process that says nothing.

On the same host the system tells how it is. On another one its system acknowledges what is sent to the process, or does
not. Where neither can be asked, nothing is claimed.
"""

from __future__ import annotations

import socket
import sys
from collections import Counter
from collections.abc import Mapping
from struct import Struct
from typing import NamedTuple

UNKNOWN = "it is stopped, or cut off"
HOLDS = "one long call holds its interpreter, or it gets no time"
STATES = {
    "T": "it is stopped by a signal",
    "t": "it is stopped by a debugger",
    "R": f"it runs, but does not answer: {HOLDS}",
    "S": f"it lives, but does not answer: {HOLDS}",
    "D": "it waits for a device, or for memory that was swapped out",
}
ENDED = "it has ended; something that it started holds its connection open"
SILENT_HOST = "it is cut off, or its host is down: nothing that was sent to it is acknowledged"
HOST_ANSWERS = f"its host answers, but it does not: it is stopped, or {HOLDS}"
TCP_INFO = Struct("@8B24I")  # the beginning of Linux's struct tcp_info
RETRANSMITS, UNACKED = 2, 8 + 4


class Process(NamedTuple):
    """A process of this host."""

    pid: int
    start: str  # when it began, which tells it from another of the same number


class VitalSigns:
    """Knows how the other processes are, by rank, as far as the system tells."""

    def __init__(self, who: Mapping[int, str]) -> None:
        """Take the host and number of every process, this one among them, as `host:number`."""
        # In containers several may have the same, and none can be told from the others.
        counts = Counter(who.values())
        names = {rank: name.rpartition(":") for rank, name in who.items() if counts[name] == 1}
        here = {rank: int(pid) for rank, (host, _, pid) in names.items() if host == socket.gethostname()}
        states = {rank: (pid, _state(pid)) for rank, pid in here.items()}
        self._processes = {rank: Process(pid, state[1]) for rank, (pid, state) in states.items() if state is not None}

    def look(self, rank: int, connection: socket.socket) -> str:
        """Return what is known of a process that does not answer."""
        process = self._processes.get(rank)
        if process is None:
            return _look_at_connection(connection)
        state = _state(process.pid)
        if state is None or state[1] != process.start or state[0] in "ZX":
            return ENDED
        return STATES.get(state[0], UNKNOWN)


def _state(pid: int) -> tuple[str, str] | None:
    # The state of a process, and when it began; None if there is none of this number, or no way to know.
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()
        return words[0].decode(), words[19].decode()
    except (OSError, IndexError):
        return None


def _look_at_connection(connection: socket.socket) -> str:
    option = getattr(socket, "TCP_INFO", None)
    if option is None or sys.platform != "linux" or connection.family == socket.AF_UNIX:
        return UNKNOWN
    try:
        info = TCP_INFO.unpack_from(connection.getsockopt(socket.IPPROTO_TCP, option, TCP_INFO.size))
    except OSError:
        return UNKNOWN
    return SILENT_HOST if info[UNACKED] and info[RETRANSMITS] else HOST_ANSWERS
