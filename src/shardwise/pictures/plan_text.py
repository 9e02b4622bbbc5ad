"""Plans in text: the table, the layouts before and after, and who sends what to whom."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from shardwise.layout.layout import Layout
from shardwise.pictures.binding import bind_layout
from shardwise.pictures.palette import INKS, hue
from shardwise.pictures.plan import plan_table, step_lines, unit_of
from shardwise.pictures.text import bound_rich
from shardwise.pictures.traffic import MOST_STEPS, TrafficRound, rounds, sentence
from shardwise.plan.plan import Plan
from shardwise.plan.steps import State, Step


def plan_rich(plan: Plan, width: int | None = None) -> RenderableType:
    """Return the drawing of a plan, step by step."""
    out: list[RenderableType] = [plan_table(plan), *_state(plan, plan.src, "from", width)]
    for index, step in enumerate(plan.steps[:MOST_STEPS]):
        out += [
            Text(),
            Text(f"step {index + 1} of {len(plan.steps)}: {step}", style="bold"),
            Text(", ".join(step_lines(step))),
        ]
        out += _traffic(step)
        out += _state(plan, step.after, "to", width)
    if len(plan.steps) > MOST_STEPS:
        out.append(Text(f"... and {len(plan.steps) - MOST_STEPS} more steps"))
    return Group(*out)


def _state(plan: Plan, state: State, word: str, width: int | None) -> list[RenderableType]:
    head: list[RenderableType] = [Text(), Text(f"{word} {state}", style="bold")]
    return [*head, bound_rich(bind_layout(state, plan.shape), width)] if isinstance(state, Layout) else head


def _traffic(step: Step) -> list[RenderableType]:
    out: list[RenderableType] = []
    for round_ in rounds(step):
        out += _round(round_)
    return out


def _round(round_: TrafficRound) -> list[RenderableType]:
    if not round_.slots:
        return [Text(round_.title), *(Text(f"  {sentence(round_, transfer)}") for transfer in round_.listed)]
    unit, scale = unit_of(round_.most)
    note = f"{round_.title}: {unit} from row to column{', added up on arrival' if round_.reduces else ''}"
    table = Table(box=None, pad_edge=False, header_style="dim", collapse_padding=True)
    table.add_column("", justify="right", style="dim", no_wrap=True)
    for slot in round_.slots:
        table.add_column(round_.name(slot), justify="right", no_wrap=True)
    for source in round_.slots:
        row = [Text(round_.name(source))]
        for target in round_.slots:
            size = round_.bytes(source, target)
            row.append(Text(f"{size / scale:.3g}" if size else "·", style=INKS[hue(source)] if size else "dim"))
        table.add_row(*row)
    return [Text(note), table]
