"""The folder of records: for this user alone, of the last jobs, and never without those of a job that lives."""

import os
import tempfile
from pathlib import Path

import pytest

from shardwise.engine.recording import folder as folders
from shardwise.engine.recording.folder import KEPT, VARIABLE, folder_of, home_of_user, jobs_of, newest_folder, setting
from shardwise.engine.recording.recorder import Recorder
from shardwise.errors import ArgumentError


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"shardwise-{os.geteuid()}"


def test_every_job_has_a_folder_for_this_user_alone(home: Path) -> None:
    folder = folder_of("job1")
    assert folder == home / "job1"
    assert home_of_user() == home
    for path in (home, home / "job1"):
        assert path.stat().st_mode & 0o777 == 0o700
    assert folder_of("job1") == folder


@pytest.mark.parametrize(
    ("job", "name"),
    [
        ("../../etc", "_.._etc"),
        ("", "job"),
        ("..", "job"),
        ("a b/c\x1b[2J\n", "a_b_c__2J_"),
        ("é", "_"),
        ("x" * 300, "x" * 80),
    ],
)
def test_names_of_jobs_lead_nowhere_else(home: Path, job: str, name: str) -> None:
    assert folder_of(job) == home / name


@pytest.mark.parametrize("word", ["0", "off", "No", "FALSE"])
def test_no_folder_if_the_user_wants_no_records(home: Path, monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    monkeypatch.setenv(VARIABLE, word)
    assert folder_of("job1") is None
    assert setting() == (None, False)
    assert not home.exists()


def test_the_folder_that_the_user_names(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mine = tmp_path / "some" / "where"
    monkeypatch.setenv(VARIABLE, str(mine))
    assert folder_of("job1") == mine
    assert mine.stat().st_mode & 0o777 == 0o700
    assert folder_of("job2") == mine
    assert newest_folder() == mine
    assert not home.exists()


def test_the_recorder_says_what_is_wrong_with_a_folder_that_the_user_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file" / "folder", tmp_path / "file"):
        monkeypatch.setenv(VARIABLE, str(place))
        recorder = Recorder(folder_of("job1"), 0, 1)
        assert recorder.path is None
        assert recorder.trouble.startswith(f"{place}/rank-0.record: [Errno 20] Not a directory")


def test_a_folder_that_cannot_be_made_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    assert folder_of("job1") is None


def make_link(path: Path) -> None:
    (target := path.parent / "elsewhere").mkdir()
    path.symlink_to(target)


def make_open(path: Path) -> None:
    path.mkdir()
    path.chmod(0o770)


@pytest.mark.parametrize("make", [make_link, make_open, Path.touch])
def test_what_others_could_have_made_or_write_to_is_refused(home: Path, make) -> None:
    make(home)
    assert folder_of("job1") is None
    assert not (home / "job1").exists()


def test_folders_of_another_user_are_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    monkeypatch.setattr(folders, "home_of_user", lambda: home)
    assert folder_of("job1") is None
    monkeypatch.undo()


def make_jobs(home: Path, count: int) -> list[Path]:
    """Folders of jobs, the oldest first, each with a record of a process that is gone."""
    out: list[Path] = []
    for n in range(count):
        out.append(home / f"old{n}")
        out[-1].mkdir(parents=True, mode=0o700)
        home.chmod(0o700)
        (out[-1] / "rank-0.record").write_bytes(b"whatever")
        (out[-1] / "rank-0.stacks").write_bytes(b"whatever")
        os.utime(out[-1], (n, n))
    return out


def test_the_oldest_jobs_go(home: Path) -> None:
    old = make_jobs(home, KEPT + 4)
    new = folder_of("new")
    assert [path for path in old if path.exists()] == old[-KEPT + 1 :]
    assert jobs_of(home) == [new, *reversed(old[-KEPT + 1 :])]
    assert newest_folder() == new


def test_a_job_that_lives_stays_whatever_else_is_in_its_folder(home: Path) -> None:
    old = make_jobs(home, KEPT + 4)
    living = Recorder(old[1], 0, 1, job="lives")  # this process
    Recorder(old[1], 1, 2, job="newer, and dead", wall=lambda: 4e9)._detach()
    (old[1] / "rank-1.record").write_bytes(b"dead")
    os.utime(old[1], (1, 1))
    folder_of("new")
    assert [path for path in old if path.exists()] == [old[1], *old[-KEPT + 1 :]]
    living.close(clean=False)


def test_two_jobs_in_one_folder_where_the_older_lives(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = make_jobs(home, KEPT + 4)
    recorders = [Recorder(old[0], rank, 2, job=f"job {rank}", wall=lambda rank=rank: 1e9 + rank) for rank in range(2)]
    os.utime(old[0], (0, 0))
    monkeypatch.setattr(folders, "is_alive", lambda record: record.job == "job 0")
    folder_of("new")
    assert old[0].exists()
    for recorder in recorders:
        recorder.close(clean=False)


def test_what_is_not_ours_is_not_removed(home: Path) -> None:
    old = make_jobs(home, KEPT + 4)
    (old[0] / "notes.txt").touch()
    (old[1] / "rank-1.record").mkdir()
    (home / "file").touch()
    folder_of("new")
    assert (old[0] / "notes.txt").exists()
    assert (old[1] / "rank-1.record").exists()
    assert (home / "file").exists()
    assert not old[2].exists()


def test_without_any_records_it_is_said_where_they_would_be(home: Path) -> None:
    with pytest.raises(ArgumentError, match=f"there are no records in {home}; give the folder that has them."):
        newest_folder()
