"""Unfoldings: which parts of each dim are drawn, and on which panel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, product
from math import prod

MOST_PARTS = 12  # of one dim that are drawn; the middle ones beyond that are left out
MOST_LEADS = 4  # parts of a dim drawn as panels, if it has too many for all
MOST_CELLS = 256  # in one drawing
MOST_PANELS = 36  # in one drawing

Part = int | None  # None stands for the parts that are left out
Lead = tuple[Part, ...]


@dataclass(frozen=True)
class Unfolding:
    """The parts per dim that are drawn: the last two dims as rows and columns, the others as panels.

    >>> parts = unfold((2, 3, 30))
    >>> len(parts.panels), parts.rows, parts.columns
    (2, (0, 1, 2), (0, 1, 2, 3, 4, 5, None, 24, 25, 26, 27, 28, 29))
    """

    shown: tuple[tuple[Part, ...], ...]

    @property
    def rank(self) -> int:
        """How many dims there are."""
        return len(self.shown)

    @property
    def rows(self) -> tuple[Part, ...]:
        """The parts of the last dim but one; one row if there is none."""
        return self.shown[-2] if self.rank > 1 else (0,)

    @property
    def columns(self) -> tuple[Part, ...]:
        """The parts of the last dim; one column if there is none."""
        return self.shown[-1] if self.rank else (0,)

    @property
    def panels(self) -> list[Lead]:
        """The parts of the other dims, panel by panel; one with a None stands for all that are left out there."""
        out: list[Lead] = []
        for lead in islice(product(*self.shown[:-2]), MOST_PANELS):
            gap = None in lead
            if not (gap and out and None in out[-1]):
                out.append(lead)
        if prod(map(len, self.shown[:-2])) > MOST_PANELS and None not in out[-1]:
            out.append((None,) * (self.rank - 2))
        return out

    @property
    def panels_across(self) -> int:
        """How many panels belong side by side: those that differ in the last of their dims."""
        return len(self.shown[-3]) if self.rank > 2 else 1

    def tile(self, lead: Lead, row: Part, column: Part) -> tuple[int, ...] | None:
        """Return the part per dim of a cell, or None if it stands for those left out."""
        whole = (*lead, row, column)[max(0, 2 - self.rank) :] if self.rank else ()
        parts = tuple(part for part in whole if part is not None)
        return parts if len(parts) == len(whole) else None


def unfold(parts: Sequence[int], most: int = MOST_PARTS) -> Unfolding:
    """Return the unfolding of dims cut into so many parts; at most `most` of one dim are drawn."""
    limits = [count if count <= most else min(most, MOST_LEADS) for count in parts[:-2]]
    limits += [min(count, most) for count in parts[-2:]]
    while prod(limits) > MOST_CELLS:
        dim = max(range(len(limits)), key=lambda k: (limits[k], -k))
        if limits[dim] <= 2:
            break
        limits[dim] = max(2, limits[dim] - 2)
    return Unfolding(tuple(tuple(_choose_parts(count, limit)) for count, limit in zip(parts, limits, strict=True)))


def _choose_parts(parts: int, limit: int) -> list[Part]:
    if parts <= max(2, limit):
        return list(range(parts))
    half = max(1, limit // 2)
    return [*range(half), None, *range(parts - half, parts)]
