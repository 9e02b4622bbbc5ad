"""Processes that do different things: all are told which, and where; no data has moved."""

import json
import re
import signal

import pytest

from tests.faults.job import SOON, Job, Rank, check_saved
from tests.faults.rows import note
from tests.faults.situations import SIDE


def lines(text: str) -> set[str]:
    return set(re.findall(r"situations\.py:\d+", text))


def check(ranks: list[Rank], odd: int, different: set[str]) -> None:
    for rank in ranks:
        said = rank.said
        assert said["error"] == "CollectiveMismatch", rank.err
        assert odd in said["ranks"]
        assert "no data was moved" in said["text"]
        named = re.search(r"different: (.*)", said["text"])
        assert named is not None
        assert different <= set(named[1].split(", ")), said["text"]
        assert said["received"] < SIDE * SIDE  # of 4 bytes each: less than a shard
        assert said["received"] < 20_000
        assert said["seconds"] < SOON
    note("mismatch", max(rank.said["seconds"] for rank in ranks))
    check_saved(ranks, "CollectiveMismatch", SIDE)


def test_a_different_function(job: Job) -> None:
    ranks = job.run("differs", "function", 1)
    check(ranks, 1, {"step", "layout after", "plan"})
    for rank in ranks:
        text = rank.said["text"]
        assert "all_gather of float32[512, 512] [x|-] -> [-|-], group 0-2, call 2 of it, plan " in text
        assert "all_to_all of float32[512, 512] [x|-] -> [-|x], group 0-2, call 2 of it, plan " in text
        assert re.search(r"\n  rank [02]: all_gather", text)
        assert re.search(r"\n  rank 1: all_to_all", text)
        assert len(lines(text)) == 2


@pytest.mark.parametrize(
    ("what", "different"),
    [
        pytest.param("dtype", {"dtype"}, marks=pytest.mark.long),
        pytest.param("plan", {"plan"}, marks=pytest.mark.long),
        pytest.param("shape", {"shape"}, marks=pytest.mark.long),
        pytest.param("layout", {"layout after"}, marks=pytest.mark.long),
        pytest.param("reduction", {"reduction"}, marks=pytest.mark.long),
        pytest.param("root", {"root"}, marks=pytest.mark.long),
    ],
)
def test_different(job: Job, what: str, different: set[str]) -> None:
    check(job.run("differs", what, 2), 2, different)


@pytest.mark.parametrize(
    ("what", "other"),
    [
        ("mesh", "on DeviceMesh(x=3, devices=[CPU(2), CPU(1), CPU(0)]); "),
        pytest.param("axis", "on DeviceMesh(y=3); ", marks=pytest.mark.long),
    ],
)
def test_different_meshes(job: Job, what: str, other: str) -> None:
    """Not given to init, so that they are compared when they are first used."""
    ranks = job.run("differs", what, 2)
    check(ranks, 2, {"mesh"})
    for rank in ranks:
        text = rank.said["text"]
        assert re.search(r"\n  rank [01]: .* on DeviceMesh\(x=3\); ", text)
        assert re.search(r"\n  rank 2: .* " + re.escape(other), text), text
        assert "init(mesh=...) compares them at the start" in text


def test_an_extra_call(job: Job) -> None:
    check(job.run("extra", 1), 1, {"step"})


def test_two_meshes_in_opposite_order(job: Job) -> None:
    ranks = job.run("crossed")
    for rank in ranks:
        said = rank.said
        assert said["error"] == "CollectiveMismatch", said
        assert said["ranks"] == [0, 1]
        assert "group 0-2" in said["text"]
        assert "group 0,1" in said["text"]
        assert said["seconds"] < SOON
    check_saved(ranks, "CollectiveMismatch", SIDE)
    assert "rank 0 stopped, and this is rank 2" in ranks[2].said["text"] or "rank 1 stopped" in ranks[2].said["text"]


@pytest.mark.parametrize("told_killed", [False, True])
def test_one_that_hears_late_is_told_the_reason_all_the_same(job: Job, told_killed: bool) -> None:
    """One that it waits for was told, and left or was killed, before it heard anything of those who disagree."""
    ranks = job.run("hears_late", told_killed, size=4)
    assert ranks[2].code == (-signal.SIGKILL if told_killed else 0)
    left = [rank for rank in ranks if not (told_killed and rank.name == "2")]
    for rank in left:
        said = rank.said
        assert said["error"] == "CollectiveMismatch", said
        assert said["ranks"] == [0, 1]
        assert "different: dtype" in said["text"]
        assert said["seconds"] < SOON
    check_saved(left, "CollectiveMismatch", SIDE)


def test_two_threads(job: Job) -> None:
    for rank in job.run("threads", size=2):
        first, second = map(json.loads, rank.out.splitlines())
        assert "called in thread 'second', but another thread of this process has communicated" in first["text"]
        assert "communicate from one thread" in first["text"]
        assert second["error"] is None
        assert max(first["seconds"], second["seconds"]) < SOON
        assert rank.code == 0


def test_a_fork(job: Job) -> None:
    for rank in job.run("forks", size=2):
        first, second = map(json.loads, rank.out.splitlines())
        assert f"forked from rank {rank.name} after init, and is not one of the processes" in first["text"]
        assert "communicate in the parent" in first["text"]
        assert second["error"] is None
        assert max(first["seconds"], second["seconds"]) < SOON
        assert rank.code == 0
