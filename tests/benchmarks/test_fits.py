"""Fits: powers are found again, and series are the rows that differ in one number."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.fits import exponent, means, series
from tests.benchmarks.cases import rows


@given(st.floats(-3, 3), st.floats(1e-6, 1e3), st.lists(st.integers(1, 10**6), min_size=2, max_size=9, unique=True))
def test_a_power_is_found_again(power, factor, xs):
    assert exponent([(x, factor * x**power) for x in xs]) == pytest.approx(power, abs=1e-6)


def test_series_are_rows_that_differ_in_one_number():
    (found,) = series(rows())
    assert (found.along, len(found.rows)) == ("bytes", 3)
    assert found.title == "growth: S0 -> S1, by bytes"
    assert found.exponents() == {"ours": pytest.approx(1.0)}
    assert series(rows()[:-1]) == []


def test_means_leave_cold_rows_out():
    assert means(rows()) == {"DTensor": pytest.approx(4.0), "JAX jit": pytest.approx(2.0)}
