"""Candidates: how the loops of an op can be spread, and which of these is cheapest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from shardwise.caches import cache
from shardwise.errors import seal
from shardwise.ir.passes.layouts import is_sayable
from shardwise.ir.passes.rules import OpRule
from shardwise.layout.axis import overlap
from shardwise.layout.cut import Cut
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.mesh import DeviceMesh
from shardwise.layout.placement import ReduceOp, reductions_of
from shardwise.plan.plan import plan_reshard
from shardwise.prim.rule import Dims, Factor

MOST = 256  # candidates that are looked at


@seal
@dataclass(frozen=True, slots=True)
class End:
    """An operand or result: its shape and dtype, how it is spread (None if that is free), and how firmly."""

    shape: Shape
    dtype: np.dtype
    layout: Layout | None = None
    hard: bool = False


@seal
@dataclass(frozen=True, slots=True)
class Candidate:
    """The layout that each operand is brought into (None if it is no tensor), and that of each result."""

    operands: tuple[Layout | None, ...]
    results: tuple[Layout, ...]


@cache(entries=8192)
def find_cheapest(
    rule: OpRule, operands: tuple[End | None, ...], results: tuple[End, ...], mesh: DeviceMesh
) -> Candidate:
    """Return the candidate that moves the fewest bytes, and if possible none of what is said firmly.

    Results may be left partial; resolving them, to what is said of them or where they are, is part of the cost.
    """
    best: tuple[tuple[float, ...], Candidate] | None = None
    for candidate in iterate_candidates(rule, operands, results, mesh):
        cost = _cost(candidate, operands, results)
        if best is None or cost < best[0]:
            best = (cost, candidate)
        if cost[:2] == (0, 0):  # those that follow are less spread
            break
    assert best is not None, "an op with nothing spread is always possible"
    return best[1]


def iterate_candidates(
    rule: OpRule, operands: Sequence[End | None], results: Sequence[End], mesh: DeviceMesh
) -> Iterator[Candidate]:
    """Yield how an op can be spread, each factor cut as an operand or a result has it cut, or whole."""
    choices = _choices(rule, operands, results, mesh)
    count = 0
    for cuts in product(*choices.values()):
        used = [axis for cut in cuts for axis in cut.axes]
        if any(a == b or overlap(a, b) for i, a in enumerate(used) for b in used[:i]):
            continue
        candidate = _candidate(rule, dict(zip(choices, cuts, strict=True)), operands, results, mesh)
        if candidate is None:
            continue
        yield candidate
        count += 1
        if count >= MOST:
            return


def _choices(
    rule: OpRule, operands: Sequence[End | None], results: Sequence[End], mesh: DeviceMesh
) -> dict[Factor, list[Cut]]:
    every = [*zip(rule.operands, operands, strict=True), *zip(rule.results, results, strict=True)]
    out: dict[Factor, list[Cut]] = {f: [] for dims, _ in every for f in dims or () if f is not None}
    sizes: dict[Factor, set[int]] = {f: set() for f in out}
    for dims, end in every:
        for factor, size in zip(dims or (), end.shape if end is not None else (), strict=False):
            if factor is not None:
                sizes[factor].add(size)
    for dims, end in sorted(every, key=lambda pair: not (pair[1] is not None and pair[1].hard)):
        if dims is None or end is None or end.layout is None or end.layout.mesh is not mesh:
            continue
        for factor, cut in zip(dims, end.layout.dims, strict=True):
            if factor is None or not cut.axes or factor in rule.whole:
                continue
            fit = _fit(rule, factor, cut, sizes[factor])
            if fit is not None and fit not in out[factor]:
                out[factor].append(fit)
    # A list that is too long is cut at its end, where nothing is spread: that comes first then.
    most = 1 if prod(len(cuts) + 1 for cuts in out.values()) > MOST else None
    return {factor: [*cuts[:most], Cut()] for factor, cuts in out.items()}


def _fit(rule: OpRule, factor: Factor, cut: Cut, sizes: set[int]) -> Cut | None:
    # The cut that the factor can have: reduced loops have no halos, and regrouped dims only equal parts.
    if factor in rule.even:
        parts = prod(axis.size for axis in cut.axes)
        plain = Cut(cut.axes)
        return plain if cut.offsets is None and all(size % parts == 0 for size in sizes) else None
    if len(sizes) > 1 and cut.offsets is not None:
        return None
    return Cut(cut.axes, offsets=cut.offsets) if factor in rule.reduced else cut


def _candidate(
    rule: OpRule, cuts: dict[Factor, Cut], operands: Sequence[End | None], results: Sequence[End], mesh: DeviceMesh
) -> Candidate | None:
    pending = [axis for factor in rule.reduced for axis in cuts[factor].axes]
    outputs: list[Layout] = []
    for k, (dims, end) in enumerate(zip(rule.results, results, strict=True)):
        how = rule.combine[k] if pending else ReduceOp.SUM
        if pending and how not in reductions_of(end.dtype):
            return None
        outputs.append(Layout(mesh, _dims(dims, cuts), pending, how))
    count = len(operands) if rule.inits is None else rule.inits
    inputs = [
        None if dims is None or end is None else Layout(mesh, _dims(dims, cuts))
        for dims, end in zip(rule.operands[:count], operands[:count], strict=True)
    ]
    inits = [layout.resolved() for layout in outputs] if rule.inits is not None else []
    if not all(is_sayable(layout) for layout in (*inputs, *outputs) if layout is not None):
        return None
    return Candidate((*inputs, *inits), tuple(outputs))


def _dims(dims: Dims, cuts: dict[Factor, Cut]) -> list[Cut]:
    return [Cut() if factor is None else cuts[factor] for factor in dims]


def _cost(candidate: Candidate, operands: Sequence[End | None], results: Sequence[End]) -> tuple[float, ...]:
    firm, total, time, work = 0, 0.0, 0.0, 0
    moves: list[tuple[End, Layout, Layout]] = []
    for end, layout in zip(operands, candidate.operands, strict=True):
        if end is None or layout is None:
            continue
        work += prod(layout.tiling(end.shape).largest)
        if end.layout is not None and end.layout is not layout:
            moves.append((end, end.layout, layout))
    for end, layout in zip(results, candidate.results, strict=True):
        work += prod(layout.tiling(end.shape).largest)
        to = end.layout if end.layout is not None else layout.resolved()
        if to is not layout:
            moves.append((end, layout, to))
    for end, src, dst in moves:
        plan = plan_reshard(src, dst, end.shape, end.dtype)
        total += plan.estimate
        time += plan.time
        firm += bool(end.hard and plan.estimate and src.partial == dst.partial)
    return firm, total, round(time, 12), work
