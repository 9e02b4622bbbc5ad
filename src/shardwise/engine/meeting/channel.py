"""Channels: connections between every two processes beside those that carry data.

Every two processes have two: one for the calls they compare, read by the thread that communicates, and one for
heartbeats.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import suppress

from shardwise.locks import make_lock

HEAD = struct.Struct("!I")
LIMIT = 1 << 20  # bytes of a message; more is not ours
KINDS = ("calls", "beats")
LATER = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)  # what cannot be sent, or is not here, now


class Channel:
    """Messages to and from one other process; neither sending nor receiving ever waits."""

    __slots__ = ("_going", "_lock", "came", "closed", "fd", "is_garbled", "rank", "socket")

    def __init__(self, connection: socket.socket, rank: int) -> None:
        """Use a connection to the process with this rank."""
        connection.setblocking(False)
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket, self.rank, self.fd, self.closed = connection, rank, connection.fileno(), False
        self.came, self._going = b"", b""
        self.is_garbled = False  # whether what came is not ours; nothing more is read then
        self._lock = make_lock()  # of an encrypted connection one thread may send while another receives

    def send(self, body: bytes) -> None:
        """Send a message; what does not fit now goes with the next."""
        self._going += HEAD.pack(len(body)) + body
        self.flush()

    def flush(self) -> bool:
        """Send what did not fit before; return whether all is sent."""
        try:
            while self._going:
                with self._lock:
                    size = self.socket.send(self._going)
                self._going = self._going[size:]
        except LATER:
            return False
        except OSError:  # the other end is gone, which receiving tells
            self._going = b""
        return True

    def receive(self) -> bytes | None:
        """Return the next message if it is here; `closed` says that none will come."""
        message = self._next()
        while message is None and not self.closed:
            try:
                with self._lock:
                    some = self.socket.recv(1 << 16)
            except LATER:
                return None
            except OSError:
                some = b""
            self.closed = not some
            self.came += some
            message = self._next()
        return message

    def _next(self) -> bytes | None:
        came = self.came
        if len(came) < HEAD.size:
            return None
        (size,) = HEAD.unpack_from(came)
        if size > LIMIT:
            self.closed = self.is_garbled = True
            return None
        end = HEAD.size + size
        if len(came) < end:
            return None
        self.came = came[end:]
        return came[HEAD.size : end]

    def messages(self) -> Iterator[bytes]:
        """Take all messages that are here."""
        while (message := self.receive()) is not None:
            yield message

    def finish(self) -> None:
        """Say that no more is sent, for all processes that have this connection; what comes can still be received."""
        self.flush()
        with suppress(OSError):  # the other end is gone
            socket.socket.shutdown(self.socket, socket.SHUT_WR)  # under the encryption, if there is one

    def close(self) -> None:
        """Close the connection, of this process only: a fork's stays open."""
        self.socket.close()
