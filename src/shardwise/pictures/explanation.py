"""Explanations as tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from shardwise.pictures.plan import count_text, headed_table, size_text
from shardwise.plan.record import Record


def explanation_table(steps: Sequence[Record], devices: int, peak_memory: int) -> RenderableType:
    """Return the table of an explanation: equal steps of one line together, with how often they are taken."""
    names = ("times", "step", "over", "from", "to", "bytes", "per device", "line")
    table = headed_table(names, ("times", "bytes", "per device"))
    counts: dict[tuple[str, ...], list[int]] = {}
    for step in steps:
        line = "/".join(step.line.split("/")[-2:])
        key = (step.kind, ", ".join(step.axes), step.before, step.after, line)
        entry = counts.setdefault(key, [0, 0, 0])
        for i, amount in enumerate((1, step.bytes, step.busiest)):
            entry[i] += amount
    for (kind, axes, before, after, line), (times, total, busiest) in counts.items():
        sizes = size_text(total), size_text(busiest)
        table.add_row(*map(Text, (str(times), kind, axes, before, after, *sizes, line)))
    total = size_text(sum(step.bytes for step in steps))
    text = f"{count_text(len(steps), 'step')}, {total} between {count_text(devices, 'device')}; "
    return Group(table, Text(f"{text}at most {size_text(peak_memory)} of memory on a device"))
