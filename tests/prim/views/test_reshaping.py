"""Reshaping: how many pieces devices put together, and how the result is cut."""

from itertools import product

import numpy as np
import pytest

from shardwise import DeviceMesh, P, shard
from shardwise.prim.views.reshaping import reshape, reshaping

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
        ((0, 4), P(None, "x"), (0,), 1, "[-]"),
    ],
)
def test_pieces_and_cuts(old, spec, new, pieces, after):
    found = reshaping(spec.to_layout(len(old), MESH), old, new)
    assert len(found.pieces) == pieces
    assert str(found.after) == after


@pytest.mark.parametrize("size", [2, 3, 6])
def test_an_axis_on_a_dim_of_size_one_is_kept_wherever_that_dim_lies(size):
    ones = [(1,) * k for k in range(3)]
    mesh = DeviceMesh((2,), ("x",))
    for a, b, c, d in product(ones, repeat=4):
        old, new = (*a, size, *b), (*c, size, *d)
        values = np.arange(size).reshape(old)
        for dim in range(len(old)):
            x = shard(values, mesh, P(*(None,) * dim, "x"))
            y = reshape(x, shape=new)
            assert [str(axis) for axis in y.layout.sharded_axes] == ["x"], (old, dim, new)
            assert y.numpy().tolist() == values.reshape(new).tolist()
