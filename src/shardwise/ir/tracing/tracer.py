"""The tracer: a function of tensors as a module, with its layouts as annotations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue

from shardwise.engine.arrays import to_numpy
from shardwise.errors import ProgramError
from shardwise.ir.shard import GridOp, ShardingOp, ShardOp
from shardwise.ir.tracing.emitter import Emitter, element_of
from shardwise.ir.tracing.grids import Grid, grids_of, split_of
from shardwise.ir.tracing.lowering import lower
from shardwise.ir.tracing.record import Recording, record
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.mesh import DeviceMesh
from shardwise.prim.bind import Node
from shardwise.prim.tensor import Tensor, assemble


def trace(fn: Callable[..., Any], *args: Any, name: str | None = None) -> ModuleOp:
    """Return a function of tensors as a module: one `func.func` of whole tensors, its layouts as `shard.shard`.

    The function is run once, on the arguments given (trees of tensors or arrays), whose leaves become the arguments
    of the function in the module; whatever else it uses is a constant there. Derivatives are traced like anything
    else: `trace(grad(f), x)`.

    >>> import numpy as np
    >>> from shardwise import DeviceMesh, P, shard
    >>> from shardwise.ir.text import print_module
    >>> x = shard(np.ones((4, 2), "float32"), DeviceMesh((2,), ("x",)), P("x", None))
    >>> print(print_module(trace(lambda x: x + x, x, name="double")))
    builtin.module {
      shard.grid @mesh(shape = 2)
      func.func @double(%0: tensor<4x2xf32>) -> tensor<4x2xf32> {
        %1 = shard.sharding @mesh split_axes = [[0], []] : !shard.sharding
        %2 = shard.shard %0 to %1 : tensor<4x2xf32>
        %3 = arith.addf %2, %2 : tensor<4x2xf32>
        %4 = shard.shard %3 to %1 : tensor<4x2xf32>
        func.return %4 : tensor<4x2xf32>
      }
    }
    """
    recording = record(fn, *args)
    grids = grids_of(_layouts(recording))
    writer = _Writer(recording, grids)
    body = writer.block
    kinds = [value.type for value in writer.write()]
    signature = ([arg.type for arg in body.args], kinds)
    function = FuncOp(name or _name_of(fn), signature, Region(body))
    return ModuleOp([*(GridOp(grid.name, grid.shape) for grid in grids.values()), function])


def _name_of(fn: Callable[..., Any]) -> str:
    name = getattr(fn, "__name__", "main")
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else "main"


def _layouts(recording: Recording) -> Iterator[Layout]:
    # Those that are said in the module.
    for node in (*recording.inputs, *(end for end in recording.outputs if isinstance(end, Node))):
        assert node.out is not None
        yield node.out.layout.resolved()
    for node in recording.steps:
        if node.row is not None and node.row.name == "relayout":
            yield node.operands[0].layout.resolved()
            yield node.params["layout"].resolved()


class _Writer:
    """Writes the steps of a recording one after another, and remembers the value of each."""

    def __init__(self, recording: Recording, grids: dict[DeviceMesh, Grid]) -> None:
        self.recording, self.grids = recording, grids
        outs = [node.out for node in recording.inputs]
        self.block = Block(arg_types=[TensorType(element_of(x.dtype), x.shape) for x in outs if x is not None])
        self.emitter = Emitter(self.block)
        self.values: dict[int, SSAValue] = {}
        self.constants: list[Tensor] = []
        self.makers: dict[SSAValue, SSAValue] = {}  # a value, and itself said to be made in some layout

    def write(self) -> list[SSAValue]:
        """Write everything; return the results."""
        for node, arg in zip(self.recording.inputs, self.block.args, strict=True):
            assert node.out is not None
            self.values[id(node)] = self._annotate(arg, node.out.layout, node.out.shape)
        for node in self.recording.steps:
            self.values[id(node)] = self._step(node)
        results = [self._result(end) for end in self.recording.outputs]
        self.block.add_op(ReturnOp(*results))
        return results

    def _step(self, node: Node) -> SSAValue:
        operands = [self._operand(x, p) for x, p in zip(node.operands, node.parents, strict=True)]
        assert node.row is not None
        if node.row.name == "relayout":
            return self._relayout(operands[0], node.operands[0], node.params["layout"])
        return lower(self.emitter, node, operands)

    def _operand(self, x: Any, parent: Node | None) -> Any:
        if parent is not None:
            value = self.values[id(parent)]
            return self.makers.get(value, value)
        return self._constant(x) if isinstance(x, Tensor) else x

    def _constant(self, x: Tensor) -> SSAValue:
        if not x.engine.has_values:
            raise ProgramError(
                f"the function uses a tensor of its own, {x.type_text}, which has no values on the {x.engine.name} "
                "engine.\n"
                "  trace with arguments on the local engine, or make it an argument."
            )
        return self.emitter.once(("constant", id(x)), lambda: self._whole(x))

    def _whole(self, x: Tensor) -> SSAValue:
        self.constants.append(x)  # so that its id stays its own
        return self.emitter.constant(to_numpy(assemble(x)))

    def _result(self, end: Node | Tensor) -> SSAValue:
        if isinstance(end, Tensor):
            return self._constant(end)
        assert end.out is not None
        value = self.values[id(end)]
        if isinstance(value.owner, ShardOp):
            return value
        return self._annotate(value, end.out.layout.resolved(), end.out.shape)

    # -- annotations -------------------------------------------------------------------------------

    def _annotate(self, value: SSAValue, layout: Layout, shape: Shape) -> SSAValue:
        # A value said to be made in a layout; said once. A scalar is whole in any case.
        if layout.mesh not in self.grids or not shape:
            return value
        if value not in self.makers:
            self.makers[value] = self.emitter.add(ShardOp(value, self._sharding(layout.resolved(), shape)))
        return self.makers[value]

    def _relayout(self, value: SSAValue, x: Tensor, layout: Layout) -> SSAValue:
        src, dst = x.layout, layout.resolved()
        if not x.shape:
            return value
        if src.resolved() is dst or layout.partial or dst.mesh not in self.grids:
            return value if not src.partial or layout.partial else self._annotate(value, dst, x.shape)
        value = self._producer(value)
        unsaid = src.partial or src.mesh not in self.grids
        if unsaid and value not in self.makers:  # made in the new layout right away
            return self._annotate(value, dst, x.shape)
        source = self._annotate(value, src, x.shape)
        return self.emitter.add(ShardOp(source, self._sharding(dst, x.shape), annotate_for_users=True))

    def _producer(self, value: SSAValue) -> SSAValue:
        # Annotations do not follow one another: the next one begins again at the value itself.
        while isinstance(value.owner, ShardOp):
            value = value.owner.src
        return value

    def _sharding(self, layout: Layout, shape: Shape) -> SSAValue:
        grid = self.grids[layout.mesh]
        split = split_of(layout, shape, grid)
        return self.emitter.once(
            (grid.name, split),
            lambda: self.emitter.add(
                ShardingOp(
                    grid.name,
                    split.axes,
                    None,
                    None,
                    static_sharded_dims_offsets=split.offsets or None,
                    static_halo_sizes=split.halos or None,
                )
            ),
        )
