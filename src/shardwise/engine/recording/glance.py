"""Glances: where one rank is now, from the head and the last slots of its record, while it is written."""

from __future__ import annotations

import math
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from struct import Struct, error

from shardwise.engine.recording import slots as at
from shardwise.engine.recording.slots import CALL, EVENT, HEAD, NONE, RUNNING, Shape
from shardwise.errors import printable

NUMBERS = Struct("=QQQ")  # what stands from `STATE` on
NUMBER, TIME = Struct("=Q"), Struct("=d")
NEWEST = 16  # events that are read
TRIES = 3  # of a slot that is being written


@dataclass(frozen=True, slots=True)
class Glance:
    """Where a rank is. Times are seconds of the monotonic clock of its host; without a call, what it says is empty."""

    rank: int
    size: int
    pid: int
    is_running: bool  # whether it has not said that it ended
    beat: float  # when it last said where it is
    place: str  # where it was then
    sequence: int = 0  # of its last call
    iteration: int | None = None
    step: str = ""
    line: str = ""
    began: float = 0.0
    is_open: bool = False  # whether it is in that call now
    is_agreed: bool = False  # whether all have come to it
    events: tuple[tuple[float, str], ...] = ()  # the newest since that call began, if it is in it


def glance(path: Path) -> Glance | None:
    """Return where a rank is; None if its record cannot be read, is none, or changes too fast.

    >>> from shardwise.engine.recording.recorder import Recorder
    >>> folder = getfixture("tmp_path")
    >>> recorder = Recorder(folder, rank=1, size=2)
    >>> call = recorder.begin(5, 1, "all_gather of float32[8]", "train.py:3", iteration=2)
    >>> now = glance(folder / "rank-1.record")
    >>> now.rank, now.sequence, now.iteration, now.step, now.line, now.is_open
    (1, 5, 2, 'all_gather', 'train.py:3', True)
    """
    with suppress(OSError, OverflowError, error):
        # Of a file alone, and never through a link: opening anything else could wait without end.
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if stat.S_ISREG(os.fstat(file).st_mode):
                return next(filter(None, (_read(file) for _ in range(TRIES))), None)
        finally:
            os.close(file)
    return None


def _read(file: int) -> Glance | None:
    head = os.pread(file, at.CAUSE, 0)
    magic, version, head_size, call_size, slots, event_size, events, rank, size, pid, *_ = HEAD.unpack_from(head)
    sizes = (magic, version, head_size, call_size, event_size)
    if sizes != (at.MAGIC, at.VERSION, at.HEAD_SIZE, CALL.size, EVENT.size) or not slots or not events:
        return None
    (beat,) = TIME.unpack_from(head, at.BEAT)
    state, last_call, last_event = NUMBERS.unpack_from(head, at.STATE)
    place = _text(head[at.PLACE : at.PLACE + at.PLACE_SIZE])
    who = rank, size, pid, state == RUNNING, beat if math.isfinite(beat) else 0.0, place
    if not last_call:
        return Glance(*who)
    shape = Shape(slots, events)
    fields = CALL.unpack(os.pread(file, CALL.size, shape.call(last_call)))
    stamp, sequence, _, iteration, began, agreed, ended = fields[:7]
    failed, what, line = fields[11], fields[-4], fields[-3]
    (newest,) = NUMBER.unpack(os.pread(file, NUMBER.size, at.LAST_CALL))
    if stamp != last_call or fields[-1] != last_call or newest - last_call > slots - 2 or not math.isfinite(began):
        return None  # torn, or written over
    is_open = not ended and not failed
    return Glance(
        *who,
        sequence=sequence,
        iteration=None if iteration == NONE else iteration,
        step=_text(what).partition(" ")[0],
        line=_text(line),
        began=began,
        is_open=is_open,
        is_agreed=bool(agreed),
        events=_events(file, shape, last_event, began) if is_open else (),
    )


def _events(file: int, shape: Shape, last: int, since: float) -> tuple[tuple[float, str], ...]:
    out: list[tuple[float, str]] = []
    for number in range(last, max(0, last - min(NEWEST, shape.events)), -1):
        stamp, when, _, text, end = EVENT.unpack(os.pread(file, EVENT.size, shape.event(number)))
        if (stamp, end) != (number, number):
            continue  # torn
        if not when >= since:
            break  # and those before it came before
        out.append((when, _text(text)))
    return tuple(reversed(out))


def _text(data: bytes) -> str:
    return printable(data.rstrip(b"\0").decode(errors="replace"), keep="\n")
