"""Meshes in text: devices in rows and columns, and the links between neighbours."""

from __future__ import annotations

from rich.text import Text

from shardwise.layout.mesh import DeviceMesh, place_of
from shardwise.pictures.mesh_svg import node_label, place_head
from shardwise.pictures.palette import INKS, hue
from shardwise.pictures.text import fit_panels
from shardwise.pictures.unfolding import Lead, Unfolding


def mesh_rich(mesh: DeviceMesh, width: int | None = None) -> Text:
    """Return the drawing of a mesh with one colour per device, with fewer of them where it would be too wide."""
    return fit_panels(mesh.mesh_shape, width, lambda unfolding, lead: _panel(mesh, unfolding, lead), "\n\n")


def _panel(mesh: DeviceMesh, unfolding: Unfolding, lead: Lead) -> Text:
    if None in lead:
        return Text("...", style="dim")
    names = () if place_of(mesh) != str(mesh) else mesh.axis_names  # of one device, its name says all
    rows, columns = unfolding.rows, unfolding.columns
    column_labels = [place_head(names[-1], column, "...") if names else "" for column in columns]
    row_labels = [place_head(names[-2], row, "...") if len(names) > 1 else "" for row in rows]
    cells = [[_cell(mesh, unfolding.tile(lead, row, column)) for column in columns] for row in rows]
    width = max(map(len, (*column_labels, *(label for row in cells for label, _ in row))))
    margin = max(map(len, row_labels)) + 1 if any(row_labels) else 0
    out = Text()
    if lead:
        out.append(", ".join(place_head(name, at, "...") for name, at in zip(names, lead, strict=False)) + "\n", "bold")
    if names:
        line = " " * margin + "   ".join(label.center(width) for label in column_labels)
        out.append(line.rstrip() + "\n", "dim")
    between = " " * margin + "   ".join("│".center(width) for _ in columns)
    for k, (row_label, row) in enumerate(zip(row_labels, cells, strict=True)):
        if k:
            out.append(f"\n{between.rstrip()}\n", "dim")
        out.append(row_label.rjust(margin - 1) + " " if margin else "", "dim")
        for n, (label, style) in enumerate(row):
            out.append(" ─ " if n else "", "dim")
            out.append(label.center(width), style)
    out.rstrip()
    return out


def _cell(mesh: DeviceMesh, tile: tuple[int, ...] | None) -> tuple[str, str]:
    if tile is None:
        return "...", "dim"
    index = mesh.index(tile)
    return " ".join(node_label(mesh, index)), INKS[hue(index)]
