"""The folder of records: where the processes of a job keep what they did last, and nobody else can write."""

from __future__ import annotations

import os
import re
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from shardwise.engine.recording.record import is_alive, read_all
from shardwise.errors import ArgumentError

VARIABLE = "SHARDWISE_RECORD"
OFF = ("0", "off", "no", "false")
KEPT = 16  # jobs of a user whose records stay


def setting() -> tuple[Path | None, bool]:
    """Return the folder that SHARDWISE_RECORD names, if it does, and whether there are records at all."""
    text = os.environ.get(VARIABLE, "")
    is_on = text.lower() not in OFF
    return (Path(text) if text and is_on else None), is_on


def folder_of(job: str) -> Path | None:
    """Return where the records of a job go, which is there then if it can be; None if nowhere.

    It is what SHARDWISE_RECORD says, or else `shardwise-<uid>/<job>` in the folder for temporary files, if that
    belongs to this user alone. Of the jobs there, the oldest are removed.
    """
    named, is_on = setting()
    if not is_on:
        return None
    if named is not None:
        with suppress(OSError):  # the recorder says what is wrong with it
            named.mkdir(mode=0o700, parents=True, exist_ok=True)
        return named
    try:
        home = home_of_user()
        folder = home / (re.sub(r"[^\w.-]", "_", job, flags=re.ASCII)[:80].lstrip(".") or "job")
        _make_own(home)
        _make_own(folder)
    except OSError:
        return None
    _remove_oldest(home, folder)
    return folder


def home_of_user() -> Path:
    """Return the folder with the records of all jobs of this user that were not told where to keep them."""
    return Path(tempfile.gettempdir()) / f"shardwise-{os.geteuid()}"


def _make_own(folder: Path) -> None:
    # A folder that somebody else made could be filled, or swapped, by them; lstat does not follow a link of theirs.
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise PermissionError(f"{folder} is not a folder that belongs to this user alone")


def newest_folder() -> Path:
    """Return the folder with the records of the newest job of this user."""
    (named, _), home = setting(), home_of_user()
    if named is not None:
        return named
    folders = jobs_of(home)
    if not folders:
        raise ArgumentError(f"there are no records in {home}; give the folder that has them.")
    return folders[0]


def jobs_of(home: Path) -> list[Path]:
    """Return the folders of jobs, the newest first."""
    times: list[tuple[float, Path]] = []
    with suppress(OSError):
        for folder in home.iterdir():
            with suppress(OSError):
                status = folder.lstat()
                if stat.S_ISDIR(status.st_mode):
                    times.append((status.st_mtime, folder))
    return [folder for _, folder in sorted(times, reverse=True)]


def _remove_oldest(home: Path, own: Path) -> None:
    for folder in jobs_of(home)[KEPT:]:
        if folder == own or any(map(is_alive, read_all(folder, []))):
            continue
        with suppress(OSError):
            for file in folder.glob("rank-*"):
                file.unlink(missing_ok=True)
            folder.rmdir()
