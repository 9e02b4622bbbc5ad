"""Simplification: collectives merged, cancelled, shared and removed, until nothing more can be done."""

from __future__ import annotations

from collections import ChainMap
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.traits import IsolatedFromAbove, Pure

from shardwise.ir.passes.boundaries import annotations_of
from shardwise.ir.passes.folding import Folding
from shardwise.ir.passes.folds import FOLDS
from shardwise.ir.passes.layouts import Grids, grids_of
from shardwise.ir.passes.replication import Replication
from shardwise.ir.shard import ShardOp
from shardwise.ir.verifier.shardings import meaning

# Dialects whose ops on values do nothing but make their results, whether xDSL says so or not.
PURE = ("arith.", "math.", "index.", "tensor.", "linalg.", "tosa.")
TERMINATORS = ("linalg.yield", "tensor.yield", "tosa.yield")


def simplify(module: ModuleOp) -> ModuleOp:
    """Return a module that computes the same with fewer collectives.

    >>> from shardwise.ir.text import parse_module, print_module
    >>> print(
    ...     print_module(
    ...         simplify(
    ...             parse_module('''
    ... shard.grid @g(shape = 2)
    ... func.func @f(%x: tensor<4xf32>) -> tensor<2xf32> {
    ...   %0 = shard.all_reduce %x on @g grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
    ...   %1 = shard.all_slice %0 on @g grid_axes = [0] slice_axis = 0 : tensor<4xf32> -> tensor<2xf32>
    ...   return %1 : tensor<2xf32>
    ... }''')
    ...         )
    ...     )
    ... )
    builtin.module {
      shard.grid @g(shape = 2)
      func.func @f(%x: tensor<4xf32>) -> tensor<2xf32> {
        %0 = shard.reduce_scatter %x on @g grid_axes = [0] scatter_axis = 0 : tensor<4xf32> -> tensor<2xf32>
        func.return %0 : tensor<2xf32>
      }
    }
    """
    copy = module.clone()
    grids = grids_of(copy)
    while _simplify_once(copy, grids):
        pass
    return copy


def _simplify_once(module: ModuleOp, grids: Grids) -> bool:
    changed = False
    replication = Replication(grids)
    for op in module.body.block.ops:
        for region in op.regions:
            for block in region.blocks:
                changed |= _block(block, grids, replication, ChainMap())
    return changed


def _block(block: Block, grids: Grids, replication: Replication, seen: ChainMap[Any, Operation]) -> bool:
    changed = False
    for op in list(block.ops):
        key = _key(op) if _is_pure(op) else None
        first = op if key is None else seen.setdefault(key, op)
        if first is not op:
            _replace(op, list(first.results))
            changed = True
            continue
        changed |= _fold(op, grids, replication)
        if op.parent is None:  # what stands in its place is seen the next time
            seen.pop(key, None)
        if op.parent is None or op.name.startswith(PURE):  # bodies of structured ops are for elements
            continue
        # What is isolated cannot use what was made outside of it.
        known = ChainMap[Any, Operation]() if op.has_trait(IsolatedFromAbove) else seen
        for region in op.regions:
            for inner in region.blocks:
                changed |= _block(inner, grids, replication, known.new_child())
    # Users come after what they use, so that one pass from the end removes whole chains.
    for op in list(block.ops)[::-1]:
        if _is_pure(op) and all(x.first_use is None for x in op.results):
            block.erase_op(op)
            changed = True
    return changed


def _fold(op: Operation, grids: Grids, replication: Replication) -> bool:
    for fold in FOLDS.get(op.name, ()):
        folding = Folding(grids, replication, op)
        value = fold(folding, op)
        if value is None:
            continue
        if value.owner is not op:
            if not _can_stand_for(value, op.results[0]):
                folding.undo()
                continue
            _replace(op, [value])
        return True
    return False


def _can_stand_for(new: SSAValue, old: SSAValue) -> bool:
    # Whether what is said of one value can be said of another that has annotations of its own.
    own, for_users = _annotated_shardings(old, for_users=False), _annotated_shardings(old, for_users=True)
    producer = new.owner
    before = [producer.sharding] if isinstance(producer, ShardOp) else []
    known = {meaning(s) for s in (*_annotated_shardings(new, for_users=False), *before)}
    if own and known and {meaning(s) for s in own} != known:
        return False
    follows = isinstance(producer, ShardOp) and bool(producer.annotate_for_users)
    return not follows or all(meaning(s) in known for s in for_users)


def _annotated_shardings(value: SSAValue, for_users: bool) -> list[SSAValue]:
    # The shardings that annotations of a value name: for its users, or of how it is made.
    return [op.sharding for op in annotations_of(value) if bool(op.annotate_for_users) == for_users]


def _replace(op: Operation, values: list[SSAValue]) -> None:
    for old, new in zip(op.results, values, strict=True):
        if new.name_hint is None:
            new.name_hint = old.name_hint
        old.replace_all_uses_with(new)
    op.detach()
    op.erase()


def _is_pure(op: Operation) -> bool:
    # What is said of a value holds for it wherever it is used, also if nobody uses the annotation itself.
    if not op.results or op.name in TERMINATORS or isinstance(op, ShardOp):
        return False
    return op.has_trait(Pure) or op.name.startswith(PURE)


def _key(op: Operation) -> Any:
    # What two ops that make the same have in common: also what is said of how their results are made, which could not
    # be said of one value if it differs.
    if op.regions or op.name == "tensor.empty":
        return None
    properties = tuple(sorted(op.properties.items(), key=lambda item: item[0]))
    attributes = tuple(sorted(op.attributes.items(), key=lambda item: item[0]))
    shardings = tuple(frozenset(map(meaning, _annotated_shardings(x, for_users=False))) for x in op.results)
    return (op.name, tuple(op.operands), properties, attributes, tuple(x.type for x in op.results), shardings)
