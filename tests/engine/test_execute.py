"""Programs do what plans say: the right values, each byte written once, and bytes counted that agree."""

from dataclasses import replace
from itertools import pairwise
from random import Random

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise import CPU, AbstractEngine, Cut, DeviceMesh, Layout, Link, P, ReduceOp, plan_reshard
from shardwise.engine.arrays import dtype_of, to_numpy, torch_of
from shardwise.engine.execute import permutation, program_of
from shardwise.engine.local import engine as local
from shardwise.engine.local.engine import LocalEngine
from shardwise.engine.storage import storage_of
from tests.engine.cases import check, run, spread
from tests.plan.cases import Transition, all_transitions, crowded_moves, mesh_of, transitions

MESH = DeviceMesh((8,), ("x",))
SHAPE = (16, 16)
BYTES = 16 * 16 * 4


def reshard(src: Layout, dst: Layout, engine: LocalEngine, shape: tuple[int, ...] = SHAPE) -> list[np.ndarray]:
    case = Transition(src, dst, shape)
    return run(engine, case, spread(src, shape, "float32").arrays, "float32")


def layout(*dims: str | None, partial: tuple[str, ...] = (), mesh: DeviceMesh = MESH, op: str = "sum") -> Layout:
    return Layout(mesh, P(*dims).to_layout(2, mesh).dims, partial, op)


# -- generated reshards ----------------------------------------------------------------------------------


@given(transitions(), st.integers(0, 9))
def test_every_device_ends_with_its_shard_and_the_bytes_are_those_of_the_plan(case: Transition, seed: int) -> None:
    check(case, seed=seed)


@given(transitions(partial=True), st.integers(0, 9))
def test_the_same_with_partial_values(case: Transition, seed: int) -> None:
    check(case, seed=seed)


@pytest.mark.parametrize("shape", [(8, 6), (5, 3), (1, 7), (0, 4)], ids=str)
def test_every_reshard_of_a_small_mesh(shape: tuple[int, ...]) -> None:
    for case in all_transitions(mesh_of(2, 3), shape, partial=True):
        check(case)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3,), (1, 1, 1), (2, 0, 3)], ids=str)
def test_tiny_and_empty_tensors_on_more_devices_than_elements(shape: tuple[int, ...]) -> None:
    for case in all_transitions(mesh_of(1, 4, 2), shape, partial=len(shape) < 3):
        check(case)


def test_reshards_between_meshes_where_a_device_stands_in_several_slots() -> None:
    seen = set()
    for seed in range(100):
        src, dst, shape, dtype = crowded_moves(Random(seed))
        if ReduceOp.AVG not in (src.reduce_op, dst.reduce_op):
            check(Transition(src, dst, shape), dtype, seed)
            seen.add((bool(src.partial), dst.reduce_op if dst.partial else None))
    assert {(False, None), (True, None), (False, ReduceOp.MAX), (False, ReduceOp.MIN)} <= seen


def test_an_average_becomes_pending_by_replicating() -> None:
    crowd = DeviceMesh((3,), ("z",), [CPU(2), CPU(1), CPU(2)])
    src = Layout(MESH, ["x"])
    given = spread(src, (8,), "float32")
    for dst in (Layout(MESH, [None], ["x"], "avg"), Layout(crowd, [None], ["z"], "avg")):
        found = run(LocalEngine(), Transition(src, dst, (8,)), given.arrays, "float32")
        assert [array.tolist() for array in found] == [given.value.tolist()] * dst.mesh.num_devices


# -- how little is copied --------------------------------------------------------------------------------


def test_a_gather_copies_each_byte_once_and_all_devices_share_the_result() -> None:
    engine = LocalEngine()
    found = reshard(layout("x"), layout(), engine)
    assert (engine.counters.copies, engine.counters.bytes_copied) == (8, BYTES)
    assert engine.counters.bytes_moved == {"all_gather": 7 * BYTES}
    assert all(array is found[0] for array in found)


def test_an_all_to_all_copies_each_byte_once() -> None:
    engine = LocalEngine()
    reshard(layout("x"), layout(None, "x"), engine)
    assert engine.counters.bytes_copied == BYTES
    assert engine.counters.bytes_moved == {"all_to_all": BYTES * 7 // 8}


def test_slices_are_views() -> None:
    engine = LocalEngine()
    given = spread(layout(), SHAPE, "float32")
    found = run(engine, Transition(layout(), layout("x"), SHAPE), given.arrays, "float32")
    assert engine.counters.bytes_copied == engine.counters.bytes_allocated == engine.counters.total == 0
    assert all(np.shares_memory(array, given.arrays[0]) for array in found)


def test_a_change_of_the_order_of_axes_moves_bytes_between_devices_but_copies_nothing() -> None:
    mesh, engine = mesh_of(2, 4), LocalEngine()
    src, dst = (Layout(mesh, [axes, ()]) for axes in (("x", "y"), ("y", "x")))
    reshard(src, dst, engine)
    assert engine.counters.bytes_copied == 0
    assert engine.counters.bytes_moved == {"permute": BYTES * 6 // 8}


def test_replicas_of_a_sum_are_one_array_which_is_computed_once() -> None:
    engine = LocalEngine()
    found = reshard(layout(partial=("x",)), layout(), engine)
    assert all(array is found[0] for array in found)
    assert (engine.counters.kernel_calls, engine.counters.copies) == (1, 0)


def test_devices_that_receive_overlapping_boxes_of_one_array_share_its_copies() -> None:
    # Each device lacks another part of what all of them get, so the transfers overlap.
    mesh, engine = mesh_of(2, 3), LocalEngine()
    src, dst = Layout(mesh, [("x",), ("y",)]), Layout(mesh, [("y",), ()])
    reshard(src, dst, engine, (12, 9))
    assert engine.counters.bytes_copied <= 12 * 9 * 4


def test_a_halo_is_copied_and_padding_is_zero() -> None:
    engine = LocalEngine()
    dst = Layout(MESH, [Cut(("x",), halo=(1, 1), edge="pad"), ()])
    found = reshard(layout("x"), dst, engine)
    assert not found[0][0].any()
    assert not found[-1][-1].any()
    assert engine.counters.total == 14 * 16 * 4


def test_where_values_become_partial_identities_stand_in() -> None:
    for op, identity in (("sum", 0), ("prod", 1), ("max", -np.inf), ("min", np.inf)):
        found = reshard(layout(), layout(partial=("x",), op=op), LocalEngine())
        value = spread(layout(), SHAPE, "float32").value
        kept = np.stack(found) != np.float32(identity)
        assert (kept.sum(axis=0) == (value != identity)).all()
        assert len({array.tobytes() for array in found}) == 8


# -- programs --------------------------------------------------------------------------------------------


def test_a_program_is_made_once_per_plan_and_compiled_when_it_is_needed() -> None:
    plan = plan_reshard(layout("x"), layout(None, "x"), (64, 8), "float32")
    program = program_of(plan)
    assert program_of(plan) is program
    assert "stages" not in vars(program)
    assert program.stages is program.stages


def test_copies_with_one_source_become_one_and_neighbours_are_joined() -> None:
    (stage,) = program_of(plan_reshard(layout(partial=("x",)), layout(), SHAPE, "float32")).stages
    assert [len(reduce.terms) for reduce in stage.reduces] == [8]
    (stage,) = program_of(plan_reshard(layout("x"), layout(None, "x"), SHAPE, "float32")).stages
    assert [len(join.terms) for join in stage.joins] == [8] * 8


def test_a_reduction_that_is_scattered_is_made_once_and_devices_hold_views_of_it() -> None:
    for dst in (layout("x"), layout(None, "x")):
        engine = LocalEngine()
        found = reshard(layout(partial=("x",)), dst, engine)
        assert engine.counters.kernel_calls == 1
        assert engine.counters.bytes_moved == {"reduce_scatter": 7 * BYTES}
        assert engine.counters.bytes_allocated == BYTES
        assert not any(np.shares_memory(a, b) for a, b in pairwise(found))


@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_reduction_of_few_terms_is_made_once_too(count: int) -> None:
    mesh = DeviceMesh((count,), ("x",))
    size = 30 * 4 * 4
    for dst in (layout("x", mesh=mesh), layout(mesh=mesh)):
        engine = LocalEngine()
        case = Transition(layout(partial=("x",), mesh=mesh), dst, (30, 4))
        run(engine, case, spread(case.src, case.shape, "float32").arrays, "float32")
        (stage,) = program_of(plan_reshard(*case, "float32")).stages
        assert (engine.counters.kernel_calls, engine.counters.bytes_allocated) == (1, size)
        assert [(len(reduce.terms), reduce.at, reduce.size) for reduce in stage.reduces] == [(count, (), size)]
        assert stage.is_lone
        assert stage.shapes[stage.fresh[0]] == (30, 4)
        scattered = dst.dims[0].axes != ()
        assert stage.wholes == (((30, 4),) if scattered else ())
        assert [(v.out, v.source) for v in stage.views] == ([(i, count) for i in range(count)] if scattered else [])


def test_a_stage_knows_its_bytes_its_memory_and_what_it_moves() -> None:
    (stage,) = program_of(plan_reshard(layout("x"), layout(None, "x"), SHAPE, "float32")).stages
    assert (stage.size, stage.copies, stage.traffic) == (BYTES, 64, (("all_to_all", BYTES * 7 // 8),))
    assert stage.memory == (BYTES, tuple(range(0, BYTES, BYTES // 8)))
    assert stage.is_joined
    assert not stage.is_lone
    assert stage.empties == ()
    assert stage.regrid is not None
    (odd,) = program_of(plan_reshard(layout("x"), layout(None, "x"), (5, 3), "int8")).stages
    assert odd.memory == (3 * 64 + 0 * 5, (0, 64, 128, 192, 192, 192, 192, 192))  # each at a cache line
    assert odd.empties == (3, 4, 5, 6, 7)
    assert odd.regrid is None
    (view,) = program_of(plan_reshard(layout(), layout("x"), SHAPE, "float32")).stages
    assert (view.size, view.copies, view.traffic, view.fresh, view.memory[0]) == (0, 0, (), (), 0)
    assert [take.source for take in view.takes] == [0] * 8


def test_one_copy_makes_all_only_where_every_element_keeps_its_place() -> None:
    (joined,) = program_of(plan_reshard(layout("x"), layout(None, "x"), SHAPE, "float32")).stages
    (taken,) = program_of(plan_reshard(layout(), layout("x"), SHAPE, "float32")).stages
    assert joined._keeps_places
    assert taken._keeps_places
    first = taken.takes[0]
    assert first.region[:2] == (slice(0, 2), slice(0, 16))
    for where, keeps in [
        ((slice(0, 2), slice(0, 16), ...), True),
        ((slice(0, 2), slice(0, 16, -1), ...), False),  # backwards, in either dim
        ((slice(0, 2, -1), slice(0, 16), ...), False),
        ((slice(2, 4), slice(0, 16), ...), False),
        ((slice(0, 2), slice(1, 17), ...), False),
    ]:
        changed = replace(taken, takes=(first._replace(region=where), *taken.takes[1:]))
        assert changed._keeps_places == keeps
        assert (changed.regrid is not None) == keeps
    join = joined.joins[0]
    turned = replace(joined, joins=(join._replace(terms=join.terms[::-1]), *joined.joins[1:]))
    assert not turned._keeps_places
    assert turned.regrid is None


def test_rows_that_are_cut_are_copied_in_runs() -> None:
    (stage,) = program_of(plan_reshard(layout("x"), layout(None, "x"), (64, 64), "float32")).stages
    assert stage.rows is not None
    assert stage.rows[0] == 8
    (stage,) = program_of(plan_reshard(layout("x"), layout(), (64, 64), "float32")).stages
    assert stage.rows is None
    (stage,) = program_of(plan_reshard(layout("x"), layout(None, "x"), (64, 13), "float32")).stages
    assert stage.rows is None


@pytest.mark.parametrize("columns", [512, 520, 24, 1000, 1001])
@pytest.mark.parametrize("order", ["C", "F"])
def test_large_copies_in_runs_are_right_whatever_the_order_in_memory(columns: int, order: str) -> None:
    shape = (256, columns)
    for src, dst in ((layout("x"), layout(None, "x")), (layout(None, "x"), layout("x")), (layout(None, "x"), layout())):
        given = spread(src, shape, "float32")
        arrays = [np.asarray(array, order="F" if order == "F" else "C") for array in given.arrays]
        found = run(LocalEngine(), Transition(src, dst, shape), arrays, "float32")
        for device, array in enumerate(found):
            storage = storage_of(dst, shape)
            (top, bottom), (left, right) = storage.boxes[storage.index(device)]
            assert np.array_equal(array, given.value[top:bottom, left:right])


def test_a_permutation_copies_nothing_and_what_receives_nothing_is_zero() -> None:
    engine, src = LocalEngine(), layout("x")
    arrays = spread(src, SHAPE, "float32").arrays
    picks = (None, *range(7))
    program = permutation(storage_of(src, SHAPE), picks, (0, *(1,) * 7), np.dtype("float32"))
    found = engine.run(program, arrays)
    assert not found[0].any()
    assert all(found[i + 1] is arrays[i] for i in range(7))
    assert engine.counters.bytes_moved == {"permute": BYTES * 7 // 8}
    assert engine.counters.bytes_copied == 0


def test_a_permutation_of_scalars_keeps_them_arrays() -> None:
    mesh = DeviceMesh((2,), ("x",))
    src = Layout(mesh, [], ["x"])
    program = permutation(storage_of(src, ()), (1, 0), (1, 1), np.dtype("float32"))
    found = LocalEngine().run(program, [np.array(1, "f4"), np.array(2, "f4")])
    assert all(isinstance(array, np.ndarray) for array in found)


# -- the checks can fail ---------------------------------------------------------------------------------

BROKEN = [
    Transition(layout("x"), layout(None, "x"), SHAPE),
    Transition(layout("x"), layout(), SHAPE),
    Transition(layout(partial=("x",)), layout(), SHAPE),
    Transition(layout(partial=("x",)), layout("x"), SHAPE),
]


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: f"{case.src} to {case.dst}")
def test_the_checks_fail_if_an_instruction_is_left_out(case: Transition, monkeypatch: pytest.MonkeyPatch) -> None:
    check(case)
    program = program_of(plan_reshard(*case, "int64"))
    (stage,) = program.stages
    less = replace(stage, joins=stage.joins[1:], reduces=stage.reduces[1:])
    monkeypatch.setitem(vars(program), "stages", (less,))
    with pytest.raises(AssertionError):
        check(case)


@pytest.mark.parametrize("verb", ["join_into", "reduce_into"])
@pytest.mark.parametrize("short", [False, True], ids=["skipped", "one byte short"])
def test_the_checks_fail_if_one_copy_is_skipped_or_short(
    verb: str, short: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = getattr(local, verb), []

    def broken(out: np.ndarray, *rest) -> None:
        calls.append(out)
        if len(calls) != 1:
            real(out, *rest)
            return
        whole = out.copy()
        real(whole, *rest)
        if short:
            whole.reshape(-1).view(np.uint8)[-1] ^= 255
            out[...] = whole

    case = BROKEN[0] if verb == "join_into" else BROKEN[3]
    monkeypatch.setattr(local, verb, broken)
    with pytest.raises(AssertionError):
        check(case, seed=3)
    assert calls


@pytest.mark.parametrize("verb", ["copy", "reduce"])
def test_the_counters_alone_show_that_a_verb_was_left_out(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = BROKEN[0] if verb == "copy" else BROKEN[3]
    engine, calls = LocalEngine(), []
    real = getattr(engine, verb)
    monkeypatch.setattr(engine, verb, lambda *args: calls.append(1) if not calls else real(*args))
    run(engine, case, spread(case.src, case.shape).arrays)
    assert engine.counters.total < plan_reshard(*case, "int64").received.total


@pytest.mark.parametrize("op", ["sum", "avg", "prod"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e5m2"])
def test_a_reduction_of_several_hops_rounds_once_and_counts_what_it_carries(dtype: str, op: str) -> None:
    mesh, kind = DeviceMesh((2, 4), ("x", "y")), np.dtype(dtype)
    links = {"x": Link(0, 1e6), "y": Link(0, 1e12)}
    src, dst = Layout(mesh, [None], ["x", "y"], op), Layout(mesh, [None])
    plan = plan_reshard(src, dst, (64,), kind, links=links)
    assert len(plan.steps) == 3
    rng, storage = np.random.default_rng(0), storage_of(src, (64,))
    parts = [rng.uniform(0.8, 1.2, 64).astype(kind) for _ in range(storage.count)]
    wide = np.stack(parts).astype("float64")
    want = {"sum": wide.sum(0), "avg": wide.mean(0), "prod": wide.prod(0)}[op]
    for make in (np.array, torch_of):
        engine, abstract = LocalEngine(), AbstractEngine()
        (out,) = engine.run(program_of(plan), [make(part) for part in parts])
        assert dtype_of(out) == kind
        unit = np.exp2(np.floor(np.log2(want))) * float(ml_dtypes.finfo(kind).eps)
        assert (np.abs(to_numpy(out).astype("float64") - want) <= unit * 0.501).all()
        abstract.run(program_of(plan), abstract.blank(src, (64,), kind))
        for counted in (engine, abstract):
            assert counted.counters.bytes_moved == {step.kind: step.received.total for step in plan.steps}
