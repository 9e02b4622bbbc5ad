"""Reports: a plan with all that belongs to it, as text and as a page that needs nothing else."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given

from shardwise import CPU, DeviceMesh, Layout, Link, P, picture, plan_reshard
from shardwise.pictures.report import report
from tests.plan.cases import Transition, transitions

MESH = DeviceMesh((2, 4), ("dp", "tp"))
VOID = {"meta", "rect", "path", "circle"}


class Page(HTMLParser):
    """A page whose tags must match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.links: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def plan(src: P, dst: P, shape: tuple[int, ...] = (1024, 4096), mesh: DeviceMesh = MESH, **more):
    return plan_reshard(src.to_layout(len(shape), mesh), dst.to_layout(len(shape), mesh), shape, "float32", **more)


def test_text_and_page_say_the_same():
    found = report(plan(P("dp", "tp"), P("tp", "dp")))
    page = Page(found.html)
    assert not page.links
    assert "http" not in found.html.replace("http://www.w3.org/2000/svg", "")
    for word in ("gather, then slice", "axis by axis", "one direct exchange", "93.9 us", "12 MiB", "34 MiB"):
        assert word in found.text
        assert word in page.words
    for line in plan(P("dp", "tp"), P("tp", "dp")).explain().why.split("; "):
        assert line.strip(".") in " ".join(found.text.split())
        assert line.strip(".") in " ".join(page.words)
    assert found.html.count("<svg") == 2  # the mesh and the plan
    assert found.svg == picture(plan(P("dp", "tp"), P("tp", "dp"))).svg
    assert picture(MESH).text in found.text


def test_links_are_shown_level_by_level():
    links = {"tp:(1)2": Link(2e-5, 1e9), "dp": Link(1e-6, 4e11)}
    text = report(plan(P("dp", "tp"), P(), links=links)).text
    assert "links: dp 1 us, 400 GB/s; tp (2 positions) 20 us, 1 GB/s; tp (2 positions) 10 us, 25 GB/s" in text


def test_both_meshes_are_drawn():
    other = DeviceMesh((3,), ("y",), [CPU(i) for i in (1, 2, 3)])
    found = report(plan_reshard(Layout(DeviceMesh((2,), ("x",)), ["x"]), Layout(other, ["y"]), (12,), "int8"))
    assert "mesh x=2: 2 devices" in found.text
    assert "mesh y=3: 3 devices" in found.text
    assert found.html.count("<svg") == 3


def test_names_are_escaped():
    mesh = DeviceMesh((2,), ("<b>&",))
    found = report(plan_reshard(Layout(mesh, ["<b>&"]), Layout(mesh, [None]), (4,), "int8"))
    assert "<b>" not in found.html
    assert any("<b>&" in word for word in Page(found.html).words)


@given(transitions(partial=True))
def test_every_plan_has_a_report(case: Transition):
    found = report(plan_reshard(*case, "int16"))
    assert Page(found.html).words
    assert "alternatives" in found.text


@pytest.mark.parametrize(("src", "dst"), [(P("x"), P(None, "z")), (P(unreduced=["x", "y"]), P("z"))], ids=str)
def test_a_million_devices_have_a_small_page(src, dst):
    found = report(plan(src, dst, (4096, 4096), DeviceMesh((64, 64, 256), ("x", "y", "z"))))
    assert len(found.html) < 300_000
    assert re.search(r"groups? of \d+ devices", found.text)
