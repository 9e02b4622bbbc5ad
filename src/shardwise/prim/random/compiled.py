"""Draws that numba compiles, where it is installed: the same bits as those of NumPy, in a fraction of the time.

A loop goes over the positions once and keeps all of an element in registers, where NumPy reads and writes memory for
each of a hundred operations. Every operation is done in the same order and rounded by itself, so results are equal.
"""

# numba has no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUntypedFunctionDecorator=false, reportUnknownParameterType=false

from __future__ import annotations

from math import log, pi, sqrt
from typing import Any

import numpy as np
from numba import float64, int32, int64, njit, uint32, uint64

from shardwise.prim.random.generator import PARITY, ROTATIONS, Key
from shardwise.prim.random.series import LOGARITHM, ROOT_HALF, SINE

TWICE_LOG_2 = 2.0 * log(2.0)
(A, B, C, D), (E, F, G, H) = ROTATIONS
compiled: Any = njit(error_model="numpy", nogil=True, cache=True)
inlined: Any = njit(error_model="numpy", inline="always")


def schedule(key: Key) -> tuple[np.uint32, np.uint32, np.uint32]:
    """Return the three words that the generator adds.

    >>> schedule(Key(0, 1))
    (np.uint32(0), np.uint32(1), np.uint32(466688987))
    """
    return np.uint32(key.high), np.uint32(key.low), np.uint32(key.high ^ key.low ^ PARITY)


@inlined
def _turn(high: Any, low: Any, rotation: int) -> Any:
    high = uint32(high + low)
    return high, uint32(uint32(uint32(low << uint32(rotation)) | uint32(low >> uint32(32 - rotation))) ^ high)


@inlined
def _four(high: Any, low: Any, a: int, b: int, c: int, d: int, first: Any, second: Any, count: int) -> Any:
    high, low = _turn(high, low, a)
    high, low = _turn(high, low, b)
    high, low = _turn(high, low, c)
    high, low = _turn(high, low, d)
    return uint32(high + first), uint32(low + second + uint32(count))


@inlined
def _threefry(words: Any, position: Any) -> Any:
    x, y, z = words
    high, low = uint32(uint32(position >> uint64(32)) + x), uint32(uint32(position) + y)
    high, low = _four(high, low, A, B, C, D, y, z, 1)
    high, low = _four(high, low, E, F, G, H, z, x, 2)
    high, low = _four(high, low, A, B, C, D, x, y, 3)
    high, low = _four(high, low, E, F, G, H, y, z, 4)
    return _four(high, low, A, B, C, D, z, x, 5)


@inlined
def _wide(words: Any, position: Any) -> Any:
    high, low = _threefry(words, position)
    return (uint64(high) << uint64(32)) | uint64(low)


@compiled
def fill_positions(first: Any, stride: Any, inner: Any, out: Any) -> None:
    """Write the positions of the elements of rows: where the rows begin, and what is added within each."""
    width = inner.size
    if width == 1:  # which is one loop, and not many short ones
        for row in range(out.size):
            out[row] = first + uint64(row) * stride + inner[0]
        return
    for row in range(out.size // width):
        start = first + uint64(row) * stride
        for i in range(width):
            out[row * width + i] = start + inner[i]


@compiled
def fill_words(words: Any, positions: Any, high: Any, low: Any) -> None:
    """Write both random words of each position."""
    for i in range(positions.size):
        high[i], low[i] = _threefry(words, positions[i])


@compiled
def fill_wide(words: Any, positions: Any, out: Any) -> None:
    """Write the 64 random bits of each position."""
    for i in range(positions.size):
        out[i] = _wide(words, positions[i])


@compiled
def fill_below(words: Any, positions: Any, chance: Any, out: Any) -> None:
    """Write whether the 64 random bits of each position are below a number."""
    for i in range(positions.size):
        out[i] = _wide(words, positions[i]) < chance


@inlined
def _box_muller(u: Any, angle: Any, logarithm: Any, sine: Any) -> Any:
    bits = np.float64(u).view(np.int64)
    exponent = (bits - ROOT_HALF) >> 52
    m = np.int64(bits - (exponent << 52)).view(np.float64)
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    radius = z * logarithm[-1]
    for k in range(len(logarithm) - 2, 0, -1):
        radius = (radius + logarithm[k]) * z
    radius = sqrt(-((radius + logarithm[0]) * s + float64(exponent) * TWICE_LOG_2))
    square = angle * angle
    out = square * sine[-1]
    for k in range(len(sine) - 2, 0, -1):
        out = (out + sine[k]) * square
    return radius * ((out + sine[0]) * angle)


LOG_NARROW, LOG_WIDE = LOGARITHM[False], LOGARITHM[True]
SINE_NARROW, SINE_WIDE = SINE[False], SINE[True]


@compiled
def fill_normal(words: Any, positions: Any, out: Any) -> None:
    """Write a normal value for each position, to the precision of float32."""
    for i in range(positions.size):
        high, low = _threefry(words, positions[i])
        u, angle = (float64(high) + 0.5) * 2.0**-32, (float64(int32(low)) + 0.5) * (pi * 2.0**-32)
        out[i] = _box_muller(u, angle, LOG_NARROW, SINE_NARROW)


@compiled
def fill_wide_normal(words: Any, more: Any, positions: Any, out: Any) -> None:
    """Write a normal value for each position, to the precision of float64."""
    for i in range(positions.size):
        first, second = _wide(words, positions[i]) >> uint64(12), int64(_wide(more, positions[i])) >> 12
        u, angle = (float64(int64(first)) + 0.5) * 2.0**-52, (float64(second) + 0.5) * (pi * 2.0**-52)
        out[i] = _box_muller(u, angle, LOG_WIDE, SINE_WIDE)
