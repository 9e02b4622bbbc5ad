"""Pictures: what can be drawn, where it is shown, and what terminals without the letters get."""

import io
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from rich.console import Console

from shardwise import (
    AbstractEngine,
    ArgumentError,
    BindingError,
    Cut,
    DeviceMesh,
    DistributedTensorType,
    Layout,
    NamedMapping,
    P,
    engine_context,
    mesh_context,
    picture,
    plan_reshard,
    shard,
    vjp,
)
from shardwise.pictures.drawing import encodable
from tests.layout.strategies import Bound, bound_layouts

MESH = DeviceMesh((2, 4), ("dp", "tp"))
LAYOUT = Layout(MESH, ["dp", Cut("tp", halo=1)])


def test_whatever_has_a_layout_is_drawn():
    tensor = shard(np.zeros((4, 8), "float32"), MESH, P("dp", "tp"))
    want = picture(tensor.layout, (4, 8))
    kind = DistributedTensorType("float32", (4, 8), MESH, P("dp", "tp"))
    with mesh_context(MESH):
        same = [picture(P("dp", "tp"), (4, 8)), picture(NamedMapping(MESH, ("dp", "tp")), (4, 8)), picture(kind)]
    assert {found.svg for found in same} == {want.svg}
    drawn = picture(tensor)
    assert drawn.text.splitlines()[1:] == want.text.splitlines()[1:]
    assert drawn.title == "float32[4@dp, 8@tp] on dp=2, tp=4"


def test_dims_with_names_have_parts_instead_of_intervals():
    kind = DistributedTensorType("float32", ("batch", 8), MESH, P("dp", "tp"))
    text = picture(kind).text
    assert text.splitlines()[0] == "[dp|tp] of batchx8 on dp=2, tp=4"
    assert "part 1" in text
    assert "4:6" in text


@pytest.mark.parametrize(
    ("x", "shape", "message"),
    [
        (3, None, "a picture is made of a Layout, a Tensor, a Plan or a DeviceMesh, got 3."),
        (MESH, (2,), "a mesh has its own shape; picture takes one for a layout only, got (2,)."),
        (shard(np.zeros(4), MESH, P()), (4,), "a tensor has its own shape; picture takes one for a layout only"),
        (P("x"), None, "P('x') is a layout for tensors of any rank; say of which shape: picture(x, shape)."),
        (3, (2,), "a layout was expected, got 3."),
    ],
    ids=str,
)
def test_what_cannot_be_drawn(x, shape, message):
    with pytest.raises(ArgumentError) as caught:
        picture(x, shape)
    assert message in str(caught.value)


def test_a_shape_that_does_not_fit_is_refused_at_once():
    with pytest.raises(BindingError, match=r"the layout .* has 2 dims, the shape \(3,\) has 1\."):
        picture(LAYOUT, (3,))
    with pytest.raises(BindingError, match="halo of dim 1 is 1 wide"):
        picture(LAYOUT, (4, 2))


def test_files_are_what_their_suffix_says(tmp_path):
    found = picture(LAYOUT, (4, 8))
    for suffix in ("svg", "html", "txt"):
        found.save(tmp_path / f"x.{suffix}")
    read = {path.suffix: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    assert read[".svg"] == found.svg + "\n"
    assert read[".txt"] == found.text + "\n"
    assert read[".html"] == found.html
    assert read[".html"].startswith("<!doctype html>")
    assert found.svg in read[".html"]
    with pytest.raises(ArgumentError, match=r"got 'x\.png'\.\n  suffixes: \.svg, \.html, \.txt"):
        found.save("x.png")


def test_a_notebook_shows_pictures():
    found = picture(LAYOUT, (4, 8))
    bundle = found._repr_mimebundle_()
    assert bundle == {"text/plain": found.text, "image/svg+xml": found.svg, "text/html": f"<div>{found.svg}</div>"}
    assert set(found._repr_mimebundle_(include=["text/plain", "image/svg+xml"])) == {"text/plain", "image/svg+xml"}
    assert set(found._repr_mimebundle_(exclude=["text/html"])) == {"text/plain", "image/svg+xml"}
    assert repr(found) == "Picture('[dp|tp±(1,1)] of 4x8 on dp=2, tp=4')"
    tensor = shard(np.zeros((4, 8)), MESH, P("dp"))
    for value in (MESH, LAYOUT, tensor, plan_reshard(tensor.layout, LAYOUT, (4, 8), "int8")):
        assert value._repr_svg_() == picture(value).svg
        assert value._repr_html_() == picture(value)._repr_html_()


def test_a_tensor_that_cannot_be_read_can_be_drawn():
    with engine_context(AbstractEngine()):
        tensor = shard(np.zeros((4, 8)), MESH, P("dp"))
        assert tensor._repr_svg_().startswith("<svg")
    seen = []

    def watched(x):
        seen.append(x._repr_svg_())
        return x * x

    vjp(watched, shard(np.zeros((4, 8)), MESH, P("dp")))
    assert seen == [picture(shard(np.zeros((4, 8)), MESH, P("dp"))).svg]


@given(bound_layouts())
def test_every_layout_has_a_notebook_form(case: Bound):
    for text in (case.layout._repr_html_(), case.layout._repr_svg_(), picture(*case).html):
        if text.startswith("<!doctype"):
            assert text.count("<svg") == text.count("</svg>") == 1
        else:
            ElementTree.fromstring(text)


def test_importing_the_package_does_not_import_what_draws():
    code = "import sys, shardwise; print(sorted(m for m in sys.modules if m.split('.')[0] == 'rich' or 'svg' in m))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


ASCII = """
[dp|tp~(1,1)] of 4x8 on dp=2, tp=4
      0:2 (holds 0:3)   2:4 (holds 1:5)   4:6 (holds 3:7)   6:8 (holds 5:8)
    +-----------------+-----------------+-----------------+-----------------+
0:2 |        0        |        1        |        2        |        3        |
    +-----------------+-----------------+-----------------+-----------------+
2:4 |        4        |        5        |        6        |        7        |
    +-----------------+-----------------+-----------------+-----------------+
"""


def test_plain_letters_where_there_are_no_others(monkeypatch):
    found = picture(LAYOUT, (4, 8))
    raw = io.BytesIO()
    narrow = io.TextIOWrapper(raw, encoding="ascii", write_through=True)
    Console(file=narrow, width=100).print(found)
    lines = [line.rstrip() for line in raw.getvalue().decode("ascii").splitlines()]
    assert lines == ASCII.strip().splitlines()
    monkeypatch.setattr(sys, "stdout", narrow)
    assert str(found) == ASCII.strip()
    monkeypatch.undo()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    assert str(found) == found.text


def test_names_that_cannot_be_written_are_marked():
    mesh = DeviceMesh((2,), ("é",))
    assert encodable(picture(mesh).text, "ascii").splitlines()[0] == "mesh ?=2: 2 devices"
    assert encodable("│", "no-such-encoding") == "|"
    assert encodable("│", None) == "│"


def test_a_narrow_terminal_gets_fewer_parts():
    layout = Layout(DeviceMesh((64,), ("x",)), [None, "x"])
    for width in (40, 80, 200):
        console = Console(file=io.StringIO(), width=width, record=True)
        console.print(picture(layout, (4, 640)))
        lines = console.export_text().splitlines()
        assert max(len(line.rstrip()) for line in lines) <= width
        assert lines[-1].rstrip().endswith("┘")


def test_what_does_not_fit_at_all_is_marked():
    console = Console(file=io.StringIO(), width=12, record=True)
    console.print(picture(Layout(MESH, [None, "tp"]), (4, 4096)))
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= 12
    assert lines[-1].endswith("…")


def test_drawings_in_one_page_do_not_touch_each_other():
    one, two = picture(LAYOUT, (4, 8)).svg, picture(LAYOUT, (4, 16)).svg
    names = [ElementTree.fromstring(svg).get("class") for svg in (one, two)]
    assert names[0] != names[1]
    for svg, name in zip((one, two), names, strict=True):
        style = svg.partition("<style>")[2].partition("</style>")[0]
        rules = style.replace("@media(prefers-color-scheme:dark){", "").replace("}}", "}").split("}")[:-1]
        assert len(rules) > 20
        assert all(s.startswith(f".{name} ") for rule in rules for s in rule.partition("{")[0].split(","))
        assert svg.count('id="') == svg.count(f'id="{name}-') == 2
