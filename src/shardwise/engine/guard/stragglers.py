"""Stragglers: who is late is named before the time is up, with what it is doing.

The thread that communicates says for whom it waits; the watchdog looks now and then, asks those who are late where they
are, and writes a line. Late is who takes a multiple of what is usual at this place of the program.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Thread
from typing import Any

from shardwise.engine.call import Call
from shardwise.locks import make_lock

FACTOR = 3.0  # times the usual, after which somebody is late
LEAST = 1.0  # seconds that nobody speaks of
NEW = 0.25  # of the timeout, after which somebody is late at a place where nothing is usual yet
MOST = 0.75  # of the timeout, after which somebody is late whatever is usual
ANSWER = 0.75  # seconds in which whoever can answer does
WEIGHT = 0.25  # of the last time in what is usual
PLACES = 4096  # that are remembered
MOST_LINES = 1000  # that wait to be written; of more, the first are dropped

logger = logging.getLogger("shardwise")


class Pace:
    """What the time between a call and the one before usually is, by place of the program.

    >>> pace = Pace()
    >>> for now in (1.0, 3.0, 5.0):
    ...     pace.arrive("train.py:3", "ab12", now)
    >>> pace.usual("train.py:3", "ab12")
    2.0
    """

    __slots__ = ("_usual", "last")

    def __init__(self) -> None:
        """Know nothing."""
        self._usual: dict[tuple[str, str], float] = {}
        self.last: float | None = None  # when all had come to the last call

    def arrive(self, line: str, plan: str, now: float) -> None:
        """Note that all have come to a call."""
        last, self.last = self.last, now
        if last is None:
            return
        place, seconds = (line, plan), now - last
        usual = self._usual.get(place)
        if usual is None:
            if len(self._usual) >= PLACES:
                self._usual.clear()
            self._usual[place] = seconds
        else:
            # One that was very late changes little of what is usual.
            self._usual[place] = usual + WEIGHT * (min(seconds, FACTOR * usual + LEAST) - usual)

    def usual(self, line: str, plan: str) -> float | None:
        """Return what is usual at a place; None where no call has been made before."""
        return self._usual.get((line, plan))

    def wait(self, call: Call, sequence: int, line: str, since: float, timeout: float) -> Wait:
        """Return what is waited for from a moment on, and when somebody is late."""
        usual = self.usual(line, call.plan)
        due = since + NEW * timeout
        if usual is not None and self.last is not None:
            due = min(since + MOST * timeout, max(since + LEAST, self.last + FACTOR * usual))
        return Wait(call, sequence, line, since, due, since + timeout, usual=usual)


@dataclass(slots=True, eq=False)
class Wait:
    """What the thread that communicates waits for."""

    call: Call
    sequence: int
    line: str
    since: float
    due: float  # when somebody is late
    end: float  # when the time is up
    ranks: Sequence[int] = ()  # that have not come, as far as it is known
    usual: float | None = None  # seconds between this call and the one before
    tells: bool = True  # whether this process writes the line, and not another that waits too

    def __str__(self) -> str:
        return f"{self.call.step} (sequence {self.sequence}, at {self.line or 'an unknown line'})"

    def next_due(self, now: float) -> float:
        """Return when to ask again: when twice the time has passed, and once more just before the end."""
        last = self.end - 2 * ANSWER
        later = self.since + 2 * (now - self.since)
        return min(later, last) if now < last - LEAST else later


class Stragglers:
    """Names those who are late: asks them first, and tells what is known when they have answered, or do not."""

    def __init__(self, ask: Callable[[Sequence[int]], None], is_answered: Callable[[int, float], bool]) -> None:
        """Take how to ask some ranks where they are, and whether one has said anything since a moment."""
        self.wait: Wait | None = None  # set by the thread that communicates
        self.late: dict[int, tuple[float, str]] = {}  # by rank, for how long it has been waited for, and what is known
        self._ask, self._is_answered = ask, is_answered
        self._last: Wait | None = None  # at the last look
        self._due, self._asked = 0.0, 0.0  # when to ask; when it was asked, or 0

    def look(self, now: float, describe: Callable[[int], str]) -> list[str]:
        """Ask who is late, or return what is to be noted of those who have been asked, and of those who have come."""
        wait, out = self.wait, list[str]()
        last = self._last
        if wait is not last:
            out = [] if last is None else [self._come(last, rank, now) for rank in list(self.late)]
            self._last, self._asked = wait, 0.0
            self._due = 0.0 if wait is None else wait.due
        if wait is None:
            return out
        ranks = list(wait.ranks)
        out += [self._come(wait, rank, now) for rank in list(self.late) if rank not in ranks]
        if not self._asked and now >= self._due and ranks:
            self._ask(ranks)
            self._asked = now
        elif self._asked and (now > self._asked + ANSWER or all(self._is_answered(r, self._asked) for r in ranks)):
            self._asked, self._due = 0.0, wait.next_due(now)
            out += [self._tell(wait, rank, now, describe(rank)) for rank in ranks]
        return out

    def forget(self) -> None:
        """Say no more of those who are late: an error does."""
        self.wait = self._last = None
        self.late.clear()

    def _tell(self, wait: Wait, rank: int, now: float, known: str) -> str:
        seconds = now - wait.since
        usual = "" if wait.usual is None else f", which usually comes {wait.usual:.1f} s after the one before"
        self.late[rank] = seconds, known
        text = f"rank {rank} is late: {wait} has waited {seconds:.1f} s for it{usual}; {known}"
        if wait.tells:
            log(logger.warning, text)
        return text

    def _come(self, wait: Wait, rank: int, now: float) -> str:
        del self.late[rank]
        text = f"rank {rank}, which was late, has come: {wait} has waited {now - wait.since:.1f} s for it"
        log(logger.info, text)
        return text


def log(write: Callable[..., Any], text: str) -> None:
    """Write a line in a thread of its own, in order: whoever writes may have to wait for somebody who does not read."""
    _lines.append((write, text))
    Thread(target=_write_lines, name="shardwise-log", daemon=True).start()


_lines = deque[tuple[Callable[..., Any], str]](maxlen=MOST_LINES)  # that are not written yet
_writing = make_lock()


def _write_lines() -> None:
    # One thread writes; what comes meanwhile it sees at the latest when it has let go.
    while _lines and _writing.acquire(blocking=False):
        try:
            while _lines:
                write, text = _lines.popleft()
                write("%s", text)
        finally:
            _writing.release()
