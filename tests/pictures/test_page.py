"""Pages: whole HTML files, in which every text is escaped."""

import re

import pytest

from shardwise.pictures.page import heading, page, prose, scroll, table

NASTY = '<b>"a" & \x00b</b>'
CLEAN = "&lt;b&gt;&quot;a&quot; &amp; \ufffdb&lt;/b&gt;"


def test_a_page_holds_its_parts_and_its_style() -> None:
    text = page(NASTY, ["<p>one</p>", "<p>two</p>"])
    assert text.startswith("<!doctype html>\n")
    assert f"<title>{CLEAN}</title>" in text
    assert "<p>one</p>\n<p>two</p>" in text
    assert "prefers-color-scheme:dark" in text
    assert text.endswith("</html>\n")
    assert not re.search(r"(src|href)=", text)  # it needs nothing else


def test_headings_and_prose() -> None:
    assert heading("a<b") == "<h2>a&lt;b</h2>"
    assert heading("a", 1) == "<h1>a</h1>"
    assert prose(NASTY) == f"<p>{CLEAN}</p>"
    assert scroll("<svg/>") == '<div class="scroll"><svg/></div>'


def test_a_table_has_texts_left_figures_right_and_one_row_marked() -> None:
    text = table(["name", "bytes", "time"], [["a", "1", "2"], ["b<", "3", "4"]], chosen=1)
    rows = re.findall(r"<tr.*?</tr>", text)
    assert rows[0] == '<tr><th>name</th><th class="figure">bytes</th><th class="figure">time</th></tr>'
    assert rows[1] == '<tr><td>a</td><td class="figure">1</td><td class="figure">2</td></tr>'
    assert rows[2] == '<tr class=chosen><td>b&lt;</td><td class="figure">3</td><td class="figure">4</td></tr>'
    wide = table(["a", "b"], [["1", "2"]], left=2)
    assert "figure" not in wide
    assert "chosen" not in wide
    with pytest.raises(ValueError, match="zip"):
        table(["a"], [["1", "2"]])
