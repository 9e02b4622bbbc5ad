"""Draws: random values for any positions of a tensor, and for boxes of it.

All that is done to the words of the generator are sums, products, quotients, square roots and shifts, which every
machine rounds alike: no vectorised logarithm or cosine, which may differ between machines in the last bit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import log, pi, prod
from typing import Any

import numpy as np

from shardwise.caches import cache
from shardwise.engine.threads import share, take, thread_count
from shardwise.layout.layout import Shape
from shardwise.layout.tiling import Box
from shardwise.prim.random.creation import BLOCK, Fill
from shardwise.prim.random.generator import Key, threefry
from shardwise.prim.random.series import LOGARITHM, ROOT_HALF, SINE

# A draw makes values for positions in the tensor. They are the first row of the work space, an array of uint64 that
# is made once for many blocks, because fresh memory costs more than the work in it; the values may lie in another row.
Draw = Callable[[Key, np.ndarray], np.ndarray]
Part = tuple[np.ndarray, int]  # of an array, flat, and the position of its first row
POSITIONS, WORDS, SPARE, BITS, MORE_BITS, RADIUS, ANGLE = range(7)

HALF = np.uint64(32)
MANY = 1 << 12  # positions from which on compiled draws are loaded, if they are installed
LOW = np.uint64(2**32 - 1)


def fill_with(key: Key, draw: Draw, shape: Shape) -> Fill:
    """Return what fills boxes of a random tensor of this shape.

    >>> out = np.empty((1, 2), "uint64")
    >>> fill_with(Key(0, 42), lambda key, work: work[POSITIONS], (10, 10))(out, ((7, 8), (3, 5)))
    >>> out
    array([[73, 74]], dtype=uint64)
    """

    def fill(out: np.ndarray, box: Box) -> None:
        if not out.size:
            return
        parts, stride, inner = _split(out, box, shape)
        most = max([part.size for part, _ in parts])
        compiled = load_compiled() if out.size >= MANY else None
        steps = np.arange(most // inner.size, dtype=np.uint64)

        def work(left: deque[Part]) -> None:
            space = workspace(most)
            for part, first in take(left):
                used = space[:, : part.size]
                if compiled is not None:
                    compiled.fill_positions(np.uint64(first), stride, inner, used[POSITIONS])
                else:
                    rows = steps[: part.size // inner.size] * stride + np.uint64(first)
                    np.add(rows[:, None], inner, out=used[POSITIONS].reshape(rows.size, inner.size))
                np.copyto(part, draw(key, used), casting="unsafe")

        share(work, parts, 1 if compiled is None else thread_count())

    return fill


def workspace(size: int) -> np.ndarray:
    """Return the work space of a draw for so many positions, which are to be written into its first row."""
    return np.empty((ANGLE + 1, size), np.uint64)


def _split(out: np.ndarray, box: Box, shape: Shape) -> tuple[list[Part], np.uint64, np.ndarray]:
    # Contiguous parts of at most BLOCK elements, flat, each with the position that its first row begins at, how far
    # rows are apart, and what is added for the elements of a row.
    dim = len(box)  # dims from here on are taken whole, and the one before in pieces
    while dim and prod(out.shape[dim - 1 :]) <= BLOCK:
        dim -= 1
    strides = [prod(shape[k + 1 :]) for k in range(len(shape))]
    inner = np.zeros((), np.uint64)
    for (start, stop), stride in zip(box[dim:], strides[dim:], strict=True):
        inner = inner[..., None] + np.arange(start, stop, dtype=np.uint64) * np.uint64(stride)
    inner = inner.reshape(-1)
    if not dim:
        return [(out.reshape(-1), 0)], np.uint64(0), inner
    (low, high), stride = box[dim - 1], strides[dim - 1]
    step = -(-(high - low) // -(-(high - low) // (BLOCK // inner.size)))  # so that all pieces are about the same
    parts = [
        (out[(*index, slice(begin - low, begin - low + step))].reshape(-1), base + begin * stride)
        for index in np.ndindex(out.shape[: dim - 1])
        for base in [sum((box[k][0] + i) * strides[k] for k, i in enumerate(index))]
        for begin in range(low, high, step)
    ]
    return parts, np.uint64(stride), inner


@cache()
def load_compiled() -> Any:
    """Return the module of compiled draws, or None where numba is not installed or does not fit NumPy."""
    try:
        from shardwise.prim.random import compiled
    except ImportError:
        return None
    return compiled


def _find_compiled(work: np.ndarray) -> Any:
    return load_compiled() if work.shape[1] >= MANY else None


# -- bits ----------------------------------------------------------------------------------------------


def _words(key: Key, work: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    positions, both, spare = work[POSITIONS], work[WORDS].view(np.uint32), work[SPARE]
    high, low = both[: positions.size], both[positions.size :]
    if compiled := _find_compiled(work):
        compiled.fill_words(compiled.schedule(key), positions, high, low)
        return high, low
    np.right_shift(positions, HALF, out=spare)
    np.copyto(high, spare, casting="unsafe")
    np.copyto(low, positions, casting="unsafe")
    threefry(key, high, low, spare.view(np.uint32)[: positions.size])
    return high, low


def bits(key: Key, work: np.ndarray) -> np.ndarray:
    """Return 32 random bits for each position."""
    high, low = _words(key, work)
    high ^= low
    return high


def wide_bits(key: Key, work: np.ndarray, row: int = BITS) -> np.ndarray:
    """Return 64 random bits for each position, in a row of the work space."""
    out = work[row]
    if compiled := _find_compiled(work):
        compiled.fill_wide(compiled.schedule(key), work[POSITIONS], out)
        return out
    high, low = _words(key, work)
    out[...] = high
    out <<= HALF
    out |= low
    return out


# -- distributions -------------------------------------------------------------------------------------


def unit(key: Key, work: np.ndarray, digits: int) -> np.ndarray:
    """Return multiples of 2**-digits in [0, 1), all equally probable, for up to 53 binary digits."""
    if digits > 24:
        whole_part, out = wide_bits(key, work), work[RADIUS].view(np.float64)
        whole_part >>= np.uint64(64 - digits)
    else:
        whole_part, out = bits(key, work), work[RADIUS].view(np.float32)[: work.shape[1]]
        whole_part >>= np.uint32(32 - digits)
    np.copyto(out, whole_part, casting="unsafe")
    out *= out.dtype.type(2.0**-digits)
    return out


def between(
    key: Key, work: np.ndarray, digits: int, low: float, width: float, limits: tuple[float, float]
) -> np.ndarray:
    """Return low + width u for u in [0, 1), not outside the limits."""
    out = work[ANGLE].view(np.float64)
    out[...] = unit(key, work, digits)
    out *= width
    out += low
    return np.clip(out, *limits, out=out)


def below(key: Key, work: np.ndarray, chance: int) -> np.ndarray:
    """Return what is true with a probability of `chance` in 2**64."""
    if chance >= 2**64:
        return np.ones(len(work[POSITIONS]), bool)
    if compiled := _find_compiled(work):
        out = work[BITS].view(bool)[: work.shape[1]]
        compiled.fill_below(compiled.schedule(key), work[POSITIONS], np.uint64(chance), out)
        return out
    return wide_bits(key, work) < np.uint64(chance)


def whole(key: Key, work: np.ndarray, count: int) -> np.ndarray:
    """Return whole numbers in [0, count) as uint64, for a count of up to 2**64.

    They are the whole part of count times a fraction of 64 random bits or, for a count above 2**32, 128. So two
    numbers differ in probability by less than 2**-32 of it, or 2**-64.
    """
    if count <= 2**32:
        major, minor = work[BITS], work[MORE_BITS]
        major[...], minor[...] = _words(key, work)
        major *= np.uint64(count)
        minor *= np.uint64(count)
        minor >>= HALF
        major += minor
        major >>= HALF
        return major
    major = wide_bits(key, work)
    if count == 2**64:
        return major
    high, low = _product(major, count)
    rest, _ = _product(wide_bits(key.beside(), work, MORE_BITS), count)
    return high + (low + rest < low)


def _product(x: np.ndarray, y: int) -> tuple[np.ndarray, np.ndarray]:
    # Both halves of the product of 64-bit numbers.
    high, low = x >> HALF, x & LOW
    y1, y0 = np.uint64(y >> 32), np.uint64(y & 2**32 - 1)
    first = low * y0
    second = high * y0 + (first >> HALF)
    third = low * y1 + (second & LOW)
    return high * y1 + (second >> HALF) + (third >> HALF), (third << HALF) | (first & LOW)


# -- the normal distribution -----------------------------------------------------------------------------


def normal(key: Key, work: np.ndarray, wide: bool) -> np.ndarray:
    """Return normal values in float64, to the precision of float32 or, if wide, float64.

    They are r sin(a) with r² = -2 log(u), for u in (0, 1) and a in (-π/2, π/2) (Box and Muller's method, which
    needs no rejection): 32 random bits for each of the two, or 52.
    """
    if compiled := _find_compiled(work):
        out, words = work[RADIUS].view(np.float64), compiled.schedule(key)
        if wide:
            compiled.fill_wide_normal(words, compiled.schedule(key.beside()), work[POSITIONS], out)
        else:
            compiled.fill_normal(words, work[POSITIONS], out)
        return out
    if wide:
        first, second = wide_bits(key, work), wide_bits(key.beside(), work, MORE_BITS).view(np.int64)
        first >>= np.uint64(12)
        second >>= 12
        scale = 2.0**-52
    else:
        first, low = _words(key, work)
        second, scale = low.view(np.int32), 2.0**-32
    radius, angle = work[RADIUS].view(np.float64), work[ANGLE].view(np.float64)
    np.add(first, 0.5, out=radius)
    np.add(second, 0.5, out=angle)
    radius *= scale
    angle *= pi * scale
    _twice_log(radius, LOGARITHM[wide], work)
    np.negative(radius, out=radius)
    np.sqrt(radius, out=radius)
    radius *= _sine(angle, SINE[wide], work)
    return radius


def _twice_log(x: np.ndarray, series: tuple[float, ...], work: np.ndarray) -> None:
    # x is m 2^e with m from the square root of 1/2 to that of 2, and log(m) is 2 artanh(s) with s = (m-1)/(m+1).
    exponent, raw = work[WORDS].view(np.int64), work[SPARE].view(np.int64)
    m, s, rest = raw.view(np.float64), work[BITS].view(np.float64), work[MORE_BITS].view(np.float64)
    np.subtract(x.view(np.int64), ROOT_HALF, out=exponent)
    exponent >>= 52
    np.left_shift(exponent, 52, out=raw)
    np.subtract(x.view(np.int64), raw, out=raw)
    np.subtract(m, 1.0, out=s)
    m += 1.0
    s /= m
    np.multiply(s, s, out=m)
    _series(m, series, x)
    x *= s
    np.multiply(exponent, 2.0 * log(2.0), out=rest)
    x += rest


def _sine(x: np.ndarray, series: tuple[float, ...], work: np.ndarray) -> np.ndarray:
    out, square = work[BITS].view(np.float64), work[SPARE].view(np.float64)
    np.multiply(x, x, out=square)
    _series(square, series, out)
    out *= x
    return out


def _series(z: np.ndarray, coefficients: tuple[float, ...], out: np.ndarray) -> None:
    np.multiply(z, coefficients[-1], out=out)
    for coefficient in coefficients[-2:0:-1]:
        out += coefficient
        out *= z
    out += coefficients[0]


def complex_normal(key: Key, work: np.ndarray, wide: bool) -> np.ndarray:
    """Return complex normal values of variance 1: independent real and imaginary parts of variance 1/2."""
    out = np.empty(work.shape[1], np.complex128)
    out.real = normal(key, work, wide)
    out.imag = normal(key.beside(1), work, wide)
    out *= 0.5**0.5
    return out
