"""Cuts: what they are made of, how they read, and what they refuse."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from shardwise import ArgumentError, Cut, LayoutError
from shardwise.layout.axis import Axis
from shardwise.layout.cut import cut_of

HALF = Axis("x", 1, 2, 4)


def test_one_axis_and_a_tuple_of_it_are_one_cut() -> None:
    assert Cut("x") == Cut(("x",)) == Cut(["x"])
    assert Cut("x").axes == ("x",)
    assert Cut(HALF).axes == (HALF,) == Cut([HALF]).axes  # an Axis is a tuple too, and not four axes
    assert Cut().axes == ()
    assert Cut(("tp", "dp")) != Cut(("dp", "tp"))


def test_the_default_is_a_plain_balanced_cut() -> None:
    cut = Cut("x")
    assert (cut.split, cut.offsets, cut.halo, cut.edge) == ("balanced", None, (0, 0), "clip")
    assert cut.is_plain
    assert Cut().is_plain
    assert cut.details == ""


@pytest.mark.parametrize(
    ("given", "split", "offsets", "halo", "edge", "text"),
    [
        ({"split": "chunk"}, "chunk", None, (0, 0), "clip", "Cut('x', split='chunk')"),
        ({"offsets": [0, 3, 8]}, "offsets", (0, 3, 8), (0, 0), "clip", "Cut('x', offsets=(0, 3, 8))"),
        ({"halo": 2}, "balanced", None, (2, 2), "clip", "Cut('x', halo=(2, 2))"),
        ({"halo": (1, 0)}, "balanced", None, (1, 0), "clip", "Cut('x', halo=(1, 0))"),
        ({"halo": (0, 1)}, "balanced", None, (0, 1), "clip", "Cut('x', halo=(0, 1))"),
        ({"halo": 1, "edge": "pad"}, "balanced", None, (1, 1), "pad", "Cut('x', halo=(1, 1), edge='pad')"),
    ],
)
def test_what_differs_from_the_default_is_said(
    given: Any, split: str, offsets: Any, halo: tuple[int, int], edge: str, text: str
) -> None:
    cut = Cut("x", **given)
    assert (cut.split, cut.offsets, cut.halo, cut.edge) == (split, offsets, halo, edge)
    assert not cut.is_plain
    assert repr(cut) == text
    assert text == f"Cut('x'{cut.details})"
    assert eval(text, {"Cut": Cut}) == cut
    assert cut != Cut("x")


def test_several_axes_are_shown_as_a_tuple_and_none_as_an_empty_one() -> None:
    assert repr(Cut(("x", "y"))) == "Cut(('x', 'y'))"
    assert repr(Cut((HALF, "y"), split="chunk")) == "Cut(('x:(1)2', 'y'), split='chunk')"
    assert repr(Cut()) == "Cut(())"


@pytest.mark.parametrize(
    "cut", [Cut("x"), Cut(("y", HALF), offsets=(0, 0, 1, 1, 5), halo=(1, 0), edge="pad"), Cut((), split="chunk")]
)
def test_copies_are_equal_and_hash_alike(cut: Cut) -> None:
    for other in (
        pickle.loads(pickle.dumps(cut)),
        copy.deepcopy(cut),
        copy.copy(cut),
        cut_of(cut.axes, cut.split, cut.offsets, cut.halo, cut.edge),
    ):
        assert other == cut
        assert hash(other) == hash(cut)


def test_numpy_integers_are_plain_in_a_cut() -> None:
    offsets: Any = np.array([0, 3])
    halo: Any = (np.int64(1), np.int8(0))
    cut = Cut("x", offsets=offsets, halo=halo)
    assert repr(cut) == "Cut('x', offsets=(0, 3), halo=(1, 0))"


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        ({"axes": 3}, ArgumentError, r"^the axes of a Cut are one axis or a tuple of axes, got 3"),
        ({"axes": None}, ArgumentError, r"the axes of a Cut are one axis or a tuple of axes"),
        ({"axes": "x", "split": "block"}, LayoutError, "unknown split 'block' in Cut"),
        ({"axes": "x", "edge": "wrap"}, LayoutError, "unknown edge policy 'wrap' in Cut"),
        ({"axes": "x", "halo": -1}, LayoutError, "-1"),
        ({"axes": "x", "offsets": (1, 3)}, LayoutError, r"\(1, 3\)"),
        ({"axes": "x", "offsets": (0, 3, 2)}, LayoutError, r"\(0, 3, 2\)"),
    ],
)
def test_what_is_no_cut_is_refused(given: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        Cut(**given)


def test_a_cut_stays_as_it_is() -> None:
    with pytest.raises(AttributeError):
        Cut("x").halo = (1, 1)  # type: ignore[misc]
