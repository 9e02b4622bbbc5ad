"""Channels: messages whole and in order, whatever the pieces they come in, and no nonsense."""

import socket
import ssl
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise.engine.meeting.channel import LIMIT, Channel


@pytest.fixture
def pair() -> Iterator[tuple[Channel, socket.socket]]:
    one, other = socket.socketpair()
    channel = Channel(one, 1)
    yield channel, other
    channel.close()
    other.close()


@given(st.lists(st.binary(max_size=50), max_size=5), st.integers(1, 7))
def test_messages_come_whole_and_in_order(messages: list[bytes], piece: int) -> None:
    one, other = socket.socketpair()
    channel = Channel(one, 1)
    data = b"".join(struct.pack("!I", len(m)) + m for m in messages)
    got = []
    for at in range(0, len(data), piece):
        other.sendall(data[at : at + piece])
        while (message := channel.receive()) is not None:
            got.append(message)
    # An empty message at the end of the data is there before anything else comes.
    assert got == messages
    other.close()
    assert channel.receive() is None
    assert channel.closed
    channel.close()


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_whatever_comes_it_ends_and_no_more_is_kept_than_a_message(pieces: list[bytes]) -> None:
    one, other = socket.socketpair()
    channel = Channel(one, 1)
    for piece in pieces:
        other.sendall(piece)
        for message in channel.messages():
            assert len(message) <= LIMIT
    other.close()
    assert list(channel.messages()) == []
    assert channel.closed
    assert len(channel.came) <= 6 * 40
    channel.close()


def test_what_does_not_fit_goes_later(pair: tuple[Channel, socket.socket]) -> None:
    channel, other = pair
    message = bytes(LIMIT // 2)
    for _ in range(8):
        channel.send(message)
    assert not channel.flush()
    theirs, got = Channel(other, 0), 0
    for _ in range(10_000):
        got += theirs.receive() == message
        channel.flush()
    assert got == 8


def test_nonsense_closes_it(pair: tuple[Channel, socket.socket]) -> None:
    channel, other = pair
    other.sendall(b"GET / HTTP/1.1\r\n")
    assert channel.receive() is None
    assert channel.closed


def test_sending_to_nobody_is_no_error(pair: tuple[Channel, socket.socket]) -> None:
    channel, other = pair
    other.close()
    for _ in range(3):
        channel.send(b"hello")
    assert channel.receive() is None
    assert channel.closed


def test_a_message_of_the_limit_is_ours_and_a_longer_one_is_not() -> None:
    for size, ours in [(LIMIT, True), (LIMIT + 1, False)]:
        one, other = socket.socketpair()
        channel = Channel(one, 1)
        channel.came = struct.pack("!I", size) + bytes(size)
        got = channel.receive()
        assert (got == bytes(size)) == ours
        assert channel.closed == channel.is_garbled == (not ours)
        channel.close()
        other.close()
    assert LIMIT == 1 << 20


def test_what_comes_after_a_message_stays_for_the_next(pair: tuple[Channel, socket.socket]) -> None:
    channel, other = pair
    other.sendall(struct.pack("!I", 2) + b"ab" + struct.pack("!I", 0) + b"\0\0")
    assert channel.receive() == b"ab"
    assert channel.came == bytes(6)
    assert channel.receive() == b""
    assert channel.receive() is None
    other.sendall(b"\0\1x" + struct.pack("!I", 1) + b"y")
    assert list(channel.messages()) == [b"x", b"y"]
    assert not channel.closed


def test_a_channel_over_a_network_does_not_wait_to_send() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        other, _ = server.accept()
        channel = Channel(one, 1)
        assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert not one.getblocking()
        assert (channel.fd, channel.rank, channel.closed) == (one.fileno(), 1, False)
        channel.close()
        assert one.fileno() == -1
        other.close()


class Refuses:
    """A connection that is broken."""

    family = socket.AF_UNIX

    def __init__(self, error: OSError) -> None:
        self.error = error

    def setblocking(self, flag: bool) -> None: ...

    def fileno(self) -> int:
        return 5

    def send(self, data: bytes) -> int:
        raise self.error

    def recv(self, size: int) -> bytes:
        raise self.error

    def shutdown(self, how: int) -> None:
        raise OSError


@pytest.mark.parametrize("error", [ConnectionResetError(), ssl.SSLError("bad record"), TimeoutError()])
def test_a_broken_connection_is_closed_and_nothing_is_kept_for_it(error: OSError) -> None:
    broken: Any = Refuses(error)
    channel = Channel(broken, 1)
    channel.send(b"hello")
    assert channel.flush()
    assert channel._going == b""
    assert channel.receive() is None
    assert channel.closed
    one, other = socket.socketpair()
    gone = Channel(one, 1)
    other.close()
    gone.close()
    gone.finish()  # which is no error


def test_who_finishes_sends_the_rest_and_still_hears(pair: tuple[Channel, socket.socket]) -> None:
    channel, other = pair
    channel._going = struct.pack("!I", 3) + b"bye"
    channel.finish()
    theirs = Channel(other, 0)
    assert list(theirs.messages()) == [b"bye"]
    assert theirs.closed
    theirs.send(b"heard")
    assert channel.receive() == b"heard"


@pytest.mark.parametrize("error", [BlockingIOError(), ssl.SSLWantReadError(), ssl.SSLWantWriteError()])
def test_what_cannot_be_done_now_is_done_later(error: OSError) -> None:
    """An encrypted connection may have to receive before it can send, and the other way round."""
    busy: Any = Refuses(error)
    channel = Channel(busy, 1)
    channel.send(b"hello")
    assert not channel.flush()
    assert channel._going == struct.pack("!I", 5) + b"hello"
    assert channel.receive() is None
    assert not channel.closed
