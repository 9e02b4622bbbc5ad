"""Clocks: contenders timed in turn, within an allowance of time."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter, sleep
from typing import Any

Call = Callable[[], Any]
PAUSE = 0.002  # seconds after a contender in which threads that it left spinning go to sleep


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to measure: the seconds for a row, the rounds, and the sizes that areas choose by its name.

    >>> EFFORTS["quick"].seconds < EFFORTS["full"].seconds
    True
    """

    name: str
    seconds: float
    least: int
    most: int

    @property
    def tiny(self) -> bool:
        """Whether it is only to be seen that all works."""
        return self.name == "tiny"

    @property
    def full(self) -> bool:
        """Whether everything is measured."""
        return self.name == "full"


EFFORTS = {
    effort.name: effort
    for effort in (Effort("tiny", 0.02, 2, 2), Effort("quick", 0.5, 3, 15), Effort("full", 4.0, 7, 31))
}


@dataclass(frozen=True, slots=True)
class Case:
    """A call to time; what makes its argument anew each time is not timed."""

    call: Callable[[Any], Any]
    given: Call

    @classmethod
    def of(cls, call: Call) -> Case:
        """Return the case of a call without an argument."""
        return cls(lambda _: call(), lambda: None)


def first(case: Case) -> tuple[float, Any]:
    """Return the seconds of one call, and its result."""
    given = case.given()
    start = perf_counter()
    result = case.call(given)
    return perf_counter() - start, result


def timed(case: Case, times: int, warm: int = 2) -> float:
    """Return the seconds of one call, each made while the result of the one before is still there."""
    held, seconds = None, 0.0
    for i in range(-warm, times):  # after two, both results have had their buffers
        given = case.given()
        start = perf_counter()
        new = case.call(given)
        seconds += (perf_counter() - start) * (i >= 0)
        held = new
    del held
    return seconds / times


def looped(call: Call, times: int) -> float:
    """Return the seconds of one call of many: for calls so short that a clock between them would count."""
    start = perf_counter()
    for _ in range(times):
        call()
    return (perf_counter() - start) / times


def interleaved(cases: Mapping[str, Case], effort: Effort, short: bool = False) -> dict[str, list[float]]:
    """Return the seconds of a call of each contender, one per round, the contenders in turn within each round.

    `short` calls are made many at a time, between two looks at the clock. Rounds end with the allowance; a contender
    that would take more than three times its share of it has fewer, and at least two.
    """
    plans = {name: _planned(case, effort, effort.seconds / len(cases), short) for name, case in cases.items()}
    out: dict[str, list[float]] = {name: [] for name in cases}
    end = perf_counter() + effort.seconds
    with no_collection():
        for i in range(effort.most):
            if i >= effort.least and perf_counter() > end:
                break
            for name, (once, rounds) in plans.items():
                if i < rounds:
                    sleep(PAUSE)
                    out[name].append(once())
    return out


def _planned(case: Case, effort: Effort, share: float, short: bool) -> tuple[Callable[[], float], int]:
    """Return what times a contender once, and in how many rounds."""
    seconds = max(timed(case, 1, warm=0), 1e-7)
    if seconds < 0.1:  # it may not have been warm
        seconds = max(timed(case, 1, warm=0), 1e-7)
    times = max(1, min(1000, int((0.005 if short else 0.01) / seconds)))
    if short:
        return (lambda: looped(lambda: case.call(None), times)), effort.most
    rounds = max(2, min(effort.most, int(3 * share / seconds)))
    warm = 2 if rounds >= effort.least else 0  # what is that slow does not get slower by a cold cache
    return (lambda: timed(case, times, warm)), rounds


class Late(Exception):
    """A call took longer than it was given."""


def within(call: Call, limit: float) -> tuple[float, Any]:
    """Return the seconds of a call and its result, or the limit and None where it was stopped."""

    def stop(*_: Any) -> None:
        raise Late

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, limit)
    start = perf_counter()
    try:
        result = call()
        return perf_counter() - start, result
    except Late:
        return limit, None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep the collector of garbage out of what is timed."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()
