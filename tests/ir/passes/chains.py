"""The fewest rounds in which collectives make a transition by the fewest bytes, found by trying all of them."""

from collections.abc import Iterator
from fractions import Fraction
from heapq import heappop, heappush
from math import prod

import numpy as np

from tests.ir.passes.transitions import Split, splits

MOST = 3  # rounds that are tried


class Collectives:
    """Every all_slice, all_gather, all_to_all and permute between two shardings of a tensor that cut it evenly."""

    def __init__(self, grid: tuple[int, ...], shape: tuple[int, ...]) -> None:
        self.grid, self.shape = grid, shape
        self.devices = list(np.ndindex(*grid))
        self.splits = [split for split in splits(len(grid), len(shape)) if self.is_even(split)]
        self.edges = {a: list(self.from_(a)) for a in self.splits}

    def parts(self, axes: tuple[int, ...]) -> int:
        return prod(self.grid[a] for a in axes)

    def is_even(self, split: Split) -> bool:
        return all(n % self.parts(axes) == 0 for n, axes in zip(self.shape, split, strict=True))

    def part(self, axes: tuple[int, ...], device: tuple[int, ...]) -> int:
        out = 0
        for a in axes:
            out = out * self.grid[a] + device[a]
        return out

    def box(self, split: Split, device: tuple[int, ...]) -> list[range]:
        widths = [n // self.parts(axes) for n, axes in zip(self.shape, split, strict=True)]
        firsts = [self.part(axes, device) * width for axes, width in zip(split, widths, strict=True)]
        return [range(first, first + width) for first, width in zip(firsts, widths, strict=True)]

    def volume(self, split: Split) -> int:
        return prod(n // self.parts(axes) for n, axes in zip(self.shape, split, strict=True))

    def needed(self, src: Split, dst: Split) -> int:
        """The elements that devices do not hold and are to hold, over all devices."""
        total = 0
        for device in self.devices:
            pairs = zip(self.box(src, device), self.box(dst, device), strict=True)
            common = prod(len(range(max(a.start, b.start), min(a.stop, b.stop))) for a, b in pairs)
            total += self.volume(dst) - common
        return total

    def from_(self, a: Split) -> Iterator[tuple[Split, int, Fraction]]:
        """What one op makes of a sharding, with its rounds and the elements that all devices receive."""
        used = {axis for axes in a for axis in axes}
        for b in self.splits:
            after = {axis for axes in b for axis in axes}
            changed = [k for k, (old, new) in enumerate(zip(a, b, strict=True)) if old != new]
            grow = [k for k in changed if b[k][: len(a[k])] == a[k]]
            shrink = [k for k in changed if a[k][: len(b[k])] == b[k]]
            count = len(self.devices)
            if len(changed) == 1 and len(grow) == 1:
                yield b, 0, Fraction(0)
            if len(changed) == 1 and len(shrink) == 1:
                yield b, 1, Fraction(count * (self.volume(b) - self.volume(a)))
            if used != after or not changed:
                continue
            if len(grow) + len(shrink) == len(changed):
                group = self.parts(tuple(axis for k in shrink for axis in a[k][len(b[k]) :]))
                yield b, 1, Fraction(count * self.volume(a) * (group - 1), group)
            if all(self.parts(old) == self.parts(new) for old, new in zip(a, b, strict=True)):
                places = [[self.part(axes, device) for axes in split] for split in (a, b) for device in self.devices]
                moved = sum(old != new for old, new in zip(places[:count], places[count:], strict=True))
                yield b, 1, Fraction(moved * self.volume(a))

    def rounds_from(self, src: Split) -> dict[tuple[Split, Fraction], int]:
        """The fewest rounds to every sharding by any number of received elements."""
        out: dict[tuple[Split, Fraction], int] = {}
        heap = [(0, Fraction(0), src)]
        most = max(self.needed(src, dst) for dst in self.splits)
        while heap:
            rounds, received, split = heappop(heap)
            if (split, received) in out:
                continue
            out[split, received] = rounds
            for other, more, elements in self.edges[split]:
                if rounds + more <= MOST and received + elements <= most:
                    heappush(heap, (rounds + more, received + elements, other))
        return out
