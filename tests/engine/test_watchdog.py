"""Heartbeats, goodbyes and bad news, between two watchdogs."""

import re
import socket
from collections.abc import Callable, Iterator
from time import monotonic, sleep

import pytest

from shardwise.engine.channel import Channel
from shardwise.engine.watchdog import Peer, Watchdog

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
    assert peer.gone == "its connection closed without a goodbye: it was killed, or crashed"
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


def test_the_line_of_a_peer_is_shown() -> None:
    assert str(Peer(3, monotonic(), 4, "train.py:7")).endswith("heartbeat 0.0 s ago at train.py:7")
