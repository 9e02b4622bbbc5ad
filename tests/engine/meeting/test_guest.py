"""Guests find rank 0 however late it comes, believe nobody else, and say who is missing when they give up."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Any

import pytest

from shardwise import EngineError
from shardwise.engine.meeting import guest as module
from shardwise.engine.meeting.channel import Channel
from shardwise.engine.meeting.credentials import Credentials
from shardwise.engine.meeting.gate import Gate
from shardwise.engine.meeting.guest import visit
from shardwise.engine.meeting.host import listen, receive_others
from shardwise.engine.meeting.rendezvous import Address, encode
from tests.engine.meeting.meetings import (
    LONG,
    OTHERS,
    OURS,
    SOON,
    address_of,
    card,
    check_meetings,
    listener_of,
    nothing_stays,
    take,
    write,
)
from tests.engines.pool import reserve_port


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINGER", 0.3)


def come(address: Address, rank: int = 1, size: int = 2, seconds: float = LONG, credentials: Credentials = OURS) -> Any:
    try:
        return visit(card(rank, size), address, credentials, seconds)
    except EngineError as error:
        return error.with_traceback(None)


@contextmanager
def coming(address: Address, *ranks: int, size: int = 2, seconds: float = LONG) -> Iterator[list[Future[Any]]]:
    with ThreadPoolExecutor(len(ranks)) as threads:
        yield [threads.submit(come, address, rank, size, seconds) for rank in ranks]


@contextmanager
def nowhere() -> Iterator[Address]:
    """An address where nobody listens, which the system gives to nobody else; rank 0 can still listen there."""
    with reserve_port() as reserved:
        yield address_of(reserved)


def test_a_guest_may_come_long_before_rank_0() -> None:
    with nothing_stays(), nowhere() as address, coming(address, 1) as (guest,):
        sleep(0.3)
        meeting = receive_others(card(0, 2), listen(*address, 2), OURS, LONG)
        check_meetings([meeting, guest.result(SOON)])


def test_a_guest_counts_from_when_rank_0_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """It came early, and rank 0 waits for one who is late: the guest does not give up before rank 0 does."""
    monkeypatch.setattr(module, "LINGER", 1.0)
    with nothing_stays(), nowhere() as address, coming(address, 1, size=3, seconds=2.0) as (guest,):
        sleep(1.0)
        with pytest.raises(EngineError, match=r"rank 2 of 3 did not come within 1\.8 s"):
            receive_others(card(0), listen(*address, 2), OURS, 1.8)
        assert "rank 2 of 3 did not come within 1.8 s" in str(guest.result(SOON))


def test_an_absent_rank_0_is_named_with_what_the_system_says() -> None:
    with nothing_stays(), nowhere() as address:
        start = monotonic()
        error = come(address, seconds=0.3)
        assert 0.25 < monotonic() - start < SOON
    assert str(error) == (
        f"rank 1 cannot reach rank 0 at 127.0.0.1:{address.port} (MASTER_ADDR, MASTER_PORT) within 0.3 s: rank 0 is "
        "absent, or something else listens there.\n  [Errno 111] Connection refused"
    )
    assert "no-such-host.invalid:7 (MASTER_ADDR" in str(come(Address("no-such-host.invalid", 7), seconds=0.2))


@contextmanager
def serving(say: Callable[[socket.socket], Any]) -> Iterator[Address]:
    """Something else listens where rank 0 should."""
    listener = listener_of()
    ends = list[socket.socket]()

    def serve() -> None:
        while True:
            try:
                end, _ = listener.accept()
            except OSError:
                return
            ends.append(end)
            try:
                say(end)
            except OSError:
                continue

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield address_of(listener)
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        for end in [listener, *ends]:
            end.close()


@pytest.mark.parametrize(
    ("say", "text"),
    [
        (lambda end: None, "timed out"),
        (lambda end: end.close(), "the connection was closed"),
        (lambda end: end.sendall(b"SSH-2.0-OpenSSH_9.9\r\n"), "what it sends is no message of shardwise"),
        (
            lambda end: write(end, b'{"nonce": "\x1b["}'),
            "what it sends is no message of shardwise",
        ),
        (lambda end: end.sendall(b"\xff\xff\xff\xff"), "what it sends is no message of shardwise"),
        (lambda end: end.sendall(b"\0\0\xea\x60" + b"[" * 60_000), "what it sends is no message of shardwise"),
    ],
)
def test_something_else_that_listens_is_not_rank_0(say: Callable[[socket.socket], Any], text: str) -> None:
    with nothing_stays(), serving(say) as address:
        error = str(come(address, seconds=0.4))
    assert "rank 0 is absent, or something else listens there" in error
    assert error.splitlines()[1].strip() == text


def test_what_was_answered_tells_more_than_that_the_time_was_over() -> None:
    """Rank 0 has another secret, says so, and then says nothing any more."""
    answers = list[socket.socket]()

    def say(end: socket.socket) -> None:
        answers.append(end)
        if len(answers) == 1:
            write(end, b'{"version": "another"}')

    with nothing_stays(), serving(say) as address:
        error = str(come(address, seconds=1.0))
    assert len(answers) == 2
    assert error.endswith("something else answers, or another version: {'version': 'another'}")


def test_a_false_host_is_not_rank_0_whatever_it_pretends() -> None:
    """One that lets everybody in learns no secret, and is believed nothing."""

    def lie(end: socket.socket) -> None:
        channel = Channel(end, 1)
        channel.send(json.dumps({"version": "shardwise 1", "nonce": "0" * 64}).encode())
        said = json.loads(take(channel) or b"")
        channel.send(json.dumps({"proof": said["proof"], "time": 0.0}).encode())
        channel.send(encode(refused="go \x1b[2J away"))

    with nothing_stays(), serving(lie) as address:
        error = str(come(address, seconds=0.6))
    assert "who answers does not know the secret of this job" in error
    assert "go" not in error.split()


def test_a_process_that_meets_itself_has_not_met_rank_0(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever calls a port of its own host where nobody listens may be given that port for its own end."""
    met = list[int]()

    def meet_itself(address: Address, timeout: float) -> socket.socket:
        if met:
            raise ConnectionRefusedError("nobody listens there, it says")
        end = socket.socket()
        end.bind(address)
        end.connect(address)
        met.append(end.fileno())
        return end

    with nowhere() as address:
        pass  # its own end is to have the port
    with nothing_stays():
        with monkeypatch.context() as patch:
            patch.setattr(socket, "create_connection", meet_itself)
            error = str(come(address, seconds=0.2))
        assert error.endswith("nobody listens there, it says")  # and not that it answers itself
        assert met
        listen(*address, 2).close()  # and rank 0 can have the port


@contextmanager
def hosting(size: int = 2, credentials: Credentials = OURS) -> Iterator[tuple[Gate, Address]]:
    """A gate of rank 0, with nobody behind it."""
    listener = listener_of(size)
    address, gate = address_of(listener), Gate(listener, credentials, size)
    try:
        yield gate, address
    finally:
        gate.close()


def admit(gate: Gate) -> Channel:
    newcomer = gate.receive(SOON)
    assert newcomer is not None
    return Channel(newcomer[0], newcomer[1]["card"]["rank"])


def tell(channel: Channel, *addresses: Address, job: Any = "job") -> None:
    rows = [[rank, f"host:{rank}", *address] for rank, address in enumerate(addresses)]
    channel.send(encode(cards=rows, job=job))


@pytest.mark.parametrize(
    ("say", "text"),
    [
        (lambda channel: channel.close(), "rank 0 ended while others were starting.\n  look at its output first."),
        (lambda channel: channel.send(encode(refused="no \x1b[2J\nway")), "no \\x1b[2J\nway"),
        (lambda channel: channel.send(encode(refused=["no"])), "['no']"),
        (lambda channel: channel.send(b"nonsense"), "rank 0 sent what cannot be read: Expecting value"),
        (lambda channel: channel.send(b"[" * 90_000), "rank 0 sent what cannot be read: "),
        (lambda channel: channel.send(b"[]"), "rank 0 sent what cannot be read: not a message"),
        (lambda channel: channel.send(encode(job="job")), "rank 0 sent what cannot be read: not the cards of all"),
        (
            lambda channel: channel.send(encode(cards=[{"rank": 0}], job="j")),
            "rank 0 sent what cannot be read: not a list",
        ),
        (
            lambda channel: tell(channel, Address("", 1), Address("", 1), job=3),
            "rank 0 sent what cannot be read: the job",
        ),
        (lambda channel: None, "rank 0 said nothing any more while others were starting: it is stopped, or cut off"),
    ],
)
def test_what_rank_0_says_is_read_with_care(say: Callable[[Channel], Any], text: str) -> None:
    with nothing_stays(), hosting() as (gate, address), coming(address, 1, seconds=1.0) as (guest,):
        channel = admit(gate)
        say(channel)
        error = guest.result(SOON)
        channel.close()
    assert isinstance(error, EngineError)
    assert str(error).startswith(text)


def test_who_cannot_reach_another_says_so_to_rank_0() -> None:
    with (
        nothing_stays(),
        nowhere() as empty,
        hosting(3) as (gate, address),
        coming(address, 2, size=3, seconds=1.0) as (guest,),
    ):
        channel = admit(gate)
        tell(channel, address, empty, empty)
        error = guest.result(SOON)
        text = f"rank 2 cannot reach rank 1 at 127.0.0.1:{empty.port}: [Errno 111] Connection refused."
        assert str(error) == text
        assert json.loads(take(channel) or b"") == {"failed": text}
        channel.close()
        while newcomer := gate.receive(0.0):
            newcomer[0].close()


def test_who_is_not_called_by_another_says_so_to_rank_0() -> None:
    with (
        nothing_stays(),
        nowhere() as empty,
        hosting(3) as (gate, address),
        coming(address, 1, size=3, seconds=1.0) as (guest,),
    ):
        channel = admit(gate)
        tell(channel, address, empty, empty)
        text = "rank 2 did not connect in 1 s, though they had started."
        assert str(guest.result(SOON)) == text
        assert json.loads(take(channel) or b"") == {"failed": text}
        channel.close()
        while newcomer := gate.receive(0.0):
            newcomer[0].close()


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("how", ["refused", "ended", "nonsense"])
def test_who_connects_heeds_rank_0(rank: int, how: str) -> None:
    """One that calls another in vain, or waits for its call, and rank 0 knows more, or is gone."""
    with nothing_stays(), nowhere() as empty, hosting(3) as (gate, address), coming(address, rank, size=3) as (guest,):
        channel = admit(gate)
        tell(channel, address, empty, empty)
        start = monotonic()
        if how == "refused":
            channel.send(encode(refused="rank 1 ended \x1b"))
        elif how == "nonsense":
            channel.send(b"{")
        else:
            channel.close()
        error = str(guest.result(SOON))
        assert monotonic() - start < SOON / 2
        channel.close()
        while newcomer := gate.receive(0.0):
            newcomer[0].close()
    texts = {"refused": "rank 1 ended \\x1b", "nonsense": "rank 0 sent what cannot be read: "}
    assert error.startswith(texts.get(how, "rank 0 ended while all were connecting."))


def test_a_guest_that_is_ready_waits_for_the_word_of_rank_0() -> None:
    with nothing_stays(), hosting() as (gate, address), coming(address, 1) as (guest,):
        channel = admit(gate)
        tell(channel, address, Address("127.0.0.1", 1))
        seats = [gate.receive(SOON) for _ in range(2)]  # in any order: each was heard by a thread of its own
        assert sorted((seat[1] for seat in seats if seat), key=lambda greeting: greeting["kind"]) == [
            {"kind": k, "rank": 1, "job": "job"} for k in ("beats", "calls")
        ]
        assert json.loads(take(channel) or b"") == {"ready": True}
        sleep(0.05)
        assert not guest.done()
        channel.close()
        assert str(guest.result(SOON)).startswith("rank 0 ended while all were connecting.")
        for seat in seats:
            assert seat is not None
            assert seat[0].recv(1) == b""  # the guest closed what it had
            seat[0].close()


def test_a_guest_is_let_in_however_many_strangers_are_at_its_own_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every process listens while all start; strangers find those ports too."""
    gates = list[Address]()

    class Busy(Gate):
        def __init__(self, listener: socket.socket, credentials: Credentials, size: int) -> None:
            super().__init__(listener, credentials, size)
            gates.append(address_of(listener))
            crowd.extend(socket.create_connection(gates[-1]) for _ in range(40))
            crowd[-1].sendall(b"GET / HTTP/1.1\r\n\r\n")

    crowd = list[socket.socket]()
    monkeypatch.setattr(module, "Gate", Busy)
    with nothing_stays():
        listener = listener_of()
        with coming(address_of(listener), 1, 2, size=3) as guests:
            start = monotonic()
            meeting = receive_others(card(0), listener, OURS, LONG)
            check_meetings([meeting, *(guest.result(SOON) for guest in guests)])
            assert monotonic() - start < SOON
        assert len(gates) == 2
        assert {address.host for address in gates} == {"127.0.0.1"}  # where they reach rank 0 from
        for end in crowd:
            end.close()


def test_a_guest_with_another_secret_tries_again_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """What answers may be a job that ends; but who is refused does not ask without a pause."""
    monkeypatch.setattr(module, "AGAIN", 0.2)
    with nothing_stays(), hosting(credentials=OTHERS) as (gate, address):
        error = str(come(address, seconds=1.1))
        assert "it does not know us: SHARDWISE_SECRET is another there" in error
        assert 2 <= len(gate.turned_away) <= 6
