"""Folds: the rules of simplification, one function each, from an op to the value that takes its place.

Each holds for all devices and all values. They look at an op and at those that make its operands; an op that others
use too is left where it is.
"""

from __future__ import annotations

from xdsl.dialects import tensor
from xdsl.ir import Operation, SSAValue

from shardwise.ir.module.reductions import BY_COMBINER, REDUCTIONS
from shardwise.ir.passes.constant_folds import known_numbers, known_shape, known_sharding, only_position
from shardwise.ir.passes.folding import Fold, Folding, axes_of, inner_of, maker
from shardwise.ir.shard import (
    AllGatherOp,
    AllReduceOp,
    AllSliceOp,
    AllToAllOp,
    BroadcastOp,
    CollectiveOperation,
    GatherOp,
    GridShapeOp,
    ProcessMultiIndexOp,
    RecvOp,
    ReduceOp,
    ReduceScatterOp,
    ScatterOp,
    SendOp,
    ShardingOp,
    ShiftOp,
    UpdateHaloOp,
)
from shardwise.ir.types import element_type, is_static

# -- one op ----------------------------------------------------------------------------------------------


def alone(f: Folding, op: CollectiveOperation) -> SSAValue | None:
    """A collective in groups of one device gives what it is given."""
    if f.count(op) != 1 or op.operands[0].type != op.results[0].type:
        return None
    return op.operands[0]


def no_shift(f: Folding, op: ShiftOp) -> SSAValue | None:
    """A shift by nothing, or once around, gives what it is given."""
    size = f.grids.shapes[op.grid_name][op.shift_axis.value.data]
    offset = op.offset.value.data
    if offset == 0 or (op.rotate and size > 0 and offset % size == 0):
        return op.input
    return None


def no_halo(f: Folding, op: UpdateHaloOp) -> SSAValue | None:
    """An update of halos of no width changes nothing."""
    return None if op.halo_sizes or any(op.static_halo_sizes.get_values()) else op.destination


def cast_back(f: Folding, op: tensor.CastOp) -> SSAValue | None:
    """A cast to the type that a value has, or had before another cast, is that value."""
    if op.source.type == op.dest.type:
        return op.source
    inner = maker(op.source, tensor.CastOp, alone=False)
    return inner.source if inner is not None and inner.source.type == op.dest.type else None


# -- two collectives -------------------------------------------------------------------------------------


def gather_of_gather(f: Folding, op: AllGatherOp) -> SSAValue | None:
    """Gathers along one dim are one gather, the later axes outside."""
    inner = inner_of(op, AllGatherOp)
    if inner is None or inner.gather_axis != op.gather_axis:
        return None
    axes = (*axes_of(op), *axes_of(inner))
    if len(set(axes)) < len(axes):
        return None
    return f.add(AllGatherOp(op.result.type, op.grid, inner.input, op.gather_axis, grid_axes=axes))


def slice_of_slice(f: Folding, op: AllSliceOp) -> SSAValue | None:
    """Slices along one dim are one slice, the later axes inside."""
    inner = inner_of(op, AllSliceOp)
    if inner is None or inner.slice_axis != op.slice_axis:
        return None
    axes = (*axes_of(inner), *axes_of(op))
    if len(set(axes)) < len(axes) or not is_static(inner.input.type, op.result.type):
        return None
    return f.add(AllSliceOp(op.result.type, op.grid, inner.input, op.slice_axis, grid_axes=axes))


def slice_of_gather(f: Folding, op: AllSliceOp) -> SSAValue | None:
    """A slice of what was gathered over the same axes is what there was; over the outer ones, less is gathered."""
    inner = inner_of(op, AllGatherOp, alone=False)
    if inner is None or inner.gather_axis.value.data != op.slice_axis.value.data:
        return None
    over, cut = axes_of(inner), axes_of(op)
    if over[: len(cut)] != cut or not is_static(inner.input.type, op.result.type):
        return None
    if over == cut:
        return inner.input
    if len(list(op.input.uses)) > 1:
        return None
    return f.add(AllGatherOp(op.result.type, op.grid, inner.input, inner.gather_axis, grid_axes=over[len(cut) :]))


def gather_of_slice(f: Folding, op: AllGatherOp) -> SSAValue | None:
    """A gather of the slices of a value is that value, if all devices of a group have the same."""
    inner = inner_of(op, AllSliceOp, alone=False)
    if inner is None or inner.slice_axis.value.data != op.gather_axis.value.data:
        return None
    if axes_of(inner) != axes_of(op) or inner.input.type != op.result.type:
        return None
    same = f.replication.is_along(inner.input, op.grid_name, axes_of(op))
    return inner.input if same else None


def reduce_of_reduce(f: Folding, op: AllReduceOp) -> SSAValue | None:
    """Reductions of one kind over different axes are one reduction."""
    inner = inner_of(op, AllReduceOp)
    if inner is None or inner.reduction != op.reduction:
        return None
    axes = sorted((*axes_of(inner), *axes_of(op)))
    if len(set(axes)) < len(axes) or len({element_type(x) for x in (inner.input, inner.result, op.result)}) > 1:
        return None
    return f.add(AllReduceOp(op.result.type, op.grid, inner.input, grid_axes=axes, reduction=op.reduction))


def slice_of_reduce(f: Folding, op: AllSliceOp) -> SSAValue | None:
    """A slice of what was reduced is a reduce_scatter; axes that are not sliced are reduced after it, on less."""
    inner = inner_of(op, AllReduceOp)
    cut = axes_of(op)
    if inner is None or not cut or not set(cut) <= set(axes_of(inner)):
        return None
    if not is_static(inner.input.type, op.result.type):
        return None
    scattered = f.add(
        ReduceScatterOp(
            op.result.type, op.grid, inner.input, op.slice_axis.value.data, grid_axes=cut, reduction=inner.reduction
        )
    )
    rest = [a for a in axes_of(inner) if a not in cut]
    if not rest:
        return scattered
    return f.add(AllReduceOp(op.result.type, op.grid, scattered, grid_axes=rest, reduction=inner.reduction))


def gather_of_scatter(f: Folding, op: AllGatherOp) -> SSAValue | None:
    """A gather of what was reduced and scattered over the same axes is an all_reduce."""
    inner = inner_of(op, ReduceScatterOp)
    if inner is None or inner.scatter_axis.value.data != op.gather_axis.value.data:
        return None
    if axes_of(inner) != axes_of(op) or not is_static(inner.input.type, op.result.type):
        return None
    return f.add(AllReduceOp(op.result.type, op.grid, inner.input, grid_axes=axes_of(op), reduction=inner.reduction))


def there_and_back(f: Folding, op: AllToAllOp) -> SSAValue | None:
    """An all_to_all and the opposite one over the same axes change nothing."""
    inner = inner_of(op, AllToAllOp, alone=False)
    if (
        inner is None
        or inner.grid != op.grid
        or axes_of(inner) != axes_of(op)
        or not is_static(inner.input.type, op.input.type)
    ):
        return None
    back = inner.split_axis.value.data, inner.concat_axis.value.data
    return inner.input if back == (op.concat_axis.value.data, op.split_axis.value.data) else None


# -- with what is the same everywhere --------------------------------------------------------------------

IDEMPOTENT = tuple(row.word for row in REDUCTIONS if row.op.is_idempotent)


def same_everywhere(f: Folding, op: AllReduceOp | BroadcastOp) -> SSAValue | None:
    """The largest, smallest, mean or broadcast of equal values is that value."""
    if isinstance(op, AllReduceOp) and op.reduction.data not in IDEMPOTENT:
        return None
    if op.input.type != op.result.type:
        return None
    same = f.replication.is_along(op.input, op.grid_name, axes_of(op))
    return op.input if same else None


# -- with arithmetic -------------------------------------------------------------------------------------

# The ops that combine two values as a reduction does, and its word.
ALIKE = {name: row.word for name, row in BY_COMBINER.items() if row.word in ("sum", "max", "min")}


def combine_before_reduce(f: Folding, op: Operation) -> SSAValue | None:
    """What is combined after two reductions can be combined before one."""
    a, b = (maker(x, AllReduceOp) for x in op.operands)
    if a is None or b is None:
        return None
    if a.grid != b.grid or sorted(axes_of(a)) != sorted(axes_of(b)) or a.reduction != b.reduction:
        return None
    if a.reduction.data != ALIKE[op.name] or len({x.type for x in (a.input, a.result, b.input, b.result)}) > 1:
        return None
    combined = f.add(
        type(op).create(operands=[a.input, b.input], result_types=[a.input.type], properties=dict(op.properties))
    )
    return f.add(AllReduceOp(a.result.type, a.grid, combined, grid_axes=axes_of(a), reduction=a.reduction))


FOLDS: dict[str, tuple[Fold, ...]] = {
    AllGatherOp.name: (alone, gather_of_slice, gather_of_scatter, gather_of_gather),
    AllReduceOp.name: (alone, same_everywhere, reduce_of_reduce),
    AllSliceOp.name: (alone, slice_of_gather, slice_of_reduce, slice_of_slice),
    AllToAllOp.name: (alone, there_and_back),
    BroadcastOp.name: (alone, known_numbers, same_everywhere),
    GatherOp.name: (alone, known_numbers),
    ReduceOp.name: (alone, known_numbers),
    ReduceScatterOp.name: (alone,),
    ScatterOp.name: (alone, known_numbers),
    SendOp.name: (known_numbers,),
    RecvOp.name: (known_numbers,),
    ShiftOp.name: (no_shift,),
    UpdateHaloOp.name: (known_numbers, no_halo),
    ShardingOp.name: (known_sharding,),
    GridShapeOp.name: (known_shape,),
    ProcessMultiIndexOp.name: (only_position,),
    tensor.CastOp.name: (cast_back,),
    **dict.fromkeys(ALIKE, (combine_before_reduce,)),
}
