"""Channels: connections between every two processes beside those that carry data.

They do not go through the store of torch.distributed, which lives in rank 0 and dies with it. Every two processes
have two: one for the calls they compare, read by the thread that communicates, and one for heartbeats.
"""

from __future__ import annotations

import hmac
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from time import monotonic
from typing import NamedTuple

from shardwise.errors import EngineError

HEAD = struct.Struct("!I")
LIMIT = 1 << 20  # bytes of a message; more is not ours
KINDS = ("calls", "beats")


class Channel:
    """Messages to and from one other process; neither sending nor receiving ever waits."""

    __slots__ = ("_going", "came", "closed", "fd", "rank", "socket")

    def __init__(self, connection: socket.socket, rank: int) -> None:
        """Use a connection to the process with this rank."""
        connection.setblocking(False)
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket, self.rank, self.fd, self.closed = connection, rank, connection.fileno(), False
        self.came, self._going = b"", b""

    def send(self, body: bytes) -> None:
        """Send a message; what does not fit now goes with the next."""
        self._going += HEAD.pack(len(body)) + body
        self.flush()

    def flush(self) -> bool:
        """Send what did not fit before; return whether all is sent."""
        try:
            while self._going:
                self._going = self._going[self.socket.send(self._going) :]
        except BlockingIOError:
            return False
        except OSError:  # the other end is gone, which receiving tells
            self._going = b""
        return True

    def receive(self) -> bytes | None:
        """Return the next message if it is here; `closed` says that none will come."""
        message = self._next()
        while message is None and not self.closed:
            try:
                some = self.socket.recv(1 << 16)
            except BlockingIOError:
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
            self.closed = True
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
            self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the connection, of this process only: a fork's stays open."""
        self.socket.close()


class Address(NamedTuple):
    """Where a process listens."""

    host: str
    port: int


def listen(towards: str, size: int) -> socket.socket:
    """Return a socket that listens on the interface by which this process reaches a host."""
    info = socket.getaddrinfo(towards, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(info[0], socket.SOCK_DGRAM) as probe:
        probe.connect(info[4])  # sends nothing
        host = probe.getsockname()[0]
    out = socket.socket(info[0], socket.SOCK_STREAM)
    out.bind((host, 0))
    out.listen(2 * size)
    return out


def connect(
    rank: int, listener: socket.socket, addresses: Mapping[int, Address], token: bytes, timeout: float
) -> dict[str, dict[int, Channel]]:
    """Return the channels to all other processes, by kind and rank: to lower ranks it connects, higher ones come."""
    end = monotonic() + timeout
    out: dict[str, dict[int, Channel]] = {kind: {} for kind in KINDS}
    for other, address in sorted(addresses.items()):
        for kind in KINDS if other < rank else ():
            out[kind][other] = _call(rank, kind, other, address, token, end)
    missing = {(kind, other) for kind in KINDS for other in addresses if other > rank}
    while missing:
        newcomer = _accept(listener, token, end, missing)
        if newcomer is not None:
            kind, channel = newcomer
            out[kind][channel.rank] = channel
            missing.discard((kind, channel.rank))
    return out


def _call(rank: int, kind: str, other: int, address: Address, token: bytes, end: float) -> Channel:
    try:
        connection = socket.create_connection(address, timeout=max(0.1, end - monotonic()))
    except OSError as error:
        raise EngineError(f"rank {rank} cannot reach rank {other} at {address.host}:{address.port}: {error}.") from None
    connection.sendall(HEAD.pack(len(token) + 5) + token + struct.pack("!BI", KINDS.index(kind), rank))
    return Channel(connection, other)


def _accept(
    listener: socket.socket, token: bytes, end: float, missing: set[tuple[str, int]]
) -> tuple[str, Channel] | None:
    listener.settimeout(max(0.1, end - monotonic()))
    try:
        connection, _ = listener.accept()
    except TimeoutError:
        ranks = sorted({rank for _, rank in missing})
        raise EngineError(f"ranks {ranks} did not connect in time, though they had started.") from None
    connection.settimeout(2.0)
    size = HEAD.size + len(token) + 5
    greeting = b""
    try:
        while len(greeting) < size and (some := connection.recv(size - len(greeting))):
            greeting += some
    except OSError:
        greeting = b""
    if len(greeting) < size or not hmac.compare_digest(greeting[HEAD.size : -5], token):
        connection.close()  # a stranger
        return None
    kind, rank = struct.unpack("!BI", greeting[-5:])
    if kind >= len(KINDS) or (KINDS[kind], rank) not in missing:
        connection.close()
        return None
    return KINDS[kind], Channel(connection, rank)
