"""The primitive that changes a layout."""

import numpy as np
import pytest
from hypothesis import given

from shardwise import DeviceMesh, Layout, P, ReduceOp, from_shards, shard
from shardwise.prim.relayout import relayout, resolve
from tests.prim.cases import Move, assert_holds, moves, spread, traffic_of


@given(moves())
def test_the_value_stays_and_the_plan_is_what_is_sent(move: Move) -> None:
    x, want = spread(move.src, move.shape, move.dtype)
    with traffic_of(move.src, move.dst, move.shape, move.dtype):
        y = relayout(x, layout=move.dst)
    assert_holds(y, move.dst, want)


def test_nothing_is_done_where_nothing_changes() -> None:
    mesh = DeviceMesh((2,), ("x",))
    x = shard(np.ones(2), mesh, P("x"))
    assert relayout(x, layout=x.layout) is x
    assert resolve(x) is x
    partial = from_shards([[1.0], [2.0]], mesh, P(unreduced=["x"]), (1,))
    assert resolve(partial).layout is Layout(mesh, [None])
    assert resolve(partial).item() == 3.0


@pytest.mark.parametrize("op", ReduceOp, ids=str)
@pytest.mark.parametrize("spec", [P(), P("y")])
def test_replicas_become_terms_of_any_reduction(op: ReduceOp, spec: P) -> None:
    mesh = DeviceMesh((2, 2), ("x", "y"))
    data = np.arange(4, dtype="int8" if op.name.startswith("B") else "float64")
    x = shard(data, mesh, spec)
    target = Layout(mesh, x.layout.dims, ["x"], op)
    y = relayout(x, layout=target)
    assert_holds(y, target, data)
    assert_holds(resolve(y), x.layout, data)
