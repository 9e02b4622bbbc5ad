"""Drawings in text: which device holds which box of a tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.cells import cell_len
from rich.text import Text

from shardwise.layout.layout import Layout
from shardwise.pictures.binding import BoundLayout, bind_layout, order_text
from shardwise.pictures.palette import INKS, hue
from shardwise.pictures.unfolding import MOST_PARTS, Lead, Part, Unfolding, unfold


def layout_rich(layout: Layout, shape: tuple[int, ...]) -> Text:
    """Return the drawing of a layout with one colour per device."""
    return bound_rich(bind_layout(layout, shape))


def bound_rich(bound: BoundLayout, width: int | None = None) -> Text:
    """Return the drawing of a layout with one colour per device, with fewer parts where it would be too wide.

    Dims before the last two are unfolded into one panel per part. A cell names the devices that hold
    the tile; devices joined by `+` each hold a contribution to it.
    """
    layout = bound.layout
    parts = [layout.parts(dim) for dim in range(layout.rank)]
    out = fit_panels(parts, width, lambda unfolding, lead: _panel(bound, unfolding, lead), "\n")
    if layout.partial:
        out.append(f"\n+ : {layout.reduce_op} over {', '.join(map(str, layout.partial))}")
    devices = order_text(layout.mesh)
    return out.append(f"\n{devices}" if devices else "")


def fit_panels(parts: Sequence[int], width: int | None, panel: Callable[[Unfolding, Lead], Text], gap: str) -> Text:
    """Return the panels of the most parts that are not wider than a terminal, or those of the fewest."""
    most = MOST_PARTS
    while True:
        unfolding = unfold(parts, most)
        out = Text(gap, no_wrap=True, overflow="ignore").join([panel(unfolding, lead) for lead in unfolding.panels])
        if width is None or max(map(cell_len, out.plain.splitlines()), default=0) <= width:
            return out
        if most <= 2:
            out.overflow = "ellipsis"  # so that what is cut off is seen to be
            return out
        most -= 2


def _panel(bound: BoundLayout, unfolding: Unfolding, lead: Lead) -> Text:
    if None in lead:
        return Text("...", style="dim")
    rank, rows, columns = unfolding.rank, unfolding.rows, unfolding.columns
    row_labels = [_label(bound, rank - 2, row) if rank > 1 else "" for row in rows]
    column_labels = [_label(bound, rank - 1, column) if rank else "" for column in columns]
    cells = [[_cell(bound, unfolding.tile(lead, row, column)) for column in columns] for row in rows]
    widths = [
        max(len(t) for t in texts) + 2
        for texts in zip(column_labels, *[[c for c, _ in row] for row in cells], strict=True)
    ]
    margin = max(map(len, row_labels)) + 1 if any(row_labels) else 0
    out = Text()
    if lead:
        out.append(", ".join(f"dim {k} at {_label(bound, k, part)}" for k, part in enumerate(lead)) + "\n", "bold")
    if any(column_labels):
        centred = " ".join(h.center(w) for h, w in zip(column_labels, widths, strict=True)).rstrip()
        out.append(" " * margin + " " + centred + "\n")
    rules = ["┌┬┐", *["├┼┤"] * (len(rows) - 1), "└┴┘"]
    for row_label, row, rule in zip(row_labels, cells, rules, strict=False):
        out.append(_rule(margin, rule, widths))
        out.append(row_label.rjust(margin - 1) + " " if margin else "")
        for (label, style), width in zip(row, widths, strict=True):
            out.append("│")
            out.append(label.center(width), style=style)
        out.append("│\n")
    out.append(_rule(margin, rules[-1], widths).rstrip("\n"))
    return out


def _rule(margin: int, corners: str, widths: Sequence[int]) -> str:
    return " " * margin + corners[0] + corners[1].join("─" * w for w in widths) + corners[2] + "\n"


def _label(bound: BoundLayout, dim: int, part: Part) -> str:
    if part is None:
        return "..."
    halo = bound.halo_text(dim, part)
    return bound.span(dim, part) + (f" ({halo})" if halo else "")


def _cell(bound: BoundLayout, tile: tuple[int, ...] | None) -> tuple[str, str]:
    if tile is None:
        return "...", "dim"
    return bound.devices(tile), INKS[hue(bound.layout.first_holder(tile))]
