"""The pool of buffers: memory that is used again once nothing refers to it.

Fresh pages cost more than the copy into them. A buffer is a block of bytes that the pool keeps; what it
hands out are NumPy views of it. NumPy counts every view, slice, DLPack export or torch tensor that still
shares the block as a reference to it, so the block is free exactly when only the pool refers to it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from math import prod
from sys import getrefcount
from time import monotonic

import numpy as np

from shardwise.caches import cache, call_when_cleared
from shardwise.engine.memory import memory_shares, parse_size
from shardwise.errors import ArgumentError
from shardwise.locks import call_in_child, make_lock

SMALLEST = 1 << 16  # bytes below which the allocator of NumPy is as good
HUGE = 1 << 21  # bytes of a huge page; blocks of several begin at the start of one
LOOKS = 256  # blocks that are looked at before a fresh one is taken
PAGE, STEP = 4096, 256  # bytes of a page, and by how many the places differ where in a page arrays begin

MOST = 1 << 30  # bytes that a pool keeps, unless it is told otherwise,
PART = 8  # but at most this part of the memory that the process may have
SCARCE = 16  # memory is short where less than this part of it is left
GLANCE = 0.25  # seconds between two looks at how much is left
IDLE = 10.0  # seconds for which a block is kept that nobody uses; it goes at the first look at the clock after that,
EVERY = 64  # of which there is one per so many arrays, and one per fresh block


class _Block:
    __slots__ = ("bytes", "seen", "start")

    def __init__(self, array: np.ndarray, start: int, seen: int) -> None:
        self.bytes, self.start = array, start  # and where in it arrays begin
        self.seen = seen  # the last round in which somebody used it


class Pool:
    """Buffers to use again: the pool knows blocks of at most `limit` bytes in all.

    The limit is a number of bytes or a text such as "256MiB"; unless it is given that of SHARDWISE_POOL, or else an
    eighth of the memory that this process may have, and 1 GiB at most.

    >>> pool = Pool(limit="16MiB")
    >>> first = pool.empty((1024, 1024), np.dtype("float32"))
    >>> address = first.ctypes.data
    >>> del first
    >>> pool.empty((1024, 1024), np.dtype("float32")).ctypes.data == address
    True
    >>> pool.unused_bytes, pool.clear(), pool.unused_bytes
    (4194304, None, 0)
    """

    def __init__(self, limit: int | str | None = None) -> None:
        """Keep at most `limit` bytes."""
        self.limit = _check(limit)
        self.allocated = 0  # bytes of all blocks that were ever taken fresh
        self._known = 0  # bytes of all blocks in the lists, used or not
        self._place = 0  # in a page, where the arrays of the last fresh block begin
        self._blocks: dict[int, list[_Block]] = {}
        self._takes = self._round = 0
        self._aged, self._glanced = monotonic(), float("-inf")
        self._is_short = False
        self._lock = make_lock()
        call_in_child(self._forget)
        call_when_cleared(self.clear)

    def empty(self, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
        """Return an array with arbitrary contents."""
        return self.take(shape, dtype)[0]

    def take(self, shape: Sequence[int], dtype: np.dtype) -> tuple[np.ndarray, int]:
        """Return an array with arbitrary contents, and how many bytes were allocated for it."""
        size = prod(shape) * dtype.itemsize
        if size < SMALLEST:
            return np.empty(shape, dtype), size
        capacity = _capacity(size)
        with self._lock:
            self._takes += 1
            if not self._takes % EVERY:
                self._age()
            # The last that were handed out come first: what has just been dropped is still in the cache.
            blocks = self._blocks.get(capacity) or []
            for i in range(len(blocks) - 1, max(-1, len(blocks) - 1 - LOOKS), -1):
                entry = blocks[i]
                block = entry.bytes  # referred to from here on, so that no finalizer that runs meanwhile takes it
                if getrefcount(block) == UNUSED:
                    entry.seen = self._round
                    if blocks[i] is entry:
                        blocks.append(blocks.pop(i))
                    return np.ndarray(shape, dtype, block, entry.start), 0
            fresh = self._fresh(capacity)
            return np.ndarray(shape, dtype, fresh.bytes, fresh.start), capacity

    def _fresh(self, capacity: int) -> _Block:
        self._age()
        if self._has_to_save():
            self.clear()
        self._trim(self.limit - capacity)
        # NumPy asks for huge pages, which a block only gets from the first 2 MiB boundary in it. Arrays begin at
        # different places in a page: a processor takes a read for one of what is just being written if the places in
        # their pages are the same, and waits, so that copies between arrays which begin alike take up to twice as long.
        boundary = HUGE if capacity >= 2 * HUGE else PAGE
        try:
            array = np.empty(capacity + boundary + PAGE, np.uint8)
        except MemoryError:
            self.clear()
            array = np.empty(capacity + boundary + PAGE, np.uint8)
        self._place = (self._place + STEP) % PAGE
        start = -array.__array_interface__["data"][0] % boundary + self._place
        self.allocated += capacity
        block = _Block(array, start, self._round)
        if capacity <= self.limit and UNUSED > 0:
            self._blocks.setdefault(capacity, []).append(block)
            self._known += capacity
        return block

    @property
    def unused_bytes(self) -> int:
        """How many bytes the pool keeps that nobody uses."""
        with self._lock:
            return sum(capacity for capacity, blocks in self._blocks.items() for block in blocks if _is_unused(block))

    @property
    def blocks(self) -> int:
        """How many blocks the pool knows, in use or not."""
        return sum(map(len, self._blocks.values()))

    def clear(self) -> None:
        """Give back all memory that nobody uses."""
        with self._lock:
            self._drop(_is_unused)

    def _forget(self) -> None:
        # In a forked child. Another thread may have been in the middle of something; and to write into pages that are
        # the parent's too would cost more than fresh ones. Blocks in use go with their last user.
        self._blocks, self._known = {}, 0

    def _has_to_save(self) -> bool:
        now = monotonic()
        if now - self._glanced >= GLANCE:
            self._glanced = now
            self._is_short = any(share.left < share.limit // SCARCE for share in memory_shares())
        return self._is_short

    def _age(self) -> None:
        # Drop what nobody has used since the round before this.
        now = monotonic()
        if now - self._aged < IDLE:
            return
        self._aged, self._round = now, self._round + 1
        self._drop(self._is_idle)

    def _is_idle(self, block: _Block) -> bool:
        if _is_unused(block):
            return block.seen < self._round - 1
        block.seen = self._round
        return False

    def _trim(self, most: int) -> None:
        if self._known > most:
            self._drop(lambda block: self._known > most and _is_unused(block))
        if self._known > most:
            self._drop(lambda block: self._known > most)

    def _drop(self, goes: Callable[[_Block], bool]) -> None:
        # Oldest first. A block in use can be forgotten too: it goes when its last user does.
        for capacity, blocks in list(self._blocks.items()):
            rest: list[_Block] = []
            for block in tuple(blocks):  # a finalizer may take some meanwhile
                if goes(block):
                    self._known -= capacity
                else:
                    rest.append(block)
            if rest:
                self._blocks[capacity] = rest
            else:
                self._blocks.pop(capacity, None)
        self._known = sum(capacity * len(blocks) for capacity, blocks in self._blocks.items())


def _check(limit: int | str | None) -> int:
    if limit is None:
        text = os.environ.get("SHARDWISE_POOL")
        return _usual_limit() if text is None else parse_size(text, "SHARDWISE_POOL")
    if isinstance(limit, str):
        return parse_size(limit, "Pool: limit")
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise ArgumentError(f"Pool: limit is a number of bytes such as 1 << 28 or '256MiB', got {limit!r}.")
    return limit


@cache(entries=1)
def _usual_limit() -> int:
    return min([MOST, *(share.limit // PART for share in memory_shares())])


def _references(block: _Block) -> int:
    array = block.bytes
    return getrefcount(array)


def _is_unused(block: _Block) -> bool:
    return _references(block) == UNUSED


def _capacity(size: int) -> int:
    # Round up to an eighth of the power of two below, so that nearly equal sizes share blocks.
    step = max(4096, 1 << (size.bit_length() - 4))
    return -(-size // step) * step


# What the count is when only the pool and who asks refer to a block; interpreters differ. Without a global lock counts
# say nothing about other threads, so there no block is ever taken to be unused, and none is kept.
UNUSED = _references(_Block(np.empty(0, np.uint8), 0, 0)) if getattr(sys, "_is_gil_enabled", lambda: True)() else -1
