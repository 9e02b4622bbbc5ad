"""The timeline: calls of one group and number meet, whatever the clocks of their ranks say of the time."""

from itertools import product
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise.engine.recording.record import read_records
from shardwise.engine.recording.recorder import Recorder, ranks_text
from shardwise.engine.recording.timeline import Timeline, read_timeline
from shardwise.errors import ArgumentError
from tests.engine.recording.histories import FAULTS, make_history, write_history


@pytest.mark.parametrize("fault", FAULTS)
def test_meetings_are_those_of_the_history(fault: str, tmp_path: Path) -> None:
    for seed, guarded in product(range(8), (True, False)):
        random = Random(f"meetings {fault} {seed} {guarded}")
        history = make_history(random, fault, guarded)
        (folder := tmp_path / f"{seed} {guarded}").mkdir()
        timeline = write_history(random, history, folder)
        absent = {history.first} if fault == "absent" else set[int]()
        expected: dict[tuple[tuple[int, ...], int], dict[int, float]] = {}
        for rank in set(range(history.size)) - absent:
            for visit in history.visits[rank]:
                expected.setdefault((visit.group, visit.number), {})[rank] = visit.began
        found = {}
        for meeting in timeline.meetings:
            (group,) = {tuple(timeline.members(entry.group)) for entry in meeting.entries}
            found[group, meeting.first.number] = {entry.rank: entry.began for entry in meeting.entries}
        assert set(found) == set(expected)
        for call, began in expected.items():
            assert found[call] == pytest.approx(began, abs=1e-4)
        assert timeline.absent == sorted(absent)
        begins = [meeting.first.began for meeting in timeline.meetings]
        assert begins == sorted(begins)
        for meeting in timeline.meetings:
            check_missing(timeline, meeting.first, expected)


def check_missing(timeline, entry, expected) -> None:
    group = tuple(timeline.members(entry.group))
    came = expected[group, entry.number]
    later = {
        rank for (some, number), ranks in expected.items() if some == group and number > entry.number for rank in ranks
    }
    absent = [rank for rank in group if rank not in came and rank not in later]
    assert timeline.missing(entry) == ([] if entry.agreed is not None else absent)


@given(st.lists(st.integers(0, 60), max_size=14, unique=True).map(sorted))
def test_the_members_of_a_group_are_those_of_its_text(ranks: list[int]) -> None:
    assert Timeline({}, {}, 0.0).members(ranks_text(ranks)) == []  # a job without ranks has no members
    assert of_size(61).members(ranks_text(ranks)) == ranks
    assert of_size(30).members(ranks_text(ranks)) == [rank for rank in ranks if rank < 30]


def of_size(size: int) -> Timeline:
    return Timeline(cast(Any, {0: SimpleNamespace(size=size)}), {}, 0.0)


@pytest.mark.parametrize("text", ["", "x", "1-", "-3", "9999999-0", "1-5:0", "1,,2,...", "3-1", "١-٣", "1-99999999"])
def test_texts_of_groups_that_say_nothing_are_harmless(text: str) -> None:
    assert set(of_size(6).members(text)) <= {1, 2, 3, 4, 5}


def test_a_job_of_very_many_ranks_of_which_most_are_absent(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 0, 1 << 20, 4)
    recorder.begin(1, 1, "permute", "", None, tuple(range(1 << 20)))
    timeline = read_timeline(tmp_path)
    entry = timeline.meetings[0].first
    assert entry.group == "0-1048575"
    assert timeline.missing(entry) == timeline.absent == list(range(1, 1 << 20))
    recorder.close(clean=False)


def write(folder: Path, *ends: str) -> None:
    for rank, end in enumerate(ends):
        recorder = Recorder(folder, rank, len(ends) + 1, 4)
        recorder.begin(1, 1, "permute", "train.py:1", 3 + rank // 2, (0, 1))
        if end == "failed":
            recorder.close(clean=False)
        elif end == "left":
            recorder.close(clean=True)
        else:
            recorder._detach()


def test_states_are_those_of_records_and_processes(tmp_path: Path) -> None:
    write(tmp_path, "failed", "left", "running", "stopped", "gone", "elsewhere")
    processes = dict(enumerate(("gone", "gone", "running", "stopped", "gone", "elsewhere")))
    timeline = Timeline(read_records(tmp_path), processes, 0.0)
    states = [timeline.state(rank) for rank in range(7)]
    assert states == ["failed", "left", "running", "stopped", "killed", "no end", "absent"]
    assert [timeline.is_alive(rank) for rank in range(7)] == [False, False, True, True, False, False, False]
    assert timeline.size == 7
    assert timeline.absent == [6]


def test_calls_of_different_iterations_are_a_mismatch(tmp_path: Path) -> None:
    write(tmp_path, "failed", "failed", "failed")
    timeline = read_timeline(tmp_path)
    (meeting,) = timeline.meetings
    assert [entry.iteration for entry in meeting.entries] == [3, 3, 4]
    assert meeting.is_mismatch


def test_it_is_now_if_a_process_lives_and_else_when_the_last_was_seen(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 0, 1, wall=lambda: 1000.0, clock=lambda: 5.0)
    living = read_timeline(tmp_path)  # this process
    assert living.processes == {0: "running"}
    assert living.now > 1.7e9
    recorder.close(clean=False)
    assert read_timeline(tmp_path).now == 1000.0


def test_events_of_all_are_in_order(tmp_path: Path) -> None:
    now = [10.0]
    recorders = [Recorder(tmp_path, rank, 2, wall=lambda: now[0], clock=lambda: now[0]) for rank in range(2)]
    for n in range(6):
        now[0] += 1.0
        recorders[n % 2].note(f"event {n}")
    assert [event.text for event in read_timeline(tmp_path).events] == [f"event {n}" for n in range(6)]
    for recorder in recorders:
        recorder.close(clean=False)


def test_folders_without_records_say_what_is_there(tmp_path: Path) -> None:
    def text(folder: Path) -> str:
        with pytest.raises(ArgumentError) as found:
            read_timeline(folder)
        return str(found.value)

    more = "; expected a folder with records of processes, rank-0.record and so on."
    assert text(tmp_path / "gone\x1b") == f"{tmp_path}/gone\\x1b does not exist{more}"
    (tmp_path / "file").touch()
    assert text(tmp_path / "file") == f"{tmp_path}/file is a file{more}"
    (tmp_path / "empty").mkdir()
    assert text(tmp_path / "empty") == (
        f"{tmp_path}/empty has no records of processes: expected rank-0.record and so on.\n  it has: nothing\n"
        "  records of jobs that ended cleanly are removed; SHARDWISE_RECORD says where they are kept."
    )
    for n in range(9):
        (tmp_path / "empty" / f"rank-{n}.record").write_bytes(b"\x1b")
    (tmp_path / "empty" / "\x1b[2J").touch()
    found = text(tmp_path / "empty")
    assert "it has: \\x1b[2J, rank-0.record, rank-1.record, " in found
    assert " and 2 more\n  rank-0.record is not a record of shardwise, or was cut off.\n" in found
