"""Reductions over dims: what is pending afterwards, empty shards, and derivatives at ties and zeros."""

from itertools import combinations

import numpy as np
import pytest

from shardwise import BindingError, Cut, DerivativeError, Layout, P, ReduceOp, asarray, grad, jvp, shard
from shardwise.prim.arithmetic.reduce import NAMES, REDUCERS, reduce, reduction_rule, spread
from tests.plan.cases import mesh_of
from tests.prim import cases

MESH = mesh_of(2, 3)
THEIRS = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "any": np.any, "all": np.all}
LAYOUTS = [
    [None, None, None],
    ["x", None, "y"],
    [None, ("y", "x"), None],
    [Cut("y", offsets=(0, 0, 3, 4)), None, Cut("x", split="chunk")],
    [Cut("x", halo=(1, 1)), "y", None],
]


def dims_of(rank: int) -> list[tuple[int, ...]]:
    return [dims for n in range(rank + 1) for dims in combinations(range(rank), n)]


@pytest.mark.parametrize("op", NAMES, ids=str)
def test_values_and_what_is_pending_over_dims_and_layouts(op: ReduceOp) -> None:
    dtype = "bool" if op in (ReduceOp.BOR, ReduceOp.BAND) else "float64"
    for layout in LAYOUTS:
        x, value = cases.spread(Layout(MESH, layout), (4, 5, 3), dtype)
        for dims in dims_of(3):
            got = reduce(x, dims=dims, op=op)
            assert np.array_equal(got.numpy(), THEIRS[NAMES[op]](value, axis=dims)), (layout, dims)
            split = {axis for k in dims for axis in x.layout.dims[k].axes}
            assert set(got.layout.partial) == split
            assert got.layout.reduce_op is (op if split else None)
            kept = [x.layout.without_halo().dims[k] for k in range(3) if k not in dims]
            assert list(got.layout.dims) == kept


def test_there_is_a_reducer_for_every_name() -> None:
    assert set(REDUCERS) == set(NAMES)
    for op, ours in REDUCERS.items():
        given = np.array([[3, 0], [2, 5]]) > 1 if NAMES[op] in ("any", "all") else np.array([[3, 0], [2, 5]])
        assert np.array_equal(ours(given, axis=0), THEIRS[NAMES[op]](given, axis=0))


def test_a_rule_drops_the_reduced_dims() -> None:
    rule = reduction_rule(3, (0, 2), ReduceOp.MAX)
    assert rule.operands == (("d0", "d1", "d2"),)
    assert rule.out == ("d1",)
    assert rule.reduced == (("d0", ReduceOp.MAX), ("d2", ReduceOp.MAX))
    assert rule.linear is None
    assert reduction_rule(1, (), ReduceOp.SUM).linear is None  # over no dim, integers are only made wider


@pytest.mark.parametrize("op", ["max", "min"])
@pytest.mark.parametrize("dtype", ["float32", "int8", "uint8"])
def test_an_empty_shard_contributes_nothing(op: str, dtype: str) -> None:
    value = np.array([[7, 2], [5, 9]], dtype)
    if dtype != "uint8":
        value = -value if op == "max" else value
    x = shard(value, mesh_of(3), P("x"))  # the third device has no rows
    got = reduce(x, dims=(0,), op=ReduceOp.of(op))
    assert got.dtype == np.dtype(dtype)
    assert np.array_equal(got.numpy(), THEIRS[op](value, axis=0))


@pytest.mark.parametrize("op", ["max", "min"])
def test_an_empty_dim_has_no_largest_element(op: str) -> None:
    x = asarray(np.ones((0, 3)))
    with pytest.raises(BindingError) as caught:
        reduce(x, dims=(0,), op=ReduceOp.of(op))
    assert str(caught.value) == f"{op} over an empty dim has no value: shape (0, 3), dims (0,)."
    assert reduce(x, dims=(1,), op=ReduceOp.of(op)).shape == (0,)
    assert reduce(x, dims=(), op=ReduceOp.of(op)).shape == (0, 3)
    assert reduce(x, dims=(0,), op=ReduceOp.SUM).numpy().tolist() == [0, 0, 0]
    assert reduce(x, dims=(0,), op=ReduceOp.PROD).numpy().tolist() == [1, 1, 1]


def test_a_reduced_value_is_repeated() -> None:
    x, value = cases.spread(Layout(MESH, ["x", "y"]), (4, 6))
    got = spread(reduce(x, dims=(1,), op=ReduceOp.SUM), x, (1,))
    assert got.layout is x.layout
    assert np.array_equal(got.numpy(), np.broadcast_to(value.sum(axis=1, keepdims=True), (4, 6)))


@pytest.mark.parametrize("layout", [[None, None], ["x", "y"], ["y", None]], ids=str)
def test_ties_share_the_derivative_of_an_extreme(layout) -> None:
    value = np.array([[3.0, 1.0, 3.0], [2.0, 2.0, 2.0], [5.0, 4.0, 6.0]])
    x = shard(value, MESH, Layout(MESH, layout))
    for name in ("max", "min"):
        op = ReduceOp.of(name)
        best = value == THEIRS[name](value, axis=1, keepdims=True)
        want = best / best.sum(axis=1, keepdims=True)
        weight = asarray(np.array([1.0, 10.0, 100.0]))
        got = grad(lambda x, op=op, weight=weight: (reduce(x, dims=(1,), op=op) * weight).sum())(x)
        np.testing.assert_allclose(got.numpy(), want * weight.numpy()[:, None])
        tangent = np.arange(9.0).reshape(3, 3)
        _, pushed = jvp(lambda x, op=op: reduce(x, dims=(1,), op=op), (x,), (shard(tangent, MESH, x.layout),))
        np.testing.assert_allclose(pushed.numpy(), (want * tangent).sum(axis=1))


@pytest.mark.parametrize("zeros", [0, 1, 2])
@pytest.mark.parametrize("layout", [[None, None], ["y", "x"]], ids=str)
def test_the_derivative_of_a_product_is_that_of_the_others(zeros: int, layout) -> None:
    value = np.array([[2.0, 3.0, -4.0, 5.0], [1.0, -2.0, 3.0, 0.5]])
    value[0, :zeros] = 0
    x = shard(value, MESH, Layout(MESH, layout))
    want = np.array([[np.prod(np.delete(row, k)) for k in range(4)] for row in value])
    got = grad(lambda x: reduce(x, dims=(1,), op=ReduceOp.PROD).sum())(x)
    np.testing.assert_allclose(got.numpy(), want)
    tangent = np.arange(8.0).reshape(2, 4)
    _, pushed = jvp(lambda x: reduce(x, dims=(1,), op=ReduceOp.PROD), (x,), (shard(tangent, MESH, x.layout),))
    np.testing.assert_allclose(pushed.numpy(), (want * tangent).sum(axis=1))


def test_the_derivative_of_a_sum_is_one() -> None:
    x, _ = cases.spread(Layout(MESH, ["x", "y"]), (4, 6))
    for dims in dims_of(2):
        got = grad(lambda x, dims=dims: reduce(x, dims=dims, op=ReduceOp.SUM).square().sum())(x)
        np.testing.assert_allclose(got.numpy(), np.broadcast_to(2 * x.numpy().sum(axis=dims, keepdims=True), (4, 6)))


def test_the_tangent_of_a_sum_is_the_sum_of_tangents() -> None:
    x, value = cases.spread(Layout(MESH, ["x", "y"]), (4, 6))
    _, pushed = jvp(lambda x: reduce(x, dims=(0,), op=ReduceOp.SUM), (x,), (shard(3 * value, MESH, x.layout),))
    assert np.array_equal(pushed.numpy(), 3 * value.sum(axis=0))


def test_whether_any_is_true_has_no_derivative() -> None:
    x = asarray(np.array([0.0, 1.0]))
    for op in (ReduceOp.BOR, ReduceOp.BAND):
        with pytest.raises(DerivativeError) as caught:
            reduce.vjp(x, x, x, dims=(0,), op=op)  # type: ignore[misc]
        assert str(caught.value) == f"{NAMES[op]} has no derivative."
