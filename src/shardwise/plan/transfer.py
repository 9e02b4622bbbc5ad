"""Transfers: one box of the global tensor that goes from one device to another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Generic, NamedTuple, TypeVar

from shardwise.layout.device import Device
from shardwise.layout.tiling import Box, box_size

DeviceName = int | Device  # its index in the one mesh, or the device itself where two meshes meet
Place = TypeVar("Place", bound=DeviceName)


class Transfer(NamedTuple, Generic[Place]):
    """The elements of `box`, in global coordinates, go from `source` to `target`.

    >>> transfer = Transfer(source=4, target=2, box=((4, 6), (0, 2)))
    >>> transfer.size
    4
    """

    source: Place
    target: Place
    box: Box

    @property
    def size(self) -> int:
        """How many elements are moved."""
        return box_size(self.box)


def pieces(box: Box, grain: Sequence[int]) -> Iterator[Box]:
    """Yield the box cut into pieces that are at most `grain` long in each dim.

    >>> list(pieces(((0, 5), (2, 4)), (3, 2)))
    [((0, 3), (2, 4)), ((3, 5), (2, 4))]
    """
    cuts = (
        [(at, min(at + most, stop)) for at in range(start, stop, most)]
        for (start, stop), most in zip(box, grain, strict=True)
    )
    return product(*cuts)


def grain_of(largest: Sequence[int], most: int) -> tuple[int, ...]:
    """Return the longest piece per dim such that no piece has more than `most` elements (1 or more).

    The leading dims are cut first, so that pieces stay contiguous.

    >>> grain_of((8, 6), 12), grain_of((8, 6), 4)
    ((2, 6), (1, 4))
    """
    out = [max(1, size) for size in largest]
    for dim in range(len(out)):
        rest = prod(out[dim + 1 :])
        out[dim] = min(out[dim], max(1, most // rest))
    return tuple(out)


def portion(box: Box, count: int, index: int) -> Box:
    """Return the `index`-th of `count` nearly equal portions of a box; some are empty if it is too small.

    >>> [portion(((0, 5), (0, 2)), 2, i) for i in range(2)]
    [((0, 3), (0, 2)), ((3, 5), (0, 2))]
    """
    if count == 1:
        return box
    if not box:  # a 0-d tensor has one element, which the first portion takes
        return box if index == 0 else ((0, 0),)
    out = list(box)
    for dim, parts in reversed(list(enumerate(divide([stop - start for start, stop in box], count)))):
        index, part = divmod(index, parts)
        start, stop = box[dim]
        width, longer = divmod(stop - start, parts)
        first = start + part * width + min(part, longer)
        out[dim] = (first, first + width + (part < longer))
    return tuple(out)


def divide(lengths: Sequence[int], count: int) -> list[int]:
    """Return into how many pieces each dim is cut, for `count` nearly equal portions of a box of these lengths.

    >>> divide([8, 6], 4), divide([6, 6], 4)
    ([4, 1], [2, 2])
    """
    # Portions of a leading dim are contiguous, so it is cut alone if that makes them equal. Otherwise give the prime
    # factors of `count`, largest first, to whichever dim has the longest pieces.
    parts = [1] * len(lengths)
    leading = next((dim for dim, length in enumerate(lengths) if length != 1), 0)
    if lengths[leading] and lengths[leading] % count == 0:
        parts[leading] = count
        return parts
    for factor in _primes(count):
        dim = max(range(len(lengths)), key=lambda k: (lengths[k] / parts[k], -k))
        parts[dim] *= factor
    return parts


def _primes(number: int) -> list[int]:
    out: list[int] = []
    factor = 2
    while factor * factor <= number:
        while number % factor == 0:
            out.append(factor)
            number //= factor
        factor += 1
    return sorted([*out, number] if number > 1 else out, reverse=True)
