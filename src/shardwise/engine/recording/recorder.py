"""The recorder: what this process did last, in memory that others can read, and that outlives it.

The memory is that of a file which is mapped: nothing has to be written when something goes wrong, not even by a process
that is killed. A call costs about a microsecond, and no lock is taken.
"""

from __future__ import annotations

import errno
import faulthandler
import mmap
import os
import signal
import socket
import stat
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from struct import Struct
from time import monotonic, time
from weakref import WeakSet
from zlib import crc32

from shardwise.caches import cache
from shardwise.engine.recording import slots as at
from shardwise.engine.recording.slots import (
    BEGIN,
    CALL,
    CLEAN,
    EVENT,
    FAILED,
    HEAD,
    MOST_WAITED,
    NONE,
    RESCUED,
    RUNNING,
    Shape,
)

DOUBLE, COUNT = Struct("=d"), Struct("=Q")
DONE, FLAG = Struct("=dQQ"), Struct("=I")
WAITED = [Struct(f"=I{n}I") for n in range(MOST_WAITED + 1)]
MOST_STACKS = 1 << 20  # bytes of stacks after which no more are written
RECORD, STACKS = "record", "stacks"


class Recorder:
    """The last calls and events of this process; without a folder, or if it cannot be written, in its own memory.

    >>> recorder = Recorder(None, rank=0, size=2)
    >>> call = recorder.begin(1, 1, "all_gather of float32[8]", "train.py:3", ranks=(0, 1))
    >>> recorder.wait_for(call, [1])
    >>> recorder.agree(call)
    >>> recorder.end(call, received=16, sent=16)
    >>> recorder.path is None
    True
    """

    def __init__(
        self,
        folder: Path | None,
        rank: int,
        size: int,
        slots: int = 512,
        *,
        job: str = "",
        keeps_folder: bool = True,
        clock: Callable[[], float] = monotonic,
        wall: Callable[[], float] = time,
    ) -> None:
        """Begin a record, over any that this rank left in the folder before.

        At a clean end the folder goes too if nobody is to keep it, and nothing else is in it.
        """
        self.rank, self.size, self.shape, self.path = rank, size, Shape(slots), None
        self.trouble = ""  # why nobody else can read the record
        self._clock, self._calls, self._events = clock, 0, count(1)
        self._has_failed, self._job = False, job or os.environ.get("SHARDWISE_JOB", "")
        self._keeps_folder = keeps_folder
        self._waits = False  # whether the last call has said for whom it waits
        self._signal: int | None = None
        self._stacks: int | None = None
        self._memory = self._map(folder)
        self._memory[: HEAD.size] = self._head(clock(), wall())
        self.beat("")
        _recorders.add(self)

    def _map(self, folder: Path | None) -> mmap.mmap:
        if folder is not None:
            path = folder / f"rank-{self.rank}.{RECORD}"
            try:
                memory = _map_new_file(path, self.shape.size)
            except (OSError, ValueError) as error:
                self.trouble = f"{path}: {error}"
            else:
                self.path = path
                return memory
        return mmap.mmap(-1, self.shape.size)

    def _head(self, now: float, wall: float) -> bytes:
        pid, shape = os.getpid(), self.shape
        sizes = at.VERSION, at.HEAD_SIZE, CALL.size, shape.slots, EVENT.size, shape.events, self.rank, self.size, pid
        texts = [
            at.head_of(socket.gethostname(), 64),
            at.head_of(self._job, 64),
            at.head_of(" ".join(sys.orig_argv), 512),
        ]
        return HEAD.pack(at.MAGIC, *sizes, 0, ticks_of(pid), wall, now, *texts)

    # -- calls, by the thread that communicates ----------------------------------------------------

    def begin(
        self,
        sequence: int,
        number: int,
        what: str,
        line: str,
        iteration: int | None = None,
        ranks: tuple[int, ...] = (),
    ) -> int:
        """Record that this process has come to a call, the `number`-th of the group of these ranks; return its slot."""
        self._calls = call = self._calls + 1
        self._waits = False
        text, digest = _what(what)
        group, group_digest = _group(ranks)
        when = NONE if iteration is None else iteration
        place = self.shape.call(call)
        numbers = call, sequence, number, when, self._clock(), group_digest, digest
        BEGIN.pack_into(self._memory, place, *numbers, text, _line(line), group, call)
        COUNT.pack_into(self._memory, at.LAST_CALL, call)
        return call

    def wait_for(self, slot: int, ranks: Sequence[int]) -> None:
        """Record whom the call waits for now."""
        if self._calls - slot < self.shape.slots:
            few, self._waits = ranks[:MOST_WAITED], True
            WAITED[len(few)].pack_into(self._memory, self.shape.call(slot) + at.WAITS, len(ranks), *few)

    def agree(self, slot: int) -> None:
        """Record that all have come to the call, so that data moves from now on."""
        if self._calls - slot < self.shape.slots:
            place = self.shape.call(slot)
            DOUBLE.pack_into(self._memory, place + at.AGREED, self._clock())
            if self._waits:
                WAITED[0].pack_into(self._memory, place + at.WAITS, 0)

    def end(self, slot: int, received: int, sent: int) -> None:
        """Record that the call is done, and how many bytes this process received and sent in it."""
        if self._calls - slot < self.shape.slots:
            DONE.pack_into(self._memory, self.shape.call(slot) + at.CALL_ENDED, self._clock(), received, sent)

    def fail(self, slot: int, text: str, ranks: Sequence[int] = ()) -> None:
        """Record that the call failed, or what came after it, how, and whom that is due to.

        If nobody is named, whom it waited for stays. What is due to others begins with the name of a `CollectiveError`.
        """
        now, self._has_failed = self._clock(), True
        if self._calls - slot < self.shape.slots:
            place = self.shape.call(slot)
            FLAG.pack_into(self._memory, place + at.FAILURE, 1)
            if ranks:
                self.wait_for(slot, ranks)
            if DOUBLE.unpack_from(self._memory, place + at.CALL_ENDED) == (0.0,):
                DOUBLE.pack_into(self._memory, place + at.CALL_ENDED, now)
        self._add_event(text, slot, now)

    # -- by any thread -----------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """Record an event."""
        self._add_event(text, 0, self._clock())

    def _add_event(self, text: str, call: int, now: float) -> None:
        number = next(self._events)
        data = at.head_of(text, at.TEXT_SIZE)
        EVENT.pack_into(self._memory, self.shape.event(number), number, now, call, data, number)
        COUNT.pack_into(self._memory, at.LAST_EVENT, number)

    def beat(self, line: str) -> None:
        """Record that this process lives, and at which line it is."""
        self._write_text(at.PLACE, at.tail_of(line, at.PLACE_SIZE), at.PLACE_SIZE)
        DOUBLE.pack_into(self._memory, at.BEAT, self._clock())

    def set_offset(self, seconds: float) -> None:
        """Record how much the clock of rank 0 is ahead of that of this process."""
        DOUBLE.pack_into(self._memory, at.OFFSET, seconds)

    # -- stacks ------------------------------------------------------------------------------------

    def dump_on(self, number: int = signal.SIGUSR2) -> bool:
        """Write the Python stacks of all threads whenever a signal comes, unless the user handles it; return whether.

        It is done without Python's help, so that it works while the process is blocked in a library.
        """
        if self._signal is not None or signal.getsignal(number) is not signal.SIG_DFL:
            return False
        file = self._stacks_file()
        if file is None:
            return False
        faulthandler.register(number, file=file, all_threads=True)
        self._signal = number
        return True

    def dump(self, reason: str) -> None:
        """Write why something went wrong, and the Python stacks of all threads now."""
        self._write_text(at.CAUSE, at.head_of(reason, at.CAUSE_SIZE), at.CAUSE_SIZE)
        file = self._stacks_file()
        if file is None:
            return
        with suppress(OSError, RuntimeError):
            if os.fstat(file).st_size < MOST_STACKS:
                os.write(file, f"\n== rank {self.rank}: {reason}\n".encode(errors="replace"))
                faulthandler.dump_traceback(file, all_threads=True)

    def _stacks_file(self) -> int | None:
        if self._stacks is None and self.path is not None:
            with suppress(OSError):
                self._stacks = _open_new(self.path.with_suffix(f".{STACKS}"), os.O_APPEND)
        return self._stacks

    # -- the end -----------------------------------------------------------------------------------

    def close(self, clean: bool, reason: str = "") -> None:
        """Record how this process ends; if nothing went wrong for any that has a record in the folder, remove them."""
        if reason:
            self._write_text(at.CAUSE, at.head_of(reason, at.CAUSE_SIZE), at.CAUSE_SIZE)
        DOUBLE.pack_into(self._memory, at.ENDED, self._clock())
        state = FAILED if not clean else RESCUED if self._has_failed else CLEAN
        COUNT.pack_into(self._memory, at.STATE, state)
        if state == CLEAN and self.path is not None:
            with suppress(OSError):
                _remove_if_clean(self.path.parent, at.head_of(self._job, 64), self.size)
                if not self._keeps_folder:
                    self.path.parent.rmdir()
        self._detach()

    def _detach(self) -> None:
        # Write where nobody reads from now on: a fork has no part in the record, and who has ended does nothing more.
        _recorders.discard(self)
        if self._signal is not None:
            faulthandler.unregister(self._signal)
        with suppress(OSError, MemoryError):
            self._memory = mmap.mmap(-1, self.shape.size)
        if self._stacks is not None:
            os.close(self._stacks)
        self.path = self._stacks = self._signal = None

    def _write_text(self, place: int, data: bytes, size: int) -> None:
        self._memory[place : place + size] = data.ljust(size, b"\0")


_recorders: WeakSet[Recorder] = WeakSet()


def _detach_all() -> None:
    for recorder in list(_recorders):
        recorder._detach()  # pyright: ignore[reportPrivateUsage]


os.register_at_fork(after_in_child=_detach_all)


def ticks_of(pid: int) -> int:
    """Return when a process started, in ticks of the system, which tells it from another of the same number; or 0.

    >>> ticks_of(os.getpid()) == ticks_of(os.getpid())
    True
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def _open_new(path: Path, flags: int = 0) -> int:
    # What was there is removed, not followed or written into: it may be a link.
    path.unlink(missing_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | flags, 0o600)


def _map_new_file(path: Path, size: int) -> mmap.mmap:
    file = _open_new(path)
    try:
        # Room is taken now: a disk that is full later would end the process when it writes into the memory.
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file, 0, size)
        elif os.write(file, bytes(size)) < size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return mmap.mmap(file, size)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(file)


def read_plain(path: Path, most: int) -> bytes:
    """Return the beginning of a file; raise OSError for a link, or what one could wait for without end."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "not a plain file", str(path))
        with open(file, "rb", closefd=False) as stream:
            return stream.read(most)
    finally:
        os.close(file)


def _remove_if_clean(folder: Path, job: bytes, size: int) -> None:
    # The last of all that end cleanly removes them: until then the others may ask who left.
    states = {path: _state_in(path, job, size) for path in folder.glob(f"rank-*.{RECORD}")}
    if any(state not in (CLEAN, None) for state in states.values()):
        return
    for path in (path for path, state in states.items() if state == CLEAN):
        path.unlink(missing_ok=True)
        path.with_suffix(f".{STACKS}").unlink(missing_ok=True)


def _state_in(path: Path, job: bytes, size: int) -> int | None:
    # How the process of a record ended; None if it is not of this job, or was removed meanwhile.
    try:
        data = read_plain(path, at.HEAD_SIZE)
    except FileNotFoundError:
        return None
    except OSError:
        return RUNNING
    if len(data) < at.HEAD_SIZE:
        return None
    head = HEAD.unpack_from(data)
    if (head[8], head[-2].rstrip(b"\0")) != (size, job):
        return None
    return COUNT.unpack_from(data, at.STATE)[0]


@cache(entries=1024)
def _what(text: str) -> tuple[bytes, int]:
    return at.head_of(text, at.WHAT_SIZE), crc32(text.encode(errors="replace"))


@cache(entries=1024)
def _line(text: str) -> bytes:
    return at.tail_of(text, at.LINE_SIZE)


@cache(entries=256)
def _group(ranks: tuple[int, ...]) -> tuple[bytes, int]:
    data, text = ",".join(map(str, ranks)).encode(), ranks_text(ranks)
    if len(text) > at.GROUP_SIZE:
        text = text[: at.GROUP_SIZE - 4].rpartition(",")[0] + ",..."
    return text.encode(), crc32(data) | len(ranks) << 32


def ranks_text(ranks: Sequence[int]) -> str:
    """Return ranks in order as runs, so that the groups of meshes are short.

    >>> ranks_text((0, 1, 2, 3)), ranks_text((1, 5, 9, 13)), ranks_text((0, 1, 7)), ranks_text(())
    ('0-3', '1-13:4', '0,1,7', '')
    """
    runs: list[str] = []
    k = 0
    while k < len(ranks):
        step = ranks[k + 1] - ranks[k] if k + 1 < len(ranks) else 0
        end = k + 1
        while step > 0 and end < len(ranks) and ranks[end] - ranks[end - 1] == step:
            end += 1
        if end - k > 2:
            runs.append(f"{ranks[k]}-{ranks[end - 1]}" + f":{step}" * (step > 1))
            k = end
        else:
            runs.append(str(ranks[k]))
            k += 1
    return ",".join(runs)
