"""Process groups: made once per set of ranks, and what accelerators have not finished in them.

With NCCL a call returns when its work is queued. Work that waits for a process which is gone never ends, and whatever
reads the accelerator would wait with it: such groups are abandoned, and what was not finished by then never came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from threading import Lock
from time import monotonic, sleep
from typing import Any

DRAIN = 1.0  # seconds in which work that does not wait for anybody ends
PAUSE = 0.01

Ranks = tuple[int, ...]


class Groups:
    """The groups that this process has made, by device and ranks.

    >>> groups = Groups(lambda ranks, device: f"{device} {ranks}")
    >>> groups.get((0, 2), "cpu")
    'cpu (0, 2)'
    >>> groups.on_accelerators
    False
    """

    def __init__(self, make: Callable[[Ranks, str], Any]) -> None:
        """Make groups with this function."""
        self.on_accelerators = False  # whether any of them is one of NCCL
        self.abandoned: set[Ranks] = set()
        self.torn = float("inf")  # the sequence number of the first call that was abandoned
        self._make = make
        self._groups: dict[tuple[str, Ranks], Any] = {}
        self._flying: deque[tuple[int, Ranks, Any]] = deque()  # in the order of their sequence numbers
        self._lock = Lock()  # the watchdog abandons groups too

    def get(self, ranks: Ranks, device: str) -> Any:
        """Return the group of some ranks, in order."""
        group = self._groups.get((device, ranks))
        if group is None:
            group = self._make(ranks, device)
            with self._lock:
                self._groups[device, ranks] = group
                self.on_accelerators |= device != "cpu"
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
            some = {ranks: group for (device, ranks), group in self._groups.items() if device != "cpu"}
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
        """Give back the groups of NCCL, except those that others see to, or that were abandoned."""
        with self._lock:
            for (device, ranks), group in self._groups.items():
                if device != "cpu" and ranks not in self.abandoned and not keep(ranks):
                    group.shutdown()
            self._groups = {key: group for key, group in self._groups.items() if key[1] in self.abandoned}
            self._flying.clear()
