"""Groups of NCCL: made once per set of ranks, and what accelerators have not finished in them.

A call returns when its work is queued. Work that waits for a process which is gone never ends, and whatever
reads the accelerator would wait with it: such groups are abandoned, and what was not finished by then never came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from time import monotonic, sleep
from typing import Any

from shardwise.engine.guard.stragglers import log, logger
from shardwise.engine.meeting.files import keep_room
from shardwise.locks import make_lock

DRAIN = 1.0  # seconds in which work that does not wait for anybody ends
PAUSE = 0.01

Ranks = tuple[int, ...]


class Groups:
    """The groups that this process has made, by their ranks.

    >>> groups = Groups(lambda ranks, device: f"{ranks} on {device}")
    >>> groups.get((0, 2), "cuda:0"), groups.on_accelerators
    ('(0, 2) on cuda:0', True)
    """

    def __init__(self, make: Callable[[Ranks, Any], Any]) -> None:
        """Make groups with this function of ranks and the accelerator of this process."""
        self.on_accelerators = False  # whether there is any
        self.abandoned: set[Ranks] = set()
        self.torn = float("inf")  # the sequence number of the first call that was abandoned
        self._make = make
        self._groups: dict[Ranks, Any] = {}
        self._flying: deque[tuple[int, Ranks, Any]] = deque()  # in the order of their sequence numbers
        self._lock = make_lock()  # the watchdog abandons groups too

    def get(self, ranks: Ranks, device: Any) -> Any:
        """Return the group of some ranks, in order."""
        group = self._groups.get(ranks)
        if group is None:
            try:
                group = self._make(ranks, device)
            except RuntimeError:
                self.abandoned.add(ranks)  # whatever is left of it waits for somebody who is gone
                raise
            with self._lock:
                self._groups[ranks] = group
                self.on_accelerators = True
            if warning := keep_room():
                text = f"each group of NCCL, of which there are {len(self._groups)} now, keeps some until the end"
                log(logger.warning, f"{warning}; {text}")
        return group

    def track(self, sequence: int, ranks: Ranks, event: Any) -> None:
        """Remember the event at which what a call brings is on the accelerator, until it has happened."""
        with self._lock:
            if ranks in self.abandoned:  # since the call began
                self.torn = min(self.torn, sequence)
            while self._flying and self._flying[0][2].query():
                self._flying.popleft()
            self._flying.append((sequence, ranks, event))

    def abandon(self, lost: Collection[int] | None = None) -> None:
        """Stop what NCCL waits for in groups with lost ranks, or in all: these share nothing any more.

        What can still end is given a moment to do so.
        """
        with self._lock:
            some = dict(self._groups)
            for ranks in list(some):
                if ranks in self.abandoned or (lost is not None and set(lost).isdisjoint(ranks)):
                    del some[ranks]
            if not some:
                return
            end = monotonic() + DRAIN
            while (waiting := self._running(some)) and monotonic() < end:
                sleep(PAUSE)
            self.torn = min([self.torn, *waiting])
            self.abandoned |= set(some)
            for group in some.values():
                with suppress(RuntimeError):  # of NCCL, which has given up itself
                    group.abort()

    def _running(self, some: Collection[Ranks]) -> list[int]:
        # Events of CUDA, since work of NCCL calls itself completed when it has failed.
        return [sequence for sequence, ranks, event in self._flying if ranks in some and not event.query()]

    def close(self, keep: Callable[[Ranks], bool]) -> None:
        """Give back the groups, except those that others see to, or that were abandoned."""
        with self._lock:
            for ranks, group in self._groups.items():
                if ranks not in self.abandoned and not keep(ranks):
                    group.shutdown()
            self._groups = {ranks: group for ranks, group in self._groups.items() if ranks in self.abandoned}
            self._flying.clear()
