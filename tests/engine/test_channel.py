"""Channels: messages whole and in order, whatever the pieces they come in, and no strangers."""

import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise import EngineError
from shardwise.engine.channel import LIMIT, Address, Channel, connected, listening


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


def test_all_are_connected_and_strangers_are_not() -> None:
    listeners = [listening("127.0.0.1", 3) for _ in range(3)]
    where = {rank: Address(*listener.getsockname()[:2]) for rank, listener in enumerate(listeners)}
    strangers = [socket.create_connection(where[0]) for _ in range(2)]
    strangers[0].sendall(struct.pack("!I", 10) + b"wrong" + struct.pack("!BI", 0, 1))
    strangers[1].close()
    strangers[0].shutdown(socket.SHUT_WR)
    with ThreadPoolExecutor(3) as threads:
        made = list(
            threads.map(
                lambda rank: connected(
                    rank, listeners[rank], {r: a for r, a in where.items() if r != rank}, b"token", 20.0
                ),
                range(3),
            )
        )
    for rank, channels in enumerate(made):
        for kind in ("calls", "beats"):
            assert sorted(channels[kind]) == [r for r in range(3) if r != rank]
            for other, channel in channels[kind].items():
                channel.send(f"{kind} {rank} to {other}".encode())
    for rank, channels in enumerate(made):
        for kind in ("calls", "beats"):
            for other, channel in channels[kind].items():
                channel.socket.settimeout(5)
                assert channel.receive() == f"{kind} {other} to {rank}".encode()
                channel.close()
    for end in [*listeners, *strangers]:
        end.close()


def test_who_does_not_connect_is_named() -> None:
    with listening("127.0.0.1", 2) as listener, pytest.raises(EngineError, match=r"ranks \[1, 2\] did not connect"):
        connected(0, listener, {1: Address("127.0.0.1", 1), 2: Address("127.0.0.1", 1)}, b"token", 0.1)
    with listening("127.0.0.1", 2) as listener, pytest.raises(EngineError, match="rank 1 cannot reach rank 0 at 127"):
        connected(1, listener, {0: Address("127.0.0.1", 1)}, b"token", 0.5)
