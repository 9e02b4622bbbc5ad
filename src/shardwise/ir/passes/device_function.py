"""Device functions: what one device does of a function on whole tensors, op by op."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IndexType, IntegerAttr
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue

from shardwise.errors import ProgramError, seal
from shardwise.ir.constants import constant_int
from shardwise.ir.module.program import op_text
from shardwise.ir.module.values import dtype_of
from shardwise.ir.passes.boundaries import Boundary, annotation_of, layout_of, producer
from shardwise.ir.passes.candidates import End, find_cheapest
from shardwise.ir.passes.layouts import Grids, local_type
from shardwise.ir.passes.local_ops import write_local
from shardwise.ir.passes.resharding import reshard
from shardwise.ir.passes.rules import rule_of
from shardwise.ir.passes.sources import is_source, make_source
from shardwise.ir.passes.writer import Writer
from shardwise.ir.shard import GetShardingOp, ShardingOp, ShardOp
from shardwise.ir.types import element_type, is_static, is_tensor, shape_of
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.mesh import DeviceMesh
from shardwise.plan.plan import Plan
from shardwise.plan.steps import Step


@seal
@dataclass(frozen=True, slots=True)
class Reshard:
    """A change of layout that partitioning wrote: for which op, by which plan, and in which steps."""

    op: Operation
    plan: Plan
    steps: tuple[Step, ...]


@dataclass(slots=True)
class LocalValue:
    """What a device holds of a value: the local value and its layout, or a source that can be made in any."""

    layout: Layout
    local: SSAValue | None = None
    source: Operation | None = None


@dataclass
class DeviceFunction:
    """Writes the function of a device: what each value of the old one is there."""

    old: FuncOp
    grids: Grids
    boundaries: Mapping[str, Boundary]
    moves: list[Reshard]
    largest: dict[SSAValue, int]
    values: dict[SSAValue, LocalValue] = field(default_factory=dict[SSAValue, LocalValue])
    plain: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])  # what is no tensor
    known: ChainMap[tuple[SSAValue, Layout], SSAValue] = field(default_factory=lambda: ChainMap())
    shardings: list[ShardingOp] = field(default_factory=list[ShardingOp])

    @property
    def mesh(self) -> DeviceMesh:
        """The first grid, for what is not spread at all."""
        return self.grids.mesh(next(iter(self.grids.shapes)))

    def write(self) -> FuncOp:
        """Return the function of a device."""
        name = self.old.sym_name.data
        boundary = self.boundaries[name]
        if not self.old.body.blocks:
            return self.old.clone()
        if len(self.old.body.blocks) > 1:
            raise ProgramError(f"@{name} has several blocks, which cannot be partitioned.\n  use scf.if and scf.for.")
        block = self.old.body.block
        body = Block()
        self.writer = Writer(body)
        for arg, layout in zip(block.args, boundary.arguments, strict=True):
            new = body.insert_arg(self._type(arg, layout), len(body.args))
            new.name_hint = arg.name_hint
            self._hold(arg, new, layout)
        self.results = boundary.results
        for op in block.ops:
            self._op(op)
        for op in self.shardings:
            if op.result.first_use is None:
                op.detach()
                op.erase()
        self.writer.finish(body)
        last = body.last_op
        outputs = [x.type for x in last.operands] if last is not None else []
        function = FuncOp(name, ([arg.type for arg in body.args], outputs), Region(body), self.old.sym_visibility)
        function.properties = {**self.old.properties, **function.properties}
        function.attributes = dict(self.old.attributes)
        function.location = self.old.location
        return function

    def _type(self, x: SSAValue, layout: Layout | None) -> Any:
        if layout is None or not is_tensor(x.type):
            return x.type
        if not is_static(x.type):
            if not layout.is_replicated:
                raise ProgramError(f"{x.type} is to be spread as {layout}, but not all of its sizes are known.")
            return x.type
        return local_type(layout, shape_of(x), element_type(x))

    def _hold(self, x: SSAValue, local: SSAValue, layout: Layout | None) -> None:
        if not is_tensor(x.type):
            self.plain[x] = local
            return
        self._note(x, LocalValue(layout if layout is not None else self._whole(x), local))

    def _note(self, x: SSAValue, local_value: LocalValue) -> None:
        self.values[x] = local_value
        if local_value.local is not None and not is_static(local_value.local.type) and is_static(x.type):
            self.largest[local_value.local] = local_value.layout.max_local_bytes(shape_of(x), dtype_of(x.type))

    def _whole(self, x: SSAValue) -> Layout:
        return Layout.replicated(self.mesh, len(shape_of(x)))

    # -- ops ---------------------------------------------------------------------------------------

    def _op(self, op: Operation) -> None:
        if isinstance(op, ShardingOp | GetShardingOp):
            self._sharding(op)
        elif isinstance(op, ShardOp):
            self._annotation(op)
        elif isinstance(op, ReturnOp):
            self._return(op)
        elif isinstance(op, CallOp) and op.callee.root_reference.data in self.boundaries:
            self._call(op, self.boundaries[op.callee.root_reference.data])
        elif isinstance(op, scf.IfOp):
            self._if(op)
        elif isinstance(op, scf.ForOp):
            self._for(op)
        elif op.name == "tensor.dim" and self._known_dim(op):
            pass
        elif is_source(op):
            self.values[op.results[0]] = LocalValue(self._whole(op.results[0]), source=op)
        else:
            self._computation(op)

    def _sharding(self, op: ShardingOp | GetShardingOp) -> None:
        # Kept only for those who ask about it while the program runs.
        if isinstance(op, GetShardingOp):
            if isinstance(op.source.owner, ShardOp):
                self.plain[op.result] = self.plain[op.source.owner.sharding]
                return
            raise ProgramError(f"{op_text(op)} asks for the sharding of a value that no shard.shard makes.")
        copy = op.clone(self.plain)
        self.writer.add(copy)
        self.plain[op.result] = copy.result
        self.shardings.append(copy)

    def _annotation(self, op: ShardOp) -> None:
        layout = layout_of(op, self.grids)
        assert layout is not None
        if not is_static(op.src.type):
            self._type(op.src, layout)
            self.values[op.result] = self.values[op.src]
            return
        self._note(op.result, LocalValue(layout, self._local(op.src, layout, op)))

    def _known_dim(self, op: Operation) -> bool:
        # The size of the whole, not that of a shard.
        dim = constant_int(op.operands[1])
        size = -1 if dim is None else shape_of(op.operands[0])[dim]
        if size < 0:
            return False
        self.plain[op.results[0]] = self.writer.add(arith.ConstantOp(IntegerAttr(size, IndexType())))
        return True

    def _computation(self, op: Operation) -> None:
        rule = rule_of(op)
        if rule is None or self._reads_from_outside(op):
            self._replicate(op)
            return
        operands = tuple(self._operand_end(x) for x in op.operands)
        results = tuple(self._result_end(x) for x in op.results)
        candidate = find_cheapest(rule, operands, results, self._mesh_of(operands, results))
        inputs = [
            self.plain[x] if layout is None else self._local(x, layout, op)
            for x, layout in zip(op.operands, candidate.operands, strict=True)
        ]
        outputs = write_local(self.writer, op, rule, candidate, inputs, self.plain)
        for old, new, layout, end in zip(op.results, outputs, candidate.results, results, strict=True):
            new.name_hint = old.name_hint
            self._keep_result(op, old, new, layout, end.layout)

    def _reads_from_outside(self, op: Operation) -> bool:
        # A body that picks elements of a tensor by index may need any of them.
        return any(x in self.values for inner in op.walk() if inner is not op for x in inner.operands)

    def _keep_result(self, op: Operation, old: SSAValue, new: SSAValue, layout: Layout, wanted: Layout | None) -> None:
        # What is pending is resolved where it is used, if there is one such place; so it goes straight to the layout
        # that is needed there.
        to = wanted if wanted is not None else layout.resolved()
        uses = list(old.uses)
        if wanted is None and layout.partial and len(uses) == 1 and uses[0].operation.parent is op.parent:
            to = layout
        self._note(old, LocalValue(to, self._reshard(new, layout, to, shape_of(old), op)))

    def _mesh_of(self, operands: Sequence[End | None], results: Sequence[End]) -> DeviceMesh:
        layouts = [end.layout for end in (*results, *operands) if end is not None and end.layout is not None]
        return next((layout.mesh for layout in layouts if layout.sharded_axes), self.mesh)

    def _operand_end(self, x: SSAValue) -> End | None:
        if not is_tensor(x.type):
            return None
        local_value = self.values[x]
        layout = None if local_value.source is not None else local_value.layout
        return End(shape_of(x), dtype_of(x.type), layout)

    def _result_end(self, x: SSAValue) -> End:
        annotation = producer(x)
        if annotation is None:
            annotation = annotation_of(x)
            annotation = annotation if annotation is not None and annotation.parent is self._parent(x) else None
        return End(shape_of(x), dtype_of(x.type), layout_of(annotation, self.grids))

    def _parent(self, x: SSAValue) -> Block | None:
        return x.owner.parent if isinstance(x.owner, Operation) else x.owner

    def _replicate(self, op: Operation) -> None:
        # An op without a rule does the same on every device.
        mapping: dict[SSAValue, SSAValue] = {}
        for x in dict.fromkeys(x for inner in op.walk() for x in inner.operands):
            if x in self.values:
                mapping[x] = self._local(x, self._whole_like(x), op)
            elif x in self.plain:
                mapping[x] = self.plain[x]
        copy = op.clone(mapping)
        self.writer.block.add_op(copy)
        for old, new in zip(op.results, copy.results, strict=True):
            self._hold(old, new, None)

    def _whole_like(self, x: SSAValue) -> Layout:
        return Layout.replicated(self.values[x].layout.mesh, self.values[x].layout.rank)

    # -- layouts -----------------------------------------------------------------------------------

    def _local(self, x: SSAValue, layout: Layout, op: Operation) -> SSAValue:
        local_value = self.values[x]
        if local_value.source is not None:
            return self._from_source(local_value.source, layout)
        assert local_value.local is not None
        if local_value.layout is layout:
            return local_value.local
        return self._reshard(local_value.local, local_value.layout, layout, shape_of(x), op)

    def _from_source(self, source: Operation, layout: Layout) -> SSAValue:
        key = (source.results[0], layout)
        if key not in self.known:
            self.known[key] = make_source(self.writer, source, [self.plain[x] for x in source.operands], layout)
            self.known[key].name_hint = source.results[0].name_hint
        return self.known[key]

    def _reshard(self, local: SSAValue, src: Layout, dst: Layout, shape: Shape, op: Operation) -> SSAValue:
        whole = src.is_replicated and not src.has_halo
        if src is dst or (whole and dst.is_replicated and not dst.has_halo):
            return local
        if whole:  # on whichever grid
            src = Layout.replicated(dst.mesh, dst.rank)
        key = (local, dst)
        if key not in self.known:
            made = reshard(self.writer, local, src, dst, shape)
            self.known[key] = made.value
            if made.plan is not None:
                self.moves.append(Reshard(op, made.plan, made.steps))
        return self.known[key]

    # -- control -----------------------------------------------------------------------------------

    def _return(self, op: ReturnOp) -> None:
        self.writer.block.add_op(ReturnOp(*self._deliver(op.operands, self.results, op)))

    def _deliver(
        self, values: Sequence[SSAValue], layouts: Sequence[Layout | None], op: Operation
    ) -> Iterator[SSAValue]:
        for x, layout in zip(values, layouts, strict=True):
            if is_tensor(x.type):
                yield self._local(x, layout if layout is not None else self._whole_like(x), op)
            else:
                yield self.plain[x]

    def _call(self, op: CallOp, boundary: Boundary) -> None:
        operands = list(self._deliver(op.operands, boundary.arguments, op))
        kinds = [self._type(x, layout) for x, layout in zip(op.results, boundary.results, strict=True)]
        call = CallOp(op.callee, operands, kinds)
        call.location = op.location
        self.writer.block.add_op(call)
        for old, new, layout in zip(op.results, call.results, boundary.results, strict=True):
            self._hold(old, new, layout)

    @contextmanager
    def _region(self, block: Block) -> Generator[None]:
        # Values made inside are not seen outside.
        known, self.known = self.known, self.known.new_child()
        with self.writer.inside(block):
            yield
        self.known = known

    def _if(self, op: scf.IfOp) -> None:
        layouts: list[Layout | None] = [self._result_end(x).layout if is_static(x.type) else None for x in op.results]
        regions: list[Region] = []
        for region in op.regions:
            if not region.blocks:
                regions.append(Region())
                continue
            new = Block()
            with self._region(new):
                results = self._inner(region.block)
                layouts = [layout or self._resolved_layout(x) for layout, x in zip(layouts, results, strict=True)]
                new.add_op(scf.YieldOp(*self._deliver(results, layouts, op)))
            regions.append(Region(new))
        kinds = [self._type(x, layout) for x, layout in zip(op.results, layouts, strict=True)]
        new_if = scf.IfOp(self.plain[op.cond], kinds, regions[0], regions[1])
        self._add_control(op, new_if, layouts)

    def _resolved_layout(self, x: SSAValue) -> Layout | None:
        return self.values[x].layout.resolved() if is_tensor(x.type) else None

    def _inner(self, block: Block) -> Sequence[SSAValue]:
        # Write what a region does; what it yields is left to the caller.
        *ops, last = block.ops
        for op in ops:
            self._op(op)
        return last.operands

    def _for(self, op: scf.ForOp) -> None:
        body = op.body.block
        layouts: list[Layout | None] = []
        for x, arg, init in zip(op.results, body.args[1:], op.iter_args, strict=True):
            if not is_tensor(x.type):
                layouts.append(None)
                continue
            wanted = self._result_end(x).layout if is_static(x.type) else None
            layouts.append(wanted or layout_of(producer(arg), self.grids) or self._resolved_layout(init))
        inits = list(self._deliver(op.iter_args, layouts, op))
        new = Block(arg_types=[body.args[0].type, *(x.type for x in inits)])
        self.plain[body.args[0]] = new.args[0]
        for arg, local, layout in zip(body.args[1:], new.args[1:], layouts, strict=True):
            self._hold(arg, local, layout)
        with self._region(new):
            new.add_op(scf.YieldOp(*self._deliver(self._inner(body), layouts, op)))
        lower, upper, step = (self.plain[x] for x in (op.lb, op.ub, op.step))
        self._add_control(op, scf.ForOp(lower, upper, step, inits, Region(new)), layouts)

    def _add_control(self, op: Operation, new_op: Operation, layouts: Sequence[Layout | None]) -> None:
        new_op.location = op.location
        self.writer.block.add_op(new_op)
        for old, new, layout in zip(op.results, new_op.results, layouts, strict=True):
            new.name_hint = old.name_hint
            self._hold(old, new, layout)
