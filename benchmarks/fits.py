"""Fits: how a measure grows with the size of tensors, the axes of a mesh, or its devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log

from benchmarks.row import Measure, Row


@dataclass(frozen=True, slots=True)
class Series:
    """Rows that differ in one number alone, in its order."""

    along: str
    rows: tuple[Row, ...]

    @property
    def title(self) -> str:
        """What grows, and with what."""
        row = self.rows[0]
        return f"{row.area}: {row.name}{', cold' * (row.state == 'cold')}, by {self.along}"

    def curves(self) -> dict[str, list[tuple[float, Measure]]]:
        """Return the points of each contender and of the floor, by name."""
        out: dict[str, list[tuple[float, Measure]]] = {}
        for row in self.rows:
            found = {"ours": row.ours, **row.peers} | ({row.floor.name: row.floor.measure} if row.floor else {})
            for name, measure in found.items():
                if measure.median > 0:
                    out.setdefault(name, []).append((row.at[self.along], measure))
        return out

    def exponents(self) -> dict[str, float]:
        """Return the power of the number that each contender grows with."""
        curves = self.curves().items()
        return {
            name: exponent([(x, m.median) for x, m in points])
            for name, points in curves
            if len({x for x, _ in points}) > 1
        }


def series(rows: Sequence[Row]) -> list[Series]:
    """Return all series of three rows and more, in the order in which they begin."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        for along in row.at:
            groups.setdefault((along, row.area, row.name, row.state), []).append(row)
    out = []
    for (along, *_), some in groups.items():
        if len({row.at[along] for row in some}) > 2:
            out.append(Series(along, tuple(sorted(some, key=lambda row, along=along: row.at[along]))))
    return out


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """Return the slope of a line through the logarithms, with the least squares.

    >>> round(exponent([(1, 3.0), (2, 12.0), (4, 48.0)]), 6)
    2.0
    """
    xs, ys = [log(x) for x, _ in points], [log(y) for _, y in points]
    x0, y0 = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((x - x0) * (y - y0) for x, y in zip(xs, ys, strict=True)) / sum((x - x0) ** 2 for x in xs)


def mean_ratio(ratios: Sequence[float]) -> float:
    """Return the geometric mean.

    >>> round(mean_ratio([0.5, 8.0]), 6)
    2.0
    """
    return exp(sum(map(log, ratios)) / len(ratios))


def means(rows: Sequence[Row]) -> Mapping[str, float]:
    """Return, per peer, the geometric mean of how many times ours is better, over rows that both have.

    Cold rows are left out, and of what is counted all but bytes: the worst of many, and how many, are no mean.
    """
    found: dict[str, list[float]] = {}
    for row in rows:
        for peer in row.peers:
            ratio = row.versus(peer)
            if ratio and row.state != "cold" and row.unit in ("seconds", "bytes"):
                found.setdefault(peer, []).append(ratio)
    return {peer: mean_ratio(ratios) for peer, ratios in found.items()}
