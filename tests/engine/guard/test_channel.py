"""Channels: messages whole and in order, whatever the pieces they come in, and no strangers."""

import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise import EngineError
from shardwise.engine.guard import channel as channel_module
from shardwise.engine.guard.channel import LIMIT, Address, Channel, _accept, _call, connect, listen


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
    listeners = [listen("127.0.0.1", 3) for _ in range(3)]
    where = {rank: Address(*listener.getsockname()[:2]) for rank, listener in enumerate(listeners)}
    strangers = [socket.create_connection(where[0]) for _ in range(2)]
    strangers[0].sendall(struct.pack("!I", 10) + b"wrong" + struct.pack("!BI", 0, 1))
    strangers[1].close()
    strangers[0].shutdown(socket.SHUT_WR)
    with ThreadPoolExecutor(3) as threads:
        made = list(
            threads.map(
                lambda rank: connect(
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
    with listen("127.0.0.1", 2) as listener, pytest.raises(EngineError, match=r"ranks \[1, 2\] did not connect"):
        connect(0, listener, {1: Address("127.0.0.1", 1), 2: Address("127.0.0.1", 1)}, b"token", 0.1)
    with listen("127.0.0.1", 2) as listener, pytest.raises(EngineError, match="rank 1 cannot reach rank 0 at 127"):
        connect(1, listener, {0: Address("127.0.0.1", 1)}, b"token", 0.5)


def test_a_message_of_the_limit_is_ours_and_a_longer_one_is_not() -> None:
    for size, ours in [(LIMIT, True), (LIMIT + 1, False)]:
        one, other = socket.socketpair()
        channel = Channel(one, 1)
        channel.came = struct.pack("!I", size) + bytes(size)
        got = channel.receive()
        assert (got == bytes(size)) == ours
        assert channel.closed == (not ours)
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

    def setblocking(self, flag: bool) -> None: ...

    def fileno(self) -> int:
        return 5

    def send(self, data: bytes) -> int:
        raise ConnectionResetError

    def recv(self, size: int) -> bytes:
        raise ConnectionResetError

    def shutdown(self, how: int) -> None:
        raise OSError


def test_a_broken_connection_is_closed_and_nothing_is_kept_for_it() -> None:
    broken: Any = Refuses()
    channel = Channel(broken, 1)
    channel.send(b"hello")
    assert channel.flush()
    assert channel._going == b""
    assert channel.receive() is None
    assert channel.closed
    channel.finish()  # which is no error


def test_who_finishes_sends_the_rest_and_still_hears(pair: tuple[Channel, socket.socket]) -> None:
    channel, other = pair
    channel._going = struct.pack("!I", 3) + b"bye"
    channel.finish()
    theirs = Channel(other, 0)
    assert list(theirs.messages()) == [b"bye"]
    assert theirs.closed
    theirs.send(b"heard")
    assert channel.receive() == b"heard"


def test_a_listener_takes_two_connections_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Listens(socket.socket):
        def listen(self, backlog: int = 0, /) -> None:
            asked.append(backlog)
            super().listen(backlog)

    monkeypatch.setattr(socket, "socket", Listens)
    with listen("127.0.0.1", 3) as listener:
        assert asked == [6]
        assert listener.type == socket.SOCK_STREAM
        assert listener.getsockname()[0] == "127.0.0.1"
        assert listener.getsockname()[1] > 0


def test_who_connects_says_the_token_its_kind_and_its_rank() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = Address(*server.getsockname())
        channels = connect(2, server, {0: where, 1: where}, b"token", 5.0)
        for other in (0, 1):
            for kind, name in enumerate(("calls", "beats")):
                end, _ = server.accept()
                said = end.recv(100)
                assert said == struct.pack("!I", 10) + b"token" + struct.pack("!BI", kind, 2)
                assert channels[name][other].rank == other
                end.close()
                channels[name][other].close()


def call_in(listener: socket.socket, said: bytes) -> socket.socket:
    out = socket.create_connection(listener.getsockname())
    out.sendall(said)
    out.shutdown(socket.SHUT_WR)
    return out


@pytest.mark.parametrize(
    "said",
    [
        b"",
        struct.pack("!I", 10) + b"tokem" + struct.pack("!BI", 0, 1),  # another secret
        struct.pack("!I", 10) + b"token" + struct.pack("!BI", 2, 1),  # no such kind
        struct.pack("!I", 10) + b"token" + struct.pack("!BI", 1, 1),  # who is there already
        struct.pack("!I", 10) + b"token" + struct.pack("!BI", 0, 7),  # who is not of these
        (struct.pack("!I", 10) + b"token" + struct.pack("!BI", 0, 1))[:-1],  # too short
    ],
)
def test_strangers_are_sent_away(said: bytes) -> None:
    with listen("127.0.0.1", 2) as listener:
        end = call_in(listener, said)
        assert _accept(listener, b"token", monotonic() + 5, {("calls", 1)}) is None
        end.settimeout(5)
        assert end.recv(1) == b""  # closed at once
        end.close()


def test_who_is_expected_is_taken_even_in_pieces() -> None:
    with listen("127.0.0.1", 2) as listener:
        said = struct.pack("!I", 10) + b"token" + struct.pack("!BI", 1, 3) + b"\0\0\0\1x"
        end = call_in(listener, said)
        found = _accept(listener, b"token", monotonic() + 5, {("calls", 1), ("beats", 3)})
        assert found is not None
        kind, channel = found
        assert (kind, channel.rank) == ("beats", 3)
        assert channel.receive() == b"x"  # nothing but the greeting was taken
        channel.close()
        end.close()


def test_no_more_is_read_of_a_greeting_than_is_missing() -> None:
    said, asked = struct.pack("!I", 10) + b"token" + struct.pack("!BI", 1, 3), list[Any]()

    class Slow(Refuses):
        left = said

        def settimeout(self, seconds: float) -> None:
            asked.append(f"{seconds} s")

        def recv(self, size: int) -> bytes:
            asked.append(size)
            out, self.left = self.left[: min(size, 5)], self.left[min(size, 5) :]
            return out

    class Hears:
        def settimeout(self, seconds: float) -> None: ...

        def accept(self) -> tuple[Any, Any]:
            return Slow(), None

    listener: Any = Hears()
    found = _accept(listener, b"token", monotonic() + 5, {("beats", 3)})
    assert found is not None
    assert (found[0], found[1].rank) == ("beats", 3)
    assert asked == ["2.0 s", 14, 9, 4]


def test_waits_are_as_long_as_is_left_and_never_none(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def refuse(address: Address, timeout: float) -> socket.socket:
        waits.append(timeout)
        raise OSError("no route")

    class Deaf:
        def settimeout(self, seconds: float) -> None:
            waits.append(seconds)

        def accept(self) -> None:
            raise TimeoutError

    deaf: Any = Deaf()
    monkeypatch.setattr(channel_module, "monotonic", lambda: 10.0)
    monkeypatch.setattr(socket, "create_connection", refuse)
    for end in (13.0, 9.0):
        with pytest.raises(EngineError, match=r"rank 1 cannot reach rank 0 at host:7: no route\."):
            _call(1, "calls", 0, Address("host", 7), b"token", end)
        with pytest.raises(EngineError, match=r"ranks \[1, 8, 32\] did not connect in time, though they had started"):
            _accept(deaf, b"token", end, {("calls", 8), ("beats", 8), ("calls", 1), ("beats", 32)})
    assert waits == [3.0, 3.0, 0.1, 0.1]
    with pytest.raises(EngineError, match="did not connect"):
        connect(0, deaf, {1: Address("host", 7)}, b"token", 2.5)
    assert waits[-1] == 2.5


def test_a_listener_is_of_the_family_of_the_host_and_of_its_own_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    class Said:
        def __init__(self, family: int, kind: int) -> None:
            self.said: list[Any] = [family, kind]
            made.append(self.said)

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *error: object) -> None:
            self.said.append("closed")

        def connect(self, where: Any) -> None:
            self.said.append(("connect", where))

        def getsockname(self) -> tuple[Any, ...]:
            return "fe80::7", 4242, 0, 0

        def bind(self, where: Any) -> None:
            self.said.append(("bind", where))

        def listen(self, backlog: int) -> None:
            self.said.append(("listen", backlog))

    def asked(*question: Any, **more: Any) -> list[Any]:
        assert (question, more) == (("there", 9), {"type": socket.SOCK_DGRAM})
        first = (socket.AF_INET6, socket.SOCK_DGRAM, 17, "", ("fe80::9", 9, 0, 0))
        return [first, (socket.AF_INET, socket.SOCK_DGRAM, 17, "", ("10.0.0.9", 9))]

    monkeypatch.setattr(socket, "getaddrinfo", asked)
    monkeypatch.setattr(socket, "socket", Said)
    listen("there", 4)
    assert made == [
        [socket.AF_INET6, socket.SOCK_DGRAM, ("connect", ("fe80::9", 9, 0, 0)), "closed"],
        [socket.AF_INET6, socket.SOCK_STREAM, ("bind", ("fe80::7", 0)), ("listen", 8)],
    ]
