"""Dispatch: what an op makes of layouts it has not met, on which mesh, and who is told."""

from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import (
    CPU,
    ArgumentError,
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
from shardwise.prim.dispatch.candidates import Candidate
from shardwise.prim.dispatch.decision import apply as run_work
from shardwise.prim.dispatch.decision import passing, recut_for_reach
from shardwise.prim.rule import Rule, elementwise_rule
from shardwise.prim.tensor import Tensor
from shardwise.prim.work import Work
from tests.plan.cases import mesh_of
from tests.prim.cases import assert_holds, spread

MESH = mesh_of(2, 3)
ADD = Rule((("a", "b"), ("a", "b")), ("a", "b"), linear="joint")
TOTAL = Rule((("a", "b"),), ("b",), (("a", ReduceOp.SUM),), linear="joint")


def apply(*of: Any, **more: Any) -> Tensor:
    return run_work(Work(*of, **more))


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

    shape, places = (6,), 6

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
    assert recut_for_reach(Shifted(False), way) is None
    found = recut_for_reach(Shifted(True), way)
    assert found is not None
    assert found.operands == (Layout(MESH, [Cut("y", halo=(0, 1))], ["x"], "max"),)
    assert found.out is Layout(MESH, [Cut("y", split="chunk")], ["x"], "max")
    assert found.work == 7


# -- pending sums ----------------------------------------------------------------------------------------


WHOLE, PENDING = Layout(MESH, [None]), Layout(MESH, [None], ["x"])
PRODUCT, SUMMED = elementwise_rule(((4,), (4,)), "each"), Rule((("a",),), (), (("a", ReduceOp.SUM),), linear="joint")
SUM = elementwise_rule(((4,), (4,)), "joint")


@pytest.mark.parametrize(
    ("rule", "layouts", "dtypes", "resolve", "passes"),
    [
        (PRODUCT, [PENDING, WHOLE], ["float32", "float32"], False, True),
        (PRODUCT, [PENDING, WHOLE], ["float32", "float64"], False, True),  # floats may become wider term by term
        (PRODUCT, [PENDING, WHOLE], ["float32", "float32"], True, False),
        (PRODUCT, [WHOLE, PENDING], ["float32", "float32"], True, False),
        (PRODUCT, [PENDING, WHOLE], ["int8", "int8"], False, True),
        (PRODUCT, [PENDING, WHOLE], ["int8", "int8"], True, False),
        (PRODUCT, [PENDING, WHOLE], ["int8", "int16"], False, False),
        (PRODUCT, [PENDING, WHOLE], ["int8", "float32"], False, False),
        (PRODUCT, [PENDING, WHOLE], ["float32", "int8"], False, True),  # what is pending is a float
        (PRODUCT, [WHOLE, PENDING], ["float32", "int8"], False, False),
        (SUM, [PENDING, PENDING], ["float32", "float32"], True, True),  # an addition is no product
        (SUM, [PENDING, PENDING], ["int8", "int8"], True, True),
        (SUM, [PENDING, PENDING], ["int8", "int64"], False, False),
        (SUM, [PENDING, PENDING], ["int64", "int64"], False, True),
        (SUMMED, [PENDING], ["int32"], False, False),  # a sum of int32 is an int64
        (SUMMED, [PENDING], ["int64"], False, True),
        (SUMMED, [PENDING], ["uint8"], True, False),
        (SUMMED, [PENDING], ["float16"], False, True),
    ],
)
def test_what_pending_sums_may_pass_through(
    rule: Rule, layouts: list[Layout], dtypes: list[str], resolve: bool, passes: bool
) -> None:
    got = passing(rule, layouts, [np.dtype(t) for t in dtypes], GreedyReshard(resolve_products=resolve))
    assert got.linear == (rule.linear if passes else None)
    assert (got.operands, got.out, got.reduced) == (rule.operands, rule.out, rule.reduced)
    assert not passes or got is rule


@pytest.mark.parametrize("resolve", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_rules_stay_the_same_where_nothing_is_pending_or_could_pass(resolve: bool, dtype: str) -> None:
    solver, kinds = GreedyReshard(resolve_products=resolve), [np.dtype(dtype)] * 2
    assert passing(PRODUCT, [WHOLE, WHOLE], kinds, solver) is PRODUCT
    stiff = elementwise_rule(((4,), (4,)))
    assert passing(stiff, [PENDING, WHOLE], [np.dtype("int8"), np.dtype(dtype)], solver) is stiff


# -- errors of kernels -----------------------------------------------------------------------------------


def fails_with(error: Exception) -> Exception:
    x, _ = spread(Layout(MESH, ["y"]), (5,), "int8")
    y, _ = spread(Layout(MESH, ["y"]), (5,), "float32")

    def kernel(*arrays: Any) -> Any:
        raise error

    with pytest.raises(Exception) as found:  # noqa: PT011 (which one is what is asked)
        apply("twist", kernel, elementwise_rule(((5,), (5,), (5,))), [x, y, x])
    return found.value


def test_values_without_a_result_are_said_with_the_op_and_its_dtypes() -> None:
    error = OverflowError("too large.")
    found = fails_with(error)
    assert type(found) is BindingError
    assert str(found) == "twist of int8, float32: too large."
    assert found.__cause__ is error


@pytest.mark.parametrize(
    "error",
    [
        TypeError("no loop"),
        RuntimeError("'twist' not implemented for 'Char'."),
        ValueError("not supported"),
    ],
)
def test_dtypes_without_a_result_are_said_with_what_helps(error: Exception) -> None:
    found = fails_with(error)
    assert type(found) is ArgumentError
    text = str(error).rstrip(".")
    assert str(found) == f"twist is not defined for int8, float32: {text}.\n  convert first: x.astype('float32')."
    assert found.__cause__ is error


@pytest.mark.parametrize(
    "error",
    [
        ValueError("something else"),
        RuntimeError("something else"),
        ArgumentError("not supported: said by ourselves"),
        BindingError("negative integer powers: said by ourselves"),
    ],
)
def test_other_errors_of_a_kernel_stay_what_they_are(error: Exception) -> None:
    assert fails_with(error) is error


# -- operands of two libraries ---------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["nt", "tn", "nnt", "ntn", "tnn", "ttn", "tnt", "ntt"])
def test_one_operand_of_another_library_is_enough_to_make_all_alike(which: str) -> None:
    torch = pytest.importorskip("torch")
    makers = {"n": lambda: np.arange(6.0), "t": lambda: torch.arange(6.0, dtype=torch.float64)}
    seen = []

    def kernel(*arrays: Any) -> Any:
        seen.extend(map(type, arrays))
        return sum(arrays[1:], arrays[0])

    operands = [shard(makers[kind](), MESH, P("y")) for kind in which]
    out = apply("add", kernel, elementwise_rule(((6,),) * len(which)), operands)
    assert set(seen) == {torch.Tensor}
    assert isinstance(out.local(0), torch.Tensor)
    assert np.array_equal(out.numpy(), len(which) * np.arange(6.0))


def test_operands_of_one_library_stay_in_it() -> None:
    seen = []

    def kernel(*arrays: Any) -> Any:
        seen.extend(map(type, arrays))
        return arrays[0]

    x = shard(np.arange(6.0), MESH, P("y"))
    apply("first", kernel, elementwise_rule(((6,),) * 3), [x, x, shard(np.arange(6.0), MESH, P("y"))])
    assert set(seen) == {np.ndarray}


# -- ways that are not there -----------------------------------------------------------------------------


class Unsplit:
    """An op that cannot reach over the ends of shards at all."""

    shape, places = (3,), 3

    def cuts(self, operands: Any, out: Any) -> Any:
        return None if any(cut.axes for dims in operands for cut in dims) else (operands, out)


def test_ways_that_reach_too_far_are_passed_over() -> None:
    x, value = spread(Layout(MESH, ["y"]), (6,))
    rule = Rule((("a",),), ("a",), reach=Unsplit())
    out = apply("every other", lambda a: a[::2], rule, [x])
    assert_holds(out, Layout(MESH, [None]), value[::2])


def test_a_way_of_nothing_pending_is_cut_anew_too() -> None:
    own = Layout(MESH, ["y"])
    found = recut_for_reach(Shifted(True), Candidate((own,), own))
    assert found is not None
    assert found.out is Layout(MESH, [Cut("y", split="chunk")])


def test_silence_is_the_default_and_a_way_that_sends_nothing_is_not_reported() -> None:
    x, _ = spread(Layout(MESH, ["x", None]), (4, 6))
    y, _ = spread(Layout(MESH, [None, "x"]), (4, 6))
    apply("add", np.add, ADD, [x, y])  # a warning would be an error here
    with mode(GreedyReshard(on_reshard="raise")):
        assert apply("add", np.add, ADD, [x, x]).layout is x.layout
        for _ in range(2):
            with pytest.raises(LayoutError, match=r"^add at .*test_decision.py:\d+ reshards its operands"):
                apply("add", np.add, ADD, [x, y])


def test_each_call_of_a_kernel_is_counted() -> None:
    counters = current_engine().counters
    x, _ = spread(Layout(MESH, ["y"]), (6,))
    counters.reset()
    apply("negative", np.negative, elementwise_rule(((6,),)), [x])
    assert counters.kernel_calls == 3
