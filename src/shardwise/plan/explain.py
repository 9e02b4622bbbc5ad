"""Explanations: a plan beside the obvious alternatives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from shardwise.errors import seal
from shardwise.layout.axis import Axis, common, merge, without
from shardwise.layout.cut import Cut
from shardwise.layout.layout import Layout
from shardwise.layout.notebook import Tabular
from shardwise.layout.tiling import Box, box_size, intersect
from shardwise.plan.cost import move_time
from shardwise.plan.search import Search, fraction_in_place, volume
from shardwise.plan.steps import COUNTED, State, Step, add_bytes


@seal
@dataclass(frozen=True, slots=True)
class Alternative:
    """One way to make a transition: its steps, the bytes that devices receive, its modelled time, and its memory.

    `memory` is the most that a device needs at once: a step's old and new shard, and what is staged between them.
    On very large meshes the bytes are an estimate, that of the cost model.
    """

    name: str
    steps: tuple[str, ...]
    received_max: int
    received_total: int
    time: float
    memory: int
    is_estimate: bool = False


@seal
@dataclass(frozen=True, slots=True)
class Explanation(Tabular):
    """A plan beside the obvious alternatives, and why it won."""

    chosen: Alternative
    alternatives: tuple[Alternative, ...]
    why: str


def explain_plan(search: Search, steps: Sequence[Step], memory_limit: int) -> Explanation:
    """Return a plan beside the obvious alternatives; on very large meshes with bytes as the cost model sees them."""
    chosen = _alternative("this plan", steps, search, memory_limit)
    if not steps:
        return Explanation(chosen, (), _why(chosen, ()))
    alternatives = [_alternative(name, steps, search, memory_limit) for name, steps in _step_alternatives(search)]
    alternatives.append(_direct_fetch(search, memory_limit))
    return Explanation(chosen, tuple(alternatives), _why(chosen, alternatives))


def _alternative(name: str, steps: Sequence[Step], search: Search, memory_limit: int) -> Alternative:
    kinds, time, count = tuple(map(str, steps)), sum(step.time for step in steps), search.slots.count
    memory = max((_memory(step, search, memory_limit) for step in steps), default=_shard_bytes(search.src, search))
    if count > COUNTED:
        most = round(sum(sum(step.estimates) for step in steps))
        return Alternative(name, kinds, most, most * count, time, memory, is_estimate=True)
    each = sum((step.received.each for step in steps if not step.is_local), np.zeros(1, dtype=np.int64))
    return Alternative(name, kinds, int(each.max()), add_bytes(each), time, memory)


def _memory(step: Step, search: Search, memory_limit: int) -> int:
    staged = step.staged(max(memory_limit, step.least_staging)).staging_bytes
    return _shard_bytes(step.before, search) + _shard_bytes(step.after, search) + staged


def _shard_bytes(state: State, search: Search) -> int:
    # A share is at most what the device needs in the end.
    layout = state if isinstance(state, Layout) else state.dst.layout
    return prod(layout.tiling(search.shape).largest) * search.itemsize


def _step_alternatives(search: Search) -> Iterator[tuple[str, list[Step]]]:
    if search.numbers is None:
        whole = Layout.replicated(search.src.mesh, search.src.rank)
        yield "gather, then slice", search.chain([search.src, whole, search.dst])
        yield "axis by axis", search.chain(list(_axis_by_axis(search.src, search.dst)))


def _direct_fetch(search: Search, memory_limit: int) -> Alternative:
    # Every device fetches all it needs, every contribution to it included, in one round.
    src, dst = search.holders(search.src, 0), search.holders(search.dst, 1)
    pending = next(search.options(search.src, search.dst)).pending
    crowd = search.crowd(search.src, search.dst) if search.is_crowded else None
    each, count = [], search.slots.count
    if count > COUNTED:
        in_place = fraction_in_place(search.src, search.dst, search.shape) if search.numbers is None else 0.0
        each = [round(volume(dst) * (prod(a.size for a in pending) - in_place)) * search.itemsize]
    for slot in range(count) if count <= COUNTED else ():
        if crowd is not None:
            each.append(crowd.count_fetched(slot) * search.itemsize)
            continue
        box, own = dst.box(slot), src.box(slot)
        boxes = [] if box is None else [common for _, common in src.tiling.cells(box)]
        own_size = sum(_size(intersect(part, own)) for part in boxes if part and own)
        each.append((sum(map(_size, boxes)) * prod(a.size for a in pending) - own_size) * search.itemsize)
    levels = [(search.slots.count, search.links.default)]
    if search.numbers is None:
        levels = search.links.on(search.src.mesh, [search.src.mesh.axis(n) for n in search.src.mesh.axis_names])
    total = sum(each) if count <= COUNTED else max(each) * count
    memory = _shard_bytes(search.src, search) + _shard_bytes(search.dst, search) + min(max(each), memory_limit)
    time, is_estimate = move_time(levels, max(each)), count > COUNTED
    return Alternative("one direct exchange", ("exchange",), max(each), total, time, memory, is_estimate)


def _size(box: Box | None) -> int:
    return 0 if box is None else box_size(box)


def _axis_by_axis(src: Layout, dst: Layout) -> Iterator[Layout]:
    # One mesh axis after the other takes its new role, the last axis of the mesh first.
    yield src
    switched: list[Axis] = []
    is_same = src.reduce_op is dst.reduce_op or not (src.partial and dst.partial)
    for name in reversed(src.mesh.axis_names):
        switched.append(src.mesh.axis(name))
        pairs = zip(src.dims, dst.dims, strict=True)
        dims = [merge([*without(old.axes, switched), *common(new.axes, switched)]) for old, new in pairs]
        pending = [*without(src.partial, switched), *(common(dst.partial, switched) if is_same else ())]
        yield Layout(src.mesh, [Cut(axes) for axes in dims], pending, (src.reduce_op or dst.reduce_op or "sum"))
    yield dst


def _why(chosen: Alternative, alternatives: Sequence[Alternative]) -> str:
    if not chosen.steps:
        return "Both layouts put the same boxes on the same devices, so there is nothing to do."
    if chosen.received_total == 0:
        return "Every device already holds what it needs, so nothing is sent."
    out: list[str] = []
    for other in alternatives:
        if other.received_total > chosen.received_total:
            ratio = other.received_total / chosen.received_total
            about = "about " if other.is_estimate else ""
            out.append(f"{other.name} would move {about}{ratio:.3g} times the bytes")
        elif other.time > chosen.time * 1.001:
            out.append(f"{other.name} would move as much, but take {other.time / chosen.time:.3g} times as long")
        elif len(other.steps) > len(chosen.steps):
            out.append(f"{other.name} would need {len(other.steps)} steps instead of {len(chosen.steps)}")
        else:
            out.append(f"{other.name} comes to the same")
    return "; ".join(out) + "."
