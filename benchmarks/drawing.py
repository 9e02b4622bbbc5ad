"""Drawing: random numbers on one device, with the bits of any layout, beside the generators of one sequence."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from benchmarks.clock import Case, Effort, interleaved
from benchmarks.row import EQUAL, Measure, Row

COUNTS = {"tiny": (1 << 14,), "quick": (1 << 20,), "full": (1 << 20, 1 << 24)}
RATE = 0.1
Calls = dict[str, Callable[[], Any]]


def count(effort: Effort) -> int:
    """Return how many rows there will be."""
    return len(COUNTS[effort.name]) * len(_cores()) * len(_calls(1))


def rows(effort: Effort) -> Iterator[Row]:
    """Measure, and yield the rows."""
    for size in COUNTS[effort.name]:
        for cores in _cores():
            with _limit_cores(cores):
                for name, calls in _calls(size).items():
                    checked = _check(name, {who: np.asarray(call()) for who, call in calls.items()})
                    cases = {who: Case.of(call) for who, call in calls.items()}
                    warm = {who: Measure.of(seconds) for who, seconds in interleaved(cases, effort).items()}
                    where = ("drawing", name, f"{size >> 10} Ki", f"{cores} core{'s' * (cores > 1)}")
                    yield Row(*where, "warm", "seconds", warm.pop("ours"), warm, checked=checked)


def _cores() -> tuple[int, ...]:
    return (1, 2) if len(os.sched_getaffinity(0)) > 1 else (1,)


@contextmanager
def _limit_cores(cores: int) -> Iterator[None]:
    import torch

    before, threads = os.sched_getaffinity(0), torch.get_num_threads()
    os.sched_setaffinity(0, sorted(before)[:cores])
    torch.set_num_threads(cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
        torch.set_num_threads(threads)


def _calls(size: int) -> dict[str, Calls]:
    import torch

    from shardwise import asarray, random

    rng, key, values = np.random.default_rng(0), random.key(0), np.ones(size, np.float32)
    ours, theirs = asarray(values), torch.tensor(values)
    calls: dict[str, Calls] = {
        f"normal, {dtype}": {
            "ours": lambda dtype=dtype: random.normal(key, size, dtype).numpy(),
            "NumPy": lambda dtype=dtype: rng.standard_normal(size, dtype),
            "torch": lambda dtype=dtype: torch.randn(size, dtype=getattr(torch, dtype)),
        }
        for dtype in ("float32", "float64")
    }
    kept = np.float32(1 / (1 - RATE))
    calls["dropout, float32"] = {
        "ours": lambda: random.dropout(key, ours, RATE).numpy(),
        "NumPy": lambda: values * (rng.random(size, np.float32) >= RATE) * kept,
        "torch": lambda: torch.nn.functional.dropout(theirs, RATE),
    }
    return calls


def _check(name: str, results: dict[str, np.ndarray]) -> str:
    # Each draws its own numbers, so that only what they have in common can be compared: mean and spread.
    mean, spread = (1.0, (RATE / (1 - RATE)) ** 0.5) if name.startswith("dropout") else (0.0, 1.0)
    wrong = [
        who
        for who, values in results.items()
        if abs(values.mean(dtype=float) - mean) > 6 * spread / values.size**0.5
        or abs(values.std(dtype=float) - spread) > 12 / values.size**0.5
    ]
    return f"failed: another distribution: {', '.join(wrong)}" if wrong else EQUAL
