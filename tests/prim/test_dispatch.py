"""Dispatch: what an op makes of layouts it has not met, on which mesh, and who is told."""

from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import (
    CPU,
    BindingError,
    Cut,
    DeviceMesh,
    GreedyReshard,
    Layout,
    LayoutError,
    NoReshard,
    P,
    ReduceOp,
    asarray,
    current_engine,
    mode,
    shard,
)
from shardwise.engine.job import RESULT
from shardwise.prim.dispatch import apply, reached
from shardwise.prim.infer import Candidate
from shardwise.prim.rule import Rule, elementwise_rule
from tests.plan.cases import mesh_of
from tests.prim.cases import assert_holds, spread

MESH = mesh_of(2, 3)
ADD = Rule((("a", "b"), ("a", "b")), ("a", "b"), linear="joint")
TOTAL = Rule((("a", "b"),), ("b",), (("a", ReduceOp.SUM),), linear="joint")


def test_operands_are_brought_together_and_each_device_works_by_itself() -> None:
    x, vx = spread(Layout(MESH, ["x", None]), (4, 5), seed=1)
    for dims in (["x", None], [None, "x"], [None, None], [("x", "y"), None], [Cut("x", halo=1), "y"]):
        y, vy = spread(Layout(MESH, dims), (4, 5), seed=2)
        out = apply("add", np.add, ADD, [x, y])
        assert_holds(out, out.layout, vx + vy)


def test_the_work_is_done_once_for_each_distinct_array() -> None:
    calls = []

    def kernel(a: Any) -> Any:
        calls.append(a.shape)
        return a.sum(axis=0)

    x, value = spread(Layout(MESH, ["y", None]), (5, 4))
    out = apply("sum", kernel, TOTAL, [x])
    assert sorted(calls) == [(1, 4), (2, 4), (2, 4)]
    assert out.layout is Layout(MESH, [None], ["y"])
    assert np.array_equal(out.numpy(), value.sum(axis=0))
    assert out.shape == (4,)


def test_a_kernel_may_be_told_where_its_arrays_are() -> None:
    x, _ = spread(Layout(MESH, ["y", Cut("x", halo=(1, 0))]), (5, 4))
    seen = []

    def kernel(held: Any, own: Any, a: Any) -> Any:
        seen.append((held, own, a.shape))
        return a

    apply("copy", kernel, elementwise_rule(((5, 4),)), [x], located=(0, RESULT))
    assert sorted(held for held, _, _ in seen) == [
        (rows, columns) for rows in ((0, 2), (2, 4), (4, 5)) for columns in ((0, 2), (2, 4))
    ]
    assert all(own == held for held, own, _ in seen)
    assert all(shape == tuple(b - a for a, b in held) for held, _, shape in seen)


def test_the_dtype_is_that_of_the_kernel() -> None:
    x, _ = spread(Layout(MESH, ["y"]), (5,), "int8")
    assert apply("half", lambda a: a / 2, elementwise_rule(((5,),)), [x]).dtype == np.float64
    assert apply("even", lambda a: a % 2 == 0, elementwise_rule(((5,),)), [x]).dtype == np.bool_
    assert apply("one", lambda a: a, elementwise_rule(((5,),)), [x], dtype=np.dtype("int8")).dtype == np.int8


def test_tensors_on_one_device_follow_those_that_are_spread() -> None:
    x, vx = spread(Layout(MESH, ["x", "y"]), (4, 6), seed=1)
    alone = asarray(np.arange(24.0).reshape(4, 6))
    for operands in ([x, alone], [alone, x]):
        out = apply("add", np.add, ADD, operands)
        assert out.mesh is MESH
        assert out.layout is x.layout
        assert np.array_equal(out.numpy(), vx + alone.numpy())
    both = apply("add", np.add, ADD, [alone, alone])
    assert both.mesh.is_single
    assert both.mesh is alone.mesh
    elsewhere = sw.to_device(alone, CPU(1))
    for operands in ([elsewhere, alone], [alone, elsewhere]):
        assert apply("add", np.add, ADD, operands).mesh is operands[0].mesh


def test_the_first_mesh_that_is_spread_is_the_one() -> None:
    other = DeviceMesh((3,), ("z",), [CPU(i) for i in (3, 4, 5)])
    x, vx = spread(Layout(MESH, ["x"]), (6,), seed=1)
    y, vy = spread(Layout(other, ["z"]), (6,), seed=2)
    rule = elementwise_rule(((6,), (6,)))
    for operands, mesh in (([x, y], MESH), ([y, x], other), ([asarray(np.ones(6)), y], other)):
        out = apply("add", np.add, rule, operands)
        assert out.mesh is mesh
    assert np.array_equal(apply("add", np.add, rule, [y, x]).numpy(), vx + vy)


def test_shapes_that_do_not_fit_are_refused_before_anything_is_done() -> None:
    x, _ = spread(Layout(MESH, [None, None]), (4, 5))
    y, _ = spread(Layout(MESH, [None, None]), (5, 4))
    with pytest.raises(BindingError, match=r"operands of shapes \(4, 5\), \(5, 4\) do not fit together"):
        apply("add", lambda *_: pytest.fail("a kernel was run"), ADD, [x, y])


def test_a_solver_that_allows_nothing_is_asked_every_time() -> None:
    x, _ = spread(Layout(MESH, ["x", None]), (4, 6))
    y, _ = spread(Layout(MESH, [None, "x"]), (4, 6))
    with mode(NoReshard()):
        for _ in range(2):  # a decision that is remembered is refused too
            with pytest.raises(LayoutError, match="NoReshard"):
                apply("add", np.add, ADD, [x, y])
        assert apply("add", np.add, ADD, [x, x]).layout is x.layout


def test_a_way_that_sends_is_reported_at_every_call() -> None:
    x, _ = spread(Layout(MESH, ["x", None]), (4, 6))
    y, _ = spread(Layout(MESH, [None, "x"]), (4, 6))
    for _ in range(2):
        with mode(GreedyReshard(on_reshard="warn")), pytest.warns(UserWarning, match="add"):
            apply("add", np.add, ADD, [x, y])


def test_operands_of_two_libraries_meet_in_the_one_of_the_first() -> None:
    torch = pytest.importorskip("torch")
    ours = shard(np.arange(6.0), MESH, P("y"))
    theirs = shard(torch.arange(6.0, dtype=torch.float64), MESH, P("y"))
    for a, b in ((ours, theirs), (theirs, ours)):
        out = sw.add(a, b)
        assert np.array_equal(out.numpy(), 2 * np.arange(6.0))
        assert out.dtype == np.float64


def test_a_reshard_of_an_operand_is_all_that_moves() -> None:
    x, _ = spread(Layout(MESH, ["x", None]), (4, 6))
    y, _ = spread(Layout(MESH, [None, None]), (4, 6))
    counters = current_engine().counters
    counters.reset()
    out = apply("add", np.add, ADD, [x, y])  # what is whole everywhere is cut for nothing
    assert counters.total == 0
    assert out.layout is x.layout


class Shifted:
    """Reaches one element further than it owns, or has no way."""

    shape = (6,)

    def __init__(self, possible: bool) -> None:
        self.possible = possible

    def cuts(self, operands: Any, out: Any) -> Any:
        (dims,) = operands
        return ([[Cut(cut.axes, halo=(0, 1)) for cut in dims]], [Cut(cut.axes, split="chunk") for cut in out]) if (
            self.possible
        ) else None  # fmt: skip


def test_what_reaches_over_ends_has_cuts_of_its_own() -> None:
    own = Layout(MESH, ["y"], ["x"], "max")
    way = Candidate((own,), own, 7)
    assert reached(Shifted(False), way) is None
    found = reached(Shifted(True), way)
    assert found is not None
    assert found.operands == (Layout(MESH, [Cut("y", halo=(0, 1))], ["x"], "max"),)
    assert found.out is Layout(MESH, [Cut("y", split="chunk")], ["x"], "max")
    assert found.work == 7
