"""Sides: who holds what, before or after a movement.

Devices are numbered by slots that both sides share: the index in the mesh where both layouts live on one
mesh, or a number for each device where two meshes meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from shardwise.layout.axis import Axis
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.tiling import Box, Tiling

Tile = tuple[int, ...]


@dataclass(frozen=True)
class MeshSide:
    """A layout on the common mesh: slots are device indices, and all is arithmetic per axis."""

    layout: Layout
    shape: Shape

    @cached_property
    def tiling(self) -> Tiling:
        """The tiles of the layout on the shape."""
        return self.layout.tiling(self.shape)

    def tile(self, slot: int) -> Tile | None:
        """Return the tile of a slot, or None if it holds nothing."""
        return self.layout.tile_of(slot)

    def number(self, index: int) -> int:
        """Return the slot at an index in the mesh."""
        return index

    def index(self, slot: int) -> int:
        """Return the index in the mesh of a slot."""
        return slot

    def held(self, slot: int) -> Box | None:
        """Return what a slot holds of the tensor, halo included, or None."""
        return clipped(self.tiling.held_box(slot), self.shape) if self.layout.has_halo else self.tiling.box(slot)

    def slots(self, tile: Tile, batch: Sequence[Axis] = (), like: int = 0) -> list[int]:
        """Return the slots that have a tile, at the position of `like` along the axes of `batch`."""
        mesh = self.layout.mesh
        first = self.layout.first_holder(tile) + offset(self.layout, batch, like)
        return spread(self.layout, first, mesh.rest((*self.layout.sharded_axes, *batch)))

    def sources(self, tile: Tile, slot: int, pending: Sequence[Axis]) -> list[int]:
        """Return one slot per contribution over the axes `pending`, each the nearest to `slot`.

        Nearest is the one at the same position along all other axes.
        """
        others = self._others(tuple(pending))
        first = self.layout.first_holder(tile) + offset(self.layout, others, slot)
        return spread(self.layout, first, pending)

    def _others(self, pending: tuple[Axis, ...]) -> tuple[Axis, ...]:
        if pending not in self._rests:
            self._rests[pending] = self.layout.mesh.rest((*self.layout.sharded_axes, *pending))
        return self._rests[pending]

    @cached_property
    def _rests(self) -> dict[tuple[Axis, ...], tuple[Axis, ...]]:
        return {}

    def position(self, slot: int, axes: Sequence[Axis]) -> int:
        """Return a number that tells positions along `axes` apart."""
        return offset(self.layout, axes, slot)


@dataclass(frozen=True)
class ListedSide:
    """A layout on a mesh of its own: `numbers` gives each of its devices a slot."""

    layout: Layout
    shape: Shape
    numbers: tuple[int, ...]

    @property
    def tiling(self) -> Tiling:
        """The tiles of the layout on the shape."""
        return self._mesh.tiling

    @cached_property
    def _mesh(self) -> MeshSide:
        return MeshSide(self.layout, self.shape)

    @cached_property
    def _indices(self) -> dict[int, int]:
        return {number: index for index, number in enumerate(self.numbers)}

    def number(self, index: int) -> int:
        """Return the slot at an index in the mesh."""
        return self.numbers[index]

    def index(self, slot: int) -> int:
        """Return the index in the mesh of a slot; an outsider is taken to stand somewhere in it."""
        return self._indices.get(slot, slot % len(self.numbers))

    def tile(self, slot: int) -> Tile | None:
        """Return the tile of a slot, or None if it holds nothing."""
        return self._mesh.tile(self._indices[slot]) if slot in self._indices else None

    def held(self, slot: int) -> Box | None:
        """Return what a slot holds of the tensor, halo included, or None."""
        return self._mesh.held(self._indices[slot]) if slot in self._indices else None

    def slots(self, tile: Tile, batch: Sequence[Axis] = (), like: int = 0) -> list[int]:
        """Return the slots that have a tile, at the position of `like` along the axes of `batch`."""
        return [self.numbers[i] for i in self._mesh.slots(tile, batch, self.index(like))]

    def sources(self, tile: Tile, slot: int, pending: Sequence[Axis]) -> list[int]:
        """Return one slot per contribution over the axes `pending`, each the nearest to `slot`."""
        return [self.numbers[i] for i in self._mesh.sources(tile, self.index(slot), pending)]

    def position(self, slot: int, axes: Sequence[Axis]) -> int:
        """Return a number that tells positions along `axes` apart."""
        return self._mesh.position(self.index(slot), axes)

    # -- by index in the mesh, which tells the slots of one device apart ---------------------------

    def tile_at(self, index: int) -> Tile:
        """Return the tile at an index in the mesh."""
        return self._tiles[index]

    @cached_property
    def _tiles(self) -> list[Tile]:
        return [self.layout.tile_of(index) for index in range(len(self.numbers))]

    def box_of(self, index: int) -> Box:
        """Return what the slot at an index in the mesh holds of the tensor, halo included."""
        box = self._mesh.held(index)
        assert box is not None, "every slot of a mesh holds something"
        return box

    def position_at(self, index: int, axes: Sequence[Axis]) -> int:
        """Return a number that tells positions along `axes` apart, for an index in the mesh."""
        return self._mesh.position(index, axes)


Side = MeshSide | ListedSide


def offset(layout: Layout, axes: Sequence[Axis], slot: int) -> int:
    """Return the part of a device index that its positions along `axes` make up."""
    total = 0
    for axis in axes:
        divisor = layout.mesh.divisor(axis)
        total += slot // divisor % axis.size * divisor
    return total


def spread(layout: Layout, first: int, axes: Sequence[Axis]) -> list[int]:
    """Return the device indices reached from `first`, which is at position 0, along `axes`."""
    out = [first]
    for axis in axes:
        divisor = layout.mesh.divisor(axis)
        out = [index + i * divisor for index in out for i in range(axis.size)]
    return out


def clipped(box: Box, shape: Shape) -> Box:
    """Return the part of a held box that lies inside the tensor."""
    return tuple((max(0, start), max(0, min(stop, size))) for (start, stop), size in zip(box, shape, strict=True))
