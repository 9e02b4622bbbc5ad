"""Meshes as SVG: devices in rows and columns, and the links between neighbours."""

from __future__ import annotations

from itertools import pairwise, product

from shardwise.layout.device_order import virtual_order
from shardwise.layout.mesh import DeviceMesh
from shardwise.pictures.canvas import (
    LETTER,
    LINE,
    Block,
    below,
    fit_panels,
    group,
    line,
    paragraph,
    rect,
    text_width,
    words,
)
from shardwise.pictures.palette import hue
from shardwise.pictures.unfolding import MOST_PARTS, Lead, Part, Unfolding

GAP = 22  # between neighbours
STYLES = ("solid", "dashed")  # of the links along the last axis and the one before


def mesh_block(mesh: DeviceMesh) -> Block:
    """Return the drawing of a mesh: its last two axes as columns and rows, the others as panels."""
    unfolding, rows = fit_panels(mesh.mesh_shape, MOST_PARTS, lambda unfolding, lead: _panel(mesh, unfolding, lead))
    return below([rows, _legend(mesh, unfolding)], LINE / 2)


def node_label(mesh: DeviceMesh, index: int) -> list[str]:
    """Return what is written in a slot: its index, and its device where that is not the one of that number."""
    if mesh.order == virtual_order(mesh.mesh_shape):
        return [str(index)]
    return [str(index), str(mesh.device(index))]


def place_text(mesh: DeviceMesh, coords: tuple[int, ...]) -> str:
    """Return coordinates with the names of the axes: `dp=1, tp=2`."""
    return ", ".join(f"{name}={at}" for name, at in zip(mesh.axis_names, coords, strict=True))


def _panel(mesh: DeviceMesh, unfolding: Unfolding, lead: Lead) -> Block:
    if None in lead:
        return paragraph(["…"])
    rows, columns, names = unfolding.rows, unfolding.columns, mesh.axis_names
    labels = {at: _label(mesh, unfolding.tile(lead, *at)) for at in product(rows, columns)}
    column_labels = [place_head(names[-1], column) if names else "" for column in columns]
    row_labels = [place_head(names[-2], row) if len(names) > 1 else "" for row in rows]
    width = max(map(text_width, (*column_labels, *(text for label in labels.values() for text in label)))) + 2 * LETTER
    height = LINE * max(map(len, labels.values())) + LINE / 2
    left = max(map(text_width, row_labels)) + LETTER if any(row_labels) else 0
    top = LINE * 1.25 if any(column_labels) else 0
    xs = {column: left + k * (width + GAP) for k, column in enumerate(columns)}
    ys = {row: top + k * (height + GAP) for k, row in enumerate(rows)}
    out = [
        words(xs[column] + width / 2, LINE / 2, label, "soft", "middle")
        for column, label in zip(columns, column_labels, strict=True)
    ]
    out += [
        words(left - LETTER, ys[row] + height / 2, label, "soft", "end")
        for row, label in zip(rows, row_labels, strict=True)
    ]
    for row, (a, b) in product(rows, pairwise(columns)):
        if None in (row, a, b):
            continue
        y = ys[row] + height / 2
        out.append(line(xs[a] + width, y, xs[b], y, "link"))
    for column, (a, b) in product(columns, pairwise(rows)):
        if None in (column, a, b):
            continue
        x = xs[column] + width / 2
        out.append(line(x, ys[a] + height, x, ys[b], "link link1"))
    for row, column in product(rows, columns):
        tile = unfolding.tile(lead, row, column)
        out.append(_node(mesh, tile, labels[row, column], (xs[column], ys[row], width, height)))
    block = Block(xs[columns[-1]] + width, ys[rows[-1]] + height, tuple(out))
    if not lead:
        return block
    return below(
        [paragraph([", ".join(place_head(name, at) for name, at in zip(names, lead, strict=False))], "head"), block], 2
    )


def _label(mesh: DeviceMesh, tile: tuple[int, ...] | None) -> list[str]:
    return ["…"] if tile is None else node_label(mesh, mesh.index(tile))


def place_head(name: str, at: Part, gap: str = "…") -> str:
    """Return a position along an axis: `tp=2`, or the mark for those left out."""
    return gap if at is None else f"{name}={at}"


def _node(mesh: DeviceMesh, tile: tuple[int, ...] | None, label: list[str], at: tuple[float, ...]) -> str:
    x, y, width, height = at
    first = y + height / 2 - LINE * (len(label) - 1) / 2
    texts = [
        words(x + width / 2, first + k * LINE, text, "soft" if k else "", "middle") for k, text in enumerate(label)
    ]
    if tile is None:
        return "".join(texts)
    index = mesh.index(tile)
    box = rect(x, y, width, height, f"c{hue(index)}", 8)
    where = f" at {place_text(mesh, tile)}" if tile else ""
    return group([box, *texts], "node", f"device {index}{where}: {mesh.device(index)!r}", index=str(index))


def _legend(mesh: DeviceMesh, unfolding: Unfolding) -> Block:
    axes = zip(mesh.axis_names[::-1], mesh.mesh_shape[::-1], STYLES, strict=False)
    out = [f"{style} lines: links along {name}, {size} devices each" for name, size, style in axes]
    if mesh.ndim > 2:
        out.append(f"panels: links along {', '.join(mesh.axis_names[:-2])} join equal places of neighbouring panels")
    if any(None in parts for parts in unfolding.shown):
        out.append(f"…: left out; there are {mesh.num_devices} devices")
    return paragraph(out, "soft")
