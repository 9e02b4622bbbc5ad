"""Shardings while a program runs: grid axes per dim, halos and offsets as numbers, and the shards they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from shardwise.errors import ProgramError, seal
from shardwise.ir.module.groups import Shape
from shardwise.layout.cut import Cut
from shardwise.layout.layout import Layout
from shardwise.layout.mesh import DeviceMesh


@seal
@dataclass(frozen=True, slots=True)
class Sharding:
    """How a tensor is spread over a grid.

    >>> Sharding("grid0", (4,), ((), (0,)), offsets=(0, 2, 5, 9, 14)).shape((4, 14), device=3)
    (4, 5)
    """

    grid: str
    grid_shape: Shape
    split_axes: tuple[tuple[int, ...], ...]
    halos: tuple[int, ...] = ()
    offsets: tuple[int, ...] = ()

    def layout(self, rank: int) -> Layout:
        """Return the layout that this is, on a mesh whose axes are called after those of the grid."""
        names = [f"axis{k}" for k in range(len(self.grid_shape))]
        mesh = DeviceMesh(self.grid_shape, names, name=self.grid)
        if len(self.split_axes) > rank:
            raise ProgramError(f"a sharding of {len(self.split_axes)} dims is given to a tensor with {rank}.")
        halos, offsets = list(self.halos), list(self.offsets)
        cuts: list[Cut | None] = []
        for axes in (*self.split_axes, *((),) * (rank - len(self.split_axes))):
            if not axes:
                cuts.append(None)
                continue
            parts = prod(self.grid_shape[a] for a in axes)
            halo = (halos.pop(0), halos.pop(0)) if halos else (0, 0)
            bounds = [offsets.pop(0) for _ in range(parts + 1)] if offsets else None
            # All shards have halos of the same size, those at the border too.
            cuts.append(Cut([names[a] for a in axes], offsets=bounds, halo=halo, edge="pad"))
        return Layout(mesh, cuts)

    def shape(self, shape: Sequence[int], device: int) -> Shape:
        """Return the shape of the shard of a device, halo included."""
        return tuple(stop - start for start, stop in self.layout(len(shape)).held_box(shape, device))
