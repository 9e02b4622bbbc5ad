"""Fits: numbers that are known are found again, exact and in noise, and nothing is below 0."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise.plan.fit import Sample, fit_link, fit_overhead, typical_factor

SIZES = [1024 * 4**k for k in range(9)]


def times(latency: float, overhead: float, bandwidth: float, messages=(1, 3, 3, 3), noise=None) -> list[Sample]:
    """The rounds of a machine whose numbers are known; `noise` multiplies every time."""
    out = []
    for size in SIZES:
        for count in messages:
            seconds = latency + overhead * (count - 1) + size / bandwidth
            out.append(Sample(count, size, seconds * (1.0 if noise is None else noise())))
    return out


@given(st.floats(1e-6, 1e-2), st.floats(0, 1), st.floats(1e7, 1e11))
def test_exact_times_give_the_numbers_back(latency: float, part: float, bandwidth: float) -> None:
    link = fit_link(times(latency, part * latency, bandwidth))
    assert link.latency == pytest.approx(latency, rel=1e-6)
    assert link.overhead == pytest.approx(part * latency, rel=1e-6, abs=1e-9 * latency)
    # Where the largest message takes a thousandth of the latency, its time says little of the bandwidth.
    assert link.bandwidth == pytest.approx(bandwidth, rel=1e-4)


@pytest.mark.parametrize("seed", range(12))
def test_numbers_are_found_in_noise(seed: int) -> None:
    random = np.random.default_rng(seed)
    samples = times(6e-4, 2e-4, 9e8, noise=lambda: float(np.exp(random.normal(0, 0.2))))
    link = fit_link(samples)
    assert link.latency == pytest.approx(6e-4, rel=0.35)
    assert link.overhead == pytest.approx(2e-4, rel=0.6)
    assert link.bandwidth == pytest.approx(9e8, rel=0.2)


def test_too_long_counts_like_too_short() -> None:
    # Of two times of which one is four times the other, twice the shorter one is as far from both.
    samples = [Sample(1, 0, seconds) for seconds in (1.0, 4.0)]
    assert fit_link([*samples, Sample(1, 1, 2.0)]).latency == pytest.approx(2.0, rel=0.01)


def test_no_number_is_below_0() -> None:
    # Large messages that are faster than in proportion would make the latency negative.
    link = fit_link([Sample(1, size, (size / 1e9) ** 1.2) for size in SIZES])
    assert link.latency == 0
    assert link.bandwidth > 0
    # Several messages that take less than one would make the overhead negative.
    assert fit_link([Sample(m, size, 1e-3 / m) for m in (1, 2, 3) for size in SIZES]).overhead == 0


def test_without_large_messages_a_link_is_no_faster_than_what_was_seen() -> None:
    link = fit_link([Sample(1, size, 1e-3) for size in (1000, 2000)])
    assert link.bandwidth == pytest.approx(2000 / 1e-3)


def test_two_rounds_take_two_latencies() -> None:
    samples = [Sample(2 * m, size, 2e-3 + 2e-4 * (m - 1) + size / 1e9, 2) for m in (1, 3) for size in SIZES]
    link = fit_link(samples)
    assert (link.latency, link.overhead) == (pytest.approx(1e-3), pytest.approx(1e-4))


def test_an_overhead_explains_what_is_left() -> None:
    samples = [Sample(3, 1, seconds) for seconds in (1.0, 2.0, 5.0)]
    assert fit_overhead([0.2, 0.4, 1.0], [2.0, 4.0, 10.0], samples) == pytest.approx(0.1)
    assert fit_overhead([-0.2, -0.4, -1.0], [2.0, 4.0, 10.0], samples) == 0
    assert fit_overhead([0.2], [0.0], samples[:1]) == 0


def test_the_typical_factor_is_a_geometric_mean_of_how_far_off_predictions_are() -> None:
    assert typical_factor([1, 1], [1, 1]) == 1
    assert typical_factor([2, 1, 3], [1, 8, 3]) == pytest.approx(16 ** (1 / 3))
