"""Heartbeats, goodbyes and bad news, between two watchdogs."""

import json
import re
import socket
from collections.abc import Callable, Iterator
from time import monotonic, sleep

import pytest

from shardwise.engine.channel import Channel
from shardwise.engine.watchdog import CLOSED, LINGER, Peer, Watchdog

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
    one.sequence = 7
    assert soon(lambda: other.peers[0].sequence == 7)
    assert not other.silent(0)
    before = other.peers[0].heard
    assert soon(lambda: other.peers[0].heard > before)
    assert re.fullmatch(r"rank 0: last sequence 7, heartbeat \d+\.\d s ago", str(other.peers[0]))


def test_who_says_goodbye_has_left(pair: Pair) -> None:
    one, other = pair
    one.end("it left with ValueError", clean=False)
    (peer,) = other.gone([0], 20.0)
    assert (peer.gone, peer.clean, peer.follows) == ("it left with ValueError", False, False)
    assert str(peer) == "rank 0: it left with ValueError; last sequence 0"


def test_who_goes_without_a_goodbye_was_killed(pair: Pair) -> None:
    one, other = pair
    for channel in one._channels.values():
        channel.socket.shutdown(socket.SHUT_RDWR)
    (peer,) = other.gone([0], 20.0)
    assert peer.gone == CLOSED == "its connection closed without a goodbye: it was killed, or crashed"
    other.woken.settimeout(20)
    assert other.woken.recv(8)


def test_bad_news_reach_the_other_and_who_then_goes_follows(pair: Pair) -> None:
    one, other = pair
    one.stop(error="RankLost", text="rank 7 was lost", ranks=[7], step="", sequence=1)
    assert soon(lambda: other.stopped is not None)
    assert (other.stopped or {})["text"] == "rank 7 was lost"
    assert (other.stopped or {})["by"] == 0
    assert other.gone([0], 0.0) == []
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
    (peer,) = third.gone([1], 20.0)
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
    (peer,) = watchdog.gone([1], 20.0)
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


def test_the_line_of_a_peer_is_shown() -> None:
    assert str(Peer(3, monotonic(), 4, "train.py:7")).endswith("heartbeat 0.0 s ago at train.py:7")
