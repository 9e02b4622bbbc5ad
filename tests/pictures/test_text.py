"""Drawings in text: golden ones, and that every device stands in the cell of the box it owns."""

import re
import tracemalloc
from textwrap import dedent

import pytest
from hypothesis import given

from shardwise import Cut, DeviceMesh, Layout
from shardwise.pictures.binding import MOST_DEVICES
from shardwise.pictures.drawing import layout_text
from shardwise.pictures.text import layout_rich
from shardwise.pictures.unfolding import MOST_PARTS
from tests.layout.strategies import Bound, bound_layouts, meshes

MESH = DeviceMesh((2, 4), ("dp", "tp"))
BIG = DeviceMesh((64, 64, 256), ("x", "y", "z"))

DRAWINGS = [
    (
        Layout(MESH),
        (),
        """
        ┌─────┐
        │ 0-7 │
        └─────┘
        """,
    ),
    (
        Layout(MESH, ["tp"]),
        (10,),
        """
          0:3   3:6   6:8   8:10
        ┌─────┬─────┬─────┬──────┐
        │ 0,4 │ 1,5 │ 2,6 │ 3,7  │
        └─────┴─────┴─────┴──────┘
        """,
    ),
    (
        Layout(MESH, ["dp", Cut("tp", split="chunk")]),
        (10, 10),
        """
               0:3   3:6   6:9   9:10
             ┌─────┬─────┬─────┬──────┐
         0:5 │  0  │  1  │  2  │  3   │
             ├─────┼─────┼─────┼──────┤
        5:10 │  4  │  5  │  6  │  7   │
             └─────┴─────┴─────┴──────┘
        """,
    ),
    (
        Layout(MESH, [Cut("tp", halo=(1, 1)), None]),
        (8, 3),
        """
                          0:3
                        ┌─────┐
        0:2 (holds 0:3) │ 0,4 │
                        ├─────┤
        2:4 (holds 1:5) │ 1,5 │
                        ├─────┤
        4:6 (holds 3:7) │ 2,6 │
                        ├─────┤
        6:8 (holds 5:8) │ 3,7 │
                        └─────┘
        """,
    ),
    (
        Layout(MESH, [Cut("dp", offsets=(0, 1, 4), halo=(1, 0), edge="pad")]),
        (4,),
        """
          0:1 (holds -1:1)   1:4 (holds 0:4)
        ┌──────────────────┬─────────────────┐
        │       0-3        │       4-7       │
        └──────────────────┴─────────────────┘
        """,
    ),
    (
        Layout(MESH, [None, "tp:(1)2"], ["tp:(2)2"], "max"),
        (4, 4),
        """
                  0:2           2:4
            ┌─────────────┬─────────────┐
        0:4 │ (0,4)+(1,5) │ (2,6)+(3,7) │
            └─────────────┴─────────────┘
        + : max over tp:(2)2
        """,
    ),
    (
        Layout(MESH, [None], ["dp", "tp"]),
        (4,),
        """
                0:4
        ┌─────────────────┐
        │ 0+1+2+3+4+5+6+7 │
        └─────────────────┘
        + : sum over dp, tp
        """,
    ),
    (
        Layout(MESH, ["dp", "tp:(1)2", "tp:(2)2"]),
        (4, 4, 5),
        """
        dim 0 at 0:2
              0:3   3:5
            ┌─────┬─────┐
        0:2 │  0  │  1  │
            ├─────┼─────┤
        2:4 │  2  │  3  │
            └─────┴─────┘
        dim 0 at 2:4
              0:3   3:5
            ┌─────┬─────┐
        0:2 │  4  │  5  │
            ├─────┼─────┤
        2:4 │  6  │  7  │
            └─────┴─────┘
        """,
    ),
    (
        Layout(MESH, ["tp", None]),
        (2, 0),
        """
              0:0
            ┌─────┐
        0:1 │ 0,4 │
            ├─────┤
        1:2 │ 1,5 │
            ├─────┤
        2:2 │ 2,6 │
            ├─────┤
        2:2 │ 3,7 │
            └─────┘
        """,
    ),
    (
        Layout(BIG, [None], ["x"]),
        (4,),
        """
                             0:4
        ┌───────────────────────────────────────────┐
        │ (0-16383)+(16384-32767)+(32768-49151)+... │
        └───────────────────────────────────────────┘
        + : sum over x
        """,
    ),
    (
        Layout(BIG, ["x:(1)2", None]),
        (8, 8),
        """
                   0:8
            ┌────────────────┐
        0:4 │    0-524287    │
            ├────────────────┤
        4:8 │ 524288-1048575 │
            └────────────────┘
        """,
    ),
    (
        Layout(BIG, [None, "z:(1)2"]),
        (8, 8),
        """
                 0:4            4:8
            ┌───────────┬─────────────────┐
        0:8 │ 0,1,2,... │ 128,129,130,... │
            └───────────┴─────────────────┘
        """,
    ),
]


@pytest.mark.parametrize(("layout", "shape", "drawing"), DRAWINGS, ids=lambda value: "")
def test_drawings(layout, shape, drawing):
    found = layout.picture(shape)
    assert found == layout_text(layout, shape) == layout_rich(layout, shape).plain
    assert found == dedent(drawing).strip("\n")


def test_a_big_mesh_is_abbreviated():
    lines = Layout(BIG, ["x", "y:(1)2"]).picture((128, 4)).splitlines()
    rows = [line for line in lines if "│" in line]
    assert len(rows) == MOST_PARTS + 1
    assert [re.split(r"\s*│\s*", row.strip())[:3] for row in (rows[0], rows[6], rows[-1])] == [
        ["0:2", "0-8191", "8192-16383"],
        ["...", "...", "..."],
        ["126:128", "1032192-1040383", "1040384-1048575"],
    ]


def test_a_big_mesh_is_drawn_without_a_list_of_its_devices():
    layout = Layout(BIG, [None, "y"], ["x"])
    layout.picture((4, 64))
    tracemalloc.start()
    try:
        layout.picture((4, 64))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 256 * 1024
    assert "devices" not in vars(BIG)


def cells(drawing: str) -> list[str]:
    """The texts in the cells, in reading order."""
    rows = [line for line in drawing.splitlines() if "│" in line]
    return [cell.strip() for row in rows for cell in row.split("│")[1:-1]]


def named(cell: str) -> list[list[int]]:
    """The devices of a cell: per contribution, its replicas."""
    groups = [group.strip("()") for group in cell.split("+")]
    return [[device for part in group.split(",") for device in spread(part)] for group in groups]


def spread(part: str) -> range:
    first, _, last = part.partition("-")
    return range(int(first), int(last or first) + 1)


@given(meshes(max_devices=24).flatmap(bound_layouts))
def test_every_device_stands_in_the_cell_of_its_box(case: Bound):
    layout, shape = case
    abbreviated = any(dim.parts > MOST_PARTS for dim in layout.tiling(shape).dims)
    drawing = layout.picture(shape)
    found = cells(drawing)
    if abbreviated or any("..." in cell for cell in found):
        assert "..." in drawing
        return
    tiles = list(layout.tiles(shape))
    assert len(found) == len(tiles)
    for cell, (_, devices) in zip(found, tiles, strict=True):
        groups = named(cell)
        assert sorted(device for group in groups for device in group) == list(devices)
        for group in groups:
            contributions = {tuple(layout.mesh.device_coord(d, a) for a in layout.partial) for d in group}
            assert len(contributions) == 1


@given(meshes(max_devices=MOST_DEVICES), meshes())
def test_small_meshes_are_never_abbreviated(small, other):
    assert "..." not in Layout(small, [small.axis_names[0], None]).picture((7, 3))
    assert "─" in Layout(other, [other.axis_names]).picture((5,))


def test_colours_follow_the_tiles():
    text = layout_rich(Layout(MESH, ["tp", None]), (8, 3))
    assert len({str(span.style) for span in text.spans}) == 4
