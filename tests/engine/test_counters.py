"""Counters add up, whichever threads count."""

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from random import Random
from threading import Barrier, Thread
from typing import Any

import numpy as np
import pytest

from shardwise import AbstractEngine, LocalEngine, ReduceOp, plan_reshard, trace_communication
from shardwise.engine.counters import Counters, SharedCounters
from shardwise.engine.execute import program_of
from shardwise.engine.local import engine as local
from shardwise.engine.local.strict import StrictEngine
from tests.engine.cases import claimed, spread, stored
from tests.plan.cases import Transition, mesh_of, seeded_layout

KINDS = (Counters, SharedCounters)


def count(out: Counters, times: int) -> Counters:
    for _ in range(times):
        out.count_moved("all_gather", 8)
        out.count_moved("permute", 1)
        out.bytes_sent += 4
        out.copies += 1
        out.bytes_copied += 16
        out.kernel_calls += 2
        out.bytes_allocated += 32
    return out


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_are_counted_apart_and_in_all(kind: type[Counters]) -> None:
    assert count(kind(), 2).bytes_moved == {"all_gather": 16, "permute": 2}
    assert count(kind(), 2).total == 18


@pytest.mark.parametrize("kind", KINDS)
def test_what_others_counted_is_added_and_taken_away(kind: type[Counters]) -> None:
    both = count(kind(), 2)
    both.add(count(kind(), 3))
    assert both == count(kind(), 5)
    both.add(count(kind(), 3), -1)
    assert both == count(kind(), 2)


@pytest.mark.parametrize("kind", KINDS)
def test_reset_starts_from_zero(kind: type[Counters]) -> None:
    some = count(kind(), 4)
    some.reset()
    assert some == kind()
    assert some.total == 0
    assert some.bytes_moved == {}
    assert count(some, 1) == count(kind(), 1)
    some.reset()
    assert some == kind()


# -- threads ----------------------------------------------------------------------------------------------


@pytest.fixture
def switching() -> Iterator[None]:
    """Threads change places as often as they can."""
    seconds = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(seconds)


def in_threads(*work: Callable[[], Any]) -> None:
    """Do several things at once."""
    start, errors = Barrier(len(work)), []

    def run(one: Callable[[], Any]) -> None:
        start.wait()
        try:
            one()
        except BaseException as error:
            errors.append(error)

    threads = [Thread(target=run, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


@pytest.mark.usefixtures("switching")
def test_no_count_of_any_thread_is_lost_also_while_others_read_and_reset() -> None:
    counters, readings = SharedCounters(), []

    def read() -> None:
        for _ in range(100):
            readings.append(counters.total)
            assert counters.copies >= 0

    in_threads(*[lambda: count(counters.own, 2000)] * 3, read)
    assert counters.copy() == count(Counters(), 6000)
    assert readings == sorted(readings)
    in_threads(lambda: count(counters.own, 500), *[counters.reset] * 20)
    assert 0 <= counters.copies <= 500
    counters.reset()
    assert counters.copy() == Counters()


def test_threads_that_are_gone_leave_their_counters_to_others() -> None:
    counters = SharedCounters()
    for _ in range(50):
        in_threads(lambda: count(counters.own, 1))
    assert counters.copies == 50
    assert len(counters._parts) < 50


ENGINES: dict[str, Callable[[], Any]] = {
    "local": LocalEngine,
    "local, with threads of its own": partial(LocalEngine, threads=2),
    "strict": StrictEngine,
    "abstract": AbstractEngine,
}


def moves(count: int) -> list[Transition]:
    """Reshards on one mesh, of sub-axes and halos, with and without partial values."""
    rng, out = Random(7), []
    while len(out) < count:
        shape = (rng.randint(4, 40), rng.randint(4, 40))
        src, dst = (seeded_layout(rng, mesh_of(2, 4), shape, rng.choice([None, ReduceOp.SUM])) for _ in range(2))
        with suppress(Exception):  # layouts that do not bind to the shape, or to each other
            plan_reshard(src, dst, shape, "int64")
            out.append(Transition(src, dst, shape))
    return out


MOVES = moves(60)


def reshard(engine: Any, case: Transition) -> dict[str, int]:
    """Run a reshard and return what its trace says."""
    program = program_of(plan_reshard(*case, "int64"))
    arrays = stored(case.src, case.shape, spread(case.src, case.shape).arrays)
    with trace_communication() as log:
        engine.run(program, arrays)
    return {kind: sum(r.bytes for r in log if r.kind == kind) for kind in {r.kind for r in log if r.bytes}}


@pytest.mark.usefixtures("switching")
@pytest.mark.parametrize("name", ENGINES)
def test_a_trace_counts_what_it_did_whatever_other_threads_do(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "PARALLEL", 1 << 12)
    monkeypatch.setattr(local, "BLOCK", 1 << 10)
    alone, engine = ENGINES[name](), ENGINES[name]()
    for case in MOVES:
        reshard(alone, case)

    def work(seed: int) -> None:
        for case in Random(seed).sample(MOVES, len(MOVES)):
            assert reshard(engine, case) == claimed(plan_reshard(*case, "int64"))

    in_threads(*(partial(work, seed) for seed in range(3)))
    wanted = Counters()
    for _ in range(3):
        wanted.add(alone.counters)
    assert engine.counters.copy() == wanted


def test_threads_of_one_context_write_one_log() -> None:
    engine, (case, *_) = LocalEngine(), [case for case in MOVES if claimed(plan_reshard(*case, "int64"))]
    with trace_communication() as log:
        context = copy_context()
        in_threads(lambda: context.run(reshard, engine, case), lambda: reshard(engine, case))
    assert log.bytes == engine.counters.total // 2 > 0


def test_what_fails_has_counted_what_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, case = LocalEngine(), Transition(MOVES[0].src, MOVES[0].dst, MOVES[0].shape)

    def fail(stage: Any, arrays: Any, dtype: np.dtype, counters: Counters) -> None:
        count(counters, 3)
        raise ZeroDivisionError

    monkeypatch.setattr(engine, "_run", fail)
    with trace_communication() as log, pytest.raises(ZeroDivisionError):
        engine.run(program_of(plan_reshard(*case, "int64")), [np.zeros(case.shape, "int64")] * 8)
    assert engine.counters.copy() == count(Counters(), 3)
    assert len(log) == 0
