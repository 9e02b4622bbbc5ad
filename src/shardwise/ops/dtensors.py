"""Tensors as those of torch and back, without copies: whole ones as DTensors, and this process's shards."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any, cast

from shardwise.engine.arrays import Array, dtype_of, is_torch, torch_view
from shardwise.engine.current import Engine, current_engine
from shardwise.engine.storage import storage_of
from shardwise.errors import ArgumentError, BindingError, ConversionError, EngineError
from shardwise.layout.context import current_mesh
from shardwise.layout.conversion import LayoutLike, as_layout
from shardwise.layout.cut import Cut
from shardwise.layout.device import CPU, Accelerator
from shardwise.layout.layout import Layout, check_shape
from shardwise.layout.mapping import PlacementMapping
from shardwise.layout.mesh import DeviceMesh
from shardwise.layout.placement import Partial, ReduceOp, Sharded
from shardwise.prim.face import public
from shardwise.prim.tensor import Tensor, without_grad

if TYPE_CHECKING:
    import torch
    from torch.distributed.device_mesh import DeviceMesh as TorchMesh
    from torch.distributed.tensor import DTensor

# What torch calls the reductions that it calls otherwise.
TORCH_NAMES = {ReduceOp.PROD: "product"}


@public()
def to_torch(x: Tensor) -> torch.Tensor:
    """Return the shard of this process as a torch tensor that shares its memory: it must not be written to.

    >>> import numpy as np
    >>> from shardwise import asarray
    >>> to_torch(asarray(np.arange(3.0)))
    tensor([0., 1., 2.], dtype=torch.float64)
    """
    _, here = x.engine.process(x.mesh, lambda devices: len(devices) == 1)
    if len(here) != 1:
        raise EngineError(
            f"to_torch gives the shard of the one device in this process, but {len(here)} of ({x.mesh}) are here.\n"
            "  x.shards lists them, x.gather() has the whole value."
        )
    return torch_view(x.arrays[x.storage.index(here[0])])


@public()
def from_torch(local: Any, mesh: DeviceMesh | None, layout: LayoutLike, shape: Sequence[int]) -> Tensor:
    """Return the tensor of which each process gives its shard; it shares the memory, which must not be written to.

    >>> import torch
    >>> from shardwise import DeviceMesh, P
    >>> from_torch(torch.arange(3.0), DeviceMesh((1,), ("x",)), P("x"), (3,))
    Tensor([0., 1., 2.], float32[3] on x=1)
    """
    sizes = check_shape(shape)
    target = as_layout(layout, len(sizes), current_mesh(mesh))
    if not is_torch(local):
        raise ArgumentError(f"from_torch needs a torch tensor, got {type(local).__name__}; from_shards takes others.")
    return _of_shard(without_grad(local), target, sizes, current_engine())


def _of_shard(local: Array, layout: Layout, shape: tuple[int, ...], engine: Engine) -> Tensor:
    storage, here, dtype = storage_of(layout, shape), list(engine.addressable(layout.mesh)), dtype_of(local)
    if len(here) > 1:
        raise EngineError(
            f"one shard was given, but {len(here)} devices of ({layout.mesh}) are in this process.\n"
            "  from_shards takes one for each."
        )
    for device in here:
        wanted = storage.local_shape(storage.index(device))
        if tuple(local.shape) != wanted:
            raise BindingError(
                f"device {device} must hold shape {wanted} of a tensor of shape {shape} laid out {layout}, got "
                f"{tuple(local.shape)}."
            )
    layout.check_dtype(dtype)
    return Tensor(engine.each(storage, dtype, lambda index, device: local, like=local), layout, shape, dtype, engine)


# -- DTensor ---------------------------------------------------------------------------------------------


@public()
def to_dtensor(x: Tensor) -> DTensor:
    """Return a tensor of the torch engine as torch's DTensor; it shares the memory, which must not be written to.

    The layout must be one that placements can say, and dims that are not divided evenly must be cut as torch does,
    which is `Cut(axis, split="chunk")`. All processes take part, as in every function of torch's that makes a mesh.

    >>> import numpy as np
    >>> from shardwise import asarray
    >>> to_dtensor(asarray(np.zeros(3)))  # under torchrun it returns a DTensor
    Traceback (most recent call last):
    shardwise.EngineError: to_dtensor needs the torch engine, but this tensor or process is on the local one.
      call shardwise.init('torch') under torchrun first.
    """
    _check_engine(x.engine, "to_dtensor")
    import torch
    from torch.distributed.tensor import DTensor, Replicate, Shard
    from torch.distributed.tensor import Partial as TorchPartial

    mesh, layout = x.mesh, x.layout
    places: list[Any] = []
    for placement in PlacementMapping.from_layout(layout).placements:
        if isinstance(placement, Sharded):
            places.append(Shard(placement.axis))
        elif isinstance(placement, Partial):
            op = ReduceOp.of(placement.reduce_op)
            places.append(TorchPartial(TORCH_NAMES.get(op, op.value)))
        else:
            places.append(Replicate())
    for dim, cut in enumerate(layout.dims):
        tiling = x.storage.tiling.dims[dim]
        ours = [tiling.interval(part) for part in range(tiling.parts)]
        if cut.halo != (0, 0) or ours != list(pairwise(chunk_bounds(x.shape[dim], [a.size for a in cut.axes]))):
            raise ConversionError(
                f"torch cuts dim {dim} of size {x.shape[dim]} into chunks, without a halo; {layout} does not.\n"
                f"  reshard to Cut({', '.join(map(repr, map(str, cut.axes)))}, split='chunk') first."
            )
    here = list(x.engine.addressable(mesh))
    local = to_torch(x) if here else torch.empty(0, dtype=getattr(torch, str(x.dtype)))
    strides = [prod(x.shape[dim + 1 :]) for dim in range(x.ndim)]
    return DTensor.from_local(
        local, torch_mesh(mesh), places, run_check=False, shape=torch.Size(x.shape), stride=tuple(strides)
    )


@public()
def from_dtensor(given: DTensor) -> Tensor:
    """Return torch's DTensor as a tensor of the torch engine; it shares the memory, which must not be written to.

    The axes have the names of torch's mesh or, where it has none, d0, d1 and so on.

    >>> from_dtensor(3)
    Traceback (most recent call last):
    shardwise.EngineError: from_dtensor needs the torch engine, but this tensor or process is on the local one.
      call shardwise.init('torch') under torchrun first.
    """
    engine = current_engine()
    _check_engine(engine, "from_dtensor")
    from torch.distributed.tensor import DTensor, Replicate, Shard
    from torch.distributed.tensor import Partial as TorchPartial

    if not isinstance(given, DTensor):
        raise ArgumentError(f"from_dtensor needs a DTensor, got {type(given).__name__}.")
    theirs = given.device_mesh
    kind = Accelerator if theirs.device_type == "cuda" else CPU
    names = theirs.mesh_dim_names or tuple(f"d{i}" for i in range(theirs.ndim))
    ranks: list[Any] = cast(Any, theirs.mesh).flatten().tolist()
    mesh = DeviceMesh(tuple(theirs.mesh.shape), names, [kind(rank) for rank in ranks])
    homes: list[list[str]] = [[] for _ in given.shape]
    partial: dict[str, str] = {}
    back = {name: op.value for op, name in TORCH_NAMES.items()}
    for name, placement in zip(names, given.placements, strict=True):
        if type(placement) is Shard:
            homes[int(cast(Any, placement).dim)].append(name)
        elif isinstance(placement, TorchPartial):
            op = str(cast(Any, placement).reduce_op)
            partial[name] = back.get(op, op)
        elif not isinstance(placement, Replicate):
            raise ConversionError(
                f"the placement {placement} of mesh axis {name!r} has no counterpart.\n  redistribute first."
            )
    shape = tuple(given.shape)
    cuts = [_cut(mesh, axes, size) for axes, size in zip(homes, shape, strict=True)]
    return _of_shard(without_grad(given).to_local(), Layout(mesh, cuts, partial), shape, engine)


def _check_engine(engine: Engine, function: str) -> None:
    if not engine.talks_through_torch:
        raise EngineError(
            f"{function} needs the torch engine, but this tensor or process is on the {engine.name} one.\n"
            "  call shardwise.init('torch') under torchrun first."
        )


def chunk_bounds(size: int, counts: Sequence[int]) -> list[int]:
    """Return where torch cuts a dim that several axes shard: each cuts the pieces of the one before into chunks.

    >>> chunk_bounds(5, [2]), chunk_bounds(5, [2, 2])
    ([0, 3, 5], [0, 2, 3, 4, 5])
    """
    bounds = [0, size]
    for count in counts:
        finer = [0]
        for start, stop in pairwise(bounds):
            width = -(-(stop - start) // count)
            finer += [min(start + width * (i + 1), stop) for i in range(count)]
        bounds = finer
    return bounds


def _cut(mesh: DeviceMesh, axes: list[str], size: int) -> Cut:
    counts = [mesh.axis_size(axis) for axis in axes]
    if not axes or size % prod(counts) == 0:
        return Cut(axes)
    if len(axes) == 1:
        return Cut(axes, split="chunk")
    return Cut(axes, offsets=chunk_bounds(size, counts))


@lru_cache(maxsize=64)  # not of `shardwise.caches`: what one process forgets, all would have to make again
def torch_mesh(mesh: DeviceMesh) -> TorchMesh:
    """Return the mesh of torch that has the same ranks; all processes take part when it is first made."""
    import torch
    from torch.distributed.device_mesh import DeviceMesh as TorchMesh

    ranks = torch.tensor([device.id for device in mesh.devices]).reshape(mesh.mesh_shape or (1,))
    kind = "cuda" if isinstance(mesh.device(0), Accelerator) else "cpu"
    return TorchMesh(kind, ranks, mesh_dim_names=mesh.axis_names or ("device",))
