"""Explanations as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from shardwise.pictures.plan import count_text, plain, size_text

if TYPE_CHECKING:
    from shardwise.prim.explanation import Explanation


def explanation_text(found: Explanation) -> str:
    """Return the table of an explanation as plain text."""
    return plain(explanation_table(found))


def explanation_table(found: Explanation) -> RenderableType:
    """Return the table of an explanation: equal steps of one line together, with how often they are taken."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("times", "step", "over", "from", "to", "bytes", "per device", "line"):
        table.add_column(name, justify="right" if name in ("times", "bytes", "per device") else "left")
    counts: dict[tuple[str, ...], list[int]] = {}
    for step in found:
        line = "/".join(step.line.split("/")[-2:])
        key = (step.kind, ", ".join(step.axes), step.before, step.after, line)
        entry = counts.setdefault(key, [0, 0, 0])
        for i, amount in enumerate((1, step.bytes, step.busiest)):
            entry[i] += amount
    for (kind, axes, before, after, line), (times, total, busiest) in counts.items():
        sizes = size_text(total), size_text(busiest)
        table.add_row(*map(Text, (str(times), kind, axes, before, after, *sizes, line)))
    text = f"{count_text(len(found), 'step')}, {size_text(found.bytes)} between {count_text(found.devices, 'device')}; "
    return Group(table, Text(f"{text}at most {size_text(found.peak_memory)} of memory on a device"))
