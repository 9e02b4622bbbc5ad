"""Grids: the meshes of a recording as grids whose axes are as fine as its layouts need."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from shardwise.errors import ProgramError, seal
from shardwise.layout.axis import Axis
from shardwise.layout.cut import Cut
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.mesh import DeviceMesh


@dataclass(frozen=True)
class Grid:
    """A mesh as a grid: its name there, and the bounds of the factors that each mesh axis is cut into."""

    mesh: DeviceMesh
    name: str
    bounds: tuple[tuple[int, ...], ...]  # per mesh axis 1, ..., its size; each divides the next

    @property
    def shape(self) -> Shape:
        """The shape of the grid."""
        return tuple(b // a for axis in self.bounds for a, b in itertools.pairwise(axis))

    def axes(self, axis: Axis) -> list[int]:
        """Return the grid axes, outer to inner, that a mesh axis or sub-axis is made of."""
        first = 0
        for name, bounds in zip(self.mesh.axis_names, self.bounds, strict=True):
            if name == axis.name:
                start, stop = bounds.index(axis.pre), bounds.index(axis.pre * axis.size)
                return list(range(first + start, first + stop))
            first += len(bounds) - 1
        raise ProgramError(f"axis {axis} is not in the mesh {self.mesh}.")


def grids_of(layouts: Iterable[Layout]) -> dict[DeviceMesh, Grid]:
    """Return a grid for every mesh of several devices, with axes for all the sub-axes that layouts use.

    >>> from shardwise import DeviceMesh, Layout
    >>> mesh = DeviceMesh((2, 4), ("x", "y"))
    >>> grids_of([Layout(mesh, ["x"]), Layout(mesh, ["y:(1)2"])])[mesh].shape
    (2, 2, 2)
    """
    used: dict[DeviceMesh, dict[str, set[int]]] = {}
    for layout in layouts:
        if layout.mesh.is_single:
            continue
        cuts = used.setdefault(layout.mesh, {n: {1, s} for n, s in _axes(layout.mesh)})
        for axis in layout.sharded_axes:
            cuts[axis.name] |= {axis.pre, axis.pre * axis.size}
    out: dict[DeviceMesh, Grid] = {}
    for mesh, cuts in used.items():
        name = mesh.name if all(grid.name != mesh.name for grid in out.values()) else f"{mesh.name}{len(out)}"
        out[mesh] = Grid(mesh, name, tuple(_chain(n, s, cuts[n]) for n, s in _axes(mesh)))
    return out


def _axes(mesh: DeviceMesh) -> list[tuple[str, int]]:
    return list(zip(mesh.axis_names, mesh.mesh_shape, strict=True))


def _chain(name: str, size: int, cuts: set[int]) -> tuple[int, ...]:
    if size == 1:
        return (1, 1)
    bounds = tuple(sorted(cuts))
    for a, b in itertools.pairwise(bounds):
        if b % a:
            raise ProgramError(
                f"axis {name} of size {size} is cut at {a} and at {b} positions, which no grid has axes for.\n"
                "  use sub-axes that are factors of one another."
            )
    return bounds


@seal
@dataclass(frozen=True, slots=True)
class Split:
    """A layout as the dialect says it: grid axes per dim, and halos or the bounds of shards, dim by dim."""

    axes: tuple[tuple[int, ...], ...]
    halos: tuple[int, ...] = ()
    offsets: tuple[int, ...] = ()


def split_of(layout: Layout, shape: Shape, grid: Grid) -> Split:
    """Return a layout in the terms of a grid; what cannot be said there is an error.

    >>> from shardwise import Cut, DeviceMesh, Layout
    >>> layout = Layout(DeviceMesh((2,), ("x",)), [Cut("x", split="chunk")])
    >>> split_of(layout, (3,), grids_of([layout])[layout.mesh])
    Split(axes=((0,),), halos=(), offsets=(0, 2, 3))
    """
    axes = tuple(tuple(a for axis in cut.axes for a in grid.axes(axis)) for cut in layout.dims)
    cuts = [(k, cut) for k, cut in enumerate(layout.dims) if cut.axes]
    haloed = [cut for cut in layout.dims if cut.halo != (0, 0)]
    plain = all(cut.split == "balanced" for _, cut in cuts)
    if haloed:
        _check_halos(layout, haloed, plain)
        return Split(axes, halos=tuple(n for _, cut in cuts for n in cut.halo))
    if plain:
        return Split(axes)
    tiling = layout.tiling(shape)
    bounds: list[int] = []
    for k, cut in cuts:
        parts = prod(a.size for a in cut.axes)
        bounds += [*(tiling.dims[k].interval(part)[0] for part in range(parts)), shape[k]]
    return Split(axes, offsets=tuple(bounds))


def _check_halos(layout: Layout, haloed: list[Cut], plain: bool) -> None:
    if not plain:
        raise ProgramError(f"the layout {layout} has halos and bounds of its own, of which a sharding says one only.")
    for cut in haloed:
        if not cut.axes or cut.edge != "pad":
            raise ProgramError(
                f"the layout {layout} has a halo that a sharding cannot say: there all shards have halos of one size.\n"
                '  use edge="pad" on a dim that is split.'
            )
