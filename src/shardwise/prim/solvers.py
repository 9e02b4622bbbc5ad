"""Solvers: which of the ways to run an op is taken, and what may be resharded for it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from contextlib import ContextDecorator
from contextvars import ContextVar, Token
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np

from shardwise.engine.log import user_line
from shardwise.errors import ArgumentError, LayoutError
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.placement import reductions_of
from shardwise.plan.plan import plan_reshard
from shardwise.plan.steps import COUNTED
from shardwise.prim.infer import Candidate

PER_BYTE = 32  # multiplications that take as long as to send a byte; a cautious guess: accelerators do far more
OnReshard = Literal["silent", "warn", "raise"]


class ReshardWarning(UserWarning):
    """An operand had to be resharded.

    >>> from shardwise import DeviceMesh, P, shard
    >>> mesh = DeviceMesh((2,), ("x",))
    >>> a, b = shard(np.ones((4, 4)), mesh, P("x")), shard(np.ones((4, 4)), mesh, P("x"))
    >>> with warnings.catch_warnings(record=True, action="always") as found, mode(GreedyReshard(on_reshard="warn")):
    ...     c = a @ b
    >>> [warning.category.__name__ for warning in found]
    ['ReshardWarning']
    """


@dataclass(frozen=True, slots=True)
class Question:
    """What a solver is asked: an op, what its operands are, and the shape of its result."""

    op: str
    layouts: tuple[Layout, ...]
    shapes: tuple[Shape, ...]
    dtypes: tuple[np.dtype, ...]
    out: Shape

    def moves(self, way: Candidate) -> list[tuple[int, Layout, Layout]]:
        """Return the operands that a way has to reshard: which, from and to."""
        pairs = enumerate(zip(self.layouts, way.operands, strict=True))
        return [(i, src, dst) for i, (src, dst) in pairs if src is not dst]

    def bytes(self, way: Candidate) -> int:
        """Return how many bytes that moves between devices in all, as the planner estimates it."""
        return sum(self._plan(i, src, dst).estimate for i, src, dst in self.moves(way))

    def counted(self, way: Candidate) -> int:
        """Return the same counted, not estimated, on meshes that are small enough for that."""
        plans = [self._plan(i, src, dst) for i, src, dst in self.moves(way)]
        return sum(p.received.total if p.src.mesh.num_devices <= COUNTED else p.estimate for p in plans)

    def cost(self, way: Candidate) -> tuple[float, float, float]:
        """Return the bytes to bring the operands there and begin to resolve the result, work counted as bytes; the
        time of sending; and the elements that are touched."""
        plans = [self._plan(i, src, dst) for i, src, dst in self.moves(way)]
        sent, time = sum(plan.estimate for plan in plans), sum(plan.time for plan in plans)
        if way.out.partial:
            # An all-reduce is a reduce-scatter and a gather. The first half is owed in any case; the second only
            # where everybody needs everything, and only once for all pending results that are added up before it.
            owed = plan_reshard(way.out, way.out.resolved(), self.out, self._made(way))
            sent, time = sent + owed.estimate / 2, time + owed.time / 2
        # Work that is done twice is not free either: data parallelism is not given up to send a little less.
        sent += way.work * way.out.mesh.num_devices / PER_BYTE
        touched = sum(prod(a.tiling(s).largest) for a, s in zip(way.operands, self.shapes, strict=True))
        return sent, round(time, 12), float(touched)

    def _made(self, way: Candidate) -> np.dtype:
        # The dtype of the result, as far as its cost goes: sums of bools are ints.
        return self.dtypes[0] if way.out.reduce_op in reductions_of(self.dtypes[0]) else np.dtype("int64")

    def _plan(self, index: int, src: Layout, dst: Layout) -> Any:
        return plan_reshard(src, dst, self.shapes[index], self.dtypes[index])


@dataclass(frozen=True, slots=True)
class GreedyReshard:
    """Takes the cheapest way by the planner's cost, that of resolving the result included.

    >>> from shardwise import DeviceMesh, P, shard
    >>> mesh = DeviceMesh((2,), ("x",))
    >>> a, b = shard(np.ones((4, 4)), mesh, P("x")), shard(np.ones((4, 4)), mesh, P("x"))
    >>> with mode(GreedyReshard(on_reshard="raise")):
    ...     a @ b
    Traceback (most recent call last):
    shardwise.errors.LayoutError: einsum('xy,yz->xz') at ...:2 reshards its operands (128 bytes in all):
      operand 1: [x|-] -> [-|-]
        fix: x1 = shard(x1, mesh, P(None, None))

    A solver of one's own says which ways it allows, or chooses among them:

    >>> class Frugal(GreedyReshard):
    ...     def allows(self, question, way):
    ...         return super().allows(question, way) and question.bytes(way) <= 100
    ...
    ...     def choose(self, question, ways):
    ...         print("asked for", question.op)
    ...         return super().choose(question, ways)
    >>> with mode(Frugal()):
    ...     (a + b).type_text
    asked for add
    'float64[4@x, 4]'
    """

    on_reshard: OnReshard = "silent"

    def __post_init__(self) -> None:
        if self.on_reshard not in ("silent", "warn", "raise"):
            raise ArgumentError(f"on_reshard is 'silent', 'warn' or 'raise', got {self.on_reshard!r}.")

    def allows(self, question: Question, way: Candidate) -> bool:
        """Whether a way may be taken at all."""
        return True

    def choose(self, question: Question, ways: Iterable[Candidate]) -> Candidate:
        """Return the cheapest of the ways that are allowed."""
        every = list(ways)
        allowed = [way for way in every if self.allows(question, way)]
        if not allowed:
            raise LayoutError(_refusal(type(self).__name__, question, min(every, key=question.cost)))
        return min(allowed, key=question.cost)


class NoReshard(GreedyReshard):
    """Takes only ways for which nothing is sent before the op.

    >>> from shardwise import DeviceMesh, P, shard
    >>> mesh = DeviceMesh((2,), ("x",))
    >>> a, b = shard(np.ones((4, 4)), mesh, P("x")), shard(np.ones((4, 4)), mesh, P())
    >>> with mode(NoReshard()):
    ...     (a @ b).type_text
    'float64[4@x, 4]'
    """

    def allows(self, question: Question, way: Candidate) -> bool:
        """Whether all operands already have what they need."""
        return question.bytes(way) == 0


class PartialsOnly(GreedyReshard):
    """Lets pending reductions be resolved, and reshards nothing else.

    >>> from shardwise import DeviceMesh, P, exp, shard
    >>> x = shard(np.ones(4), DeviceMesh((2,), ("x",)), P(unreduced=["x"]))
    >>> with mode(PartialsOnly()):
    ...     exp(x).type_text
    'float64[4]'
    """

    def allows(self, question: Question, way: Candidate) -> bool:
        """Whether operands change by being resolved at most."""
        return all(dst is src.resolved() for _, src, dst in question.moves(way))


Solver = GreedyReshard
_current: ContextVar[Solver] = ContextVar("solver", default=GreedyReshard())  # noqa: B039 (frozen)


def current_solver() -> Solver:
    """Return the solver in use."""
    return _current.get()


class mode(ContextDecorator):
    """Use a solver inside a `with` block, or in a function it decorates.

    >>> with mode(NoReshard()):
    ...     current_solver()
    NoReshard(on_reshard='silent')
    """

    def __init__(self, solver: Solver) -> None:
        """Use `solver`."""
        if not isinstance(solver, GreedyReshard):
            raise ArgumentError(f"mode needs a solver such as GreedyReshard(), got {solver!r}.")
        self._solver = solver
        self._tokens: list[Token[Solver]] = []

    def __enter__(self) -> Solver:
        self._tokens.append(_current.set(self._solver))
        return self._solver

    def __exit__(self, *error: object) -> None:
        _current.reset(self._tokens.pop())


def report(question: Question, way: Candidate, solver: Solver) -> None:
    """Warn or raise, if the solver says so and a way sends anything before the op."""
    if solver.on_reshard == "silent" or question.bytes(way) == 0:
        return
    text = _message(question, way)
    if solver.on_reshard == "raise":
        raise LayoutError(text)
    warnings.warn(text, ReshardWarning, stacklevel=5)


def _refusal(solver: str, question: Question, way: Candidate) -> str:
    return f"{solver} does not allow the resharding that this needs.\n  {_message(question, way)}"


def _message(question: Question, way: Candidate) -> str:
    said = f"{question.counted(way)} bytes in all"
    lines = [f"{question.op} at {user_line()} reshards its operands ({said}):"]
    for i, src, dst in question.moves(way):
        lines.append(f"  operand {i}: {src} -> {dst}")
        lines.append(f"    fix: x{i} = shard(x{i}, mesh, {_spec(dst)})")
    return "\n".join(lines)


def _spec(layout: Layout) -> str:
    entries = [tuple(map(str, cut.axes)) for cut in layout.dims]
    return "P(" + ", ".join(repr(e[0]) if len(e) == 1 else repr(e or None) for e in entries) + ")"
