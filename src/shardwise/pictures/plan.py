"""Plans as tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from shardwise.layout.mesh import place_of
from shardwise.plan.explain import Alternative, Explanation
from shardwise.plan.plan import Plan
from shardwise.plan.steps import COUNTED, Step


def explanation_table(explanation: Explanation) -> RenderableType:
    """Return the alternatives to a plan as a table, with the reason below it."""
    table = headed_table(ALTERNATIVES, ALTERNATIVES[2:])
    for row in (explanation.chosen, *explanation.alternatives):
        table.add_row(*map(Text, alternative_row(row)), style="green" if row is explanation.chosen else None)
    return Group(table, Text(explanation.why))


ALTERNATIVES = ("way", "steps", "receives at most", "all devices", "memory", "time")


def alternative_row(row: Alternative) -> list[str]:
    """Return one way to make a transition as the texts of a row; a device needs so much memory."""
    about = "~" if row.is_estimate else ""
    sizes = about + size_text(row.received_max), about + size_text(row.received_total), size_text(row.memory)
    return [row.name, ", ".join(row.steps) or "nothing", *sizes, time_text(row.time)]


def plan_table(plan: Plan) -> RenderableType:
    """Return the table of a plan: step, group, bytes in and out per device, extra memory and time."""
    title = Text(plan_title(plan), style="bold")
    if not plan.steps:
        return Group(title, Text("nothing to do"))
    table = headed_table(STEPS, STEPS[3:])
    for step in plan.steps:
        table.add_row(*map(Text, step_row(step)))
    return Group(title, table, Text(plan_total(plan)))


def headed_table(names: Sequence[str], figures: Sequence[str]) -> Table:
    """Return an empty table with columns of these names, those of figures to the right."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name, justify="right" if name in figures else "left")
    return table


def plan_title(plan: Plan) -> str:
    """Return what a plan is for: layouts, dtype, shape and mesh."""
    shape = "x".join(map(str, plan.shape)) or "0-d"
    src, dst = place_of(plan.src.mesh), place_of(plan.dst.mesh)
    where = f"on {src}" if plan.src.mesh is plan.dst.mesh else f"from {src} to {dst}"
    return f"{plan.src} -> {plan.dst}  {plan.dtype}[{shape}] {where}"


def step_lines(step: Step) -> list[str]:
    """Return what a device receives and sends in a step, and what it takes, in two short lines."""
    if step.is_local:
        return ["local"]
    _, _, _, received, sent, staging, chunks, time = step_row(step)
    moved = f"receives {received} a device" + ("" if sent == "-" else f", sends {sent}")
    return [moved, f"staging {staging}" + (f" in {chunks} chunks" if step.chunks > 1 else "") + f", {time}"]


STEPS = ("step", "over", "to", "receives", "sends", "staging", "chunks", "time")


def step_row(step: Step) -> list[str]:
    """Return a step as the texts of a row: bytes in and out per device, extra memory and time."""
    over = ", ".join(map(str, step.axes)) or ("" if step.is_local else "all")
    if step.is_local:
        return [step.kind, over, str(step.after), "-", "-", "-", "-", "-"]
    exact = step.slots.count <= COUNTED
    received = size_text(step.received.max) if exact else "~" + size_text(sum(step.estimates))
    sent = size_text(step.sent.max) if step.slots.count <= COUNTED // 16 else "-"
    costs = size_text(step.staging_bytes), str(step.chunks), time_text(step.time)
    return [step.kind, over, str(step.after), received, sent, *costs]


def plan_total(plan: Plan) -> str:
    """Return the bytes and the time of a plan as a whole."""
    if not plan.steps:
        return "nothing to do"
    if plan.search.slots.count > COUNTED:
        return f"time {time_text(plan.time)}, staging {size_text(plan.staging_bytes)} a device"
    return f"receives {_verdict(plan)}, time {time_text(plan.time)}"


def _verdict(plan: Plan) -> str:
    received, bound = plan.received, plan.lower_bound
    if bound.count_total is None:
        least = " (the least possible)" if np.array_equal(received.each, bound.each) else ""
        return f"at most {size_text(received.max)} a device{least}"
    least = " (the least possible)" if received.total == bound.total else ""
    return f"at most {size_text(received.max)} a device, {size_text(received.total)} in all{least}"


def count_text(count: int, noun: str) -> str:
    """Return a number with its noun.

    >>> count_text(1, "step"), count_text(2, "step")
    ('1 step', '2 steps')
    """
    return f"{count} {noun}{'' if count == 1 else 's'}"


UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def unit_of(most: float) -> tuple[str, int]:
    """Return the unit in which sizes up to `most` bytes are written, and its bytes.

    >>> unit_of(5000), unit_of(3)
    (('KiB', 1024), ('B', 1))
    """
    power = 0
    while most >= 1024 ** (power + 1) and power < len(UNITS) - 1:
        power += 1
    return UNITS[power], 1024**power


def size_text(size: float) -> str:
    """Return a number of bytes for people.

    >>> size_text(1536), size_text(3), size_text(5 * 2**30)
    ('1.5 KiB', '3 B', '5 GiB')
    """
    unit, scale = unit_of(size)
    return f"{_short(size / scale)} {unit}"


def time_text(seconds: float) -> str:
    """Return a time for people.

    >>> time_text(2.5e-5), time_text(0.0123)
    ('25 us', '12.3 ms')
    """
    for scale, unit in ((1e-6, "us"), (1e-3, "ms"), (1, "s")):
        if seconds < 1000 * scale or unit == "s":
            return f"{_short(seconds / scale)} {unit}"
    raise AssertionError


def _short(number: float) -> str:
    return f"{number:.3g}" if number < 999.5 else f"{number:.0f}"
