"""Folding: what the rules of simplification look at, and where the ops they make go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeVar

from xdsl.ir import Operation, SSAValue

from shardwise.ir.module.program import ints
from shardwise.ir.passes.layouts import Grids
from shardwise.ir.passes.replication import Replication
from shardwise.ir.shard import CollectiveOperation


@dataclass
class Folding:
    """What rules need to know, and where the ops they make go: before the op that is replaced."""

    grids: Grids
    replication: Replication
    op: Operation
    added: list[Operation] = field(default_factory=list[Operation])

    def add(self, op: Operation) -> SSAValue:
        """Insert an op before the one that is looked at; return its first result."""
        block = self.op.parent
        assert block is not None
        op.location = self.op.location
        block.insert_op_before(op, self.op)
        self.added.append(op)
        return op.results[0]

    def undo(self) -> None:
        """Remove the ops that were inserted: what they make cannot take the place of the op."""
        for op in reversed(self.added):
            op.detach()
            op.erase()
        self.added.clear()

    def count(self, op: CollectiveOperation) -> int | None:
        """Return how many devices a group has; None if that is not known."""
        shape = self.grids.shapes.get(op.grid_name, ())
        sizes = [shape[axis] for axis in axes_of(op) if axis < len(shape)]
        return None if len(sizes) < len(axes_of(op)) or any(n < 0 for n in sizes) else prod(sizes)


Fold = Callable[[Folding, Any], SSAValue | None]
Producer = TypeVar("Producer", bound=Operation)
Collective = TypeVar("Collective", bound=CollectiveOperation)


def axes_of(op: CollectiveOperation) -> tuple[int, ...]:
    """Return the grid axes of a collective."""
    return ints(op.grid_axes)


def maker(value: SSAValue, kind: type[Producer], alone: bool = True) -> Producer | None:
    """Return the op that makes a value, if it is of a kind and (unless told otherwise) for this use alone."""
    op = value.owner
    return op if isinstance(op, kind) and not (alone and len(list(value.uses)) != 1) else None


def inner_of(op: CollectiveOperation, kind: type[Collective], alone: bool = True) -> Collective | None:
    """Return the collective on the same grid that makes the operand of another, if it is of a kind, as `maker` does."""
    inner = maker(op.operands[0], kind, alone)
    return inner if inner is not None and inner.grid == op.grid else None
