"""Layouts of a module: its grids as meshes, its shardings as layouts, and layouts as shardings again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.dialects.builtin import DYNAMIC_INDEX, DenseArrayBase, ModuleOp, TensorType
from xdsl.ir import Attribute, SSAValue

from shardwise.errors import ProgramError
from shardwise.ir.constants import constant_int
from shardwise.ir.module.program import fill_open, ints, op_text
from shardwise.ir.module.reductions import BY_OP, BY_WORD
from shardwise.ir.module.shardings import Sharding
from shardwise.ir.shard import GetShardingOp, GridOp, ReductionKindAttr, ShardingOp, ShardOp
from shardwise.ir.shard.attributes import axes_attribute, reduction_attribute, split_dims
from shardwise.layout.axis import Axis
from shardwise.layout.cut import Cut
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.mesh import DeviceMesh


@dataclass(frozen=True)
class Grids:
    """The grids of a module, each as a mesh whose axes are called axis0, axis1, ..."""

    shapes: Mapping[str, tuple[int, ...]]

    def mesh(self, name: str) -> DeviceMesh:
        """Return a grid as a mesh."""
        shape = self.shapes[name]
        return DeviceMesh(shape, [f"axis{k}" for k in range(len(shape))], name=name)

    def layout(self, sharding: SSAValue, rank: int) -> Layout:
        """Return the layout that a sharding gives to tensors of a rank."""
        op = sharding_op(sharding)
        name = op.grid_name
        if name not in self.shapes:
            raise ProgramError(f"{op_text(op)} names the grid @{name}, which the module does not have.")
        if any(size < 0 for size in self.shapes[name]):
            raise ProgramError(f"the grid @{name} has open sizes, so {op_text(op)} says nothing yet; give it a shape.")
        lists = split_dims(op.split_axes)
        halos = _numbers(op, op.static_halo_sizes, op.dynamic_halo_sizes)
        offsets = _numbers(op, op.static_sharded_dims_offsets, op.dynamic_sharded_dims_offsets)
        whole = Sharding(name, self.shapes[name], lists, halos, offsets).layout(rank)
        return _with_partial(op, whole)


def grids_of(module: ModuleOp, shapes: Mapping[str, Sequence[int]] | None = None) -> Grids:
    """Return the grids of a module; `shapes` gives those of grids with open sizes."""
    known = {name: tuple(shape) for name, shape in (shapes or {}).items()}
    out: dict[str, tuple[int, ...]] = {}
    for op in module.body.block.ops:
        if isinstance(op, GridOp):
            name = op.sym_name.data
            out[name] = known.get(name, tuple(-1 if n == DYNAMIC_INDEX else int(n) for n in op.shape.get_values()))
    return Grids(out)


def sharding_op(sharding: SSAValue) -> ShardingOp:
    """Return the op that makes a sharding, seen through shard.get_sharding."""
    op = sharding.owner
    while isinstance(op, GetShardingOp) and isinstance(op.source.owner, ShardOp):
        op = op.source.owner.sharding.owner
    if not isinstance(op, ShardingOp):
        raise ProgramError("a sharding is not made by shard.sharding, so it is not known before the program runs.")
    return op


def _numbers(op: ShardingOp, static: DenseArrayBase[Any], dynamic: Sequence[SSAValue]) -> tuple[int, ...]:
    values = [constant_int(value) for value in dynamic]
    if None in values:
        raise ProgramError(
            f"{op_text(op)} has halos or offsets that are values, so shards are not known before the program runs.\n"
            "  use constants."
        )
    return fill_open(ints(static), values)


def _with_partial(op: ShardingOp, layout: Layout) -> Layout:
    # What LLVM 19 says of values that are still to be reduced.
    axes, kind = op.attributes.get("partial_axes"), op.attributes.get("partial_type")
    if not isinstance(axes, DenseArrayBase) or not isinstance(kind, ReductionKindAttr):
        return layout
    row = BY_WORD.get(str(kind.data))
    if row is None:
        raise ProgramError(f"{op_text(op)} is partial with the reduction {kind.data.value}, which is none to resolve.")
    return Layout(layout.mesh, layout.dims, [f"axis{a}" for a in axes.get_values()], row.op)


# -- and back --------------------------------------------------------------------------------------------


def number(axis: Axis) -> int:
    """Return the number of a grid axis."""
    return int(axis.name.removeprefix("axis"))


def numbers(axes: Sequence[Axis]) -> list[int]:
    """Return the numbers of grid axes."""
    return [number(axis) for axis in axes]


def sharding_of(layout: Layout, shape: Shape) -> ShardingOp:
    """Return the op that says a layout of tensors of a shape; it belongs to no block yet.

    >>> print(sharding_of(Layout(DeviceMesh((2, 4), ("axis0", "axis1"), name="g"), ["axis1", None]), (8, 8)))
    %0 = shard.sharding @g split_axes = [[1], []] : !shard.sharding
    """
    spare = [k for k, size in enumerate(layout.mesh.mesh_shape) if size == 1]
    lists: list[list[int]] = []
    cuts: list[tuple[int, Cut]] = []
    for k, cut in enumerate(layout.dims):
        # A dim in one piece has a halo only where an axis of one device splits it.
        axes = numbers(cut.axes) or ([spare.pop(0)] if cut.halo != (0, 0) else [])
        lists.append(axes)
        cuts += [(k, cut)] if axes else []
    halos = [n for _, cut in cuts for n in cut.halo] if layout.has_halo else None
    offsets = None
    if any(cut.offsets is not None for _, cut in cuts):
        dims = layout.tiling(shape).dims
        offsets = [n for k, _ in cuts for n in (*(dims[k].interval(i)[0] for i in range(dims[k].parts)), shape[k])]
    op = ShardingOp(layout.mesh.name, lists, None, None, static_halo_sizes=halos, static_sharded_dims_offsets=offsets)
    if layout.partial and layout.reduce_op is not None:
        op.attributes["partial_axes"] = axes_attribute(numbers(layout.partial))
        op.attributes["partial_type"] = reduction_attribute(BY_OP[layout.reduce_op].word)
    return op


def is_sayable(layout: Layout) -> bool:
    """Whether a sharding can say a layout: it has halos or offsets, not both."""
    return not (layout.has_halo and any(cut.offsets is not None for cut in layout.dims))


# -- types -----------------------------------------------------------------------------------------------


def local_sizes(layout: Layout, shape: Shape) -> Shape:
    """Return the sizes of a shard, open where shards differ.

    >>> local_sizes(Layout(DeviceMesh((2,), ("x",)), ["x", None]), (5, 3)) == (DYNAMIC_INDEX, 3)
    True
    """
    dims = layout.tiling(shape).dims
    return tuple(d.size // d.parts + sum(d.halo) if d.is_even else DYNAMIC_INDEX for d in dims)


def local_type(layout: Layout, shape: Shape, element: Attribute) -> TensorType[Any]:
    """Return the type of a shard."""
    return TensorType(element, local_sizes(layout, shape))
