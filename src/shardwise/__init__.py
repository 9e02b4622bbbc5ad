"""Tensors spread over a mesh of devices: one global program, its layouts, and the least communication.

The words, used in code, errors and documentation alike:

- device: one slot of a mesh; mesh axis: one named dimension of the mesh;
- dim: one dimension of the tensor; shard: the piece one device holds;
- layout: how one tensor is spread over one mesh; placement: what one mesh axis does to it;
- reshard: go from one layout to another; plan: the steps that do it; traffic: bytes between devices;
- group: devices that differ only in the named mesh axes;
- global view: what the value is, as if on one device; local view: what one device holds.
"""

# Every name that is imported here is public, and `__all__` is made of them: checkers and editors read `__init__.pyi`.
# pyright: reportUnusedImport=false, reportUnsupportedDunderAll=false

import builtins as _builtins
from types import ModuleType as _Module

from shardwise.caches import CacheInfo, cache_info, clear_caches
from shardwise.engine.abstract import AbstractEngine
from shardwise.engine.current import current_engine, engine_context
from shardwise.engine.local.engine import LocalEngine
from shardwise.engine.log import trace_communication
from shardwise.engine.start import init
from shardwise.engine.steps import step
from shardwise.errors import (
    ArgumentError,
    BindingError,
    CollectiveError,
    CollectiveMismatch,
    CollectiveTimeout,
    ConversionError,
    DerivativeError,
    EngineError,
    LayoutError,
    MeshError,
    ModuleError,
    ParseError,
    PlanError,
    ProgramError,
    RangeError,
    RankLost,
    ShardwiseError,
    VerifyError,
)
from shardwise.layout.axis import Axis
from shardwise.layout.context import current_mesh, mesh_context
from shardwise.layout.conversion import as_layout
from shardwise.layout.cut import Cut
from shardwise.layout.device import CPU, Accelerator, Device, accelerator_count, default_device
from shardwise.layout.layout import Layout
from shardwise.layout.mapping import DeviceMapping, NamedMapping, PlacementMapping
from shardwise.layout.mesh import DeviceMesh
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
from shardwise.names import publish as _publish
from shardwise.ops import graph_ops, random
from shardwise.pictures.drawing import Picture, picture
from shardwise.plan.cost import Link, Links
from shardwise.plan.plan import Plan, plan_reshard
from shardwise.plan.steps import Step
from shardwise.plan.transfer import Transfer
from shardwise.prim.dispatch.solvers import GreedyReshard, NoReshard, PartialsOnly, ReshardWarning, mode
from shardwise.prim.explanation import Explanation
from shardwise.prim.interpreters.local import LocalTensor
from shardwise.prim.tensor import Shard, Tensor
from shardwise.table import FUNCTIONS as _FUNCTIONS
from shardwise.transform.rules import custom_jvp, custom_vjp

__version__ = "0.1.0"

globals().update(_FUNCTIONS)

# `from shardwise import *` leaves Python's own abs, all, any, max, min, pow, round and sum alone.
__all__ = sorted(
    name
    for name, value in globals().items()
    if not (name.startswith("_") or hasattr(_builtins, name) or (isinstance(value, _Module) and value is not graph_ops))
)

_publish("shardwise", [globals()[name] for name in (*__all__, *_FUNCTIONS)])
