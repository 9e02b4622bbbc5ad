"""Fits: the link whose modelled times come closest to those that were measured."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import exp, log
from typing import NamedTuple, cast

import numpy as np

from shardwise.plan.link import Link

STEPS = 10  # after which nothing changes any more


class Sample(NamedTuple):
    """What was timed: the messages and bytes that the busiest device received, the seconds, and the rounds."""

    messages: int
    received: float
    seconds: float
    rounds: int = 1


def fit_link(samples: Sequence[Sample]) -> Link:
    """Return the link that predicts the times of rounds best: by the least squares of how far off they are.

    A time that is predicted twice too long counts like one that is predicted twice too short.

    >>> times = [(m, size, 1e-4 + 2e-5 * (m - 1) + size / 1e9) for m in (1, 3) for size in (1e3, 1e6)]
    >>> link = fit_link([Sample(*row) for row in times])
    >>> round(link.latency, 9), round(link.overhead, 9), round(link.bandwidth)
    (0.0001, 2e-05, 1000000000)
    """
    columns = np.array([(float(s.rounds), float(s.messages - s.rounds), float(s.received)) for s in samples])
    seconds = np.array([s.seconds for s in samples])
    latency, overhead, per_byte = _fit(columns, seconds)
    # Where no size was large enough to tell, no link is faster than the fastest round.
    fastest = max(s.received / s.seconds for s in samples)
    return Link(float(latency), 1 / float(per_byte) if per_byte * fastest > 1e-3 else fastest, float(overhead))


def fit_overhead(left: Sequence[float], slopes: Sequence[float], samples: Sequence[Sample]) -> float:
    """Return the overhead that explains best what is left of some times, by how much each grows with it.

    >>> fit_overhead([2.0, 4.0, 0.0], [1.0, 2.0, 0.0], [Sample(3, 1, 10.0)] * 3)
    2.0
    """
    pairs = [(r / s.seconds, k / s.seconds) for r, k, s in zip(left, slopes, samples, strict=True)]
    squares = sum(k * k for _, k in pairs)
    return max(0.0, sum(r * k for r, k in pairs) / squares) if squares else 0.0


def typical_factor(predicted: Sequence[float], measured: Sequence[float]) -> float:
    """Return by which factor predictions are off, whichever way: the geometric mean.

    >>> typical_factor([1.0, 2.0], [2.0, 1.0])
    2.0
    """
    factors = [abs(log(p / m)) for p, m in zip(predicted, measured, strict=True)]
    return exp(sum(factors) / len(factors))


def _fit(columns: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    # None of the numbers is below 0. The least squares of the relative errors come first, then those of the logarithms
    # of predicted / measured, by steps of Gauss and Newton from where they are: so too long counts like too short.
    best = out = _least_squares(columns / seconds[:, None], np.ones(len(seconds)))
    least = np.inf
    for _ in range(STEPS):
        predicted = np.maximum(columns @ out, seconds / 1e3)
        far = np.log(seconds / predicted)
        if (error := float(far @ far)) < least:
            best, least = out, error
        out = _least_squares(columns / predicted[:, None], 1 + far)
    return best


def _least_squares(columns: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    # Of three numbers some may have to be 0: every choice of those that are not is tried.
    scale = np.abs(columns).max(axis=0)
    known = [k for k in range(columns.shape[1]) if scale[k]]
    best, least = np.zeros(columns.shape[1]), np.inf
    for some in (list(c) for size in range(len(known), 0, -1) for c in combinations(known, size)):
        found = cast(np.ndarray, np.linalg.lstsq(columns[:, some] / scale[some], wanted, rcond=None)[0]) / scale[some]
        error = float(np.square(columns[:, some] @ found - wanted).sum())
        if float(found.min()) >= 0 and error < least:
            best, least = np.zeros(columns.shape[1]), error
            best[some] = found
    return best
