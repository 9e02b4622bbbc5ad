"""Conversion: anything that describes a layout, as a `Layout`."""

from collections.abc import Callable, Sequence
from types import NoneType
from typing import Any, Protocol, runtime_checkable

from shardwise.errors import ArgumentError, is_sequence_of
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
        return value if type(rank) is int and value.rank == rank else value.to_layout(rank)
    if isinstance(value, P):
        return value.to_layout(rank, mesh)
    if isinstance(value, HasLayout) and not isinstance(value, type):
        return value.to_layout(rank)
    if isinstance(value, Placement):
        return PlacementMapping(current_mesh(mesh), (value,)).to_layout(rank)
    if is_sequence_of(value, DimSpec) and value:
        return ShardingSpec(current_mesh(mesh), value).to_layout(rank)
    if is_sequence_of(value, Placement):
        return PlacementMapping(current_mesh(mesh), value).to_layout(rank)
    raise ArgumentError(
        f"a layout was expected, got {value!r}.{_ours(value)}\n"
        "  give a Layout, P(...), a PlacementMapping, NamedMapping or ShardingSpec, a list of placements "
        "(one per mesh axis) or a list of DimSpecs (one per dim)."
    )


def _ours(value: Any) -> str:
    """Return the line that says it in our words, where it is clear what is meant."""
    if type(value).__module__.partition(".")[0] == "jax" and hasattr(value, "partitions"):
        if any(not isinstance(entry, str | tuple | None) for entry in value.partitions):
            return ""  # we leave no dim unconstrained
        return f"\n  that is JAX's PartitionSpec; ours is {P(*value.partitions, unreduced=value.unreduced)!r}."
    entries = [value] if isinstance(value, str) else value
    if is_sequence_of(entries, (str, NoneType)) and entries:
        return f"\n  the axes of each dim are written {P(*entries)!r}."
    if is_sequence_of(entries, object) and entries and all(type(v).__module__.startswith("torch.") for v in entries):
        ours = [PLACEMENTS.get(type(v).__name__, repr)(v) for v in entries]
        return f"\n  those are torch's placements; ours are [{', '.join(ours)}]."
    return ""


# How torch's placements are written here.
PLACEMENTS: dict[str, Callable[[Any], str]] = {
    "Shard": lambda p: f"Sharded({p.dim})",
    "Replicate": lambda p: "Replicated()",
    "Partial": lambda p: f"Partial({p.reduce_op.replace('product', 'prod')!r})",
}
