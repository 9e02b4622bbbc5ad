"""The engine between processes, with threads for processes: values, bytes, and what it refuses."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from shardwise import (
    CPU,
    Accelerator,
    Cut,
    DeviceMesh,
    EngineError,
    Layout,
    Link,
    MeshError,
    Plan,
    ReduceOp,
    plan_reshard,
    trace_communication,
)
from shardwise.engine.arrays import to_numpy
from shardwise.engine.counters import Counters
from shardwise.engine.execute import permutation, program_of
from shardwise.engine.job import RESULT, Job
from shardwise.engine.process import engine as distributed
from shardwise.engine.process.engine import _own_arrays, _own_calls
from shardwise.engine.routes.route import Leg, Out
from shardwise.engine.routes.route_builder import route_of
from shardwise.engine.storage import storage_of
from shardwise.plan.record import StepNote
from tests.engine.cases import check_values, claimed, spread
from tests.engine.world import engines, held, together
from tests.plan.cases import Transition, all_transitions, mesh_of

INT = np.dtype("int64")


def run(some: list[Any], plan: Plan, arrays: list[Any]) -> list[Any]:
    """What each device of the target holds after a plan that all engines run."""
    program = program_of(plan)
    routes = {engine.rank: route_of(program, engine.rank) for engine in some}  # made one after the other
    assert len(routes) == len(some)
    found = together(some, lambda engine: engine.run(program, held(engine, plan.src, plan.shape, arrays)))
    storage = storage_of(plan.dst, plan.shape)
    out: list[Any] = []
    for at in range(plan.dst.mesh.num_devices):
        out.append(found[plan.dst.mesh.device(at).id][storage.index(at)])
    for made in found:
        assert len(made) == storage.count
    return out


def check(case: Transition, size: int, dtype: Any = "int64", *, theirs: bool = False, **how: Any) -> list[Any]:
    some = engines(size)
    gathers = how.pop("library_gathers", None)
    for engine in some:
        engine.library_gathers = gathers
    plan = plan_reshard(*case, dtype, **how)
    given = spread(case.src, case.shape, dtype)
    before = [array.tobytes() for array in given.arrays]
    arrays = [torch.from_numpy(a.copy()) for a in given.arrays] if theirs else given.arrays
    if not plan.steps:
        return some
    found = run(some, plan, arrays)
    assert all(isinstance(array, torch.Tensor) for array in found) == theirs
    check_values(case, given.value, found)
    assert before == [array.tobytes() for array in given.arrays]
    moved: dict[str, int] = {}
    for engine in some:
        for kind, count in engine.counters.bytes_moved.items():
            moved[kind] = moved.get(kind, 0) + count
        assert engine.counters.bytes_sent == sum(count for _, count in engine.wire.sent)
    assert {kind: count for kind, count in moved.items() if count} == claimed(plan)
    return some


@pytest.mark.parametrize(("partial", "every"), [(False, 7), (True, 13)])
def test_reshards_of_a_grid_are_those_of_the_plan(partial: bool, every: int) -> None:
    for case in list(all_transitions(mesh_of(2, 3), (5, 4), partial))[::every]:
        check(case, 6)


MESH = mesh_of(4)
SPLIT, TURNED, WHOLE = Layout(MESH, ["x", None]), Layout(MESH, [None, "x"]), Layout(MESH, [None, None])
PENDING = Layout(MESH, [None, None], ["x"])
NAMED = {
    "gather": (SPLIT, WHOLE),
    "exchange": (SPLIT, TURNED),
    "scatter": (PENDING, SPLIT),
    "reduce": (PENDING, WHOLE),
    "halo": (SPLIT, Layout(MESH, [Cut("x", halo=(1, 1)), None])),
    "uneven": (SPLIT, Layout(MESH, [Cut("x", offsets=(0, 0, 5, 5, 8)), None])),
    "fill": (SPLIT, PENDING),
    "other": (SPLIT, Layout(mesh_of(2, 2), ["y", "x"])),
    "fewer": (SPLIT, Layout(DeviceMesh((2,), ("z",), [CPU(3), CPU(1)]), ["z", None])),
    "more": (Layout(DeviceMesh((2,), ("z",), [CPU(3), CPU(1)]), ["z", None]), SPLIT),
}


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("theirs", [False, True])
def test_arrays_of_both_libraries(name: str, theirs: bool) -> None:
    check(Transition(*NAMED[name], (8, 6)), 4, "float32", theirs=theirs)


@pytest.mark.parametrize("name", NAMED)
def test_in_chunks_that_fit_a_limit(name: str) -> None:
    plan = plan_reshard(*NAMED[name], (8, 6), "int64")
    staged = max((step.staging_bytes for step in plan.steps), default=0)
    if staged:
        least = max(step.least_staging for step in plan.steps)
        check(Transition(*NAMED[name], (8, 6)), 4, memory_limit=max(staged // 2, least))


@pytest.mark.parametrize("dtype", ["int8", "bool", "complex64", ml_dtypes.bfloat16], ids=str)
def test_bytes_are_bytes_of_any_dtype(dtype: Any) -> None:
    for name in ("gather", "exchange", "uneven"):
        check(Transition(*NAMED[name], (8, 6)), 4, dtype)


@pytest.mark.parametrize(
    ("name", "gathers", "verbs"),
    [
        ("gather", None, ["send"]),  # which gloo does faster than a call of its own
        ("gather", True, ["gather"]),
        ("gather", False, ["send"]),
        ("exchange", None, ["exchange"]),
        ("scatter", True, ["send"]),
        ("reduce", True, ["send", "gather"]),
        ("halo", True, ["send"]),
    ],
)
def test_which_call_of_the_library_is_used(name: str, gathers: bool | None, verbs: list[str]) -> None:
    for engine in check(Transition(*NAMED[name], (8, 8)), 4, library_gathers=gathers):
        assert [verb for verb, _ in engine.wire.calls] == verbs


def test_what_lies_side_by_side_is_sent_and_received_in_place() -> None:
    for engine in check(Transition(SPLIT, WHOLE, (8, 6)), 4):
        assert engine.counters.copies == 1  # its own rows
    for engine in check(Transition(TURNED, WHOLE, (8, 8)), 4):
        assert engine.counters.copies == 1 + 3  # and the columns of the others
    for engine in check(Transition(SPLIT, WHOLE, (8, 6)), 4, library_gathers=True):
        assert engine.counters.copies == 1 + 1 + 3  # packed once, unpacked


@pytest.mark.parametrize("slots", [[0, 0, 1, 1], [0, 1, 0, 1], [1, 1, 1, 1]])
def test_processes_with_several_devices(slots: list[int]) -> None:
    mesh = DeviceMesh((2, 2), ("x", "y"), [CPU(i) for i in slots])
    for case in list(all_transitions(mesh, (4, 6), True))[::11]:
        for engine in check(case, 2):
            assert len(set(slots)) == 2 or not engine.wire.sent  # one process has nobody to send to


def test_reductions_are_done_in_blocks_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "BLOCK", 64)
    (engine,) = engines(1)
    rng = np.random.default_rng(0)
    terms = [rng.standard_normal((7, 5)).astype("float32") for _ in range(4)]
    want = ((terms[0] + terms[1]) + terms[2]) + terms[3]
    out = np.empty((7, 5), "float32")
    engine.reduce(out, terms, ReduceOp.SUM, engine.counters)
    assert out.tobytes() == want.tobytes()
    assert engine.counters.kernel_calls == 1
    pushed = torch.empty((7, 5))
    engine.reduce(pushed, [torch.from_numpy(t) for t in terms], ReduceOp.MAX, engine.counters)
    assert np.array_equal(pushed.numpy(), np.maximum.reduce(terms))


# -- devices -------------------------------------------------------------------------------------------


def test_the_device_with_number_r_belongs_to_rank_r() -> None:
    some = engines(3)
    assert [engine.addressable(mesh_of(3)) for engine in some] == [(0,), (1,), (2,)]
    mesh = DeviceMesh((4,), ("x",), [CPU(i) for i in (2, 0, 2, 0)])
    assert [engine.addressable(mesh) for engine in some] == [(1, 3), (), (0, 2)]
    assert some[1].addressable(mesh) is some[1].addressable(mesh)
    assert repr(some[1]) == "DistributedEngine(rank 1 of 3)"
    assert some[1].name == "torch"


def test_a_mesh_with_more_devices_than_processes_is_refused() -> None:
    (engine, _) = engines(2)
    with pytest.raises(MeshError) as caught:
        engine.addressable(mesh_of(3))
    assert str(caught.value) == (
        "DeviceMesh(x=3) has CPU(2), but there are 2 processes, ranks 0 to 1, and the device with number r belongs to "
        "rank r.\n  start as many processes as the mesh has devices."
    )


def test_an_accelerator_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    (_, engine) = engines(2)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    for count, local, found in ((0, None, 0), (0, "3", 3), (2, "2", 2)):
        monkeypatch.setattr(torch.cuda, "device_count", lambda count=count: count)
        if local is not None:
            monkeypatch.setenv("LOCAL_RANK", local)
        with pytest.raises(EngineError) as caught:
            engine.accelerator(Accelerator(1))
        assert str(caught.value) == (
            f"Accelerator(1) is not there: rank 1 would use CUDA device {found} of its host, which has {count}.\n"
            "  start one process per accelerator, or use CPU()."
        )
    monkeypatch.delenv("LOCAL_RANK")
    for count, index in ((1, 0), (2, 1), (8, 1)):  # counted from 0 on every host
        monkeypatch.setattr(torch.cuda, "device_count", lambda count=count: count)
        assert engine.accelerator(Accelerator(1)) == torch.device("cuda", index)
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert engine.accelerator(Accelerator(1)) == torch.device("cuda", 3)


def test_arrays_on_the_host_are_passed_through() -> None:
    (engine,) = engines(1)
    array, theirs = np.ones(3), torch.ones(3)
    assert engine.place(array, CPU(0)) is array
    assert engine.place(theirs, CPU(0)) is theirs


def test_memory_comes_from_the_pool_and_is_counted_once() -> None:
    (engine,) = engines(1)
    size = 1 << 20
    first = engine.empty((size,), np.dtype("int8"))
    assert isinstance(first, np.ndarray)
    allocated = engine.counters.bytes_allocated
    assert allocated >= size
    del first
    again = engine.empty((size // 8,), np.dtype("float64"), torch.ones(1))
    assert isinstance(again, torch.Tensor)
    assert again.dtype == torch.float64
    assert engine.counters.bytes_allocated == allocated  # the same memory


def test_copies_between_libraries_are_counted() -> None:
    (engine,) = engines(1)
    ours, theirs = np.arange(4.0), torch.zeros(4, dtype=torch.float64)
    engine.copy(theirs, ours, engine.counters)
    back = np.zeros(4)
    engine.copy(back, theirs, engine.counters)
    assert back.tolist() == [0, 1, 2, 3]
    assert (engine.counters.copies, engine.counters.bytes_copied) == (2, 64)


# -- work ----------------------------------------------------------------------------------------------


def test_each_process_works_on_what_it_holds() -> None:
    mesh, some = mesh_of(2, 2), engines(4)
    row, column = Layout(mesh, ["x"]), Layout(mesh, ["y"])
    out = Layout(mesh, ["x", "y"])
    a, b = spread(row, (4,)), spread(column, (6,), seed=1)
    job = Job(storage_of(out, (4, 6)), (storage_of(row, (4,)), storage_of(column, (6,))), (RESULT,))
    told = {}

    def kernel(box: Any, x: Any, y: Any) -> Any:
        return np.multiply.outer(x, y)

    for engine in some:
        given = [held(engine, row, (4,), a.arrays), held(engine, column, (6,), b.arrays)]
        made = engine.run_kernel(
            lambda box, x, y, e=engine: told.setdefault(e.rank, box) and kernel(box, x, y), given, job
        )
        at = storage_of(out, (4, 6)).index(engine.rank)
        assert list(made.arrays) == [at]
        box = storage_of(out, (4, 6)).box(at)
        want = np.multiply.outer(a.value, b.value)[tuple(slice(*span) for span in box)]
        assert np.array_equal(made[at], want)
        assert told[engine.rank] == box
        assert engine.counters.kernel_calls == 1


def test_who_holds_nothing_asks_for_the_dtype() -> None:
    (_, _, last) = engines(3)
    mesh = mesh_of(2)
    layout = Layout(mesh, ["x"])
    storage, given = storage_of(layout, (4,)), spread(layout, (4,), "int8")
    job = Job(storage, (storage,))
    for like, halved in ((given.arrays, "float64"), ([torch.from_numpy(a) for a in given.arrays], "float32")):
        nothing = held(last, layout, (4,), like)
        made = last.run_kernel(lambda x: x / 2, [nothing], job)
        assert not made.arrays
        assert str(to_numpy(made.sample).dtype) == halved
        unasked = last.run_kernel(lambda x: pytest.fail("asked"), [nothing], job, np.dtype("int16"))
        assert to_numpy(unasked.sample).dtype == np.int16
    total = Job(storage_of(Layout(mesh, []), ()), (storage,))
    assert last.run_kernel(lambda x: x.sum(), [held(last, layout, (4,), given.arrays)], total).sample.shape == ()


def test_scalars_become_arrays() -> None:
    (engine, _) = engines(2)
    layout, total = Layout(mesh_of(2), ["x"]), Layout(mesh_of(2), [], ["x"])
    job = Job(storage_of(total, ()), (storage_of(layout, (4,)),))
    made = engine.run_kernel(lambda x: x.sum(), [held(engine, layout, (4,), spread(layout, (4,)).arrays)], job)
    assert isinstance(made[0], np.ndarray)


def test_each_makes_the_arrays_that_are_here() -> None:
    mesh = DeviceMesh((4,), ("x",), [CPU(i) for i in (1, 0, 1, 2)])
    some, storage = engines(4), storage_of(Layout(mesh, ["x"]), (8,))
    made = [engine.each(storage, INT, lambda i, device: np.full(2, 10 * i + device)) for engine in some]
    assert [sorted(m.arrays) for m in made] == [[1], [0, 2], [3], []]
    assert made[1][2].tolist() == [22, 22]
    replicated = some[1].each(storage_of(Layout(mesh, [None]), (8,)), INT, lambda i, device: np.full(8, device))
    assert replicated[0].tolist() == [0] * 8  # for the first of its devices
    base = [torch.ones(2, dtype=torch.int64)]
    assert isinstance(some[3].each(storage, INT, lambda i, d: None, base).sample, torch.Tensor)
    assert isinstance(some[3].each(storage, INT, lambda i, d: None, base, np.ones(1)).sample, np.ndarray)
    assert some[0].apply(np.add, [np.ones(2), np.ones(2)], (2,)).tolist() == [2, 2]
    assert some[0].counters.kernel_calls == 1


def test_what_is_here_is_worked_out_once_for_each_engine() -> None:
    mesh = DeviceMesh((4,), ("x",), [CPU(i) for i in (1, 0, 1, 2)])
    storage, (zero, one, *_) = storage_of(Layout(mesh, ["x"]), (12,)), engines(3)
    job = Job(storage, (storage,))
    first, second = zero.addressable(mesh), one.addressable(mesh)
    assert _own_arrays(storage, second) is _own_arrays(storage, second)
    assert _own_arrays(storage, second) == [(0, 0), (2, 2)]
    assert _own_calls(job, 1, 3) is _own_calls(job, 1, 3)
    assert _own_calls(job, 1, 3) == [(0, (0,), ()), (2, (2,), ())]
    assert _own_arrays(storage, first) == [(1, 1)]
    assert _own_calls(job, 0, 3) == [(1, (1,), ())]
    assert one.addressable(mesh) is one.addressable(mesh)
    assert (zero.addressable(mesh), one.addressable(mesh)) == ((1,), (0, 2))


def test_arrays_are_checked_where_accelerators_may_not_have_brought_them_yet() -> None:
    (engine,), checked = engines(1), list[int]()
    storage = storage_of(Layout(mesh_of(1), ["x"]), (2,))
    engine.wire.check = checked.append
    assert engine.each(storage, INT, lambda i, device: np.ones(2)).check is None
    engine.wire.groups.on_accelerators, engine.wire.sequence = True, 7
    made = engine.each(storage, INT, lambda i, device: np.ones(2))
    engine.wire.sequence = 9
    assert made[0].tolist() == [1, 1]
    assert checked == [7]  # the last call before it was made


# -- permutations, logs, guards ------------------------------------------------------------------------


@pytest.mark.parametrize("sources", [(1, 2, 3, 0), (0, 1, 2, 3), (None, 0, None, 0), (3, 3, 3, 3)])
def test_whole_arrays_change_hands(sources: tuple[int | None, ...]) -> None:
    some, storage = engines(4), storage_of(Layout(MESH, ["x"]), (8,))
    given = spread(storage.layout, (8,))
    times = tuple(int(s is not None and s != t) for t, s in enumerate(sources))
    program = permutation(storage, sources, times, INT, sources)
    for engine in some:
        route_of(program, engine.rank)
    made = together(some, lambda engine: engine.run(program, held(engine, storage.layout, (8,), given.arrays)))
    for rank, source in enumerate(sources):
        want = np.zeros(2, INT) if source is None else given.arrays[source]
        assert np.array_equal(made[rank][rank], want)
    sent = sum(s is not None and s != t for t, s in enumerate(sources))
    assert sum(engine.counters.bytes_sent for engine in some) == sent * 16
    assert sum(engine.counters.total for engine in some) == sent * 16


def test_steps_are_logged_with_their_rank_and_their_bytes() -> None:
    some = engines(4)
    plan = plan_reshard(PENDING, Layout(mesh_of(4), [None, None]), (8, 6), "int64")
    given = spread(PENDING, (8, 6))
    logs = {}

    def logged(engine: Any) -> Any:
        with trace_communication() as log:
            out = engine.run(program_of(plan), held(engine, PENDING, (8, 6), given.arrays))
        logs[engine.rank] = log.records
        return out

    together(some, logged)
    for rank, records in logs.items():
        assert [record.kind for record in records] == [step.kind for step in plan.steps]
        assert {record.rank for record in records} == {rank}
        assert sum(record.bytes for record in records) == some[rank].counters.total > 0
        assert all(record.seconds >= 0 for record in records)
        assert [r.start for r in records] == sorted(r.start for r in records)


def test_steps_are_logged_with_what_they_alone_bring(monkeypatch: pytest.MonkeyPatch) -> None:
    (engine, *_), whole, split = engines(2), Layout(mesh_of(2), [None]), Layout(mesh_of(2), ["x"])
    plan = plan_reshard(whole, split, (4,), INT)
    given = held(engine, whole, (4,), [np.arange(4)] * 2)
    with trace_communication() as log:
        engine.run(program_of(plan), given)  # nothing is sent
        engine.counters.count_moved("slice", 5)
        engine.run(program_of(plan), given)
    assert [(record.kind, record.bytes, record.rank) for record in log] == [("slice", 0, 0)] * 2

    def moves(leg: Any, arrays: Any, dtypes: Any, like: Any, counters: Counters) -> Any:
        engine.counters.count_moved("one", 50)  # meanwhile, by another thread or a finalizer
        counters.count_moved("one", 7)
        counters.count_moved("two", 9)
        return arrays

    times = iter([10.0, 12.5])
    monkeypatch.setattr(distributed, "perf_counter", lambda: next(times))
    monkeypatch.setattr(engine, "_run", moves)
    engine.counters.reset()
    engine.counters.count_moved("two", 100)
    notes = tuple(StepNote(kind, ("x",), "a", "b", 3) for kind in ("one", "two", "none"))
    leg = Leg(notes, (), (), (), (), (), None, None)
    with trace_communication() as log:
        engine._run_logged(leg, {}, (INT, INT, INT), np.zeros(1), engine.counters.own)
    assert engine.counters.bytes_moved == {"one": 57, "two": 109}
    assert [(r.kind, r.busiest, r.bytes, r.seconds, r.start) for r in log] == [
        ("one", 3, 7, 2.5, 10.0),  # steps that are run as one take their time together
        ("two", 3, 9, 0.0, 12.5),
        ("none", 3, 0, 0.0, 12.5),
    ]


class Guard:
    def __init__(self) -> None:
        self.errors: list[BaseException] = []

    def give_up(self, error: BaseException) -> None:
        self.errors.append(error)


@pytest.mark.parametrize(
    ("error", "name", "told"),
    [(MemoryError(), "exchange", True), (EngineError("ours."), "exchange", False), (MemoryError(), "local", False)],
)
def test_others_are_told_of_an_error_that_is_not_ours(error: Exception, name: str, told: bool) -> None:
    (engine, *_) = engines(4)
    guard = engine.wire.guard = Guard()
    src, dst = NAMED[name] if name != "local" else (WHOLE, SPLIT)
    plan = plan_reshard(src, dst, (8, 6), "int64")

    def fail(*_: Any) -> Any:
        raise error

    engine._run = fail
    given = held(engine, src, (8, 6), spread(src, (8, 6)).arrays)
    with pytest.raises(type(error)):
        engine.run(program_of(plan), given)
    assert guard.errors == ([error] if told else [])


def test_the_target_must_be_of_this_world() -> None:
    (engine, _) = engines(2)
    src, dst = Layout(mesh_of(2), ["x"]), Layout(mesh_of(3), ["x"])
    with pytest.raises(MeshError, match="there are 2 processes"):
        engine.run(program_of(plan_reshard(src, dst, (6,), INT)), held(engine, src, (6,), spread(src, (6,)).arrays))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_hops_carry_sums_that_are_not_rounded_yet(dtype: str) -> None:
    mesh, kind = mesh_of(2, 2), np.dtype(dtype)
    links = {"x": Link(0, 1e6), "y": Link(0, 1e12)}
    src, dst = Layout(mesh, [None], ["x", "y"]), Layout(mesh, [None])
    plan = plan_reshard(src, dst, (64,), kind, links=links)
    assert len(plan.steps) > 1
    parts = [np.full(64, value).astype(kind) for value in (1.0, 0.001, 0.001, 0.001)]
    some = engines(4)
    want = np.stack(parts).astype("float64").sum(0).astype(kind)
    for array in run(some, plan, parts):
        assert array.dtype == kind
        assert array.tobytes() == want.tobytes()
    moved: dict[str, int] = {}
    for engine in some:
        assert engine.counters.bytes_sent == sum(count for _, count in engine.wire.sent)
        for name, count in engine.counters.bytes_moved.items():
            moved[name] = moved.get(name, 0) + count
    assert moved == claimed(plan)


class Cuda:
    """What stands in for a tensor on an accelerator."""

    is_cuda = True

    def new_empty(self, shape: Any, *, dtype: Any = torch.uint8, device: str = "cuda") -> Any:
        return torch.empty(shape, dtype=dtype) if device == "cpu" else ("cuda", shape, dtype)


Cuda.__module__ = "torch"  # by which tensors are known


def test_fresh_arrays_are_in_the_memory_of_their_device(monkeypatch: pytest.MonkeyPatch) -> None:
    (engine,) = engines(1)
    monkeypatch.setattr(engine, "accelerator", lambda device: torch.device("cpu"))
    dtype = np.dtype("float32")
    there, here = Out(0, Accelerator(0), (2, 3), False), Out(0, CPU(0), (2, 3), False)
    for like in (np.ones(1), torch.ones(1)):
        made = engine._fresh(there, dtype, like, engine.counters)  # where nothing is there yet
        assert isinstance(made, torch.Tensor)
        assert (tuple(made.shape), made.dtype) == ((2, 3), torch.float32)
    assert engine.counters.bytes_allocated == 48
    assert engine._fresh(there, dtype, Cuda(), engine.counters) == ("cuda", (2, 3), torch.float32)
    assert engine.counters.bytes_allocated == 72
    assert isinstance(engine._fresh(here, dtype, Cuda(), engine.counters), torch.Tensor)
    assert isinstance(engine._fresh(here, dtype, torch.ones(1), engine.counters), torch.Tensor)
    assert isinstance(engine._fresh(here, dtype, np.ones(1), engine.counters), np.ndarray)
    assert engine.counters.bytes_allocated == 144


def test_arrays_go_to_the_accelerator_of_their_process(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engines(4)[3]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert engine.accelerator(Accelerator(3)) == torch.device("cuda", 1)
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert engine.accelerator(Accelerator(3)) == torch.device("cuda", 0)
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(EngineError, match=r"rank 3 would use CUDA device 2 of its host, which has 2"):
        engine.accelerator(Accelerator(3))
    monkeypatch.setattr(engine, "accelerator", lambda device: torch.device("meta"))
    for array in (np.ones(2), torch.ones(2)):
        assert engine.place(array, Accelerator(3)).device.type == "meta"
        assert engine.place(array, CPU(3)) is array
