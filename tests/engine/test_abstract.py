"""The abstract engine counts what the local engine does, and needs no time for large meshes."""

import gc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from shardwise import DeviceMesh, Layout, Plan, clear_caches, plan_reshard
from shardwise.engine import abstract
from shardwise.engine.abstract import AbstractArray, AbstractEngine
from shardwise.engine.execute import permutation, program_of
from shardwise.engine.job import Job
from shardwise.engine.local.engine import LocalEngine
from shardwise.engine.log import trace_communication
from shardwise.engine.pool import SMALLEST
from shardwise.engine.storage import storage_of
from shardwise.plan.movement import Movement
from tests.engine.cases import claimed, spread, stored
from tests.function_calls import calls_of
from tests.plan.cases import Transition, transitions

INT = np.dtype("int64")


def arrays_of(engine: AbstractEngine, layout: Layout, shape: tuple[int, ...], dtype: np.dtype = INT) -> list[Any]:
    return [AbstractArray(size, dtype) for size in storage_of(layout, shape).shapes]


@given(transitions(partial=True))
def test_shapes_dtypes_and_counters_are_those_of_the_local_engine(case: Transition) -> None:
    ours, real = AbstractEngine(), LocalEngine()
    program = program_of(plan_reshard(*case, INT))
    found = ours.run(program, arrays_of(ours, case.src, case.shape))
    want = real.run(program, stored(case.src, case.shape, spread(case.src, case.shape).arrays))
    if program.plan is not None and program.plan.steps:
        assert [(a.shape, a.dtype, a.ndim, a.nbytes) for a in found] == [
            (a.shape, a.dtype, a.ndim, a.nbytes) for a in want
        ]
    if ours.counters.bytes_allocated >= SMALLEST:  # the pool rounds large blocks up, and uses them again
        real.counters.bytes_allocated = ours.counters.bytes_allocated
    assert ours.counters == real.counters


@given(transitions(partial=True))
def test_large_meshes_are_counted_alike(case: Transition) -> None:
    # As if all meshes were too large to list: bytes between devices come from the steps.
    listed, abstract.LISTED = abstract.LISTED, 0
    try:
        engine = AbstractEngine()
        plan = plan_reshard(*case, INT)
        engine.run(program_of(plan), arrays_of(engine, case.src, case.shape))
        assert engine.counters.bytes_moved == claimed(plan)
        assert "stages" not in vars(program_of(plan)) or listed
    finally:
        abstract.LISTED = listed


def test_the_log_has_the_records_of_the_local_engine() -> None:
    mesh = DeviceMesh((2, 4), ("x", "y"))
    src, dst = Layout(mesh, [("x",), ()], ["y"]), Layout(mesh, [(), ("x",)])
    program, notes = program_of(plan_reshard(src, dst, (8, 8), INT)), []
    for engine, arrays in ((AbstractEngine(), arrays_of(AbstractEngine(), src, (8, 8))),
                           (LocalEngine(), stored(src, (8, 8), spread(src, (8, 8)).arrays))):  # fmt: skip
        with trace_communication() as log:
            engine.run(program, arrays)
        notes.append([(r.kind, r.axes, r.before, r.after, r.bytes) for r in log])
    assert notes[0] == notes[1]
    assert notes[0]


DIMS: list[tuple[Any, Any, Any, Any]] = [
    ([("x",), ("y",)], [], [("y",), ("x",)], []),
    ([("x", "y"), ()], [], [(), ()], []),
    ([("x",), ()], [], [(), ("y",)], []),
    ([("x",), ()], ["y"], [("x",), ()], []),
    ([("x",), ()], ["y"], [("x", "y"), ()], []),
    ([("x",), ()], ["y"], [(), ("x",)], []),
    ([(), ()], [], [("x",), ()], ["y"]),
]


@pytest.mark.parametrize(("a", "pa", "b", "pb"), DIMS)
def test_a_reshard_on_4096_devices_takes_no_time(a: Any, pa: Any, b: Any, pb: Any) -> None:
    """A few calls for each device, however many they are and whatever each has to do with the others."""
    mesh, shape = DeviceMesh((64, 64), ("x", "y")), (8192, 8192)
    src, dst = Layout(mesh, a, pa), Layout(mesh, b, pb)
    engine = AbstractEngine()

    def reshard() -> tuple[Plan, Any]:
        plan = plan_reshard(src, dst, shape, "float32")
        return plan, engine.run(program_of(plan), arrays_of(engine, src, shape, np.dtype("float32")))

    clear_caches()
    assert calls_of(reshard) < 16 * 4096
    plan, found = reshard()
    assert len(found) == storage_of(dst, shape).count
    assert found[0].shape == storage_of(dst, shape).shapes[0]
    assert set(engine.counters.bytes_moved) == {step.kind for step in plan.steps if not step.is_local}


def test_where_all_devices_are_alike_large_reductions_are_exact() -> None:
    mesh = DeviceMesh((64, 16), ("x", "y"))
    plan = plan_reshard(Layout(mesh, [("x",), ()], ["y"]), Layout(mesh, [("x",), ()]), (1024, 1024), "float32")
    engine = AbstractEngine()
    engine.run(program_of(plan), [])
    assert mesh.num_devices > abstract.EXACT
    # Every device of a group of 16 receives 15/16 of its shard twice: reduced, then gathered.
    assert engine.counters.bytes_moved == {"all_reduce": 2 * 1024 * (1024 * 1024 * 4 // 64) * 15 // 16}


def test_permutations_and_kernels() -> None:
    mesh, engine = DeviceMesh((4,), ("x",)), AbstractEngine()
    layout = Layout(mesh, [("x",)])
    program = permutation(storage_of(layout, (8,)), (3, 0, 1, None), (1, 1, 1, 0), INT)
    assert [a.shape for a in engine.run(program, arrays_of(engine, layout, (8,)))] == [(2,)] * 4
    assert engine.counters.bytes_moved == {"permute": 48}
    made = engine.apply(lambda a, b: a / b, [AbstractArray((2, 3), INT), 2], (2, 3))
    assert made == AbstractArray((2, 3), np.dtype("float64"))
    assert engine.counters.kernel_calls == 1
    assert engine.empty((2, 5), INT).nbytes == 80
    assert engine.counters.bytes_allocated == 16 + 80


def test_arrays_that_are_not_there_have_indices_all_the_same() -> None:
    storage = storage_of(Layout(DeviceMesh((4,), ("x",)), [("x",)]), (7,))
    arrays = AbstractEngine().each(storage, INT, lambda which, device: None)
    assert [a.shape for a in arrays] == [(2,), (2,), (2,), (1,)]
    assert (arrays[-1].shape, arrays[-4].shape, arrays.sample.shape, arrays.base) == ((1,), (2,), (2,), None)
    for index in (4, -5):
        with pytest.raises(IndexError):
            arrays[index]
    for cut, size, first in [(("x",), 9, (3,)), ((), 7, (7,))]:  # the first of several, which is larger, and the only
        some = storage_of(Layout(DeviceMesh((4,), ("x",)), [cut]), (size,))
        assert AbstractEngine().each(some, INT, lambda which, device: None).sample.shape == first


def test_memory_is_counted_from_when_arrays_are_made_to_when_they_go() -> None:
    layout, engine = Layout(DeviceMesh((4,), ("x",)), [("x",)]), AbstractEngine()
    one = engine.blank(layout, (7,), INT)
    other = engine.blank(layout, (100,), INT)
    assert (engine.live, engine.peak) == (216, 216)
    view = engine.each(other.storage, INT, lambda which, device: None, base=other)
    assert (engine.live, view.base) == (216, other)  # a view takes none
    del one
    gc.collect()
    assert (engine.live, engine.peak) == (200, 216)


def test_kernels_are_counted_for_each_array_and_asked_for_their_dtype() -> None:
    layout, engine = Layout(DeviceMesh((4,), ("x",)), [("x",)]), AbstractEngine()
    arrays = engine.blank(layout, (8,), INT)
    job = Job(arrays.storage, (arrays.storage, arrays.storage))
    assert engine.run_kernel(np.true_divide, [arrays, arrays], job).dtype == np.float64
    assert engine.run_kernel(np.true_divide, [arrays, arrays], job, np.dtype("int8")).dtype == np.int8
    assert engine.counters.kernel_calls == 8


def test_programs_are_compiled_up_to_a_number_of_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = DeviceMesh((4,), ("x",))
    for listed, copies in [(4, 4), (3, 0)]:
        monkeypatch.setattr(abstract, "LISTED", listed)
        plan = plan_reshard(Layout(mesh, [("x",)]), Layout(mesh, [()]), (9,), INT)
        engine = AbstractEngine()
        with trace_communication() as log:
            engine.run(program_of(plan), [])
        assert engine.counters.copies == copies
        assert [(r.kind, r.bytes, r.seconds) for r in log] == [("all_gather", 3 * 72, 0.0)]
        assert log.records[0].line.startswith(__file__)
        assert log.records[0].start > 0
    assert (AbstractEngine().live, AbstractEngine().peak) == (0, 0)


def test_where_axes_nest_bytes_are_exact_on_any_mesh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abstract, "EXACT", 0)
    mesh = DeviceMesh((4,), ("x",))
    for a, b in ((Layout(mesh, [()], ["x"]), Layout(mesh, [("x",)])), (Layout(mesh, [("x",)]), Layout(mesh, [()]))):
        (step,) = plan_reshard(a, b, (5,), INT).steps
        assert abstract._total(step) == step.received.total == int(step.received.each.sum()) == 3 * 5 * 8
    large, size = DeviceMesh((256, 256), ("x", "y")), 60_001  # fewer elements than devices
    (step,) = plan_reshard(Layout(large, [()], ["x", "y"]), Layout(large, [("x", "y")]), (size,), INT).steps
    assert abstract._total(step) == size * (2**16 - 1) * 8  # every contribution but one leaves its device


def test_where_axes_cross_reductions_are_exact_up_to_a_number_of_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = DeviceMesh((12,), ("x",))
    plan = plan_reshard(Layout(mesh, [()], ["x:(1)4"]), Layout(mesh, [("x:(1)6",)]), (7,), INT)
    step = plan.steps[0]
    assert step.moves[0].count_moved() is None
    exact = int(step.received.each.sum())
    for most, total in ((12, exact), (11, int(sum(step.estimates)) * 12)):
        monkeypatch.setattr(abstract, "EXACT", most)
        assert abstract._total(step) == total
    assert total != exact


def test_kernels_are_asked_about_arrays_of_one_element() -> None:
    seen: list[Any] = []

    def largest(array: Any, number: Any) -> Any:
        seen.append((array.shape, array.dtype, number))
        return np.max(array)  # of no element there is none

    made = AbstractEngine().apply(largest, [AbstractArray((2, 3), INT), 7], ())
    assert made == AbstractArray((), INT)
    assert seen == [((1, 1), INT, 7)]


def test_the_traffic_of_a_large_mesh_is_worked_out_once_per_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abstract, "LISTED", 3)
    mesh, asked = DeviceMesh((4,), ("x",)), list[Any]()
    real = abstract._total
    monkeypatch.setattr(abstract, "_total", lambda step: asked.append(step) or real(step))
    plan = plan_reshard(Layout(mesh, [("x",)]), Layout(mesh, [()]), (11,), INT)
    clear_caches()
    engine = AbstractEngine()
    for _ in range(3):
        engine.run(program_of(plan), [])
    assert asked == list(plan.steps)
    assert engine.counters.bytes_moved == {"all_gather": 3 * plan.received.total}


def test_what_is_listed_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    for count, copies in [(64, 64), (65, 0)]:
        mesh, engine = DeviceMesh((count,), ("x",)), AbstractEngine()
        plan = plan_reshard(Layout(mesh, [("x",)]), Layout(mesh, [()]), (count,), INT)
        engine.run(program_of(plan), [])
        assert (engine.counters.copies, engine.counters.total) == (copies, plan.received.total)
    for count, total in [(512, 1000), (513, 513 * 7)]:
        slots, received = SimpleNamespace(count=count), SimpleNamespace(total=1000)
        step: Any = SimpleNamespace(moves=[Movement()], slots=slots, received=received, estimates=(3.0, 4.5))
        assert abstract._total(step) == total
