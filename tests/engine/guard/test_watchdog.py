"""Heartbeats, goodbyes and bad news, between two watchdogs."""

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from time import monotonic, sleep
from types import SimpleNamespace
from typing import Any

import pytest

from shardwise.engine.call import Call
from shardwise.engine.guard import stragglers
from shardwise.engine.guard import watchdog as watching
from shardwise.engine.guard.fingerprint import Fingerprint, encode
from shardwise.engine.guard.stragglers import ANSWER, Wait
from shardwise.engine.guard.vital_signs import UNKNOWN
from shardwise.engine.guard.watchdog import CLOSED, LINGER, UNREADABLE, Peer, Watchdog
from shardwise.engine.meeting.channel import Channel
from tests.engine.guard.watchdogs import watchdogs

CALL = Call("all_gather", (0, 1, 2), (8,), "float32", "[x]", "[-]", None, None, "ab12")

Pair = tuple[Watchdog, Watchdog]


@pytest.fixture
def pair() -> Iterator[Pair]:
    one, other = socket.socketpair()
    made = Watchdog({1: Channel(one, 1)}, 0.05), Watchdog({0: Channel(other, 0)}, 0.05)
    yield made
    for watchdog in made:
        watchdog.end("it left, cleanly", clean=True)


def soon(check: Callable[[], bool]) -> bool:
    end = monotonic() + 20
    while not check() and monotonic() < end:
        sleep(0.01)
    return check()


def test_heartbeats_come_with_the_last_sequence(pair: Pair) -> None:
    one, other = pair
    one.sequence, one.owner = 7, 0
    assert soon(lambda: other.peers[0].line == "")
    assert soon(lambda: other.peers[0].sequence == 7)
    assert soon(lambda: not other.silent(0))
    before = other.peers[0].heard
    assert soon(lambda: other.peers[0].heard > before)
    assert re.fullmatch(r"rank 0: last sequence 7, heartbeat \d+\.\d s ago", str(other.peers[0]))


def test_who_says_goodbye_has_left(pair: Pair) -> None:
    one, other = pair
    one.end("it left with ValueError", clean=False)
    (peer,) = other.find_gone([0], 20.0)
    assert (peer.gone, peer.clean, peer.follows) == ("it left with ValueError", False, False)
    assert str(peer) == "rank 0: it left with ValueError; last sequence 0"


def test_who_goes_without_a_goodbye_was_killed(pair: Pair) -> None:
    one, other = pair
    for channel in one._channels.values():
        channel.socket.shutdown(socket.SHUT_RDWR)
    (peer,) = other.find_gone([0], 20.0)
    assert peer.gone == CLOSED == "its connection closed without a goodbye: it was killed, crashed, or called os._exit"
    other.woken.settimeout(20)
    assert other.woken.recv(8)


def test_bad_news_reach_the_other_and_who_then_goes_follows(pair: Pair) -> None:
    one, other = pair
    one.stop(error="RankLost", text="rank 7 was lost", ranks=[7], step="", sequence=1)
    assert soon(lambda: other.stopped is not None)
    assert (other.stopped or {})["text"] == "rank 7 was lost"
    assert (other.stopped or {})["by"] == 0
    assert other.find_gone([0], 0.0) == []
    one.end("it left, cleanly", clean=True)
    assert soon(lambda: other.peers[0].gone is not None)
    assert other.peers[0].follows


def test_who_leaves_says_what_stopped_it() -> None:
    """Rank 1 was told by rank 0, and leaves; rank 2, who is not connected to rank 0, knows all the same."""
    (a, b), (c, d) = socket.socketpair(), socket.socketpair()
    first, second = Watchdog({1: Channel(a, 1)}, 0.05), Watchdog({0: Channel(b, 0), 2: Channel(c, 2)}, 0.05)
    third = Watchdog({1: Channel(d, 1)}, 0.05)
    first.stop(error="RankLost", text="rank 7 was lost", ranks=[7], step="", sequence=1)
    assert soon(lambda: second.stopped is not None)
    second.end("it left, cleanly", clean=True)
    (peer,) = third.find_gone([1], 20.0)
    assert peer.follows
    assert third.stopped is not None
    assert (third.stopped["by"], third.stopped["text"]) == (0, "rank 7 was lost")
    for watchdog in (first, third):
        watchdog.end("it left, cleanly", clean=True)


def test_what_was_said_before_one_was_killed_is_heard_before() -> None:
    """Rank 1 is gone and rank 0 has said why: both are known at once, in whatever order they are looked at."""
    ends = {rank: socket.socketpair() for rank in (1, 0)}
    said = json.dumps({"kind": "stop", "error": "RankLost", "text": "why", "ranks": [7], "step": "", "sequence": 1})
    Channel(ends[0][0], 2).send(said.encode())
    ends[1][0].close()
    watchdog = Watchdog({rank: Channel(end, rank) for rank, (_, end) in ends.items()}, 0.05)
    (peer,) = watchdog.find_gone([1], 20.0)
    assert (peer.gone, peer.follows) == (CLOSED, False)
    assert (watchdog.stopped or {})["text"] == "why"
    ends[0][0].close()
    watchdog.end("it left, cleanly", clean=True)


def test_who_leaves_waits_for_others_to_hear_it_but_not_for_long() -> None:
    here, there = socket.socketpair()
    watchdog = Watchdog({1: Channel(here, 1)}, 60.0)
    start = monotonic()
    watchdog.end("it left, cleanly", clean=True)  # nobody reads at the other end
    assert LINGER <= monotonic() - start < LINGER + 10
    other = Channel(there, 0)
    assert json.loads(list(other.messages())[-1])["kind"] == "bye"
    assert other.closed
    other.close()


def test_the_line_of_a_peer_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "monotonic", lambda: 12.25)
    peer = Peer(3, 10.0, 4, "train.py:7")
    assert str(peer).endswith("heartbeat 2.2 s ago at train.py:7")
    peer.call = encode(Fingerprint(CALL, 1, 4, "train.py:\x1b9"))  # which it came to later
    assert str(peer).endswith("heartbeat 2.2 s ago at train.py:\\x1b9")


# -- one watchdog alone, whose thread is run by the test, by a clock that stands still ---------------------


class Line:
    """What stands in for a channel."""

    def __init__(self, rank: int) -> None:
        self.rank, self.closed, self.fits, self.ended, self.finished = rank, False, True, False, False
        self.socket, self.is_garbled = f"socket {rank}", False
        self.sent, self.came = list[dict[str, Any]](), list[bytes]()

    def send(self, body: bytes) -> None:
        self.sent.append(json.loads(body))

    def flush(self) -> bool:
        return self.fits

    def messages(self) -> list[bytes]:
        out, self.came = self.came, []
        return out

    def says(self, **said: Any) -> None:
        self.came.append(json.dumps(said).encode())

    def finish(self) -> None:
        self.finished = True

    def close(self) -> None:
        self.ended = True


class Alone:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.started = 10.0, 0
        alone = self

        class Idle:
            def __init__(self, **options: Any) -> None:
                assert (options["name"], options["daemon"]) == ("shardwise-watchdog", True)
                self.joined: list[float] = []

            def start(self) -> None:
                alone.started += 1

            def join(self, seconds: float) -> None:
                self.joined.append(seconds)

        monkeypatch.setattr(watching, "Thread", Idle)
        monkeypatch.setattr(watching, "monotonic", lambda: self.now)
        self.lines = {rank: Line(rank) for rank in (1, 2, 3)}
        lines: Any = self.lines
        self.dog = Watchdog(lines, 2.0)
        self.losses: list[Any] = []
        self.dog.on_loss = self.losses.append

    def hear(self, *ranks: int) -> list[int]:
        ready: Any = [self.lines[rank] for rank in ranks]
        return [channel.rank for channel in self.dog._hear(ready)]

    @property
    def woken(self) -> bool:
        try:
            return bool(self.dog.woken.recv(8))
        except BlockingIOError:
            return False


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Alone]:
    made = Alone(monkeypatch)
    assert made.started == 1
    yield made
    made.dog.forget()


STOP = {"error": "RankLost", "text": "why", "ranks": [7], "step": "", "sequence": 4}


def test_silence_is_two_heartbeats_and_a_half_second(alone: Alone) -> None:
    alone.now = 14.5
    assert not alone.dog.silent(1)
    alone.now = 14.6
    assert alone.dog.silent(1)


def test_beats_tell_what_is_known_to_those_who_read_and_are_there(alone: Alone) -> None:
    assert alone.dog.owner == threading.get_ident()
    alone.dog.sequence, alone.dog.owner = 6, 0
    alone.lines[2].fits = False
    alone.dog.peers[3].gone = "it left"
    alone.dog._beat()
    assert alone.lines[1].sent == [{"kind": "beat", "sequence": 6, "line": "", "awaits": []}]
    assert alone.lines[2].sent == alone.lines[3].sent == []
    alone.dog.owner = threading.get_ident()
    alone.dog._beat()
    assert alone.lines[1].sent[1]["line"].startswith(f"{__file__}:")


def test_beats_change_what_is_known_and_are_no_news(alone: Alone) -> None:
    alone.now = 11.0
    alone.lines[1].says(kind="beat", sequence=5, line="train.py:1", awaits=[3])
    alone.lines[1].says(kind="beat", sequence=3, line="train.py:2", awaits=[])
    alone.lines[2].says(kind="beat", sequence=9, line="not asked", awaits=[])
    assert alone.hear(1) == []
    peer = alone.dog.peers[1]
    assert (peer.heard, peer.sequence, peer.line) == (11.0, 5, "train.py:2")  # the largest number, the last line
    assert alone.dog.peers[2].sequence == 0  # who is not ready is not read
    assert not alone.woken
    assert alone.losses == []


def test_bad_news_wake_the_other_thread_and_the_first_counts(alone: Alone) -> None:
    alone.lines[2].says(kind="stop", **STOP)
    alone.lines[1].says(kind="stop", **STOP | {"text": "later"})
    alone.hear(2, 1)
    assert alone.dog.stopped == {"by": 2, "kind": "stop"} | STOP
    assert alone.dog.peers[2].sequence == 0  # it is of who was lost, perhaps
    assert alone.woken
    assert alone.losses == [None]  # nothing is shared any more
    assert alone.dog.peers[2].gone is None


def test_a_clean_goodbye_is_news_but_no_loss(alone: Alone) -> None:
    alone.lines[1].says(kind="bye", text="it left, cleanly", clean=True, cause=None, sequence=8)
    assert alone.hear(1) == []
    peer = alone.dog.peers[1]
    assert (peer.gone, peer.clean, peer.follows, peer.sequence) == ("it left, cleanly", True, False, 8)
    assert alone.woken
    assert alone.losses == []
    alone.lines[1].closed = True
    assert alone.hear(1) == [1]
    assert peer.gone == "it left, cleanly"  # said is said
    assert not alone.woken
    assert list(alone.dog._open) == [2, 3]


def test_closed_ends_are_no_event_for_one_that_leaves(alone: Alone) -> None:
    events: list[str] = []
    alone.dog.on_event = events.append
    alone.lines[1].closed = True
    alone.hear(1)
    assert events == [f"rank 1: {CLOSED}"]
    alone.dog._until = 11.0  # it has begun to leave, and those that were told close their ends
    alone.lines[2].closed = True
    assert alone.hear(2) == [2]
    assert alone.dog.peers[2].gone == CLOSED
    assert len(events) == 1


def test_a_loss_is_told_with_the_ranks(alone: Alone) -> None:
    alone.lines[3].says(kind="bye", text="it left with ValueError", clean=False, cause=None, sequence=8)
    alone.hear(3)
    assert alone.losses == [[3]]
    alone.lines[1].closed = True
    assert alone.hear(1) == [1]
    assert alone.losses == [[3], [1, 3]]
    assert alone.dog.peers[1].gone == CLOSED
    assert [peer.rank for peer in alone.dog.find_gone([1, 2, 3], 0.0)] == [1, 3]


def test_a_goodbye_with_a_cause_follows_it(alone: Alone) -> None:
    alone.lines[1].says(kind="bye", text="it left", clean=False, cause=STOP | {"by": 2}, sequence=1)
    alone.hear(1)
    assert alone.dog.peers[1].follows
    assert (alone.dog.stopped or {})["by"] == 2  # who said it first
    assert alone.losses == [None]


def test_all_are_read_when_one_is_gone(alone: Alone) -> None:
    alone.lines[1].closed = True
    alone.lines[2].says(kind="stop", **STOP)
    assert alone.hear(1) == [1]
    assert (alone.dog.stopped or {})["by"] == 2


def test_who_stops_tells_all_that_are_there_and_keeps_the_first_cause(alone: Alone) -> None:
    alone.dog.peers[2].gone = "it left"
    alone.dog.stop(**STOP)
    alone.dog.stop(**STOP | {"text": "later"})
    assert alone.dog.stopped == STOP
    assert [said["text"] for said in alone.lines[1].sent] == ["why", "later"]
    assert all(said["kind"] == "stop" for said in alone.lines[1].sent)
    assert alone.lines[2].sent == []
    assert alone.losses == [None, None]  # what is under way here ends too


def test_who_leaves_tells_why_and_waits_a_second(alone: Alone) -> None:
    alone.dog.sequence = 3
    alone.dog.end("x" * 5000, clean=False)
    assert alone.lines[1].sent == [{"kind": "bye", "text": "x" * 4000, "clean": False, "cause": None, "sequence": 3}]
    assert all(line.finished and line.ended for line in alone.lines.values())
    assert alone.dog._until == 11.0
    thread: Any = alone.dog._thread
    assert thread.joined == [2.0]
    assert alone.dog._ended
    assert alone.dog.woken.fileno() == alone.dog._roused.fileno() == -1


class Selector:
    """A selector that lets the test say what is ready, and keeps for how long it was asked to wait."""

    def __init__(self, alone: Alone, *steps: Callable[[], list[Any]]) -> None:
        self.alone, self.steps, self.waits = alone, list(steps), list[float]()
        self.registered: dict[Any, Any] = {}

    def __enter__(self) -> "Selector":
        return self

    def __exit__(self, *_: object) -> None: ...

    def register(self, end: Any, events: int, data: Any = None) -> None:
        self.registered[end] = data

    def unregister(self, end: Any) -> None:
        del self.registered[end]

    def select(self, seconds: float) -> list[Any]:
        self.waits.append(seconds)
        return [(SimpleNamespace(data=data), 1) for data in self.steps.pop(0)()]


def test_the_thread_beats_in_time_hears_and_ends(alone: Alone, monkeypatch: pytest.MonkeyPatch) -> None:
    dog = alone.dog

    def until(now: float, *ready: Any) -> Callable[[], list[Any]]:
        def step() -> list[Any]:
            alone.now = now
            return list(ready)

        return step

    def gone() -> list[Any]:
        alone.now, alone.lines[2].closed = 12.5, True
        return [alone.lines[2]]

    def leave() -> list[Any]:
        alone.now, dog._until = 13.0, 13.5
        dog._nudge(dog._rouse)
        return [None]

    beats: list[float] = []
    monkeypatch.setattr(dog, "_beat", lambda: beats.append(alone.now))
    monkeypatch.setattr(watching, "TICK", 99.0)
    selector = Selector(alone, until(11.5), until(12.0), gone, leave, until(13.5))
    monkeypatch.setattr(watching.selectors, "DefaultSelector", lambda: selector)
    dog._run()
    assert beats == [10.0, 12.0]
    assert selector.waits == [2.0, 0.5, 2.0, 1.5, 0.5]  # but for looks at who is late
    assert set(selector.registered) == {dog._roused, "socket 1", "socket 3"}
    assert selector.registered[dog._roused] is None
    assert alone.lines[2].ended
    assert not alone.lines[1].ended
    with pytest.raises(BlockingIOError):
        dog._roused.recv(1)  # what roused it is read
    dog._until, dog._open = 99.0, {}  # all others have closed their ends
    dog._run()
    assert len(selector.waits) == 5
    dog._until = float("inf")  # nobody is left, but this process has not left
    selector.steps = [until(14.0), lambda: setattr(dog, "_ended", True) or []]
    dog._run()
    assert len(selector.waits) == 7
    dog._run()  # which ends at once now
    assert len(selector.waits) == 7


def test_a_wait_is_never_less_than_nothing(alone: Alone, monkeypatch: pytest.MonkeyPatch) -> None:
    dog = alone.dog
    monkeypatch.setattr(dog, "_beat", lambda: None)
    times = iter([10.0, 10.0, 10.0, 99.0])  # the clock goes on between two looks at it
    monkeypatch.setattr(watching, "monotonic", lambda: next(times))
    selector = Selector(alone, lambda: setattr(dog, "_ended", True) or [])
    monkeypatch.setattr(watching.selectors, "DefaultSelector", lambda: selector)
    dog._run()
    assert selector.waits == [0.0]


def test_a_nudge_that_finds_nobody_is_no_error(alone: Alone) -> None:
    alone.dog._wakes.close()
    alone.dog._nudge(alone.dog._wakes)


# -- who is late, who cannot be understood, and who is silent -------------------------------------------------


def test_who_is_asked_answers_at_once_with_its_line() -> None:
    with watchdogs(2, heartbeat=60.0) as (_, other):
        assert soon(lambda: other.peers[0].line != "")  # the only thing that it says by itself
        before = monotonic()
        other._ask([0])
        assert soon(lambda: other.peers[0].heard > before)
        assert other.peers[0].line.startswith(f"{__file__}:")
        assert other.peers[0].asked is None


def test_asking_tells_for_whom_one_waits(alone: Alone) -> None:
    alone.dog.owner = 0
    alone.dog.stragglers.wait = Wait(CALL, 7, "train.py:3", 0.0, 5.0, 60.0, [2, 3])
    alone.dog.peers[3].gone = "it left"
    alone.dog._ask([1, 3])
    assert alone.lines[1].sent == [{"kind": "ask", "sequence": 0, "line": "", "awaits": [2, 3]}]
    assert alone.lines[3].sent == []
    alone.lines[1].says(kind="ask", sequence=4, line="train.py:9", awaits=[2, 3])
    alone.hear(1)
    assert alone.lines[1].sent[1]["kind"] == "beat"
    assert alone.dog.peers[1].awaits == (2, 3)
    assert alone.dog.state(1) == "it waits for ranks 2, 3 itself"
    assert not alone.woken  # it is no news for the thread that communicates


def test_who_was_asked_and_does_not_answer_is_silent(alone: Alone) -> None:
    alone.dog._ask([1])
    alone.now += ANSWER
    assert not alone.dog.silent(1)
    alone.now += 0.01
    alone.dog._ask([1])  # again: it has not answered the first time
    assert alone.dog.silent(1)
    assert not alone.dog.silent(2)
    alone.lines[1].says(kind="beat", sequence=1, line="", awaits=[])
    alone.hear(1)
    assert not alone.dog.silent(1)
    assert alone.dog.state(1) == "busy elsewhere"


def test_the_thread_names_those_who_are_late(alone: Alone, monkeypatch: pytest.MonkeyPatch) -> None:
    events, written = list[str](), list[str]()
    alone.dog.on_event = events.append
    monkeypatch.setattr(stragglers, "log", lambda write, text: written.append(text))
    monkeypatch.setattr(alone.dog.signs, "look", lambda rank, connection: UNKNOWN)
    alone.dog.stragglers.wait = Wait(CALL, 7, "train.py:3", 10.0, 15.0, 70.0, [1, 2])
    alone.dog._look_for_late(15.0)
    alone.lines[1].says(kind="beat", sequence=1, line="net.py:7", awaits=[])
    alone.now = 15.2
    alone.hear(1)
    alone.now = 16.0
    alone.dog._look_for_late(16.0)
    assert [text.partition("; ")[2] for text in written] == ["busy elsewhere, at net.py:7", UNKNOWN]
    assert "rank 2 is late" in written[1]
    assert events == written
    assert list(alone.dog.stragglers.late) == [1, 2]
    alone.dog.peers[2].gone = "it left"
    assert alone.dog._describe(2) == "it left"
    alone.dog.stop(**STOP)
    alone.dog.stragglers.wait = Wait(CALL, 7, "train.py:3", 10.0, 15.0, 70.0, [1, 2])
    alone.dog._look_for_late(99.0)
    assert len(written) == 2  # an error says all now


@pytest.mark.parametrize(
    "body",
    [b"", b"not JSON", b"[" * 100_000, b"3", b"{}", b'{"kind": "stop"}', b'{"kind": "beat", "sequence": "x"}', b"\xff"],
)
def test_who_sends_what_cannot_be_read_counts_as_lost(alone: Alone, body: bytes) -> None:
    alone.lines[1].came = [body, b'{"kind": "note", "text": "more"}']
    assert alone.hear(1) == [1]
    assert alone.dog.peers[1].gone == UNREADABLE == "it sent what cannot be read"
    assert [line.sent[-1:] for line in alone.lines.values()][1:] == [[], []]
    told = alone.lines[1].sent[-1]
    assert (told["kind"], told["error"], told["ranks"]) == ("stop", "RankLost", [1])
    assert told["text"] == "rank 1 was lost: it sent what cannot be read."
    assert alone.dog.peers[1].trouble == ""
    assert alone.woken
    assert alone.losses == [[1]]
    assert list(alone.dog._open) == [2, 3]


def test_a_thread_that_hears_nonsense_lives(pair: Pair) -> None:
    one, other = pair
    with one.changed:
        one._channels[1].send(b"\x00\x1b[2J")
    (peer,) = other.find_gone([0], 20.0)
    assert peer.gone == UNREADABLE
    assert other._thread.is_alive()
    assert soon(lambda: one.peers[1].gone is not None)  # the connection is closed


def test_who_sends_nonsense_to_others_than_the_watchdog_is_told_once(alone: Alone) -> None:
    for _ in range(2):
        alone.dog.refuse(2)
    assert alone.dog.peers[2].gone == UNREADABLE
    assert [(told["kind"], told["ranks"]) for told in alone.lines[2].sent] == [("stop", [2])]
    assert alone.lines[1].sent == alone.lines[3].sent == []


def test_bytes_that_are_no_message_at_all_are_nonsense_too(pair: Pair) -> None:
    """They say that a message comes that is longer than any of ours."""
    one, other = pair
    with one.changed:
        one._channels[1].socket.send(b"\xff" * 64)
    (peer,) = other.find_gone([0], 20.0)
    assert peer.gone == UNREADABLE


def test_an_error_of_those_who_are_told_of_a_loss_is_written_and_the_thread_lives(
    alone: Alone, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = list[str]()
    monkeypatch.setattr(watching, "log", lambda write, text: written.append(text))
    alone.dog.on_loss = lambda lost: print(1 / 0)
    alone.lines[1].closed = True
    assert alone.hear(1) == [1]
    assert written == ["what was under way could not be stopped: ZeroDivisionError('division by zero')"]


def test_an_error_that_was_caught_is_heard_of_and_told(alone: Alone) -> None:
    events = list[str]()
    alone.dog.on_event = events.append
    alone.dog.tell_trouble("x" * 5000)
    assert alone.lines[1].sent == []  # whoever deletes an error may be amid another message
    alone.dog._tell_troubles()
    assert alone.lines[1].sent == [{"kind": "note", "text": "x" * 4000}]
    alone.lines[1].says(kind="note", text="ValueError: bad\x1b[2J")
    alone.hear(1)
    assert alone.dog.peers[1].trouble == "ValueError: bad\\x1b[2J"
    alone.lines[2].says(kind="bye", text="it left", clean=True, cause=None, sequence=8)
    alone.lines[3].says(kind="stop", **STOP)
    alone.hear(2, 3)
    alone.lines[1].closed = True
    alone.hear(1)
    assert events == [
        "rank 1 goes on after ValueError: bad\\x1b[2J",
        "rank 2: it left",
        "rank 3 stopped: why",
        f"rank 1: {CLOSED}",
    ]


def test_the_thread_tells_of_an_error_at_once() -> None:
    with watchdogs(2, heartbeat=60.0) as (one, other):
        assert soon(lambda: one.peers[1].line != "")  # the first beats are over
        with one.changed:  # whoever holds it, nobody who notices an error waits
            thread = threading.Thread(target=one.tell_trouble, args=("ValueError: bad",))
            thread.start()
            thread.join(20)
            assert not thread.is_alive()
        assert soon(lambda: other.peers[0].trouble == "ValueError: bad")


def test_an_error_that_was_caught_is_told_at_once_and_before_a_goodbye(pair: Pair) -> None:
    one, other = pair
    other.tell_trouble("ValueError: early")
    assert soon(lambda: one.peers[1].trouble == "ValueError: early")
    one.tell_trouble("ValueError: late")
    one.end("it left", clean=True)
    assert other.find_gone([0], 20.0)
    assert other.peers[0].trouble == "ValueError: late"
    one.tell_trouble("ValueError: too late")  # of one that nobody hears any more


def test_the_line_is_that_of_the_user_and_not_of_a_library(alone: Alone) -> None:
    alone.dog.owner = threading.get_ident()
    here: list[str] = []
    json.loads("1", parse_int=lambda text: here.append(alone.dog._line()))
    assert here[0].startswith(f"{__file__}:")
    thread = threading.Thread(target=threading.Event().wait, args=(20.0,), daemon=True)
    thread.start()
    alone.dog.owner = thread.ident or 0
    assert soon(lambda: "threading.py:" in alone.dog._line())  # where there is nothing else, that
