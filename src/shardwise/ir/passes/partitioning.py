"""Partitioning: a program on whole tensors made into the program of each device.

Values are spread as their annotations say and, where nothing is said, as is cheapest given those before. What changes
its layout on the way asks the planner how.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from shardwise.errors import ProgramError
from shardwise.ir.module.program import is_local, op_text
from shardwise.ir.passes.boundaries import boundary_of
from shardwise.ir.passes.device_function import DeviceFunction, Reshard
from shardwise.ir.passes.layouts import Grids, grids_of
from shardwise.ir.shard import GridOp, ShardOp


@dataclass(frozen=True)
class Partition:
    """The module that each device runs, the changes of layout in it, and the bytes of the largest shard of values."""

    module: ModuleOp
    moves: list[Reshard]
    largest: dict[SSAValue, int]


def partition(module: ModuleOp, grids: Mapping[str, Sequence[int]] | None = None) -> ModuleOp:
    """Return the module that each device of the grid runs, for a module on whole tensors.

    `grids` gives the shapes of grids with open sizes. Functions that say already what a device does stay as they are.

    >>> from shardwise.ir.text import parse_module, print_module
    >>> print(
    ...     print_module(
    ...         partition(
    ...             parse_module('''
    ... shard.grid @g(shape = 2)
    ... func.func @turn(%x: tensor<4x6xi8>) -> tensor<4x6xi8> {
    ...   %rows = shard.sharding @g split_axes = [[0], []] : !shard.sharding
    ...   %columns = shard.sharding @g split_axes = [[], [0]] : !shard.sharding
    ...   %0 = shard.shard %x to %rows : tensor<4x6xi8>
    ...   %1 = shard.shard %0 to %columns annotate_for_users : tensor<4x6xi8>
    ...   return %1 : tensor<4x6xi8>
    ... }''')
    ...         )
    ...     )
    ... )
    builtin.module {
      shard.grid @g(shape = 2)
      func.func @turn(%x: tensor<2x6xi8>) -> tensor<4x3xi8> {
        %0 = shard.all_to_all %x on @g grid_axes = [0] split_axis = 1 concat_axis = 0 : tensor<2x6xi8> -> tensor<4x3xi8>
        func.return %0 : tensor<4x3xi8>
      }
    }
    """
    return partition_with_plans(module, grids).module


def partition_with_plans(module: ModuleOp, grids: Mapping[str, Sequence[int]] | None = None) -> Partition:
    """Return the module that each device runs, with what was planned for it."""
    known = grids_of(module, grids)
    functions = [op for op in module.body.block.ops if isinstance(op, FuncOp)]
    local = {op for op in functions if not known.shapes or _is_local(op)}
    boundaries = {op.sym_name.data: boundary_of(op, known) for op in functions if op not in local}
    out: list[Operation] = []
    moves: list[Reshard] = []
    largest: dict[SSAValue, int] = {}
    for op in module.body.block.ops:
        if isinstance(op, FuncOp) and op not in local:
            writing = DeviceFunction(op, known, boundaries, moves, largest)
            out.append(writing.write())
        else:
            out.append(_grid(op, known) if isinstance(op, GridOp) else op.clone())
    return Partition(ModuleOp(out, dict(module.attributes)), moves, largest)


def _grid(op: GridOp, grids: Grids) -> GridOp:
    copy = op.clone()
    shape = grids.shapes[op.sym_name.data]
    if all(n > 0 for n in shape):
        copy.properties["shape"] = GridOp("g", shape).shape
    return copy


def _is_local(function: FuncOp) -> bool:
    ops = list(function.body.walk())
    local = next((op for op in ops if is_local(op)), None)
    if local is None:
        return False
    if any(isinstance(op, ShardOp) for op in ops):
        raise ProgramError(
            f"@{function.sym_name.data} has shard.shard, which is for whole tensors, and {op_text(local)}, which is for"
            " one device.\n  say the one or the other."
        )
    return True
