"""Layout inference: the ways to lay out the operands of an op so that every device can work by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from shardwise.errors import seal
from shardwise.layout.axis import Axis, is_disjoint, overlap
from shardwise.layout.cut import Cut
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.mesh import DeviceMesh
from shardwise.layout.placement import ReduceOp
from shardwise.prim.rule import Factor, Rule

MOST = 256  # candidates that are looked at


@seal
@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to run an op: the layout that each operand is brought into, that of the result, the work of a device."""

    operands: tuple[Layout, ...]
    out: Layout
    work: int = 0  # multiplications, where those count beside what is sent


def find_candidates(
    rule: Rule, mesh: DeviceMesh, layouts: Sequence[Layout], shapes: Sequence[Shape]
) -> Iterator[Candidate]:
    """Yield the ways to run an op, those that change least first.

    Every factor is cut as one of the operands has it cut, or is whole; no axis serves two factors.
    """
    choices = _choices(rule, layouts)
    sizes = rule.sizes(tuple(shapes)) if rule.dense else {}
    count = 0
    for cuts in product(*choices.values()):
        used = [axis for cut in cuts for axis in cut.axes]
        if any(overlap(a, b) or a == b for i, a in enumerate(used) for b in used[:i]):
            continue
        by_factor = dict(zip(choices, cuts, strict=True))
        for pending, op in _pendings(rule, layouts, used):
            candidate = _candidate(rule, mesh, layouts, by_factor, pending, op, sizes)
            if candidate is not None:
                yield candidate
                count += 1
        if count >= MOST:
            return


def _choices(rule: Rule, layouts: Sequence[Layout]) -> dict[Factor, list[Cut]]:
    out: dict[Factor, list[Cut]] = {f: [] for dims in (*rule.operands, rule.out) for f in dims if f is not None}
    for dims, layout in zip(rule.operands, layouts, strict=True):
        for factor, cut in zip(dims, layout.without_halo().dims, strict=True):
            if factor is not None and cut.axes and cut not in out[factor] and factor not in rule.whole:
                out[factor].append(cut)
    for factor, cut, _ in rule.offered:
        if cut.axes and cut not in out[factor]:
            out[factor].append(cut)
    return {factor: [*cuts, Cut()] for factor, cuts in out.items()}


def _pendings(
    rule: Rule, layouts: Sequence[Layout], used: Sequence[Axis]
) -> Iterator[tuple[tuple[tuple[Axis, ...], ...], ReduceOp | None]]:
    # Which operands keep their pending reductions, and with which reduction the result then has them.
    none = ((),) * len(layouts)
    partial = [layout.partial for layout in layouts]
    ops = {layout.reduce_op for layout in layouts if layout.partial}
    if len(ops) == 1 and all(is_disjoint(p, used) for p in partial):
        op = ops.copy().pop()
        if rule.linear == "joint" and op in (ReduceOp.SUM, ReduceOp.AVG) and len(set(partial)) == 1:
            yield tuple(partial), op
        if rule.linear in ("each", "first") and op in (ReduceOp.SUM, ReduceOp.AVG):
            for i, axes in enumerate(partial):
                if axes and (i == 0 or rule.linear == "each"):
                    yield tuple(axes if k == i else () for k in range(len(partial))), op
        if rule.monotone and op in (ReduceOp.MAX, ReduceOp.MIN) and len(layouts) == 1:
            yield tuple(partial), op
    yield none, None


def _candidate(
    rule: Rule,
    mesh: DeviceMesh,
    layouts: Sequence[Layout],
    cuts: dict[Factor, Cut],
    pending: tuple[tuple[Axis, ...], ...],
    op: ReduceOp | None,
    sizes: dict[Factor, int],
) -> Candidate | None:
    ops = {op, *(how for factor, how in rule.reduced if cuts[factor].axes)} - {None}
    if len(ops) > 1:
        return None  # two different reductions cannot be pending at once
    operands = tuple(
        Layout(mesh, [Cut() if f is None else cuts[f] for f in dims], axes, op or "sum")
        for dims, axes in zip(rule.operands, pending, strict=True)
    )
    left = [axis for axes in pending for axis in axes if axes]
    fresh = [axis for factor, _ in rule.reduced for axis in cuts[factor].axes]
    out = Layout(
        mesh,
        [Cut() if f is None else cuts[f] for f in rule.out],
        [*dict.fromkeys(left), *fresh],
        next(iter(ops), None) or "sum",
    )
    work = prod(-(-size // prod(axis.size for axis in cuts[factor].axes)) for factor, size in sizes.items())
    return Candidate(operands, out, work if sizes else 0)
