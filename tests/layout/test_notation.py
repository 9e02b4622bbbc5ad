"""The short forms are read back as they are printed, and what is no layout is refused with what would be one."""

import re

import pytest
from hypothesis import given

from shardwise import Cut, DeviceMesh, Layout, LayoutError, MeshError, ShardwiseError
from shardwise.layout.notation import FORM, read_layout, read_mesh, read_shape
from tests.layout.strategies import Bound, bound_layouts, meshes

MESH = DeviceMesh((2, 4), ("dp", "tp"))


@given(bound_layouts())
def test_a_layout_is_read_as_it_is_printed(case: Bound):
    layout = case.layout
    if "-" in layout.mesh.axis_names:  # which is how a whole dim is printed
        return
    text = str(layout)
    for cut in layout.dims:
        if cut.offsets is not None:  # printed without the numbers
            text = text.replace("/offsets", f"/OFFSETS({','.join(map(str, cut.offsets))})", 1)
    assert read_layout(text.replace("OFFSETS", "offsets"), layout.mesh, layout.rank) is layout


@given(meshes())
def test_a_mesh_is_read_as_it_is_printed(mesh: DeviceMesh):
    assert read_mesh(str(mesh)) is DeviceMesh(mesh.mesh_shape, mesh.axis_names)


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("dp,tp", Layout(MESH, ["dp", "tp"])),
        (" dp , tp ", Layout(MESH, ["dp", "tp"])),
        ("[dp|tp]", Layout(MESH, ["dp", "tp"])),
        ("dp", Layout(MESH, ["dp", None])),
        ("", Layout(MESH, [None, None])),
        ("-,-", Layout(MESH, [None, None])),
        (",tp", Layout(MESH, [None, "tp"])),
        ("tp dp", Layout(MESH, [("tp", "dp"), None])),
        ("-, tp:(2)2 dp", Layout(MESH, [None, ("tp:(2)2", "dp")])),
        ("dp sum(tp)", Layout(MESH, ["dp", None], ["tp"])),
        ("[-|-] max(dp, tp)", Layout(MESH, [None, None], ["dp", "tp"], "max")),
        ("prod(tp:(1)2)", Layout(MESH, [None, None], ["tp:(1)2"], "prod")),
        ("tp/chunk", Layout(MESH, [Cut("tp", split="chunk"), None])),
        ("tp/offsets(0,3,8,8,10)", Layout(MESH, [Cut("tp", offsets=(0, 3, 8, 8, 10)), None])),
        ("tp±(1,2), dp+-(0,1)pad", Layout(MESH, [Cut("tp", halo=(1, 2)), Cut("dp", halo=(0, 1), edge="pad")])),
        ("tp/chunk±(1,1) sum(dp)", Layout(MESH, [Cut("tp", split="chunk", halo=1), None], ["dp"])),
    ],
)
def test_layouts(text, layout):
    assert read_layout(text, MESH, 2) is layout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dp,pt", "unknown mesh axis 'pt' in the layout 'dp,pt'.\n  mesh axes: dp=2, tp=4\n  did you mean 'tp'?"),
        ("dp sum(qq)", "unknown mesh axis 'qq' in the layout 'dp sum(qq)'.\n  mesh axes: dp=2, tp=4"),
        ("dp,-,-", f"the layout 'dp,-,-' has 3 dims, the shape has 2.\n  write {FORM}."),
        ("[dp|tp", f"brackets do not match in the layout '[dp|tp'.\n  write {FORM}."),
        ("dp±(1,1", f"brackets do not match in the layout 'dp±(1,1'.\n  write {FORM}."),
        ("dp)", f"brackets do not match in the layout 'dp)'.\n  write {FORM}."),
        ("dp/halves", f"'dp/halves' in the layout 'dp/halves' says nothing about a dim.\n  write {FORM}."),
        ("dp±(x,1)", f"'dp±(x,1)' in the layout 'dp±(x,1)' says nothing about a dim.\n  write {FORM}."),
        ("dp mean(tp)", "unknown reduction 'mean'.\n  reductions: sum, avg, min, max, prod, band, bor, bxor"),
        ("dp,dp", "mesh axis 'dp' is used twice in ['dp', 'dp']."),
        ("tp/offsets(0,3)", "2 offsets for 4 shards in"),
        ("tp/offsets(3,0)", "offsets"),
    ],
)
def test_what_is_no_layout(text, message):
    with pytest.raises(LayoutError, match=re.escape(message)):
        read_layout(text, MESH, 2)


@pytest.mark.parametrize("text", ["", "dp", "dp=", "dp=two", "dp=2;tp=4", "=3", "dp=2,dp=2", "dp=0", "2x4"])
def test_what_is_no_mesh(text):
    with pytest.raises(MeshError):
        read_mesh(text)


def test_a_mesh_that_cannot_be_read_shows_the_form():
    with pytest.raises(MeshError) as caught:
        read_mesh("dp=2,tp")
    assert str(caught.value) == (
        "a mesh is written as axes with their sizes, such as dp=2,tp=4, got 'tp' in 'dp=2,tp'."
    )


def test_shapes():
    assert read_shape("8") == (8,)
    assert read_shape("0x3") == (0, 3)
    assert read_shape("2, 3") == (2, 3)
    assert read_shape("") == ()
    for text in ("2x", "axb", "-1", "2*3", "1.5"):
        with pytest.raises(ShardwiseError, match=re.escape(f"sizes such as 1024x4096, got {text!r}.")):
            read_shape(text)
