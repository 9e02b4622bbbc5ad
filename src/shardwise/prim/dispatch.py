"""Dispatch: an op on tensors, decided once for their layouts and then run shard by shard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from shardwise.engine.arrays import Array, dtype_of, is_torch
from shardwise.engine.storage import Storage, storage_of
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.mesh import DeviceMesh
from shardwise.prim.infer import Candidate, candidates
from shardwise.prim.kernel import alike
from shardwise.prim.rule import Rule
from shardwise.prim.solvers import Question, Solver, current_solver, report
from shardwise.prim.tensor import Tensor, moved


@dataclass(frozen=True, slots=True)
class Decision:
    """How an op is run: the layout of each operand and of the result, and which arrays make which."""

    operands: tuple[Layout, ...]
    out: Storage
    table: tuple[tuple[int, ...], ...]  # per array of the result, the arrays of the operands
    question: Question
    way: Candidate


def apply(name: str, kernel: Callable[..., Array], rule: Rule, operands: Sequence[Tensor]) -> Tensor:
    """Return what a kernel makes of operands, each device working on what it holds."""
    layouts = tuple(x.layout for x in operands)
    shapes = tuple(x.shape for x in operands)
    dtypes = tuple(x.dtype for x in operands)
    solver = current_solver()
    decision = _decision(name, rule, layouts, shapes, dtypes, solver)
    if solver.on_reshard != "silent":  # said at every call, not only when the decision is made
        report(decision.question, decision.way, solver)
    ready = [
        x.arrays if x.layout is layout else moved(x, layout).arrays
        for x, layout in zip(operands, decision.operands, strict=True)
    ]
    engine, sizes = operands[0].engine, decision.out.shapes
    mixed = len({is_torch(array[0]) for array in ready}) > 1
    made: dict[tuple[int, ...], Array] = {}
    arrays = []
    for i, sources in enumerate(decision.table):
        found = made.get(sources)
        if found is None:
            local = [array[k] for array, k in zip(ready, sources, strict=True)]
            found = engine.apply(kernel, alike(local, dtypes[0]) if mixed else local, sizes[i])
            if isinstance(found, np.generic):  # NumPy makes scalars of 0-d arrays
                found = np.asarray(found)
            made[sources] = found
        arrays.append(found)
    dtype = dtype_of(arrays[0])
    return Tensor(arrays, decision.out.layout, decision.out.shape, dtype, engine)


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
    stores = [storage_of(layout, s) for layout, s in zip(way.operands, shapes, strict=True)]
    out = storage_of(way.out, shape)
    table = tuple(tuple(store.index(devices[0]) for store in stores) for devices in out.holders)
    return Decision(way.operands, out, table, question, way)


def _mesh(layouts: Sequence[Layout]) -> DeviceMesh:
    # Tensors on one device follow those that are spread.
    return next((layout.mesh for layout in layouts if not layout.mesh.is_single), layouts[0].mesh)
