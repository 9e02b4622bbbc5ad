"""Slots: where the fields of a record stand in its file.

A record is a head, a ring of calls and a ring of events, all of fixed size. A slot has its number at both ends, written
first and last: who reads it while it is written, or after a process was killed there, sees that it is torn.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

MAGIC, VERSION = b"SWRECORD", 1
NONE = -(1 << 63)  # an iteration that is none
MOST_WAITED = 12  # ranks that are named; more are counted
RUNNING, CLEAN, FAILED, RESCUED = 0, 1, 2, 3  # how a process ended; rescued: cleanly, though a call had failed

# magic; version, sizes of head, slot and event, slots and events, rank, size, pid; start of the process in the system's
# ticks; wall and monotonic clock at the same moment; host, job, command. The formats are so that no padding is implied.
HEAD = Struct("=8s10IQdd64s64s512s")
HEAD_SIZE = 4096
OFFSET, ENDED, BEAT = 1024, 1032, 1040  # doubles: seconds to the clock of rank 0, when it ended, when it last lived
STATE = 1048  # unsigned, 8 bytes
LAST_CALL, LAST_EVENT = 1056, 1064  # unsigned, 8 bytes: the numbers of the newest slots, for who reads no others
PLACE, PLACE_SIZE = 1088, 192  # where it was at the last beat
CAUSE, CAUSE_SIZE = 1280, 2048  # how it ended, or what went wrong

# A call: number of the slot; sequence, number in its group, iteration; when it began, was agreed and ended; bytes; what
# and group as checksums; whether it failed; how many are waited for, and the first of them; texts; number of the slot.
CALL = Struct("=QQQqdddQQQIII12II192s104s64sQ")
BEGIN = Struct("=QQQqd16x16xQI60x192s104s64sQ")  # the same, with what is not known at the beginning left out
BEGAN, AGREED, CALL_ENDED, BYTES, FAILURE, WAITS = 32, 40, 48, 56, 84, 88
WHAT_SIZE, LINE_SIZE, GROUP_SIZE = 192, 104, 64

# An event: its number; when; the slot number of the call that it is about, or 0; text; its number.
EVENT = Struct("=QdQ480sQ")
EVENTS = 64
TEXT_SIZE = 480


class Shape(NamedTuple):
    """How many slots and events a record has.

    >>> Shape(512).size
    299008
    """

    slots: int
    events: int = EVENTS

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return HEAD_SIZE + self.slots * CALL.size + self.events * EVENT.size

    def call(self, number: int) -> int:
        """Return where the call with this number stands, which counts from 1."""
        return HEAD_SIZE + (number - 1) % self.slots * CALL.size

    def event(self, number: int) -> int:
        """Return where the event with this number stands, which counts from 1."""
        return HEAD_SIZE + self.slots * CALL.size + (number - 1) % self.events * EVENT.size


def head_of(text: str, size: int) -> bytes:
    """Return the beginning of a text in at most so many bytes, whole characters only.

    >>> head_of("a – b", 4)
    b'a '
    """
    data = text.encode(errors="replace")
    return data if len(data) <= size else data[:size].decode(errors="ignore").encode()


def tail_of(text: str, size: int) -> bytes:
    """Return the end of a text in at most so many bytes: of a path, what tells it from others.

    >>> tail_of("/data/someone/train.py:31", 15)
    b'...train.py:31'
    """
    data = text.encode(errors="replace")
    if len(data) <= size:
        return data
    rest = data[3 - size :].decode(errors="ignore")
    return b"..." + rest[rest.find("/") + 1 :].encode()
