"""The gate: newcomers of the job come through whatever crowd of strangers stands there, and nothing of it stays."""

import errno
import json
import re
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic, sleep
from typing import Any

import pytest

from shardwise.engine.meeting import gate as module
from shardwise.engine.meeting.credentials import Credentials
from shardwise.engine.meeting.gate import DEADLINE, Gate
from shardwise.engine.meeting.handshake import StrangerError, call
from tests.engine.meeting.meetings import (
    LONG,
    OTHERS,
    OURS,
    SOON,
    Address,
    address_of,
    listener_of,
    nothing_stays,
    read,
)

SIZE = 2
MOST = 64 + 4 * SIZE


@contextmanager
def standing(credentials: Credentials = OURS) -> Iterator[tuple[Gate, Address]]:
    listener = listener_of()
    address, gate = address_of(listener), Gate(listener, credentials, SIZE)
    try:
        yield gate, address
    finally:
        gate.close()


def come(address: Address, credentials: Credentials = OURS, **greeting: Any) -> socket.socket:
    return call(socket.create_connection(address), greeting, credentials, monotonic() + LONG)[0]


def is_closed(end: socket.socket) -> bool:
    """Whether the other end closes it, whatever it says before."""
    end.settimeout(SOON)
    try:
        while end.recv(1 << 12):
            pass
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    return True


def wait_until(condition: Any) -> None:
    end = monotonic() + SOON
    while not condition() and monotonic() < end:
        sleep(0.005)
    assert condition()


def test_newcomers_are_received_each_once_and_can_talk() -> None:
    with nothing_stays(), standing() as (gate, address):
        assert gate.port == address.port
        assert gate.receive(0.0) is None
        ends = {rank: come(address, rank=rank) for rank in range(3)}
        while ends:  # each was heard by a thread of its own, and they may come in any order
            newcomer = gate.receive(SOON)
            assert newcomer is not None
            assert newcomer[1].keys() == {"rank"}
            end = ends.pop(newcomer[1]["rank"])
            newcomer[0].sendall(b"welcome")
            assert end.recv(100) == b"welcome"
            newcomer[0].close()
            end.close()
        assert gate.receive(0.0) is None


@contextmanager
def crowd(address: Address, count: int) -> Iterator[list[socket.socket]]:
    """Strangers who say nothing, and stay."""
    ends = [socket.create_connection(address) for _ in range(count)]
    try:
        yield ends
    finally:
        for end in ends:
            end.close()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strangers have so much time that whoever waits for them is noticed, however busy the machine is."""
    monkeypatch.setattr(module, "DEADLINE", 10 * LONG)


def test_hundreds_who_say_nothing_hold_nobody_up(patient: None) -> None:
    """And no more threads hear them than the gate may have; those who came first go first."""
    with nothing_stays(), standing() as (gate, address):
        before = threading.active_count()
        with crowd(address, 300) as strangers, come(address, rank=1) as end:
            newcomer = gate.receive(SOON)
            assert newcomer is not None
            assert newcomer[1] == {"rank": 1}
            assert threading.active_count() - before <= MOST + 1
            assert len(gate._hearing) <= MOST
            wait_until(lambda: not any(stranger.fileno() < 0 for stranger in list(gate._hearing)))
            assert is_closed(strangers[0])
            newcomer[0].sendall(b"still here")  # who was admitted is not sent away for those who come later
            with crowd(address, MOST + 1):
                assert end.recv(100) == b"still here"
            newcomer[0].close()


def test_the_same_where_connections_are_encrypted(patient: None, encrypted: dict[str, Credentials]) -> None:
    with nothing_stays(), standing(encrypted["job"]) as (gate, address):
        before = threading.active_count()
        with crowd(address, MOST + 20) as strangers, come(address, encrypted["job"], rank=1):
            newcomer = gate.receive(SOON)
            assert newcomer is not None
            assert threading.active_count() - before <= MOST + 1
            assert is_closed(strangers[0])
            newcomer[0].close()


STRANGERS = {
    "nothing": b"",
    "a request": b"GET / HTTP/1.1\r\n\r\n",
    "a huge length": struct.pack("!I", 0xFFFFFFFF),
    "zeros": bytes(1000),
    "brackets": struct.pack("!I", 60_000) + b"[" * 60_000,
}


def test_strangers_are_turned_away_and_told_of() -> None:
    with nothing_stays(), standing() as (gate, address):
        for said in STRANGERS.values():
            stranger = socket.create_connection(address)
            with suppress(OSError):  # it was turned away before it had said all
                stranger.sendall(said)
                stranger.shutdown(socket.SHUT_WR)
            assert is_closed(stranger)
            stranger.close()
        with pytest.raises(StrangerError, match="it does not know us"):
            come(address, OTHERS)
        wait_until(lambda: len(gate.turned_away) == len(STRANGERS) + 1)
        assert gate.receive(0.0) is None
        assert set(gate.turned_away) == {
            "127.0.0.1: the connection was closed",
            "127.0.0.1: what it sends is no message of shardwise",
            "127.0.0.1: it does not know the secret of this job",
        }
        for _ in range(20):
            socket.create_connection(address).close()
        closed = re.compile(r"127\.0\.0\.1: (the connection was closed|\[Errno 104\] Connection reset by peer)")
        wait_until(lambda: all(map(closed.fullmatch, list(gate.turned_away))))  # the last, whom the first made room for
        assert len(gate.turned_away) == module.REMEMBERED  # and no more, however many come


def test_what_is_told_of_strangers_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*told: Any) -> Any:
        raise StrangerError("it says \x1b[2J\nand more")

    monkeypatch.setattr(module, "answer", fail)
    with nothing_stays(), standing() as (gate, address):
        socket.create_connection(address).close()
        wait_until(lambda: gate.turned_away)
        assert list(gate.turned_away) == [r"127.0.0.1: it says \x1b[2J\nand more"]


def test_who_says_nothing_is_closed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DEADLINE", 0.2)
    with nothing_stays(), standing() as (gate, address):
        start = monotonic()
        stranger = socket.create_connection(address)
        assert is_closed(stranger)
        assert 0.1 < monotonic() - start < SOON
        stranger.close()
        wait_until(lambda: gate.turned_away)
        assert gate.turned_away[0].endswith("timed out")


def test_closing_ends_all_that_is_under_way() -> None:
    """Who says nothing, who has said half of it, and who was admitted and not received yet."""
    with nothing_stays():
        with standing() as (gate, address):
            idle, half = (socket.create_connection(address) for _ in range(2))
            read(half)
            half.sendall(b"\0\0")
            admitted = come(address)
            wait_until(lambda: len(gate._hearing) == 2)
            start = monotonic()
        assert monotonic() - start < DEADLINE / 2
        for end in (idle, half, admitted):
            assert is_closed(end)
            end.close()
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(address)


def test_who_proves_it_when_the_gate_is_closed_is_not_admitted() -> None:
    with nothing_stays(), standing() as (gate, address):
        gate._is_open = False
        with pytest.raises((StrangerError, OSError)):
            come(address)
        assert gate.receive(0.1) is None


class Fails:
    """A listener whose system is out of something, twice."""

    def __init__(self, listener: socket.socket) -> None:
        self.listener, self.left = listener, 2

    def __getattr__(self, name: str) -> Any:
        return getattr(self.listener, name)

    def accept(self) -> Any:
        if self.left:
            self.left -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return self.listener.accept()


def test_a_system_that_has_no_files_left_for_a_moment_is_asked_again() -> None:
    with nothing_stays():
        listener: Any = Fails(listener_of())
        address, gate = address_of(listener), Gate(listener, OURS, SIZE)
        come(address).close()
        assert listener.left == 0
        gate.close()


def test_a_system_that_has_no_threads_left_for_a_moment_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [1, 2]

    class Fails(threading.Thread):
        def start(self) -> None:
            if failures:
                failures.pop()
                raise RuntimeError("can't start new thread")
            super().start()

    with nothing_stays(), standing() as (gate, address):
        monkeypatch.setattr(module, "Thread", Fails)
        for _ in range(2):
            with pytest.raises((StrangerError, OSError)):
                come(address)
        come(address, rank=7).close()
        newcomer = gate.receive(SOON)
        assert newcomer is not None
        newcomer[0].close()
        assert not gate._hearing


@pytest.mark.long
def test_a_flood_does_not_keep_newcomers_out_for_long() -> None:
    """Strangers come as fast as they can, and stay; each newcomer tries again until it is in, as a guest does."""
    done = threading.Event()
    ends: list[socket.socket] = []

    def flood() -> None:
        while not done.is_set():
            try:
                ends.append(socket.create_connection(address, timeout=SOON))
            except OSError:
                sleep(0.01)
            while len(ends) > 400:
                ends.pop(0).close()

    with nothing_stays(), standing() as (gate, address):
        thread = threading.Thread(target=flood)
        thread.start()
        for rank in range(20):
            end = monotonic() + LONG
            while True:
                try:
                    come(address, rank=rank).close()
                    break
                except (StrangerError, OSError):
                    assert monotonic() < end
            newcomer = gate.receive(SOON)
            assert newcomer is not None
            assert newcomer[1] == {"rank": rank}
            newcomer[0].close()
        done.set()
        thread.join()
        for one in ends:
            one.close()


def test_a_greeting_with_all_its_parts_is_what_a_gate_hands_on() -> None:
    with nothing_stays(), standing() as (gate, address):
        greeting = {"card": {"who": "h\x1bost", "more": [1, None, 2.5]}, "é": True}
        come(address, **greeting).close()
        newcomer = gate.receive(SOON)
        assert newcomer is not None
        assert json.dumps(newcomer[1]) == json.dumps(greeting)
        newcomer[0].close()
