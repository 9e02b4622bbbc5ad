"""The communication log: every step that an engine runs, with bytes, time and the user's line."""

# Python has no public name for the frame of a caller.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from shardwise.errors import ArgumentError
from shardwise.plan.record import Record, StepNote

if TYPE_CHECKING:
    from rich.console import RenderableType

PACKAGE = str(Path(__file__).parent.parent)


@dataclass
class CommunicationLog:
    """The steps run inside a `trace_communication` block, in order.

    >>> log = CommunicationLog([Record("permute", ("x",), "[x]", "[x]", 64, 128, 0.5, "train.py:3")])
    >>> len(log), log.bytes, [record.kind for record in log]
    (1, 128, ['permute'])
    >>> print(log)
    step     over  from  to   bytes    time  line
    permute  x     [x]   [x]  128 B  500 ms  train.py:3
    1 step, 128 B between devices
    """

    records: list[Record] = field(default_factory=list[Record])

    @property
    def bytes(self) -> int:
        """All bytes between devices."""
        return sum(record.bytes for record in self.records)

    def save(self, path: str | Path) -> None:
        """Write the log as a trace file (.json) that Perfetto (ui.perfetto.dev) and chrome://tracing open.

        Every kind of step has a track; a step carries its bytes, layouts and the user's line. Logs of several
        processes of one host share a clock. On the abstract engine nothing runs, so steps take no time.

        >>> log = CommunicationLog([Record("permute", ("x",), "[x]", "[x]", 64, 64, 0.5, "train.py:3")])
        >>> log.save("trace.txt")
        Traceback (most recent call last):
        shardwise.ArgumentError: a trace is saved as .json, got 'trace.txt'.
        """
        import json

        from shardwise.pictures.trace import trace

        if Path(path).suffix != ".json":
            raise ArgumentError(f"a trace is saved as .json, got {str(path)!r}.")
        Path(path).write_text(json.dumps(trace(self), ensure_ascii=False) + "\n", encoding="utf-8")

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __str__(self) -> str:
        from shardwise.pictures.log import log_text

        return log_text(self)

    def __rich__(self) -> RenderableType:
        from shardwise.pictures.log import log_table

        return log_table(self)


_active: ContextVar[tuple[CommunicationLog, ...]] = ContextVar("communication_logs", default=())


@contextmanager
def trace_communication() -> Generator[CommunicationLog]:
    """Record every communication step inside a `with` block.

    >>> import numpy as np
    >>> from shardwise import DeviceMesh, P, shard, trace_communication
    >>> mesh = DeviceMesh((4,), ("x",))
    >>> with trace_communication() as log:
    ...     y = shard(shard(np.zeros((8, 8), "float32"), mesh, P("x")), mesh, P(None, "x"))
    >>> [(record.kind, record.bytes) for record in log]
    [('slice', 0), ('all_to_all', 192)]
    """
    log = CommunicationLog()
    token = _active.set((*_active.get(), log))
    try:
        yield log
    finally:
        _active.reset(token)


def active_logs() -> tuple[CommunicationLog, ...]:
    """Return the logs that are being written."""
    return _active.get()


def log_steps(notes: Iterable[StepNote], moved: Mapping[str, int], start: float, seconds: float, rank: int = 0) -> None:
    """Write steps that were run as one, with the bytes of each kind that they moved, into all active logs."""
    line = user_line()
    for note in notes:
        for log in active_logs():
            log.records.append(Record(*note, moved.get(note.kind, 0), seconds, line, start, rank))
        start, seconds = start + seconds, 0.0  # they take their time together


def user_line() -> str:
    """Return file and line of the innermost call from outside this package."""
    return line_of(calls()[0])


def calls() -> tuple[FrameType | None, FrameType | None]:
    """Return the innermost frame outside this package, and the one inside that it called."""
    return leave_package(sys._getframe(1))


def leave_package(frame: FrameType | None) -> tuple[FrameType | None, FrameType | None]:
    """Return the first frame outside this package, from a frame on outwards, and the one inside that it called."""
    inner = None  # a list of frames would hold the one that holds it, and with it all that functions hold
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame, inner = frame.f_back, frame
    return frame, inner


def line_of(frame: FrameType | None) -> str:
    """Return the file and line of a frame."""
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
