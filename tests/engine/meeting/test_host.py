"""Rank 0 receives all others: who is absent, twice, different or gone is named to all, and strangers change nothing."""

import errno
import os
import socket
import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, replace
from time import monotonic
from typing import Any

import pytest

from shardwise import EngineError
from shardwise.engine.meeting import host as module
from shardwise.engine.meeting.channel import Channel
from shardwise.engine.meeting.credentials import Credentials
from shardwise.engine.meeting.handshake import StrangerError, call
from shardwise.engine.meeting.host import BACKLOG, BIND, LISTENER, listen, receive_others
from shardwise.engine.meeting.rendezvous import Address, Card, decode, encode
from tests.engine.meeting.meetings import (
    LONG,
    OTHERS,
    OURS,
    SECRET,
    SOON,
    Proxy,
    address_of,
    card,
    check_meetings,
    close,
    hold,
    listener_of,
    nothing_stays,
    take,
)


def check_errors(results: list[Any], *texts: str) -> None:
    for result in results:
        assert isinstance(result, EngineError), result
        assert all(text in str(result) for text in texts), str(result)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_all_meet_and_are_connected(size: int) -> None:
    with nothing_stays():
        meetings = hold([card(rank, size) for rank in range(size)])
        assert len({meeting.job for meeting in meetings}) == 1
        assert {meeting.host for meeting in meetings} == {"127.0.0.1"}
        assert [meetings[0].cards[rank].who for rank in range(size)] == [f"host:{rank}" for rank in range(size)]
        assert all(abs(meeting.clock_offset) < SOON for meeting in meetings)
        check_meetings(meetings)


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_the_secret_never_travels(encrypted: dict[str, Credentials], is_encrypted: bool) -> None:
    """All that two processes send each other while they meet, and after it, passes one who writes it down."""
    credentials = encrypted["job"] if is_encrypted else OURS
    listener = listener_of()
    proxy = Proxy(address_of(listener))
    meetings = hold([card(rank, 2) for rank in range(2)], [credentials] * 2, master=proxy.address, listener=listener)
    check_meetings(meetings)
    seen = proxy.close()
    assert SECRET not in seen
    assert SECRET.hex().encode() not in seen
    job = meetings[0].job.encode()
    assert (b"beats 0 to 1" in seen, job in seen) == ((False, False) if is_encrypted else (True, True))


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"size": 4}, "ranks 0 and 2 do not agree about WORLD_SIZE.\n  WORLD_SIZE: 3 in rank 0, 4 in rank 2"),
        ({"shardwise": "0.2.0"}, "about shardwise.\n  shardwise: 0.1.0 in rank 0, 0.2.0 in rank 2"),
        ({"torch": "2.7"}, "about torch.\n  torch: 2.6 in rank 0, 2.7 in rank 2"),
        ({"guard": False}, "about guard.\n  guard: True in rank 0, False in rank 2"),
        ({"mesh": "DeviceMesh(x=3)"}, "mesh: none given to init in rank 0, DeviceMesh(x=3) in rank 2"),
        ({"mesh": "\x1b[2J"}, "mesh: none given to init in rank 0, \\x1b[2J in rank 2"),
    ],
)
def test_who_does_not_agree_is_named_to_all(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], text: str
) -> None:
    monkeypatch.setattr(module, "LINGER", 1.0)  # for the fourth that may come
    with nothing_stays():
        check_errors(hold([card(0), card(1), card(2, **changed)]), text)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_there_twice_is_named_to_all(rank: int) -> None:
    with nothing_stays():
        results = hold([card(0), card(1), card(rank, who="other\x07:7")])
    check_errors(results, f"rank {rank} is there twice: ", "other\\x07:7", "every process has its own RANK")


def receive(listener: socket.socket, seconds: float = LONG, size: int = 3, credentials: Credentials = OURS) -> Any:
    try:
        return receive_others(card(0, size), listener, credentials, seconds)
    except EngineError as error:
        return error.with_traceback(None)


class Guest:
    """One who has the secret, and says what a test wants."""

    def __init__(self, address: Address, greeting: dict[str, Any]) -> None:
        connection, _ = call(socket.create_connection(address), greeting, OURS, monotonic() + SOON)
        self.channel = Channel(connection, 0)

    def hear(self) -> dict[str, Any]:
        message = take(self.channel)
        return {} if message is None else decode(message)

    def close(self) -> None:
        self.channel.close()


def greet(rank: int, size: int = 3, **changed: Any) -> dict[str, Any]:
    return {"card": asdict(card(rank, size, host="127.0.0.1", port=1)) | changed}


def receive_with(act: Callable[[Address], Any], **more: Any) -> Any:
    """What rank 0 comes to while something happens at its gate."""
    listener = listener_of()
    address = address_of(listener)
    with ThreadPoolExecutor(1) as threads:
        received = threads.submit(receive, listener, **more)
        act(address)
        return received.result(LONG)


def test_who_is_absent_is_named_with_who_is_here_and_who_was_turned_away() -> None:
    told = list[Any]()

    def act(address: Address) -> None:
        guest = Guest(address, greet(2, 5))
        for credentials in (OTHERS, OURS):
            with suppress(StrangerError, OSError):
                call(socket.create_connection(address), {}, credentials, monotonic() + SOON)[0].close()
        told.append(guest.hear())
        guest.close()

    with nothing_stays():
        start = monotonic()
        error = receive_with(act, seconds=1.0, size=5)
        assert 0.9 < monotonic() - start < SOON
    assert str(error) == (
        "ranks 1, 3, 4 of 5 did not come within 1 s.\n"
        "  here: rank 0 (host:0), 2 (host:2)\n"
        "  turned away: 127.0.0.1: it does not know the secret of this job\n"
        "  WORLD_SIZE is how many processes are started, over all hosts; SHARDWISE_START_TIMEOUT gives more time."
    )
    assert told == [{"refused": str(error)}]


@pytest.mark.parametrize(
    "changed",
    [{"rank": True}, {"rank": 1.0}, {"rank": "1"}, {"rank": 3}, {"rank": -1}, {"size": None}, {"more": 1}, {"who": 3}],
)
def test_who_says_of_itself_what_cannot_be_read_is_refused(changed: dict[str, Any]) -> None:
    """It has the secret, so it is of this job, and of another version perhaps."""
    told = list[Any]()

    def act(address: Address) -> None:
        guest = Guest(address, greet(1) | {"card": greet(1)["card"] | changed})
        told.append(guest.hear())
        guest.close()
        Guest(address, greet(2)).close()

    with nothing_stays():
        error = receive_with(act)
    assert "says of itself what rank 0 cannot read.\n  perhaps it has another version of shardwise" in str(error)
    assert told == [{"refused": str(error)}]


def test_who_ends_while_others_start_is_named_to_those_who_are_there_and_who_come_later() -> None:
    told = list[Any]()

    def act(address: Address) -> None:
        one, gone = Guest(address, greet(1, 4)), Guest(address, greet(2, 4))
        gone.close()
        told.append(one.hear())
        one.close()
        late = Guest(address, greet(3, 4))
        told.append(late.hear())
        late.close()

    with nothing_stays():
        start = monotonic()
        error = receive_with(act, size=4)
        assert monotonic() - start < SOON
    assert str(error) == "rank 2 (host:2) ended while others were starting.\n  look at its output first."
    assert told == [{"refused": str(error)}] * 2


@pytest.mark.parametrize(
    ("does", "text"),
    [
        (lambda guest: guest.close(), "rank 1 (host:1) ended while all were connecting.\n  look at its output first."),
        (lambda guest: guest.channel.send(b"\x1b["), "rank 1 (host:1) sent what cannot be read while all were connect"),
        (lambda guest: guest.channel.send(b"[" * 90_000), "rank 1 (host:1) sent what cannot be read while all were"),
        (lambda guest: guest.channel.send(encode(failed="no \x1b[2Jway")), "no \\x1b[2Jway"),
        (lambda guest: guest.channel.send(encode(failed=["no"])), "['no']"),
    ],
)
def test_who_fails_while_all_connect_is_named_to_all(does: Callable[[Guest], None], text: str) -> None:
    told = list[Any]()

    def act(address: Address) -> None:
        one, two = Guest(address, greet(1)), Guest(address, greet(2))
        # Each was heard by a thread of its own, and they may come in any order.
        assert sorted(row[:2] for row in two.hear()["cards"]) == [[0, "host:0"], [1, "host:1"], [2, "host:2"]]
        one.hear()
        does(one)
        told.append(two.hear())
        one.close()
        two.close()

    with nothing_stays():
        start = monotonic()
        error = receive_with(act)
        assert monotonic() - start < SOON
    assert str(error).startswith(text)
    assert told == [{"refused": str(error)}]


def test_who_does_not_connect_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINGER", 0.2)

    def act(address: Address) -> None:
        guests = [Guest(address, greet(rank)) for rank in (1, 2)]
        job = guests[1].hear()["job"]
        ends = [
            call(socket.create_connection(address), {"kind": kind, "rank": 2, "job": job}, OURS, monotonic() + SOON)[0]
            for kind in ("calls", "beats")
        ]
        guests[1].channel.send(encode(ready=True))
        guests[0].hear()
        assert "rank 1 did not connect in 1 s" in guests[0].hear()["refused"]
        for end in [*ends, *guests]:
            end.close()

    with nothing_stays():
        error = receive_with(act, seconds=1.0)
    assert str(error) == "rank 1 did not connect in 1 s, though they had started."


def test_rank_0_does_not_wait_for_ever_for_those_who_do_not_read_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINGER", 0.3)
    guests = list[Guest]()
    with nothing_stays():
        start = monotonic()
        error = receive_with(lambda address: guests.append(Guest(address, greet(1))), seconds=0.2)
        assert monotonic() - start < SOON
        assert "rank 2 of 3 did not come" in str(error)
        guests[0].close()


STRANGERS = [b"", b"GET / HTTP/1.1\r\n\r\n", struct.pack("!I", 0xFFFFFFFF), b"\0\0", b"\xff" * 10_000]


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_strangers_change_nothing(encrypted: dict[str, Credentials], is_encrypted: bool) -> None:
    """Two hundred who say nothing, some who say garbage, and some with another secret: the others meet as ever."""
    credentials = encrypted["job"] if is_encrypted else OURS
    stranger = replace(encrypted["other"] if is_encrypted else OTHERS, secret=OTHERS.secret)
    with nothing_stays():
        listener = listener_of(4)
        address = address_of(listener)
        crowd = [socket.create_connection(address) for _ in range(100)]
        for said in STRANGERS * 3:
            crowd.append(socket.create_connection(address))
            crowd[-1].sendall(said)
        done = threading.Event()

        def intrude() -> None:
            while not done.is_set():
                with suppress(StrangerError, OSError):
                    call(socket.create_connection(address), greet(1, 4), stranger, monotonic() + SOON)[0].close()

        thread = threading.Thread(target=intrude)
        thread.start()
        start = monotonic()
        meetings = hold([card(rank, 4) for rank in range(4)], [credentials] * 4, listener=listener)
        assert monotonic() - start < SOON
        done.set()
        thread.join()
        check_meetings(meetings)
        for end in crowd:
            end.close()


def test_who_knows_the_secret_but_is_of_another_start_is_sent_away() -> None:
    with nothing_stays():
        listener = listener_of(2)
        address = address_of(listener)
        backlog = [socket.create_connection(address) for _ in range(2)]

        def come_from_before(end: socket.socket) -> Any:
            end, _ = call(end, {"kind": "calls", "rank": 1, "job": "before"}, OURS, monotonic() + SOON)
            channel = Channel(end, 0)
            take(channel)
            channel.close()
            return channel.closed

        with ThreadPoolExecutor(2) as threads:
            others = [threads.submit(come_from_before, end) for end in backlog]
            check_meetings(hold([card(rank, 2) for rank in range(2)], listener=listener))
            assert all(other.result(SOON) for other in others)


def test_guests_with_another_secret_do_not_come_and_both_say_why() -> None:
    with nothing_stays():
        results = hold([card(0, 2), card(1, 2)], [OURS, OTHERS], seconds=1.0)
    check_errors(
        results[:1], "rank 1 of 2 did not come within 1 s", "turned away: 127.0.0.1: it does not know the secret"
    )
    check_errors(results[1:], "rank 1 cannot reach rank 0", "it does not know us: SHARDWISE_SECRET is another there")


def test_guests_with_a_certificate_of_another_authority_do_not_come_and_both_say_why(
    encrypted: dict[str, Credentials],
) -> None:
    with nothing_stays():
        results = hold([card(0, 2), card(1, 2)], [encrypted["job"], encrypted["other"]], seconds=1.0)
    check_errors(results[:1], "rank 1 of 2 did not come within 1 s", "turned away: 127.0.0.1: ", "unknown ca")
    check_errors(results[1:], "rank 1 cannot reach rank 0", "certificate verify failed")


# -- listening -------------------------------------------------------------------------------------------------


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (BIND, LISTENER):
        monkeypatch.delenv(name, raising=False)


def test_rank_0_listens_where_it_is_told_and_nowhere_else(clean: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for asked, bind, name in [("127.0.0.1", "", "127.0.0.1"), ("127.0.0.3", "127.0.0.2", "127.0.0.2")]:
        monkeypatch.setenv(BIND, bind)
        with listen(asked, 0, 3) as listener:
            assert listener.getsockname()[0] == name
            with pytest.raises(OSError, match="refused"):
                socket.create_connection(("127.0.0.9", listener.getsockname()[1]))
    monkeypatch.setenv(BIND, "0.0.0.0")
    with nothing_stays():
        listener = listen("127.0.0.1", 0, 2)
        assert listener.getsockname()[0] == "0.0.0.0"
        meetings = hold(
            [card(0, 2), card(1, 2)], master=Address("127.0.0.1", listener.getsockname()[1]), listener=listener
        )
        assert [meeting.host for meeting in meetings] == ["127.0.0.1"] * 2  # by which the others came
        check_meetings(meetings)


def test_a_port_that_is_taken_and_a_host_that_is_none_of_ours_are_named(clean: None) -> None:
    with listener_of() as other, pytest.raises(EngineError) as caught:
        listen("127.0.0.1", other.getsockname()[1], 3)
    port = caught.value.args[0].split()[1]
    assert str(caught.value) == (
        f"port {port} is taken: rank 0 cannot listen on 127.0.0.1:{port} (MASTER_ADDR, MASTER_PORT).\n"
        "  another program listens there, perhaps one that has not ended; set MASTER_PORT to a free port."
    )
    for host in ("192.0.2.1", "no-such-host.invalid"):
        with pytest.raises(
            EngineError, match=rf"rank 0 cannot listen on {host}:0 \(.*\n  MASTER_ADDR is an address of ra"
        ):
            listen(host, 0, 3)


def hand_over(monkeypatch: pytest.MonkeyPatch, number: object) -> None:
    monkeypatch.setenv(LISTENER, str(number))


def test_a_socket_that_was_handed_over_is_used(clean: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with nothing_stays():
        reserved = socket.socket()
        reserved.bind(("127.0.0.1", 0))
        reserved.set_inheritable(True)
        port = reserved.getsockname()[1]
        hand_over(monkeypatch, reserved.fileno())
        with listen("127.0.0.1", port, 3) as listener:
            assert listener.fileno() == reserved.detach()
            assert not listener.get_inheritable()
            assert LISTENER not in os.environ  # of what this process starts nobody uses it again
            socket.create_connection(("127.0.0.1", port)).close()


def test_a_number_that_is_another_file_by_now_is_left_alone(clean: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program between may have closed it."""
    with nothing_stays():
        closed = os.open(os.devnull, os.O_RDONLY)
        os.close(closed)
        with open(os.devnull) as file, socket.socket() as other, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
            other.bind(("127.0.0.1", 0))
            datagrams.bind(("127.0.0.1", 0))
            port = datagrams.getsockname()[1]
            for number in (closed, file.fileno(), other.fileno(), datagrams.fileno(), "x", "-1", ""):
                hand_over(monkeypatch, number)
                with listen("127.0.0.1", port, 3) as listener:
                    assert listener.getsockname() == ("127.0.0.1", port)
            assert not file.closed
            assert other.getsockname()[1] != port
            hand_over(monkeypatch, other.fileno())
            with listen("127.0.0.1", 0, 3) as listener:  # of torchrun's store, which says of no port
                assert listener.fileno() != other.fileno()


def test_a_port_that_somebody_took_before_rank_0_listens_is_named(clean: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was reserved for a program that may start a torch.distributed of its own, so others can still take it."""
    with nothing_stays(), socket.socket() as thief:
        reserved = socket.socket()
        for one in (reserved, thief):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        thief.bind(("127.0.0.1", port))
        thief.listen()
        hand_over(monkeypatch, reserved.detach())
        with pytest.raises(EngineError, match=f"port {port} is taken"):
            listen("127.0.0.1", port, 3)


def test_the_queue_of_a_listener_has_room_for_strangers_too(clean: None, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Listens(socket.socket):
        def listen(self, backlog: int = 0, /) -> None:
            asked.append(backlog)
            super().listen(backlog)

    monkeypatch.setattr(socket, "socket", Listens)
    for size in (3, BACKLOG):
        listen("127.0.0.1", 0, size).close()
    assert asked == [BACKLOG, 2 * BACKLOG]


def test_the_words_of_the_system_decide_what_is_said() -> None:
    taken = OSError(errno.EADDRINUSE, "Address already in use")
    assert module._explain_listening("there", 7, taken).startswith("port 7 is taken: rank 0 cannot listen on there:7")
    assert "SHARDWISE_BIND says so" in module._explain_listening("there", 7, OSError("no such host"))


def test_meetings_that_are_closed_leave_nothing() -> None:
    """Twice as many meetings need no more files and threads."""
    with nothing_stays():
        for _ in range(3):
            close(hold([card(0, 2), card(1, 2)]))
    assert isinstance(card(0), Card)
