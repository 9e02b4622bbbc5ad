"""Files: how many a process may have open, and how many its connections need."""

from __future__ import annotations

import os
import resource

from shardwise.errors import EngineError

EACH = 4  # files that a process has for every other: two channels, and up to two connections of torch
SPARE = 64  # files for all else
FULL = 0.75  # of the limit, beyond which there should be more


def make_room(size: int) -> None:
    """See that connections to all others fit into the limit of open files; raise it as far as this user may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _count_open() + EACH * size + SPARE
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise EngineError(
            f"{size} processes need about {needed} open files in each, and {hard} is the most that one may have.\n"
            f"  ulimit -n {needed}, or LimitNOFILE of the service that starts them, gives more."
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def keep_room() -> str:
    """Raise the limit of open files when most of them are open; return what to warn of when it cannot be raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = _count_open()
    if soft == resource.RLIM_INFINITY or count <= FULL * soft:
        return ""
    more = 2 * soft if hard == resource.RLIM_INFINITY else min(2 * soft, hard)
    if more > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
        return ""
    return f"{count} files are open in this process, and {hard} is the most that it may have (ulimit -n)"


def _count_open() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 32
