"""Groups: devices of a grid that differ only along some of its axes, in the order of those axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from shardwise.caches import cache
from shardwise.errors import seal

Shape = tuple[int, ...]


@seal
@dataclass(frozen=True, slots=True)
class Group:
    """The devices of a group, numbered row-major in the grid, and the sizes of the axes they differ along."""

    devices: tuple[int, ...]
    sizes: Shape

    def position(self, device: int) -> int:
        """Return where in the group a device comes."""
        return self.devices.index(device)

    def at(self, index: Sequence[int]) -> int:
        """Return the position of an in-group multi-index."""
        place = 0
        for i, size in zip(index, self.sizes, strict=True):
            place = place * size + i
        return place


@cache()
def group_of(shape: Shape, axes: tuple[int, ...], device: int) -> Group:
    """Return the group of a device: outer axes first, in the order in which they are named.

    >>> group_of((2, 3), (1,), 4).devices
    (3, 4, 5)
    >>> group_of((2, 3), (1, 0), 4).devices
    (0, 3, 1, 4, 2, 5)
    """
    strides = [prod(shape[k + 1 :]) for k in range(len(shape))]
    first = device - sum(device // strides[a] % shape[a] * strides[a] for a in axes)
    sizes = tuple(shape[a] for a in axes)
    members = (
        first + sum(i * strides[a] for i, a in zip(index, axes, strict=True)) for index in product(*map(range, sizes))
    )
    return Group(tuple(members), sizes)


def multi_index(shape: Sequence[int], device: int) -> Shape:
    """Return the multi-index of a device in a grid.

    >>> multi_index((2, 3), 4)
    (1, 1)
    """
    index: list[int] = []
    for size in reversed(shape):
        device, i = divmod(device, size)
        index.append(i)
    return tuple(reversed(index))


def piece(size: int, parts: int, part: int) -> slice:
    """Return one of the balanced pieces of a dim, the larger ones first.

    >>> [piece(5, 2, i) for i in range(2)]
    [slice(0, 3, None), slice(3, 5, None)]
    """
    width, longer = divmod(size, parts)
    start = part * width + min(part, longer)
    return slice(start, start + width + (part < longer))
