"""Threads: pieces of work that the cores of this process share."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from shardwise.caches import cache

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def thread_count() -> int:
    """Return how many threads work at a time, unless an engine is told otherwise: one per core, but at most eight."""
    return min(8, os.cpu_count() or 1)


@cache(entries=1)
def _workers(process: int) -> ThreadPoolExecutor:
    # The threads of a process are not there in its forks.
    return ThreadPoolExecutor(thread_name_prefix="shardwise")


def share(work: Callable[[deque[Piece]], Result], pieces: Sequence[Piece], threads: int) -> list[Result]:
    """Return what threads, each given the pieces that are left, make of those that they take.

    >>> sum(share(lambda left: sum(take(left)), [1, 2, 3], threads=2))
    6
    """
    left = deque(pieces)
    helpers = [_workers(os.getpid()).submit(work, left) for _ in range(min(threads, len(pieces)) - 1)]
    try:
        own = work(left)
    finally:
        left.clear()
        others = [helper.result() for helper in helpers if not helper.cancel()]
    return [own, *others]


def take(left: deque[Piece]) -> Iterator[Piece]:
    """Yield pieces until none is left: whoever is free takes the next, and a core that is busy holds nothing up.

    >>> list(take(deque([1, 2])))
    [1, 2]
    """
    while left:
        try:
            yield left.popleft()
        except IndexError:  # another thread was faster
            return
