"""The timeline: the records of all ranks of a job, matched call by call."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import time

from shardwise.caches import cached_property
from shardwise.engine.recording.record import Entry, Event, RankRecord, process_of, read_records
from shardwise.errors import ArgumentError, printable

RUN = re.compile(r"([0-9]{1,7})(?:-([0-9]{1,7})(?::([0-9]{1,7}))?)?")


@dataclass(frozen=True)
class Meeting:
    """One call of a group: the entries of those who came to it, who came first before the others."""

    entries: tuple[Entry, ...]

    @property
    def first(self) -> Entry:
        """The entry of who came first."""
        return self.entries[0]

    @property
    def last(self) -> Entry:
        """The entry of who came last."""
        return self.entries[-1]

    @property
    def is_mismatch(self) -> bool:
        """Whether those who came came to different calls, or in different iterations."""
        return len({(entry.digest, entry.iteration) for entry in self.entries}) > 1

    @property
    def ended(self) -> float | None:
        """When the last of those who came was done; None if one is not."""
        ends = [entry.ended for entry in self.entries]
        return None if None in ends else max(end for end in ends if end is not None)


@dataclass(frozen=True)
class Timeline:
    """The records of a job, by rank; how the processes are, and when it is now, on the clock of rank 0."""

    records: Mapping[int, RankRecord]
    processes: Mapping[int, str]  # "running", "stopped", "gone" or "elsewhere"
    now: float
    problems: tuple[str, ...] = ()
    _members: dict[str, list[int]] = field(default_factory=dict[str, "list[int]"], repr=False)

    @property
    def size(self) -> int:
        """How many ranks the job has."""
        return max((record.size for record in self.records.values()), default=0)

    @cached_property
    def absent(self) -> list[int]:
        """The ranks without a record."""
        return [rank for rank in range(self.size) if rank not in self.records]

    @cached_property
    def meetings(self) -> list[Meeting]:
        """All calls, in the order in which the first came to them."""
        entries: dict[tuple[int, int], list[Entry]] = {}
        for record in self.records.values():
            for entry in record.entries:
                entries.setdefault(entry.key, []).append(entry)
        meetings = [Meeting(tuple(sorted(some, key=lambda e: e.began))) for some in entries.values()]
        return sorted(meetings, key=lambda meeting: meeting.first.began)

    @cached_property
    def events(self) -> list[Event]:
        """What all noted, in order."""
        return sorted((e for record in self.records.values() for e in record.events), key=lambda e: e.when)

    def state(self, rank: int) -> str:
        """Return how a rank is: running, stopped, killed, left, failed or absent; "no end", if nobody can know."""
        record = self.records.get(rank)
        if record is None:
            return "absent"
        if record.end != "running":
            return {"clean": "left", "rescued": "left", "failed": "failed"}[record.end]
        return {"gone": "killed", "elsewhere": "no end"}.get(self.processes[rank], self.processes[rank])

    def is_alive(self, rank: int) -> bool:
        """Whether the process of a rank is there."""
        return self.state(rank) in ("running", "stopped")

    def members(self, group: str) -> list[int]:
        """Return the ranks of a group, as far as its text has them."""
        if group not in self._members:
            runs = [match for part in group.split(",") if (match := RUN.fullmatch(part))]
            ends = [(int(run[1]), min(int(run[2] or run[1]) + 1, self.size), int(run[3] or 1) or 1) for run in runs]
            self._members[group] = sorted({rank for end in ends for rank in range(*end)})
        return self._members[group]

    def missing(self, entry: Entry) -> list[int]:
        """Return those of its group who have not come to a call, as their own records say."""
        if entry.agreed is not None:
            return []  # all had; what others have of it may have been overwritten
        key, latest = entry.key[0], self._latest
        return [rank for rank in self.members(entry.group) if latest.get((rank, key), -1) < entry.number]

    @cached_property
    def _latest(self) -> dict[tuple[int, int], int]:
        # The number of the last call of each rank in each group.
        return {(e.rank, e.key[0]): e.number for record in self.records.values() for e in record.entries}


def read_timeline(folder: Path) -> Timeline:
    """Return the timeline of the newest job in a folder; an `ArgumentError` says what is there if none is."""
    name = printable(str(folder), keep="")
    if not folder.is_dir():
        kind = "is a file" if folder.exists() else "does not exist"
        raise ArgumentError(f"{name} {kind}; expected a folder with records of processes, rank-0.record and so on.")
    problems: list[str] = []
    records = read_records(folder, problems)
    if not records:
        names = _names_in(folder)
        listing = ", ".join(names[:8]) + f" and {len(names) - 8} more" * (len(names) > 8)
        raise ArgumentError(
            f"{name} has no records of processes: expected rank-0.record and so on.\n  it has: {listing or 'nothing'}"
            + "".join(f"\n  {problem}" for problem in problems[:8])
            + "\n  records of jobs that ended cleanly are removed; SHARDWISE_RECORD says where they are kept."
        )
    processes = {rank: process_of(record) for rank, record in records.items()}
    live = [r for rank, r in records.items() if r.end == "running" and processes[rank] in ("running", "stopped")]
    seen = max(record.seen for record in records.values())
    # The clock of rank 0 is that of this host but for the offset, if a process of this host still lives.
    return Timeline(records, processes, max(seen, time()) if live else seen, tuple(problems))


def _names_in(folder: Path) -> list[str]:
    try:
        return sorted(printable(name, keep="") for name in os.listdir(folder))
    except OSError:  # which is among the problems
        return []
