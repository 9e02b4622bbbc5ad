"""Parts between two bounds have what each part by itself has of them."""

from math import prod

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shardwise.layout.placement import Edge, Split
from shardwise.layout.tiling import DimTiling
from shardwise.plan.span import Span


@st.composite
def tilings(draw: st.DrawFn) -> tuple[DimTiling, tuple[int, int], tuple[tuple[int, int], ...]]:
    """A dim that is cut in some way, an interval of it, and the axes that cut it."""
    sizes = draw(st.lists(st.integers(2, 4), max_size=3))
    parts, size = prod(sizes), draw(st.integers(0, 30))
    digits, below = [], 1
    for each in sizes:
        digits.append((below * draw(st.integers(1, 3)), each))
        below = digits[-1][0] * each
    splits: list[Split] = ["balanced", "chunk", "offsets"]
    edges: list[Edge] = ["clip", "pad"]
    split, offsets = draw(st.sampled_from(splits)), None
    if split == "offsets":
        inner = sorted(draw(st.lists(st.integers(0, size), min_size=parts - 1, max_size=parts - 1)))
        offsets = (0, *inner, size)
    halo, edge = (0, 0), draw(st.sampled_from(edges))
    if draw(st.booleans()):
        halo = (draw(st.integers(0, 3)), draw(st.integers(0, 3)))
    tiling = DimTiling(size, parts, split, offsets, halo, edge)
    low, high = sorted((draw(st.integers(0, size)), draw(st.integers(0, size))))
    try:
        tiling.check("dim 0")
    except ValueError:
        tiling = DimTiling(size, parts, split, offsets)
    return tiling, (low, high), tuple(draw(st.permutations(digits)))


def offset(digits: tuple[tuple[int, int], ...], part: int) -> int:
    places = [prod(size for _, size in digits[i + 1 :]) for i in range(len(digits))]
    return sum(part // place % size * divisor for place, (divisor, size) in zip(places, digits, strict=True))


@given(tilings())
def test_a_span_has_the_parts_that_hold_something_of_an_interval(case) -> None:
    tiling, (low, high), digits = case
    span = Span.over(tiling, low, high, digits)
    held = {part: tiling.extent(part) for part in range(tiling.parts)}
    want = {p: (max(a, low), min(b, high)) for p, (a, b) in held.items() if max(a, low) < min(b, high)}
    assert list(span.parts) == list(want)
    assert len(span) == len(want)
    assert [span.interval(k) for k in range(len(span))] == list(want.values())
    assert list(zip(*(bound.tolist() for bound in span.intervals), strict=True)) == list(want.values())
    assert [span.offset(k) for k in range(len(span))] == [offset(digits, part) for part in want]
    assert span.offsets.tolist() == [offset(digits, part) for part in want]
    assert [span.find(part) for part in range(tiling.parts)] == [
        list(want).index(part) if part in want else None for part in range(tiling.parts)
    ]
    assert span.size == sum(b - a for a, b in want.values())
    assert span.lengths == tuple(sorted({b - a for a, b in want.values()}))


@given(tilings(), st.data())
def test_parts_are_chosen_by_their_positions(case, data: st.DataObject) -> None:
    tiling, bounds, digits = case
    span, marks, below = Span.over(tiling, bounds[0], bounds[1], digits), [], 1
    for _, size in reversed(digits):
        if data.draw(st.booleans()):
            marks.append((below, size))
        below *= size
    at = tuple(data.draw(st.integers(0, size - 1)) for _, size in marks)
    alike = [p for p in list(span.parts) if all(p // b % s == k for (b, s), k in zip(marks, at, strict=True))]
    some = span.at(tuple(marks), at)
    assert list(some.parts) == alike
    assert span.is_alike(tuple(marks), at) == (len(alike) == len(span))
    assert [some.find(part) for part in alike] == list(range(len(alike)))
    assert some.size == sum(stop - start for start, stop in map(some.interval, range(len(some))))


def test_a_million_parts_are_not_listed() -> None:
    span = Span.over(DimTiling(2**40, 2**20), 5, 2**40, ((1, 2**20),))
    assert (len(span), span.interval(1), span.offset(2**19)) == (2**20, (2**20, 2**21), 2**19)
    assert isinstance(span.parts, range)
    assert span.size == 2**40 - 5


def test_a_whole_interval_belongs_to_everybody() -> None:
    span = Span.whole((3, 7))
    assert (len(span), span.interval(0), span.offset(0), span.size, span.lengths) == (1, (3, 7), 0, 4, (4,))
    assert [bound.tolist() for bound in span.intervals] == [[3], [7]]
    assert np.array_equal(span.offsets, [0])
