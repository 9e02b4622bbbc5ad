"""Tensors spread over a mesh of devices: one global program, its layouts, and the least communication.

The words, used in code, errors and documentation alike:

- device: one slot of a mesh; mesh axis: one named dimension of the mesh;
- dim: one dimension of the tensor; shard: the piece one device holds;
- layout: how one tensor is spread over one mesh; placement: what one mesh axis does to it;
- reshard: go from one layout to another; plan: the steps that do it; traffic: bytes between devices;
- group: devices that differ only in the named mesh axes;
- global view: what the value is, as if on one device; local view: what one device holds.
"""

from shardwise.autodiff.transforms import jvp, stop_gradient, vjp
from shardwise.engine.abstract import AbstractEngine
from shardwise.engine.current import current_engine, engine_context
from shardwise.engine.local import LocalEngine
from shardwise.engine.log import trace_communication
from shardwise.errors import (
    ArgumentError,
    BindingError,
    ConversionError,
    DerivativeError,
    EngineError,
    LayoutError,
    MeshError,
    PlanError,
    ShardwiseError,
)
from shardwise.layout.axis import Axis
from shardwise.layout.conversion import as_layout
from shardwise.layout.device import CPU, Accelerator, Device, accelerator_count, default_device
from shardwise.layout.layout import Cut, Layout
from shardwise.layout.mapping import DeviceMapping, NamedMapping, PlacementMapping
from shardwise.layout.mesh import DeviceMesh, current_mesh, mesh_context
from shardwise.layout.placement import Partial, Placement, ReduceOp, Replicated, Sharded
from shardwise.layout.shape import global_shape_from_local, local_shard_shape_from_global, shard_shape
from shardwise.layout.spec import DimSpec, P, ShardingSpec, SpecEntry
from shardwise.layout.types import (
    DistributedBufferType,
    DistributedTensorType,
    DistributedType,
    LocalType,
    TensorLayout,
)
from shardwise.ops import graph_ops
from shardwise.ops.communication import (
    accelerator,
    all_gather,
    all_reduce,
    all_slice,
    all_to_all,
    cpu,
    distributed_broadcast,
    gpu,
    halo_exchange,
    pmean,
    ppermute,
    reduce_scatter,
    reshard,
    shard,
    shift,
    to_device,
    transfer_to,
)
from shardwise.ops.local_view import LocalTensor, axis_index, broadcast, gather, reduce, scatter, send_recv, shard_map
from shardwise.plan.cost import Link, Links
from shardwise.plan.plan import Plan, plan_reshard
from shardwise.plan.steps import Step
from shardwise.plan.transfer import Transfer
from shardwise.prim.tensor import Shard, Tensor, asarray, from_shards

__version__ = "0.1.0"

__all__ = [
    "AbstractEngine",
    "Accelerator",
    "ArgumentError",
    "Axis",
    "BindingError",
    "CPU",
    "ConversionError",
    "Cut",
    "DerivativeError",
    "Device",
    "DeviceMapping",
    "DeviceMesh",
    "DimSpec",
    "DistributedBufferType",
    "DistributedTensorType",
    "DistributedType",
    "EngineError",
    "Layout",
    "LayoutError",
    "Link",
    "Links",
    "LocalEngine",
    "LocalTensor",
    "LocalType",
    "MeshError",
    "NamedMapping",
    "P",
    "Partial",
    "Placement",
    "PlacementMapping",
    "Plan",
    "PlanError",
    "ReduceOp",
    "Replicated",
    "Shard",
    "Sharded",
    "ShardingSpec",
    "ShardwiseError",
    "SpecEntry",
    "Step",
    "Tensor",
    "TensorLayout",
    "Transfer",
    "accelerator",
    "accelerator_count",
    "all_gather",
    "all_reduce",
    "all_slice",
    "all_to_all",
    "as_layout",
    "asarray",
    "axis_index",
    "broadcast",
    "cpu",
    "current_engine",
    "current_mesh",
    "default_device",
    "distributed_broadcast",
    "engine_context",
    "from_shards",
    "gather",
    "graph_ops",
    "global_shape_from_local",
    "gpu",
    "halo_exchange",
    "jvp",
    "local_shard_shape_from_global",
    "mesh_context",
    "plan_reshard",
    "pmean",
    "ppermute",
    "reduce",
    "reduce_scatter",
    "reshard",
    "scatter",
    "send_recv",
    "shard",
    "shard_map",
    "shard_shape",
    "shift",
    "to_device",
    "trace_communication",
    "transfer_to",
    "stop_gradient",
    "vjp",
]
