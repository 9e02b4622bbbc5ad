"""Meshes as SVG and as text: every device at its place, and links between neighbours."""

from textwrap import dedent

import pytest
from hypothesis import given

from shardwise import CPU, Accelerator, DeviceMesh, picture
from shardwise.pictures.unfolding import MOST_CELLS
from tests.layout.strategies import meshes
from tests.pictures.scene import overlaps, read

BIG = DeviceMesh((64, 64, 256), ("x", "y", "z"))

TEXTS = [
    (
        DeviceMesh((4,), ("x",)),
        """
        mesh x=4: 4 devices
        x=0   x=1   x=2   x=3
         0  ─  1  ─  2  ─  3
        """,
    ),
    (
        DeviceMesh((2, 2, 2), ("pp", "dp", "tp")),
        """
        mesh pp=2, dp=2, tp=2: 8 devices
        pp=0
             tp=0   tp=1
        dp=0  0   ─  1
              │      │
        dp=1  2   ─  3

        pp=1
             tp=0   tp=1
        dp=0  4   ─  5
              │      │
        dp=1  6   ─  7
        """,
    ),
    (
        DeviceMesh((2,), ("x",), [Accelerator(1), Accelerator(0)], name="pod"),
        """
        mesh 'pod' x=2: 2 devices
          x=0       x=1
        0 gpu:1 ─ 1 gpu:0
        """,
    ),
    (
        DeviceMesh((100,), ("x",)),
        """
        mesh x=100: 100 devices
        x=0    x=1    x=2    x=3    x=4    x=5    ...    x=94   x=95   x=96   x=97   x=98   x=99
         0   ─  1   ─  2   ─  3   ─  4   ─  5   ─ ...  ─  94  ─  95  ─  96  ─  97  ─  98  ─  99
        """,
    ),
    (
        DeviceMesh.single(CPU(3)),
        """
        mesh of CPU(3)
        0 cpu:3
        """,
    ),
]


@pytest.mark.parametrize(("mesh", "text"), TEXTS, ids=lambda value: "")
def test_meshes_in_text(mesh, text):
    assert picture(mesh).text == dedent(text).strip()


@given(meshes())
def test_every_device_is_at_its_place(mesh: DeviceMesh):
    found = picture(mesh)
    scene = read(found.svg)
    assert not list(overlaps(scene))
    nodes = scene.of("node")
    if mesh.num_devices <= 36:
        assert [int(node.data["index"]) for node in nodes] == list(range(mesh.num_devices))
        assert "…" not in {word.text for word in scene.words}
    for node in nodes:
        index = int(node.data["index"])
        place = ", ".join(f"{name}={at}" for name, at in zip(mesh.axis_names, mesh.coords(index), strict=True))
        assert node.title == f"device {index} at {place}: {mesh.device(index)!r}"
        assert node.words[0].text == str(index)
        assert str(index) in found.text


@given(meshes(max_devices=30))
def test_links_join_neighbours_along_the_last_two_axes(mesh: DeviceMesh):
    svg = picture(mesh).svg
    columns = mesh.mesh_shape[-1]
    rows = mesh.mesh_shape[-2] if mesh.ndim > 1 else 1
    panels = mesh.num_devices // (columns * rows)
    assert svg.count('class="link"') == panels * rows * (columns - 1)
    assert svg.count('class="link link1"') == panels * columns * (rows - 1)


def test_a_legend_tells_the_axes_apart():
    words = [word.text for word in read(picture(DeviceMesh((2, 3, 4), ("pp", "dp", "tp"))).svg).words]
    assert "solid lines: links along tp, 4 devices each" in words
    assert "dashed lines: links along dp, 3 devices each" in words
    assert "panels: links along pp join equal places of neighbouring panels" in words
    assert {"pp=0", "pp=1", "dp=2", "tp=3"} <= set(words)


def test_a_million_devices_are_summed_up():
    found = picture(BIG)
    assert len(found.svg) < 200_000
    assert len(found.text) < 20_000
    scene = read(found.svg)
    assert len(scene.of("node")) <= MOST_CELLS
    assert "…: left out; there are 1048576 devices" in {word.text for word in scene.words}
    assert not list(overlaps(scene))
    assert "devices" not in vars(BIG)
