"""Processes that go, stop or do not come: the others are told who, where and when, and can save what they hold."""

import json
import os
import signal
from pathlib import Path
from time import monotonic, sleep

import numpy as np
import pytest

from tests.faults.job import SOON, TIMEOUT, WAITING, Job, check_saved
from tests.faults.rows import note
from tests.faults.situations import SIDE

LATE = TIMEOUT + 8.0


@pytest.mark.parametrize(
    ("victim", "inside", "step"),
    [
        (2, True, "all_gather"),
        (0, True, "all_to_all"),
        pytest.param(2, False, "all_gather", marks=pytest.mark.long),
        pytest.param(0, False, "all_to_all", marks=pytest.mark.long),
        pytest.param(2, True, "all_to_all", marks=pytest.mark.long),
        pytest.param(0, True, "all_gather", marks=pytest.mark.long),
    ],
)
def test_a_process_that_is_killed(job: Job, victim: int, inside: bool, step: str) -> None:
    ranks = job.run("killed", victim, inside, step)
    assert ranks.pop(victim).code == -signal.SIGKILL
    for rank in ranks:
        said = rank.said
        assert said["error"] == "RankLost", rank.err
        assert said["ranks"] == [victim]
        assert (said["step"], said["sequence"]) == (step, 2)
        assert f"rank {victim} was lost" in said["text"]
        assert f"{step} (sequence 2)" in said["text"]
        assert said["seconds"] < SOON
    note("killed", max(rank.said["seconds"] for rank in ranks))
    check_saved(ranks, "RankLost", SIDE)


def test_the_rescue_of_the_page_works(job: Job, tmp_path: Path) -> None:
    """All but what the lost process alone had is there."""
    ranks = job.run("rescues", 0)
    assert ranks.pop(0).code == -signal.SIGKILL
    check_saved(ranks, "RankLost", SIDE)
    whole = np.full((SIDE, SIDE), np.nan, "float32")
    for path in tmp_path.glob("rescued-rows-*.npz"):
        with np.load(path) as file:
            whole[tuple(slice(*interval) for interval in file["box"])] = file["array"]
    first = min(rank.said["rows"][0] for rank in ranks)
    assert np.isnan(whole[:first]).all()
    np.testing.assert_array_equal(whole[first:], np.arange(SIDE * SIDE, dtype="float32").reshape(SIDE, SIDE)[first:])
    with np.load(tmp_path / "rescued-all-0-2_0-3.npz") as file:
        np.testing.assert_array_equal(file["array"], np.arange(6.0).reshape(2, 3))


@pytest.mark.long  # it waits for a longer timeout than `silent`, which has one that is stopped too
def test_a_process_that_is_stopped(job: Job) -> None:
    ranks = job.start("stopped", 1, only=[WAITING] * 3)
    others = [ranks[0], ranks[2]]
    job.wait(others)
    for rank in others:
        said = rank.said
        assert said["error"] == "CollectiveTimeout", rank.err
        assert said["ranks"] == [1]
        assert "rank 1: last sequence 1, heartbeat " in said["text"]
        assert ": it is stopped by a signal\n" in said["text"]
        assert "situations.py:" in said["text"]
        assert TIMEOUT - 1 < said["seconds"] < LATE
    note("stopped", max(rank.said["seconds"] for rank in others), TIMEOUT)
    check_saved(others, "CollectiveTimeout", SIDE)
    os.kill(ranks[1].pid, signal.SIGCONT)
    job.wait()
    assert ranks[1].said["error"] == "CollectiveTimeout"  # it is told what the others said before they left
    check_saved([ranks[1]], "CollectiveTimeout", SIDE)


@pytest.mark.long
def test_a_process_that_sleeps(job: Job) -> None:
    ranks = job.run("asleep", 1, TIMEOUT + 4, only=[WAITING] * 3)
    for rank in (ranks[0], ranks[2]):
        said = rank.said
        assert said["error"] == "CollectiveTimeout", rank.err
        assert said["ranks"] == [1]
        assert "rank 1: last sequence 1, heartbeat " in said["text"]
        assert ": busy elsewhere" in said["text"]
        assert TIMEOUT - 1 < said["seconds"] < LATE
    assert ranks[1].said["error"] == "CollectiveTimeout"
    assert ranks[1].said["seconds"] < SOON
    check_saved(ranks, "CollectiveTimeout", SIDE)


@pytest.mark.parametrize("inside", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_process_that_is_stopped_for_two_seconds(job: Job, inside: bool) -> None:
    ranks = job.run("paused", 1, inside)
    total = float(np.arange(SIDE * SIDE, dtype="float32").sum())
    for rank in ranks:
        assert rank.said["error"] is None, rank.said
        assert rank.said["value"] == pytest.approx(total)
        assert rank.said["seconds"] < LATE
        assert rank.code == 0
    assert ranks[0].said["seconds"] > 0.5


@pytest.mark.long
def test_a_process_that_raises(job: Job) -> None:
    ranks = job.run("raises", 1)
    assert [rank.code for rank in ranks] == [1, 1, 1]
    assert ranks[1].err.endswith("ValueError: bad luck\n")
    for rank in (ranks[0], ranks[2]):
        assert "RankLost: " in rank.err
        assert "rank 1 was lost" in rank.err
        assert "it left with ValueError: bad luck; its last sequence was 1" in rank.err


@pytest.mark.long
def test_peers_of_a_process_that_raises_can_save(job: Job) -> None:
    ranks = job.run("told_of_raise", 1)
    assert ranks[1].code == 1
    for rank in (ranks[0], ranks[2]):
        assert rank.said["error"] == "RankLost", rank.said
        assert "it left with ValueError: bad luck" in rank.said["text"]
        assert rank.said["seconds"] < SOON
    note("raises", max(ranks[0].said["seconds"], ranks[2].said["seconds"]))
    check_saved([ranks[0], ranks[2]], "RankLost", SIDE)


def test_a_process_that_leaves_early_and_cleanly(job: Job) -> None:
    ranks = job.run("leaves", 1)
    assert ranks.pop(1).code == 0
    for rank in ranks:
        assert rank.said["error"] == "RankLost"
        assert rank.said["ranks"] == [1]
        assert "rank 1: it came to the end of its program, or raised SystemExit; its last seq" in rank.said["text"]
        assert rank.said["seconds"] < SOON
    note("leaves", max(rank.said["seconds"] for rank in ranks))
    check_saved(ranks, "RankLost", SIDE)


def test_a_process_that_cannot_allocate(job: Job) -> None:
    ranks = job.run("cannot_allocate", 1)
    assert ranks[1].said["error"] == "MemoryError", ranks[1].err
    assert ranks[1].said["seconds"] < SOON
    for rank in (ranks[0], ranks[2]):
        assert rank.said["error"] == "RankLost", rank.err
        assert rank.said["ranks"] == [1]
        assert "rank 1 gave up at sequence " in rank.said["text"]
        assert "MemoryError" in rank.said["text"]
        assert rank.said["seconds"] < SOON
    note("no memory", max(ranks[0].said["seconds"], ranks[2].said["seconds"]))
    check_saved(ranks, "RankLost", 4096)


def test_reading_on_one_rank_only(job: Job) -> None:
    ranks = job.run("reads_alone", 1)
    first, second = map(json.loads, ranks[1].out.splitlines())
    assert "reading never communicates" in first["text"]
    assert "x.gather()" in first["text"]
    assert second["error"] is None
    assert first["seconds"] < SOON
    assert all(rank.said["seconds"] < SOON for rank in ranks)
    assert [rank.said["error"] for rank in ranks] == [None] * 3
    assert [rank.code for rank in ranks] == [0, 0, 0]


@pytest.mark.long
def test_gathering_on_one_rank_only(job: Job) -> None:
    ranks = job.run("gathers_alone", 1)
    assert ranks[1].said["error"] == "RankLost"
    assert "it came to the end of its program" in ranks[1].said["text"]
    assert ranks[1].said["seconds"] < SOON
    check_saved([ranks[1]], "RankLost", SIDE)


def test_all_are_interrupted(job: Job) -> None:
    """Ctrl-C in a process that waits for another in a call, and in one that does not."""
    ranks = job.start("starts_and_waits", 60.0)
    end = monotonic() + 60
    while any('"ready"' not in rank.out for rank in ranks) and monotonic() < end:
        sleep(0.05)
    start = monotonic()
    for rank in ranks:
        os.kill(rank.pid, signal.SIGINT)
    job.wait(seconds=30)
    assert monotonic() - start < SOON
    assert all(rank.code != 0 for rank in ranks)
    assert any(rank.err.rstrip().endswith("KeyboardInterrupt") for rank in ranks)
