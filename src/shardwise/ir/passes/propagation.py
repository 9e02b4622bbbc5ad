"""Propagation: the shardings of all values, worked out from those that are annotated.

What is said of a value where it is made, and of an operand where it is used, is hard: ops are spread so that it holds,
if they can be. What is said of a value elsewhere, or was worked out, is soft: it is followed where that costs least.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from xdsl.dialects import scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp, FuncOp
from xdsl.ir import Block, Operation, OpResult, SSAValue

from shardwise.errors import ArgumentError
from shardwise.ir.module.program import is_local
from shardwise.ir.module.values import dtype_of
from shardwise.ir.passes.boundaries import annotations_of, boundary_of, layout_of, producer
from shardwise.ir.passes.candidates import Candidate, End, find_cheapest
from shardwise.ir.passes.layouts import Grids, grids_of, sharding_of
from shardwise.ir.passes.rules import rule_of
from shardwise.ir.passes.sources import is_source
from shardwise.ir.shard import ShardingOp, ShardOp
from shardwise.ir.types import is_static, is_tensor, shape_of
from shardwise.layout.layout import Layout, Shape

Direction = Literal["forward", "backward", "both"]
SWEEPS = 16  # over a function; each but the last finds something new


def propagate(
    module: ModuleOp, direction: Direction = "both", grids: Mapping[str, Sequence[int]] | None = None
) -> ModuleOp:
    """Return a module in which every value says how it is spread, as far as that follows from what is annotated.

    `direction` is "forward" (from operands to results), "backward" or "both". Halos and offsets are kept.

    >>> from shardwise.ir.text import parse_module, print_module
    >>> print(
    ...     print_module(
    ...         propagate(
    ...             parse_module('''
    ... shard.grid @g(shape = 2)
    ... func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
    ...   %0 = arith.negf %x : tensor<4xf32>
    ...   %s = shard.sharding @g split_axes = [[0]] : !shard.sharding
    ...   %1 = shard.shard %0 to %s : tensor<4xf32>
    ...   return %1 : tensor<4xf32>
    ... }''')
    ...         )
    ...     )
    ... )
    builtin.module {
      shard.grid @g(shape = 2)
      func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
        %s = shard.sharding @g split_axes = [[0]] : !shard.sharding
        %x_1 = shard.shard %x to %s : tensor<4xf32>
        %0 = arith.negf %x_1 : tensor<4xf32>
        %1 = shard.shard %0 to %s : tensor<4xf32>
        func.return %1 : tensor<4xf32>
      }
    }
    """
    if direction not in get_args(Direction):
        raise ArgumentError(f"unknown direction {direction!r}.\n  directions: {', '.join(get_args(Direction))}")
    copy = module.clone()
    known = grids_of(copy, grids)
    functions = {op.sym_name.data: op for op in copy.body.block.ops if isinstance(op, FuncOp)}
    for function in functions.values():
        if known.shapes and function.body.blocks and not any(is_local(op) for op in function.body.walk()):
            _Function(function, known, functions).propagate(direction)
    return copy


def root_of(value: SSAValue) -> SSAValue:
    """Return the value that annotations are about."""
    while isinstance(value.owner, ShardOp):
        value = value.owner.src
    return value


@dataclass
class _Function:
    """What is known of the values of one function."""

    function: FuncOp
    grids: Grids
    functions: Mapping[str, FuncOp]
    layouts: dict[SSAValue, Layout] = field(default_factory=dict[SSAValue, Layout])  # by values without annotations
    hard: set[SSAValue] = field(default_factory=set[SSAValue])
    shardings: dict[tuple[Layout, Shape | None], ShardingOp] = field(default_factory=dict[Any, ShardingOp])
    changed: bool = False

    def propagate(self, direction: Direction) -> None:
        """Work out what follows, and write it down."""
        ops = [op for op in self.function.body.walk() if not isinstance(op, ShardOp | ShardingOp)]
        for value in self._values(ops):
            layout = layout_of(producer(value), self.grids) if _is_spreadable(value) else None
            if layout is not None:
                self.layouts[value] = layout
                self.hard.add(value)
        annotated = {op for op in ops if self._is_annotated(op)}
        for _ in range(SWEEPS):
            self.changed = False
            if direction != "backward":
                for op in ops:
                    self._visit(op, results=True, operands=False)
            if direction != "forward":
                for op in reversed(ops):
                    self._visit(op, results=direction == "both", operands=True)
            if not self.changed:
                break
        self._write(ops, annotated)

    def _values(self, ops: Sequence[Operation]) -> list[SSAValue]:
        out: list[SSAValue] = [arg for block in self.function.body.blocks for arg in block.args]
        for op in ops:
            out += op.results
            if isinstance(op, scf.ForOp):
                out += op.body.block.args[1:]
        return out

    def _is_annotated(self, op: Operation) -> bool:
        # Everything about it is said already.
        values = [*op.results, *(root_of(x) for x in op.operands)]
        return all(x in self.hard or _is_free(x) for x in values)

    # -- one op ------------------------------------------------------------------------------------

    def _visit(self, op: Operation, results: bool, operands: bool) -> None:
        if isinstance(op, CallOp):
            self._call(op)
            return
        if isinstance(op, scf.IfOp | scf.ForOp):
            for a, b in _links(op):
                self._link(a, b, results, operands)
            return
        candidate = self._candidate(op)
        if candidate is None:
            return
        if results:
            for x, layout in zip(op.results, candidate.results, strict=True):
                self._learn(x, layout.resolved())
        if operands:
            for x, layout in zip(op.operands, candidate.operands, strict=True):
                if layout is not None and not self._is_seen(x):
                    self._learn(root_of(x), layout)

    def _learn(self, value: SSAValue, layout: Layout) -> None:
        if value not in self.layouts and _is_spreadable(value) and not _is_free(value):
            self.layouts[value] = layout
            self.changed = True

    def _link(self, out: SSAValue, inner: SSAValue, results: bool, operands: bool) -> None:
        source = root_of(inner)
        annotation = inner.owner if isinstance(inner.owner, ShardOp) else None
        layout = layout_of(annotation, self.grids) if annotation is not None else self.layouts.get(source)
        if results and layout is not None:
            self._learn(out, layout)
        if operands and out in self.layouts and annotation is None:
            self._learn(source, self.layouts[out])

    def _call(self, op: CallOp) -> None:
        callee = self.functions.get(op.callee.root_reference.data)
        if callee is None:
            return
        for x, layout in zip(op.results, boundary_of(callee, self.grids).results, strict=True):
            if layout is not None:
                self._learn(x, layout)

    def _candidate(self, op: Operation) -> Candidate | None:
        rule = rule_of(op)
        if rule is None or is_source(op):
            return None
        operands = tuple(self._operand(x) for x in op.operands)
        results = tuple(self._result(x) for x in op.results)
        known = [end.layout for end in (*results, *operands) if end is not None and end.layout is not None]
        if not known:
            return None
        mesh = next((layout.mesh for layout in known if layout.sharded_axes), known[0].mesh)
        return find_cheapest(rule, operands, results, mesh)

    def _operand(self, x: SSAValue) -> End | None:
        if not is_tensor(x.type):
            return None
        if self._is_seen(x):
            assert isinstance(x.owner, ShardOp)
            return End(shape_of(x), dtype_of(x.type), layout_of(x.owner, self.grids), hard=True)
        return End(shape_of(x), dtype_of(x.type), self.layouts.get(root_of(x)))

    def _is_seen(self, x: SSAValue) -> bool:
        return isinstance(x.owner, ShardOp) and x.owner.annotate_for_users

    def _result(self, x: SSAValue) -> End:
        layout = self.layouts.get(x)
        if layout is None:  # how users see it, if all of them agree
            layouts = {layout_of(op, self.grids) for op in annotations_of(x)}
            layout = layouts.pop() if len(layouts) == 1 else None
        return End(shape_of(x), dtype_of(x.type), layout, hard=x in self.hard)

    # -- writing -----------------------------------------------------------------------------------

    def _write(self, ops: Sequence[Operation], annotated: set[Operation]) -> None:
        candidates = {
            op: self._candidate(op) for op in ops if op not in annotated and not isinstance(op, scf.IfOp | scf.ForOp)
        }
        for value, layout in self.layouts.items():
            if value not in self.hard:
                self._annotate(value, layout)
        for op, candidate in candidates.items():
            for k, layout in enumerate(candidate.operands if candidate is not None else ()):
                if layout is not None:
                    self._see(op, k, layout)
        self._hoist()

    def _annotate(self, value: SSAValue, layout: Layout) -> None:
        op = ShardOp(value, self._sharding(layout, shape_of(value)).result)
        op.result.name_hint = value.name_hint
        if isinstance(value, OpResult):
            block = value.op.parent
            assert block is not None
            block.insert_op_after(op, value.op)
        else:
            block = value.owner
            assert isinstance(block, Block)
            assert block.first_op is not None
            block.insert_op_before(op, block.first_op)
        value.replace_uses_with_if(op.result, lambda use: use.operation is not op)

    def _see(self, op: Operation, index: int, layout: Layout) -> None:
        x = op.operands[index]
        root = root_of(x)
        if self._is_seen(x) or root not in self.layouts or self.layouts[root] is layout:
            return
        block = op.parent
        assert block is not None
        annotation = ShardOp(x, self._sharding(layout, shape_of(x)).result, annotate_for_users=True)
        annotation.result.name_hint = x.name_hint
        block.insert_op_before(annotation, op)
        op.operands[index] = annotation.result

    def _sharding(self, layout: Layout, shape: Shape) -> ShardingOp:
        # Bounds that are not said depend on the shape.
        key = layout, shape if any(cut.offsets is not None for cut in layout.dims) else None
        if key not in self.shardings:
            self.shardings[key] = sharding_of(layout, shape)
        return self.shardings[key]

    def _hoist(self) -> None:
        # What is said by constants stands at the top, once.
        block = self.function.body.blocks[0]
        by_text: dict[tuple[object, ...], ShardingOp] = {}
        if not self.shardings:
            return
        constants = [op for op in block.ops if isinstance(op, ShardingOp) and not op.operands]
        for op in constants:
            op.detach()
        tops: list[Operation] = []
        for op in [*constants, *self.shardings.values()]:
            key = (op.grid, op.split_axes, *(op.properties[n] for n in sorted(op.properties)), *op.attributes.items())
            first = by_text.setdefault(key, op)
            if first is op:
                tops.append(op)
                continue
            op.result.replace_all_uses_with(first.result)
            op.erase()
        assert block.first_op is not None
        block.insert_ops_before(tops, block.first_op)


def _links(op: scf.IfOp | scf.ForOp) -> list[tuple[SSAValue, SSAValue]]:
    # Values that are the same: what goes in and what comes out.
    if isinstance(op, scf.IfOp):
        ends = [region.block.last_op for region in op.regions if region.blocks]
        return [(x, end.operands[k]) for k, x in enumerate(op.results) for end in ends if end is not None]
    end, args = op.body.block.last_op, op.body.block.args[1:]
    assert end is not None
    rows = zip(op.results, args, op.iter_args, end.operands, strict=True)
    return [(a, b) for out, arg, init, last in rows for a, b in ((arg, init), (out, arg), (arg, last))]


def _is_spreadable(value: SSAValue) -> bool:
    # A scalar is whole in any case.
    return is_static(value.type) and bool(shape_of(value))


def _is_free(value: SSAValue) -> bool:
    return not _is_spreadable(value) or (isinstance(value.owner, Operation) and is_source(value.owner))
