"""Boundaries: the layouts in which functions take their arguments and return their results."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import SSAValue

from shardwise.errors import seal
from shardwise.ir.passes.layouts import Grids
from shardwise.ir.shard import ShardOp
from shardwise.ir.types import is_tensor
from shardwise.layout.layout import Layout


@seal
@dataclass(frozen=True, slots=True)
class Boundary:
    """The layouts of arguments and results; None is the whole on every device."""

    arguments: tuple[Layout | None, ...]
    results: tuple[Layout | None, ...]


def annotations_of(value: SSAValue) -> list[ShardOp]:
    """Return the annotations of a value, in the order of the text."""
    users = [use.operation for use in value.uses if use.index == 0]
    return [op for op in users if isinstance(op, ShardOp)]


def producer(value: SSAValue) -> ShardOp | None:
    """Return the annotation that says how a value is made."""
    return next((op for op in annotations_of(value) if not op.annotate_for_users), None)


def annotation_of(value: SSAValue) -> ShardOp | None:
    """Return how a value is made or, if nothing says that, how its only user sees it."""
    annotations = annotations_of(value) if len(list(value.uses)) == 1 else ()
    return producer(value) or next(iter(annotations), None)


def boundary_of(function: FuncOp, grids: Grids) -> Boundary:
    """Return the boundary of a function: an argument is spread as it is made, a result as the return sees it."""
    if not function.body.blocks:
        kinds = function.function_type
        return Boundary((None,) * len(kinds.inputs), (None,) * len(kinds.outputs))
    block = function.body.blocks[0]
    last = block.last_op
    results = list(last.operands) if isinstance(last, ReturnOp) else []
    return Boundary(
        tuple(layout_of(annotation_of(arg), grids) for arg in block.args),
        tuple(layout_of(x.owner if isinstance(x.owner, ShardOp) else annotation_of(x), grids) for x in results),
    )


def layout_of(op: ShardOp | None, grids: Grids) -> Layout | None:
    """Return the layout that an annotation says."""
    if op is None or not is_tensor(op.src.type):
        return None
    return grids.layout(op.sharding, len(op.src.type.get_shape()))
