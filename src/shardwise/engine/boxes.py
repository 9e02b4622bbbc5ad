"""Boxes with their sources, merged and grouped so that few large copies touch each byte once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from shardwise.engine.counters import add_up
from shardwise.layout.tiling import Box, box_size, intersect, subtract


@dataclass
class PlacedBox:
    """A box of a target array, the source arrays it comes from, and the bytes that devices receive, by kind of step."""

    box: Box
    sources: tuple[int, ...]
    traffic: dict[str, int] = field(default_factory=dict[str, int])


def merge_neighbours(parts: Sequence[PlacedBox]) -> list[PlacedBox]:
    """Return the boxes with neighbours of equal sources put together.

    >>> merge_neighbours([PlacedBox(((0, 2), (0, 4)), (0,)), PlacedBox(((2, 3), (0, 4)), (0,))])
    [PlacedBox(box=((0, 3), (0, 4)), sources=(0,), traffic={})]
    """
    boxes = list(parts)
    rank = len(boxes[0].box) if boxes else 0
    for dim in reversed(range(rank)):
        out: list[PlacedBox] = []
        for row in _rows(boxes, dim, by_source=True):
            for part in row:
                last = out[-1] if part is not row[0] else None
                if last is not None and last.box[dim][1] == part.box[dim][0]:
                    last.box = _stretch(last.box, dim, part.box[dim][1])
                    add_up(last.traffic, part.traffic.items())
                else:
                    out.append(PlacedBox(part.box, part.sources, dict(part.traffic)))
        boxes = out
    return boxes


def make_disjoint(parts: Sequence[PlacedBox]) -> list[PlacedBox]:
    """Return boxes that cover the same elements once each, the largest as they are.

    The traffic of a box that others cover is counted with one of those.

    >>> [part.box for part in make_disjoint([PlacedBox(((1, 3),), (0,)), PlacedBox(((0, 2),), (1,))])]
    [((1, 3),), ((0, 1),)]
    """
    out: list[PlacedBox] = []
    for part in sorted(parts, key=lambda part: (not part.sources, -box_size(part.box))):
        overlaps = [other for other in out if intersect(other.box, part.box) is not None]
        boxes = [part.box] if part.sources else []
        for other in overlaps:
            boxes = [piece for box in boxes for piece in subtract(box, other.box)]
        pieces = [PlacedBox(box, part.sources) for box in boxes]
        add_up((pieces or overlaps)[0].traffic, part.traffic.items())
        out += pieces
    return out


def group_rows(parts: Sequence[PlacedBox]) -> list[tuple[Box, int, list[PlacedBox]]]:
    """Return the boxes in groups that lie side by side along one dim, each with its outer box and that dim.

    >>> parts = [PlacedBox(((0, 2), (0, 2)), (0,)), PlacedBox(((0, 2), (2, 4)), (1,))]
    >>> [(box, dim) for box, dim, _ in group_rows(parts)]
    [(((0, 2), (0, 4)), 1)]
    """
    if not parts:
        return []
    rank = len(parts[0].box)
    if rank == 0:
        return [(part.box, 0, [part]) for part in parts]
    return min((_runs(parts, dim) for dim in range(rank)), key=len)


def _runs(parts: Sequence[PlacedBox], dim: int) -> list[tuple[Box, int, list[PlacedBox]]]:
    out: list[tuple[Box, int, list[PlacedBox]]] = []
    for row in _rows(parts, dim):
        for part in row:
            start, stop = part.box[dim]
            if part is not row[0] and out[-1][0][dim][1] == start:
                box, _, group = out[-1]
                out[-1] = _stretch(box, dim, stop), dim, [*group, part]
            else:
                out.append((part.box, dim, [part]))
    return out


def _rows(parts: Sequence[PlacedBox], dim: int, by_source: bool = False) -> list[list[PlacedBox]]:
    # Boxes that differ only in their interval along `dim`, in its order.
    rows: dict[object, list[PlacedBox]] = {}
    for part in parts:
        key = (part.box[:dim], part.box[dim + 1 :], part.sources if by_source else None)
        rows.setdefault(key, []).append(part)
    return [sorted(row, key=lambda part: part.box[dim]) for row in rows.values()]


def _stretch(box: Box, dim: int, stop: int) -> Box:
    return (*box[:dim], (box[dim][0], stop), *box[dim + 1 :])
