"""Mappings: a layout in the words of placements per mesh axis, or of axis names per tensor dim."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shardwise.errors import ArgumentError, BindingError, ConversionError, LayoutError, as_tuple, seal
from shardwise.layout.context import current_mesh
from shardwise.layout.cut import Cut
from shardwise.layout.layout import Layout, check_rank
from shardwise.layout.mesh import DeviceMesh
from shardwise.layout.placement import Partial, Placement, ReduceOp, Replicated, Sharded
from shardwise.layout.spec import P, SpecEntry, Unreduced, check_entry, reductions, spec_layout


class DeviceMapping(ABC):
    """How a tensor is spread over a mesh; base of `PlacementMapping` and `NamedMapping`.

    >>> mesh = DeviceMesh((2, 4), ("dp", "tp"))
    >>> mapping = PlacementMapping(mesh, [Sharded(0), Replicated()])
    >>> isinstance(mapping, DeviceMapping), mapping.to_named(2).to_placements() == mapping.to_placements()
    (True, True)
    >>> mapping.to_mesh(DeviceMesh((4, 2), ("dp", "tp"))).to_layout(2)
    Layout(mesh(dp=4, tp=2), ['dp', None])
    """

    __slots__ = ()

    mesh: DeviceMesh

    @abstractmethod
    def to_layout(self, rank: int) -> Layout:
        """Return the canonical layout of a tensor of `rank` dims."""

    @abstractmethod
    def to_mesh(self, mesh: DeviceMesh) -> DeviceMapping:
        """Return the same mapping on another mesh that has axes of the same names."""

    @abstractmethod
    def to_placements(self) -> tuple[Placement, ...]:
        """Return one placement per mesh axis, or raise a ConversionError."""

    def to_named(self, rank: int) -> NamedMapping:
        """Return the mapping as axis names per dim, or raise a ConversionError."""
        return NamedMapping.from_layout(self.to_layout(rank))


@seal
@dataclass(frozen=True, slots=True)
class PlacementMapping(DeviceMapping):
    """One placement per mesh axis, as in PyTorch's DTensor.

    >>> mesh = DeviceMesh((2, 4), ("dp", "tp"))
    >>> PlacementMapping(mesh, [Sharded(0), Replicated()]).to_layout(2)
    Layout(mesh(dp=2, tp=4), ['dp', None])
    >>> PlacementMapping.from_layout(Layout(mesh, [None, "tp"])).placements
    (Replicated(), Sharded(1))
    """

    mesh: DeviceMesh
    placements: Sequence[Placement]

    def __post_init__(self) -> None:
        object.__setattr__(self, "mesh", current_mesh(self.mesh))
        placements = (self.placements,) if isinstance(self.placements, Placement) else self.placements
        placements = as_tuple(placements, "placements are a list, one per mesh axis")
        for placement in placements:
            if not isinstance(placement, Placement):
                raise ArgumentError(f"a placement is Replicated(), Sharded(dim) or Partial(), got {placement!r}.")
        if len(placements) != self.mesh.ndim:
            raise LayoutError(
                f"a mesh with {self.mesh.ndim} axes needs {self.mesh.ndim} placements, "
                f"got {len(placements)}: {placements}.\n  mesh axes: {self.mesh}"
            )
        object.__setattr__(self, "placements", placements)
        sized = zip(placements, self.mesh.mesh_shape, strict=True)
        if len({p.reduce_op for p, size in sized if isinstance(p, Partial) and size > 1}) > 1:
            raise LayoutError(
                f"two different reductions are pending in {placements}.\n  resolve one before making the other."
            )

    def to_layout(self, rank: int) -> Layout:
        """Return the canonical layout of a tensor of `rank` dims."""
        rank = check_rank(rank)
        dims: list[Cut] = [Cut()] * rank
        partial: dict[str, ReduceOp | str] = {}
        for name, placement in zip(self.mesh.axis_names, self.placements, strict=True):
            if isinstance(placement, Partial):
                partial[name] = placement.reduce_op
            if not isinstance(placement, Sharded):
                continue
            if not -rank <= placement.axis < rank:
                dims_text = f"dims {-rank} to {rank - 1}" if rank else "no dims"
                raise BindingError(f"{placement} on mesh axis {name!r} is out of range: the tensor has {dims_text}.")
            dim = placement.axis % rank
            dims[dim] = self._extend(dims[dim], name, placement)
        return Layout(self.mesh, dims, partial)

    def _extend(self, cut: Cut, name: str, placement: Sharded) -> Cut:
        how: dict[str, Any] = {s: getattr(placement, s) for s in ("split", "offsets", "halo", "edge")}
        if cut.axes and any(getattr(cut, s) != value for s, value in how.items()):
            raise LayoutError(
                f"dim {placement.axis} is cut in two ways, by {cut} and by {placement} on mesh axis {name!r}."
                "\n  placements that shard one dim must agree on split, offsets, halo and edge."
            )
        return Cut((*cut.axes, name), **how)

    def to_placements(self) -> tuple[Placement, ...]:
        """Return the placements."""
        return tuple(self.placements)

    def to_mesh(self, mesh: DeviceMesh) -> PlacementMapping:
        """Return the same mapping on another mesh with these axes by name; those it adds are replicated."""
        mesh, by_name = current_mesh(mesh), dict(zip(self.mesh.axis_names, self.placements, strict=True))
        for name, placement in by_name.items():
            if not isinstance(placement, Replicated):
                mesh.axis(name, f"to_mesh of {placement}")
        return PlacementMapping(mesh, [by_name.get(name, Replicated()) for name in mesh.axis_names])

    @classmethod
    def from_layout(cls, layout: Layout) -> PlacementMapping:
        """Return the mapping that says the same, or raise a ConversionError."""
        if not isinstance(layout, Layout):
            raise ArgumentError(f"PlacementMapping.from_layout takes a Layout, got {layout!r}.")
        names = layout.mesh.axis_names
        placements: dict[str, Placement] = {}
        for axis in (*layout.sharded_axes, *layout.partial):
            if not axis.is_whole:
                raise ConversionError(
                    f"sub-axis {axis} cannot be written as a placement: placements name whole mesh axes "
                    f"({layout.mesh}).\n  keep the NamedMapping, or split the mesh axis into two."
                )
        for dim, cut in enumerate(layout.dims):
            own = [a.name for a in cut.axes]
            if own != sorted(own, key=names.index):
                raise ConversionError(
                    f"dim {dim} is sharded by {tuple(own)}, but placements list mesh axes in mesh order "
                    f"({', '.join(names)}),\n"
                    f"so the order {'-then-'.join(own)} cannot be written as placements.\n"
                    f"  keep the NamedMapping, or reshard to {tuple(sorted(own, key=names.index))} first."
                )
            if not own and not cut.is_plain:
                raise ConversionError(
                    f"dim {dim} is padded with {cut.details.lstrip(', ')} but not sharded, "
                    "which placements cannot say.\n  keep the Layout."
                )
            sharded = Sharded(dim, split=cut.split, offsets=cut.offsets, halo=cut.halo, edge=cut.edge)
            placements |= dict.fromkeys(own, sharded)
        placements |= {axis.name: Partial(layout.reduce_op or "sum") for axis in layout.partial}
        return cls(layout.mesh, [placements.get(name, Replicated()) for name in names])


@seal
@dataclass(frozen=True, slots=True, init=False, repr=False)
class NamedMapping(DeviceMapping):
    """Axis names per tensor dim, as in JAX's PartitionSpec; `unreduced` axes have a reduction pending.

    >>> mesh = DeviceMesh((2, 4), ("dp", "tp"))
    >>> mapping = NamedMapping(mesh, ("dp", None), unreduced=["tp"])
    >>> mapping.to_placements()
    (Sharded(0), Partial('sum'))
    >>> NamedMapping.from_layout(Layout(mesh, [None, "tp"])).spec
    (None, 'tp')
    """

    mesh: DeviceMesh
    spec: tuple[SpecEntry, ...]
    unreduced: tuple[tuple[str, ReduceOp], ...]

    def __init__(
        self, mesh: DeviceMesh, spec: P | Sequence[SpecEntry | Sequence[str]], *, unreduced: Unreduced = ()
    ) -> None:
        """Name per dim the axes that split it; `unreduced` names axes, or maps them to a reduction."""
        entries = as_tuple(spec, "a spec is a tuple with one entry per dim, such as ('x', None)")
        if isinstance(spec, P):
            unreduced = dict(spec.unreduced) | reductions(unreduced)
        values = current_mesh(mesh), tuple(map(check_entry, entries)), tuple(reductions(unreduced).items())
        for slot, value in zip(("mesh", "spec", "unreduced"), values, strict=True):
            object.__setattr__(self, slot, value)
        self.to_layout(len(self.spec))  # so that a wrong axis is found here, not where the mapping is used

    def __repr__(self) -> str:
        return f"NamedMapping({self.mesh!r}, {P(*self.spec, unreduced=dict(self.unreduced))!r})"

    def to_layout(self, rank: int) -> Layout:
        """Return the canonical layout of a tensor of `rank` dims."""
        text = repr(P(*self.spec, unreduced=dict(self.unreduced)))
        return spec_layout(self.mesh, self.spec, dict(self.unreduced), rank, text)

    def to_placements(self) -> tuple[Placement, ...]:
        """Return one placement per mesh axis, or raise a ConversionError."""
        return tuple(PlacementMapping.from_layout(self.to_layout(len(self.spec))).placements)

    def to_mesh(self, mesh: DeviceMesh) -> NamedMapping:
        """Return the same mapping on another mesh that has axes of the same names."""
        return NamedMapping(mesh, self.spec, unreduced=dict(self.unreduced))

    @classmethod
    def from_layout(cls, layout: Layout) -> NamedMapping:
        """Return the mapping that says the same, or raise a ConversionError."""
        spec = P.from_layout(layout)  # which checks that it is one
        return cls(layout.mesh, spec)
