"""Sinks: where output goes, written by a thread, so that nobody else ever waits for whoever reads it."""

from __future__ import annotations

import errno
import os
import select
from collections import deque
from threading import Thread

from shardwise.locks import make_condition

ROOM = 64 << 20  # bytes that may wait to be written
PIECE = 1 << 16  # bytes that are written at a time
PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # there may be space again later


class Sink:
    """An output of this process: what is put in is written in order, as soon as it can be.

    A file descriptor that other processes have too cannot be made non-blocking for this one alone: hence the thread,
    which may be blocked for as long as it likes.
    """

    def __init__(self, descriptor: int | None, name: str, room: int = ROOM) -> None:
        """Write to a file descriptor; without one, as if everything could be written."""
        self.descriptor, self.name, self.room = descriptor, name, room
        self.waiting = 0  # bytes that are not written yet
        self.dropped = 0  # bytes that never will be
        self.trouble: str | None = None  # why something could not be written
        self.drops = False  # whether what does not fit is dropped, and not kept nonetheless
        self._queue = deque[bytes]()
        self._changed = make_condition()
        self._ends = self._is_gone = self._is_torn = False
        self._thread = Thread(target=self._run, name=f"shardwise-{name}", daemon=True)
        if descriptor is not None:
            self._thread.start()

    @property
    def is_full(self) -> bool:
        """Whether whoever makes output should wait."""
        return self.waiting >= self.room

    def put(self, data: bytes, must: bool = False) -> None:
        """Write this after all that was put in before; what must be written has a place even if there is no room."""
        if self.descriptor is None or not data:
            return
        with self._changed:
            if self._is_gone or (self.drops and not must and self.is_full):
                self.dropped += len(data)
                return
            self._queue.append(data)
            self.waiting += len(data)
            self._changed.notify_all()

    def finish(self, seconds: float) -> bool:
        """Wait until all is written, but not longer than this; return whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self.waiting, seconds)

    def close(self) -> None:
        """Let the thread end when all is written."""
        with self._changed:
            self._ends = True
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._ends)
                if not self._queue:
                    return
                data = self._take()
            left, error = self._write(data)
            with self._changed:
                self.waiting -= len(data)
                if error is not None:
                    self.dropped += left
                    self.trouble = self.trouble or error.strerror or str(error)
                    self._is_gone = error.errno not in PASSING
                if self._is_gone:  # nobody will ever read the rest
                    self.dropped += self.waiting
                    self.waiting = 0
                    self._queue.clear()
                self._changed.notify_all()

    def _take(self) -> bytes:
        # Whole chunks, which end with a line: what others write to the same terminal then comes between lines.
        chunks, size = [b"\n"] if self._is_torn else [], 0
        self.waiting += self._is_torn
        while self._queue and (not size or size + len(self._queue[0]) <= PIECE):
            chunks.append(self._queue.popleft())
            size += len(chunks[-1])
        return b"".join(chunks)

    def _write(self, data: bytes) -> tuple[int, OSError | None]:
        # Return how much could not be written, and why.
        assert self.descriptor is not None
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self.descriptor, view[:PIECE]) :]
            except BlockingIOError:  # someone else made it non-blocking
                select.select([], [self.descriptor], [], 1.0)
            except OSError as error:
                written = len(data) - len(view)
                self._is_torn = data[written - 1 : written] != b"\n" if written else self._is_torn
                return len(view), error
        self._is_torn = False
        return 0, None
