"""Tensors spread over a mesh of devices: one global program, its layouts, and the least communication.

The words, used in code, errors and documentation alike:

- device: one slot of a mesh; mesh axis: one named dimension of the mesh;
- dim: one dimension of the tensor; shard: the piece one device holds;
- layout: how one tensor is spread over one mesh; placement: what one mesh axis does to it;
- reshard: go from one layout to another; plan: the steps that do it; traffic: bytes between devices;
- group: devices that differ only in the named mesh axes;
- global view: what the value is, as if on one device; local view: what one device holds."""

# Written by tools/stubs.py from the table of functions.

from collections.abc import Iterable
from collections.abc import Sequence
from shardwise.caches import CacheInfo as CacheInfo
from shardwise.caches import cache_info as cache_info
from shardwise.caches import clear_caches as clear_caches
from shardwise.engine.abstract import AbstractEngine as AbstractEngine
from shardwise.engine.current import current_engine as current_engine
from shardwise.engine.current import engine_context as engine_context
from shardwise.engine.local.engine import LocalEngine as LocalEngine
from shardwise.engine.log import trace_communication as trace_communication
from shardwise.engine.start import init as init
from shardwise.engine.steps import step as step
from shardwise.errors import ArgumentError as ArgumentError
from shardwise.errors import BindingError as BindingError
from shardwise.errors import CollectiveError as CollectiveError
from shardwise.errors import CollectiveMismatch as CollectiveMismatch
from shardwise.errors import CollectiveTimeout as CollectiveTimeout
from shardwise.errors import ConversionError as ConversionError
from shardwise.errors import DerivativeError as DerivativeError
from shardwise.errors import EngineError as EngineError
from shardwise.errors import LayoutError as LayoutError
from shardwise.errors import MeshError as MeshError
from shardwise.errors import ModuleError as ModuleError
from shardwise.errors import ParseError as ParseError
from shardwise.errors import PlanError as PlanError
from shardwise.errors import ProgramError as ProgramError
from shardwise.errors import RangeError as RangeError
from shardwise.errors import RankLost as RankLost
from shardwise.errors import ShardwiseError as ShardwiseError
from shardwise.errors import VerifyError as VerifyError
from shardwise.layout.axis import Axis as Axis
from shardwise.layout.context import current_mesh as current_mesh
from shardwise.layout.context import mesh_context as mesh_context
from shardwise.layout.conversion import as_layout as as_layout
from shardwise.layout.cut import Cut as Cut
from shardwise.layout.device import Accelerator as Accelerator
from shardwise.layout.device import CPU as CPU
from shardwise.layout.device import Device as Device
from shardwise.layout.device import accelerator_count as accelerator_count
from shardwise.layout.device import default_device as default_device
from shardwise.layout.layout import Layout as Layout
from shardwise.layout.mapping import DeviceMapping as DeviceMapping
from shardwise.layout.mapping import NamedMapping as NamedMapping
from shardwise.layout.mapping import PlacementMapping as PlacementMapping
from shardwise.layout.mesh import DeviceMesh as DeviceMesh
from shardwise.layout.placement import Partial as Partial
from shardwise.layout.placement import Placement as Placement
from shardwise.layout.placement import ReduceOp as ReduceOp
from shardwise.layout.placement import Replicated as Replicated
from shardwise.layout.placement import Sharded as Sharded
from shardwise.layout.shape import global_shape_from_local as global_shape_from_local
from shardwise.layout.shape import local_shard_shape_from_global as local_shard_shape_from_global
from shardwise.layout.shape import shard_shape as shard_shape
from shardwise.layout.spec import DimSpec as DimSpec
from shardwise.layout.spec import P as P
from shardwise.layout.spec import ShardingSpec as ShardingSpec
from shardwise.layout.spec import SpecEntry as SpecEntry
from shardwise.layout.types import DistributedBufferType as DistributedBufferType
from shardwise.layout.types import DistributedTensorType as DistributedTensorType
from shardwise.layout.types import DistributedType as DistributedType
from shardwise.layout.types import LocalType as LocalType
from shardwise.layout.types import TensorLayout as TensorLayout
from shardwise.ops import graph_ops as graph_ops
from shardwise.ops import random as random
from shardwise.ops.communication import AxisNames
from shardwise.ops.communication import Edge
from shardwise.ops.communication import LayoutLike
from shardwise.ops.communication import reshard as reshard
from shardwise.ops.convolution import conv as conv
from shardwise.ops.creation import arange as arange
from shardwise.ops.creation import empty as empty
from shardwise.ops.creation import empty_like as empty_like
from shardwise.ops.creation import eye as eye
from shardwise.ops.creation import full as full
from shardwise.ops.creation import full_like as full_like
from shardwise.ops.creation import linspace as linspace
from shardwise.ops.creation import meshgrid as meshgrid
from shardwise.ops.creation import ones as ones
from shardwise.ops.creation import ones_like as ones_like
from shardwise.ops.creation import tril as tril
from shardwise.ops.creation import triu as triu
from shardwise.ops.creation import zeros as zeros
from shardwise.ops.creation import zeros_like as zeros_like
from shardwise.ops.dtensors import from_dtensor as from_dtensor
from shardwise.ops.dtensors import from_torch as from_torch
from shardwise.ops.dtensors import to_dtensor as to_dtensor
from shardwise.ops.dtensors import to_torch as to_torch
from shardwise.ops.elementwise import astype as astype
from shardwise.ops.elementwise import clip as clip
from shardwise.ops.elementwise import where as where
from shardwise.ops.indexing import embedding as embedding
from shardwise.ops.indexing import one_hot as one_hot
from shardwise.ops.indexing import take as take
from shardwise.ops.indexing import take_along_axis as take_along_axis
from shardwise.ops.joining import concat as concat
from shardwise.ops.joining import flip as flip
from shardwise.ops.joining import pad as pad
from shardwise.ops.joining import roll as roll
from shardwise.ops.joining import split as split
from shardwise.ops.joining import stack as stack
from shardwise.ops.joining import unstack as unstack
from shardwise.ops.linalg import einsum as einsum
from shardwise.ops.linalg import matmul as matmul
from shardwise.ops.linalg import tensordot as tensordot
from shardwise.ops.local_view import axis_index as axis_index
from shardwise.ops.local_view import shard_map as shard_map
from shardwise.ops.normalization import cross_entropy as cross_entropy
from shardwise.ops.normalization import layer_norm as layer_norm
from shardwise.ops.normalization import rms_norm as rms_norm
from shardwise.ops.own_kernels import local_call as local_call
from shardwise.ops.own_ops import custom_op as custom_op
from shardwise.ops.reductions import all as all
from shardwise.ops.reductions import any as any
from shardwise.ops.reductions import argmax as argmax
from shardwise.ops.reductions import argmin as argmin
from shardwise.ops.reductions import cumulative_sum as cumulative_sum
from shardwise.ops.reductions import log_softmax as log_softmax
from shardwise.ops.reductions import logsumexp as logsumexp
from shardwise.ops.reductions import max as max
from shardwise.ops.reductions import mean as mean
from shardwise.ops.reductions import min as min
from shardwise.ops.reductions import norm as norm
from shardwise.ops.reductions import prod as prod
from shardwise.ops.reductions import softmax as softmax
from shardwise.ops.reductions import std as std
from shardwise.ops.reductions import sum as sum
from shardwise.ops.reductions import topk as topk
from shardwise.ops.reductions import var as var
from shardwise.ops.rooted import broadcast as broadcast
from shardwise.ops.rooted import gather as gather
from shardwise.ops.rooted import reduce as reduce
from shardwise.ops.rooted import scatter as scatter
from shardwise.ops.rooted import send_recv as send_recv
from shardwise.ops.shapes import broadcast_to as broadcast_to
from shardwise.ops.shapes import expand_dims as expand_dims
from shardwise.ops.shapes import matrix_transpose as matrix_transpose
from shardwise.ops.shapes import moveaxis as moveaxis
from shardwise.ops.shapes import permute_dims as permute_dims
from shardwise.ops.shapes import reshape as reshape
from shardwise.ops.shapes import squeeze as squeeze
from shardwise.pictures.drawing import Picture as Picture
from shardwise.pictures.drawing import picture as picture
from shardwise.plan.cost import Link as Link
from shardwise.plan.cost import Links as Links
from shardwise.plan.plan import Plan as Plan
from shardwise.plan.plan import plan_reshard as plan_reshard
from shardwise.plan.steps import Step as Step
from shardwise.plan.transfer import Transfer as Transfer
from shardwise.prim.dispatch.solvers import GreedyReshard as GreedyReshard
from shardwise.prim.dispatch.solvers import NoReshard as NoReshard
from shardwise.prim.dispatch.solvers import PartialsOnly as PartialsOnly
from shardwise.prim.dispatch.solvers import ReshardWarning as ReshardWarning
from shardwise.prim.dispatch.solvers import mode as mode
from shardwise.prim.explanation import Explanation as Explanation
from shardwise.prim.explanation import explain as explain
from shardwise.prim.interpreters.local import LocalTensor as LocalTensor
from shardwise.prim.tensor import ArrayLike
from shardwise.prim.tensor import Shard as Shard
from shardwise.prim.tensor import Tensor as Tensor
from shardwise.prim.tensor import Tree
from shardwise.prim.tensor import asarray as asarray
from shardwise.prim.tensor import from_shards as from_shards
from shardwise.transform.derivatives import jvp as jvp
from shardwise.transform.derivatives import stop_gradient as stop_gradient
from shardwise.transform.derivatives import vjp as vjp
from shardwise.transform.gradients import grad as grad
from shardwise.transform.gradients import value_and_grad as value_and_grad
from shardwise.transform.jacobians import hessian as hessian
from shardwise.transform.jacobians import jacfwd as jacfwd
from shardwise.transform.jacobians import jacrev as jacrev
from shardwise.transform.mapping import vmap as vmap
from shardwise.transform.rematerialization import checkpoint as checkpoint
from shardwise.transform.rules import custom_jvp as custom_jvp
from shardwise.transform.rules import custom_vjp as custom_vjp
from typing import Any
from typing import overload

__version__: str
__all__ = [
    "AbstractEngine",
    "Accelerator",
    "ArgumentError",
    "Axis",
    "BindingError",
    "CPU",
    "CacheInfo",
    "CollectiveError",
    "CollectiveMismatch",
    "CollectiveTimeout",
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
    "Explanation",
    "GreedyReshard",
    "Layout",
    "LayoutError",
    "Link",
    "Links",
    "LocalEngine",
    "LocalTensor",
    "LocalType",
    "MeshError",
    "ModuleError",
    "NamedMapping",
    "NoReshard",
    "P",
    "ParseError",
    "Partial",
    "PartialsOnly",
    "Picture",
    "Placement",
    "PlacementMapping",
    "Plan",
    "PlanError",
    "ProgramError",
    "RangeError",
    "RankLost",
    "ReduceOp",
    "Replicated",
    "ReshardWarning",
    "Shard",
    "Sharded",
    "ShardingSpec",
    "ShardwiseError",
    "SpecEntry",
    "Step",
    "Tensor",
    "TensorLayout",
    "Transfer",
    "VerifyError",
    "accelerator",
    "accelerator_count",
    "acos",
    "acosh",
    "add",
    "all_gather",
    "all_reduce",
    "all_slice",
    "all_to_all",
    "arange",
    "argmax",
    "argmin",
    "as_layout",
    "asarray",
    "asin",
    "asinh",
    "astype",
    "atan",
    "atan2",
    "atanh",
    "axis_index",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "broadcast",
    "broadcast_to",
    "cache_info",
    "ceil",
    "checkpoint",
    "clear_caches",
    "clip",
    "concat",
    "conj",
    "conv",
    "copysign",
    "cos",
    "cosh",
    "cpu",
    "cross_entropy",
    "cumulative_sum",
    "current_engine",
    "current_mesh",
    "custom_jvp",
    "custom_op",
    "custom_vjp",
    "default_device",
    "distributed_broadcast",
    "divide",
    "einsum",
    "embedding",
    "empty",
    "empty_like",
    "engine_context",
    "equal",
    "exp",
    "expand_dims",
    "explain",
    "expm1",
    "eye",
    "flip",
    "floor",
    "floor_divide",
    "from_dtensor",
    "from_shards",
    "from_torch",
    "full",
    "full_like",
    "gather",
    "gelu",
    "global_shape_from_local",
    "gpu",
    "grad",
    "graph_ops",
    "greater",
    "greater_equal",
    "halo_exchange",
    "hessian",
    "hypot",
    "imag",
    "init",
    "isfinite",
    "isinf",
    "isnan",
    "jacfwd",
    "jacrev",
    "jvp",
    "layer_norm",
    "less",
    "less_equal",
    "linspace",
    "local_call",
    "local_shard_shape_from_global",
    "log",
    "log10",
    "log1p",
    "log2",
    "log_softmax",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logsumexp",
    "matmul",
    "matrix_transpose",
    "maximum",
    "mean",
    "mesh_context",
    "meshgrid",
    "minimum",
    "mode",
    "moveaxis",
    "multiply",
    "negative",
    "nextafter",
    "norm",
    "not_equal",
    "one_hot",
    "ones",
    "ones_like",
    "pad",
    "permute_dims",
    "picture",
    "plan_reshard",
    "pmean",
    "positive",
    "ppermute",
    "prod",
    "real",
    "reciprocal",
    "reduce",
    "reduce_scatter",
    "relu",
    "remainder",
    "reshape",
    "reshard",
    "rms_norm",
    "roll",
    "scatter",
    "send_recv",
    "shard",
    "shard_map",
    "shard_shape",
    "shift",
    "sigmoid",
    "sign",
    "signbit",
    "silu",
    "sin",
    "sinh",
    "softmax",
    "softplus",
    "split",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "std",
    "step",
    "stop_gradient",
    "subtract",
    "take",
    "take_along_axis",
    "tan",
    "tanh",
    "tensordot",
    "to_device",
    "to_dtensor",
    "to_torch",
    "topk",
    "trace_communication",
    "transfer_to",
    "tril",
    "triu",
    "trunc",
    "unstack",
    "value_and_grad",
    "var",
    "vjp",
    "vmap",
    "where",
    "zeros",
    "zeros_like",
]

def abs(x: Any, /) -> Tensor:
    """Return, element by element, the absolute value."""
    ...

@overload
def accelerator(x: ArrayLike, device_id: int = 0) -> Tensor:
    """Move a tensor to the accelerator with this number."""
    ...

@overload
def accelerator(x: Tree, device_id: int = 0) -> Tree: ...
def acos(x: Any, /) -> Tensor:
    """Return, element by element, the inverse cosine."""
    ...

def acosh(x: Any, /) -> Tensor:
    """Return, element by element, the inverse hyperbolic cosine."""
    ...

def add(x1: Any, x2: Any, /) -> Tensor:
    """Return, element by element, the sum."""
    ...

@overload
def all_gather(sharded_tensor: ArrayLike, axis: int | None = None, *, physical_axis: AxisNames = None) -> Tensor:
    """Make dim `axis` whole on every device; without it, every sharded dim.

    The keyword `physical_axis` names the mesh axes to gather over, if not all that split the dim.
    """
    ...

@overload
def all_gather(sharded_tensor: Tree, axis: int | None = None, *, physical_axis: AxisNames = None) -> Tree: ...
@overload
def all_reduce(
    sharded_tensor: ArrayLike, *, reduce_op: str | ReduceOp | None = None, reduce_axes: AxisNames = None
) -> Tensor:
    """Reduce what the devices hold over the groups that differ in `reduce_axes`, for all of them.

    On partial values this resolves them. Otherwise shards along an axis that splits a dim are added up: the
    result has the shape of one shard. `reduce_axes` are by default the partial axes or, if there are none,
    all axes; `reduce_op` is sum unless named: sum, avg, max, min, prod, band, bor, bxor.
    """
    ...

@overload
def all_reduce(
    sharded_tensor: Tree, *, reduce_op: str | ReduceOp | None = None, reduce_axes: AxisNames = None
) -> Tree: ...
@overload
def all_slice(sharded_tensor: ArrayLike, axis: int, mesh_axes: AxisNames = None) -> Tensor:
    """Split dim `axis` over mesh axes on which the tensor is replicated (all of them by default).

    Nothing is sent, unless the dim is split already and its new pieces, which are balanced over all of it, cross
    the borders of the old.
    """
    ...

@overload
def all_slice(sharded_tensor: Tree, axis: int, mesh_axes: AxisNames = None) -> Tree: ...
@overload
def all_to_all(
    sharded_tensor: ArrayLike, split_axis: int, concat_axis: int, tiled: bool = True, *, mesh_axes: AxisNames = None
) -> Tensor:
    """Move the sharding of dim `concat_axis`, or `mesh_axes` of it, to dim `split_axis`: a distributed transpose.

    If the two are one dim, each device cuts its part of it into a piece for each device of its group, and joins
    what comes: the devices exchange blocks. A dim that is not sharded stays as it is.

    Not `tiled`, dim `split_axis` has one slice for each device of a group: it disappears, and a new dim with what
    came from each device appears at `concat_axis`.
    """
    ...

@overload
def all_to_all(
    sharded_tensor: Tree, split_axis: int, concat_axis: int, tiled: bool = True, *, mesh_axes: AxisNames = None
) -> Tree: ...
def asin(x: Any, /) -> Tensor:
    """Return, element by element, the inverse sine."""
    ...

def asinh(x: Any, /) -> Tensor:
    """Return, element by element, the inverse hyperbolic sine."""
    ...

def atan(x: Any, /) -> Tensor:
    """Return, element by element, the inverse tangent."""
    ...

def atan2(x1: Any, x2: Any, /) -> Tensor:
    """Return, element by element, the angle of the point (x2, x1)."""
    ...

def atanh(x: Any, /) -> Tensor:
    """Return, element by element, the inverse hyperbolic tangent."""
    ...

def bitwise_and(x1: Any, x2: Any, /) -> Tensor:
    """Return, element by element, the bits that both have."""
    ...

def bitwise_invert(x: Any, /) -> Tensor:
    """Return, element by element, its bits inverted."""
    ...

def bitwise_left_shift(x1: Any, x2: Any, /) -> Tensor:
    """Return, element by element, the first shifted left."""
    ...

def bitwise_or(x1: Any, x2: Any, /) -> Tensor:
    """Return, element by element, the bits that one has."""
    ...

def bitwise_right_shift(x1: Any, x2: Any, /) -> Tensor:
    """Return, element by element, the first shifted right."""
    ...

def bitwise_xor(x1: Any, x2: Any, /) -> Tensor:
    """Return, element by element, the bits that exactly one has."""
    ...

def ceil(x: Any, /) -> Tensor:
    """Return, element by element, it rounded up."""
    ...

def conj(x: Any, /) -> Tensor:
    """Return, element by element, the complex conjugate."""
    ...

def copysign(x1: Any, x2: Any, /) -> Tensor:
    """Return, element by element, the first with the sign of the second."""
    ...

def cos(x: Any, /) -> Tensor:
    """Return, element by element, the cosine."""
    ...

def cosh(x: Any, /) -> Tensor:
    """Return, element by element, the hyperbolic cosine."""
    ...

@overload
def cpu(x: ArrayLike) -> Tensor:
    """Move a tensor to the CPU."""
    ...

@overload
def cpu(x: Tree) -> Tree: ...
@overload
def distributed_broadcast(x: ArrayLike, mesh: DeviceMesh | None = None) -> Tensor:
    """Put the whole value on every device of a mesh."""
    ...

@overload
def distributed_broadcast(x: Tree, mesh: DeviceMesh | None = None) -> Tree: ...
def divide(x1: Any, x2: Any, /) -> Tensor:
    """Return, element by element, the quotient."""
    ...

def equal(x1: Any, x2: Any, /) -> Tensor:
    """Return, element by element, whether they are equal."""
    ...

def exp(x: Any, /) -> Tensor:
    """Return, element by element, e to its power."""
    ...

def expm1(x: Any, /) -> Tensor:
    """Return, element by element, exp(x) - 1."""
    ...

def floor(x: Any, /) -> Tensor:
    """Return, element by element, it rounded down."""
    ...

def floor_divide(x1: Any, x2: Any, /) -> Tensor:
    """Return, element by element, the quotient rounded down."""
    ...

def gelu(x: Any, /) -> Tensor:
    """Return, element by element, the Gaussian error linear unit, in its tanh form."""
    ...

@overload
def gpu(x: ArrayLike) -> Tensor:
    """Move a tensor to the first accelerator."""
    ...

@overload
def gpu(x: Tree) -> Tree: ...
def greater(x1: Any, x2: Any, /) -> Tensor:
    """Return, element by element, whether the first is greater."""
    ...

def greater_equal(x1: Any, x2: Any, /) -> Tensor:
    """Return, element by element, whether the first is greater or equal."""
    ...

@overload
def halo_exchange(
    sharded_tensor: ArrayLike,
    axis: int,
    halo: tuple[int, int] | int,
    *,
    edge: Edge | None = None,
    mesh_axis: str | None = None,
) -> Tensor:
    """Let each shard of dim `axis` also hold `halo` = (low, high) elements of its neighbours.

    At the border a shard holds less (`edge="clip"`, the default) or is filled with zeros ("pad"). Inside
    `shard_map` the neighbours are those along `mesh_axis`, and the border is filled.
    """
    ...

@overload
def halo_exchange(
    sharded_tensor: Tree,
    axis: int,
    halo: tuple[int, int] | int,
    *,
    edge: Edge | None = None,
    mesh_axis: str | None = None,
) -> Tree: ...
def hypot(x1: Any, x2: Any, /) -> Tensor:
    """Return, element by element, the length of the hypotenuse."""
    ...

def imag(x: Any, /) -> Tensor:
    """Return, element by element, the imaginary part."""
    ...

def isfinite(x: Any, /) -> Tensor:
    """Return, element by element, whether it is finite."""
    ...

def isinf(x: Any, /) -> Tensor:
    """Return, element by element, whether it is infinite."""
    ...

def isnan(x: Any, /) -> Tensor:
    """Return, element by element, whether it is not a number."""
    ...

def less(x1: Any, x2: Any, /) -> Tensor:
    """Return, element by element, whether the first is less."""
    ...

def less_equal(x1: Any, x2: Any, /) -> Tensor:
    """Return, element by element, whether the first is less or equal."""
    ...

def log(x: Any, /) -> Tensor:
    """Return, element by element, the natural logarithm."""
    ...

def log10(x: Any, /) -> Tensor:
    """Return, element by element, the logarithm to base 10."""
    ...

def log1p(x: Any, /) -> Tensor:
    """Return, element by element, log(1 + x)."""
    ...

def log2(x: Any, /) -> Tensor:
    """Return, element by element, the logarithm to base 2."""
    ...

def logaddexp(x1: Any, x2: Any, /) -> Tensor:
    """Return, element by element, log(exp(x1) + exp(x2))."""
    ...

def logical_and(x1: Any, x2: Any, /) -> Tensor:
    """Return, element by element, whether both are true."""
    ...

def logical_not(x: Any, /) -> Tensor:
    """Return, element by element, whether it is false."""
    ...

def logical_or(x1: Any, x2: Any, /) -> Tensor:
    """Return, element by element, whether one is true."""
    ...

def logical_xor(x1: Any, x2: Any, /) -> Tensor:
    """Return, element by element, whether exactly one is true."""
    ...

def maximum(x1: Any, x2: Any, /) -> Tensor:
    """Return, element by element, the larger."""
    ...

def minimum(x1: Any, x2: Any, /) -> Tensor:
    """Return, element by element, the smaller."""
    ...

def multiply(x1: Any, x2: Any, /) -> Tensor:
    """Return, element by element, the product."""
    ...

def negative(x: Any, /) -> Tensor:
    """Return, element by element, the negative."""
    ...

def nextafter(x1: Any, x2: Any, /) -> Tensor:
    """Return, element by element, the next representable number towards the second."""
    ...

def not_equal(x1: Any, x2: Any, /) -> Tensor:
    """Return, element by element, whether they differ."""
    ...

@overload
def pmean(sharded_tensor: ArrayLike, reduce_axes: AxisNames = None) -> Tensor:
    """Average what the devices hold over the groups that differ in `reduce_axes`, as `all_reduce` sums it."""
    ...

@overload
def pmean(sharded_tensor: Tree, reduce_axes: AxisNames = None) -> Tree: ...
def positive(x: Any, /) -> Tensor:
    """Return, element by element, the value itself."""
    ...

def pow(x1: Any, x2: Any, /) -> Tensor:
    """Return, element by element, the first to the power of the second; the fraction of integers to negative elements is dropped."""
    ...

@overload
def ppermute(
    sharded_tensor: ArrayLike, permutation: Sequence[tuple[int, int]], *, axis: str | Sequence[str] | None = None
) -> Tensor:
    """Send shards from device to device; devices that receive nothing get zeros.

    `permutation` lists (source, target) pairs of device indices or, with `axis`, of positions along that
    mesh axis, or along several as one, major to minor.
    """
    ...

@overload
def ppermute(
    sharded_tensor: Tree, permutation: Sequence[tuple[int, int]], *, axis: str | Sequence[str] | None = None
) -> Tree: ...
def real(x: Any, /) -> Tensor:
    """Return, element by element, the real part."""
    ...

def reciprocal(x: Any, /) -> Tensor:
    """Return, element by element, one over it."""
    ...

@overload
def reduce_scatter(
    sharded_tensor: ArrayLike, axis: int, *, reduce_op: str | ReduceOp | None = None, reduce_axes: AxisNames = None
) -> Tensor:
    """Reduce as `all_reduce` does, and leave each device of a group its piece of dim `axis`."""
    ...

@overload
def reduce_scatter(
    sharded_tensor: Tree, axis: int, *, reduce_op: str | ReduceOp | None = None, reduce_axes: AxisNames = None
) -> Tree: ...
def relu(x: Any, /) -> Tensor:
    """Return, element by element, the larger of it and zero."""
    ...

def remainder(x1: Any, x2: Any, /) -> Tensor:
    """Return, element by element, the remainder, with the sign of the divisor."""
    ...

def round(x: Any, /) -> Tensor:
    """Return, element by element, it rounded to the nearest, ties to even."""
    ...

@overload
def shard(
    x: ArrayLike,
    mesh: DeviceMesh | None,
    dim_specs: LayoutLike,
    replicated_axes: Iterable[str] | None = None,
    *,
    partial_axes: Any = None,
) -> Tensor:
    """Spread a tensor, or anything array-like, over a mesh as the specs say.

    `dim_specs` is a list of DimSpecs, `P(...)`, placements, a mapping or a Layout. A tensor that is laid out
    already, on this mesh or another, is resharded with the fewest bytes. The keyword `partial_axes` names
    axes along which the result is to be a pending sum (or maps them to another reduction).
    """
    ...

@overload
def shard(
    x: Tree,
    mesh: DeviceMesh | None,
    dim_specs: LayoutLike,
    replicated_axes: Iterable[str] | None = None,
    *,
    partial_axes: Any = None,
) -> Tree: ...
@overload
def shift(sharded_tensor: ArrayLike, axis: str | Sequence[str], offset: int = 1, *, rotate: bool = True) -> Tensor:
    """Shift shards along a mesh axis: what position i held goes to position i + offset.

    Several axes are taken as one, major to minor. With `rotate` the last go to the first; without, those that
    receive nothing get zeros.
    """
    ...

@overload
def shift(sharded_tensor: Tree, axis: str | Sequence[str], offset: int = 1, *, rotate: bool = True) -> Tree: ...
def sigmoid(x: Any, /) -> Tensor:
    """Return, element by element, 1 / (1 + exp(-x)), without overflow."""
    ...

def sign(x: Any, /) -> Tensor:
    """Return, element by element, its sign."""
    ...

def signbit(x: Any, /) -> Tensor:
    """Return, element by element, whether its sign bit is set."""
    ...

def silu(x: Any, /) -> Tensor:
    """Return, element by element, x sigmoid(x)."""
    ...

def sin(x: Any, /) -> Tensor:
    """Return, element by element, the sine."""
    ...

def sinh(x: Any, /) -> Tensor:
    """Return, element by element, the hyperbolic sine."""
    ...

def softplus(x: Any, /) -> Tensor:
    """Return, element by element, log(1 + exp(x)), without overflow."""
    ...

def sqrt(x: Any, /) -> Tensor:
    """Return, element by element, the square root."""
    ...

def square(x: Any, /) -> Tensor:
    """Return, element by element, the square."""
    ...

def subtract(x1: Any, x2: Any, /) -> Tensor:
    """Return, element by element, the difference."""
    ...

def tan(x: Any, /) -> Tensor:
    """Return, element by element, the tangent."""
    ...

def tanh(x: Any, /) -> Tensor:
    """Return, element by element, the hyperbolic tangent."""
    ...

@overload
def to_device(x: ArrayLike, device: Device | None = None, *, sharding: Any = None) -> Tensor:
    """Move a tensor to one device, or to a sharding.

    With neither, a tensor stays where it is, and anything else goes to the default device.
    """
    ...

@overload
def to_device(x: Tree, device: Device | None = None, *, sharding: Any = None) -> Tree: ...
@overload
def transfer_to(x: ArrayLike, device: Device | None = None, *, sharding: Any = None) -> Tensor:
    """Move a tensor to one device, or to a sharding; the same as `to_device`."""
    ...

@overload
def transfer_to(x: Tree, device: Device | None = None, *, sharding: Any = None) -> Tree: ...
def trunc(x: Any, /) -> Tensor:
    """Return, element by element, it rounded towards zero."""
    ...
