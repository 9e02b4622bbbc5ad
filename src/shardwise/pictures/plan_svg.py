"""Plans as SVG: layout after layout, and between them who sends what to whom."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from shardwise.layout.layout import Layout
from shardwise.layout.tiling import Box
from shardwise.pictures.binding import bind_layout, span_text
from shardwise.pictures.canvas import (
    LETTER,
    LINE,
    MARGIN,
    Block,
    below,
    beside,
    group,
    paragraph,
    rect,
    text_width,
    words,
)
from shardwise.pictures.layout_svg import layout_block
from shardwise.pictures.palette import hue
from shardwise.pictures.plan import plan_total, size_text, step_lines, unit_of
from shardwise.pictures.traffic import MOST_STEPS, TrafficRound, rounds, sentence
from shardwise.plan.plan import Plan
from shardwise.plan.steps import State, Step

MOST_PARTS = 8  # of one dim that are drawn in each layout
SCALE = 0.6  # of each layout
WIDEST = 780  # before a step is drawn in two rows; what a page of text leaves room for


def plan_block(plan: Plan) -> Block:
    """Return the drawing of a plan, step by step."""
    rows = [_state(plan, plan.src, "from")]
    for index, step in enumerate(plan.steps[:MOST_STEPS]):
        pieces = [_step(step, index, len(plan.steps)), _state(plan, step.after, "to")]
        row = beside(pieces, 2 * MARGIN)
        rows.append(row if row.width <= WIDEST else below(pieces))
    if len(plan.steps) > MOST_STEPS:
        rows.append(paragraph([f"… and {len(plan.steps) - MOST_STEPS} more steps"]))
    if len(rows) == 2 and (one := beside(rows, 2 * MARGIN)).width <= WIDEST:
        rows = [one]
    return below([paragraph([plan_total(plan)], "soft"), *rows], 1.5 * MARGIN)


def _state(plan: Plan, state: State, word: str) -> Block:
    head = paragraph([f"{word} {state}"], "head")
    if isinstance(state, Layout):
        return below([head, layout_block(bind_layout(state, plan.shape), MOST_PARTS, SCALE)], LINE / 2)
    lines = ["the devices that need an element share its", "reducing; each now holds what it has reduced"]
    if plan.search.slots.count <= MOST_PARTS:
        slots = range(plan.search.slots.count)
        lines += [_share(plan, slot, [box for _, box in state.boxes_to_reduce(slot)]) for slot in slots]
    return below([head, paragraph(lines, "soft")], LINE / 2)


def _share(plan: Plan, slot: int, boxes: Sequence[Box]) -> str:
    shown = " ".join("[" + ", ".join(map(span_text, box[: len(plan.shape)])) + "]" for box in boxes[:2])
    more = f" and {len(boxes) - 2} more" if len(boxes) > 2 else ""
    return f"device {plan.search.slots.name(slot)}: {shown or 'nothing'}{more}"


def _step(step: Step, index: int, count: int) -> Block:
    head = below([paragraph([f"step {index + 1} of {count}: {step}"], "head"), paragraph(step_lines(step), "soft")], 0)
    if step.is_local:
        return below([head, paragraph(["every device has what it needs; nothing is sent"], "soft")], LINE / 2)
    return below([head, *(_round(round_) for round_ in rounds(step))], LINE / 2)


def _round(round_: TrafficRound) -> Block:
    if round_.slots:
        unit, scale = unit_of(round_.most)
        note = f"{unit} from row to column" + (", added up on arrival" if round_.reduces else "")
        return below([paragraph([round_.title, note], "soft"), _matrix(round_, scale)], 4)
    listed = [sentence(round_, transfer) for transfer in round_.listed]
    lines = [round_.title, *(["such as"] if listed else []), *listed, *(["…"] if listed else [])]
    return paragraph(lines, "soft")


def _matrix(round_: TrafficRound, scale: int) -> Block:
    names = [round_.name(slot) for slot in round_.slots]
    shown = {pair: f"{round_.bytes(*pair) / scale:.3g}" for pair in round_.flows}
    width = max(map(text_width, (*names, *shown.values(), "000"))) + LETTER
    height, left, top = LINE * 1.25, max(map(text_width, names)) + 2 * LETTER, LINE * 1.25
    out: list[str] = []
    for k, name in enumerate(names):
        out.append(words(left + (k + 0.5) * width, LINE / 2, name, "soft", "middle"))
        out.append(words(left - LETTER, top + (k + 0.5) * height, name, "soft", "end"))
    for (i, source), (k, target) in product(enumerate(round_.slots), repeat=2):
        x, y = left + k * width, top + i * height
        if (source, target) not in round_.flows:
            out.append(rect(x, y, width - 2, height - 2, "none"))
            continue
        boxes = round_.flows[source, target]
        text = words(x + width / 2 - 1, y + height / 2 - 1, shown[source, target], "", "middle")
        box = rect(x, y, width - 2, height - 2, f"c{hue(source)}")
        size = size_text(round_.bytes(source, target))
        some = " ".join("[" + ", ".join(map(span_text, b)) + "]" for b in boxes[:4])
        title = f"{names[i]} → {names[k]}: {size}, {some}{' …' if len(boxes) > 4 else ''}"
        data = {"from": names[i], "to": names[k], "bytes": str(round_.bytes(source, target))}
        out.append(group([box, text], "flow", title, **data))
    count = len(round_.slots)
    return Block(left + count * width, top + count * height, tuple(out))
