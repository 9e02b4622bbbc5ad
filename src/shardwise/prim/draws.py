"""Draws: random values for any positions of a tensor, and for boxes of it.

All that is done to the words of the generator are sums, products, quotients, square roots and shifts, which every
machine rounds alike: no vectorised logarithm or cosine, which may differ between machines in the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import factorial, log, pi, prod

import numpy as np

from shardwise.layout.layout import Shape
from shardwise.layout.tiling import Box
from shardwise.prim.creation import BLOCK, Fill
from shardwise.prim.generator import Key, threefry

Draw = Callable[[Key, np.ndarray], np.ndarray]  # values for the positions in the tensor, as uint64
HALF = np.uint64(32)
LOW = np.uint64(2**32 - 1)


def drawn(key: Key, draw: Draw, shape: Shape) -> Fill:
    """Return what fills boxes of a random tensor of this shape.

    >>> out = np.empty((1, 2), "uint64")
    >>> drawn(Key(0, 42), lambda key, positions: positions, (10, 10))(out, ((7, 8), (3, 5)))
    >>> out
    array([[73, 74]], dtype=uint64)
    """

    def fill(out: np.ndarray, box: Box) -> None:
        for part, positions in _runs(out, box, shape):
            np.copyto(part, draw(key, positions), casting="unsafe")

    return fill


def _runs(out: np.ndarray, box: Box, shape: Shape) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    # Contiguous pieces of `out` of at most BLOCK elements, flat, with the positions of their elements, ascending.
    if not out.size:
        return
    dim = len(box)  # dims from here on are taken whole, and the one before in pieces
    while dim and prod(out.shape[dim - 1 :]) <= BLOCK:
        dim -= 1
    strides = [prod(shape[k + 1 :]) for k in range(len(shape))]
    inner = np.zeros((), np.uint64)
    for (start, stop), stride in zip(box[dim:], strides[dim:], strict=True):
        inner = inner[..., None] + np.arange(start, stop, dtype=np.uint64) * np.uint64(stride)
    inner = inner.reshape(-1)
    if not dim:
        yield out.reshape(-1), inner
        return
    low, high = box[dim - 1]
    step = -(-(high - low) // -(-(high - low) // (BLOCK // inner.size)))  # pieces of about the same size
    for index in np.ndindex(out.shape[: dim - 1]):
        base = sum((box[k][0] + i) * strides[k] for k, i in enumerate(index))
        for begin in range(low, high, step):
            rows = np.arange(begin, min(begin + step, high), dtype=np.uint64) * np.uint64(strides[dim - 1])
            rows += np.uint64(base)
            part = out[(*index, slice(begin - low, begin - low + rows.size))]
            yield part.reshape(-1), (rows[:, None] + inner).reshape(-1)


# -- bits ----------------------------------------------------------------------------------------------


def _words(key: Key, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    high, low = (positions >> HALF).astype(np.uint32), positions.astype(np.uint32)
    threefry(key, high, low)
    return high, low


def bits(key: Key, positions: np.ndarray) -> np.ndarray:
    """Return 32 random bits for each position."""
    high, low = _words(key, positions)
    return high ^ low


def wide_bits(key: Key, positions: np.ndarray) -> np.ndarray:
    """Return 64 random bits for each position."""
    high, low = _words(key, positions)
    out = high.astype(np.uint64)
    out <<= HALF
    out |= low
    return out


# -- distributions -------------------------------------------------------------------------------------


def unit(key: Key, positions: np.ndarray, digits: int) -> np.ndarray:
    """Return multiples of 2**-digits in [0, 1), all equally probable, for up to 53 binary digits."""
    if digits > 24:
        return (wide_bits(key, positions) >> np.uint64(64 - digits)) * 2.0**-digits
    return (bits(key, positions) >> np.uint32(32 - digits)).astype(np.float32) * np.float32(2.0**-digits)


def between(
    key: Key, positions: np.ndarray, digits: int, low: float, width: float, limits: tuple[float, float]
) -> np.ndarray:
    """Return low + width u for u in [0, 1), not outside the limits."""
    out = unit(key, positions, digits).astype(np.float64)
    out *= width
    out += low
    return np.clip(out, *limits, out=out)


def below(key: Key, positions: np.ndarray, chance: int) -> np.ndarray:
    """Return what is true with a probability of `chance` in 2**64."""
    if chance >= 2**64:
        return np.ones(positions.shape, bool)
    return wide_bits(key, positions) < np.uint64(chance)


def whole(key: Key, positions: np.ndarray, count: int) -> np.ndarray:
    """Return whole numbers in [0, count) as uint64, for a count of up to 2**64.

    They are the whole part of count times a fraction of 64 random bits or, for a count above 2**32, 128. So two
    numbers differ in probability by less than 2**-32 of it, or 2**-64.
    """
    if count <= 2**32:
        high, low = (word.astype(np.uint64) for word in _words(key, positions))
        high *= np.uint64(count)
        low *= np.uint64(count)
        return (high + (low >> HALF)) >> HALF
    major = wide_bits(key, positions)
    if count == 2**64:
        return major
    high, low = _product(major, count)
    rest, _ = _product(wide_bits(key.beside(), positions), count)
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

ROOT_HALF = 0x3FE6A09E667F3BCD  # the bits of the square root of 1/2
# Terms of the series that are needed for float32 and for float64.
LOGARITHM = {False: 6, True: 10}
SINE = {False: 8, True: 11}


def normal(key: Key, positions: np.ndarray, wide: bool) -> np.ndarray:
    """Return normal values in float64, to the precision of float32 or, if wide, float64.

    They are r sin(a) with r² = -2 log(u), for u in (0, 1) and a in (-π/2, π/2) (Box and Muller's method, which
    needs no rejection): 32 random bits for each of the two, or 52.
    """
    if wide:
        first = (wide_bits(key, positions) >> np.uint64(12)).view(np.int64)
        second = wide_bits(key.beside(), positions).view(np.int64) >> 12
        scale = 2.0**-52
    else:
        first, low = _words(key, positions)
        second, scale = low.view(np.int32), 2.0**-32
    u = first.astype(np.float64)
    u += 0.5
    u *= scale
    out = _twice_log(u, LOGARITHM[wide])
    np.sqrt(np.negative(out, out=out), out=out)
    angle = second.astype(np.float64)
    angle += 0.5
    angle *= pi * scale
    out *= _sine(angle, SINE[wide])
    return out


def _twice_log(x: np.ndarray, terms: int) -> np.ndarray:
    # x is m 2^e with m from the square root of 1/2 to that of 2, and log(m) is 2 artanh(s) with s = (m-1)/(m+1).
    raw = x.view(np.int64)
    exponent = (raw - ROOT_HALF) >> 52
    m = (raw - (exponent << 52)).view(np.float64)
    s = m - 1.0
    m += 1.0
    s /= m
    out = _series(s * s, [4.0 / (2 * n + 1) for n in range(terms)])
    out *= s
    out += exponent * (2.0 * log(2.0))
    return out


def _sine(x: np.ndarray, terms: int) -> np.ndarray:
    out = _series(x * x, [(-1.0) ** n / factorial(2 * n + 1) for n in range(terms)])
    out *= x
    return out


def _series(z: np.ndarray, coefficients: list[float]) -> np.ndarray:
    out = np.full_like(z, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        out *= z
        out += coefficient
    return out


def complex_normal(key: Key, positions: np.ndarray, wide: bool) -> np.ndarray:
    """Return complex normal values of variance 1: independent real and imaginary parts of variance 1/2."""
    out = np.empty(positions.shape, np.complex128)
    out.real = normal(key, positions, wide)
    out.imag = normal(key.beside(1), positions, wide)
    out *= 0.5**0.5
    return out
