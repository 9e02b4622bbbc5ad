"""Calls that wait for others: they end when it is known that those never come."""

from threading import Event
from time import monotonic

import pytest

from shardwise.engine.guard import attempt as module
from shardwise.engine.guard.attempt import attempt
from tests.engine.guard.watchdogs import watchdogs

LONG = 60.0
SOON = 20.0


def test_what_works_returns_and_what_fails_raises() -> None:
    def fail() -> None:
        raise ValueError("no route")

    with watchdogs(2) as (dog, _):
        assert attempt(lambda: 7, dog, [0, 1], LONG) == 7
        with pytest.raises(ValueError, match="no route"):
            attempt(fail, dog, [0, 1], LONG)


@pytest.mark.parametrize("how", ["lost", "stopped"])
def test_one_that_is_lost_ends_it_and_one_that_is_not_awaited_does_not(how: str) -> None:
    end = Event()
    with watchdogs(3) as (dog, other, third):
        third.end("it failed", clean=False)
        assert dog.find_gone([2], SOON)
        assert attempt(lambda: 7, dog, [0, 1], LONG) == 7
        if how == "lost":
            other.end("it failed", clean=False)
        else:
            other.stop(error="RankLost", text="gave up", ranks=[1], step="", sequence=1)
        start = monotonic()
        with pytest.raises(RuntimeError, match="a process was lost"):
            attempt(lambda: end.wait(LONG), dog, [0, 1], LONG)
        assert monotonic() - start < SOON
        end.set()


def test_one_that_has_done_its_part_and_left_does_not_end_it() -> None:
    with watchdogs(2) as (dog, other):
        other.end("it came to its end", clean=True)
        assert dog.find_gone([1], SOON)
        assert attempt(lambda: Event().wait(1.0) or 7, dog, [0, 1], LONG) == 7


def test_a_library_that_does_not_keep_its_own_limit_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MORE", 0.1)
    monkeypatch.setattr(module, "GRACE", 0.1)
    end = Event()
    with watchdogs(2) as (dog, _), pytest.raises(RuntimeError, match=r"timed out: no connection in 0\.1 s"):
        attempt(lambda: end.wait(LONG), dog, [0, 1], 0.1)
    end.set()
