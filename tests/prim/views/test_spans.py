"""Spans and stretches: which elements of a dim they are, one by one."""

from hypothesis import given
from hypothesis import strategies as st

from shardwise.prim.views.spans import Span, Stretch, between, whole_but


@given(st.integers(0, 5), st.integers(0, 5), st.integers(1, 3), st.integers(0, 20), st.integers(0, 20))
def test_the_elements_of_a_span_inside_an_interval(start: int, length: int, step: int, low: int, high: int) -> None:
    span = Span(start, length, step)
    elements = [start + i * step for i in range(length)]
    assert span.below(low) == sum(e < low for e in elements)
    first, last = span.inside(low, high)
    assert elements[first:last] == [e for e in elements if low <= e < high]


@given(st.integers(1, 5), st.integers(0, 9), st.sampled_from([-1, 0, 1]))
def test_a_stretch_runs_over_its_span(length: int, first: int, step: int) -> None:
    elements = {first + i * step for i in range(length)}
    span = Stretch(length, first, step).span
    assert {span.start + i for i in range(span.length)} == elements


def test_windows_along_one_dim() -> None:
    assert between(2, 5) == Span(2, 3)
    assert between(5, 2) == Span(5, 0)
    assert whole_but((4, 5), 1, Span(1, 2)) == (Span(0, 4), Span(1, 2))
