"""Accessors: what tensors and their types alike say of their layout."""

from __future__ import annotations

from shardwise.errors import ConversionError
from shardwise.layout.layout import Layout
from shardwise.layout.mapping import DeviceMapping, NamedMapping, PlacementMapping
from shardwise.layout.placement import Placement


class LayoutAccessors:
    """The layout of a tensor, or of the type of one, in the words of placements and mappings."""

    __slots__ = ()

    layout: Layout

    @property
    def placements(self) -> tuple[Placement, ...]:
        """One placement per mesh axis; a ConversionError where placements cannot say the layout.

        >>> from shardwise import DeviceMesh, P, shard
        >>> shard([1.0, 2.0], DeviceMesh((2, 2), ("x", "y")), P("y")).placements
        (Replicated(), Sharded(0))
        """
        return tuple(PlacementMapping.from_layout(self.layout).placements)

    def to_named_sharding(self) -> NamedMapping:
        """Return the axis names per dim; a ConversionError where names cannot say the layout.

        >>> from shardwise import DeviceMesh, P, shard
        >>> shard([1.0, 2.0], DeviceMesh((2, 2), ("x", "y")), P("y")).to_named_sharding().spec
        ('y',)
        """
        return NamedMapping.from_layout(self.layout)

    @property
    def num_shards(self) -> int:
        """How many shards there are: one for each slot of the mesh.

        >>> from shardwise import DeviceMesh, P, asarray, shard
        >>> shard([1.0, 2.0], DeviceMesh((2, 2), ("x", "y")), P("y")).num_shards, asarray(1.0).num_shards
        (4, 1)
        """
        return self.layout.mesh.num_devices

    @property
    def is_distributed(self) -> bool:
        """Whether there is more than one shard.

        >>> from shardwise import DeviceMesh, P, asarray, shard
        >>> shard([1.0, 2.0], DeviceMesh((2,), ("x",)), P()).is_distributed, asarray(1.0).is_distributed
        (True, False)
        """
        return self.num_shards > 1

    @property
    def rank(self) -> int:
        """How many dims the tensor has.

        >>> from shardwise import asarray
        >>> asarray([[1.0]]).rank
        2
        """
        return self.layout.rank

    @property
    def is_fully_replicated(self) -> bool:
        """Whether every shard is the whole, finished value.

        >>> from shardwise import DeviceMesh, P, shard
        >>> mesh = DeviceMesh((2,), ("x",))
        >>> [shard([1.0, 2.0], mesh, p).is_fully_replicated for p in (P(), P("x"), P(unreduced=["x"]))]
        [True, False, False]
        """
        return self.layout.is_replicated

    @property
    def is_fully_resolved(self) -> bool:
        """Whether no reduction is pending.

        >>> from shardwise import DeviceMesh, P, shard
        >>> mesh = DeviceMesh((2,), ("x",))
        >>> [shard([1.0, 2.0], mesh, p).is_fully_resolved for p in (P(), P("x"), P(unreduced=["x"]))]
        [True, True, False]
        """
        return not self.layout.partial


def mapping_of(layout: Layout) -> DeviceMapping:
    """Return a layout as placements or, where those cannot say it, as axis names; a ConversionError if neither can.

    >>> from shardwise import DeviceMesh
    >>> mesh = DeviceMesh((2, 2), ("x", "y"))
    >>> type(mapping_of(Layout(mesh, ["x"]))).__name__, type(mapping_of(Layout(mesh, [("y", "x")]))).__name__
    ('PlacementMapping', 'NamedMapping')
    """
    try:
        return PlacementMapping.from_layout(layout)
    except ConversionError:
        return NamedMapping.from_layout(layout)
