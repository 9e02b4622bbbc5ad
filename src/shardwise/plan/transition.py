"""Transitions: the steps of a plan from one layout to the next, as the rounds that devices take part in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shardwise.caches import cached_property
from shardwise.layout.layout import Layout
from shardwise.layout.placement import ReduceOp, accumulator
from shardwise.plan.holders import Holders
from shardwise.plan.movement import Movement
from shardwise.plan.moves import LocalMove, Shares
from shardwise.plan.plan import Plan
from shardwise.plan.steps import Step


@dataclass(frozen=True)
class Transition:
    """One or a few steps of a plan between two layouts; in between, devices hold shares and not a layout.

    >>> from shardwise import DeviceMesh, P, plan_reshard
    >>> mesh = DeviceMesh((2, 2), ("x", "y"))
    >>> plan = plan_reshard(P("x", unreduced=["y"]), P(), (4,), "int8", mesh=mesh)
    >>> for transition in transitions(plan):
    ...     print(transition.before, "->", transition.after, [move.phase for _, move in transition.moves])
    [x] sum(y) -> [-] ['reduce', 'spread']
    """

    plan: Plan
    steps: tuple[Step, ...]

    @property
    def before(self) -> Layout:
        """The layout that it starts from."""
        layout = self.steps[0].before
        assert isinstance(layout, Layout), "shares are between the steps of one transition"
        return layout

    @property
    def after(self) -> Layout:
        """The layout that it leads to."""
        layout = self.steps[-1].after
        assert isinstance(layout, Layout), "shares are between the steps of one transition"
        return layout

    @cached_property
    def moves(self) -> tuple[tuple[Step, Movement], ...]:
        """The rounds, each with its step; of a local step one in which all stays where it is."""
        moves = tuple((step, move) for step in self.steps for move in step.moves)
        return moves or ((self.steps[0], self._local_move),)

    @property
    def _local_move(self) -> LocalMove:
        shares = self.steps[0].shares
        if isinstance(shares, Shares):
            return LocalMove(shares.src, shares.dst, shares.batch, shares)
        src, dst = (Holders(layout, self.plan.shape) for layout in (self.before, self.after))
        return LocalMove(src, dst)

    @property
    def filling(self) -> ReduceOp | None:
        """The reduction whose identities stand where a device keeps no value, if values become partial."""
        return self.after.reduce_op if self.steps[-1].shares is not None else None

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the arrays that are made: sums that are added up further are not rounded yet."""
        widths, dtype = self.steps[-1].widths, self.plan.dtype
        return dtype if widths is None or widths[1] == dtype.itemsize else accumulator(dtype)


def transitions(plan: Plan) -> Iterator[Transition]:
    """Yield the transitions of a plan, one after the other."""
    steps: list[Step] = []
    for step in plan.steps:
        steps.append(step)
        if isinstance(step.after, Layout):
            yield Transition(plan, tuple(steps))
            steps = []
