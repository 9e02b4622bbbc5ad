"""How far all ranks are, from records that a test writes as ranks would."""

import os
from pathlib import Path

import pytest

from shardwise.engine.launch import progress as progresses
from shardwise.engine.launch.progress import Progress
from shardwise.engine.recording.recorder import Recorder

TRAIN, DATA = "/data/me/train.py", "/data/me/data.py"
USUAL = ", which usually comes 0.1 s after the one before"


class Job:
    """Recorders of some ranks, by a clock that the test sets, and what is said of them."""

    def __init__(self, folder: Path, size: int) -> None:
        self.now, self.size, self.folder = 100.0, size, folder
        self.ranks = [self.make(rank) for rank in range(size)]
        self.progress = Progress(folder, dict.fromkeys(range(size), os.getsid(0)))

    def make(self, rank: int) -> Recorder:
        return Recorder(self.folder, rank, self.size, slots=2, clock=lambda: self.now)

    def call(self, rank: int, sequence: int, iteration: int | None = None, line: int = 31, ends: bool = False) -> None:
        slot = self.ranks[rank].begin(sequence, 1, "all_gather of float32[8]", f"{TRAIN}:{line}", iteration)
        if ends:
            self.ranks[rank].agree(slot)
            self.ranks[rank].end(slot, 8, 8)

    def late(self, waiter: int, late: int, known: str = f"busy elsewhere, at {DATA}:12", usual: str = USUAL) -> None:
        self.ranks[waiter].note(
            f"rank {late} is late: all_gather (sequence 7, at {TRAIN}:31) has waited 3.4 s for it{usual}; {known}"
        )

    def come(self, waiter: int, late: int) -> None:
        self.ranks[waiter].note(f"rank {late}, which was late, has come: all_gather has waited 3.4 s for it")

    def said(self) -> list[str]:
        return self.progress.look(self.now).splitlines()


def test_before_anybody_has_a_record_nothing_is_said(tmp_path: Path) -> None:
    assert Progress(tmp_path, {0: 1, 1: 1}).look(1.0) == ""
    assert Progress(tmp_path / "gone", {0: 1}).look(1.0) == ""


def test_iterations_and_sequences_from_the_first_to_the_last_rank_and_the_newest_call(tmp_path: Path) -> None:
    job = Job(tmp_path, 4)
    assert job.said() == ["4 ranks · no call yet"]
    for rank in range(4):
        job.call(rank, 1, ends=True)
    assert job.said() == ["4 ranks · sequence 1 · after all_gather at train.py:31"]
    for rank in range(4):
        job.call(rank, 3401 + (rank == 2), 1200, line=31 + (rank == 2))
    assert job.said() == ["4 ranks · iteration 1200 · sequence 3401-3402 · all_gather at train.py:32"]
    job.call(3, 3403, 1201)
    assert job.said() == ["4 ranks · iteration 1200-1201 · sequence 3401-3403 · all_gather at train.py:31"]


def test_who_has_ended_or_has_no_record_is_not_counted(tmp_path: Path) -> None:
    job = Job(tmp_path, 3)
    job.call(1, 5)
    job.call(2, 9)
    job.ranks[2].close(clean=False)
    assert job.said() == ["2 of 3 ranks · sequence 5 · all_gather at train.py:31"]
    (tmp_path / "rank-1.record").unlink()
    assert job.said() == ["1 of 3 ranks · no call yet"]
    (tmp_path / "rank-0.record").write_bytes(b"something else")
    assert job.said() == ["1 of 3 ranks · no call yet"]  # as if it were being written
    job.ranks[0].close(clean=False)
    job.make(0).close(clean=False)
    assert job.said() == []


def test_records_of_other_jobs_are_not_read(tmp_path: Path) -> None:
    job = Job(tmp_path, 2)
    job.call(0, 5)
    assert Progress(tmp_path, {0: 1 << 30, 1: 1 << 30}).look(job.now) == ""  # written by processes of other sessions
    assert Progress(tmp_path, dict.fromkeys(range(3), os.getsid(0))).look(job.now) == ""  # of a job of another size
    (tmp_path / "rank-0.record").rename(tmp_path / "rank-1.record")
    assert job.said() == []  # under the name of another rank


def test_who_is_late_is_named_with_what_it_does(tmp_path: Path) -> None:
    job = Job(tmp_path, 3)
    for rank in (0, 1):
        job.now += 0.5
        job.call(rank, 7)
    job.now += 3.4
    for rank in (1, 0):
        job.late(rank, 2)
    text = "rank 2 is late: all_gather at train.py:31 waits {} s for it; busy elsewhere, at {}"
    assert job.said()[1:] == [text.format("3.9", "data.py:12")]  # of those who wait, who has waited longest
    job.now += 10.0
    job.ranks[2].beat(f"{DATA}:99")  # it is elsewhere now
    assert job.said()[1:] == [text.format("13.9", "data.py:99")]
    job.now += 107.0
    assert job.said()[1:] == [text.format("2 min 0", "data.py:99")]
    for rank in (0, 1):
        job.come(rank, 2)
    assert len(job.said()) == 1


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (f"it is stopped by a signal, last seen at {DATA}:12", "it is stopped by a signal, last seen at data.py:12"),
        ("its connection closed: it was killed/crashed", "its connection closed: it was killed/crashed"),
        ("it has ended; something of it, at a place/with it", "it has ended; something of it, at a place/with it"),
    ],
)
@pytest.mark.parametrize("usual", ["", USUAL])
def test_what_is_known_is_told_as_it_was_noted(tmp_path: Path, known: str, said: str, usual: str) -> None:
    job = Job(tmp_path, 2)
    job.call(0, 7)
    job.late(0, 1, known, usual)
    job.now += 1.0
    job.ranks[1].beat(f"{DATA}:99")
    assert job.said()[1:] == [f"rank 1 is late: all_gather at train.py:31 waits 1.0 s for it; {said}"]


def test_a_call_that_has_ended_waits_for_nobody(tmp_path: Path) -> None:
    job = Job(tmp_path, 2)
    job.call(0, 7)
    job.late(0, 1)
    assert len(job.said()) == 2
    job.now += 1.0
    job.call(0, 8)
    assert len(job.said()) == 1
    job.late(0, 1)
    assert len(job.said()) == 2
    job.ranks[0].fail(2, "RankLost: rank 1 was lost", [1])
    assert len(job.said()) == 1


def test_of_many_who_are_late_those_who_wait_for_nobody_come_first(tmp_path: Path) -> None:
    job = Job(tmp_path, 5)
    for rank in (0, 1, 2):
        job.call(rank, 7)
        for late in (1, 2, 3, 4):
            job.late(rank, late, "busy")
    assert [line.split(":")[0] for line in job.said()[1:]] == [
        "rank 3 is late",
        "rank 4 is late",
        "and 2 more are late",
    ]


def test_of_very_many_ranks_some_are_looked_at_each_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    job, looks = Job(tmp_path, 10), list[str]()
    monkeypatch.setattr(progresses, "MOST", 4)
    for rank in range(10):
        job.call(rank, 10 + rank)
    job.late(2, 9, "busy")
    look = progresses.glance
    monkeypatch.setattr(progresses, "glance", lambda path: looks.append(path.name[5]) or look(path))
    assert job.said()[0] == "10 ranks · sequence 10-13 · all_gather at train.py:31"
    assert job.said()[0].startswith("10 ranks · sequence 14-17")
    assert job.said()[0].startswith("10 ranks · sequence 10-19")  # 8, 9, 0 and 1
    assert "".join(looks) == "0123" + "45672" + "89012"  # and each time again who waits for somebody
    assert job.said()[1].startswith("rank 9 is late")


def test_texts_of_others_cannot_draw(tmp_path: Path) -> None:
    job = Job(tmp_path, 2)
    job.ranks[0].begin(1, 1, "\x1b[2Jgather of", "train\r.py:3")
    job.late(0, 1, "busy\x1b[2J elsewhere")
    assert all(line.isprintable() for line in job.said())
    assert len(job.said()) == 2
