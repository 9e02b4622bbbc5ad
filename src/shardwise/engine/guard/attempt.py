"""Attempts: calls of a library that wait for other processes, and would wait for those that are gone too."""

from __future__ import annotations

from collections.abc import Callable, Collection
from threading import Thread
from time import monotonic
from typing import TypeVar

from shardwise.engine.guard.watchdog import Watchdog

T = TypeVar("T")

GRACE = 0.5  # seconds in which what can end without those who are gone does
MORE = 0.5  # seconds that the library may take beyond its own limit


def attempt(action: Callable[[], T], watchdog: Watchdog, ranks: Collection[int], seconds: float) -> T:
    """Return what an action makes together with other ranks; raise a RuntimeError when one of them is lost.

    It runs in a thread of its own, which nobody can stop: where it waits without end, it is left behind.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def act() -> None:
        try:
            results.append(action())
        except BaseException as error:
            errors.append(error)
        with watchdog.changed:
            watchdog.changed.notify_all()

    def is_hopeless() -> bool:
        # Who came to its end had done its part.
        gone = [peer for peer in watchdog.peers.values() if peer.rank in ranks and peer.gone is not None]
        return watchdog.stopped is not None or any(not peer.clean for peer in gone)

    thread = Thread(target=act, name="shardwise-connect", daemon=True)
    thread.start()
    end = monotonic() + seconds + MORE
    with watchdog.changed:
        watchdog.changed.wait_for(lambda: results or errors or is_hopeless(), seconds + MORE)
        watchdog.changed.wait_for(lambda: results or errors, GRACE)
    if errors:
        raise errors[0]
    if results:
        return results[0]
    if monotonic() > end:
        raise RuntimeError(f"timed out: no connection in {seconds:g} s")
    raise RuntimeError("the connection was not made: a process was lost")
