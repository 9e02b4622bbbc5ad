"""Boxes with their sources: merged, made disjoint and joined, so that few large copies touch each byte once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from shardwise.layout.tiling import Box, box_size, intersect, subtract


@dataclass
class Placed:
    """A box of a target array, the source arrays it comes from, and the bytes it is between devices by kind."""

    box: Box
    sources: tuple[int, ...]
    moved: dict[str, int] = field(default_factory=dict)

    def count(self, other: Placed) -> None:
        """Take over what another box is between devices."""
        for kind, size in other.moved.items():
            self.moved[kind] = self.moved.get(kind, 0) + size


def merged(parts: Sequence[Placed]) -> list[Placed]:
    """Return the boxes with neighbours of equal sources put together.

    >>> merged([Placed(((0, 2), (0, 4)), (0,)), Placed(((2, 3), (0, 4)), (0,))])
    [Placed(box=((0, 3), (0, 4)), sources=(0,), moved={})]
    """
    found = list(parts)
    rank = len(found[0].box) if found else 0
    for dim in reversed(range(rank)):
        out = []
        for row in _rows(found, dim, by_source=True):
            for part in row:
                last = out[-1] if part is not row[0] else None
                if last is not None and last.box[dim][1] == part.box[dim][0]:
                    last.box = _stretched(last.box, dim, part.box[dim][1])
                    last.count(part)
                else:
                    out.append(Placed(part.box, part.sources, dict(part.moved)))
        found = out
    return found


def disjoint(parts: Sequence[Placed]) -> list[Placed]:
    """Return boxes that cover the same elements once each, the largest as they are.

    What a box that is covered by others is between devices is counted with one of those.

    >>> [part.box for part in disjoint([Placed(((1, 3),), (0,)), Placed(((0, 2),), (1,))])]
    [((1, 3),), ((0, 1),)]
    """
    out: list[Placed] = []
    for part in sorted(parts, key=lambda part: (not part.sources, -box_size(part.box))):
        over = [other for other in out if intersect(other.box, part.box) is not None]
        left = [part.box] if part.sources else []
        for other in over:
            left = [piece for box in left for piece in subtract(box, other.box)]
        new = [Placed(box, part.sources) for box in left]
        (new or over)[0].count(part)
        out += new
    return out


def joined(parts: Sequence[Placed]) -> list[tuple[Box, int, list[Placed]]]:
    """Return the boxes in groups that lie side by side along one dim, each with its outer box and that dim.

    >>> [(box, dim) for box, dim, _ in joined([Placed(((0, 2), (0, 2)), (0,)), Placed(((0, 2), (2, 4)), (1,))])]
    [(((0, 2), (0, 4)), 1)]
    """
    if not parts:
        return []
    rank = len(parts[0].box)
    if rank == 0:
        return [(part.box, 0, [part]) for part in parts]
    return min((_runs(parts, dim) for dim in range(rank)), key=len)


def _runs(parts: Sequence[Placed], dim: int) -> list[tuple[Box, int, list[Placed]]]:
    out: list[tuple[Box, int, list[Placed]]] = []
    for row in _rows(parts, dim):
        for part in row:
            start, stop = part.box[dim]
            if part is not row[0] and out[-1][0][dim][1] == start:
                box, _, group = out[-1]
                out[-1] = _stretched(box, dim, stop), dim, [*group, part]
            else:
                out.append((part.box, dim, [part]))
    return out


def _rows(parts: Sequence[Placed], dim: int, by_source: bool = False) -> list[list[Placed]]:
    # Boxes that differ only in their interval along `dim`, in its order.
    rows: dict[object, list[Placed]] = {}
    for part in parts:
        key = (part.box[:dim], part.box[dim + 1 :], part.sources if by_source else None)
        rows.setdefault(key, []).append(part)
    return [sorted(row, key=lambda part: part.box[dim]) for row in rows.values()]


def _stretched(box: Box, dim: int, stop: int) -> Box:
    return (*box[:dim], (box[dim][0], stop), *box[dim + 1 :])
