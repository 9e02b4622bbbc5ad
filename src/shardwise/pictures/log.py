"""Communication logs as tables."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.text import Text

from shardwise.pictures.drawing import plain
from shardwise.pictures.plan import count_text, headed_table, size_text, time_text
from shardwise.plan.record import Record


def log_text(log: Iterable[Record]) -> str:
    """Return the table of a log as plain text."""
    return plain(log_table(log))


def log_table(log: Iterable[Record]) -> RenderableType:
    """Return the table of a log: each step with layouts, bytes, time and the user's line."""
    table = headed_table(("step", "over", "from", "to", "bytes", "time", "line"), ("bytes", "time"))
    records = list(log)
    for record in records:
        row = [record.kind, ", ".join(record.axes), record.before, record.after, size_text(record.bytes)]
        row += [time_text(record.seconds), "/".join(record.line.split("/")[-2:])]
        table.add_row(*map(Text, row))
    total = size_text(sum(record.bytes for record in records))
    return Group(table, Text(f"{count_text(len(records), 'step')}, {total} between devices"))
