"""The folder of a launch's records: for this user alone, gone after a clean end, and named after any other."""

import os
import stat
import tempfile
from pathlib import Path

import pytest

from shardwise.engine.launch.records import VARIABLE, Records
from shardwise.engine.recording.folder import KEPT, home_of_user, newest_folder


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def made(job: str = "ab12") -> tuple[Records, Path]:
    records = Records(job)
    records.open()
    assert records.folder is not None
    return records, records.folder


def test_a_folder_for_this_user_alone_that_goes_if_nothing_is_in_it(home: Path) -> None:
    records, folder = made()
    assert folder == home_of_user() / "ab12"
    assert folder.parent.parent == home
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert records.env == {VARIABLE: str(folder)}
    assert records.tell() == []  # no rank has written anything
    records.close()
    assert not folder.exists()
    records.close()


def test_what_ranks_wrote_goes_after_a_clean_end_and_what_others_wrote_stays() -> None:
    for name, is_kept in (("rank-0.record", False), ("rank-1.stacks", False), ("notes.txt", True)):
        records, folder = made()
        (folder / name).touch()
        records.close()
        assert folder.exists() == is_kept


def test_after_a_failure_the_folder_is_named_and_stays() -> None:
    records, folder = made()
    (folder / "rank-0.record").touch()
    assert records.tell()[-1] == f"what every rank did last: shardwise postmortem {folder}"
    records.close()
    assert (folder / "rank-0.record").exists()


def test_a_postmortem_finds_the_newest_and_the_oldest_are_removed() -> None:
    """Failures do not fill the disk."""
    for k in range(KEPT + 3):
        records, folder = made(f"job{k}")
        (folder / "rank-0.record").touch()
        os.utime(folder, (k, k))
        records.tell()
        records.close()
        assert newest_folder() == folder
    assert len(list(home_of_user().iterdir())) == KEPT


def test_what_was_asked_for_stays() -> None:
    records, folder = made()
    (folder / "rank-0.stacks").touch()
    records.keeps = True
    records.close()
    assert (folder / "rank-0.stacks").exists()


def test_the_folder_of_the_user_is_used_and_never_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    monkeypatch.setenv(VARIABLE, str(folder))
    records = Records("ab12")
    records.open()
    assert (records.folder, records.env) == (folder, {})
    (folder / "rank-0.record").touch()
    records.close()
    assert (folder / "rank-0.record").exists()
    assert records.tell()[-1].endswith(f"shardwise postmortem {folder}")


@pytest.mark.parametrize("word", ["0", "off", "No"])
def test_no_records_if_the_user_wants_none(monkeypatch: pytest.MonkeyPatch, home: Path, word: str) -> None:
    monkeypatch.setenv(VARIABLE, word)
    records = Records("ab12")
    records.open()
    assert (records.folder, records.env, records.are_there, records.tell()) == (None, {}, False, [])
    records.close()
    assert list(home.iterdir()) == []


def test_without_a_place_for_it_the_job_runs_without_records(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    records = Records("ab12")
    records.open()
    assert (records.folder, records.env) == (None, {})
    records.close()
