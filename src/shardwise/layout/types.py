"""Distributed types: dtype, global shape and mapping of a tensor that need not exist."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise.errors import ArgumentError, BindingError, ConversionError, seal
from shardwise.layout.accessors import LayoutAccessors, mapping_of
from shardwise.layout.context import current_mesh
from shardwise.layout.conversion import LayoutLike, as_layout
from shardwise.layout.device import Device
from shardwise.layout.layout import Layout
from shardwise.layout.mapping import DeviceMapping
from shardwise.layout.mesh import DeviceMesh
from shardwise.layout.placement import Placement, check_dtype
from shardwise.layout.shape import Dim, check_dims, local_shard_shape_from_global, shard_shape
from shardwise.layout.spec import P


@seal
@dataclass(frozen=True, slots=True)
class LocalType:
    """The dtype, shape and device of one shard.

    >>> from shardwise import CPU
    >>> LocalType(np.dtype("float32"), (3, 4), CPU(1)).shape
    (3, 4)
    """

    dtype: np.dtype
    shape: tuple[Dim, ...]
    device: Device

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", check_dtype(self.dtype))
        object.__setattr__(self, "shape", check_dims(self.shape))
        if not isinstance(self.device, Device):
            raise ArgumentError(f"LocalType.device is a Device such as CPU(0), got {self.device!r}.")


@seal
@dataclass(frozen=True, slots=True, init=False, repr=False)
class DistributedType(LayoutAccessors):
    """What `DistributedTensorType` and `DistributedBufferType` share: global shape and shards' shapes.

    >>> from shardwise import DeviceMesh, P
    >>> kind = DistributedType("float32", (10, 4), DeviceMesh((4,), ("x",)), P("x"))
    >>> kind.layout, kind.to_layout(2) is kind.layout, kind.local_types[3].shape
    (Layout(mesh(x=4), ['x', None]), True, (2, 4))
    >>> kind.placements, kind.mapping.placements, len(kind.local_shards)
    ((Sharded(0),), (Sharded(0),), 4)
    """

    dtype: np.dtype
    shape: tuple[Dim, ...]
    mesh: DeviceMesh
    layout: Layout

    def __init__(
        self, dtype: Any, shape: Sequence[Dim], mesh: DeviceMesh | None, placements: Sequence[Placement] | LayoutLike
    ) -> None:
        """Describe a tensor of this dtype and global shape; `placements` say its layout in any vocabulary."""
        sizes, own = check_dims(shape), current_mesh(mesh)
        layout = as_layout(placements, len(sizes), own)
        values = {"dtype": check_dtype(dtype), "shape": sizes, "mesh": own, "layout": layout}
        for slot, value in values.items():
            object.__setattr__(self, slot, value)
        if layout.mesh is not own:
            raise BindingError(f"the placements belong to the mesh ({layout.mesh}), the type to ({own}).")
        layout.check_dtype(self.dtype)
        shard_shape(sizes, layout)

    def __repr__(self) -> str:
        try:
            placements: object = self.placements
        except ConversionError:
            placements = self.layout
        name = type(self).__name__
        return f"{name}(dtype={self.dtype!r}, shape={self.shape}, mesh={self.mesh!r}, placements={placements!r})"

    @property
    def mapping(self) -> DeviceMapping:
        """The layout as placements or, where those cannot say it, as axis names."""
        return mapping_of(self.layout)

    @property
    def local_shards(self) -> tuple[LocalType, ...]:
        """The type of every device's shard, in device order."""
        return tuple(self.local_types)

    def to_layout(self, rank: int | None = None) -> Layout:
        """Return the canonical layout."""
        return self.layout.to_layout(rank)

    @property
    def local_types(self) -> list[LocalType]:
        """The type of every device's shard, in device order."""
        shapes = local_shard_shape_from_global(self.shape, self.mesh, self.layout)
        return [LocalType(self.dtype, s, d) for s, d in zip(shapes, self.mesh.devices, strict=True)]


@seal
@dataclass(frozen=True, slots=True, init=False, repr=False)
class DistributedTensorType(DistributedType):
    """The type of a tensor that is spread over a mesh.

    >>> from shardwise import DeviceMesh, Sharded
    >>> kind = DistributedTensorType("float32", (10, 4), DeviceMesh((4,), ("x",)), [Sharded(0)])
    >>> [local.shape for local in kind.local_types]
    [(3, 4), (3, 4), (2, 4), (2, 4)]
    """


@seal
@dataclass(frozen=True, slots=True, init=False, repr=False)
class DistributedBufferType(DistributedType):
    """The type of a mutable buffer that is spread over a mesh.

    >>> from shardwise import DeviceMesh, P
    >>> DistributedBufferType("int8", (6,), DeviceMesh((4,), ("x",)), P("x")).local_types[3].shape
    (1,)
    """


@seal
@dataclass(frozen=True, slots=True)
class TensorLayout(LayoutAccessors):
    """What a rule needs to know of a tensor: dtype, global shape and mapping.

    >>> from shardwise import DeviceMesh, NamedMapping
    >>> TensorLayout("int8", (4, 4), NamedMapping(DeviceMesh((2,), ("x",)), ("x",))).layout
    Layout(mesh(x=2), ['x', None])
    >>> known = TensorLayout("int8", (4, 4), NamedMapping(DeviceMesh((2,), ("x",)), ("x",)))
    >>> known.mesh, known.placements, known.to_layout(2) is known.layout
    (DeviceMesh(x=2), (Sharded(0),), True)
    """

    dtype: Any
    shape: tuple[Dim, ...]
    mapping: DeviceMapping | Layout | P

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", check_dtype(self.dtype))
        object.__setattr__(self, "shape", check_dims(self.shape))
        self.layout.check_dtype(self.dtype)
        shard_shape(self.shape, self.layout)

    @property
    def layout(self) -> Layout:  # type: ignore[override]
        """The canonical layout."""
        return as_layout(self.mapping, len(self.shape))

    @property
    def mesh(self) -> DeviceMesh:
        """The mesh of the mapping."""
        return self.layout.mesh

    def to_layout(self, rank: int | None = None) -> Layout:
        """Return the canonical layout."""
        return self.layout.to_layout(rank)
