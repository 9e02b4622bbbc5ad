"""The `shard` dialect of MLIR: 22 ops, each as a class and as a function that makes it.

Text is read and printed by `shardwise.ir.text`.
"""

import xdsl.ir as _ods_ir
from xdsl.ir import Dialect

from shardwise.ir.shard.attributes import (
    DYNAMIC_INDEX,
    GridAxes,
    ReductionKind,
    ReductionKindAttr,
    ShardAxesArrayAttr,
    ShardingType,
)
from shardwise.ir.shard.collective_ops import (
    AllGatherOp,
    AllReduceOp,
    AllSliceOp,
    AllToAllOp,
    ReduceScatterOp,
    all_gather,
    all_reduce,
    all_slice,
    all_to_all,
    reduce_scatter,
)
from shardwise.ir.shard.grid_ops import (
    GridOp,
    GridShapeOp,
    NeighborsLinearIndicesOp,
    ProcessLinearIndexOp,
    ProcessMultiIndexOp,
    grid,
    grid_shape,
    neighbors_linear_indices,
    process_linear_index,
    process_multi_index,
)
from shardwise.ir.shard.operation import REGISTERED, CollectiveOperation, GridUser, ShardOperation
from shardwise.ir.shard.point_ops import RecvOp, SendOp, ShiftOp, recv, send, shift
from shardwise.ir.shard.rooted_ops import (
    BroadcastOp,
    GatherOp,
    ReduceOp,
    ScatterOp,
    broadcast,
    gather,
    reduce,
    scatter,
)
from shardwise.ir.shard.sharding19 import Sharding19Attr
from shardwise.ir.shard.sharding_ops import (
    GetShardingOp,
    ShardingOp,
    ShardOp,
    ShardShapeOp,
    UpdateHaloOp,
    get_sharding,
    shard,
    shard_shape,
    sharding,
    update_halo,
)

OPERATIONS = sorted(REGISTERED, key=lambda op: op.__name__)

Shard = Dialect("shard", list(OPERATIONS), [ReductionKindAttr, ShardAxesArrayAttr, Sharding19Attr, ShardingType])
"""The dialect as xDSL knows it."""


class _Dialect:
    """The dialect as MLIR's Python bindings know it."""

    DIALECT_NAMESPACE = "shard"

    def __init__(self, descriptor: object) -> None:
        self.descriptor = descriptor


__all__ = [
    "Shard",
    "OPERATIONS",
    "ShardOperation",
    "GridUser",
    "CollectiveOperation",
    "DYNAMIC_INDEX",
    "GridAxes",
    "ReductionKind",
    "ReductionKindAttr",
    "ShardAxesArrayAttr",
    "ShardingType",
    "_Dialect",
    "_ods_ir",
    "AllGatherOp",
    "AllReduceOp",
    "AllSliceOp",
    "AllToAllOp",
    "BroadcastOp",
    "GatherOp",
    "GetShardingOp",
    "GridOp",
    "GridShapeOp",
    "NeighborsLinearIndicesOp",
    "ProcessLinearIndexOp",
    "ProcessMultiIndexOp",
    "RecvOp",
    "ReduceOp",
    "ReduceScatterOp",
    "ScatterOp",
    "SendOp",
    "ShardOp",
    "ShardShapeOp",
    "ShardingOp",
    "ShiftOp",
    "UpdateHaloOp",
    "all_gather",
    "all_reduce",
    "all_slice",
    "all_to_all",
    "broadcast",
    "gather",
    "get_sharding",
    "grid",
    "grid_shape",
    "neighbors_linear_indices",
    "process_linear_index",
    "process_multi_index",
    "recv",
    "reduce",
    "reduce_scatter",
    "scatter",
    "send",
    "shard",
    "shard_shape",
    "sharding",
    "shift",
    "update_halo",
]
