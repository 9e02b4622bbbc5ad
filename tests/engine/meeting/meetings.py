"""Meetings between threads, and what is counted before and after them."""

import os
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from time import monotonic, sleep
from typing import Any

from shardwise.engine.meeting.channel import HEAD
from shardwise.engine.meeting.credentials import Credentials
from shardwise.engine.meeting.guest import visit
from shardwise.engine.meeting.host import listen, receive_others
from shardwise.engine.meeting.rendezvous import Address, Card, Meeting
from shardwise.errors import EngineError

SECRET = b"a secret of twenty bytes"
OURS, OTHERS = Credentials(SECRET), Credentials(b"another secret of others")
LONG = 60.0  # seconds to start
SOON = 20.0  # seconds within which what is known is said, on a busy machine


def card(rank: int, size: int = 3, **changed: Any) -> Card:
    return replace(Card(rank, size, "0.1.0", "2.6", True, "", f"host:{rank}"), **changed)


def listener_of(size: int = 3) -> socket.socket:
    return listen("127.0.0.1", 0, size)


def address_of(listener: socket.socket) -> Address:
    return Address(*listener.getsockname()[:2])


def hold(
    cards: Sequence[Card],
    credentials: Sequence[Credentials] = (),
    seconds: float = LONG,
    master: Address | None = None,
    listener: socket.socket | None = None,
) -> list[Any]:
    """Have the first card receive the others; return the meeting of each, or its error."""
    listener = listener or listener_of()
    place = master or address_of(listener)
    some = list(credentials) or [OURS] * len(cards)

    def come(number: int) -> Meeting | EngineError:
        try:
            if number == 0:
                return receive_others(cards[0], listener, some[0], seconds)
            return visit(cards[number], place, some[number], seconds)
        except EngineError as error:
            return error.with_traceback(None)

    with ThreadPoolExecutor(len(cards)) as threads:
        return list(threads.map(come, range(len(cards))))


def check_meetings(meetings: Sequence[Any]) -> None:
    """Every two can talk over both of their channels; they are closed then."""
    for rank, meeting in enumerate(meetings):
        assert isinstance(meeting, Meeting), meeting
        assert sorted(meeting.cards) == list(range(len(meetings)))
        for kind in ("calls", "beats"):
            assert sorted(meeting.channels[kind]) == [other for other in range(len(meetings)) if other != rank]
            for other, channel in meeting.channels[kind].items():
                channel.send(f"{kind} {rank} to {other}".encode())
    for rank, meeting in enumerate(meetings):
        for kind in ("calls", "beats"):
            for other, channel in meeting.channels[kind].items():
                assert take(channel) == f"{kind} {other} to {rank}".encode()
    close(meetings)


def take(channel: Any) -> bytes | None:
    """The next message of a channel, when it is here."""
    end = monotonic() + SOON
    while (message := channel.receive()) is None and not channel.closed and monotonic() < end:
        sleep(0.005)
    return message


def close(meetings: Sequence[Any]) -> None:
    for meeting in meetings:
        if isinstance(meeting, Meeting):
            for channels in meeting.channels.values():
                for channel in channels.values():
                    channel.close()


def write(end: socket.socket, body: bytes) -> None:
    end.sendall(HEAD.pack(len(body)) + body)


def read(end: socket.socket) -> bytes:
    """One message, or less if the connection ends."""
    head = _take(end, HEAD.size)
    return _take(end, HEAD.unpack(head)[0]) if len(head) == HEAD.size else b""


def _take(end: socket.socket, size: int) -> bytes:
    out = b""
    while len(out) < size and (some := end.recv(size - len(out))):
        out += some
    return out


def count() -> tuple[int, int]:
    """The files and threads of this process."""
    return len(os.listdir("/proc/self/fd")), threading.active_count()


@contextmanager
def nothing_stays() -> Iterator[None]:
    """Whatever is opened inside is closed by its end, and threads have ended."""
    files, threads = count()
    yield
    end, now = monotonic() + SOON, count()
    while (now[0] > files or now[1] > threads) and monotonic() < end:
        sleep(0.005)
        now = count()
    assert now[0] <= files, f"{now[0]} files are open, and {files} were before"
    assert now[1] <= threads, [thread.name for thread in threading.enumerate()]


class Proxy:
    """Passes on what is sent to one address and back, and keeps all of it."""

    def __init__(self, target: Address) -> None:
        self.target, self.seen, self.ends = target, list[bytes](), list[socket.socket]()
        self.listener = listener_of()
        self.address = address_of(self.listener)
        self.threads = [threading.Thread(target=self._stand)]
        self.threads[0].start()

    def _stand(self) -> None:
        while True:
            try:
                one, _ = self.listener.accept()
            except OSError:
                return
            other = socket.create_connection(self.target)
            self.ends += [one, other]
            for source, sink in ((one, other), (other, one)):
                self.threads.append(threading.Thread(target=self._pass_on, args=(source, sink)))
                self.threads[-1].start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                self.seen.append(data)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def close(self) -> bytes:
        """End it; return all that travelled."""
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.threads[0].join()
        for end in self.ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join()
        for end in self.ends:
            end.close()
        return b"".join(self.seen)
