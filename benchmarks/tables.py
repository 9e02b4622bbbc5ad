"""Tables: a report in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.areas import AREAS
from benchmarks.fits import Series, series
from benchmarks.report import Report
from benchmarks.row import Row
from benchmarks.words import digits, measure, times, verdict

COLORS = {"won": "green", "even": "", "lost": "red", "failed": "bold red", "": ""}


def show(report: Report, console: Console) -> None:
    """Print a report."""
    console.print(Text(f"\n{conditions(report)}"))
    for area in AREAS:
        rows = report.of(area.name)
        if rows:
            console.print()
            console.print(table(area.title, rows))
            for line in notes(rows):
                console.print(Text(f"  {line}", style="dim"))
    if found := series(report.rows):
        console.print()
        console.print(growth(found))
    for name, why in report.failures.items():
        console.print(Text(f"\n{name} failed: {why}", style="bold red"))
    console.print()
    console.print(Text(summary(report)))


def table(title: str, rows: Sequence[Row]) -> RenderableType:
    """Return the rows of one area as a table."""
    peers = list(dict.fromkeys(peer for row in rows for peer in (*row.peers, *row.missing)))
    floors = list(dict.fromkeys(row.floor.name for row in rows if row.floor))
    floor = floors[0] if len(floors) == 1 else "floor"
    out = Table(title=title, title_justify="left", title_style="bold")
    for name in ("row", "size", "mesh", "state"):
        out.add_column(name, overflow="fold")
    for name in ("ours", *peers, *([floor, "ours / floor"] if floors else []), "against the best peer"):
        out.add_column(name, justify="right", overflow="fold")
    for row in rows:
        cells = [measure(m, row.unit) for m in (row.ours, *(row.peers.get(peer) for peer in peers))]
        if floors:
            cells += [measure(row.floor.measure if row.floor else None, row.unit), times(row.ratio)]
        ending = Text(verdict(row), style=COLORS[row.verdict])
        out.add_row(Text(row.name), row.size, row.mesh, row.state, *cells, ending)
    return out


def growth(found: Sequence[Series]) -> RenderableType:
    """Return the power that each contender grows with, as a table."""
    out = Table(title="The power that it grows with (1: in proportion)", title_justify="left", title_style="bold")
    out.add_column("what, by what")
    out.add_column("from, to")
    out.add_column("powers", overflow="fold")
    for some in found:
        powers = ", ".join(f"{name} {power:.2f}" for name, power in some.exponents().items())
        first, last = (digits(row.at[some.along]) for row in (some.rows[0], some.rows[-1]))
        out.add_row(Text(some.title), f"{first}, {last}", powers)
    return out


def notes(rows: Sequence[Row]) -> list[str]:
    """Return what tables have no room for: failures, notes, and why peers are missing; each once."""
    found: dict[str, list[str]] = {}
    for row in rows:
        texts = [f"{peer}: {why}" for peer, why in row.missing.items()]
        texts += [row.note] * bool(row.note) + [row.checked] * row.failed
        for text in texts:
            found.setdefault(text, []).append(f"{row.name} {row.size} {row.mesh}".strip())
    return [f"{_few(list(dict.fromkeys(names)))}: {text}" for text, names in found.items()]


def _few(names: list[str]) -> str:
    return ", ".join(names) if len(names) < 4 else f"{names[0]} and {len(names) - 1} more"


def conditions(report: Report) -> str:
    """Return where and how a report was made, and whether its times are worth anything."""
    busy = " The machine was busy: times are not to be relied on." if report.busy else ""
    load = f"The load of the machine in the minute before was {report.load:.2f}."
    return f"A {report.effort} run of {report.date} on {report.machine}. {load}{busy}"


def summary(report: Report) -> str:
    """Return how many rows ended how."""
    counts = {ending: sum(row.verdict == ending for row in report.rows) for ending in ("won", "even", "lost", "failed")}
    against = ", ".join(f"{count} {ending}" for ending, count in counts.items() if count or ending != "failed")
    seconds = sum(report.seconds.values())
    return f"{len(report.rows)} rows in {seconds:.0f} s; against the best peer of each: {against}."
