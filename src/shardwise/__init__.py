"""Tensors spread over a mesh of devices: one global program, its layouts, and the least communication.

The words, used in code, errors and documentation alike:

- device: one slot of a mesh; mesh axis: one named dimension of the mesh;
- dim: one dimension of the tensor; shard: the piece one device holds;
- layout: how one tensor is spread over one mesh; placement: what one mesh axis does to it;
- reshard: go from one layout to another; plan: the steps that do it; traffic: bytes between devices;
- group: devices that differ only in the named mesh axes;
- global view: what the value is, as if on one device; local view: what one device holds.
"""

from shardwise.errors import (
    ArgumentError,
    BindingError,
    ConversionError,
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
from shardwise.plan.cost import Link, Links
from shardwise.plan.plan import Plan, plan_reshard
from shardwise.plan.steps import Step
from shardwise.plan.transfer import Transfer

__version__ = "0.1.0"

__all__ = [
    "Accelerator",
    "ArgumentError",
    "Axis",
    "BindingError",
    "CPU",
    "ConversionError",
    "Cut",
    "Device",
    "DeviceMapping",
    "DeviceMesh",
    "DimSpec",
    "DistributedBufferType",
    "DistributedTensorType",
    "DistributedType",
    "Layout",
    "LayoutError",
    "Link",
    "Links",
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
    "Sharded",
    "ShardingSpec",
    "ShardwiseError",
    "SpecEntry",
    "Step",
    "TensorLayout",
    "Transfer",
    "accelerator_count",
    "as_layout",
    "current_mesh",
    "default_device",
    "global_shape_from_local",
    "local_shard_shape_from_global",
    "mesh_context",
    "plan_reshard",
    "shard_shape",
]
