"""Starts that cannot work: who is absent, there twice, or does not agree is named, and all are told."""

import signal
import socket

import pytest

from tests.faults.job import TIMEOUT, Job, Rank

SOON = 15.0  # rank 0 waits up to 10 s for others to read why it refuses


def check_ends(ranks: list[Rank]) -> None:
    """Each was refused, could print what it was told, and ended cleanly."""
    for rank in ranks:
        assert rank.said["error"] == "EngineError", rank.said
        assert rank.code == 0, rank.err


@pytest.mark.long
def test_all_are_there(job: Job) -> None:
    for rank in job.run("starts"):
        assert rank.said["error"] is None, rank.said
        assert rank.code == 0


def test_absent_ranks_are_named(job: Job) -> None:
    few = {"SHARDWISE_START_TIMEOUT": "3"}
    for rank in job.run("starts", size=5, only=[few, few, few | {"RANK": "3"}]):
        assert rank.said["error"] == "EngineError"
        assert "ranks 2, 4 of 5 did not come within 3 s." in rank.said["text"]
        assert "here: rank 0 (" in rank.said["text"]
        assert 2 < rank.said["seconds"] < 3 + SOON
    check_ends(job.ranks)


@pytest.mark.long
def test_rank_0_is_absent(job: Job) -> None:
    (rank,) = job.run("starts", size=2, only=[{"SHARDWISE_START_TIMEOUT": "3", "RANK": "1"}])
    assert rank.said["error"] == "EngineError"
    assert f"rank 1 cannot reach rank 0 at 127.0.0.1:{job.port}" in rank.said["text"]
    assert rank.said["seconds"] < 3 + SOON
    check_ends(job.ranks)


def test_a_rank_that_is_there_twice(job: Job) -> None:
    ranks = job.run("starts", size=3, only=[{}, {"RANK": "1"}, {"RANK": "1"}])
    for rank in ranks:
        assert rank.said["error"] == "EngineError", rank.said
        assert "rank 1 is there twice: " in rank.said["text"]
        assert "every process has its own RANK" in rank.said["text"]
        assert rank.said["seconds"] < SOON
    check_ends(ranks)


@pytest.mark.parametrize(
    ("only", "text"),
    [
        ([{}, {"WORLD_SIZE": "2"}, {}], "WORLD_SIZE: 3 in rank 0, 2 in rank 1"),
        pytest.param([{"WORLD_SIZE": "4"}, {}, {}], "WORLD_SIZE: 4 in rank 0, 3 in rank ", marks=pytest.mark.long),
    ],
)
def test_different_world_sizes(job: Job, only: list[dict[str, str]], text: str) -> None:
    for rank in job.run("starts", size=3, only=only):
        assert rank.said["error"] == "EngineError"
        assert "do not agree about WORLD_SIZE" in rank.said["text"]
        assert text.partition(":")[0] in rank.said["text"]
        assert rank.said["seconds"] < SOON
    assert any(text in rank.said["text"] for rank in job.ranks)
    check_ends(job.ranks)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("version", "do not agree about shardwise.\n  shardwise: 0.1.0 in rank"),
        ("mesh", "do not agree about mesh.\n  mesh: DeviceMesh("),
        pytest.param("guard", "do not agree about guard.", marks=pytest.mark.long),
    ],
)
def test_different_versions_and_meshes(job: Job, change: str, text: str) -> None:
    size = 4 if change == "mesh" else 3
    for rank in job.run("starts", change, size - 1, size=size):
        assert rank.said["error"] == "EngineError"
        assert text in rank.said["text"]
        assert rank.said["seconds"] < SOON
    check_ends(job.ranks)


@pytest.mark.parametrize("victim", [0, pytest.param(1, marks=pytest.mark.long)])
def test_one_that_is_killed_while_all_start(job: Job, victim: int) -> None:
    ranks = job.run("starts_in_vain", victim, size=3)
    assert ranks.pop(victim).code == -signal.SIGKILL
    for rank in ranks:
        said = rank.said
        assert said["error"] == "RankLost", said
        assert said["ranks"] == [victim]
        assert f"rank {victim} was lost" in said["text"]
        assert "came to init (sequence 0) at " in said["text"]
        assert said["seconds"] < TIMEOUT + SOON
        assert rank.code == 0


def test_a_port_that_is_taken(job: Job) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        job.port = other.getsockname()[1]
        few = {"SHARDWISE_START_TIMEOUT": "3"}
        first, second = job.run("starts", size=2, only=[few, few])
    assert first.said["error"] == "EngineError"
    assert f"port {job.port} is taken" in first.said["text"]
    assert "set MASTER_PORT to a free port" in first.said["text"]
    assert first.said["seconds"] < SOON
    assert second.said["error"] == "EngineError"
    assert "rank 0 is absent, or something else listens there" in second.said["text"]
    assert second.said["seconds"] < 3 + SOON
    check_ends([first, second])
