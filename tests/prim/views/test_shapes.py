"""Dims of size one and the order of dims: shards are only seen differently, and derivatives go back."""

from itertools import combinations, permutations

import numpy as np
import pytest

from shardwise import (
    AbstractEngine,
    Cut,
    Layout,
    LayoutError,
    NoReshard,
    P,
    current_engine,
    engine_context,
    grad,
    jvp,
    mode,
    shard,
)
from shardwise.prim.views.shapes import expand, permute, squeeze
from tests.plan.cases import mesh_of
from tests.prim.cases import assert_holds, spread

MESH = mesh_of(2, 3)
LAYOUTS = [
    Layout(MESH, ["x", None, "y"]),
    Layout(MESH, [None, ("y", "x"), None]),
    Layout(MESH, [Cut("y", offsets=(0, 0, 3, 4)), Cut("x", halo=(1, 1)), None]),
    Layout(MESH, [None, "y", None], ["x"]),
    Layout(MESH, [None, "y", None], ["x"], "max"),
]
SHAPE = (4, 5, 3)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_new_dims_stand_where_they_are_asked_for(layout: Layout) -> None:
    x, value = spread(layout, SHAPE)
    for at in ((0,), (3,), (1,), (0, 1), (1, 0), (4, 2), (0, 2, 5), ()):
        got = expand(x, at=at)
        cuts = list(layout.dims)
        for position in sorted(at):
            cuts.insert(position, Cut())
        want = Layout(MESH, cuts, layout.partial, layout.reduce_op or "sum")
        assert_holds(got, want, np.expand_dims(value, at) if at else value)
        assert squeeze(got, at=at).layout is layout
        assert_holds(squeeze(got, at=at), layout, value)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_dims_change_places_with_their_cuts(layout: Layout) -> None:
    x, value = spread(layout, SHAPE)
    for order in permutations(range(3)):
        want = Layout(MESH, [layout.dims[k] for k in order], layout.partial, layout.reduce_op or "sum")
        assert_holds(permute(x, order=order), want, value.transpose(order))


def test_nothing_is_copied_or_sent() -> None:
    x, _ = spread(LAYOUTS[0], SHAPE)
    counters = current_engine().counters
    counters.reset()
    y = squeeze(expand(permute(x, order=(2, 0, 1)), at=(1,)), at=(1,))
    assert (counters.total, counters.bytes_copied, counters.bytes_allocated) == (0, 0, 0)
    assert np.shares_memory(np.asarray(y.local(0)), np.asarray(x.local(0)))


def test_a_dim_of_one_that_is_split_is_brought_together_first() -> None:
    x = shard(np.arange(4.0)[None], MESH, P("x", None))
    got = squeeze(x, at=(0,))
    assert_holds(got, Layout(MESH, [None]), np.arange(4.0))
    with mode(NoReshard()), pytest.raises(LayoutError, match=r"squeeze"):
        squeeze(x, at=(0,))
    whole = shard(np.arange(4.0)[None], MESH, P(None, "x"))
    with mode(NoReshard()):
        assert squeeze(whole, at=(0,)).layout is Layout(MESH, ["x"])


def test_derivatives_go_back_to_where_they_came_from() -> None:
    x, value = spread(LAYOUTS[0], SHAPE)
    weight = np.random.default_rng(0).standard_normal(SHAPE)
    for order in permutations(range(3)):
        turned = shard(weight.transpose(order), MESH, P())
        got = grad(lambda x, order=order, turned=turned: (permute(x, order=order) * turned).sum())(x)
        np.testing.assert_allclose(got.numpy(), weight)
        assert got.layout is x.layout
        _, pushed = jvp(lambda x, order=order: permute(x, order=order), (x,), (shard(weight, MESH, x.layout),))
        np.testing.assert_allclose(pushed.numpy(), weight.transpose(order))
    for at in (p for n in range(3) for p in combinations(range(5), n)):
        if at and at[-1] >= 3 + len(at):
            continue
        seen = shard(np.expand_dims(weight, at), MESH, P())
        got = grad(lambda x, at=at, seen=seen: (expand(x, at=at) * seen).sum())(x)
        np.testing.assert_allclose(got.numpy(), weight)
        wide = expand(x, at=at)
        flat = grad(lambda y, at=at: (squeeze(y, at=at) * shard(weight, MESH, P())).sum())(wide)
        np.testing.assert_allclose(flat.numpy(), np.expand_dims(weight, at))
    assert np.array_equal(value, x.numpy())


def test_they_are_linear_and_known_by_name() -> None:
    x, value = spread(LAYOUTS[0], SHAPE)
    tangent = shard(value + 1, MESH, x.layout)
    _, pushed = jvp(lambda x: expand(x, at=(1,)), (x,), (tangent,))
    assert np.array_equal(pushed.numpy(), np.expand_dims(value + 1, 1))
    _, back = jvp(lambda x: squeeze(x, at=(1,)), (expand(x, at=(1,)),), (pushed,))
    assert np.array_equal(back.numpy(), value + 1)
    assert [repr(row) for row in (expand, squeeze, permute)] == [
        "Primitive(expand)",
        "Primitive(squeeze)",
        "Primitive(permute_dims)",
    ]


def test_of_no_dims_there_is_one_order() -> None:
    x, value = spread(Layout(MESH, [], ["x"]), ())
    assert_holds(permute(x, order=()), x.layout, value)
    assert_holds(expand(x, at=(0, 1)), Layout(MESH, [None, None], ["x"]), value.reshape(1, 1))


def test_other_views_take_no_memory() -> None:
    engine = AbstractEngine()
    with engine_context(engine):
        x = shard(np.zeros((4, 1, 6)), MESH, P("x", None, "y"))
        before = engine.live
        seen = [expand(x, at=(0,)), squeeze(x, at=(1,)), permute(x, order=(2, 0, 1))]
        assert engine.live == before
        assert [y.shape for y in seen] == [(1, 4, 1, 6), (4, 6), (6, 4, 1)]
