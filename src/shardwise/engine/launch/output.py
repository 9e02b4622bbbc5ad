"""Output: the lines of one process, each with its rank; tracebacks are kept in order.

A traceback is held back until it is known why its process ended: when one fails, the others fail because of it, and
theirs come after the one that matters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from time import monotonic

from shardwise.engine.launch.screen import LINE, Screen, Source

STARTS = (b"Traceback (most recent call last):", b"Fatal Python error:", b"  + Exception Group Traceback")
CONSEQUENCE = re.compile(rb"(\w+\.)*(RankLost|CollectiveError)\b")
RANK = re.compile(rb"^\[rank\d+\]: ?")  # with which torch begins the lines of tracebacks
ENDS = re.compile(rb"([\r\n])")
PATIENCE = 5.0  # seconds after which a traceback of a process that goes on is printed
IDLE = 0.15  # seconds after which what follows a return is printed: it may have no end
MOST = 4 << 20  # bytes that are held back


@dataclass
class Stream:
    """What one process writes on one of its outputs."""

    source: Source
    to: Screen
    holds: bool = False  # whether tracebacks are held back
    began: float | None = None  # when the last one began
    is_consequence: bool = False  # whether it says that another process failed
    _holding: bool = False
    _held: list[tuple[bytes, bytes]] = field(default_factory=list[tuple[bytes, bytes]])
    _held_size: int = 0
    _parts: list[bytes] = field(default_factory=list[bytes])  # of a line that has no end yet
    _size: int = 0
    _heard: float = 0.0
    _is_begun: bool = False  # whether some of this line was printed
    _follows_return: bool = False

    def take(self, data: bytes) -> None:
        """Print the lines that are complete."""
        # Only what is new is searched, and what has no end is not joined before it has: a long line costs its length.
        *pieces, rest = ENDS.split(data)
        for text, end in zip(pieces[::2], pieces[1::2], strict=True):
            self._pass(text, end)
        if rest:
            self._parts.append(rest)
            self._size += len(rest)
            self._heard = monotonic()
        if self._size >= LINE:
            self._pass(b"", b"")

    def end(self) -> None:
        """Print the last line, if it was not complete."""
        if self._parts:
            self._pass(b"", b"\n")
        if not self._holding:
            self.to.end(self.source)

    def look(self) -> None:
        """Print what follows a return, and a traceback of a process that goes on."""
        if self._parts and self._follows_return and not self._holding and monotonic() - self._heard > IDLE:
            self._pass(b"", b"")
        if self._holding and self.began is not None and monotonic() - self.began > PATIENCE:
            self.release()

    def release(self) -> None:
        """Print what is held back."""
        held, self._held, self._held_size, self._holding = self._held, [], 0, False
        for text, end in held:
            self.to.put(self.source, text, end, must=True)

    def _pass(self, text: bytes, end: bytes) -> None:
        # Pass on the parts, this text, and the end of the line or part of it.
        if self._parts:
            text = b"".join([*self._parts, text])
            self._parts, self._size = [], 0
        if not self._is_begun:
            text = RANK.sub(b"", text)
            if self.holds and not self._holding and text.startswith(STARTS):
                self.began, self.is_consequence, self._holding = monotonic(), False, True
            self.is_consequence |= self._holding and CONSEQUENCE.match(text[:1024]) is not None
        self._is_begun, self._follows_return = not end, end == b"\r"
        if not self._holding:
            self.to.put(self.source, text, end)
            return
        self._held.append((text, end))
        self._held_size += len(text) + len(end)
        if self._held_size > MOST:
            self.release()
