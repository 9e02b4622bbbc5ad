"""Tilings: a layout bound to a shape, as interval arithmetic per dim."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from math import prod

from shardwise.caches import cached_property
from shardwise.errors import BindingError, seal
from shardwise.layout.placement import Edge, Split

Interval = tuple[int, int]
Box = tuple[Interval, ...]


@seal
@dataclass(frozen=True, init=False)
class DimTiling:
    """One dim of `size` elements cut into `parts` intervals.

    >>> [DimTiling(10, 4).interval(i) for i in range(4)]
    [(0, 3), (3, 6), (6, 8), (8, 10)]
    >>> [DimTiling(10, 4, "chunk").interval(i) for i in range(4)]
    [(0, 3), (3, 6), (6, 9), (9, 10)]
    """

    size: int
    parts: int
    split: Split = "balanced"
    offsets: tuple[int, ...] | None = None
    halo: tuple[int, int] = (0, 0)
    edge: Edge = "clip"
    # What follows from the fields above, and every plan asks for many times.
    is_even: bool = field(repr=False, compare=False)
    largest: int = field(repr=False, compare=False)

    def __init__(
        self,
        size: int,
        parts: int,
        split: Split = "balanced",
        offsets: tuple[int, ...] | None = None,
        halo: tuple[int, int] = (0, 0),
        edge: Edge = "clip",
    ) -> None:
        """Cut `size` elements; `is_even` is whether all parts own equally many, `largest` the most that one holds."""
        vars(self).update(
            size=size,
            parts=parts,
            split=split,
            offsets=offsets,
            halo=halo,
            edge=edge,
            is_even=size % parts == 0,
            largest=-(-size // parts),
        )
        if offsets is not None or halo != (0, 0):
            vars(self).update(is_even=self._has_equal_parts(), largest=self._find_largest())

    def interval(self, part: int) -> Interval:
        """Return the elements that a part owns."""
        if self.offsets is not None:
            return self.offsets[part], self.offsets[part + 1]
        if self.split == "chunk":
            width = -(-self.size // self.parts)
            return min(part * width, self.size), min((part + 1) * width, self.size)
        width, longer = divmod(self.size, self.parts)
        return part * width + min(part, longer), (part + 1) * width + min(part + 1, longer)

    def extent(self, part: int) -> Interval:
        """Return the elements that a part holds: what it owns and the halo.

        With the edge policy `pad` the interval may reach outside the dim; what is there is filled.
        """
        start, stop = self.interval(part)
        low, high = self.halo
        if self.edge == "pad":
            return start - low, stop + high
        return start - (low if part else 0), stop + (high if part + 1 < self.parts else 0)

    def over(self, start: int, stop: int) -> range:
        """Return the parts whose owned interval may meet [start, stop); empty ones can be among them.

        >>> DimTiling(10, 4).over(2, 7)
        range(0, 3)
        """
        if start >= stop:
            return range(0)
        return range(self.part_of(start), self.part_of(stop - 1) + 1)

    def holding(self, start: int, stop: int) -> range:
        """Return the parts whose held interval may meet [start, stop).

        >>> DimTiling(10, 4, halo=(1, 1)).holding(3, 6)
        range(0, 3)
        """
        low, high = self.halo
        if not (low or high):
            return self.over(start, stop)
        owners = self.over(max(0, start - high), min(self.size, stop + low))
        # A part that owns nothing still holds a halo.
        first, last = owners.start, owners.stop
        while first > 0 and start < self.extent(first - 1)[1]:
            first -= 1
        while last < self.parts and self.extent(last)[0] < stop:
            last += 1
        return range(first, last)

    def part_of(self, position: int) -> int:
        """Return the part that owns one element."""
        if self.offsets is not None:
            return bisect_right(self.offsets, position) - 1
        if self.split == "chunk":
            return position // -(-self.size // self.parts)
        width, longer = divmod(self.size, self.parts)
        start = (width + 1) * longer  # of the shorter parts
        return position // (width + 1) if position < start else longer + (position - start) // width

    def _find_largest(self) -> int:
        # Cut evenly, the first part is the longest owned and the second the longest that has both halos.
        parts = range(self.parts) if self.offsets is not None else {0, min(1, self.parts - 1), self.parts - 1}
        return max(stop - start for start, stop in map(self.extent, parts))

    def _has_equal_parts(self) -> bool:
        if self.offsets is not None:
            return len({b - a for a, b in zip(self.offsets, self.offsets[1:], strict=False)}) == 1
        return self.size % self.parts == 0

    def check(self, where: str) -> None:
        """Raise a BindingError if the cut does not fit the size; `where` names the dim for the error."""
        if self.offsets is not None and self.offsets[-1] != self.size:
            raise BindingError(
                f"the offsets {self.offsets} of {where} must end at its size {self.size}, "
                f"they end at {self.offsets[-1]}."
            )
        low, high = self.halo
        if not (low or high) or self.parts == 1:
            return
        # A halo comes from the direct neighbour: low from all but the last part, high from all but the first.
        sizes = self._extremes()
        for width, end, smallest in ((low, "low", min(sizes[:-1])), (high, "high", min(sizes[1:]))):
            if width > smallest:
                raise BindingError(
                    f"the {end} halo of {where} is {width} wide, "
                    f"but a neighbour's shard has only {smallest} of the {self.size} elements.\n"
                    f"  use a halo of at most {smallest}, or fewer devices."
                )

    def _extremes(self) -> list[int]:
        # Sizes of enough parts to hold the smallest before the last and the smallest after the first.
        parts = range(self.parts) if self.offsets is not None else sorted({0, 1, self.parts - 2, self.parts - 1})
        return [stop - start for start, stop in map(self.interval, parts)]


def box_size(box: Box) -> int:
    """Return how many elements a box has.

    >>> box_size(((0, 2), (3, 7))), box_size(())
    (8, 1)
    """
    return prod(stop - start for start, stop in box)


def intersect(a: Box, b: Box) -> Box | None:
    """Return the common part of two boxes, or None if they share no element.

    >>> intersect(((0, 4),), ((2, 9),)), intersect(((0, 2),), ((2, 9),))
    (((2, 4),), None)
    """
    out: list[Interval] = []
    for (start, stop), (first, last) in zip(a, b, strict=True):
        low, high = max(start, first), min(stop, last)
        if low >= high:
            return None
        out.append((low, high))
    return tuple(out)


def subtract(a: Box, b: Box | None) -> list[Box]:
    """Return disjoint boxes that make up `a` without `b`.

    >>> subtract(((0, 4), (0, 4)), ((1, 2), (0, 4)))
    [((0, 1), (0, 4)), ((2, 4), (0, 4))]
    """
    common = None if b is None else intersect(a, b)
    if common is None:
        return [a] if box_size(a) else []
    rest = list(a)
    out: list[Box] = []
    for dim, (low, high) in enumerate(common):
        start, stop = rest[dim]
        for piece in ((start, low), (high, stop)):
            if piece[0] < piece[1]:
                out.append((*rest[:dim], piece, *rest[dim + 1 :]))
        rest[dim] = (low, high)
    return out


Radix = tuple[tuple[tuple[int, int], ...], ...]


def tile_of(radix: Radix, device: int) -> tuple[int, ...]:
    """Return the part per dim of a device, from the (divisor, size) of the axes that split each dim."""
    out: list[int] = []
    for axes in radix:
        part = 0
        for divisor, size in axes:
            part = part * size + device // divisor % size
        out.append(part)
    return tuple(out)


@seal
@dataclass(frozen=True, init=False)
class Tiling:
    """All tiles of a layout on one shape: each dim's cut, and how a device finds its part.

    `radix` has, per dim, the (divisor, size) of each axis major to minor: the position of device i along
    that axis is `i // divisor % size`.
    """

    dims: tuple[DimTiling, ...]
    radix: Radix

    def __init__(self, dims: tuple[DimTiling, ...], radix: Radix) -> None:
        """Set both fields at once."""
        vars(self).update(dims=dims, radix=radix)

    def tile(self, device: int) -> tuple[int, ...]:
        """Return the index, per dim, of the part that a device has."""
        return tile_of(self.radix, device)

    def box(self, device: int) -> Box:
        """Return the box that a device owns."""
        return self.tile_box(self.tile(device))

    def held_box(self, device: int) -> Box:
        """Return the box that a device holds, halo included."""
        return tuple(dim.extent(part) for dim, part in zip(self.dims, self.tile(device), strict=True))

    def tile_box(self, tile: tuple[int, ...]) -> Box:
        """Return the box of a tile."""
        return tuple(dim.interval(part) for dim, part in zip(self.dims, tile, strict=True))

    def tiles(self) -> Iterator[tuple[int, ...]]:
        """Yield the index of every tile, row-major."""
        return product(*(range(dim.parts) for dim in self.dims))

    def over(self, box: Box) -> Iterator[tuple[int, ...]]:
        """Yield the tiles that may meet a box inside the tensor."""
        return product(*(dim.over(start, stop) for dim, (start, stop) in zip(self.dims, box, strict=True)))

    def cells(self, box: Box) -> Iterator[tuple[tuple[int, ...], Box]]:
        """Yield the tiles that share elements with a box, each with the common box.

        >>> list(Tiling((DimTiling(8, 2),), (((1, 2),),)).cells(((3, 5),)))
        [((0,), ((3, 4),)), ((1,), ((4, 5),))]
        """
        for tile in self.over(box):
            common = intersect(box, self.tile_box(tile))
            if common is not None:
                yield tile, common

    def digits(self, tile: tuple[int, ...]) -> dict[int, int]:
        """Return, by divisor, the position along each axis that splits a dim of a device with this tile."""
        out: dict[int, int] = {}
        for radix, part in zip(self.radix, tile, strict=True):
            for divisor, size in reversed(radix):
                part, out[divisor] = divmod(part, size)
        return out

    @property
    def bounds(self) -> Box:
        """The whole tensor as a box."""
        return tuple((0, dim.size) for dim in self.dims)

    @cached_property
    def largest(self) -> tuple[int, ...]:
        """The shape of the largest shard."""
        return tuple([dim.largest for dim in self.dims])

    @cached_property
    def volume(self) -> int:
        """How many elements the largest shard has.

        >>> Tiling((DimTiling(8, 2), DimTiling(5, 2)), (((1, 2),), ((2, 2),))).volume
        12
        """
        return prod(self.largest)
