"""Portions: the nearly equal boxes into which boxes of one shape are cut, those that are not empty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from shardwise.caches import cached_property
from shardwise.layout.tiling import Box
from shardwise.plan.transfer import divide


@dataclass(frozen=True)
class Portions:
    """The portions of a box of some `lengths` that begins at 0, cut into `count`; of those, the ones in `picks`.

    They are known by `index`, as in `portion`, and counted without those that are empty.

    >>> some = Portions((5, 2), 4)
    >>> len(some), [some.index(k) for k in range(4)], [some.box(k) for k in range(2)]
    (4, [0, 1, 2, 3], [((0, 2), (0, 2)), ((2, 3), (0, 2))])
    >>> len(Portions((3,), 5)), Portions((3,), 5).find(2), Portions((3,), 5).find(3)
    (3, 2, None)
    """

    lengths: tuple[int, ...]
    count: int
    picks: np.ndarray | None = None

    @cached_property
    def parts(self) -> tuple[int, ...]:
        """Into how many pieces each dim is cut."""
        if self.count == 1:
            return (1,) * len(self.lengths)
        return tuple(divide(self.lengths, self.count)) if self.lengths else ()

    @cached_property
    def _filled(self) -> tuple[int, ...]:
        # How many pieces of each dim have elements: the first ones.
        return tuple(map(min, self.parts, self.lengths))

    @cached_property
    def _indices(self) -> np.ndarray | None:
        # The portions that are picked and not empty; None if all that are not empty are.
        if self.picks is None:
            return None
        if not self.parts:
            return self.picks[self.picks == 0]
        is_filled = np.ones(len(self.picks), dtype=bool)
        for digit, filled in zip(_digits(self.picks, self.parts), self._filled, strict=True):
            is_filled &= digit < filled
        return self.picks[is_filled]

    def __len__(self) -> int:
        return prod(self._filled) if self._indices is None else len(self._indices)

    def index(self, k: int) -> int:
        """Return the index of the k-th portion that has elements."""
        if self._indices is not None:
            return int(self._indices[k])
        out, below = 0, 1
        for parts, filled in zip(reversed(self.parts), reversed(self._filled), strict=True):
            k, part = divmod(k, filled)
            out, below = out + part * below, below * parts
        return out

    def find(self, index: int) -> int | None:
        """Return which of the portions that have elements has an index, or None."""
        if self._indices is not None:
            k = int(np.searchsorted(self._indices, index))
            return k if k < len(self._indices) and self._indices[k] == index else None
        if not self.parts:
            return 0 if index == 0 else None
        out, below = 0, 1
        for parts, filled in zip(reversed(self.parts), reversed(self._filled), strict=True):
            index, part = divmod(index, parts)
            if part >= filled:
                return None
            out, below = out + part * below, below * filled
        return out

    def box(self, k: int) -> Box:
        """Return the box of the k-th portion that has elements."""
        index, out = self.index(k), list[tuple[int, int]]()
        for length, parts in zip(reversed(self.lengths), reversed(self.parts), strict=True):
            index, part = divmod(index, parts)
            width, longer = divmod(length, parts)
            start = part * width + min(part, longer)
            out.append((start, start + width + (part < longer)))
        return tuple(reversed(out))

    @cached_property
    def boxes(self) -> list[Box]:
        """All boxes that have elements."""
        return [self.box(k) for k in range(len(self))]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape in which those that have elements are arranged."""
        return self._filled if self._indices is None else (len(self._indices),)

    def choose(self, items: np.ndarray) -> np.ndarray:
        """Return those of `count` items whose portions have elements, arranged in `shape`."""
        if self._indices is not None:
            return items[self._indices]
        if not self.parts:
            return items[:1].reshape(())
        return items.reshape(self.parts)[tuple(slice(filled) for filled in self._filled)]

    def bounds(self, dim: int) -> tuple[np.ndarray, np.ndarray]:
        """Return where the boxes that have elements start and stop in a dim, to be broadcast to `shape`."""
        width, longer = divmod(self.lengths[dim], self.parts[dim])
        if self._indices is None:
            part = np.arange(self._filled[dim]).reshape(-1, *[1] * (len(self.parts) - dim - 1))
        else:
            part = self._indices // prod(self.parts[dim + 1 :]) % self.parts[dim]
        starts = part * width + np.minimum(part, longer)
        return starts, starts + width + (part < longer)

    @cached_property
    def size(self) -> int:
        """How many elements all of them have."""
        if self._indices is None:
            return prod(self.lengths)
        sizes = np.ones(len(self), dtype=np.int64)
        for dim in range(len(self.lengths)):
            starts, stops = self.bounds(dim)
            sizes *= stops - starts
        return int(sizes.sum())


def _digits(indices: np.ndarray, parts: Sequence[int]) -> list[np.ndarray]:
    return [indices // prod(parts[dim + 1 :]) % count for dim, count in enumerate(parts)]
