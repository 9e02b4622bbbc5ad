"""Storage: the distinct arrays of a tensor, one for all devices that hold equal data."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from shardwise.caches import cache, cached_property, intern
from shardwise.errors import BindingError
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.tiling import Box, Tiling

MOST_ELEMENTS = 1 << 58  # whose bytes can be counted in 64 bits


@dataclass(frozen=True, eq=False)  # `storage_of` makes equal ones the same, which are known by identity
class Storage:
    """How a tensor of one layout and shape is stored: by tile and, where values are partial, by contribution.

    >>> from shardwise import DeviceMesh, P
    >>> storage_of(P("x").to_layout(1, DeviceMesh((2, 4), ("x", "y"))), (8,)).count
    2
    """

    layout: Layout
    shape: Shape

    @cached_property
    def tiling(self) -> Tiling:
        """The tiles of the layout on the shape."""
        return self.layout.tiling(self.shape)

    @cached_property
    def count(self) -> int:
        """How many distinct arrays there are."""
        return prod(dim.parts for dim in self.tiling.dims) * prod(axis.size for axis in self.layout.partial)

    def index(self, device: int) -> int:
        """Return which array a device holds."""
        if device in self._known:
            return self._known[device]
        number = 0
        for dim, part in zip(self.tiling.dims, self.layout.tile_of(device), strict=True):
            number = number * dim.parts + part
        for divisor, size in self._pending:
            number = number * size + device // divisor % size
        self._known[device] = number
        return number

    @cached_property
    def _known(self) -> dict[int, int]:
        return {}

    @cached_property
    def _pending(self) -> tuple[tuple[int, int], ...]:
        return tuple((self.layout.mesh.divisor(axis), axis.size) for axis in self.layout.partial)

    def holder(self, index: int) -> int:
        """Return the first of the devices that hold an array.

        >>> from shardwise import DeviceMesh, P
        >>> storage_of(P("x").to_layout(1, DeviceMesh((2, 4), ("x", "y"))), (8,)).holder(1)
        4
        """
        device = 0
        for divisor, size in reversed(self._pending):
            index, position = divmod(index, size)
            device += position * divisor
        return device + self.layout.first_holder(self._tile(index))

    def box(self, index: int) -> Box:
        """Return the box, halo included, of an array."""
        box = self._boxes.get(index)
        if box is None:
            tile = self._tile(index // prod([axis.size for axis in self.layout.partial]))
            box = tuple([dim.extent(part) for dim, part in zip(self.tiling.dims, tile, strict=True)])
            self._boxes[index] = box
        return box

    def local_shape(self, index: int) -> Shape:
        """Return the shape of an array."""
        return tuple([stop - start for start, stop in self.box(index)])

    @cached_property
    def _boxes(self) -> dict[int, Box]:
        return {}

    def _tile(self, index: int) -> tuple[int, ...]:
        parts: list[int] = []
        for dim in reversed(self.tiling.dims):
            index, part = divmod(index, dim.parts)
            parts.append(part)
        return tuple(reversed(parts))

    @cached_property
    def holders(self) -> tuple[tuple[int, ...], ...]:
        """The devices that hold each array."""
        out: list[list[int]] = [[] for _ in range(self.count)]
        for device in range(self.layout.mesh.num_devices):
            out[self.index(device)].append(device)
        return tuple(map(tuple, out))

    @cached_property
    def firsts(self) -> tuple[int, ...]:
        """The first of the devices that hold each array."""
        return tuple(self.holder(i) for i in range(self.count))

    @cached_property
    def boxes(self) -> tuple[Box, ...]:
        """The box, halo included, of each array."""
        tiles = product(*([dim.extent(part) for part in range(dim.parts)] for dim in self.tiling.dims))
        terms = prod(axis.size for axis in self.layout.partial)
        return tuple(box for box in tiles for _ in range(terms))

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """The shape of each array."""
        return tuple(tuple(stop - start for start, stop in box) for box in self.boxes)


@cache()
def storage_of(layout: Layout, shape: Shape) -> Storage:
    """Return the storage of a layout and shape; equal ones are the same object."""
    if prod(shape) >= MOST_ELEMENTS:
        raise BindingError(f"a tensor has fewer than 2**58 elements, got shape {shape}.")
    return intern(Storage, layout=layout, shape=shape)


Region = tuple[Any, ...]  # a slice per dim, then an ellipsis, without which NumPy makes scalars of 0-d arrays


def box_of_region(box: Box, where: Region) -> Box:
    """Return the box of a region, or of all, of the array of a box.

    >>> box_of_region(((3, 9),), (slice(1, 3), ...))
    ((4, 6),)
    """
    if not where:
        return box
    return tuple([(start + at.start, start + at.stop) for (start, _), at in zip(box, where[:-1], strict=True)])


def region(box: Box, inside: Box) -> Region:
    """Return where a box lies in the array of another box.

    >>> region(((4, 6),), ((3, 9),))
    (slice(1, 3, None), Ellipsis)
    """
    slices = (slice(start - first, stop - first) for (start, stop), (first, _) in zip(box, inside, strict=True))
    return (*slices, ...)
