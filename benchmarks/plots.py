"""Plots: rows and series as SVG, drawn by hand, in colours that can be read on light and on dark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from math import ceil, floor, log10

from benchmarks.fits import Series
from benchmarks.row import Measure, Row
from benchmarks.words import amount, digits, measure, times

COLORS = {
    "ours": "#2b7de0",
    "DTensor": "#d9720a",
    "DTensor greedy": "#d9720a",
    "DTensor graph": "#b8860b",
    "JAX": "#9a5fd0",
    "JAX device_put": "#2f9c95",
    "JAX jit": "#c2408a",
    "mlir-opt-19": "#d9720a",
}
OTHERS = ("#3a9a5c", "#8a8a8a", "#6f8f2f", "#a0522d")
SHAPES = {
    "ours": "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z",  # a disc
    "DTensor": "M-4-4h8v8h-8z",
    "DTensor greedy": "M-4-4h8v8h-8z",
    "DTensor graph": "M0-5.5L5.5 0L0 5.5L-5.5 0z",
    "JAX": "M0-5L5 4H-5z",
    "JAX device_put": "M-5-2.5L0-5.5L5-2.5V2.5L0 5.5L-5 2.5z",
    "JAX jit": "M0 5L5-4H-5z",
    "mlir-opt-19": "M-4-4h8v8h-8z",
}
CROSS = "M-4.5-3L-3-4.5L0-1.5L3-4.5L4.5-3L1.5 0L4.5 3L3 4.5L0 1.5L-3 4.5L-4.5 3L-1.5 0z"
FONT = 'font-family="system-ui, sans-serif" font-size="12"'


def color(name: str, index: int = 0) -> str:
    """Return the colour of a contender."""
    return COLORS.get(name, OTHERS[index % len(OTHERS)])


def mark(name: str, x: float, y: float, tip: str, index: int = 0) -> str:
    """Return the mark of a contender at a place, with a text for who points at it."""
    path, paint = SHAPES.get(name, CROSS), color(name, index)
    title = f"<title>{escape(tip)}</title>"
    return f'<path d="{path}" transform="translate({x:.1f} {y:.1f})" fill="{paint}">{title}</path>'


def words(x: float, y: float, text: str, anchor: str = "start", more: str = "") -> str:
    """Return a text at a place."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="currentColor" {more}>{escape(text)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, opacity: float = 0.18, more: str = "") -> str:
    """Return a line."""
    where = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {where} stroke="currentColor" stroke-opacity="{opacity}" {more}/>'


def svg(width: float, height: float, label: str, parts: Iterable[str]) -> str:
    """Return a whole drawing, in one line."""
    head = f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
    return f'{head}role="img" aria-label="{escape(label)}" {FONT}>{"".join(parts)}</svg>'


class Scale:
    """A logarithmic scale from values to places."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        low, high = log10(min(values)), log10(max(values))
        margin = max(0.06 * (high - low), 0.05)
        self.low, self.high, self.start, self.end = low - margin, high + margin, start, end

    def __call__(self, value: float) -> float:
        """Return the place of a value."""
        return self.start + (log10(value) - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Return round values to write at the scale, at most nine."""
        powers = range(floor(self.low), ceil(self.high) + 1)
        fine = [10.0**p * m for p in powers for m in (1, 2, 5)]
        found = [v for v in fine if self.low <= log10(v) <= self.high]
        if len(found) > 8:
            found = [10.0**p for p in powers if self.low <= p <= self.high]
        return found[:: ceil(len(found) / 9)]


def legend(names: Sequence[str], texts: Sequence[str], x: float, y: float) -> list[str]:
    """Return marks with names, one below the other."""
    out = []
    for i, (name, text) in enumerate(zip(names, texts, strict=True)):
        out += [mark(name, x, y + 18 * i, text, i), words(x + 12, y + 18 * i + 4, text)]
    return out


def contenders(rows: Sequence[Row]) -> list[str]:
    """Return who takes part in rows, ours first."""
    return list(dict.fromkeys(["ours", *(peer for row in rows for peer in row.peers)]))


def dots_of(rows: Sequence[Row], title: str) -> list[str]:
    """Return plots of the rows with a floor, and of those without that have peers."""
    floored, others = [r for r in rows if r.floor], [r for r in rows if r.peers and not r.floor]
    return [dots(some, title) for some in (floored, others) if some]


LETTER = 6.8  # the width of most letters of a label


def label(row: Row) -> str:
    """Return what tells a row from the others of its plot."""
    return " ".join(filter(None, (row.name, row.size, row.mesh, row.state * (row.state == "cold"))))


def dots(rows: Sequence[Row], title: str) -> str:
    """Return a plot with a line per row: contenders as multiples of the floor, or of ours where there is none."""
    shown = [(row, base) for row in rows if (base := _base(row))]
    if not shown:
        return ""
    names = contenders([row for row, _ in shown])
    labels = [label(row) for row, _ in shown]
    left = min(500.0, 24 + LETTER * max(map(len, labels)))
    width, top, step = 900.0, 46.0, 20.0
    bottom = top + step * len(shown)
    values = [m.median / base for row, base in shown for m in (row.ours, *row.peers.values()) if m.median > 0]
    scale = Scale([*values, 1.0], left, width - 24)
    over = "the floor" if any(row.floor for row, _ in shown) else "ours"
    parts = [words(left, 14, f"times {over} (less is better)", more='font-size="11" opacity="0.75"')]
    for tick in scale.ticks():
        parts += [line(scale(tick), top - 8, scale(tick), bottom), words(scale(tick), top - 14, times(tick), "middle")]
    parts.append(line(scale(1.0), top - 8, scale(1.0), bottom, 0.7, 'stroke-width="1.5" stroke-dasharray="4 3"'))
    for i, ((row, base), text) in enumerate(zip(shown, labels, strict=True)):
        y = top + step * i + step / 2
        parts += [words(left - 10, y + 4, text, "end"), line(left, y, width - 24, y, 0.08)]
        marks = [(name, m) for name, m in ((n, _measure(row, n)) for n in names) if m is not None and m.median > 0]
        for name, found in reversed(marks):  # ours last, on top
            k = names.index(name)
            x1, x2 = (scale(max(v / base, 10**scale.low)) for v in (found.low, found.high))
            parts.append(f'<path d="M{x1:.1f} {y:.1f}H{x2:.1f}" stroke="{color(name, k)}" stroke-width="2"/>')
            tip = f"{text}: {name} {measure(found, row.unit)}, {times(found.median / base)}"
            parts.append(mark(name, scale(found.median / base), y, tip, k))
    parts += legend(names, names, left + 6, bottom + 20)
    return svg(width, bottom + 24 + 18 * len(names), title, parts)


def _base(row: Row) -> float:
    return row.floor.measure.median if row.floor else row.ours.median


def _measure(row: Row, name: str) -> Measure | None:
    return row.ours if name == "ours" else row.peers.get(name)


def curves(series: Series) -> str:
    """Return a plot of a series: both scales logarithmic, the power that each grows with beside its name."""
    found, powers = series.curves(), series.exponents()
    left, right, top, bottom = 66.0, 420.0, 34.0, 264.0
    across = Scale([x for points in found.values() for x, _ in points], left, right)
    up = Scale([m.median for points in found.values() for _, m in points], bottom, top)
    unit = series.rows[0].unit
    parts = [words(left - 56, 16, series.title, more='font-weight="600"')]
    for tick in up.ticks():
        parts += [line(left, up(tick), right, up(tick)), words(left - 6, up(tick) + 4, amount(tick, unit), "end")]
    for x in dict.fromkeys(x for points in found.values() for x, _ in points):
        parts.append(line(across(x), top, across(x), bottom, 0.1))
    places = [across(x) for x in sorted({x for points in found.values() for x, _ in points})]
    labels = sorted({x for points in found.values() for x, _ in points})
    last = -100.0
    for x, place in zip(labels, places, strict=True):
        if place - last > 44:
            parts.append(words(place, bottom + 18, _short(x, series.along), "middle"))
            last = place
    for k, (name, points) in reversed(list(enumerate(found.items()))):
        path = "L".join(f"{across(x):.1f} {up(m.median):.1f}" for x, m in points)
        parts.append(f'<path d="M{path}" fill="none" stroke="{color(name, k)}" stroke-width="2"/>')
        parts += [
            mark(name, across(x), up(m.median), f"{name}, {_short(x, series.along)}: {measure(m, unit)}", k)
            for x, m in points
        ]
    names = list(found)
    texts = [f"{n}: grows with the power {powers[n]:.2f}" if n in powers else n for n in names]
    parts += legend(names, texts, left, bottom + 42)
    return svg(440, bottom + 50 + 18 * len(names), series.title, parts)


def _short(value: float, along: str) -> str:
    if along == "bytes":
        return amount(value, "bytes")
    for size, name in ((2**20, "Mi"), (2**10, "Ki")):
        if value >= size and value % size == 0:
            return f"{value / size:.0f}{name}"
    return digits(value)
