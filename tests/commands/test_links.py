"""Links on the command line: of all axes or of one, and what is no link."""

import pytest

from shardwise.commands.links import is_file, read_links
from shardwise.errors import ArgumentError, PlanError
from shardwise.plan.cost import Link, Links


def read(*given: str) -> Links:
    return read_links(given, "--link", "x=1e-6,4e11", lambda axis, text: axis.upper())


def test_links_of_axes_and_of_all_others() -> None:
    assert read() == Links()
    assert read("1e-6,4e11") == Links(default=Link(1e-6, 4e11))
    assert read("x=1e-6,4e11", "2e-5,1e10") == Links({"X": Link(1e-6, 4e11)}, Link(2e-5, 1e10))
    assert read("x=1,2", "x=3,4") == Links({"X": Link(3, 4)})  # the last one counts
    assert read("x:(1)2=1,2") == Links({"X:(1)2": Link(1, 2)})


@pytest.mark.parametrize("text", ["", "1e-6", "x=", "x=1", "1,2,3", "x=fast,4e11", "1e-6;4e11"])
def test_what_is_no_link_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        read(text)
    assert str(caught.value) == (
        f"--link is given as SECONDS,BYTES or AXIS=SECONDS,BYTES, such as x=1e-6,4e11, got {text!r}."
    )


def test_numbers_that_no_link_has_are_refused() -> None:
    with pytest.raises(PlanError, match="latency of 0 or more"):
        read("-1,4e11")


def test_the_name_of_an_axis_is_made_with_the_whole_text_at_hand() -> None:
    seen = []
    read_links(["a=1,2"], "--link", "", lambda axis, text: seen.append((axis, text)) or axis)
    assert seen == [("a", "a=1,2")]


def test_what_is_not_given_is_as_in_the_base() -> None:
    base = Links({"X": Link(1, 2), "Y": Link(3, 4)}, Link(5, 6), 7.0)
    given = read_links(["x=8,9"], "--link", "", lambda axis, text: axis.upper(), base)
    assert given == Links({"X": Link(8, 9), "Y": Link(3, 4)}, Link(5, 6), 7.0)
    assert read_links([], "--link", "", lambda axis, text: axis, base) == base
    assert read_links(["8,9"], "--link", "", lambda axis, text: axis, base).default == Link(8, 9)


def test_files_are_told_from_links(tmp_path) -> None:
    (tmp_path / "links").write_text("")
    assert is_file(str(tmp_path / "links"))
    assert is_file("links.json")
    assert not is_file("dp=1e-6,4e11")
