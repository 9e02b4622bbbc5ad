"""Joins, padding and repetition, in layouts that are told."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise import DeviceMesh, P, jvp, shard
from shardwise.prim.movement.joins import concat, joined_shape, pad, padded_shape
from tests.ops.cases import agrees, lacking, sent, tensors, transposed
from tests.prim.cases import host_meshes, layouts_for

MESH = DeviceMesh((2, 4), ("x", "y"))
RANKED = st.lists(st.integers(0, 6), min_size=1, max_size=3).map(tuple)


def test_shapes():
    assert joined_shape([(2, 3), (2, 0), (2, 4)], 1) == (2, 7)
    assert padded_shape((2, 3), ((0, 1), (2, 0))) == (3, 5)


@given(st.data(), host_meshes(), RANKED)
def test_concat_into_any_layout(data, mesh, shape):
    dim = data.draw(st.integers(0, len(shape) - 1))
    sizes = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=3))
    shapes = [tuple(size if k == dim else n for k, n in enumerate(shape)) for size in sizes]
    parts = [data.draw(tensors(own, ["float64"], mesh=mesh, seed=i)) for i, own in enumerate(shapes)]
    layout = data.draw(layouts_for(mesh, joined_shape(shapes, dim), halo=False))
    made = agrees(lambda *xs: concat(*xs, dim=dim, layout=layout), lambda *xs: np.concatenate(xs, dim), *parts)
    assert made.layout is layout
    transposed(lambda *xs: concat(*xs, dim=dim, layout=layout), *parts)


@given(st.data(), tensors(RANKED, ["float64", "int8"], partial=False, halo=False))
def test_pad_into_any_layout_moves_only_what_changes_device(data, x):
    widths = tuple((data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3))) for _ in x.shape)
    layout = data.draw(layouts_for(x.mesh, padded_shape(x.shape, widths), halo=False))
    made = agrees(
        lambda x: pad(x, widths=widths, value=-1, layout=layout), lambda v: np.pad(v, widths, constant_values=-1), x
    )
    assert made.layout is layout
    numbers = np.pad(np.arange(x.size).reshape(x.shape), widths, constant_values=-1)
    _, size = sent(lambda: pad(x, widths=widths, value=-1, layout=layout))
    assert size == lacking([numbers], [x.layout], [x.shape], layout) * x.dtype.itemsize


def test_tangents_of_some_parts_only():
    a, b = shard(np.arange(3.0), MESH, P("y")), shard(np.arange(2.0), MESH, P("x"))
    layout = P("y").to_layout(1, MESH)
    moved = jvp(lambda a: concat(a, b, dim=0, layout=layout), (a,), (np.ones(3),))[1]
    assert moved.numpy().tolist() == [1.0, 1.0, 1.0, 0.0, 0.0]
    moved = jvp(lambda x: pad(x, widths=((1, 1),), value=9.0, layout=layout), (b,), (np.ones(2),))[1]
    assert moved.numpy().tolist() == [0.0, 1.0, 1.0, 0.0]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "uint8", "bool", "complex64"])
def test_joins_keep_the_dtype(dtype):
    x = shard(np.ones(5).astype(dtype), MESH, P("y"))
    layout = P("x").to_layout(1, MESH)
    assert concat(x, x, dim=0, layout=layout).dtype == np.dtype(dtype)
    assert pad(x, widths=((1, 0),), value=0, layout=layout).numpy().astype("complex64").tolist() == [0, 1, 1, 1, 1, 1]
