"""`shardwise postmortem`: what every process of a job did last, and who was first to go wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shardwise.errors import ShardwiseError, printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from shardwise.engine.recording.record import Entry, Event, RankRecord
    from shardwise.engine.recording.timeline import Meeting, Timeline
    from shardwise.engine.recording.verdict import Verdict

MOST_ROWS = 64  # ranks in the table; of more, those that are not like the others


@click.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("--calls", type=click.IntRange(min=0), default=10, show_default=True, help="How many of the last calls.")
@click.option("--json", "as_json", is_flag=True, help="Print all that is known as JSON.")
@click.option("--trace", type=click.Path(dir_okay=False, path_type=Path), help="Write a trace for ui.perfetto.dev.")
def postmortem(folder: Path | None, calls: int, as_json: bool, trace: Path | None) -> None:
    """Say who was first to go wrong, and what the others waited for, from the records in FOLDER.

    Every process keeps its last calls in a file there, also one that is killed; `shardwise run` says where. Without
    FOLDER it is that of the newest job of this user. A job that still runs can be asked too.
    """
    from rich.console import Console

    from shardwise.engine.recording.folder import newest_folder
    from shardwise.engine.recording.timeline import read_timeline
    from shardwise.engine.recording.verdict import judge

    try:
        folder = newest_folder() if folder is None else folder
        timeline = read_timeline(folder)
        verdict = judge(timeline)
    except ShardwiseError as error:
        raise click.ClickException(str(error)) from None
    if trace is not None:
        _write_trace(trace, timeline)
    if as_json:
        click.echo(json.dumps(_data(timeline, verdict), ensure_ascii=False, indent=1))
        return
    console = Console()
    console.print(_report(console, folder, timeline, verdict, calls))


def _report(console: Console, folder: Path, timeline: Timeline, verdict: Verdict, calls: int) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    some = next(iter(timeline.records.values()))
    start = min(record.started for record in timeline.records.values())
    head = f"{timeline.size} ranks, from {datetime.fromtimestamp(start):%Y-%m-%d %H:%M:%S}: {some.command}"
    out: list[RenderableType] = [Text(head, style="dim"), Text(str(verdict), style="bold"), Text()]
    out.append(_rank_table(console, timeline, verdict))
    if calls and timeline.meetings:
        out += [Text(), _call_table(console, timeline.meetings[-calls:], timeline)]
    causes = _causes(timeline)
    lines = [*causes.values(), *_events(timeline, calls, causes), *timeline.problems[:8], *_stacks(folder)]
    out += [Text(), *map(Text, lines)] if lines else []
    return Group(*out)


def _table(names: Sequence[str], figures: Sequence[str], rows: Sequence[Sequence[str]], styles: Sequence[str]) -> Table:
    # Columns in which nothing stands are left out, and nothing is cut away.
    from rich.text import Text

    from shardwise.pictures.plan import headed_table

    kept = [k for k in range(len(names)) if any(row[k] for row in rows)]
    table = headed_table([names[k] for k in kept], figures)
    for column in table.columns:
        column.overflow = "fold"
    for row, style in zip(rows, styles, strict=True):
        table.add_row(*(Text(row[k]) for k in kept), style=style)
    return table


def _fits(console: Console, table: Table) -> bool:
    return console.measure(table, options=console.options.update(width=10_000)).maximum <= console.width


def _rank_table(console: Console, timeline: Timeline, verdict: Verdict) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    shown = _ranks_shown(timeline, verdict)
    styles = ["bold" if rank in verdict.first else "" for rank in shown]
    names = ("rank", "state", "last call", "sequence", "iteration", "since", "for", "waits for", "line")
    heads = [[str(rank), timeline.state(rank)] for rank in shown]
    cells = [_rank_cells(timeline, timeline.records.get(rank)) for rank in shown]
    rows = [head + more for head, more in zip(heads, cells, strict=True)]
    table = _table(names, ("rank", "sequence", "iteration", "for"), rows, styles)
    if not _fits(console, table):
        rows = [[*head, more[3], _rank_text(*more)] for head, more in zip(heads, cells, strict=True)]
        table = _table(("rank", "state", "since", "last call"), ("rank",), rows, styles)
    if len(shown) == timeline.size:
        return table
    return Group(table, Text(f"and {timeline.size - len(shown)} ranks more; --json has all"))


def _ranks_shown(timeline: Timeline, verdict: Verdict) -> list[int]:
    if timeline.size <= MOST_ROWS:
        return list(range(timeline.size))
    order = [*verdict.first, *verdict.waiters, *range(timeline.size)]
    return sorted(list(dict.fromkeys(order))[:MOST_ROWS])


def _rank_cells(timeline: Timeline, record: RankRecord | None) -> list[str]:
    from shardwise.engine.recording.verdict import ranks_of_text, short
    from shardwise.pictures.plan import time_text

    if record is None:
        return [""] * 7
    entry = record.last
    if entry is None:
        return ["none", "", "", _clock(record.started), "", "", short(record.place) if record.place else ""]
    call = [entry.step, str(entry.sequence), "" if entry.iteration is None else str(entry.iteration)]
    if entry.is_done and entry.ended is not None:
        line = record.place if record.place and record.beat > entry.ended else entry.line
        return [f"after {entry.step}", *call[1:], _clock(entry.ended), "", "", short(line)]
    end = timeline.now if entry.failed is None else entry.failed
    others = [rank for rank in entry.waits if rank != entry.rank]  # who is at odds with others is named with them
    waits = ranks_of_text(others, entry.waits_count - (len(entry.waits) - len(others)))
    return [*call, _clock(entry.began), time_text(max(0.0, end - entry.began)), waits, short(entry.line)]


def _rank_text(call: str, sequence: str, iteration: str, _: str, seconds: str, waits: str, line: str) -> str:
    # The same for a narrow terminal, but for the time.
    numbers = [f"sequence {sequence}"] * bool(sequence) + [f"iteration {iteration}"] * bool(iteration)
    whom = f" for {waits}" * bool(waits)
    words = [call, f"({', '.join(numbers)})" * bool(numbers), f"at {line}" * bool(line)]
    return " ".join(filter(None, words)) + f", {seconds}{whom}" * bool(seconds)


def _call_table(console: Console, meetings: Sequence[Meeting], timeline: Timeline) -> RenderableType:
    rows, styles = [_call_cells(timeline, meeting) for meeting in meetings], [""] * len(meetings)
    names = ("time", "call", "group", "number", "iteration", "came last", "took", "bytes", "line")
    table = _table(names, ("number", "iteration", "took", "bytes"), rows, styles)
    if _fits(console, table):
        return table
    rows = [[row[0], row[6], _call_text(*row[1:6], *row[7:])] for row in rows]
    return _table(("time", "took", "call"), ("took",), rows, styles)


def _call_cells(timeline: Timeline, meeting: Meeting) -> list[str]:
    from shardwise.engine.recording.verdict import ranks_of_text, short
    from shardwise.pictures.plan import size_text, time_text

    first, last, missing = meeting.first, meeting.last, timeline.missing(meeting.first)
    came = f"{last.rank}, {time_text(last.began - first.began)} later" if last is not first else ""
    if missing:
        came = f"not {ranks_of_text(missing, len(missing))}"
    elif meeting.is_mismatch:
        came = "different calls"
    is_failure = any(entry.failure is not None and not entry.is_done for entry in meeting.entries)
    took = "failed" if is_failure else "" if meeting.ended is None else time_text(meeting.ended - first.began)
    size = sum(entry.received for entry in meeting.entries)
    iteration = "" if first.iteration is None else str(first.iteration)
    cells = [_clock(first.began), first.step, first.group, str(first.number), iteration, came, took]
    return [*cells, size_text(size) if size else "", short(first.line)]


def _call_text(call: str, group: str, number: str, iteration: str, came: str, size: str, line: str) -> str:
    last = "came last: " * came.endswith("later")
    if came.startswith("not "):
        came = f"{came.removeprefix('not ')} did not come"
    which = f"{call} {number} of {group}" + f" in iteration {iteration}" * bool(iteration)
    return f"{which} at {line}" + f", {size}" * bool(size) + f"; {last}{came}" * bool(came)


def _causes(timeline: Timeline) -> dict[str, str]:
    # How calls failed and ranks ended, by the first lines of the texts: those who say the same in one line.
    from shardwise.engine.recording.verdict import first_line

    ranks_by_text: dict[str, list[int]] = {}
    for rank, record in timeline.records.items():
        failures = [entry.failure for entry in record.entries if entry.failure]
        cause = record.cause.removeprefix("it left with ") if failures else record.cause
        for text in dict.fromkeys(first_line(text) for text in [*failures[:1], cause] if text):
            ranks_by_text.setdefault(text, []).append(rank)
    return {text: _quote(ranks, text) for text, ranks in ranks_by_text.items()}


def _events(timeline: Timeline, most: int, causes: Mapping[str, str]) -> list[str]:
    # What several heard is one line; what those who said it have in their own records is left out.
    from shardwise.engine.recording.verdict import first_line

    known = [text.partition(": ")[2] for text in causes] + [*causes]
    events: dict[str, list[Event]] = {}
    for event in timeline.events:
        text = first_line(event.text)
        if not any(said and text.endswith(f": {said}") for said in known):
            events.setdefault(text, []).append(event)
    lines = [f"{_clock(some[0].when)} {_quote(sorted({e.rank for e in some}), text)}" for text, some in events.items()]
    return lines[-most:] if most else []


def _stacks(folder: Path) -> list[str]:
    from shardwise.engine.recording.recorder import STACKS, ranks_text

    ranks: list[int] = []
    for path in folder.glob(f"rank-*.{STACKS}"):
        number = path.name.removeprefix("rank-").removesuffix(f".{STACKS}")
        with suppress(OSError):
            if number.isascii() and number.isdecimal() and path.lstat().st_size:
                ranks.append(int(number))
    return [
        f"stacks of Python: {printable(str(folder), keep='')}/rank-*.{STACKS}, of {ranks_text(sorted(ranks))}"
    ] * bool(ranks)


def _quote(ranks: list[int], text: str) -> str:
    from shardwise.engine.recording.verdict import name_ranks

    return f"{name_ranks(ranks)}: {text}"


def _clock(when: float) -> str:
    return f"{datetime.fromtimestamp(when):%H:%M:%S.%f}"[:-3]


def _data(timeline: Timeline, verdict: Verdict) -> dict[str, Any]:

    def entry_data(entry: Entry) -> dict[str, Any]:
        return {name: value for name, value in asdict(entry).items() if name not in ("rank", "key", "digest")}

    def rank_data(rank: int, record: RankRecord) -> dict[str, Any]:
        plain = asdict(record) | {"state": timeline.state(rank), "path": printable(str(record.path), keep="")}
        return plain | {"entries": [entry_data(entry) for entry in record.entries]}

    ranks = {rank: rank_data(rank, record) for rank, record in timeline.records.items()}
    return {
        "verdict": asdict(verdict),
        "size": timeline.size,
        "absent": timeline.absent,
        "now": timeline.now,
        "ranks": ranks,
        "problems": timeline.problems,
    }


def _write_trace(path: Path, timeline: Timeline) -> None:
    from shardwise.pictures.trace import trace
    from shardwise.plan.record import Record

    records: list[Record] = []
    for record in timeline.records.values():
        for entry in record.entries:
            end = timeline.now if entry.ended is None else entry.ended
            moving = end if entry.agreed is None else entry.agreed
            for kind, begin, until, size in (
                ("waiting for others", entry.began, moving, 0),
                (entry.step, moving, end, entry.received),
            ):
                if until > begin:
                    seconds = until - begin
                    note = (kind, (), str(entry), entry.what)
                    records.append(Record(*note, entry.received, size, seconds, entry.line, begin, entry.rank))
    try:
        path.write_text(json.dumps(trace(records), ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"--trace {path} cannot be written: {error.strerror}.") from None
