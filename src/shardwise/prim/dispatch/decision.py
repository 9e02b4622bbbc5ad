"""Dispatch: an op on tensors, decided once for their layouts and then run shard by shard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any, cast

import numpy as np

from shardwise.caches import cache
from shardwise.engine.arrays import Array, dtype_of, is_torch
from shardwise.engine.job import Job
from shardwise.engine.local_shards import sample
from shardwise.engine.storage import storage_of
from shardwise.errors import ArgumentError, BindingError, ShardwiseError, seal
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.mesh import DeviceMesh
from shardwise.prim.dispatch.candidates import Candidate, find_candidates
from shardwise.prim.dispatch.solvers import Question, Solver, current_solver, report
from shardwise.prim.kernel import of_one_library
from shardwise.prim.primitive import Cotangents, Needs, Primitive
from shardwise.prim.relayout import cut_as
from shardwise.prim.rule import Reach, Rule, is_integer
from shardwise.prim.tensor import Tensor, operand
from shardwise.prim.work import Work

_FACTS = attrgetter("layout", "shape", "dtype", "kept")


@seal
@dataclass(frozen=True, slots=True)
class Decision:
    """How an op is run: the candidate that the solver chose, and the work of each device."""

    candidate: Candidate
    job: Job
    question: Question


def row_of_work(
    name: str,
    work: Callable[..., Work | Tensor],
    vjp: Callable[..., Cotangents] | None = None,
    jvp: Callable[..., Tensor | None] | None = None,
    needs: Needs | None = None,
    **more: Any,
) -> Primitive:
    """Return the row of a primitive that is one piece of work, or that takes several steps where one will not do.

    >>> from shardwise import asarray
    >>> from shardwise.prim.rule import elementwise_rule
    >>> cube = row_of_work("cube", lambda x: Work("cube", lambda a: a**3, elementwise_rule((x.shape,)), [x]))
    >>> cube(asarray([2.0])).item()
    8.0
    """

    def run(*operands: Any, **params: Any) -> Tensor:
        todo = work(*operands, **params)
        return apply(todo) if type(todo) is Work else cast(Tensor, todo)

    return Primitive(name, run, vjp, jvp, work=work, needs=needs, **more)


def apply(work: Work) -> Tensor:
    """Return what the kernel of some work makes of its operands, each device working on what it holds."""
    name, kernel, rule, operands, located, dtype, takes_lead, _ = work
    layouts, shapes, dtypes, arrays = zip(*map(_FACTS, operands), strict=True)
    solver = current_solver()
    decision = _decision(name, rule, layouts, shapes, dtypes, solver, located, takes_lead)
    if solver.on_reshard != "silent":  # said at every call, not only when the decision is made
        report(decision.question, decision.candidate, solver)
    if layouts != decision.candidate.operands:
        operands = [operand(x, layout) for x, layout in zip(operands, decision.candidate.operands, strict=True)]
        arrays = [x.kept for x in operands]
    engine, out = operands[0].engine, decision.job.out
    is_one = len(arrays) == 1 or (len(arrays) == 2 and arrays[0] is arrays[1])
    if not is_one and len(set(map(type, map(sample, arrays)))) > 1 and _has_two_libraries(arrays):
        kernel = of_one_library(kernel, dtypes[0])
    try:
        results = engine.run_kernel(kernel, arrays, decision.job, dtype)
    except (TypeError, OverflowError, ValueError, RuntimeError) as error:
        explanation = _explain(name, dtypes, error)
        if explanation is None:
            raise
        raise explanation from error
    return Tensor(results, out.layout, out.shape, dtype_of(sample(results)), engine)


def _explain(name: str, dtypes: tuple[np.dtype, ...], error: Exception) -> ShardwiseError | None:
    # What a library says of dtypes, or of values, for which it has no result, in our words; None of anything else.
    text, kinds = str(error).rstrip("."), ", ".join(dict.fromkeys(map(str, dtypes)))
    if isinstance(error, ShardwiseError):
        return None
    if isinstance(error, OverflowError):
        return BindingError(f"{name} of {kinds}: {text}.")
    if isinstance(error, TypeError) or "not implemented for" in text or "not supported" in text:
        return ArgumentError(f"{name} is not defined for {kinds}: {text}.\n  convert first: x.astype('float32').")
    return None


def _has_two_libraries(operands: Sequence[Sequence[Array]]) -> bool:
    first = is_torch(sample(operands[0]))
    return any(arrays is not operands[0] and is_torch(sample(arrays)) is not first for arrays in operands[1:])


@cache(entries=8192)
def _decision(
    name: str,
    rule: Rule,
    layouts: tuple[Layout, ...],
    shapes: tuple[Shape, ...],
    dtypes: tuple[np.dtype, ...],
    solver: Solver,
    located: tuple[int, ...],
    takes_lead: bool,
) -> Decision:
    shape = rule.shape(shapes)
    mesh = _mesh(layouts)
    on_mesh = [layout if layout.mesh is mesh else Layout.replicated(mesh, layout.rank) for layout in layouts]
    question = Question(name, layouts, shapes, dtypes, shape, links=solver.links)
    candidates = find_candidates(passing(rule, on_mesh, dtypes, solver), mesh, on_mesh, shapes)
    if rule.reach is not None:
        candidates = filter(None, map(partial(recut_for_reach, rule.reach), candidates))
    chosen = solver.choose(question, candidates)
    stores = tuple(storage_of(layout, s) for layout, s in zip(chosen.operands, shapes, strict=True))
    return Decision(chosen, Job(storage_of(chosen.out, shape), stores, located, takes_lead), question)


def passing(rule: Rule, layouts: Sequence[Layout], dtypes: Sequence[np.dtype], solver: Solver) -> Rule:
    """Return a rule as pending sums of these dtypes may pass through it; values are never looked at.

    >>> from shardwise.prim.rule import elementwise_rule
    >>> from shardwise.prim.dispatch.solvers import GreedyReshard
    >>> mesh, kinds = DeviceMesh((2,), ("x",)), [np.dtype("float32")] * 2
    >>> product = elementwise_rule(((4,), (4,)), "each")
    >>> passing(product, [Layout(mesh, [None], ["x"]), Layout(mesh, [None])], kinds, GreedyReshard()).linear
    'each'
    """
    if rule.linear is None or not any(layout.partial for layout in layouts):
        return rule
    resolves = rule.linear == "each" and solver.resolve_products
    for layout, dtype in zip(layouts, dtypes, strict=True):
        if layout.partial and is_integer(dtype):
            # The sum wraps around; parts that the op makes wider, each for itself, would not.
            widens = rule.linear == "joint" and rule.reduced and dtype.itemsize < np.dtype(int).itemsize
            resolves = resolves or bool(widens) or any(other != dtype for other in dtypes)
    return replace(rule, linear=None) if resolves else rule


def recut_for_reach(reach: Reach, candidate: Candidate) -> Candidate | None:
    """Return a way to run an op with the cuts of dims that are reached over in place of their own."""
    cuts = reach.cuts([layout.dims for layout in candidate.operands], candidate.out.dims)
    if cuts is None:
        return None
    operands = tuple(cut_as(layout, tuple(dims)) for layout, dims in zip(candidate.operands, cuts[0], strict=True))
    return Candidate(operands, cut_as(candidate.out, tuple(cuts[1])), candidate.work)


def _mesh(layouts: Sequence[Layout]) -> DeviceMesh:
    # Tensors on one device follow those that are spread.
    return next((layout.mesh for layout in layouts if not layout.mesh.is_single), layouts[0].mesh)
