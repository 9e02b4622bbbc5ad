"""Sockets: the connections of gloo, which only the system can close when gloo waits for what never comes."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Collection, Iterator
from contextlib import suppress

Address = tuple[str, int]

FILES = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"


def listening_addresses() -> set[Address]:
    """Return the addresses at which this process listens."""
    return {_address(sock.getsockname()) for sock in _sockets() if _listens(sock)}


def shut_connections(own: Collection[Address], others: Collection[Address]) -> int:
    """Shut the connections that came to some own addresses, or go to some of others; return how many.

    Whoever waits for one of them, in whichever thread and library, is told that it is closed, when it has read what had
    come before. It can still send: gloo answers what it reads, and if that fails it forgets a message that it was asked
    to send, without a word to the one who waits for it.
    """
    count = 0
    for sock in _sockets():
        with suppress(OSError):  # it is not connected
            if not _listens(sock) and (_address(sock.getsockname()) in own or _address(sock.getpeername()) in others):
                sock.shutdown(socket.SHUT_RD)
                count += 1
    return count


def _sockets() -> Iterator[socket.socket]:
    # All TCP sockets of this process, by file descriptors that are closed again.
    for name in os.listdir(FILES):
        with suppress(OSError):
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as sock:
                if sock.family in (socket.AF_INET, socket.AF_INET6) and sock.type == socket.SOCK_STREAM:
                    yield sock


def _listens(sock: socket.socket) -> bool:
    return bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def _address(name: tuple[object, ...]) -> Address:
    return str(name[0]), int(str(name[1]))
