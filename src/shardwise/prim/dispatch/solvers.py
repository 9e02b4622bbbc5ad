"""Solvers: which of the ways to run an op is taken, and what may be resharded for it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from contextlib import ContextDecorator
from contextvars import ContextVar, Token
from dataclasses import dataclass
from math import prod
from typing import Literal

import numpy as np

from shardwise.engine.log import calls, user_line
from shardwise.errors import ArgumentError, LayoutError, seal
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.mesh import DeviceMesh
from shardwise.layout.placement import ReduceOp, reductions_of
from shardwise.plan.cost import Links
from shardwise.plan.plan import Plan, plan_reshard
from shardwise.plan.steps import COUNTED
from shardwise.prim.dispatch.candidates import Candidate
from shardwise.prim.face import SIGNS

# Where the functions stand that users call: those of the table, and what operators do from the right.
ENTRIES = ("shardwise.ops.", "shardwise.transform.", "shardwise.prim.arithmetic.", "shardwise.prim.face")
OnReshard = Literal["silent", "warn", "raise"]


class ReshardWarning(UserWarning):
    """An operand had to be resharded.

    >>> from shardwise import DeviceMesh, P, shard
    >>> mesh = DeviceMesh((2,), ("x",))
    >>> a, b = shard(np.ones((4, 4)), mesh, P("x")), shard(np.ones((4, 4)), mesh, P("x"))
    >>> with warnings.catch_warnings(record=True, action="always") as seen, mode(GreedyReshard(on_reshard="warn")):
    ...     c = a @ b
    >>> [warning.category.__name__ for warning in seen]
    ['ReshardWarning']
    """


@seal
@dataclass(frozen=True, slots=True)
class Question:
    """What a solver is asked: an op, what its operands are, and the shape of its result.

    `own` is what the op sends by itself, along dims of its operands, wherever those lie: the elements that a
    slice, a roll or a flip carries over to another device, the totals of a running sum, the small sums of a mean.
    """

    op: str
    layouts: tuple[Layout, ...]
    shapes: tuple[Shape, ...]
    dtypes: tuple[np.dtype, ...]
    out: Shape
    own: tuple[Plan, ...] = ()
    along: tuple[int, ...] = ()
    links: Links | None = None

    def moves(self, candidate: Candidate) -> list[tuple[int, Layout, Layout]]:
        """Return the operands that a way has to reshard: which, from and to."""
        pairs = enumerate(zip(self.layouts, candidate.operands, strict=True))
        return [(i, src, dst) for i, (src, dst) in pairs if src is not dst]

    def bytes(self, candidate: Candidate) -> int:
        """Return how many bytes are sent between devices in all for a way: those of the reshards, and the op's own."""
        return sum(map(_bytes_of, (*(self.plan(i, src, dst) for i, src, dst in self.moves(candidate)), *self.own)))

    def cost(self, candidate: Candidate) -> tuple[float, float, float]:
        """Return the bytes to bring the operands there and begin to resolve the result, work counted as bytes; the
        time of sending; and the elements that are touched. If links are given, the time of both comes first."""
        plans = [self.plan(i, src, dst) for i, src, dst in self.moves(candidate)]
        sent, time = sum(plan.estimate for plan in plans), sum(plan.time for plan in plans)
        out = candidate.out
        if out.partial:
            # An all-reduce is a reduce-scatter and a gather. The first half is owed in any case; the second only
            # where everybody needs everything, and only once for all pending results that are added up before it.
            owed = plan_reshard(out, out.resolved(), self.out, self._result_dtype(out), links=self._on(out.mesh))
            sent, time = sent + owed.estimate / 2, time + owed.time / 2
        touched = sum(prod(a.tiling(s).largest) for a, s in zip(candidate.operands, self.shapes, strict=True))
        # Work that is done twice is not free either: data parallelism is not given up to send a little less.
        if self.links is not None:
            return round(time + candidate.work / self.links.compute, 12), sent, float(touched)
        sent += candidate.work * out.mesh.num_devices / Links().work_per_byte
        return sent, round(time, 12), float(touched)

    def _result_dtype(self, out: Layout) -> np.dtype:
        # The dtype of the result, as far as its cost goes: sums of bools are ints.
        return self.dtypes[0] if out.reduce_op in reductions_of(self.dtypes[0]) else np.dtype("int64")

    def plan(self, index: int, src: Layout, dst: Layout) -> Plan:
        """Return the plan that reshards an operand."""
        return plan_reshard(src, dst, self.shapes[index], self.dtypes[index], links=self._on(src.mesh, dst.mesh))

    def _on(self, *meshes: DeviceMesh) -> Links | None:
        # Links of axes that a mesh does not have do not concern it.
        return None if self.links is None else self.links.among(meshes)


def _bytes_of(plan: Plan) -> int:
    # On a large mesh as the planner estimates it, which is exact where all devices receive alike.
    return plan.received.total if plan.search.slots.count <= COUNTED else plan.estimate


@seal
@dataclass(frozen=True, slots=True)
class GreedyReshard:
    """Takes the cheapest way by the planner's cost, that of resolving the result included.

    With `links` that is the time to send and to compute on this machine. Without, all bytes cost alike, and so do as
    many multiplications as `Links().work_per_byte`, which is 32.

    >>> from shardwise import Link, Links
    >>> GreedyReshard(links=Links(default=Link(2e-6, 50e9), compute=5e14)).links.work_per_byte
    10000.0

    >>> from shardwise import DeviceMesh, P, shard
    >>> mesh = DeviceMesh((2,), ("x",))
    >>> a, b = shard(np.ones((4, 4)), mesh, P("x")), shard(np.ones((4, 4)), mesh, P("x"))
    >>> with mode(GreedyReshard(on_reshard="raise")):
    ...     a @ b
    Traceback (most recent call last):
    shardwise.LayoutError: x @ y at ...:2 reshards its operands (128 bytes in all):
      operand 1: [x|-] -> [-|-]
        fix: x1 = shard(x1, mesh, P(None, None))

    A pending sum stays pending through products with tensors, part by part. If a factor is infinite, parts of different
    signs, or parts that are 0, make NaN where the whole sum would make an infinity; no other number is ever different.
    With `resolve_products` sums are resolved before they are multiplied by a tensor, so that this cannot be:

    >>> pending = shard(np.array([1.0, 2.0]), mesh, P(unreduced=["x"]))  # parts [1, 2] and [0, 0]
    >>> with mode(GreedyReshard(resolve_products=True)):
    ...     pending * [np.inf, 1.0]  # otherwise [nan, 2]
    Tensor([inf,  2.], float64[2] on x=2)

    A solver of one's own says which ways it allows, or chooses among them:

    >>> class Frugal(GreedyReshard):
    ...     def allows(self, question, candidate):
    ...         return super().allows(question, candidate) and question.bytes(candidate) <= 100
    ...
    ...     def choose(self, question, candidates):
    ...         print("asked for", question.op)
    ...         return super().choose(question, candidates)
    >>> with mode(Frugal()):
    ...     (a + b).type_text
    asked for add
    'float64[4@x, 4]'
    """

    on_reshard: OnReshard = "silent"
    links: Links | None = None
    resolve_products: bool = False

    def __post_init__(self) -> None:
        if self.links is not None:
            object.__setattr__(self, "links", Links.of(self.links))
        if self.on_reshard not in ("silent", "warn", "raise"):
            raise ArgumentError(f"on_reshard is 'silent', 'warn' or 'raise', got {self.on_reshard!r}.")
        if not isinstance(self.resolve_products, bool):
            raise ArgumentError(f"resolve_products is True or False, got {self.resolve_products!r}.")

    def allows(self, question: Question, candidate: Candidate, /) -> bool:
        """Whether a way may be taken at all."""
        return True

    def choose(self, question: Question, candidates: Iterable[Candidate], /) -> Candidate:
        """Return the cheapest of the ways that are allowed."""
        every = list(candidates)
        allowed = [candidate for candidate in every if self.allows(question, candidate)]
        if not allowed:
            message = _message(question, min(every, key=question.cost))
            raise LayoutError(f"{type(self).__name__} does not allow what this sends.\n  {message}")
        return min(allowed, key=question.cost)


class NoReshard(GreedyReshard):
    """Takes only ways for which nothing is sent: neither to reshard operands, nor by the op itself.

    >>> from shardwise import DeviceMesh, P, shard
    >>> mesh = DeviceMesh((2,), ("x",))
    >>> a, b = shard(np.ones((4, 4)), mesh, P("x")), shard(np.ones((4, 4)), mesh, P())
    >>> with mode(NoReshard()):
    ...     (a @ b).type_text
    'float64[4@x, 4]'
    """

    def allows(self, question: Question, candidate: Candidate, /) -> bool:
        """Whether every device already has all that it needs."""
        return question.bytes(candidate) == 0


class PartialsOnly(GreedyReshard):
    """Lets pending reductions be resolved, and sends nothing else.

    >>> from shardwise import DeviceMesh, P, exp, shard
    >>> x = shard(np.ones(4), DeviceMesh((2,), ("x",)), P(unreduced=["x"]))
    >>> with mode(PartialsOnly()):
    ...     exp(x).type_text
    'float64[4]'
    """

    def allows(self, question: Question, candidate: Candidate, /) -> bool:
        """Whether nothing is sent but to resolve operands, or results of which the op needs the whole."""
        moves = question.moves(candidate)
        rest = [question.plan(i, src.resolved(), dst) for i, src, dst in moves if dst is not src.resolved()]
        own = [plan for plan in question.own if plan.dst is not plan.src.resolved()]
        return sum(map(_bytes_of, (*rest, *own))) == 0


Solver = GreedyReshard
_current: ContextVar[Solver] = ContextVar("solver", default=GreedyReshard())  # noqa: B039 (frozen)


def current_solver() -> Solver:
    """Return the solver in use."""
    return _current.get()


class mode(ContextDecorator):
    """Use a solver inside a `with` block, or in a function it decorates.

    >>> with mode(NoReshard()):
    ...     current_solver()
    NoReshard(on_reshard='silent', links=None, resolve_products=False)
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


def permit() -> Solver:
    """Return a solver that chooses as the one in use does, but allows everything and reports nothing.

    >>> with mode(NoReshard(resolve_products=True)):
    ...     permit()
    GreedyReshard(on_reshard='silent', links=None, resolve_products=True)
    """
    solver = _current.get()
    return GreedyReshard(links=solver.links, resolve_products=solver.resolve_products)


def is_quiet() -> bool:
    """Whether nobody wants to be asked about what is sent, as by default."""
    solver = _current.get()
    return type(solver) is GreedyReshard and solver.on_reshard == "silent"


def ask(question: Question, candidate: Candidate) -> None:
    """Ask the solver in use about the only way to run an op; refused, warned of or raised is as it says."""
    solver = _current.get()
    solver.choose(question, [candidate])
    report(question, candidate, solver)


def report(question: Question, candidate: Candidate, solver: Solver) -> None:
    """Warn or raise, if the solver says so and a way sends anything."""
    if solver.on_reshard == "silent" or question.bytes(candidate) == 0:
        return
    text = _message(question, candidate)
    if solver.on_reshard == "raise":
        raise LayoutError(text)
    frame = calls()[0]
    if frame is None:
        warnings.warn(text, ReshardWarning, stacklevel=2)
        return
    seen = frame.f_globals.setdefault("__warningregistry__", {})
    warnings.warn_explicit(text, ReshardWarning, frame.f_code.co_filename, frame.f_lineno, registry=seen)


def _message(question: Question, candidate: Candidate) -> str:
    moves = question.moves(candidate)
    name = _entry() or question.op
    what = "reshards its operands" if moves else "sends elements of its own"
    lines = [f"{name} at {user_line()} {what} ({question.bytes(candidate)} bytes in all):"]
    for i, src, dst in moves:
        lines.append(f"  operand {i}: {src} -> {dst}")
        lines.append(f"    fix: x{i} = shard(x{i}, mesh, {as_spec(dst)})")
    if question.own:
        whole = "dims" if len(question.along) > 1 else "dim"
        for i, layout in enumerate(question.layouts):
            lines.append(f"  operand {i}: {layout}, along {whole} {', '.join(map(str, question.along))}")
            lines.append(f"    fix: x{i} = shard(x{i}, mesh, {as_spec(layout.resolved(), question.along)})")
    return "\n".join(lines)


def as_spec(layout: Layout, whole: tuple[int, ...] = ()) -> str:
    """Return a layout as the text of a P, with dims whole that are cut in a way which it cannot say."""
    cuts = [() if k in whole or not cut.is_plain else cut.axes for k, cut in enumerate(layout.dims)]
    entries = [tuple(map(str, axes)) for axes in cuts]
    texts = [repr(e[0]) if len(e) == 1 else repr(e or None) for e in entries]
    if layout.partial and layout.reduce_op is ReduceOp.SUM:
        texts.append(f"unreduced={[str(axis) for axis in layout.partial]!r}")
    return f"P({', '.join(texts)})"


def _entry() -> str | None:
    # The function of the package that the user's code called: the op, if it is one.
    inner = calls()[1]
    if inner is None or not inner.f_globals.get("__name__", "").startswith(ENTRIES):
        return None
    owner, _, name = inner.f_code.co_qualname.rpartition(".")
    if owner == "Update":
        return f"x.at[...].{name}"
    if name in SIGNS:
        return f"x {SIGNS[name]} y"
    return "x[...]" if name == "__getitem__" else name
