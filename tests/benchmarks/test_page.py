"""The page: it parses, needs nothing else, and shows what was lost and what failed."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from benchmarks.fits import series
from benchmarks.page import page
from benchmarks.plots import Scale, curves, dots
from benchmarks.row import Row
from tests.benchmarks.cases import report, rows, times

VOID = {"meta"}


class Nesting(HTMLParser):
    """Follows which elements are open, and keeps all attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs
        if tag not in VOID and not (self.get_starttag_text() or "").endswith("/>"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing_else():
    text = page(report())
    parser = Nesting()
    parser.feed(text)
    parser.close()
    assert parser.open == []
    assert "http" not in text
    assert "<script" not in text
    assert "@import" not in text
    assert "url(" not in text
    assert all(value and value.startswith("#") for name, value in parser.attributes if name in ("href", "src"))


def test_the_page_says_what_was_lost_and_what_failed():
    lost = Row("local", "<slow>", "1 MiB", "8", "warm", "seconds", times(1.0), {"DTensor": times(0.5)})
    wrong = Row("local", "wrong", "1 MiB", "8", "warm", "seconds", times(1.0), checked="failed: DTensor gives 2")
    text = page(report(lost, wrong, failures={"gloo": "ended with 1"}))
    assert '<td class="lost">lost 2× (DTensor)</td>' in text
    assert "&lt;slow&gt;" in text
    assert "<slow>" not in text
    assert "wrong 1 MiB 8: failed: DTensor gives 2" in text
    assert '<p class="failed">gloo failed: ended with 1</p>' in text


def test_plots_are_svg_with_a_mark_for_every_measure():
    drawn = ElementTree.fromstring(dots(rows()[1:3], "local"))
    tips = [title.text for title in drawn.iter("title")]
    assert "S0 -> S1 4 MiB 8: DTensor 8 ms ±10%, 8×" in tips
    assert len(tips) == 6 + 3  # and the legend
    (grown,) = series(rows())
    text = curves(grown)
    assert "ours: grows with the power 1.00" in text
    assert len(list(ElementTree.fromstring(text).iter("title"))) == 3 + 1


def test_marks_lie_inside_the_drawing():
    for text in (dots(rows(), "all"), *(curves(s) for s in series(rows()))):
        drawn = ElementTree.fromstring(text)
        width, height = map(float, drawn.attrib["viewBox"].split()[2:])
        places = re.findall(r"translate\(([-\d.]+) ([-\d.]+)\)", text)
        assert places
        assert all(0 <= float(x) <= width and 0 <= float(y) <= height for x, y in places)


@pytest.mark.parametrize("values", [(1.0,), (1e-6, 1e3), (2.0, 3.0)])
def test_scales_have_some_ticks_and_not_many(values):
    scale = Scale(values, 0.0, 100.0)
    assert 0 < len(scale.ticks()) <= 9
    assert all(0 <= scale(tick) <= 100 for tick in (*scale.ticks(), *values))


def test_long_labels_are_not_cut_off():
    row = Row("local", "a name that is rather long", "1000 transitions", "2x2x2x2x2", "cold", "seconds", times(1.0))
    tree = ElementTree.fromstring(dots([replace(row, peers={"DTensor": times(0.5)})], "local"))
    (label,) = [t for t in tree.iter() if t.tag.endswith("text") and (t.text or "").startswith("a name")]
    assert float(label.attrib["x"]) > 6.5 * len(label.text or "")
