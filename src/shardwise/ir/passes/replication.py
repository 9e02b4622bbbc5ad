"""Replication: along which grid axes all devices have equal values, as far as that can be proved."""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.ir import Block, Operation, OpResult, SSAValue

from shardwise.ir.module.program import ints_of, property_of, symbol
from shardwise.ir.passes.layouts import Grids
from shardwise.ir.shard import ShardOperation

Along = frozenset[tuple[str, int]] | None  # grid axes, each with its grid; None is all there are

# What each op of the dialect does to the axes `along` which its operand is the same, given those it is over.
GATHERS = ("shard.all_gather", "shard.all_reduce", "shard.broadcast")
SCATTERS = ("shard.all_slice", "shard.all_to_all", "shard.reduce_scatter", "shard.shift", "shard.send")


@dataclass
class Replication:
    """What is known about the values of a module; worked out when asked for, and forgotten when ops change."""

    grids: Grids
    known: dict[SSAValue, Along] = field(default_factory=dict[SSAValue, Along])

    def is_along(self, value: SSAValue, grid: str, axes: tuple[int, ...]) -> bool:
        """Whether all devices that differ only along some grid axes have the same value."""
        known = self.along(value)
        return known is None or all((grid, axis) in known or self.grids.shapes[grid][axis] == 1 for axis in axes)

    def along(self, value: SSAValue) -> Along:
        """Return the grid axes along which a value is the same on all devices."""
        stack = [value]
        while stack:
            x = stack[-1]
            if x in self.known:
                stack.pop()
                continue
            missing = [y for y in _needs(x) if y not in self.known]
            if missing:
                stack += missing
                continue
            self.known[x] = self._of(x)
            stack.pop()
        return self.known[value]

    def _of(self, value: SSAValue) -> Along:
        if not isinstance(value, OpResult):
            return frozenset()  # arguments may be anything
        op = value.op
        if isinstance(op, ShardOperation):
            return self._of_shard(op)
        if (op.regions and not op.name.startswith(("linalg.", "tensor."))) or op.name == "func.call":
            return frozenset()
        out: Along = None
        for x in _needs(value):
            out = _both(out, self.known[x])
        return out

    def _of_shard(self, op: ShardOperation) -> Along:
        if op.name in ("shard.sharding", "shard.grid_shape", "shard.shard_shape"):
            return None if all(self.known[x] is None for x in op.operands) else frozenset()
        grid = symbol(property_of(op, "grid")) if property_of(op, "grid") is not None else ""
        every = frozenset((grid, axis) for axis in range(len(self.grids.shapes.get(grid, ()))))
        if op.name == "shard.process_linear_index":
            return frozenset()
        if op.name == "shard.process_multi_index":
            own = ints_of(op, "axes") or tuple(axis for _, axis in every)
            return every - {(grid, axis) for axis in own}
        if op.name not in (*GATHERS, *SCATTERS):
            return frozenset()
        source = self.known[op.operands[0]]
        for x in op.operands[1:]:
            source = _both(source, self.known[x])
        # What is known along the axes of other grids says nothing about groups of this one.
        source = every if source is None else source & every
        over = frozenset((grid, axis) for axis in ints_of(op, "grid_axes"))
        return source | over if op.name in GATHERS else source - over


def _both(a: Along, b: Along) -> Along:
    if a is None or b is None:
        return b if a is None else a
    return a & b


def _needs(value: SSAValue) -> list[SSAValue]:
    # What a value is made of: operands, and what a body takes from outside.
    if not isinstance(value, OpResult):
        return []
    op = value.op
    out = list(op.operands)
    if not op.name.startswith(("linalg.", "tensor.")):
        return out
    for region in op.regions:
        out += [x for inner in region.walk() for x in inner.operands if not _is_inside(x, op)]
    return out


def _is_inside(value: SSAValue, op: Operation) -> bool:
    block = value.owner if isinstance(value.owner, Block) else value.owner.parent
    while block is not None:
        parent = block.parent_op()
        if parent is op:
            return True
        block = parent.parent if parent is not None else None
    return False
