"""Memory: how much of it this process may have, and how much of that is left.

Limits are those of the machine, of the control groups that the process is in (version 2 or 1, as in a container), and
of its addresses (`ulimit -v`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from shardwise.errors import ArgumentError

ROOT = Path("/")
UNITS = {
    "": 1,
    "B": 1,
    **{f"{letter}B": 1000**k for k, letter in enumerate("KMGT", 1)},
    **{f"{letter}iB": 1024**k for k, letter in enumerate("KMGT", 1)},
}


class Share(NamedTuple):
    """A limit that this process shares with others, in bytes, and what is left of it."""

    limit: int
    left: int


def parse_size(text: str, name: str) -> int:
    """Return the bytes of a text such as "256MiB".

    >>> parse_size("256MiB", "limit"), parse_size("0", "limit"), parse_size("1.5 GB", "limit")
    (268435456, 0, 1500000000)
    """
    number = text.strip().rstrip("BKMGTbkmgti")
    unit = UNITS.get(text.strip()[len(number) :])
    with suppress(ValueError, OverflowError):
        if unit is not None and float(number) >= 0:
            return int(float(number) * unit)
    raise ArgumentError(f"{name} is a number of bytes such as 256MiB, 1GB or 0, got {text!r}.")


def memory_shares(root: Path = ROOT) -> list[Share]:
    """Return the limits of what this process may have, of those that this system tells.

    >>> all(share.left <= share.limit for share in memory_shares())
    True
    """
    shares = [*_of_machine(root), *_of_groups(root), *_of_addresses(root)]
    return [share._replace(left=max(0, min(share))) for share in shares]


def _of_machine(root: Path) -> Iterator[Share]:
    numbers = _numbers(root / "proc/meminfo")
    if "MemTotal:" in numbers and "MemAvailable:" in numbers:
        yield Share(numbers["MemTotal:"] * 1024, numbers["MemAvailable:"] * 1024)
        return
    with suppress(AttributeError, ValueError, OSError):  # another system, which may not tell what is left
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        yield Share(total, total)


def _of_groups(root: Path) -> Iterator[Share]:
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            names, top = ("memory.max", "memory.current", "inactive_file"), root / "sys/fs/cgroup"
        elif "memory" in controllers.split(","):
            names = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
            top = root / "sys/fs/cgroup/memory"
        else:
            continue
        # A group has at most what those around it have. In a container its own folder may be the top.
        folder = top / path.strip("/")
        for place in (folder, *folder.parents):
            limit, usage = (_text(place / name).strip() for name in names[:2])
            if limit.isdecimal() and usage.isdecimal():
                files = _numbers(place / "memory.stat").get(names[2], 0)  # which the kernel gives up first
                yield Share(int(limit), int(limit) - int(usage) + files)
            if place == top:
                break


def _of_addresses(root: Path) -> Iterator[Share]:
    with suppress(ImportError, ValueError, OSError):
        resource: Any = import_module("resource")  # not on Windows
        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit != resource.RLIM_INFINITY:
            pages = int((_text(root / "proc/self/statm").split() or ["0"])[0])
            yield Share(limit, limit - pages * resource.getpagesize())


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""


def _numbers(path: Path) -> dict[str, int]:
    words = [line.split() for line in _text(path).splitlines()]
    return {word[0]: int(word[1]) for word in words if len(word) > 1 and word[1].isdecimal()}
