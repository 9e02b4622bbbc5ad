"""Rounds: every step of a plan as sends and receives, run on all devices; pieces that do not meet travel together."""

from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pytest
from xdsl.dialects import arith
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr as Dense
from xdsl.dialects.builtin import f32, i1, i32
from xdsl.ir import Block, SSAValue

from shardwise.errors import ProgramError
from shardwise.ir.passes.layouts import local_type
from shardwise.ir.passes.rounds import combination, has_more_rounds, rounds
from shardwise.ir.passes.writer import Writer
from shardwise.layout.cut import Cut
from shardwise.layout.layout import Layout
from shardwise.layout.mesh import DeviceMesh
from shardwise.layout.placement import ReduceOp
from shardwise.plan.plan import Plan, plan_reshard
from tests.ir.passes.devices import mesh_named, module_written, run_written
from tests.ir.passes.traffic import counted
from tests.layout.oracle import digit
from tests.prim.cases import part

MESH = mesh_named(2, 3)
X, Y = "axis0", "axis1"
DIMS: list[list[Any]] = [
    [None, None],
    [X, None],
    [None, Y],
    [Y, X],
    [(X, Y), None],
    [None, (Y, X)],
    [Cut(Y, offsets=(0, 1, 5, 7)), None],
    [Cut(Y, offsets=(0, 0, 7, 7)), X],
]


def held(layout: Layout, value: np.ndarray, device: int) -> np.ndarray:
    return part(value, layout.held_box(value.shape, device))


def check(src: Layout, dst: Layout, shape: tuple[int, ...], op: ReduceOp | None = None, dtype: str = "int32") -> None:
    """Run every step of a plan by sends and receives alone: each device gets its part, by the bytes of the plan."""
    plan = plan_reshard(src, dst, shape, dtype)
    kind = {"int32": i32, "float32": f32}[dtype]

    def write(w: Writer, x: SSAValue) -> list[Any]:
        for step in plan.steps:
            if step.moves:
                x = rounds(w, x, step, shape)
        return [x]

    if not plan.steps or any(not step.moves for step in plan.steps):
        return
    rng = np.random.default_rng(0)
    places = sorted({tuple(digit(MESH, a, d) for a in src.partial) for d in range(6)})
    terms = {place: rng.integers(-9, 10, shape).astype(dtype) for place in places}
    whole = np.asarray((UFUNCS[op] if op else np.add).reduce(list(terms.values())), dtype)
    inputs = [held(src, terms[tuple(digit(MESH, a, d) for a in src.partial)], d) for d in range(6)]
    with counted() as traffic:
        made = run_written(MESH, write, [local_type(src, shape, kind)], [inputs])
    for device, got in enumerate(made):
        assert isinstance(got, np.ndarray), (device, got)
        np.testing.assert_array_equal(got, held(dst, whole, device), f"{src} to {dst}, device {device}")
    assert traffic.bytes == plan.received.total, (src, dst)


UFUNCS: dict[ReduceOp | None, Any] = {
    ReduceOp.SUM: np.add,
    ReduceOp.PROD: np.multiply,
    ReduceOp.MAX: np.maximum,
    ReduceOp.MIN: np.minimum,
    ReduceOp.BAND: np.bitwise_and,
    ReduceOp.BOR: np.bitwise_or,
    ReduceOp.BXOR: np.bitwise_xor,
}


LONG = pytest.param(1, marks=pytest.mark.long)


@pytest.mark.parametrize("every", [9, LONG])
def test_devices_get_what_they_lack(every: int) -> None:
    for src, dst in list(product(DIMS, DIMS))[::every]:
        check(Layout(MESH, src), Layout(MESH, dst), (7, 5))


@pytest.mark.parametrize("every", [11, LONG])
def test_devices_that_reduce_get_what_others_contribute(every: int) -> None:
    pending: list[Any] = [([None, None], [X]), ([None, None], [Y]), ([None, None], [X, Y])]
    pending += [([X, None], [Y]), ([None, Y], [X])]
    for (src, partial), dst in list(product(pending, DIMS[:6]))[::every]:
        check(Layout(MESH, src, partial), Layout(MESH, dst), (7, 5), ReduceOp.SUM)


@pytest.mark.parametrize("op", [op for op in UFUNCS if op is not None], ids=str)
def test_every_reduction(op: ReduceOp) -> None:
    check(Layout(MESH, [None], [Y], op), Layout(MESH, [Y]), (7,), op)
    if op in (ReduceOp.SUM, ReduceOp.MIN):
        check(Layout(MESH, [None], [Y], op), Layout(MESH, [Y]), (7,), op, "float32")


def test_halos_come_from_neighbours_and_are_zero_outside() -> None:
    for halo in ((1, 1), (2, 0)):
        wide = Layout(MESH, [Cut(Y, halo=halo, edge="pad"), None])
        check(Layout(MESH, [Y, None]), wide, (9, 2))
        check(wide, Layout(MESH, [Y, X]), (9, 2))


def test_everybody_sends_and_receives_once_in_a_gather_of_two() -> None:
    mesh = mesh_named(2)
    plan = plan_reshard(Layout(mesh, [X]), Layout(mesh, [None]), (4,), "int32")
    module, _ = module_written(
        mesh, lambda w, x: [rounds(w, x, plan.steps[0], (4,))], [local_type(Layout(mesh, [X]), (4,), i32)]
    )
    names = [op.name for op in module.walk()]
    assert names.count("shard.send") == names.count("shard.recv") == 1
    assert "scf.if" not in names  # nobody has nothing to do


def test_who_has_nothing_to_do_does_nothing() -> None:
    plan = plan_reshard(Layout(MESH, [Cut(Y, offsets=(0, 6, 6, 6))]), Layout(MESH, [Y]), (6,), "int32")
    kind = local_type(plan.src, (6,), i32)
    module, _ = module_written(MESH, lambda w, x: [rounds(w, x, plan.steps[0], (6,))], [kind])
    assert [op.name for op in module.walk()].count("scf.if") >= 2


@pytest.mark.parametrize(
    ("op", "floats", "ints"),
    [
        (ReduceOp.SUM, arith.AddfOp, arith.AddiOp),
        (ReduceOp.PROD, arith.MulfOp, arith.MuliOp),
        (ReduceOp.MAX, arith.MaximumfOp, arith.MaxSIOp),
        (ReduceOp.MIN, arith.MinimumfOp, arith.MinSIOp),
        (ReduceOp.BAND, None, arith.AndIOp),
        (ReduceOp.BOR, None, arith.OrIOp),
        (ReduceOp.BXOR, None, arith.XOrIOp),
    ],
)
def test_two_values_are_combined_by_an_op_of_their_type(op: ReduceOp, floats: Any, ints: Any) -> None:
    assert combination(op, i32) is ints
    assert combination(op, i1) is ints
    if floats is not None:
        assert combination(op, f32) is floats
        return
    with pytest.raises(ProgramError) as caught:
        combination(op, f32)
    assert str(caught.value) == f"{op} is not defined for f32."


def uneven(n: int) -> tuple[DeviceMesh, Plan]:
    """Everybody sends to everybody, pieces of four sizes."""
    mesh, size = mesh_named(n, n), n * n + 1
    return mesh, plan_reshard(Layout(mesh, [(X, Y), None]), Layout(mesh, [None, (X, Y)]), (size, size), "int32")


@pytest.mark.parametrize("n", [2, 3, 4])
def test_everybody_with_everybody_takes_as_many_rounds_as_others(n: int) -> None:
    mesh, plan = uneven(n)
    (step,) = plan.steps
    kind = local_type(plan.src, plan.shape, i32)
    module, _ = module_written(mesh, lambda w, x: [rounds(w, x, step, plan.shape)], [kind])
    names = Counter(op.name for op in module.walk())
    assert names["shard.recv"] == names["shard.send"] == n * n - 1
    assert not names["scf.if"]  # nobody has nothing to do
    assert not has_more_rounds(step, plan.shape, n * n - 1)
    assert has_more_rounds(step, plan.shape, n * n - 2)


def test_rounds_share_their_tables() -> None:
    # So that text grows with the rounds, not with rounds times devices.
    tables = {}
    for n in (3, 5):
        mesh, plan = uneven(n)
        kind = local_type(plan.src, plan.shape, i32)
        module, _ = module_written(mesh, lambda w, x, p=plan: [rounds(w, x, p.steps[0], p.shape)], [kind])
        dense = [op for op in module.walk() if isinstance(op, arith.ConstantOp) and isinstance(op.value, Dense)]
        tables[n] = len(dense)
    assert tables[5] == tables[3] <= 8


@pytest.mark.parametrize("n", [2, 3])
def test_uneven_pieces_between_all_get_where_they_belong(n: int) -> None:
    mesh, plan = uneven(n)
    whole = np.arange(plan.shape[0] ** 2, dtype="int32").reshape(plan.shape)
    kind, devices = local_type(plan.src, plan.shape, i32), range(n * n)
    inputs = [held(plan.src, whole, d) for d in devices]
    made = run_written(mesh, lambda w, x: [rounds(w, x, plan.steps[0], plan.shape)], [kind], [inputs])
    for device, got in enumerate(made):
        np.testing.assert_array_equal(got, held(plan.dst, whole, device))


def test_what_the_dialect_cannot_do_is_refused() -> None:
    average = plan_reshard(Layout(MESH, [None], [Y], "avg"), Layout(MESH, [Y]), (6,), "float32")
    block = Block(arg_types=[local_type(average.src, (6,), f32)])
    with pytest.raises(ProgramError, match=r"^the step reduce_scatter over axis1 takes averages of boxes, which no op"):
        rounds(Writer(block), block.args[0], average.steps[0], (6,))
    fresh = plan_reshard(Layout(MESH, [Y]), Layout(MESH, [X], [Y]), (6,), "float32")
    block = Block(arg_types=[local_type(fresh.src, (6,), f32)])
    moving = next((step for step in fresh.steps if step.moves), None)
    if moving is not None:
        with pytest.raises(ProgramError, match=r"makes values partial, which no op of the dialect does\.$"):
            rounds(Writer(block), block.args[0], moving, (6,))
