"""Layouts as SVG: every tile as a box, with the devices that hold it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from shardwise.layout.tiling import DimTiling, Interval, box_size
from shardwise.pictures.binding import BoundLayout, order_text, span_text
from shardwise.pictures.canvas import (
    LETTER,
    LINE,
    Block,
    below,
    fit_panels,
    group,
    paragraph,
    rect,
    text_width,
    words,
)
from shardwise.pictures.palette import hue
from shardwise.pictures.unfolding import MOST_PARTS, Lead, Part, Unfolding

WIDE, HIGH = 400, 220  # of a tensor drawn on one panel, if its texts do not need more
RIM = 12  # width of a halo
CARD = 4  # how far a copy looks out from behind

SYMBOLS = {"sum": "Σ", "prod": "Π", "avg": "avg", "min": "min", "max": "max", "band": "and", "bor": "or", "bxor": "xor"}


@dataclass(frozen=True)
class Lane:
    """One row or one column of tiles: where it begins, and its three parts: low rim, what is owned, high rim."""

    start: float
    rims: tuple[float, float, float]
    kinds: tuple[str, str, str]

    @property
    def width(self) -> float:
        """The room of all three parts."""
        return sum(self.rims)

    @property
    def middle(self) -> float:
        """Where the middle of what is owned lies."""
        return self.start + self.rims[0] + self.rims[1] / 2

    def parts(self) -> Iterator[tuple[float, float, str]]:
        """Yield start, width and kind of each part that is there."""
        at = self.start
        for width, kind in zip(self.rims, self.kinds, strict=True):
            if width:
                yield at, width, kind
            at += width


def layout_block(bound: BoundLayout, most: int = MOST_PARTS, scale: float = 1.0) -> Block:
    """Return the drawing of a layout, with what its marks mean below it; `scale` makes it smaller, not its texts."""
    layout = bound.layout
    parts = [layout.parts(dim) for dim in range(layout.rank)]
    unfolding, rows = fit_panels(parts, most, lambda unfolding, lead: _panel(bound, unfolding, lead, scale))
    return below([rows, legend(bound, unfolding)], LINE / 2)


@dataclass(frozen=True)
class Frame:
    """The rows and columns of one panel: their labels, where they lie, and what is written in the cells."""

    column_labels: list[list[str]]
    row_labels: list[list[str]]
    cells: dict[tuple[Part, Part], list[str]]
    across: list[Lane]
    down: list[Lane]
    left: float  # of it the labels of the rows take


def _frame(bound: BoundLayout, unfolding: Unfolding, lead: Lead, scale: float) -> Frame:
    rank, rows, columns, layout = unfolding.rank, unfolding.rows, unfolding.columns, bound.layout
    column_labels = [_labels_of(bound, rank - 1, part) if rank else [] for part in columns]
    row_labels = [_labels_of(bound, rank - 2, part) if rank > 1 else [] for part in rows]
    cells = {at: _lines(bound, unfolding.tile(lead, *at)) for at in product(rows, columns)}
    widths = [
        max([*map(text_width, label), *(text_width(text) for row in rows for text in cells[row, column])]) + 2 * LETTER
        for column, label in zip(columns, column_labels, strict=True)
    ]
    heights = [
        LINE * max(len(label), *(len(cells[row, column]) for column in columns)) + LINE / 2
        for row, label in zip(rows, row_labels, strict=True)
    ]
    labels = [_dim(bound, rank - 2), *(text for label in row_labels for text in label)] if rank > 1 else []
    left = max(map(text_width, labels)) + LETTER if labels else 0
    card = CARD if layout.replicated_axes else 0
    top = LINE * (max(map(len, column_labels)) + 0.25 + (rank > 0)) + card
    gap = card + (8 if layout.has_halo else 2)
    scale = min(scale, 1.0 if len(unfolding.panels) == 1 else 0.5)
    wide, high = _proportions(bound)
    across = _lanes(bound, rank - 1, columns, widths, wide * scale, left, gap)
    down = _lanes(bound, rank - 2, rows, heights, high * scale, top, gap)
    return Frame(column_labels, row_labels, cells, across, down, left)


def _panel(bound: BoundLayout, unfolding: Unfolding, lead: Lead, scale: float) -> Block:
    if None in lead:
        return paragraph(["…"])
    rank, frame = unfolding.rank, _frame(bound, unfolding, lead, scale)
    right = frame.across[-1].start + frame.across[-1].width + CARD
    out: list[str] = []
    if rank:
        out.append(words(frame.left, LINE * 0.5, _dim(bound, rank - 1), "soft"))
        right = max(right, frame.left + text_width(_dim(bound, rank - 1)))
    if rank > 1:
        out.append(words(0, LINE * 1.5, _dim(bound, rank - 2), "soft"))
    for lane, label in zip(frame.across, frame.column_labels, strict=True):
        out += [words(lane.middle, LINE * (k + 1.5), text, anchor="middle") for k, text in enumerate(label)]
    for lane, label in zip(frame.down, frame.row_labels, strict=True):
        out += _centre(label, frame.left - LETTER, lane.middle, "end")
    lanes = product(frame.down, frame.across)
    for (at, lines), (y, x) in zip(frame.cells.items(), lanes, strict=True):
        out.append(_tile(bound, unfolding.tile(lead, *at), x, y, lines))
    block = Block(right, frame.down[-1].start + frame.down[-1].width, tuple(out))
    if not lead:
        return block
    title = ", ".join(f"{_dim(bound, k)} at {bound.span(k, part)}" for k, part in enumerate(lead) if part is not None)
    return below([paragraph([title], "head"), block], 2)


def _dim(bound: BoundLayout, dim: int) -> str:
    axes = " ".join(map(str, bound.layout.dims[dim].axes))
    return f"dim {dim} by {axes}" if axes else f"dim {dim}"


def _labels_of(bound: BoundLayout, dim: int, part: Part) -> list[str]:
    if part is None:
        return ["…"]
    return [bound.span(dim, part), *filter(None, [bound.halo_text(dim, part)])]


def _lines(bound: BoundLayout, tile: tuple[int, ...] | None) -> list[str]:
    if tile is None:
        return ["…"]
    op = bound.layout.reduce_op
    first = bound.devices(tile) if op is None else f"{SYMBOLS[op.value]} {bound.devices(tile)}"
    if not bound.is_known:
        return [first]
    sizes = [stop - start for start, stop in bound.held_box(tile)]
    return [first, *filter(None, ["×".join(map(str, sizes)) if all(sizes) else "empty"])]


def _proportions(bound: BoundLayout) -> tuple[float, float]:
    sizes = [max(1, dim.size) for dim in bound.tiling.dims[-2:]]
    if len(sizes) < 2:
        return WIDE, 0
    ratio = min(4.0, max(0.6, sizes[1] / sizes[0]))
    return (WIDE, WIDE / ratio) if ratio > WIDE / HIGH else (HIGH * ratio, HIGH)


def _lanes(
    bound: BoundLayout, dim: int, parts: Sequence[Part], least: Sequence[float], room: float, start: float, gap: float
) -> list[Lane]:
    if dim < 0:
        return [Lane(start, (0, max(least[0], room / 4), 0), ("", "own", ""))]
    tiling, out = bound.tiling.dims[dim], list[Lane]()
    for part, need in zip(parts, least, strict=True):
        if part is None:
            lane = Lane(start, (0, need, 0), ("", "own", ""))
        else:
            (low, high), (first, last) = tiling.interval(part), tiling.extent(part)
            rims = RIM * (first < low), max(need, room * (high - low) / max(1, tiling.size)), RIM * (last > high)
            lane = Lane(start, rims, (_kind(tiling, (first, low)), "own", _kind(tiling, (high, last))))
        out.append(lane)
        start += lane.width + gap
    return out


def _kind(tiling: DimTiling, rim: Interval) -> str:
    return "pad" if rim[0] < 0 or rim[1] > tiling.size else "halo"


def _tile(bound: BoundLayout, tile: tuple[int, ...] | None, x: Lane, y: Lane, lines: list[str]) -> str:
    if tile is None:
        return "".join(_centre(lines, x.middle, y.middle, "middle", "soft"))
    layout, out = bound.layout, list[str]()
    colour = f"c{hue(layout.first_holder(tile))}"
    empty = bound.is_known and not box_size(bound.tiling.tile_box(tile))
    own = "empty" if empty else colour + (" pending" if layout.partial else "")
    if layout.replicated_axes:
        out.append(rect(x.start + CARD, y.start - CARD, x.width, y.width, own))
    for (left, width, a), (top, height, b) in product(x.parts(), y.parts()):
        kinds = {a, b}
        kind = "pad" if "pad" in kinds else "halo" if "halo" in kinds else own
        if kind in ("pad", "halo"):  # on the ground, so that no copy behind it shows through
            out.append(rect(left, top, width, height, "blank"))
        out.append(rect(left, top, width, height, kind))
    out += _centre(lines, x.middle, y.middle, "middle")
    data = {"devices": bound.devices(tile), "box": bound.box(tile).replace(" ", "")}
    if layout.has_halo and bound.is_known:
        data["held"] = ",".join(map(span_text, bound.held_box(tile)))
    return group(out, "tile", _title(bound, tile), **data)


def _title(bound: BoundLayout, tile: tuple[int, ...]) -> str:
    layout, devices = bound.layout, bound.devices(tile)
    alone = devices.isdecimal()
    out = f"device {devices}" if alone else f"devices {devices}"
    if layout.partial:
        out += f" (contributions, {layout.reduce_op})"
    elif not alone:
        out += " (equal copies)"
    out += f": [{bound.box(tile)}] of {bound.shape_text}"
    if layout.has_halo and bound.is_known:
        out += f", holds [{', '.join(map(span_text, bound.held_box(tile)))}]"
    return out


def _centre(lines: Sequence[str], x: float, y: float, anchor: str, style: str = "") -> list[str]:
    first = y - LINE * (len(lines) - 1) / 2
    return [words(x, first + k * LINE, text, style, anchor) for k, text in enumerate(lines)]


def legend(bound: BoundLayout, unfolding: Unfolding) -> Block:
    """Return what the marks in a drawing mean, for those that are in it."""
    layout, out = bound.layout, list[str]()
    if layout.replicated_axes:
        out.append(f"cards: equal copies, replicated over {', '.join(map(str, layout.replicated_axes))}")
    if layout.partial and layout.reduce_op is not None:
        axes = ", ".join(map(str, layout.partial))
        symbol = SYMBOLS[layout.reduce_op.value]
        out.append(f"{symbol}, dashed edge: contributions; the value is their {layout.reduce_op} over {axes}")
    kinds = {_kind(dim, rim) for dim in bound.tiling.dims for rim in _rims(dim)}
    if "halo" in kinds:
        out.append("hatched: halo, held besides what is owned")
    if "pad" in kinds:
        out.append("dotted: padding, outside the tensor")
    if any(None in parts for parts in unfolding.shown):
        counts = "x".join(str(layout.parts(dim)) for dim in range(layout.rank))
        out.append(f"…: left out; there are {counts} parts")
    out += filter(None, [order_text(layout.mesh)])
    return paragraph(out, "soft")


def _rims(dim: DimTiling) -> Iterator[Interval]:
    for part in {0, min(1, dim.parts - 1), dim.parts - 1}:
        (low, high), (first, last) = dim.interval(part), dim.extent(part)
        if first < low:
            yield first, low
        if last > high:
            yield high, last
