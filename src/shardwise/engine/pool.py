"""The pool of buffers: memory that is used again once nothing refers to it.

Fresh pages cost more than the copy into them. A buffer is a block of bytes that the pool keeps; what it
hands out are NumPy views of it. NumPy counts every view, slice, DLPack export or torch tensor that still
shares the block as a reference to it, so the block is free exactly when only the pool refers to it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import prod
from sys import getrefcount
from threading import RLock

import numpy as np

SMALLEST = 1 << 16  # bytes below which the allocator of NumPy is as good
HUGE = 1 << 21  # bytes of a huge page; blocks of several begin at the start of one
LOOKS = 256  # blocks that are looked at before a fresh one is taken
PAGE, STEP = 4096, 256  # bytes of a page, and by how many the places differ where in a page arrays begin

Block = tuple[np.ndarray, int]  # bytes, and where in them arrays begin


class Pool:
    """Buffers to use again: the pool knows blocks of at most `limit` bytes in all.

    >>> pool = Pool(limit=1 << 24)
    >>> first = pool.empty((1024, 1024), np.dtype("float32"))
    >>> address = first.ctypes.data
    >>> del first
    >>> pool.empty((1024, 1024), np.dtype("float32")).ctypes.data == address
    True
    """

    def __init__(self, limit: int = 1 << 30) -> None:
        """Keep at most `limit` bytes."""
        self.limit = limit
        self.allocated = 0  # bytes ever taken fresh
        self._known = 0  # bytes of all blocks in the lists, used or not
        self._place = 0  # in a page, where the arrays of the last fresh block begin
        self._blocks: dict[int, list[Block]] = {}
        # An allocation may run the garbage collector, and that a finalizer which allocates: reentrant.
        self._lock = RLock()

    def empty(self, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
        """Return an array with arbitrary contents."""
        size = prod(shape) * dtype.itemsize
        if size < SMALLEST:
            self.allocated += size
            return np.empty(shape, dtype)
        capacity = _capacity(size)
        with self._lock:
            # The last that were handed out come first: what has just been dropped is still in the cache.
            blocks = self._blocks.get(capacity) or []
            for i in range(len(blocks) - 1, max(-1, len(blocks) - 1 - LOOKS), -1):
                entry = blocks[i]
                block, start = entry  # referred to from here on, so that no finalizer that runs meanwhile takes it
                if getrefcount(block) == UNUSED:
                    if blocks[i] is entry:
                        blocks.append(blocks.pop(i))
                    return np.ndarray(shape, dtype, block, start)
            block, start = self._fresh(capacity)
            return np.ndarray(shape, dtype, block, start)

    def _fresh(self, capacity: int) -> Block:
        self._trim(self.limit - capacity)
        # NumPy asks for huge pages, which a block only gets from the first 2 MiB boundary in it. Arrays begin at
        # different places in a page: a processor takes a read for one of what is just being written if the places in
        # their pages are the same, and waits, so that copies between arrays which begin alike take up to twice as long.
        boundary = HUGE if capacity >= 2 * HUGE else PAGE
        block = np.empty(capacity + boundary + PAGE, np.uint8)
        self._place = (self._place + STEP) % PAGE
        start = -block.__array_interface__["data"][0] % boundary + self._place
        self.allocated += capacity
        if capacity <= self.limit:
            self._blocks.setdefault(capacity, []).append((block, start))
            self._known += capacity
        return block, start

    @property
    def unused_bytes(self) -> int:
        """How many bytes the pool keeps that nobody uses."""
        with self._lock:
            return sum(
                capacity
                for capacity, blocks in self._blocks.items()
                for entry in blocks
                if _references(entry) == UNUSED
            )

    @property
    def blocks(self) -> int:
        """How many blocks the pool knows, in use or not."""
        return sum(map(len, self._blocks.values()))

    def clear(self) -> None:
        """Give back all memory that nobody uses."""
        with self._lock:
            self._drop(0, unused=True)

    def _trim(self, most: int) -> None:
        if self._known > most:
            self._drop(most, unused=True)
        if self._known > most:
            self._drop(most, unused=False)

    def _drop(self, most: int, *, unused: bool) -> None:
        # Oldest first. A block in use can be forgotten too: it goes when its last user does.
        for capacity, blocks in list(self._blocks.items()):
            rest: list[Block] = []
            for entry in blocks:
                if self._known > most and (not unused or _references(entry) == UNUSED):
                    self._known -= capacity
                else:
                    rest.append(entry)
            if rest:
                self._blocks[capacity] = rest
            else:
                del self._blocks[capacity]


def _references(entry: Block) -> int:
    block, _ = entry
    return getrefcount(block)


def _capacity(size: int) -> int:
    # Round up to an eighth of the power of two below, so that nearly equal sizes share blocks.
    step = max(4096, 1 << (size.bit_length() - 4))
    return -(-size // step) * step


# What the count is when only the pool and who asks refer to a block; interpreters differ. Without a global lock counts
# say nothing about other threads, so there no block is ever taken to be unused.
UNUSED = _references((np.empty(0, np.uint8), 0)) if getattr(sys, "_is_gil_enabled", lambda: True)() else -1
