"""Kept: changes that survive and may, each with its reason."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tools.mutation.changes import Change


@dataclass(frozen=True)
class Kept:
    """A change, told by its file, the text of its line and what is put in whose stead, and why no test fails."""

    file: str
    line: str
    change: str
    reason: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells the change from others."""
        return self.file, self.line, self.change


def read_kept(path: Path) -> dict[tuple[str, str, str], Kept]:
    """Return the list of a file; an empty one, where there is none."""
    if not path.exists():
        return {}
    entries = [Kept(**entry) for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("kept", [])]
    return {entry.key: entry for entry in entries}


def stale(kept: Iterable[Kept], changes: Iterable[Change], files: Iterable[str]) -> list[Kept]:
    """Return the entries for these files that are no change of them any more."""
    known, among = {change.key for change in changes}, set(files)
    return [entry for entry in kept if entry.file in among and entry.key not in known]
