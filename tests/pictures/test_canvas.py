"""The canvas: blocks know their size, whatever they are put together of."""

import re
import xml.etree.ElementTree as ET

import pytest

from shardwise.pictures import canvas
from shardwise.pictures.canvas import (
    LETTER,
    LINE,
    MARGIN,
    WIDEST,
    Block,
    below,
    beside,
    clean,
    fit_panels,
    group,
    line,
    number,
    paragraph,
    rect,
    svg,
    text_width,
    words,
)

A, B = Block(30, 20, ("<a/>",)), Block(10, 50, ("<b/>",))


def test_blocks_beside_each_other() -> None:
    both = beside([A, B], gap=5)
    assert (both.width, both.height) == (45, 50)
    assert both.elements == ('<g transform="translate(0 0)"><a/></g>', '<g transform="translate(35 0)"><b/></g>')
    assert beside([A]) == Block(30, 20, (A.at(0, 0),))
    assert (beside([]).width, beside([]).height) == (0, 0)
    assert beside([A, B]).width == 40 + MARGIN


def test_blocks_below_each_other_without_those_that_are_empty() -> None:
    both = below([A, Block(99, 7), B], gap=5)
    assert (both.width, both.height) == (99, 75)
    assert both.elements == ('<g transform="translate(0 0)"><a/></g>', '<g transform="translate(0 25)"><b/></g>')
    assert (below([]).width, below([]).height) == (0, 0)


def test_numbers_and_letters() -> None:
    assert [number(n) for n in (3, 2.25, 2.04, -1.5)] == ["3", "2.2", "2", "-1.5"]
    assert clean("a&b\x07\t\n\ud800") == "a&amp;b\ufffd\t\n\ufffd"
    assert text_width("abc") == 3 * LETTER
    assert text_width("漢") == 2 * LETTER
    assert text_width("") == 0


def test_elements() -> None:
    assert rect(1, 2, 3, 4.5, "c1") == '<rect x="1" y="2" width="3" height="4.5" rx="2" class="c1"/>'
    assert line(0, 1, 2, 3, "link") == '<path d="M0 1L2 3" class="link"/>'
    assert words(1, 2, "a<b", "soft", "end") == '<text x="1" y="6.3" class="soft end">a&lt;b</text>'
    assert words(1, 2, "a") == '<text x="1" y="6.3">a</text>'
    assert group(["<a/>"], "cell", 'x"y', box="1:2") == (
        '<g class="cell" data-box="1:2"><title>x&quot;y</title><a/></g>'
    )
    with pytest.raises(KeyError):
        words(0, 0, "a", anchor="left")


def test_long_lines_are_broken() -> None:
    short = paragraph(["abc", "", "de"])
    assert (short.width, short.height) == (3 * LETTER, 3 * LINE)
    long = paragraph(["word " * 200])
    assert long.width <= WIDEST
    assert long.height == LINE * len(long.elements) > LINE
    assert (paragraph([]).width, paragraph([]).height) == (0, 0)


def test_as_many_parts_as_fit_are_drawn() -> None:
    seen = []

    def panel(unfolding, lead) -> Block:
        seen.append(len(unfolding.columns))
        return Block(200 * len(unfolding.columns), 10, ("<p/>",))

    unfolding, block = fit_panels((4, 40), 12, panel)
    assert 200 * len(unfolding.columns) <= WIDEST
    assert block.width <= WIDEST
    assert seen[0] > seen[-1]
    _, wide = fit_panels((2,), 2, lambda unfolding, lead: Block(5000, 10, ("<p/>",)))
    assert wide.width == 5000  # fewer than two are not drawn


def test_a_drawing_is_valid_and_its_rules_touch_nothing_else() -> None:
    text = svg(A, "a & b")
    root = ET.fromstring(text)
    assert root.attrib["width"] == str(30 + 2 * MARGIN)
    assert root.attrib["viewBox"] == f"0 0 {30 + 2 * MARGIN} {20 + 2 * MARGIN}"
    name = root.attrib["class"]
    assert re.fullmatch(r"sw[0-9a-f]{8}", name)
    style = next(e.text for e in root.iter() if e.tag.endswith("style")) or ""
    rules = re.sub(r"@media\([^)]*\)\{(.*)\}", r"\1", style)
    for rule in rules.split("}")[:-1]:
        assert all(selector.startswith(f".{name} ") for selector in rule.partition("{")[0].split(",")), rule
    assert svg(B, "t").split('class="')[1][:10] != name
    assert canvas.FONT < LINE
