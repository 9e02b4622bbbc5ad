"""Records: the folder in which the ranks of a launch keep what they did last."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from shardwise.engine.recording.folder import VARIABLE, folder_of
from shardwise.engine.recording.recorder import RECORD


class Records:
    """A folder for this user alone, beside those of the last jobs, unless SHARDWISE_RECORD names another, or none."""

    def __init__(self, job: str) -> None:
        self.job = job
        self.folder: Path | None = None
        self.env: dict[str, str] = {}  # what ranks are told
        self.keeps = False  # whether they stay after a clean end

    def open(self) -> None:
        """Make the folder; without a place for it, there are no records."""
        self.folder = folder_of(self.job)
        if self.folder is not None and not os.environ.get(VARIABLE):
            self.env = {VARIABLE: str(self.folder)}

    @property
    def are_there(self) -> bool:
        """Whether any rank has recorded something."""
        return self.folder is not None and any(self.folder.glob(f"rank-*.{RECORD}"))

    def tell(self) -> list[str]:
        """Return what is said after a failure, and keep what is there."""
        if not self.are_there:
            return []
        self.keeps = True
        return [f"what every rank did last: shardwise postmortem {self.folder}"]

    def close(self) -> None:
        """Remove what the ranks recorded, unless it is to be kept, and the folder if nothing else is in it."""
        if self.folder is None or not self.env or self.keeps:
            return
        with suppress(OSError):
            for path in self.folder.glob("rank-*"):
                path.unlink(missing_ok=True)
            self.folder.rmdir()
