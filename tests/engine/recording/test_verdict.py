"""The verdict names who was first, their line and those who waited, in histories that were made up by a simulation."""

import os
from pathlib import Path
from random import Random
from time import monotonic

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise.engine.recording.record import read_records
from shardwise.engine.recording.recorder import Recorder
from shardwise.engine.recording.timeline import Timeline
from shardwise.engine.recording.verdict import Verdict, judge, short
from tests.engine.recording.histories import FAULTS, KIND, ODD, History, make_history, write_history

SEEDS = 400 if os.environ.get("SHARDWISE_TEST_PROFILE") == "long" else 25


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "silent"])
@pytest.mark.parametrize("fault", FAULTS)
def test_who_was_first_is_named(fault: str, guarded: bool, tmp_path):
    for seed in range(SEEDS):
        random = Random(f"{fault} {guarded} {seed}")
        history = make_history(random, fault, guarded)
        (folder := tmp_path / str(seed)).mkdir()
        timeline = write_history(random, history, folder)
        verdict, seen = judge(timeline), f"seed {seed}: {history}"
        assert verdict.sentence.count("\n") == 0, seen
        assert verdict.sentence.endswith("."), seen
        if fault in ODD:
            check_mismatch(history, verdict, seen)
            continue
        assert verdict.first == (history.first,), f"{verdict}\n{seen}"
        assert verdict.line == history.line, f"{verdict}\n{seen}"
        assert set(verdict.waiters) == set(history.blocked) - {history.first}, f"{verdict}\n{seen}"
        if fault == "late" and not guarded:
            assert verdict.kind in ("waiting", "killed"), f"{verdict}\n{seen}"
        else:
            assert verdict.kind == KIND[fault], f"{verdict}\n{seen}"
        assert not history.line or short(history.line) in verdict.sentence, f"{verdict}\n{seen}"
        lines = {short(visit.line) for rank, visit in history.blocked.items() if rank != history.first}
        named = sum(line in verdict.sentence for line in lines)
        assert named == len(lines) or (" more call" in verdict.sentence and named >= 2), f"{verdict}\n{seen}"


def check_mismatch(history: History, verdict: Verdict, seen: str) -> None:
    # Of two nobody can know which is wrong; of more it is the one that is alone.
    group = history.blocked[history.first].group
    came = [rank for rank in group if any(visit.step == history.step for visit in history.visits[rank])]
    pair = tuple(sorted(came)) if len(came) == 2 else (history.first,)
    assert verdict.kind == "mismatch", f"{verdict}\n{seen}"
    assert verdict.first == pair, f"{verdict}\n{seen}"
    assert set(verdict.waiters) == set(history.blocked) - set(came), f"{verdict}\n{seen}"
    lines = {short(visit.line) for rank, visit in history.blocked.items() if rank in came}
    assert all(line in verdict.sentence for line in lines), f"{verdict}\n{seen}"
    if history.fault == "skipped":
        for skipped in (0, 1):
            assert f" in iteration {history.step + skipped} at me/train.py:" in verdict.sentence, f"{verdict}\n{seen}"


# -- what no simulation says ------------------------------------------------------------------------------


def write(folder, size, waits=(), ends=(), beats=(), at=100.0):
    """Let ranks wait for others, each in a call at its own line; the others have done one call."""
    now = [at]
    recorders = [Recorder(folder, rank, size, 8, clock=lambda: now[0], wall=lambda: now[0]) for rank in range(size)]
    for rank, recorder in enumerate(recorders):
        slot = recorder.begin(1, 1, "all_gather of x", "/a/b/train.py:1", None, tuple(range(size)))
        recorder.agree(slot)
        recorder.end(slot, 1, 1)
        now[0] += 0.5
        if rank in dict(waits):
            slot = recorder.begin(2, 2, "permute of x", f"/a/b/train.py:1{rank}", 7, (rank, dict(waits)[rank]))
            recorder.wait_for(slot, [dict(waits)[rank]])
        if rank in dict(beats):
            recorder.beat(dict(beats)[rank])
    for rank, recorder in enumerate(recorders):
        if rank in dict(ends):
            recorder.close(*dict(ends)[rank])
        else:
            recorder._detach()


def judged(folder: Path, processes: str, now: float = 110.0) -> Verdict:
    records = read_records(folder)
    return judge(Timeline(records, dict.fromkeys(records, processes), now))


def test_a_circle_of_waits(tmp_path):
    write(tmp_path, 4, waits={0: 1, 1: 2, 2: 0, 3: 0}.items())
    verdict = judged(tmp_path, "running")
    assert verdict.kind == "circle"
    assert set(verdict.first) == {0, 1, 2}
    assert verdict.waiters == (3,)
    assert verdict.sentence.startswith("ranks 0, 1, 2 wait for each other in a circle: ")
    for rank in range(3):
        assert (
            f"rank {rank} for rank {(rank + 1) % 3} in permute (sequence 2, iteration 7) at b/train.py:1{rank}"
            in str(verdict)
        )
    assert "rank 3 waits for it in" not in verdict.sentence
    assert "rank 3 waits for them in permute at b/train.py:13 for 8 s" in verdict.sentence


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict[int, tuple[int, ...]], set[int], bool]:
    """Whom each rank waits for, which ranks are gone, and whether the others live."""
    size = draw(st.integers(2, 7))
    order = draw(st.permutations(range(size)))
    waits: dict[int, tuple[int, ...]] = {}
    for place, rank in enumerate(order):
        others = [other for other in (order[place + 1 :] if draw(st.booleans()) else order) if other != rank]
        waits[rank] = tuple(draw(st.lists(st.sampled_from(others), max_size=3, unique=True)) if others else ())
    return waits, draw(st.sets(st.integers(0, size - 1), max_size=2)), draw(st.booleans())


@given(graphs())
def test_whoever_the_first_waits_for_at_last_is_named(tmp_path_factory, graph):
    waits, gone, lives = graph
    folder, size = tmp_path_factory.mktemp("graph"), len(waits)
    for rank, others in waits.items():
        now = 100.0 + rank
        recorder = Recorder(folder, rank, size, 8, clock=lambda now=now: now, wall=lambda now=now: now)
        slot = recorder.begin(1, 1, "all_gather of x", f"/a/train.py:{rank}", None, (rank,))
        if others:
            recorder.wait_for(slot, others)
        else:
            recorder.agree(slot)
            recorder.end(slot, 1, 1)
        recorder._detach()
    processes = {rank: "running" if lives and rank not in gone else "gone" for rank in waits}
    verdict = judge(Timeline(read_records(folder), processes, 200.0))
    # Who is reached in any number of waits, by squaring. A rank that is gone waits no more, if others still do.
    ends_if_gone = any(waits[rank] and processes[rank] == "running" for rank in waits)
    matrix = np.zeros((size, size), bool)
    for rank, others in waits.items():
        matrix[rank, list(others)] = bool(others) and not (ends_if_gone and rank in gone)
    closure = matrix.copy()
    for _ in range(size):
        closure |= (closure.astype(int) @ closure.astype(int)) > 0
    sinks = {rank for rank in waits if not matrix[rank].any()}
    waiting = [rank for rank in range(size) if waits[rank]]
    if not waiting:
        assert verdict.first == tuple(sorted(set(waits) if not lives else gone))
        return
    # It may itself be gone, and those it waited for are asked even so.
    start = waiting[0]
    reached = set(waits[start]) | {other for rank in waits[start] for other in np.flatnonzero(closure[rank])}
    if reached & sinks:
        assert set(verdict.first) == reached & sinks
        assert verdict.line == f"/a/train.py:{verdict.first[0]}"
        direct = {rank for rank in waiting if set(waits[rank]) & set(verdict.first)}
        assert direct - set(verdict.first) <= set(verdict.waiters)
        assert not set(verdict.waiters) & set(verdict.first)
    else:
        assert verdict.kind == "circle"
        circle = verdict.first
        assert all(circle[(k + 1) % len(circle)] in waits[rank] for k, rank in enumerate(circle))
        assert set(circle) <= reached
        assert len(set(circle)) == len(circle) >= 2


def test_a_job_that_runs_and_waits_for_one(tmp_path):
    write(tmp_path, 3, waits={0: 1, 2: 0}.items(), beats={1: "/a/b/data.py:5"}.items())
    verdict = judged(tmp_path, "running")
    assert str(verdict) == (
        "rank 1 is waited for: it runs, after all_gather (sequence 1) at b/train.py:1, last seen at b/data.py:5; "
        "rank 0 waits for it in permute at b/train.py:10 for 9.5 s; rank 2 waits for rank 0 in permute at "
        "b/train.py:12 for 8.5 s."
    )
    assert (verdict.kind, verdict.first, verdict.waiters, verdict.line) == ("waiting", (1,), (0, 2), "/a/b/data.py:5")


def test_nothing_is_wrong(tmp_path):
    write(tmp_path, 2)
    assert str(judged(tmp_path, "running")) == "nothing is wrong: 2 of 2 ranks run, and none waits for another."
    write(tmp_path, 2, ends={0: (True,)}.items())
    assert str(judged(tmp_path, "running")) == "nothing is wrong: 1 of 2 ranks run, and none waits for another."


def test_all_that_were_killed_without_a_wait_are_named(tmp_path):
    write(tmp_path, 2)
    verdict = judged(tmp_path, "gone")
    assert str(verdict) == (
        "ranks 0, 1 were first: each was killed or crashed (no end in its record), after all_gather (sequence 1) "
        "at b/train.py:1."
    )


def test_who_may_still_run_elsewhere_is_not_called_dead(tmp_path):
    write(tmp_path, 2, waits={0: 1}.items())
    assert "may" not in judged(tmp_path, "gone").sentence
    assert "killed, crashed, or still runs on " in judged(tmp_path, "elsewhere").sentence


def test_who_gave_up_says_why(tmp_path):
    recorders = [Recorder(tmp_path, rank, 2, 8) for rank in range(2)]
    for rank, recorder in enumerate(recorders):
        slot = recorder.begin(4, 2, "all_gather of x", "train.py:4", None, (0, 1))
        recorder.agree(slot)
        text = "RankLost: rank 1 gave up at sequence 4: MemoryError: no room\n  this process still has"
        recorder.fail(slot, text, (1,))
        recorder.close(rank == 0, "" if rank == 0 else "it left with MemoryError: no room")
    verdict = judged(tmp_path, "gone")
    assert verdict.first == (1,)
    assert verdict.sentence.startswith(
        "rank 1 was first: it gave up at sequence 4: MemoryError: no room, in all_gather (sequence 4) at train.py:4; "
        "rank 0 waited for it in all_gather at train.py:4 for "
    )


def test_a_failure_whose_ranks_are_not_known_is_told(tmp_path):
    recorder = Recorder(tmp_path, 0, 1, 8)
    recorder.fail(recorder.begin(1, 1, "all_gather of x", "train.py:4"), "CollectiveError: gloo went wrong")
    recorder.close(False)
    verdict = judged(tmp_path, "gone")
    assert verdict.first == (0,)
    assert "failed with CollectiveError: gloo went wrong, in all_gather (sequence 1) at train.py:4" in verdict.sentence


def test_those_that_are_gone_together_are_all_named(tmp_path):
    for rank in range(4):
        recorder = Recorder(tmp_path, rank, 4, 8)
        slot = recorder.begin(1, 1, "all_gather of x", "train.py:4", None, (0, 1, 2, 3))
        recorder.agree(slot)
        recorder.end(slot, 1, 1)
        if rank in (0, 3):
            recorder.wait_for(recorder.begin(2, 2, "all_gather of x", "train.py:5", None, (0, 1, 2, 3)), (1, 2))
        recorder._detach()
    records = read_records(tmp_path)
    states = dict(enumerate(("running", "gone", "gone", "running")))
    verdict = judge(Timeline(records, states, records[3].seen + 2.0))
    assert (verdict.kind, verdict.first, verdict.waiters) == ("killed", (1, 2), (0, 3))
    assert verdict.sentence.startswith(
        "ranks 1, 2 were first: each was killed or crashed (no end in its record), after all_gather (sequence 1) at "
        "train.py:4; ranks 0, 3 wait for them in all_gather at train.py:5 for 2"
    )


def test_who_skipped_an_iteration_after_an_error_is_named_of_two(tmp_path):
    for rank in range(2):
        recorder = Recorder(tmp_path, rank, 2, 8)
        slot = recorder.begin(3, 3, "all_gather of x; plan 12", "train.py:4", 1001 + rank, (0, 1))
        recorder.fail(slot, "CollectiveMismatch: ranks 0 and 1 came to different calls; no data was moved.", (0, 1))
        after = "; it had gone on after ValueError: no data at train.py:3\nmore" * rank
        recorder.close(True, f"it came to the end of its program, or raised SystemExit{after}")
    verdict = judged(tmp_path, "gone")
    assert verdict.first == (1,)
    assert str(verdict) == (
        "ranks 0, 1 came to different calls: rank 1 to all_gather of x in iteration 1002 at train.py:4, rank 0 to "
        "all_gather of x in iteration 1001 at train.py:4; rank 1 had gone on after ValueError: no data at train.py:3."
    )


def test_what_one_had_passed_over_is_known_from_others_too(tmp_path):
    for rank in range(2):
        recorder = Recorder(tmp_path, rank, 2, 8)
        slot = recorder.begin(3, 3, "all_gather of x", "train.py:4", 5 + rank, (0, 1))
        recorder.fail(slot, "CollectiveMismatch: ranks 0 and 1 came to different calls.", (0, 1))
        if rank == 0:
            recorder.note("rank 1 goes on after ValueError: no data at train.py:3")
            recorder.note("rank 7 goes on after nobody knows what")
        recorder.close(False, "it left with CollectiveMismatch: ranks 0 and 1 came to different calls.")
    verdict = judged(tmp_path, "gone")
    assert verdict.first == (1,)
    assert str(verdict).endswith("; rank 1 had gone on after ValueError: no data at train.py:3.")


def test_of_calls_that_look_alike_it_is_said_what_differs(tmp_path):
    for rank, root in enumerate((0, 1, 0)):
        recorder = Recorder(tmp_path, rank, 3, 8)
        what = f"gather of x; reduction sum; root {root}; plan {root}2; on DeviceMesh(x=3)"
        recorder.wait_for(recorder.begin(3, 3, what, "train.py:4", None, (0, 1, 2)), (1 - min(rank, 1),))
        recorder._detach()
    verdict = judged(tmp_path, "running")
    assert verdict.first == (1,)
    assert str(verdict) == (
        "ranks 0, 1, 2 came to different calls: rank 1 to gather of x, root 1, plan 12 at train.py:4, ranks 0, 2 to "
        "gather of x, root 0, plan 02 at train.py:4."
    )


def test_a_failure_at_the_start_is_one_too(tmp_path):
    for rank in range(3):
        recorder = Recorder(tmp_path, rank, 3, 8)
        slot = recorder.begin(0, 0, "init", "train.py:1", None, (0, 1, 2))
        if rank != 1:
            recorder.fail(slot, "RankLost: rank 1 was lost: rank 0 came to init (sequence 0)", (1,))
            recorder.close(False, "it left with RankLost: rank 1 was lost: rank 0 came to init (sequence 0)")
        recorder._detach()
    verdict = judged(tmp_path, "gone")
    assert (verdict.kind, verdict.first, verdict.waiters, verdict.line) == ("killed", (1,), (0, 2), "train.py:1")


def test_all_that_failed_before_any_call_did_not_end_cleanly(tmp_path):
    for rank in range(2):
        Recorder(tmp_path, rank, 2, 8).close(False, "it left with RankLost: rank 1 was lost")
    verdict = judged(tmp_path, "gone")
    assert (verdict.kind, verdict.first) == ("failed", (0,))
    assert str(verdict) == "rank 0 was first: it left with RankLost: rank 1 was lost, before its first call."


def test_records_of_very_many_that_say_anything_are_judged_quickly(tmp_path):
    size, random = 300, Random(3)
    for rank in range(size):
        recorder = Recorder(tmp_path, rank, size, 4)
        slot = recorder.begin(1, 1, "permute", "train.py:1", None, (rank, (rank + 1) % size))
        recorder.wait_for(slot, [random.choice([(rank + 1) % size, (1 << 32) - 1 - rank]) for _ in range(12)])
        recorder._detach()
    start = monotonic()
    verdict = judged(tmp_path, "elsewhere")
    assert monotonic() - start < 20
    assert verdict.sentence.count("\n") == 0
    assert len(verdict.sentence) < 4000
