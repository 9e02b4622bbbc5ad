"""Shards seen as terms: the dims that axes split stand apart, and forms are what the primitives give."""

import numpy as np
import pytest

from shardwise import DeviceMesh, Layout, ReduceOp, shard
from shardwise.errors import ProgramError
from shardwise.prim.movement.exchanges import exchange_blocks
from shardwise.prim.movement.shards import average, fold, permute_shards, unfold
from shardwise.prim.movement.terms import split_dims
from tests.prim.test_forms import value

MESH = DeviceMesh((2, 3), ("x", "y"))
VALUE = np.arange(12.0 * 6).reshape(12, 6)


def test_only_the_dims_that_the_axes_split_are_taken_apart() -> None:
    layout, (x, y) = Layout(MESH, [("y", "x"), None]), (MESH.axis("x"), MESH.axis("y"))
    assert split_dims(layout, (12, 5), [x]) == ((3, 2, 2, 5), [1])
    assert split_dims(layout, (12, 5), [y, x]) == ((3, 2, 2, 5), [0, 1])
    assert split_dims(Layout(MESH, ["x", "y"]), (5, 6), [y]) == ((5, 3, 2), [1])
    refused = r"dim 0 of 5 elements is cut unevenly [^\n]*\n  lay it out so that its parts"
    with pytest.raises(ProgramError, match=refused):
        split_dims(Layout(MESH, ["x", "y"]), (5, 6), [x])


@pytest.mark.parametrize("axes", [("x",), ("y",), ("x", "y")])
def test_each_form_is_what_the_primitive_gives(axes: tuple[str, ...]) -> None:
    x = shard(VALUE, MESH, Layout(MESH, ["x", "y"]))
    named = tuple(MESH.axis(name) for name in axes)
    for op in (ReduceOp.SUM, ReduceOp.MAX, ReduceOp.AVG):
        small = fold(x, axes=named, op=op)
        np.testing.assert_allclose(value(fold.form(small, x, axes=named, op=op)), small.numpy())
    mean = average(x, axes=named)
    np.testing.assert_allclose(value(average.form(mean, x, axes=named)), mean.numpy())
    small = shard(VALUE[: 12 // (2 if "x" in axes else 1), : 6 // (3 if "y" in axes else 1)], MESH, fold_layout(axes))
    big = unfold(small, layout=x.layout, shape=x.shape)
    np.testing.assert_array_equal(value(unfold.form(big, small, layout=x.layout, shape=x.shape)), big.numpy())


def fold_layout(axes: tuple[str, ...]) -> Layout:
    return Layout(MESH, [None if name in axes else name for name in ("x", "y")])


def test_shards_that_change_places_are_zero_where_nothing_comes() -> None:
    x = shard(VALUE, MESH, Layout(MESH, ["x", "y"]))
    sources = (None, 0, 1, 4, 5, None)
    out = permute_shards(x, sources=sources)
    np.testing.assert_array_equal(value(permute_shards.form(out, x, sources=sources)), out.numpy())


def test_pieces_are_exchanged_there_and_back() -> None:
    x = shard(VALUE, MESH, Layout(MESH, ["y", None]))
    how = {"dim": 0, "axes": (MESH.axis("y"),)}
    there = exchange_blocks(x, **how)
    np.testing.assert_array_equal(value(exchange_blocks.form(there, x, **how)), there.numpy())
    back = exchange_blocks(there, **how, back_to=x.layout)
    np.testing.assert_array_equal(value(exchange_blocks.form(back, there, **how, back_to=x.layout)), VALUE)
