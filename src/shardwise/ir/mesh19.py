"""The `mesh` dialect of LLVM 19: what newer tools call `shard`, with shardings as attributes."""

from xdsl.dialects.builtin import ModuleOp, TensorType, UnitAttr
from xdsl.ir import Operation
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, opt_prop_def, prop_def, result_def
from xdsl.printer import Printer

from shardwise.ir.dialects.llvm19 import refuse, to_llvm19
from shardwise.ir.shard import ReductionKindAttr, Sharding19Attr, ShardingOp, ShardingType, ShardOp, ShardOperation
from shardwise.ir.shard.attributes import axes_attribute, is_axes, reduction_attribute

ABSENT = ("get_sharding", "shard_shape", "neighbors_linear_indices", "update_halo")
OP_NAMES = {"shard.grid": "mesh.mesh", "shard.grid_shape": "mesh.mesh_shape"}


@irdl_op_definition
class Shard19Op(IRDLOperation):
    """The annotation as LLVM 19 writes it, `mesh.shard %0 to <@g, [[0]]>`."""

    name = "mesh.shard"

    src = operand_def(TensorType)
    shard = prop_def(Sharding19Attr)
    annotate_for_users = opt_prop_def(UnitAttr)
    result = result_def(TensorType)

    def print(self, printer: Printer) -> None:
        """Print the op."""
        printer.print_string(" ")
        printer.print_ssa_value(self.src)
        printer.print_string(" to ")
        self.shard.print_parameters(printer)
        if self.annotate_for_users is not None:
            printer.print_string(" annotate_for_users")
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.result.type)


def to_mesh19(module: ModuleOp) -> ModuleOp:
    """Return a copy of the module that prints as LLVM 19's text, for printing alone."""
    copy = module.clone()
    for op in list(copy.walk()):
        if isinstance(op, ShardOp):
            _annotate(op)
    for op in list(copy.walk()):
        _respell(op)
        to_llvm19(op)
    return copy


def _annotate(op: ShardOp) -> None:
    sharding = op.sharding.owner
    if not isinstance(sharding, ShardingOp):
        raise refuse(op, "LLVM 19 writes the sharding as an attribute, and this one is not made by shard.sharding.")
    if sharding.static_halo_sizes.get_values() or sharding.static_sharded_dims_offsets.get_values():
        raise refuse(sharding, "LLVM 19 has no halos and no offsets of shards.")
    partial = sharding.attributes.get("partial_axes", axes_attribute(()))
    kind = sharding.attributes.get("partial_type", reduction_attribute(None))
    if not is_axes(partial) or not isinstance(kind, ReductionKindAttr):
        raise refuse(sharding, "partial_axes is `array<i16: ...>` and partial_type is `#shard.partial<...>`.")
    attribute = Sharding19Attr(sharding.grid, sharding.split_axes, kind, partial)
    properties = {"shard": attribute, "annotate_for_users": op.user_annotation}
    new = Shard19Op(operands=[op.src], result_types=[op.result.type], properties=properties, attributes=op.attributes)
    new.result.name_hint = op.result.name_hint or None
    block = op.parent
    assert block is not None
    block.insert_op_before(new, op)
    op.result.replace_all_uses_with(new.result)
    op.detach()
    op.erase()
    if sharding.result.first_use is None:
        sharding.detach()
        sharding.erase()


def _respell(op: Operation) -> None:
    arguments = [arg for region in op.regions for block in region.blocks for arg in block.args]
    if any(isinstance(value.type, ShardingType) for value in (*op.operands, *op.results, *arguments)):
        raise refuse(op, "LLVM 19 has no shardings as values.")
    if not isinstance(op, ShardOperation):
        return
    name = op.name.removeprefix("shard.")
    if name in ABSENT:
        raise refuse(op, "LLVM 19 has no such op.")
    # The copy is for printing alone, and the printer asks the op for its name.
    object.__setattr__(op, "name", OP_NAMES.get(op.name, f"mesh.{name}"))
