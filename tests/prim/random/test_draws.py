"""Draws: the same values for any box, exact where they can be, and against long double arithmetic where not."""

from functools import partial
from math import prod

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardwise.layout.tiling import Box
from shardwise.prim.random import draws
from shardwise.prim.random.creation import BLOCK
from shardwise.prim.random.draws import POSITIONS, fill_with, workspace
from shardwise.prim.random.generator import Key

KEY = Key(3, 141592)
SCATTERED = np.arange(50_000, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)  # all over the 64 bits


def where(key: Key, work: np.ndarray) -> np.ndarray:
    return work[POSITIONS]


def at(positions: np.ndarray) -> np.ndarray:
    """A work space for these positions, with something in all its rows."""
    work = workspace(positions.size)
    work[...] = 0x7FF8_DEAD_BEEF_0001
    work[POSITIONS] = positions
    return work


@st.composite
def boxes(draw: st.DrawFn) -> tuple[tuple[int, ...], Box]:
    """A small box of a tensor that may be huge."""
    shape = draw(st.lists(st.sampled_from([0, 1, 2, 5, 40, 3000, 2**20, 2**33]), max_size=4))
    while prod(shape) >= 2**63:
        shape.pop()
    box, room = [], 3 * BLOCK
    for size in shape:
        length = draw(st.integers(0, min(size, max(1, room))))
        start = draw(st.integers(0, size - length))
        box.append((start, start + length))
        room //= max(1, length)
    return tuple(shape), tuple(box)


@given(boxes())
def test_an_element_is_drawn_for_its_row_major_position(case: tuple[tuple[int, ...], Box]):
    shape, box = case
    out = np.full([stop - start for start, stop in box], 7, np.uint64)
    fill_with(KEY, where, shape)(out, box)
    want = np.zeros((), object)
    for (start, stop), size in zip(box, shape, strict=True):
        want = want[..., None] * size + np.arange(start, stop).astype(object)
    assert out.shape == want.shape
    assert np.array_equal(out, want.astype(np.uint64))


def test_a_block_at_a_time_is_drawn_whatever_the_box():
    seen = []

    def draw(key: Key, work: np.ndarray) -> np.ndarray:
        seen.append(work.shape[1])  # from several threads
        return work[POSITIONS]

    for shape in [(3, BLOCK + 1), (7, 5, 1000), (100_000, 3), (200_000,), (20, BLOCK)]:
        seen.clear()
        fill_with(KEY, draw, shape)(np.empty(shape, np.uint64), tuple((0, n) for n in shape))
        assert sum(seen) == prod(shape)
        assert max(seen) <= BLOCK
        assert len(seen) <= 3 * prod(shape) / BLOCK  # and the blocks are not small


def test_a_box_of_a_tensor_far_larger_than_memory():
    shape, box = (2**31, 2**31), ((2**31 - 2, 2**31), (5, 8))
    out = np.empty((2, 3))
    fill_with(KEY, partial(draws.unit, digits=53), shape)(out, box)
    positions = [(row << 31) + column for row in range(2**31 - 2, 2**31) for column in range(5, 8)]
    want = draws.unit(KEY, at(np.array(positions, np.uint64)), 53)
    assert np.array_equal(out.reshape(-1), want)
    assert len(set(want)) == 6


@pytest.mark.parametrize("wide", [False, True])
def test_normal_values_do_not_depend_on_how_many_are_drawn_at_once_nor_on_alignment(wide: bool):
    many = draws.normal(KEY, at(SCATTERED), wide)
    assert many.dtype == np.float64
    for start, length in [(0, 1), (1, 1), (3, 7), (5, 8), (64, 33), (1000, 4099), (49_999, 1)]:
        assert np.array_equal(
            draws.normal(KEY, at(SCATTERED[start : start + length]), wide), many[start : start + length]
        )


@pytest.mark.parametrize("wide", [False, True])
def test_normal_values_against_library_functions_in_long_double(wide: bool):
    if wide:
        first = (draws.wide_bits(KEY, at(SCATTERED)) >> np.uint64(12)).astype(np.longdouble)
        second = (draws.wide_bits(KEY.beside(), at(SCATTERED)).view(np.int64) >> 12).astype(np.longdouble)
        scale = np.longdouble(2) ** -52
    else:
        both = draws.wide_bits(KEY, at(SCATTERED))
        first = (both >> np.uint64(32)).astype(np.longdouble)
        second = both.astype(np.uint32).view(np.int32).astype(np.longdouble)
        scale = np.longdouble(2) ** -32
    angle = np.arctan(np.longdouble(1)) * 4 * (second + 0.5) * scale
    want = np.sqrt(-2 * np.log((first + 0.5) * scale)) * np.sin(angle)
    error = np.abs(draws.normal(KEY, at(SCATTERED), wide) - want) / np.abs(want)
    assert error.max() < (1e-15 if wide else 1e-10)


@pytest.mark.parametrize("wide", [False, True])
def test_the_extreme_words_give_finite_normal_values(wide: bool, monkeypatch: pytest.MonkeyPatch):
    size = 64 if wide else 32
    first = np.array([0, 2**size - 1] * 4, f"uint{size}")
    second = np.array([0, 2 ** (size - 1) - 1, 2 ** (size - 1), 2**size - 1], f"uint{size}").repeat(2)
    monkeypatch.setattr(draws, "_words", lambda key, work: (first, second))
    monkeypatch.setattr(draws, "wide_bits", lambda key, work, row=0: first if key == KEY else second)
    found = draws.normal(KEY, workspace(8), wide)
    assert np.isfinite(found).all()
    assert np.abs(found).max() > (8.5 if wide else 6.7)  # as far out as there are bits


COUNTS = st.one_of(st.integers(1, 100), st.integers(1, 2**64), st.sampled_from([2**32, 2**32 + 1, 2**63 + 1, 2**64]))


@given(COUNTS)
@example(2**32)
@example(2**33)
@example(2**64)
def test_whole_numbers_are_the_exact_product(count: int):
    some = SCATTERED[:50]
    major, minor = (draws.wide_bits(key, at(some)).astype(object) for key in (KEY, KEY.beside()))
    if count <= 2**32 or count == 2**64:
        want = [int(a) * count >> 64 for a in major]
    else:
        want = [((int(a) << 64 | int(b)) * count) >> 128 for a, b in zip(major, minor, strict=True)]
    found = draws.whole(KEY, at(some), count)
    assert found.dtype == np.uint64
    assert found.astype(object).tolist() == want
    assert max(want) < count


def test_a_chance_is_compared_with_all_64_bits():
    values = draws.wide_bits(KEY, at(SCATTERED[:100]))
    middle = int(np.sort(values)[50])
    assert draws.below(KEY, at(SCATTERED[:100]), middle).sum() == 50
    assert draws.below(KEY, at(SCATTERED[:100]), middle + 1).sum() == 51
    assert not draws.below(KEY, at(SCATTERED), 0).any()
    assert draws.below(KEY, at(SCATTERED), 2**64).all()


@pytest.mark.parametrize("digits", [8, 11, 24, 53])
def test_unit_values_are_the_leading_bits(digits: int):
    found = draws.unit(KEY, at(SCATTERED), digits).astype(np.float64)
    scaled = found * 2.0**digits
    raw = draws.wide_bits(KEY, at(SCATTERED)) if digits > 24 else draws.bits(KEY, at(SCATTERED)).astype(np.uint64)
    assert np.array_equal(scaled.astype(np.uint64), raw >> np.uint64((64 if digits > 24 else 32) - digits))
    assert scaled.max() < 2.0**digits
