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
    heads = [place_head(names[-1], column, "...") if names else "" for column in columns]
    sides = [place_head(names[-2], row, "...") if len(names) > 1 else "" for row in rows]
    cells = [[_cell(mesh, unfolding.tile(lead, row, column)) for column in columns] for row in rows]
    width = max(map(len, (*heads, *(label for row in cells for label, _ in row))))
    margin = max(map(len, sides)) + 1 if any(sides) else 0
    out = Text()
    if lead:
        out.append(", ".join(place_head(name, at, "...") for name, at in zip(names, lead, strict=False)) + "\n", "bold")
    if names:
        out.append((" " * margin + "   ".join(head.center(width) for head in heads)).rstrip() + "\n", "dim")
    between = " " * margin + "   ".join("│".center(width) for _ in columns)
    for k, (side, row) in enumerate(zip(sides, cells, strict=True)):
        if k:
            out.append(f"\n{between.rstrip()}\n", "dim")
        out.append(side.rjust(margin - 1) + " " if margin else "", "dim")
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
