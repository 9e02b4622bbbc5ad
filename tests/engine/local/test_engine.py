"""The local engine: every dtype and library, the same bits whatever the threads, memory used again."""

import gc
import os
from dataclasses import replace
from itertools import pairwise
from threading import Thread
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given

from shardwise import Cut, DeviceMesh, Layout, ReduceOp, all_reduce, plan_reshard, shard, trace_communication
from shardwise.engine.arrays import to_numpy
from shardwise.engine.counters import Counters
from shardwise.engine.execute import program_of
from shardwise.engine.grid import Grid
from shardwise.engine.job import Job
from shardwise.engine.local import engine as local
from shardwise.engine.local.engine import LocalEngine
from shardwise.engine.pool import Pool
from shardwise.engine.storage import storage_of
from shardwise.layout.placement import reductions_of
from shardwise.plan.record import StepNote
from tests.engine.cases import check, check_counters, check_values, run, spread, stored
from tests.engine.test_arrays import DTYPES, TORCH, torch_of
from tests.plan.cases import Transition, mesh_of, transitions

MESH = mesh_of(2, 4)
S0, S1, R = (Layout(MESH, dims) for dims in ([("x", "y"), ()], [(), ("x", "y")], [(), ()]))
SWAPPED = Layout(MESH, [("y",), ("x",)]), Layout(MESH, [("x",), ("y",)])
HALO = Layout(MESH, [Cut(("y",), halo=(1, 2), edge="clip"), Cut(("x",), halo=(1, 1), edge="pad")])
RESHARDS = [(S0, S1), (S0, R), (R, S1), SWAPPED, (S0, HALO), (HALO, S1)]


def partial(op: ReduceOp) -> Layout:
    return Layout(MESH, [(), ()], ["x", "y"], op)


# -- dtypes and libraries --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_reshards_are_exact_for_every_dtype(dtype: str) -> None:
    for src, dst in RESHARDS:
        for shape in ((16, 8), (9, 7), (3, 2)):
            if (src is HALO or dst is HALO) and shape == (3, 2):
                continue
            check(Transition(src, dst, shape), dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_reduction_of_every_dtype_is_numpys(dtype: str) -> None:
    for op in reductions_of(np.dtype(dtype)):
        if op is ReduceOp.AVG:
            continue
        for dst in (R, S0, S1):
            check(Transition(partial(op), dst, (9, 7)), dtype)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ml_dtypes.bfloat16, "complex64"], ids=str)
def test_an_average_is_the_sum_divided(dtype: str) -> None:
    src = partial(ReduceOp.AVG)
    arrays = spread(partial(ReduceOp.SUM), (6, 5), dtype).arrays
    total = arrays[0]
    for array in arrays[1:]:
        total = total + array
    for dst in (R, S1):
        case = Transition(src, dst, (6, 5))
        check_values(case, (total / np.dtype(dtype).type(8)).astype(dtype), run(LocalEngine(), case, arrays, dtype))


@pytest.mark.parametrize("name", TORCH)
def test_torch_tensors_stay_torch_tensors(name: str) -> None:
    dtype = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
    sums = [(partial(ReduceOp.SUM), dst) for dst in (R, S0)] if ReduceOp.SUM in reductions_of(dtype) else []
    for src, dst in [*RESHARDS, *sums]:
        case, engine = Transition(src, dst, (9, 8)), LocalEngine()
        given = spread(src, case.shape, dtype)
        found = run(engine, case, [torch_of(array) for array in given.arrays], dtype)
        assert all(isinstance(array, torch.Tensor) and array.dtype == getattr(torch, name) for array in found)
        check_values(case, given.value, found)
        check_counters(case, engine.counters, dtype)


@given(transitions(partial=True))
def test_torch_gives_what_numpy_gives(case: Transition) -> None:
    given = spread(case.src, case.shape)
    found = run(LocalEngine(), case, [torch.from_numpy(array) for array in given.arrays])
    for ours, theirs in zip(found, run(LocalEngine(), case, given.arrays), strict=True):
        assert np.array_equal(to_numpy(ours), theirs)


# -- threads ---------------------------------------------------------------------------------------------


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Share even small work between threads, in small pieces."""
    monkeypatch.setattr(local, "PARALLEL", 0)
    monkeypatch.setattr(local, "PIECE", 512)
    monkeypatch.setattr(local, "BLOCK", 512)
    monkeypatch.setattr(local, "WIDE", 0)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_shared_work_is_right_and_counted_once(threads: int) -> None:
    engine = LocalEngine(threads=threads)
    for src, dst in [*RESHARDS, (partial(ReduceOp.SUM), R), (partial(ReduceOp.SUM), S0), (partial(ReduceOp.MAX), S1)]:
        for shape in ((64, 40), (33, 31)):
            check(Transition(src, dst, shape), "float32", engine=engine)


@pytest.mark.usefixtures("eager")
def test_generated_reshards_are_right_when_shared() -> None:
    engine = LocalEngine(threads=3)

    @given(transitions(partial=True))
    def shared(case: Transition) -> None:
        check(case, engine=engine)

    shared()


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64", ml_dtypes.bfloat16], ids=str)
def test_the_bits_do_not_depend_on_the_threads_nor_on_the_run(dtype: str) -> None:
    rng, shape = np.random.default_rng(0), (67, 129)
    arrays = [rng.standard_normal(shape).astype(dtype) for _ in range(8)]
    for op in (ReduceOp.SUM, ReduceOp.PROD, ReduceOp.AVG):
        for dst in (R, S1):
            case = Transition(partial(op), dst, shape)
            bits = {
                b"".join(array.tobytes() for array in run(LocalEngine(threads=threads), case, arrays, dtype))
                for threads in (1, 2, 3, 2)
            }
            assert len(bits) == 1


@pytest.mark.usefixtures("eager")
def test_an_error_in_a_thread_is_raised_and_the_engine_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, case, real = LocalEngine(threads=2), Transition(S0, R, (64, 40)), local.join_into

    def broken(*args: Any) -> None:
        raise MemoryError("no more")

    monkeypatch.setattr(local, "join_into", broken)
    with pytest.raises(MemoryError, match="no more"):
        check(case, engine=engine)
    monkeypatch.setattr(local, "join_into", real)
    check(case, engine=engine)


def test_users_threads_may_share_an_engine() -> None:
    engine, case, wrong = LocalEngine(), Transition(S0, S1, (256, 256)), []

    def work(seed: int) -> None:
        given = spread(case.src, case.shape, "float32", seed)
        for _ in range(20):
            try:
                check_values(case, given.value, run(engine, case, given.arrays, "float32"))
            except AssertionError as error:
                wrong.append(error)

    threads = [Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# -- memory ----------------------------------------------------------------------------------------------


def test_a_repeated_reshard_takes_no_fresh_memory() -> None:
    engine, shape = LocalEngine(), (512, 512)
    arrays = spread(S0, shape, "float32").arrays
    held: Any = None
    for _ in range(2):
        held = run(engine, Transition(S0, S1, shape), arrays, "float32")
    engine.counters.reset()
    for _ in range(10):
        held = run(engine, Transition(S0, S1, shape), arrays, "float32")
    assert held is not None
    assert engine.counters.bytes_allocated == 0


def test_results_that_are_kept_are_never_overwritten() -> None:
    engine, shape = LocalEngine(Pool(limit=1 << 22)), (256, 256)
    kept = []
    for seed in range(24):
        given = spread(S0, shape, "float32", seed)
        found = run(engine, Transition(S0, S1, shape), given.arrays, "float32")
        if seed % 3:
            kept.append((given.value, [array[::2] for array in found]))
        assert engine.pool.unused_bytes <= engine.pool.limit
    for value, found in kept:
        assert all(np.array_equal(array, value[::2, 32 * i : 32 * i + 32]) for i, array in enumerate(found))


def test_peak_memory_is_what_is_alive_and_the_limit() -> None:
    engine, shape = LocalEngine(Pool(limit=8 << 20)), (512, 512)
    arrays = spread(S0, shape, "float32").arrays
    alive = [run(engine, Transition(S0, R, shape), arrays, "float32")[0] for _ in range(16)]
    assert engine.counters.bytes_allocated == 16 << 20
    del alive[:8]
    gc.collect()
    assert engine.pool.unused_bytes <= 8 << 20
    engine.pool.clear()
    assert engine.pool.unused_bytes == 0


def test_arrays_of_one_result_do_not_overlap() -> None:
    for shape in ((512, 512), (509, 503)):
        found = run(LocalEngine(), Transition(S0, S1, shape), spread(S0, shape, "float32").arrays, "float32")
        places = sorted((array.__array_interface__["data"][0], array.nbytes) for array in found)
        assert all(start + size <= after for (start, size), (after, _) in pairwise(places))
        assert all(start % 16 == 0 for start, _ in places)


# -- kernels ---------------------------------------------------------------------------------------------


def test_kernels_are_counted() -> None:
    engine = LocalEngine()
    assert engine.apply(np.add, [np.ones(2), np.ones(2)], (2,)).tolist() == [2, 2]
    assert engine.counters == Counters(kernel_calls=1)


def test_empty_arrays_are_of_the_library_that_is_asked_for() -> None:
    engine, dtype = LocalEngine(), np.dtype("float32")
    assert isinstance(engine.empty((2, 3), dtype), np.ndarray)
    made = engine.empty((2, 3), dtype, torch.zeros(1))
    assert (tuple(made.shape), made.dtype) == ((2, 3), torch.float32)
    assert engine.counters.bytes_allocated == 48


def test_a_plan_without_steps_returns_what_it_is_given() -> None:
    mesh = DeviceMesh((2,), ("x",))
    layout = Layout(mesh, [("x",)])
    arrays = spread(layout, (4,)).arrays
    found = LocalEngine().run(program_of(plan_reshard(layout, layout, (4,), "int64")), arrays)
    assert all(a is b for a, b in zip(found, arrays, strict=True))


@pytest.mark.parametrize("shape", [(), (3,), (0,), (2, 2)])
@pytest.mark.parametrize("op", ["avg", "max", "min"])
def test_equal_copies_are_terms_on_a_mesh_of_the_same_devices(shape: tuple[int, ...], op: str) -> None:
    one, other = DeviceMesh((2, 1, 2), ("a", "b", "c")), DeviceMesh((1, 2, 2), ("a", "b", "c"))
    whole = [None] * len(shape)
    x = shard(np.arange(np.prod(shape)).reshape(shape) + 0.5, one, Layout(one, whole))
    for axes in (["b"], ["c"], ["b", "c"]):
        y = shard(x, other, Layout(other, whole, axes, op))
        assert np.array_equal(y.numpy(), x.numpy())
        assert op != "avg" or all(np.array_equal(y.local(i), x.numpy()) for i in range(4))
        assert np.array_equal(all_reduce(y).numpy(), x.numpy())


# -- thresholds -------------------------------------------------------------------------------------------

LINE = DeviceMesh((4,), ("x",))
ROWS, COLUMNS, ALL = (Layout(LINE, dims) for dims in ([("x",), ()], [(), ("x",)], [(), ()]))


def test_an_engine_has_a_thread_per_core_but_at_most_eight(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, threads in [(3, 3), (64, 8), (None, 1)]:
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        assert LocalEngine().threads == threads
    assert LocalEngine(threads=5).threads == 5
    pool = Pool()
    assert LocalEngine(pool).pool is pool


def stage_of(src: Layout, dst: Layout, shape: tuple[int, ...], dtype: str = "float32") -> Any:
    (stage,) = program_of(plan_reshard(src, dst, shape, dtype)).stages
    return stage


def test_work_is_shared_above_the_threshold_by_several_threads_and_never_torchs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = stage_of(ROWS, COLUMNS, (16, 16))
    assert stage.size == 1024
    arrays = [np.zeros((4, 16), "float32")]
    for limit, touched, threads, shared in [(2047, 2, 2, True), (2048, 2, 2, False), (2047, 2, 1, False)]:
        monkeypatch.setattr(local, "PARALLEL", limit)
        assert LocalEngine(threads=threads)._is_shared(stage, arrays, touched) == shared
    monkeypatch.setattr(local, "PARALLEL", 0)
    assert not LocalEngine(threads=2)._is_shared(stage, [torch.zeros(4, 16)], 2)


def test_pieces_are_a_quarter_of_what_a_thread_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = stage_of(ROWS, COLUMNS, (16, 16))
    assert LocalEngine(threads=2)._piece(stage) == 128
    assert LocalEngine(threads=1000)._piece(stage) == 1
    monkeypatch.setattr(local, "PIECE", 100)
    assert LocalEngine(threads=2)._piece(stage) == 100


def test_what_threads_do_is_counted_once() -> None:
    for threads, parts in [(3, 10), (3, 2), (3, 1), (1, 4)]:
        engine, done = LocalEngine(threads=threads), []

        def verb(part: int, counters: Counters, *, done: list[int] = done) -> None:
            done.append(part)
            counters.copies += 1
            counters.kernel_calls += 2

        engine._share(verb, [(k,) for k in range(parts)], engine.counters)
        assert sorted(done) == list(range(parts))
        assert (engine.counters.copies, engine.counters.kernel_calls) == (parts, 2 * parts)


def test_verbs_count_what_they_do() -> None:
    engine, counters = LocalEngine(), Counters()
    out = np.zeros(4, "float32")
    engine.copy(out, [np.ones(1, "float32"), np.ones(3, "float32")], 0, (("a", 5), ("b", 6), ("a", 1)), counters)
    assert counters == Counters({"a": 6, "b": 6}, copies=2, bytes_copied=16)
    engine.reduce(out, [np.ones(4, "float32")] * 3, ReduceOp.SUM, (("b", 4),), counters)
    assert out.tolist() == [3.0] * 4
    assert counters == Counters({"a": 6, "b": 10}, copies=2, bytes_copied=16, kernel_calls=1)
    assert engine.counters == Counters()
    engine.empty((2, 3), np.dtype("float64"))
    engine.empty((2,), np.dtype("float64"), torch.zeros(1))
    assert engine.counters.bytes_allocated == 64


def test_a_copy_in_pieces_counts_what_moves_once() -> None:
    out, parts = np.zeros((4, 8), "uint8"), [np.ones((4, 5), "uint8"), np.full((4, 3), 2, "uint8")]
    found = list(local._copy_pieces(out, parts, 1, (("a", 9),), 8))
    assert [traffic for *_, traffic in found] == [(("a", 9),)] + [()] * (len(found) - 1)
    assert all(len(some) == 1 and dim == 0 and into.nbytes <= 8 for into, some, dim, _ in found)
    for into, (piece,), _, _ in found:
        into[...] = piece
    assert np.array_equal(out, np.concatenate(parts, 1))


def test_reductions_above_a_block_are_made_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    src = Layout(LINE, [(), ()], ["x"])
    arrays = [np.full((16, 16), float(k), "float32") for k in range(4)]
    for block, calls in [(1024, 1), (1023, 2), (512, 2), (256, 4)]:
        monkeypatch.setattr(local, "BLOCK", block)
        engine = LocalEngine(threads=1)
        (found,) = engine.run(program_of(plan_reshard(src, ALL, (16, 16), "float32")), arrays)
        assert (found == 6).all()
        assert engine.counters.kernel_calls == calls


def test_arrays_of_one_result_share_a_block_when_they_are_large() -> None:
    for shape, shared in [((256, 64), True), ((128, 64), False)]:
        stage = stage_of(Layout(LINE, [(), ("x",)]), Layout(LINE, [("x",), ()]), shape)
        made = LocalEngine()._several(stage, np.dtype("float32"), np.zeros(1), Counters())
        assert [array.shape for array in made] == [(shape[0] // 4, shape[1])] * 4
        assert all((array.base is made[0].base and array.base is not None) == shared for array in made)
    size, offsets = stage_of(ROWS, Layout(LINE, [(), ("x",)]), (5, 5), "int8").memory
    assert offsets == (0, 64, 128, 192)
    assert size == 64 * len(offsets)


@pytest.mark.parametrize(
    ("src", "dst"),
    [
        (ROWS, COLUMNS),
        (COLUMNS, ALL),
        (ALL, ROWS),
        (COLUMNS, Layout(LINE, [Cut(("x",), halo=(1, 1), edge="clip"), ()])),
        (Layout(MESH, ["x", None]), Layout(MESH, [None, "x"])),
        (Layout(MESH, ["x", "y"]), Layout(MESH, [None, "y"])),
    ],
    ids=["all-to-all", "gather", "slice", "halo", "all-to-all of two", "gather of two"],
)
@pytest.mark.parametrize("shape", [(16, 16), (7, 3)])
def test_small_arrays_are_joined_to_the_same_values_and_counted_alike(
    src: Layout, dst: Layout, shape: tuple[int, int]
) -> None:
    program, engines = program_of(plan_reshard(src, dst, shape, "float32")), (LocalEngine(), LocalEngine())
    arrays = stored(src, shape, spread(src, shape, "float32").arrays)
    (stage,) = program.stages
    assert stage.is_joined
    small, plain = (
        engine._by_parts(replace(stage, is_small=flag), arrays, program.dtype, engine.counters)
        for engine, flag in zip(engines, (True, False), strict=True)
    )
    for one, other in zip(small, plain, strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)
    ours, theirs = (engine.counters for engine in engines)
    assert ours.bytes_moved == theirs.bytes_moved == dict((*stage.traffic, *stage.view_traffic))
    assert (ours.copies, ours.bytes_copied) == (theirs.copies, theirs.bytes_copied)
    assert ours.bytes_allocated == ours.bytes_copied == stage.size
    # What is copied is no view of what it is copied from.
    fresh = [small[i] for i in stage.fresh]
    assert not any(np.shares_memory(array, given) for array in fresh for given in arrays)


def test_a_lone_array_is_taken_as_it_is_and_torchs_each_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, asked = LocalEngine(), list[Any]()
    real = engine.empty

    def empty(shape: Any, dtype: np.dtype, like: Any, counters: Counters) -> Any:
        asked.append((tuple(shape), dtype))
        return real(shape, dtype, like, counters)

    monkeypatch.setattr(engine, "empty", empty)
    single, four = np.dtype("float32"), stage_of(COLUMNS, ROWS, (256, 64))
    engine._several(stage_of(ROWS, ALL, (256, 64)), single, np.zeros(1), engine.counters)
    engine._several(four, single, torch.zeros(1), engine.counters)
    engine._several(four, single, np.zeros(1), engine.counters)
    assert asked == [((256, 64), single), *[((64, 64), single)] * 4, ((256 * 64 * 4,), np.dtype("uint8"))]


@pytest.mark.parametrize("library", [np.asarray, torch.as_tensor])
def test_scalars_that_kernels_make_become_arrays(library: Any) -> None:
    mesh = DeviceMesh((2,), ("x",))
    vector, scalar = storage_of(Layout(mesh, ["x"]), (4,)), storage_of(Layout(mesh, [], ["x"]), ())
    arrays = [library(np.array([1.0, 2.0])), library(np.array([3.0, 4.0]))]

    def kernel(*given: Any) -> Any:
        return sum(array.sum() for array in given if not isinstance(array, tuple))

    for operands in (1, 2, 3):
        for located in ((), (0,)):
            made = LocalEngine().run_kernel(kernel, [arrays] * operands, Job(scalar, (vector,) * operands, located))
            assert [type(array) for array in made] == [type(arrays[0])] * 2
            assert [float(array) for array in made] == [3.0 * operands, 7.0 * operands]
    whole = LocalEngine().run_kernel(lambda array: array + 1, [arrays], Job(vector, (vector,)))
    assert [array.tolist() for array in whole] == [[2.0, 3.0], [4.0, 5.0]]


def test_copies_and_reductions_above_the_threshold_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "BLOCK", 256)
    whole, partial_sum = np.arange(256, dtype="float32").reshape(16, 16), Layout(LINE, [(), ()], ["x"])
    for src, dst, touched in [(ROWS, COLUMNS, 2), (COLUMNS, ALL, 2), (partial_sum, ALL, 5), (partial_sum, ROWS, 5)]:
        arrays = [whole] * 4 if src.partial else np.split(whole, 4, 0 if src is ROWS else 1)
        for limit, threads, shared in [(0, 1, 0), (-1, 2, 1), (0, 2, 0)]:
            engine, calls = LocalEngine(threads=threads), list[Any]()
            real = engine._share
            monkeypatch.setattr(local, "PARALLEL", 1024 * touched + limit)
            monkeypatch.setattr(engine, "_share", lambda *work, real=real, calls=calls: calls.append(1) or real(*work))
            made = engine.run(program_of(plan_reshard(src, dst, (16, 16), "float32")), arrays)
            assert len(calls) == shared
            value = whole * 4 if src.partial else whole
            found = made[0] if dst is ALL else np.concatenate(list(made), 0 if dst is ROWS else 1)
            assert np.array_equal(found, value)


@pytest.mark.parametrize(("limit", "threads", "shared"), [(2048, 2, 0), (2047, 2, 1), (2047, 1, 0)])
def test_one_copy_of_a_grid_above_the_threshold_is_shared(
    monkeypatch: pytest.MonkeyPatch, limit: int, threads: int, shared: int
) -> None:
    whole = np.arange(256, dtype="float32").reshape(4, 1, 4, 16)
    engine, calls = LocalEngine(threads=threads), list[Any]()
    real = engine._share
    monkeypatch.setattr(local, "PARALLEL", limit)
    monkeypatch.setattr(engine, "_share", lambda *work: calls.append(1) or real(*work))
    made = engine.run(program_of(plan_reshard(ROWS, COLUMNS, (16, 16), "float32")), Grid(whole))
    assert isinstance(made, Grid)
    assert np.array_equal(np.concatenate(list(made), 1), whole.reshape(16, 16))
    assert len(calls) == shared


def test_steps_are_logged_with_what_they_alone_bring(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, times = LocalEngine(), iter([10.0, 12.5])
    notes = tuple(StepNote(kind, ("x",), "a", "b", 3) for kind in ("one", "two", "none"))
    stage = replace(stage_of(ROWS, COLUMNS, (16, 16)), steps=notes)

    def moves(stage: Any, arrays: Any, dtype: Any, counters: Counters) -> Any:
        engine.counters.count_moved("one", 50)  # meanwhile, by another thread or a finalizer
        counters.count_moved("one", 7)
        counters.count_moved("two", 9)
        return arrays

    monkeypatch.setattr(local, "perf_counter", lambda: next(times))
    monkeypatch.setattr(engine, "_run", moves)
    engine.counters.count_moved("two", 100)
    with trace_communication() as outer, trace_communication() as log:
        engine._run_logged(stage, [], np.dtype("float32"), engine.counters.own)
    assert engine.counters.bytes_moved == {"one": 57, "two": 109}
    assert outer.records == log.records
    assert [(r.kind, r.busiest, r.bytes, r.seconds, r.start, r.rank) for r in log] == [
        ("one", 3, 7, 2.5, 10.0, 0),  # steps that are run as one take their time together
        ("two", 3, 9, 0.0, 12.5, 0),
        ("none", 3, 0, 0.0, 12.5, 0),
    ]
