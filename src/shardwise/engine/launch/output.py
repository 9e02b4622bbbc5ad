"""Output: the lines of several processes on one terminal, each with its rank; tracebacks are kept in order.

A traceback is held back until it is known why its process ended: when one fails, the others fail because of it, and
theirs come after the one that matters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from time import monotonic
from typing import TextIO

STARTS = ("Traceback (most recent call last):", "Fatal Python error:", "  + Exception Group Traceback")
CONSEQUENCE = re.compile(r"(\w+\.)*(RankLost|CollectiveError)\b")
RANK = re.compile(r"^\[rank\d+\]: ?")  # with which torch begins the lines of tracebacks
PATIENCE = 5.0  # seconds after which a traceback of a process that goes on is printed


@dataclass
class Stream:
    """What one process writes on one of its outputs."""

    prefix: str
    to: TextIO
    holds: bool = False  # whether tracebacks are held back
    began: float | None = None  # when the last one began
    is_consequence: bool = False  # whether it says that another process failed
    _holding: bool = False
    _rest: bytes = b""
    _waiting_lines: list[str] = field(default_factory=list[str])

    def take(self, data: bytes) -> None:
        """Print the lines that are complete."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._line(line.decode(errors="replace").rstrip("\r"))

    def end(self) -> None:
        """Print the last line, if it was not complete."""
        if self._rest:
            self.take(b"\n")

    def look(self) -> None:
        """Print a traceback of a process that goes on."""
        if self._holding and self.began is not None and monotonic() - self.began > PATIENCE:
            self.release()

    def release(self) -> None:
        """Print what is held back."""
        lines, self._waiting_lines, self._holding = self._waiting_lines, [], False
        for line in lines:
            self._print(line)

    def _line(self, line: str) -> None:
        line = RANK.sub("", line)
        if self.holds and not self._holding and line.startswith(STARTS):
            self.began, self.is_consequence, self._holding = monotonic(), False, True
        if not self._holding:
            self._print(line)
            return
        self.is_consequence |= CONSEQUENCE.match(line) is not None
        self._waiting_lines.append(line)

    def _print(self, line: str) -> None:
        print(f"{self.prefix}{line}", file=self.to, flush=True)
