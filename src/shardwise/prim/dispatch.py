"""Dispatch: an op on tensors, decided once for their layouts and then run shard by shard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from shardwise.engine.arrays import Array, dtype_of, is_torch
from shardwise.engine.held import sample
from shardwise.engine.job import Job
from shardwise.engine.storage import storage_of
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.mesh import DeviceMesh
from shardwise.prim.infer import Candidate, candidates
from shardwise.prim.kernel import alike
from shardwise.prim.rule import Rule
from shardwise.prim.solvers import Question, Solver, current_solver, report
from shardwise.prim.tensor import Tensor, moved


@dataclass(frozen=True, slots=True)
class Decision:
    """How an op is run: the way that the solver chose, and the work of each device."""

    way: Candidate
    job: Job
    question: Question


def apply(name: str, kernel: Callable[..., Array], rule: Rule, operands: Sequence[Tensor]) -> Tensor:
    """Return what a kernel makes of operands, each device working on what it holds."""
    layouts = tuple([x.layout for x in operands])
    shapes = tuple([x.shape for x in operands])
    dtypes = tuple([x.dtype for x in operands])
    solver = current_solver()
    decision = _decision(name, rule, layouts, shapes, dtypes, solver)
    if solver.on_reshard != "silent":  # said at every call, not only when the decision is made
        report(decision.question, decision.way, solver)
    ready = [
        x.arrays if x.layout is layout else moved(x, layout).arrays
        for x, layout in zip(operands, decision.way.operands, strict=True)
    ]
    engine, out = operands[0].engine, decision.job.out
    if len(ready) > 1 and len({is_torch(sample(arrays)) for arrays in ready}) > 1:
        plain, kernel = kernel, lambda *some: plain(*alike(list(some), dtypes[0]))
    arrays = engine.work(kernel, ready, decision.job)
    return Tensor(arrays, out.layout, out.shape, dtype_of(sample(arrays)), engine)


@lru_cache(maxsize=8192)
def _decision(
    name: str,
    rule: Rule,
    layouts: tuple[Layout, ...],
    shapes: tuple[Shape, ...],
    dtypes: tuple[np.dtype, ...],
    solver: Solver,
) -> Decision:
    sizes = rule.sizes(shapes)
    shape = tuple(1 if factor is None else sizes[factor] for factor in rule.out)
    mesh = _mesh(layouts)
    seen = [layout if layout.mesh is mesh else Layout.replicated(mesh, layout.rank) for layout in layouts]
    question = Question(name, layouts, shapes, dtypes, shape)
    way = solver.choose(question, candidates(rule, mesh, seen, shapes))
    stores = tuple(storage_of(layout, s) for layout, s in zip(way.operands, shapes, strict=True))
    return Decision(way, Job(storage_of(way.out, shape), stores), question)


def _mesh(layouts: Sequence[Layout]) -> DeviceMesh:
    # Tensors on one device follow those that are spread.
    return next((layout.mesh for layout in layouts if not layout.mesh.is_single), layouts[0].mesh)
