"""Watchdogs of several processes, in one: connected by pairs of sockets."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from shardwise.engine.guard.watchdog import Watchdog
from shardwise.engine.meeting.channel import Channel


@contextmanager
def watchdogs(size: int, heartbeat: float = 0.2) -> Iterator[list[Watchdog]]:
    """The watchdogs of some ranks, all of which are ended."""
    channels: list[dict[int, Channel]] = [{} for _ in range(size)]
    for one in range(size):
        for two in range(one):
            ends = socket.socketpair()
            channels[one][two], channels[two][one] = Channel(ends[0], two), Channel(ends[1], one)
    dogs = [Watchdog(some, heartbeat) for some in channels]
    try:
        yield dogs
    finally:
        for dog in dogs:
            close(dog)


def close(dog: Watchdog) -> None:
    """End a watchdog, whose thread is not reading any more then."""
    dog._ended = True
    dog._nudge(dog._rouse)
    dog._thread.join(10)
    dog.forget()
