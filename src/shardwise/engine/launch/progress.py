"""Progress: how far the ranks of a launch are, and who is late, in a line or a few."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from shardwise.engine.recording.glance import Glance, glance
from shardwise.engine.recording.recorder import RECORD

MOST = 64  # ranks that are looked at each time; of more, these and then the next
NAMED = 2  # ranks that are late and get a line of their own
LATE = re.compile(r"rank (\d+) is late: .*? s for it(?:, which usually comes [\d.]+ s after the one before)?; (.*)")
COME = re.compile(r"rank (\d+), which was late, has come\b")
PLACE = re.compile(r"(?<= at ).*/([^/]+:\d+)$")  # of which the last part is enough
BUSY = "busy elsewhere"


class Progress:
    """What the records of some ranks say about where they are now."""

    def __init__(self, folder: Path, sessions: Mapping[int, int]) -> None:
        """Read the records in a folder that processes of these sessions write, one for each rank."""
        self.folder, self.sessions = folder, dict(sessions)
        self._seen: dict[int, Glance] = {}  # by rank, at the last look at it
        self._looked = 0  # so many times at a rank

    def look(self, now: float) -> str:
        """Return what there is to say at a moment of the monotonic clock: nothing, or a line, and who is late."""
        ranks = list(self.sessions)
        begin = self._looked % len(ranks)
        some = (ranks[begin:] + ranks[:begin])[:MOST]
        self._looked += len(some)
        watched = [rank for rank, seen in self._seen.items() if seen.events][:MOST]
        for rank in dict.fromkeys([*some, *watched]):
            self._look_at(rank)
        running = [self._seen[rank] for rank in some if rank in self._seen]
        if not running:
            return ""
        return "\n".join([self._summary(running), *self._late(now)])

    def _look_at(self, rank: int) -> None:
        path = self.folder / f"rank-{rank}.{RECORD}"
        seen = glance(path)
        if seen is not None and seen.is_running and seen.rank == rank and self._is_ours(seen):
            self._seen[rank] = seen
        elif seen is not None or not path.exists():  # not one that was being written just now
            self._seen.pop(rank, None)

    def _is_ours(self, seen: Glance) -> bool:
        # The folder may have records of jobs before this one, or of others.
        try:
            return seen.size == len(self.sessions) and os.getsid(seen.pid) == self.sessions[seen.rank]
        except (OSError, OverflowError):
            return False

    def _summary(self, running: list[Glance]) -> str:
        size, count = len(self.sessions), len(self._seen)
        is_less = count < size <= self._looked  # if it is known of all
        parts = [f"{count} of {size} ranks" if is_less else f"{size} rank{'s' * (size > 1)}"]
        called = [seen for seen in running if seen.step]
        if not called:
            return " · ".join([*parts, "no call yet"])
        iterations = [seen.iteration for seen in called if seen.iteration is not None]
        parts += [f"iteration {_range(iterations)}"] if iterations else []
        last = max(called, key=lambda seen: seen.sequence)
        where = f"{'after ' * (not last.is_open)}{last.step} at {short(last.line)}"
        return " · ".join([*parts, f"sequence {_range([seen.sequence for seen in called])}", where])

    def _late(self, now: float) -> Iterator[str]:
        late: dict[int, tuple[Glance, float, str]] = {}  # by rank, who waits longest for it, and what is known since
        for seen in self._seen.values():
            for rank, (when, known) in _late_of(seen).items():
                before = late.get(rank)
                waiter = seen if before is None or seen.began < before[0].began else before[0]
                when, known = max((when, known), (0.0, "") if before is None else before[1:])
                late[rank] = waiter, when, known
        # First those who wait for nobody themselves.
        order = sorted(late, key=lambda rank: (rank in self._seen and self._waits(rank), late[rank][0].began, rank))
        for rank in order[:NAMED]:
            waiter, when, known = late[rank]
            call = f"{waiter.step} at {short(waiter.line)}"
            known = self._fresh(rank, when, known)
            yield f"rank {rank} is late: {call} waits {_seconds(now - waiter.began)} for it; {known}"
        if len(order) > NAMED:
            yield f"and {len(order) - NAMED} more are late"

    def _waits(self, rank: int) -> bool:
        return self._seen[rank].is_open and not self._seen[rank].is_agreed

    def _fresh(self, rank: int, when: float, known: str) -> str:
        # It was asked some time ago, and may be elsewhere now.
        seen = self._seen.get(rank)
        if known.startswith(BUSY) and seen is not None and seen.beat > when and seen.place:
            return f"{BUSY}, at {short(seen.place)}"
        return PLACE.sub(r"\1", known)


def short(line: str) -> str:
    """Return a line of a program with the last part of its path: a terminal is not wide.

    >>> short("/data/someone/project/train.py:31"), short("")
    ('train.py:31', 'an unknown line')
    """
    return line.rpartition("/")[2] or "an unknown line"


def _late_of(seen: Glance) -> dict[int, tuple[float, str]]:
    # Who is late by what a rank has noted since it came to its call: when, and what is known.
    late: dict[int, tuple[float, str]] = {}
    for when, text in seen.events:
        if match := LATE.match(text):
            late[int(match[1])] = when, match[2]
        elif match := COME.match(text):
            late.pop(int(match[1]), None)
    return late


def _range(numbers: Iterable[int]) -> str:
    least, most = min(numbers), max(numbers)
    return str(least) if least == most else f"{least}-{most}"


def _seconds(seconds: float) -> str:
    if seconds < 60:
        return f"{max(0.0, seconds):.1f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"
