"""Reports: all rows of one run, with the machine; read from and written to JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.fits import series
from benchmarks.machine import Machine
from benchmarks.row import Row

SCHEMA, VERSION = "shardwise-bench", 1


class ReportError(Exception):
    """A file that is no report, or one of another version; or a row that is not in a report."""


@dataclass(frozen=True, slots=True)
class Report:
    """All rows of one run.

    As JSON, `docs/benchmarks.md` says what each field is.
    """

    machine: Machine
    effort: str
    date: str
    load: float  # of the machine in the minute before
    seconds: Mapping[str, float]  # that each area took
    rows: Sequence[Row]
    failures: Mapping[str, str] = field(default_factory=dict)  # areas that stopped, and why

    @property
    def failed(self) -> bool:
        """Whether an area stopped, or a result was wrong."""
        return bool(self.failures) or any(row.failed for row in self.rows)

    @property
    def busy(self) -> bool:
        """Whether others used the machine."""
        return self.load > self.machine.cores / 2

    def of(self, area: str) -> list[Row]:
        """Return the rows of an area."""
        return [row for row in self.rows if row.area == area]

    def find(self, *wanted: str) -> Row:
        """Return the one row whose area and name are the first two, and whose size, mesh or state are the others."""
        found = [
            row
            for row in self.rows
            if list(wanted[:2]) == [row.area, row.name][: len(wanted[:2])] and set(wanted[2:]) <= set(row.key[2:])
        ]
        if len(found) != 1:
            near = ["; ".join(row.key) for row in (found or self.of(wanted[0]) or self.rows)]
            listed = "\n  ".join(["", *near[:40]])
            raise ReportError(f"{len(found)} rows are {'; '.join(wanted)!r}; rows are:{listed}")
        return found[0]

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON."""
        head = {"schema": SCHEMA, "version": VERSION, "machine": asdict(self.machine)}
        rest = {name: getattr(self, name) for name in ("effort", "date", "load", "seconds", "failures")}
        grown = [
            {"area": some.rows[0].area, "name": some.rows[0].name, "state": some.rows[0].state}
            | {"along": some.along, "exponents": some.exponents()}
            for some in series(self.rows)
        ]
        return head | rest | {"rows": [row.to_json() for row in self.rows], "fits": grown}

    @classmethod
    def from_json(cls, given: Any) -> Report:
        """Return the report that was written."""
        if not isinstance(given, dict) or given.get("schema") != SCHEMA:
            raise ReportError(f'this is no report of `shardwise bench`: no "schema": "{SCHEMA}".')
        if given.get("version") != VERSION:
            raise ReportError(f"this report has version {given.get('version')!r}; version {VERSION} can be read.")
        rest = {name: given[name] for name in ("effort", "date", "load", "seconds", "failures")}
        return cls(Machine(**given["machine"]), rows=[Row.from_json(row) for row in given["rows"]], **rest)


def write(report: Report, path: Path) -> None:
    """Write a report as JSON."""
    path.write_text(json.dumps(report.to_json(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read(path: Path) -> Report:
    """Read a report from JSON."""
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ReportError(f"{path} is not JSON: {error}.") from None
    return Report.from_json(given)
