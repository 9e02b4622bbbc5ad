"""Dispatch: an op on tensors, decided once for their layouts and then run shard by shard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from shardwise.engine.arrays import Array, dtype_of, is_torch
from shardwise.engine.held import Held, sample
from shardwise.engine.job import Job
from shardwise.engine.storage import storage_of
from shardwise.errors import LayoutError, seal
from shardwise.layout.cut import Cut
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.mesh import DeviceMesh
from shardwise.prim.infer import Candidate, candidates
from shardwise.prim.kernel import alike
from shardwise.prim.rule import Linear, Reach, Rule
from shardwise.prim.solvers import Question, Solver, as_spec, current_solver, report
from shardwise.prim.tensor import Tensor, operand


@seal
@dataclass(frozen=True, slots=True)
class Decision:
    """How an op is run: the way that the solver chose, and the work of each device."""

    way: Candidate
    job: Job
    question: Question
    factors: tuple[int, ...] = ()  # of a pending sum: operands that must be finite, or divisors, for it to stay pending


def apply(
    name: str,
    kernel: Callable[..., Array],
    rule: Rule,
    operands: Sequence[Tensor],
    *,
    located: tuple[int, ...] = (),
    dtype: np.dtype | None = None,
) -> Tensor:
    """Return what a kernel makes of operands, each device working on what it holds.

    With `located` the kernel is first told the boxes of its arrays of those operands (or of the RESULT). The dtype
    of the result is given where the kernel cannot be asked for it with single elements.
    """
    layouts = tuple([x.layout for x in operands])
    shapes = tuple([x.shape for x in operands])
    dtypes = tuple([x.dtype for x in operands])
    solver = current_solver()
    decision = _decision(name, rule, layouts, shapes, dtypes, solver, located)
    if solver.on_reshard != "silent":  # said at every call, not only when the decision is made
        report(decision.question, decision.way, solver)
    ready = [
        x.arrays if x.layout is layout else operand(x, layout).arrays
        for x, layout in zip(operands, decision.way.operands, strict=True)
    ]
    engine, out = operands[0].engine, decision.job.out
    if decision.factors and any(map(_unsafe[rule.linear], [ready[i] for i in decision.factors])):
        whole = [_made_whole(name, i, x) for i, x in enumerate(operands)]
        return apply(name, kernel, rule, whole, located=located, dtype=dtype)
    if len(ready) > 1 and _mixed(ready):
        plain, kernel = kernel, lambda *some: plain(*alike(list(some), dtypes[0]))
    arrays = engine.work(kernel, ready, decision.job, dtype)
    return Tensor(arrays, out.layout, out.shape, dtype_of(sample(arrays)), engine)


def _mixed(operands: Sequence[Sequence[Array]]) -> bool:
    first = is_torch(sample(operands[0]))
    return any(arrays is not operands[0] and is_torch(sample(arrays)) is not first for arrays in operands[1:])


@lru_cache(maxsize=8192)
def _decision(
    name: str,
    rule: Rule,
    layouts: tuple[Layout, ...],
    shapes: tuple[Shape, ...],
    dtypes: tuple[np.dtype, ...],
    solver: Solver,
    located: tuple[int, ...],
) -> Decision:
    shape = rule.shape(shapes)
    mesh = _mesh(layouts)
    seen = [layout if layout.mesh is mesh else Layout.replicated(mesh, layout.rank) for layout in layouts]
    question = Question(name, layouts, shapes, dtypes, shape, links=solver.links)
    ways = candidates(rule, mesh, seen, shapes)
    if rule.reach is not None:
        ways = [way for way in map(partial(reached, rule.reach), ways) if way is not None]
    way = solver.choose(question, ways)
    stores = tuple(storage_of(layout, s) for layout, s in zip(way.operands, shapes, strict=True))
    factors = ()
    if rule.linear in _unsafe and any(layout.partial for layout in way.operands):
        others = enumerate(zip(way.operands, dtypes, strict=True))
        factors = tuple(i for i, (layout, dtype) in others if not layout.partial and dtype.kind in "fcV")
    return Decision(way, Job(storage_of(way.out, shape), stores, located), question, factors)


# Infinity times the parts of a sum is not infinity times the sum: the parts may have different signs, or be zero. So it
# is with parts divided by zero. Values decide, so a program that meets them is not what the abstract engine foresees.


def _infinite(arrays: Sequence[Array]) -> bool:
    for array in _here(arrays):
        if is_torch(array):
            found = bool(array.isinf().any())
        else:
            with np.errstate(all="ignore"):  # one pass that makes nothing: only what is not finite is looked at closely
                found = not np.isfinite(np.add.reduce(array, axis=None)) and bool(np.isinf(array).any())
        if found:
            return True
    return False


def _zero(arrays: Sequence[Array]) -> bool:
    return any(bool((array == 0).any()) for array in _here(arrays))


_unsafe: dict[Linear, Callable[[Sequence[Array]], bool]] = {"each": _infinite, "quotient": _zero}


def _here(arrays: Sequence[Array]) -> Sequence[Array]:
    # Without values there is nothing to see, and an accelerator is not waited for.
    held = list(arrays.arrays.values()) if isinstance(arrays, Held) else arrays
    return [a for a in held if not getattr(a, "is_cuda", False)] if isinstance(held, list | tuple) else ()


def _made_whole(name: str, index: int, x: Tensor) -> Tensor:
    if not x.layout.partial:
        return x
    if x.engine.name == "local":
        return operand(x, x.layout.resolved())
    raise LayoutError(
        f"{name}: operand {index}, {x.type_text}, is a sum that is pending, and is multiplied by infinity or divided "
        f"by zero; its parts cannot be, each for itself, and other processes may not know.\n  resolve it first: "
        f"x{index} = shard(x{index}, mesh, {as_spec(x.layout.resolved())})."
    )


def reached(reach: Reach, way: Candidate) -> Candidate | None:
    """Return a way to run an op with the cuts of dims that are reached over in place of their own."""
    found = reach.cuts([layout.dims for layout in way.operands], way.out.dims)
    if found is None:
        return None
    operands, out = found
    return Candidate(
        tuple(_recut(layout, dims) for layout, dims in zip(way.operands, operands, strict=True)),
        _recut(way.out, out),
        way.work,
    )


def _recut(layout: Layout, dims: Sequence[Cut]) -> Layout:
    return Layout(layout.mesh, dims, layout.partial, layout.reduce_op or "sum")


def _mesh(layouts: Sequence[Layout]) -> DeviceMesh:
    # Tensors on one device follow those that are spread.
    return next((layout.mesh for layout in layouts if not layout.mesh.is_single), layouts[0].mesh)
