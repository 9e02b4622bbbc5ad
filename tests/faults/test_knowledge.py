"""What is known of others: how they are while they are waited for, how they left, and which iteration they are in."""

import os
import re
import signal

import pytest

from tests.faults.job import QUICK, SOON, Job, check_saved
from tests.faults.rows import note
from tests.faults.situations import SIDE

SLOW = {"SHARDWISE_TIMEOUT": "60", "SHARDWISE_HEARTBEAT": "20"}


def test_what_the_system_knows_of_those_who_say_nothing(job: Job) -> None:
    ranks = job.start("silent", size=4, only=[QUICK | {"RANK": str(rank)} for rank in range(4)])
    job.wait([ranks[0]])
    said = ranks[0].said
    assert said["error"] == "CollectiveTimeout", ranks[0].err
    assert said["ranks"] == [1, 2, 3]
    seen = r"last sequence 1, heartbeat \d+\.\d s ago at \S+situations\.py:\d+: "
    for rank, state in (
        (1, "it is stopped by a signal"),
        (2, "it lives, but does not answer: one long call holds its interpreter, or it gets no time"),
        (3, "busy elsewhere"),
    ):
        assert re.search(f"\n  rank {rank}: {seen}{re.escape(state)}\n", said["text"]), said["text"]
    assert 1.9 < said["seconds"] < 2 + SOON
    note("silent", said["seconds"], 2.0)
    os.kill(ranks[1].pid, signal.SIGCONT)
    job.wait()
    check_saved(ranks, "CollectiveTimeout", SIDE)


def test_one_that_is_stopped_while_data_moves_and_comes_back(job: Job) -> None:
    """The others blame it, and nobody else, when the seconds that were asked for are over."""
    ranks = job.run("stopped_inside", 1, 2.8, only=[QUICK | {"RANK": str(rank)} for rank in range(3)])
    for rank in (ranks[0], ranks[2]):
        said = rank.said
        assert said["error"] == "CollectiveTimeout", said
        assert said["ranks"] == [1]
        assert "rank 1: last sequence " in said["text"]
        assert 1.9 < said["seconds"] < 2 + 3
    note("stopped inside", max(ranks[0].said["seconds"], ranks[2].said["seconds"]), 2.0)
    check_saved([ranks[0], ranks[2]], "CollectiveTimeout", SIDE)


END = "it came to the end of its program, or raised SystemExit"
HERE = r"\S+situations\.py:\d+"
LONG = pytest.mark.long


@pytest.mark.parametrize(
    ("how", "code", "text"),
    [
        ("sys.exit", 3, rf"it ended after sys\.exit\(3\) at {HERE}; its last sequence was 1"),
        pytest.param("sys.exit of a text", 1, rf"it ended after sys\.exit\('no data'\) at {HERE};", marks=LONG),
        pytest.param("in a step", 3, rf"it ended after sys\.exit\(3\) at {HERE};", marks=LONG),
        pytest.param("raise", 3, f"{END}; its last sequence was 1", marks=LONG),
        pytest.param("os._exit", 3, r"[^;]*: it was killed, crashed, or called os\._exit; its last", marks=LONG),
        pytest.param("in a thread", 0, f"{END}; its last sequence was 1", marks=LONG),
        pytest.param("a caught sys.exit", 0, f"{END}; its last sequence was 2", marks=LONG),
        pytest.param("raised again", 1, "it left with KeyError: 'worse luck'; its last sequence was 1", marks=LONG),
        pytest.param("interrupted", -signal.SIGINT, "it left with KeyboardInterrupt; its last", marks=LONG),
    ],
)
def test_one_that_ends_is_told_as_it_ended(job: Job, how: str, code: int, text: str) -> None:
    """What is known of it, and no more."""
    ranks = job.run("exits", 1, how, size=2)
    assert ranks[1].code == code, ranks[1].err
    said = ranks[0].said
    assert said["error"] == "RankLost", said
    assert re.search(rf"\n  rank 1: {text}", said["text"]), said["text"]
    assert ("look at the output of rank 1 first" in said["text"]) == (END not in said["text"])
    assert said["seconds"] < SOON
    note("exits", said["seconds"])


AFTER = "; it had gone on after "


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("step", rf"{AFTER}ValueError: bad luck at {HERE}, out of iteration 4 \(entry 1\); its last"),
        pytest.param("call", rf"{AFTER}LayoutError: unknown mesh axis 'y'[^;]* at {HERE}; its last", marks=LONG),
        pytest.param("interrupt", rf"{AFTER}KeyboardInterrupt at {HERE}, out of iteration 4 ", marks=LONG),
        pytest.param("then the end", rf"{AFTER}ValueError: bad luck at {HERE}, out of iteration 4 ", marks=LONG),
        pytest.param("no step", "; its last sequence was 1", marks=LONG),  # nobody can know of it
        pytest.param("inside", "; its last sequence was 1", marks=LONG),  # it is nobody's business
    ],
)
def test_one_that_catches_an_error_and_comes_to_its_end(job: Job, where: str, text: str) -> None:
    ranks = job.run("catches", 1, where, size=2)
    assert ranks[1].code == 0, ranks[1].err
    said = ranks[0].said
    assert said["error"] == "RankLost"
    assert re.search(f"rank 1: {END}{text}", said["text"]), said["text"]
    assert said["seconds"] < SOON
    note("caught", said["seconds"])


def test_an_error_that_is_caught_skips_an_iteration(job: Job) -> None:
    """Calls of iteration 1001 would pair off with those of 1002, in silence."""
    ranks = job.run("skips", 1)
    for rank in ranks:
        said = rank.said
        assert said["error"] == "CollectiveMismatch", said
        text = said["text"]
        assert re.search(r"\n  rank [02]: all_gather .*; in iteration 1001 \(entry 2\), sequence 3, at ", text), text
        assert re.search(r"\n  rank 1: all_gather .*; in iteration 1002 \(entry 3\), sequence 3, at ", text), text
        assert "\n  different: iteration\n" in text
        assert (
            "\n  one of them skipped an iteration, or entered it again.\n  rank 1 had gone on after ValueError: "
            in text
        )
        assert "no data was moved" in text
        assert said["seconds"] < SOON
    note("skips", max(rank.said["seconds"] for rank in ranks))
    check_saved(ranks, "CollectiveMismatch", SIDE)


@pytest.mark.parametrize(
    ("how", "usual", "odd", "why"),
    [
        ("one alone", "0-2, call 2 of it, .*; sequence 2", r"; in iteration 7 \(entry 1\), ", "is in a step that"),
        pytest.param("twice", r"iteration 8 \(entry 2\)", r"iteration 7 \(entry 2\)", "skipped an", marks=LONG),
        pytest.param(
            "inner", r"iteration 1, 1 \(entries 2, 2\)", r"iteration 1, 2 \(entries 2, 2\)", "skipped an", marks=LONG
        ),
        pytest.param("generator", r"iteration 2 \(entry 3\)", r"iteration 1 \(entry 2\)", "skipped an", marks=LONG),
    ],
)
def test_steps_that_differ(job: Job, how: str, usual: str, odd: str, why: str) -> None:
    ranks = job.run("disagrees_about_steps", 1, how)
    for rank in ranks:
        said = rank.said
        assert said["error"] == "CollectiveMismatch", said
        assert re.search(rf"\n  rank [02]: all_gather .*{usual}", said["text"]), said["text"]
        assert re.search(rf"\n  rank 1: all_gather .*{odd}", said["text"]), said["text"]
        assert f"\n  one of them {why}" in said["text"]
        assert "gone on after" not in said["text"]
        assert said["seconds"] < SOON
    note("steps", max(rank.said["seconds"] for rank in ranks))
    check_saved(ranks, "CollectiveMismatch", SIDE)


def test_steps_that_are_alike(job: Job) -> None:
    for rank in job.run("agrees_about_steps", size=2):
        assert rank.said["error"] is None, rank.said
        assert rank.code == 0


def test_one_that_is_late_is_named_in_the_log(job: Job) -> None:
    """Its heartbeat is rare: it is asked."""
    ranks = job.run("late", 1, 2.5, only=[SLOW | {"RANK": str(rank)} for rank in range(3)])
    for rank in ranks:
        assert rank.said["error"] is None, rank.said
    lines = [line for line in ranks[0].err.splitlines() if "rank 1" in line]
    named = re.fullmatch(
        r"WARNING rank 1 is late: all_gather \(sequence 6, at \S+situations\.py:\d+\) has waited (\d\.\d) s for it, "
        r"which usually comes \d\.\d s after the one before; busy elsewhere, at \S+situations\.py:\d+",
        lines[0],
    )
    assert named is not None, lines
    note("late", float(named[1]))
    assert lines[-1].startswith("INFO rank 1, which was late, has come: all_gather (sequence 6, at ")
    assert "is late" not in ranks[1].err + ranks[2].err  # one says it for all


@pytest.mark.long
def test_one_that_sends_nonsense(job: Job) -> None:
    ranks = job.run("sends_nonsense", 1)
    for rank in (ranks[0], ranks[2]):
        said = rank.said
        assert said["error"] == "RankLost", said
        assert said["ranks"] == [1]
        assert "rank 1: it sent what cannot be read; its last sequence was 1" in said["text"]
        assert said["seconds"] < SOON
    note("nonsense", max(ranks[0].said["seconds"], ranks[2].said["seconds"]))
    check_saved([ranks[0], ranks[2]], "RankLost", SIDE)
