"""Communication logs as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from shardwise.pictures.plan import count_text, plain, size_text, time_text

if TYPE_CHECKING:
    from shardwise.engine.log import CommunicationLog


def log_text(log: CommunicationLog) -> str:
    """Return the table of a log as plain text."""
    return plain(log_table(log))


def log_table(log: CommunicationLog) -> RenderableType:
    """Return the table of a log: each step with layouts, bytes, time and the user's line."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("step", "over", "from", "to", "bytes", "time", "line"):
        table.add_column(name, justify="right" if name in ("bytes", "time") else "left")
    for record in log:
        row = [record.kind, ", ".join(record.axes), record.before, record.after, size_text(record.bytes)]
        row += [time_text(record.seconds), "/".join(record.line.split("/")[-2:])]
        table.add_row(*map(Text, row))
    return Group(table, Text(f"{count_text(len(log), 'step')}, {size_text(log.bytes)} between devices"))
