"""Conversion: anything that describes a layout, as a `Layout`."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from shardwise.errors import ArgumentError
from shardwise.layout.context import current_mesh
from shardwise.layout.layout import Layout
from shardwise.layout.mapping import DeviceMapping, PlacementMapping
from shardwise.layout.mesh import DeviceMesh
from shardwise.layout.placement import Placement
from shardwise.layout.spec import DimSpec, P, ShardingSpec


@runtime_checkable
class HasLayout(Protocol):
    """Anything that knows its layout for a tensor of some rank: mappings, specs, types."""

    def to_layout(self, rank: int) -> Layout:
        """Return the layout of a tensor of `rank` dims."""
        ...


LayoutLike = Layout | DeviceMapping | ShardingSpec | P | Sequence[Placement] | Sequence[DimSpec] | HasLayout


def as_layout(value: LayoutLike, rank: int, mesh: DeviceMesh | None = None) -> Layout:
    """Return the layout that a value describes for a tensor of `rank` dims.

    `mesh` (or that of the `mesh_context`) is used where the value itself names none.

    >>> as_layout(P("x"), 2, DeviceMesh((2,), ("x",)))
    Layout(mesh(x=2), ['x', None])
    """
    if isinstance(value, Layout):  # before the protocol, which is slow to ask
        return value.to_layout(rank)
    if isinstance(value, P):
        return value.to_layout(rank, mesh)
    if isinstance(value, HasLayout) and not isinstance(value, type):
        return value.to_layout(rank)
    if isinstance(value, Placement):
        return PlacementMapping(current_mesh(mesh), (value,)).to_layout(rank)
    if isinstance(value, Sequence) and not isinstance(value, str):
        if value and all(isinstance(v, DimSpec) for v in value):
            return ShardingSpec(current_mesh(mesh), value).to_layout(rank)  # type: ignore[arg-type]
        if all(isinstance(v, Placement) for v in value):
            return PlacementMapping(current_mesh(mesh), value).to_layout(rank)  # type: ignore[arg-type]
    raise ArgumentError(
        f"a layout was expected, got {value!r}.\n"
        "  give a Layout, P(...), a PlacementMapping, NamedMapping or ShardingSpec, a list of placements "
        "(one per mesh axis) or a list of DimSpecs (one per dim)."
    )
