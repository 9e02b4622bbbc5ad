"""Texts with places: checked against counting characters one by one."""

from hypothesis import given
from hypothesis import strategies as st

from shardwise.ir.source import Source


@given(st.text(st.sampled_from("ab\n")), st.integers(0, 40))
def test_a_place_is_what_counting_gives(text: str, position: int):
    before = text[:position]
    assert Source(text).place(position) == (before.count("\n") + 1, len(before) - before.rfind("\n"))


def test_an_error_shows_the_line_and_marks_the_column():
    assert str(Source("ab\ncd e", "m.mlir").error(4, "no.")) == "m.mlir:2:2: no.\n  cd e\n   ^"


def test_a_long_line_is_cut_around_the_column():
    shown = str(Source("x" * 1000 + "y" + "z" * 1000).error(1000, "no.")).splitlines()
    assert len(shown[1]) < 210
    assert shown[1][len(shown[2]) - 1] == "y"


def test_characters_that_cannot_be_shown_are_replaced():
    assert str(Source("a\x00b").error(1, "no.")).splitlines()[1] == "  a?b"
