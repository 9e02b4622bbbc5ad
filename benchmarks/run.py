"""Runs: the areas one after another, with a progress bar."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from time import perf_counter

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.areas import Area, require
from benchmarks.clock import EFFORTS, Effort
from benchmarks.machine import this_machine
from benchmarks.process import AreaStopped, measured
from benchmarks.report import Report
from benchmarks.row import Row


def run(areas: Sequence[Area], effort: Effort = EFFORTS["quick"], console: Console | None = None) -> Report:
    """Measure areas and return the report; progress is shown on a console that is a terminal."""
    require(areas)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    rows: list[Row] = []
    seconds: dict[str, float] = {}
    failures: dict[str, str] = {}
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    columns = TextColumn("{task.description:12}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    bar = Progress(*columns, TextColumn("{task.fields[last]}"), console=console or Console(stderr=True), transient=True)
    counts = {area.name: area.module.count(effort) for area in areas}
    with bar:
        task = bar.add_task("", total=sum(counts.values()), last="")
        for area in areas:
            bar.update(task, description=area.name, last="starting")
            start = perf_counter()
            try:
                for row in measured(area, effort):
                    rows.append(row)
                    bar.update(task, advance=1, last=f"{row.name} {row.size} {row.mesh}".strip())
            except AreaStopped as error:
                failures[area.name] = str(error)
            seconds[area.name] = round(perf_counter() - start, 1)
    return Report(this_machine(), effort.name, date, round(load, 2), seconds, rows, failures)
