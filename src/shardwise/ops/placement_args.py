"""Arguments of placement: where a new tensor lies, and its shape and dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.errors import ArgumentError, LayoutError, MeshError, as_int
from shardwise.layout.context import current_mesh
from shardwise.layout.conversion import LayoutLike, as_layout
from shardwise.layout.device import Device, default_device
from shardwise.layout.layout import Layout, Shape, check_shape
from shardwise.layout.mesh import DeviceMesh
from shardwise.layout.placement import check_dtype, reductions_of


def layout_for(rank: int, mesh: DeviceMesh | None, layout: LayoutLike | None, device: Device | None = None) -> Layout:
    """Return the layout of a new tensor of `rank` dims.

    >>> layout_for(2, DeviceMesh((2,), ("x",)), None)
    Layout(mesh(x=2), [None, None])
    """
    if device is not None:
        if mesh is not None or layout is not None:
            raise ArgumentError(
                "a new tensor is on one device, or laid out over a mesh: give device, or mesh and layout."
            )
        return Layout.replicated(DeviceMesh.single(device), rank)
    if layout is None:
        return Layout.replicated(_mesh(mesh), rank)
    own = as_layout(layout, rank, mesh)
    if mesh is not None and own.mesh is not current_mesh(mesh):
        raise LayoutError(f"the layout belongs to the mesh ({own.mesh}), but mesh is ({mesh}).")
    return own


def _mesh(mesh: DeviceMesh | None) -> DeviceMesh:
    try:
        return current_mesh(mesh)
    except MeshError:  # outside any mesh_context
        return DeviceMesh.single(default_device())


def sizes_of(shape: int | Sequence[int]) -> Shape:
    """Return a shape, which may be one size, as a tuple."""
    size = as_int(shape)
    return check_shape(shape if size is None else (size,))  # type: ignore[arg-type]


def number_dtype(dtype: Any, default: Any, name: str) -> np.dtype:
    """Return the dtype of a new tensor, which must be one of numbers or bools."""
    to = np.dtype(default) if dtype is None else check_dtype(dtype)
    if not reductions_of(to):  # which there are of all numbers
        raise ArgumentError(f"{name}: a dtype of numbers or bools was expected, got {to}.")
    return to
