"""Groups of processes: who is missing when one is first used is named, and the others keep what they have."""

import json
import os
import signal
from typing import Any

import numpy as np
import pytest

from tests.faults.job import QUICK, SOON, Job, Rank, check_saved
from tests.faults.rows import note
from tests.faults.situations import SIDE

SUM = float(np.arange(144).sum())


def quick(size: int) -> list[dict[str, str]]:
    return [QUICK | {"RANK": str(rank)} for rank in range(size)]


def lines(rank: Rank) -> list[dict[str, Any]]:
    return [json.loads(line) for line in rank.out.splitlines()]


def check_files(said: dict[str, Any]) -> None:
    """There are no more files, and no more threads, than before."""
    assert all(after <= before for after, before in zip(said["after"], said["before"], strict=True)), said


GONE = {"killed": "RankLost", "left": "RankLost", "stopped": "CollectiveTimeout"}


@pytest.mark.parametrize(
    ("how", "first"),
    [
        ("killed", "without"),
        pytest.param("killed", "with", marks=pytest.mark.long),
        pytest.param("left", "without", marks=pytest.mark.long),
        pytest.param("left", "with", marks=pytest.mark.long),
        pytest.param("stopped", "without", marks=pytest.mark.long),
        pytest.param("stopped", "with", marks=pytest.mark.long),
    ],
)
def test_groups_that_are_new_when_rank_0_is_gone(job: Job, how: str, first: str) -> None:
    """One without it works, until one with it has been asked for: then it is named, and nothing can be shared."""
    ranks = job.start("sub_groups.gone", how, first, size=4, only=quick(4))
    job.wait(ranks[1:])
    for rank in ranks[1:]:
        without, with_ = lines(rank)[:: 1 if first == "without" else -1]
        assert with_["error"] == GONE[how], with_
        assert with_["ranks"] == [0]
        assert with_["seconds"] < SOON
        if first == "without":
            assert (without["error"], without["value"]) == (None, SUM), without
        else:
            assert without["error"] == GONE[how], without
            assert without["ranks"] == [0]
            assert "nothing can be shared with other processes any more, since:" in without["text"]
            assert without["seconds"] < 1
        saved = np.load(rank.folder / f"{rank.name}.npy")
        assert saved.shape == (SIDE // 4, SIDE)
        assert (rank.code, with_["again"]) == (0, GONE[how])
    seconds = max(line["seconds"] for rank in ranks[1:] for line in lines(rank))
    if how != "stopped":
        note("new group", seconds)
    else:
        note("new group, stopped", seconds, 2.0)
        os.kill(ranks[0].pid, signal.SIGCONT)
        job.wait()


@pytest.mark.parametrize(
    ("moment", "is_first"),
    [
        ("agreed", True),
        *(
            pytest.param(moment, is_first, marks=pytest.mark.long)
            for moment in ("before", "told one", "agreed", "begun")
            for is_first in (False, True)
            if (moment, is_first) != ("agreed", True)
        ),
    ],
)
@pytest.mark.parametrize("victim", [0, pytest.param(2, marks=pytest.mark.long)])
def test_one_that_is_killed_when_a_group_is_first_used(job: Job, victim: int, moment: str, is_first: bool) -> None:
    ranks = job.run("sub_groups.dies", victim, moment, is_first, size=4)
    assert ranks.pop(victim).code == -signal.SIGKILL
    told = []
    for rank in ranks:
        said = rank.said
        if moment == "begun" and said["error"] is None:  # all that it sent may have come
            assert said["value"] == float(np.arange(SIDE * SIDE, dtype="float32").sum())
            continue
        told.append(rank)
        assert said["error"] == "RankLost", said
        assert said["ranks"] == [victim]
        assert said["seconds"] < SOON
    check_saved(told, "RankLost", SIDE)
    note("dies at first use", max(rank.said["seconds"] for rank in ranks))


@pytest.mark.parametrize(
    ("victim", "moment", "how"),
    [
        (0, "met", "killed"),
        *(
            pytest.param(victim, moment, how, marks=pytest.mark.long)
            for victim in (0, 2)
            for moment in ("met", "torch", "connected")
            for how in ("killed", "stopped", "left")
            if (victim, moment, how) != (0, "met", "killed")
        ),
    ],
)
def test_one_that_goes_in_init_after_all_have_met(job: Job, victim: int, moment: str, how: str) -> None:
    ranks = job.start("sub_groups.vanishes_in_init", victim, moment, how, only=quick(3))
    others = [rank for rank in ranks if rank.name != str(victim)]
    job.wait(others)
    for rank in others:
        said = rank.said
        assert said["error"] == GONE[how], said
        assert said["ranks"] == [victim]
        assert "init (sequence 0" in said["text"]
        assert said["seconds"] < SOON
        assert rank.code == 0
    seconds = max(rank.said["seconds"] for rank in others)
    if how != "stopped":
        note("dies in init", seconds)
    else:
        note("stops in init", seconds, 2.0)
        os.kill(ranks[victim].pid, signal.SIGCONT)
        job.wait()


@pytest.mark.parametrize(("size", "count"), [(4, 11), pytest.param(8, 247, marks=pytest.mark.long)])
def test_all_groups_together_need_no_more_files_and_threads_than_none(job: Job, size: int, count: int) -> None:
    for rank in job.run("sub_groups.all_groups", size=size):
        assert rank.code == 0, rank.err
        said = rank.said
        assert (said["groups"], said["wrong"]) == (count, [])
        check_files(said)
    note("many groups", max(rank.said["seconds"] for rank in job.ranks))


def test_processes_connect_once_however_often_they_start(job: Job) -> None:
    for rank in job.run("sub_groups.starts_again", size=2):
        assert rank.code == 0, rank.err
        check_files(rank.said)
    note("starts again", max(rank.said["seconds"] for rank in job.ranks))
