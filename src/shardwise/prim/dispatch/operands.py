"""Needs: operands brought to where an op needs them, and what an op itself has to send.

Every op that sends anything says so here (or in `dispatch.apply`, where there are several ways to run it), so that the
solver in use can refuse it or have it reported. Only the functions whose purpose is to send do not ask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from shardwise.engine.abstract import AbstractEngine
from shardwise.engine.current import engine_context
from shardwise.layout.layout import Layout, Shape
from shardwise.plan.plan import Plan, plan_reshard
from shardwise.prim.dispatch.candidates import Candidate
from shardwise.prim.dispatch.solvers import GreedyReshard, Question, ask, is_quiet, mode
from shardwise.prim.relayout import relayout
from shardwise.prim.tensor import Tensor, move_to


def fetch_operands(op: str, operands: Sequence[Tensor], layouts: Sequence[Layout]) -> list[Tensor]:
    """Return operands in the layouts that an op needs.

    >>> import numpy as np
    >>> from shardwise import DeviceMesh, NoReshard, P, mode, shard
    >>> x = shard(np.arange(4), DeviceMesh((2,), ("x",)), P("x"))
    >>> with mode(NoReshard()):
    ...     fetch_operands("an op", [x], [Layout.replicated(x.mesh, 1)])
    Traceback (most recent call last):
    shardwise.LayoutError: NoReshard does not allow what this sends...
    """
    may_bring(op, operands, layouts)
    return [move_to(x, layout) for x, layout in zip(operands, layouts, strict=True)]


def may_bring(op: str, operands: Sequence[Tensor], layouts: Sequence[Layout]) -> None:
    """Ask the solver in use whether an op may bring its operands into these layouts."""
    if is_quiet():
        return
    question = Question(op, *_types_of(operands), operands[0].shape)
    ask(question, Candidate(tuple(layouts), layouts[0]))


def carry(op: str, x: Tensor, along: Sequence[int], y: Tensor, layout: Layout) -> Tensor:
    """Return a value, made of an operand, in another layout: what an op itself sends along dims of the operand."""
    may_carry(op, x, along, y, layout)
    return move_to(y, layout)


def may_carry(op: str, x: Tensor, along: Sequence[int], y: Tensor, layout: Layout) -> None:
    """Ask the solver in use whether an op may bring a value that it made of an operand into another layout."""
    if layout is not y.layout and not is_quiet():
        may_send(op, x, along, plan_reshard(y.layout, layout, y.shape, y.dtype))


def may_send(op: str, x: Tensor | Sequence[Tensor], along: Sequence[int], *plans: Plan) -> None:
    """Ask the solver in use whether an op may run plans of its own along dims of its operands."""
    if not is_quiet():
        operands = [x] if isinstance(x, Tensor) else x
        layouts, shapes, dtypes = _types_of(operands)
        ask(Question(op, layouts, shapes, dtypes, shapes[0], plans, tuple(along)), Candidate(layouts, layouts[0]))


def whole(op: str, x: Tensor, along: Sequence[int], y: Tensor) -> Tensor:
    """Return a value, made of an operand by reducing dims, with nothing pending."""
    if not y.layout.partial:
        return y
    layout = y.layout.resolved()
    may_carry(op, x, along, y, layout)
    return relayout(y, layout=layout)


def rehearse(call: Callable[..., Any], *operands: Tensor) -> list[Plan]:
    """Return the plans that a function of several ops would run for tensors, without running them.

    >>> import numpy as np
    >>> from shardwise import DeviceMesh, P, flip, shard
    >>> x = shard(np.arange(4), DeviceMesh((2,), ("x",)), P("x"))
    >>> [plan.received.total for plan in rehearse(lambda x: flip(flip(x)), x)]
    [32, 32]
    """
    listener, engine = _Listening(), AbstractEngine()
    with mode(listener), engine_context(engine):
        call(*(Tensor(engine.blank(x.layout, x.shape, x.dtype), x.layout, x.shape, x.dtype, engine) for x in operands))
    return listener.plans


class _Listening(GreedyReshard):
    # Allows everything, and remembers what that sends. It is equal to itself only: decisions are remembered by solver,
    # and another listener has to hear of them too.

    plans: list[Plan]

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "plans", [])

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def choose(self, question: Question, candidates: Iterable[Candidate], /) -> Candidate:
        candidate = super().choose(question, candidates)
        self.plans.extend(question.own)
        self.plans.extend(question.plan(i, src, dst) for i, src, dst in question.moves(candidate))
        return candidate


Types = tuple[tuple[Layout, ...], tuple[Shape, ...], tuple[np.dtype, ...]]


def _types_of(operands: Sequence[Tensor]) -> Types:
    return tuple(x.layout for x in operands), tuple(x.shape for x in operands), tuple(x.dtype for x in operands)
