"""Screens: where the lines of several processes come together, in a file or on a terminal.

A line may be begun and not ended, or ended with a carriage return, as progress bars do. In a file, what another
process writes then begins on a new line. On a terminal such lines stand below all others, and are drawn again.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic
from typing import NamedTuple, Protocol, TextIO

from rich.cells import set_cell_size

from shardwise.engine.launch.sink import Sink

LINE = 1 << 20  # bytes of a line, after which a terminal gets it in pieces
PAUSE = 0.1  # seconds between drawings
MOST = 8  # lines that are drawn
BEHIND = 1 << 14  # bytes that wait for the terminal, with which it is not drawn on
ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|.)?")
CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Source(NamedTuple):
    """Who writes a line: what stands before its lines, and the number of its output."""

    prefix: bytes
    output: int = 1


class Screen(Protocol):
    """What lines are written to."""

    sink: Sink
    encoding: str
    live: str  # what is said about all, in a line or a few

    def put(self, source: Source, text: bytes, end: bytes, must: bool = False) -> None:
        """Write text on the line of a source, which ends with a newline, a return, or not yet."""
        ...

    def look(self) -> None:
        """Draw what has changed."""
        ...

    def forget(self) -> None:
        """Leave what is drawn where it is: others have written below it."""
        ...

    def end(self, source: Source | None = None) -> None:
        """End the line of a source if it has no end, or those of all."""
        ...


class File:
    """A file or a pipe: all bytes are passed on."""

    live = ""

    def __init__(self, sink: Sink, encoding: str = "utf-8") -> None:
        self.sink, self.encoding = sink, encoding
        self._open: Source | None = None  # whose line has no end
        self._is_returned = False  # whether it ended with a return
        self._cut = set[Source]()  # whose lines were ended because others came

    def put(self, source: Source, text: bytes, end: bytes, must: bool = False) -> None:
        """Write text; what others began is then a line of its own."""
        if not text and not end:
            return
        data = text + end
        if self._open == source:
            if text and self._is_returned:
                data = source.prefix + data
        elif not text and (end == b"\r" or source in self._cut):  # nothing to return over; or all of it is there
            self._cut.discard(source)
            return
        elif self._open is not None:
            self._cut.add(self._open)
            data = b"\n" + source.prefix + data
        else:
            data = source.prefix + data
        self.sink.put(data, must)
        self._cut.discard(source)
        self._is_returned = end == b"\r"
        self._open = None if end == b"\n" else source

    def look(self) -> None:
        """Nothing is drawn."""

    def forget(self) -> None:
        """Nothing is drawn."""

    def end(self, source: Source | None = None) -> None:
        """End the line that has no end."""
        if self._open is not None and source in (None, self._open):
            self.sink.put(b"\n")
            self._open = None


class Terminal:
    """A terminal: lines without an end stand at the bottom, one for each source, and below them what is live."""

    def __init__(self, sink: Sink, encoding: str = "utf-8") -> None:
        self.sink, self.encoding, self.live = sink, encoding, ""
        self._rows: dict[Source, tuple[bytes, bool]] = {}  # the line, and whether it ended with a return
        self._drawn: list[str] = []
        self._due = 0.0

    def put(self, source: Source, text: bytes, end: bytes, must: bool = False) -> None:
        """Write a line above those that have no end, or change one of those."""
        if not text and not end:
            return
        row, is_returned = self._rows.pop(source, (b"", False))
        row = text if is_returned and text else row + text
        if end == b"\n" or len(row) > LINE:
            self.sink.put(self._erase() + source.prefix + row + b"\n", must)
        elif row:
            self._rows[source] = row, end == b"\r"

    def look(self) -> None:
        """Draw the lines at the bottom, if they have changed and the terminal takes them."""
        if monotonic() < self._due or self.sink.waiting > BEHIND:
            return
        rows = self._draw()
        if rows != self._drawn:
            self.sink.put(self._erase() + "\r\n".join(rows).encode(self.encoding, "backslashreplace"))
            self._drawn, self._due = rows, monotonic() + PAUSE

    def forget(self) -> None:
        """Leave what is drawn where it is: others have written below it."""
        self._drawn = []

    def end(self, source: Source | None = None) -> None:
        """End lines that have no end; with the last the live line goes."""
        for each in sorted(self._rows) if source is None else [source]:
            row, _ = self._rows.pop(each, (b"", False))
            if _plain(row).strip():  # not one that a progress bar has cleared
                self.put(each, row, b"\n")
        if source is None:
            self.live = ""
            self.sink.put(self._erase())

    def _erase(self) -> bytes:
        count, self._drawn = len(self._drawn), []
        self._due = 0.0 if count else self._due  # what was there comes back at once
        # Row by row: some terminals keep what was on the screen when all below its first place is cleared.
        return b"\r\x1b[K" + b"\x1b[A\x1b[K" * (count - 1) if count else b""

    def _draw(self) -> list[str]:
        columns, height = 80, 24
        if self.sink.descriptor is not None and os.isatty(self.sink.descriptor):
            columns, height = os.get_terminal_size(self.sink.descriptor)
            if not _is_ours(self.sink.descriptor):
                return self._drawn
        columns, height = columns or 80, height or 24
        live = [row for line in self.live.splitlines() for row in textwrap.wrap(line, max(1, columns - 1))]
        live = live[: max(1, min(MOST, height // 3))]
        texts = [source.prefix.decode() + _plain(row) for source, (row, _) in sorted(self._rows.items()) if row.strip()]
        texts = texts[: max(0, min(MOST, height - 2 - len(live)))] + live
        return [set_cell_size(text, columns - 1).rstrip() for text in texts]


def find_live(screens: Sequence[Screen]) -> Screen | None:
    """Return where a live line can stand: on the terminal of these screens, if nothing else is written to it.

    What goes into a pipe may come out on the same terminal, in the middle of that line.
    """
    terminals = [screen for screen in screens if isinstance(screen, Terminal)]
    return terminals[-1] if terminals and not any(_is_pipe(screen.sink.descriptor) for screen in screens) else None


def _is_pipe(descriptor: int | None) -> bool:
    if descriptor is None:
        return False
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _is_ours(descriptor: int) -> bool:
    # Whether no other program uses the terminal now.
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:  # it is not the terminal of this session
        return True


def _plain(row: bytes) -> str:
    # What can be drawn on one row, however wide it is.
    return CONTROLS.sub("", ESCAPES.sub("", row[:4096].decode(errors="replace").expandtabs()))


def open_screens() -> tuple[Screen, Screen]:
    """Return where the standard output and the standard error of this process go: one, if both are the same file."""
    out, err = _descriptor(sys.stdout, 1), _descriptor(sys.stderr, 2)
    first = _open_screen(out, "standard output", sys.stdout)
    if out is not None and err is not None and os.path.samestat(os.fstat(out), os.fstat(err)):
        return first, first  # in the order in which it comes
    return first, _open_screen(err, "standard error", sys.stderr)


def _descriptor(file: TextIO | None, otherwise: int) -> int | None:
    # None if the output was closed before this process began: its number may be that of another file.
    if file is None:
        return None
    with suppress(OSError, ValueError):
        file.flush()
    try:
        return file.fileno()
    except (OSError, ValueError):  # it stands for a file
        return otherwise


def _open_screen(descriptor: int | None, name: str, file: TextIO | None) -> Screen:
    is_terminal = descriptor is not None and os.isatty(descriptor) and os.environ.get("TERM", "dumb") != "dumb"
    return (Terminal if is_terminal else File)(Sink(descriptor, name), getattr(file, "encoding", None) or "utf-8")
