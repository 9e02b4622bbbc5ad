"""Drawings in text: which device holds which box of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, product
from math import prod

from rich.text import Text

from shardwise.layout.axis import Axis
from shardwise.layout.layout import Layout
from shardwise.layout.tiling import DimTiling, Interval

MOST_PARTS = 12  # of one dim that are drawn; the middle ones beyond that are left out
MOST_DEVICES = 8  # that are named one by one in a cell; of more, the first three
COLOURS = (
    "cyan",
    "magenta",
    "green",
    "yellow",
    "blue",
    "red",
    "bright_cyan",
    "bright_magenta",
    "bright_green",
    "bright_yellow",
)

Part = int | None  # None stands for the parts that are left out


def layout_text(layout: Layout, shape: tuple[int, ...]) -> str:
    """Return the drawing of a layout as plain text."""
    return layout_rich(layout, shape).plain


def layout_rich(layout: Layout, shape: tuple[int, ...]) -> Text:
    """Return the drawing of a layout with one colour per tile.

    Dims before the last two are unfolded into one panel per part. A cell names the devices that hold
    the tile; devices joined by `+` each hold a contribution to it.
    """
    tiling = layout.tiling(shape)
    shown = [_shown(dim.parts) for dim in tiling.dims]
    panels = [_panel(layout, tiling.dims, lead, shown) for lead in product(*shown[:-2])]
    out = Text("\n").join(panels)
    if layout.partial:
        out.append(f"\n+ : {layout.reduce_op} over {', '.join(map(str, layout.partial))}")
    return out


def _panel(layout: Layout, dims: Sequence[DimTiling], lead: tuple[Part, ...], shown: Sequence[Sequence[Part]]) -> Text:
    rows, columns = ([None], *shown[-1:]) if len(shown) == 1 else shown[-2:] if shown else ([None], [None])
    titles = [_interval(dims[-2], row) if len(shown) > 1 else "" for row in rows]
    heads = [_interval(dims[-1], column) if shown else "" for column in columns]
    cells = [[_label(layout, lead, row, column, len(shown)) for column in columns] for row in rows]
    widths = [
        max(len(t) for t in texts) + 2 for texts in zip(heads, *[[c for c, _ in row] for row in cells], strict=True)
    ]
    margin = max(map(len, titles)) + 1 if any(titles) else 0
    out = Text()
    if lead:
        out.append(
            ", ".join(f"dim {k} at {_interval(dims[k], part)}" for k, part in enumerate(lead)) + "\n",
            style="bold",
        )
    if any(heads):
        out.append(
            " " * margin + " " + " ".join(h.center(w) for h, w in zip(heads, widths, strict=True)).rstrip() + "\n"
        )
    rules = ["┌┬┐", *["├┼┤"] * (len(rows) - 1), "└┴┘"]
    for title, row, rule in zip(titles, cells, rules, strict=False):
        out.append(_rule(margin, rule, widths))
        out.append(title.rjust(margin - 1) + " " if margin else "")
        for (label, tile), width in zip(row, widths, strict=True):
            out.append("│")
            out.append(label.center(width), style=COLOURS[tile % len(COLOURS)] if tile is not None else "dim")
        out.append("│\n")
    out.append(_rule(margin, rules[-1], widths).rstrip("\n"))
    return out


def _rule(margin: int, corners: str, widths: Sequence[int]) -> str:
    return " " * margin + corners[0] + corners[1].join("─" * w for w in widths) + corners[2] + "\n"


def _shown(parts: int) -> list[Part]:
    if parts <= MOST_PARTS:
        return list(range(parts))
    half = MOST_PARTS // 2
    return [*range(half), None, *range(parts - half, parts)]


def _interval(dim: DimTiling, part: Part) -> str:
    if part is None:
        return "..."
    text = _span(dim.interval(part))
    held = _span(dim.held(part))
    return text if held == text else f"{text} (holds {held})"


def _span(interval: Interval) -> str:
    return f"{interval[0]}:{interval[1]}"


def _label(layout: Layout, lead: tuple[Part, ...], row: Part, column: Part, rank: int) -> tuple[str, int | None]:
    tile = (*lead, row, column)[max(0, 2 - rank) :] if rank else ()
    if any(part is None for part in tile):
        return "...", None
    numbers = tuple(part for part in tile if part is not None)
    flat = 0
    for dim, part in enumerate(numbers):
        flat = flat * layout.parts(dim) + part
    return _devices(layout, numbers), flat


def _devices(layout: Layout, tile: tuple[int, ...]) -> str:
    # Replicas are listed with commas or as a range, contributions joined by plus signs.
    first = layout.first_holder(tile)
    groups = [_replicas(layout, first + offset) for offset in _offsets(layout, layout.partial)]
    if layout.partial and layout.replicated_axes:
        groups = [f"({group})" for group in groups]
    return "+".join(groups) + ("+..." if _count(layout.partial) > MOST_DEVICES else "")


def _replicas(layout: Layout, first: int) -> str:
    axes = layout.replicated_axes
    last = first + sum((a.size - 1) * layout.mesh.divisor(a) for a in axes)
    if _count(axes) > 2 and last - first + 1 == _count(axes):
        return f"{first}-{last}"
    named = ",".join(str(first + offset) for offset in _offsets(layout, axes))
    return named + (",..." if _count(axes) > MOST_DEVICES else "")


def _count(axes: Sequence[Axis]) -> int:
    return prod(axis.size for axis in axes)


def _offsets(layout: Layout, axes: Sequence[Axis]) -> list[int]:
    # As many as are named, and no more positions per axis: `product` makes a list of each.
    count = _count(axes) if _count(axes) <= MOST_DEVICES else 3
    steps = [(layout.mesh.divisor(a), min(a.size, MOST_DEVICES)) for a in axes]
    every = product(*(range(0, number * divisor, divisor) for divisor, number in steps))
    return [sum(offsets) for offsets in islice(every, count)]
