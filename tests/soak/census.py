"""The census: what a process holds of the system, which must not grow however long it runs."""

import ctypes
import gc
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import linear_regression, median
from typing import NamedTuple

import shardwise as sw

# The allocators of NumPy, of torch and of the C library keep pages that are free in part. Where nothing leaks, the
# memory of two halves of a long run differs by less than a MiB; a leak of 1 KiB per call shows in 4,000 calls.
ALLOWED_MEMORY = 4 << 20  # bytes by which the later half may be above the earlier one
COUNTED = ("files", "threads", "sockets")  # which may not grow at all
LEAST = 6  # of samples that can be judged


class Sample(NamedTuple):
    """What a process holds after some calls."""

    calls: int
    memory: int  # bytes that are resident
    files: int
    threads: int
    sockets: int


def take_sample(calls: int) -> Sample:
    """Count what this process holds, when all that could be given back has been."""
    sw.clear_caches()
    gc.collect()
    with suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
    return count_now(calls)


def count_now(calls: int) -> Sample:
    """Count what this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    links = list[str]()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # that of the folder itself
            links.append(os.readlink(f"/proc/self/fd/{name}"))
    sockets = sum(link.startswith("socket:") for link in links)
    threads = len(os.listdir("/proc/self/task"))
    return Sample(calls, pages * os.sysconf("SC_PAGE_SIZE"), len(links), threads, sockets)


def find_growth(samples: Sequence[Sample]) -> list[str]:
    """Say what has grown: files, threads and sockets by any, memory by more than its allocators keep.

    A thread or a file that is there for a moment is no growth: of both halves the medians count.
    """
    if len(samples) < LEAST:
        return [f"{len(samples)} samples are too few to be judged"]
    middle = len(samples) // 2
    earlier, later = samples[:middle], samples[middle:]
    out = list[str]()
    for name in COUNTED:
        before, after = (median(getattr(sample, name) for sample in some) for some in (earlier, later))
        if after > before:
            out.append(f"{name} grew from {before:g} to {after:g} in {samples[-1].calls - samples[0].calls} calls")
    before, after = (median(sample.memory for sample in some) for some in (earlier, later))
    if after > before + ALLOWED_MEMORY:
        calls = samples[-1].calls - samples[0].calls
        out.append(f"memory grew from {before / 2**20:.1f} to {after / 2**20:.1f} MiB in {calls} calls")
    return out


def slope(samples: Sequence[Sample]) -> float:
    """Bytes of memory that every call adds."""
    calls = [sample.calls for sample in samples]
    return linear_regression(calls, [sample.memory for sample in samples]).slope if len(set(calls)) > 1 else 0.0
