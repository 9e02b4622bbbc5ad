"""Holders: who holds what of a tensor, before or after a movement.

Devices are numbered by slots that both layouts of a movement share: the index in the mesh where both are on one mesh,
or a number for each device where two meshes meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardwise.caches import cached_property
from shardwise.layout.axis import Axis
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.mesh import offset, walk
from shardwise.layout.tiling import Box, Tiling
from shardwise.plan.slot_grid import Digits, SlotGrid

Tile = tuple[int, ...]


@dataclass(frozen=True, init=False)
class Holders:
    """Who holds what under a layout; `numbers` gives each device of its mesh a slot, by default its index.

    On the common mesh, where slots are indices, all is arithmetic per axis. On a mesh of its own, others hold nothing.

    >>> from shardwise import DeviceMesh
    >>> layout = Layout(DeviceMesh((2,), ("x",)), ["x"])
    >>> Holders(layout, (4,)).box(1), Holders(layout, (4,), (7, 5)).box(7), Holders(layout, (4,), (7, 5)).box(1)
    (((2, 4),), ((0, 2),), None)
    """

    layout: Layout
    shape: Shape
    numbers: Sequence[int] = ()

    def __init__(self, layout: Layout, shape: Shape, numbers: Sequence[int] = ()) -> None:
        """Take the devices of the layout's mesh to be numbered by their indices, unless `numbers` are given."""
        numbers = numbers or layout.mesh.indices
        vars(self).update(layout=layout, shape=shape, numbers=numbers)

    @cached_property
    def is_on_common_mesh(self) -> bool:
        """Whether slots are indices in the mesh."""
        return isinstance(self.numbers, range)

    @cached_property
    def tiling(self) -> Tiling:
        """The tiles of the layout on the shape."""
        return self.layout.tiling(self.shape)

    @cached_property
    def _indices(self) -> dict[int, int]:
        return {number: index for index, number in enumerate(self.numbers)}

    # -- by slot -----------------------------------------------------------------------------------

    def index(self, slot: int) -> int:
        """Return the index in the mesh of a slot; an outsider is taken to stand somewhere in it."""
        return slot if self.is_on_common_mesh else self._indices.get(slot, slot % len(self.numbers))

    def _own_index(self, slot: int) -> int | None:
        return slot if self.is_on_common_mesh else self._indices.get(slot)

    def tile(self, slot: int) -> Tile | None:
        """Return the tile of a slot, or None if it holds nothing."""
        index = self._own_index(slot)
        return None if index is None else self.layout.tile_of(index)

    def box(self, slot: int) -> Box | None:
        """Return what a slot holds of the tensor, halo included, or None."""
        index = self._own_index(slot)
        return None if index is None else self.box_of(index)

    def slots(self, tile: Tile, batch: Sequence[Axis] = (), like: int = 0) -> Sequence[int]:
        """Return the slots that have a tile, at the position of `like` along the axes of `batch`."""
        first = self.layout.first_holder(tile) + self.position(like, batch)
        return self._along(first, self._other_axes(tuple(batch)))

    def sources(self, tile: Tile, slot: int, pending: Sequence[Axis]) -> Sequence[int]:
        """Return one slot per contribution over the axes `pending`, each the nearest to `slot`.

        Nearest is the one at the same position along all other axes.
        """
        first = self.layout.first_holder(tile) + self.position(slot, self._other_axes(tuple(pending)))
        return self._along(first, tuple(pending))

    def _along(self, first: int, axes: tuple[Axis, ...]) -> Sequence[int]:
        # On the common mesh slots are never listed, for there may be a million.
        if self.is_on_common_mesh:
            return SlotGrid(first, self._digits(axes))
        return [self.numbers[index] for index in walk(self.layout.mesh, axes, first)]

    def _digits(self, axes: tuple[Axis, ...]) -> Digits:
        if axes not in self._digits_by_axes:
            self._digits_by_axes[axes] = tuple((self.layout.mesh.divisor(axis), axis.size) for axis in axes)
        return self._digits_by_axes[axes]

    @cached_property
    def _digits_by_axes(self) -> dict[tuple[Axis, ...], Digits]:
        return {}

    def _other_axes(self, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        # The axes that split no dim, but these.
        if axes not in self._rests:
            self._rests[axes] = self.layout.mesh.rest((*self.layout.sharded_axes, *axes))
        return self._rests[axes]

    @cached_property
    def _rests(self) -> dict[tuple[Axis, ...], tuple[Axis, ...]]:
        return {}

    def position(self, slot: int, axes: Sequence[Axis]) -> int:
        """Return a number that tells positions along `axes` apart."""
        return offset(self.layout.mesh, axes, self.index(slot))

    # -- by index in the mesh, which tells the slots of one device apart ---------------------------

    def tile_at(self, index: int) -> Tile:
        """Return the tile at an index in the mesh."""
        return self._tiles[index]

    @cached_property
    def _tiles(self) -> list[Tile]:
        return [self.layout.tile_of(index) for index in range(len(self.numbers))]

    def box_of(self, index: int) -> Box:
        """Return what the slot at an index in the mesh holds of the tensor, halo included."""
        return clip(self.tiling.held_box(index), self.shape) if self.layout.has_halo else self.tiling.box(index)


def clip(box: Box, shape: Shape) -> Box:
    """Return the part of a held box that lies inside the tensor."""
    return tuple((max(0, start), max(0, min(stop, size))) for (start, stop), size in zip(box, shape, strict=True))
