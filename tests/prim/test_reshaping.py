"""Reshaping: how many pieces devices put together, and how the result is cut."""

import pytest

from shardwise import DeviceMesh, P
from shardwise.prim.reshaping import reshaping

MESH = DeviceMesh((4,), ("x",))


@pytest.mark.parametrize(
    ("old", "spec", "new", "pieces", "after"),
    [
        ((8, 6), P("x"), (48,), 1, "[x]"),
        ((8, 6), P("x"), (2, 4, 6), 1, "[x:(1)2|x:(2)2|-]"),
        ((7, 6), P("x"), (7, 2, 3), 1, "[x|-|-]"),  # what is not reshaped stays as it is
        ((4, 6), P(None, "x"), (24,), 1, "[x]"),  # one change of layout, of equal runs
        ((35,), P("x"), (5, 7), 1, "[x|-]"),  # of one dim every run is a box
        ((3, 8), P(None, "x"), (24,), 3, "[x]"),  # runs of 6 in rows of 8 tear every row
        ((3, 4), P("x"), (12,), 1, "[x/offsets]"),  # whole rows: 1, 1, 1 and none
        ((0, 4), P("x"), (4, 0), 1, "[-|-]"),
    ],
)
def test_pieces_and_cuts(old, spec, new, pieces, after):
    found = reshaping(spec.to_layout(len(old), MESH), old, new)
    assert len(found.pieces) == pieces
    assert str(found.after) == after
