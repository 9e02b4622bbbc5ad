"""Records: what the file of one rank says, whoever wrote it and however it ended."""

from __future__ import annotations

import math
import os
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from struct import Struct

from shardwise.engine.recording import slots as at
from shardwise.engine.recording.recorder import RECORD, read_plain, ticks_of
from shardwise.engine.recording.slots import CALL, EVENT, HEAD, MOST_WAITED, NONE, Shape
from shardwise.errors import ArgumentError, printable

MOST_BYTES = 64 << 20  # of a file: more is not ours
MOST_RANKS = 1 << 20
EARLIEST, LATEST = -6e10, 1e11  # seconds of which a date can be made
MOST_FILES = 1 << 16
NAME = re.compile(rf"rank-(0|[1-9][0-9]{{0,6}})\.{RECORD}")
LIVE = Struct("=dddQ")  # what stands from `OFFSET` on
ENDS = ("running", "clean", "failed", "rescued")


@dataclass(frozen=True, slots=True)
class Entry:
    """One call of one rank. Times are seconds of rank 0's clock; those of what has not happened are None."""

    rank: int
    sequence: int
    number: int  # among the calls of its group
    iteration: int | None
    what: str
    line: str
    group: str
    key: tuple[int, int]  # of the call, which is that of the same call in other ranks
    digest: int  # of what the call is
    began: float
    agreed: float | None
    ended: float | None
    received: int
    sent: int
    waits: tuple[int, ...]  # the first of those it waits for
    waits_count: int
    failure: str | None = None
    failed: float | None = None  # when it was recorded that it failed, or that others had after it was done

    @property
    def is_open(self) -> bool:
        """Whether it neither ended nor failed."""
        return self.ended is None and self.failure is None

    @property
    def is_done(self) -> bool:
        """Whether it ended, and did not fail."""
        return self.ended is not None and self.ended != self.failed

    @property
    def step(self) -> str:
        """What kind of call it is."""
        return self.what.partition(" ")[0] or "a call"

    def __str__(self) -> str:
        words = [f"sequence {self.sequence}"] + [f"iteration {self.iteration}"] * (self.iteration is not None)
        return f"{self.step} ({', '.join(words)})"


@dataclass(frozen=True, slots=True)
class Event:
    """What a rank noted, and when."""

    rank: int
    when: float
    text: str


@dataclass(frozen=True, slots=True)
class RankRecord:
    """All that the file of one rank says."""

    rank: int
    size: int
    pid: int
    ticks: int
    host: str
    job: str
    command: str
    started: float
    beat: float  # when it was last known to live
    place: str  # where it was then
    end: str  # one of `ENDS`
    ended: float | None
    cause: str
    entries: tuple[Entry, ...]
    events: tuple[Event, ...]
    path: Path

    @property
    def last(self) -> Entry | None:
        """Its last call."""
        return self.entries[-1] if self.entries else None

    @property
    def seen(self) -> float:
        """When it last did anything that is recorded."""
        times = [self.started, self.beat, self.ended or 0.0]
        for entry in self.entries[-1:]:
            times += [entry.began, entry.agreed or 0.0, entry.ended or 0.0, entry.failed or 0.0]
        return max(times + [event.when for event in self.events[-1:]])


def read_record(path: Path) -> RankRecord:
    """Return what a file says; an `ArgumentError` tells why it is no record."""
    data, name = _read(path), NAME.fullmatch(path.name)
    if len(data) < at.HEAD_SIZE or data[:8] != at.MAGIC:
        raise ArgumentError(f"{path.name} is not a record of shardwise, or was cut off.")
    _, *numbers, _, ticks, wall, clock, host, job, command = HEAD.unpack_from(data)
    version, head_size, call_size, slots, event_size, events, rank, size, pid = numbers
    expected = (at.VERSION, at.HEAD_SIZE, CALL.size, EVENT.size)
    if (version, head_size, call_size, event_size) != expected:
        raise ArgumentError(f"{path.name} was written by another version of shardwise, or on another kind of machine.")
    offset, ended, beat, state = LIVE.unpack_from(data, at.OFFSET)
    if not (name and int(name[1]) == rank < size <= MOST_RANKS and state < len(ENDS) and slots > 0 < events):
        raise ArgumentError(f"{path.name} does not say what a record of that name says.")
    shift = wall - clock + (offset if math.isfinite(offset) else 0.0)
    if not _are_times(wall, clock + shift, ended + shift, beat + shift):
        raise ArgumentError(f"{path.name} has times that are none.")
    shape = Shape(slots, events)
    notes = sorted(_events(data, shape, shift))
    failures = {call: (when, text) for _, when, call, text in reversed(notes) if call}
    entries = [_with_failure(entry, failures.get(n)) for n, entry in sorted(_calls(data, shape, rank, shift))]
    return RankRecord(
        rank=rank,
        size=size,
        pid=pid,
        ticks=ticks,
        host=_line(host),
        job=_line(job),
        command=_line(command),
        started=clock + shift,
        beat=beat + shift,
        place=_line(data[at.PLACE : at.PLACE + at.PLACE_SIZE]),
        end=ENDS[int(state)],
        ended=ended + shift if state else None,
        cause=_text(data[at.CAUSE : at.CAUSE + at.CAUSE_SIZE]),
        entries=tuple(entries),
        events=tuple(Event(rank, when, text) for _, when, call, text in notes if not call),
        path=path,
    )


def _with_failure(entry: Entry, event: tuple[float, str] | None) -> Entry:
    if entry.failure is None:
        return entry
    failed, text = event or (entry.ended, "")
    return replace(entry, failed=failed, failure=text)


def read_records(folder: Path, problems: list[str] | None = None) -> dict[int, RankRecord]:
    """Return the records of the newest job in a folder, by rank; what is wrong with others goes into `problems`."""
    problems = [] if problems is None else problems
    records = read_all(folder, problems)
    newest = max(records, key=lambda record: record.started, default=None)
    for record in records:
        if newest is not None and (record.job, record.size) != (newest.job, newest.size):
            problems.append(f"{record.path.name} is of another job, and is left out.")
    return {r.rank: r for r in records if newest is not None and (r.job, r.size) == (newest.job, newest.size)}


def read_all(folder: Path, problems: list[str]) -> list[RankRecord]:
    """Return the records in a folder, of whatever jobs; what is wrong with others goes into `problems`."""
    records: list[RankRecord] = []
    try:
        names = sorted(name for name in os.listdir(folder) if NAME.fullmatch(name))[:MOST_FILES]
    except OSError as error:
        problems.append(f"{printable(str(folder), keep='')}: {error.strerror}")
        return []
    for name in names:
        try:
            records.append(read_record(folder / name))
        except FileNotFoundError:  # removed meanwhile, at a clean end
            continue
        except (OSError, ArgumentError) as error:
            reason = f"{name}: {error.strerror}" if isinstance(error, OSError) else str(error)
            problems.append(printable(reason, keep="\n"))
    return records


def process_of(record: RankRecord) -> str:
    """Return whether the process of a record is "running", "stopped" or "gone", or "elsewhere", which is not known."""
    if record.host != printable(socket.gethostname(), keep="\n"):
        return "elsewhere"
    try:
        with open(f"/proc/{record.pid}/stat", "rb") as file:
            state = file.read().rpartition(b")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "gone" if os.path.isdir("/proc/self") else "elsewhere"
    except (OSError, IndexError):
        return "elsewhere"
    if state in b"ZX" or record.ticks != ticks_of(record.pid):
        return "gone"
    return "stopped" if state in b"Tt" else "running"


def is_alive(record: RankRecord) -> bool:
    """Whether the process of a record may still write into it."""
    return record.end == "running" and process_of(record) in ("running", "stopped")


def _read(path: Path) -> bytes:
    data = read_plain(path, MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ArgumentError(f"{path.name} is not a record of shardwise: it is too long.")
    return data


def _calls(data: bytes, shape: Shape, rank: int, shift: float) -> Iterator[tuple[int, Entry]]:
    for k in range(min(shape.slots, (len(data) - at.HEAD_SIZE) // CALL.size)):
        fields = CALL.unpack_from(data, shape.call(k + 1))
        stamp, sequence, number, iteration, began, agreed, ended, received, sent, group_key, digest, failed = fields[
            :12
        ]
        count, *waits = fields[12 : 13 + MOST_WAITED]
        what, line, group, last = fields[14 + MOST_WAITED :]
        if not stamp or stamp != last or (stamp - 1) % shape.slots != k:
            continue  # empty, or torn
        if not _are_times(began + shift, agreed + shift, ended + shift):
            continue
        entry = Entry(
            rank=rank,
            sequence=sequence,
            number=number,
            iteration=None if iteration == NONE else iteration,
            what=_line(what),
            line=_line(line),
            group=_line(group),
            key=(group_key, number),
            digest=digest,
            began=began + shift,
            agreed=agreed + shift if agreed else None,
            ended=ended + shift if ended else None,
            received=received,
            sent=sent,
            waits=tuple(waits[:count]) if failed or not ended else (),
            waits_count=count if failed or not ended else 0,
            failure="" if failed else None,
        )
        yield stamp, entry


def _events(data: bytes, shape: Shape, shift: float) -> Iterator[tuple[int, float, int, str]]:
    start = at.HEAD_SIZE + shape.slots * CALL.size
    for k in range(min(shape.events, max(0, len(data) - start) // EVENT.size)):
        stamp, when, call, text, last = EVENT.unpack_from(data, start + k * EVENT.size)
        if stamp and stamp == last and (stamp - 1) % shape.events == k and _are_times(when + shift):
            yield stamp, when + shift, call, _text(text)


def _text(data: bytes) -> str:
    return printable(data.rstrip(b"\0").decode(errors="replace"), keep="\n")


def _line(data: bytes) -> str:
    return _text(data).replace("\n", "\\n")


def _are_times(*seconds: float) -> bool:
    return all(EARLIEST < second < LATEST for second in seconds)
