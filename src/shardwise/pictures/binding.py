"""A layout as it is drawn: bound to a shape, or to a stand-in where the sizes are not known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, product
from math import prod

from shardwise.caches import cached_property
from shardwise.errors import BindingError
from shardwise.layout.axis import Axis
from shardwise.layout.device_order import virtual_order
from shardwise.layout.layout import Layout
from shardwise.layout.mesh import DeviceMesh
from shardwise.layout.shape import Dim, check_dims
from shardwise.layout.tiling import Box, Interval, Tiling

MOST_DEVICES = 8  # that are named one by one in a cell; of more, the first three


@dataclass(frozen=True)
class BoundLayout:
    """A layout and the sizes of the dims, of which some may be names or None: not known.

    >>> from shardwise import DeviceMesh, Layout
    >>> bound = BoundLayout(Layout(DeviceMesh((2, 4), ("dp", "tp")), ["tp", None]), (10, None))
    >>> bound.span(0, 1), bound.span(1, 0), bound.devices((1, 0))
    ('3:6', 'all', '1,5')
    """

    layout: Layout
    sizes: tuple[Dim | None, ...]

    @cached_property
    def tiling(self) -> Tiling:
        """The tiles; a dim of unknown size has parts of one size."""
        return self.layout.tiling([self._size(dim) for dim in range(self.layout.rank)])

    def _size(self, dim: int) -> int:
        size, cut = self.sizes[dim], self.layout.dims[dim]
        if isinstance(size, int):
            return size
        return cut.offsets[-1] if cut.offsets is not None else self.layout.parts(dim) * max(4, *cut.halo)

    @property
    def shape_text(self) -> str:
        """The shape in short: `1024x4096`, `?` where a size is not known."""
        return "x".join("?" if size is None else str(size) for size in self.sizes) or "0-d"

    @property
    def is_known(self) -> bool:
        """Whether all sizes are."""
        return all(self.knows(dim) for dim in range(self.layout.rank))

    def knows(self, dim: int) -> bool:
        """Whether the size of a dim is known; explicit offsets tell it."""
        return isinstance(self.sizes[dim], int) or self.layout.dims[dim].offsets is not None

    def span(self, dim: int, part: int) -> str:
        """Return what a part owns of a dim, as `start:stop`, or which part it is."""
        if self.knows(dim):
            return span_text(self.tiling.dims[dim].interval(part))
        return "all" if self.layout.parts(dim) == 1 else f"part {part}"

    def halo_text(self, dim: int, part: int) -> str:
        """Return what a part holds of a dim if that is more than it owns, or nothing."""
        tiling = self.tiling.dims[dim]
        if tiling.extent(part) == tiling.interval(part):
            return ""
        if self.knows(dim):
            return f"holds {span_text(tiling.extent(part))}"
        (start, stop), (first, last) = tiling.interval(part), tiling.extent(part)
        return f"halo {start - first},{last - stop}"

    def devices(self, tile: tuple[int, ...]) -> str:
        """Return the devices that hold a tile: replicas with commas or as a range, contributions joined by `+`."""
        layout = self.layout
        first = layout.first_holder(tile)
        groups = [_replicas(layout, first + offset) for offset in _offsets(layout, layout.partial)]
        if layout.partial and layout.replicated_axes:
            groups = [f"({group})" for group in groups]
        return "+".join(groups) + ("+..." if _count(layout.partial) > MOST_DEVICES else "")

    def box(self, tile: tuple[int, ...]) -> str:
        """Return the box that a tile owns, one interval per dim."""
        return ", ".join(self.span(dim, part) for dim, part in enumerate(tile))

    def held_box(self, tile: tuple[int, ...]) -> Box:
        """Return the box that a tile holds."""
        return tuple(dim.extent(part) for dim, part in zip(self.tiling.dims, tile, strict=True))


def bind_layout(layout: Layout, shape: Sequence[Dim] | None) -> BoundLayout:
    """Return a layout with a shape, after checking that they fit; without one, no size is known."""
    sizes: tuple[Dim | None, ...] = (None,) * layout.rank if shape is None else check_dims(shape)
    if len(sizes) != layout.rank:
        raise BindingError(f"the layout {layout} has {layout.rank} dims, the shape {sizes} has {len(sizes)}.")
    bound = BoundLayout(layout, sizes)
    _ = bound.tiling  # raises where the layout does not fit
    return bound


def span_text(interval: Interval) -> str:
    """Return an interval as `start:stop`."""
    return f"{interval[0]}:{interval[1]}"


def _replicas(layout: Layout, first: int) -> str:
    axes = layout.replicated_axes
    last = first + sum((a.size - 1) * layout.mesh.divisor(a) for a in axes)
    if _count(axes) > 2 and last - first + 1 == _count(axes):
        return f"{first}-{last}"
    named = ",".join(str(first + offset) for offset in _offsets(layout, axes))
    return named + (",..." if _count(axes) > MOST_DEVICES else "")


def _count(axes: Sequence[Axis]) -> int:
    return prod(axis.size for axis in axes)


def _offsets(layout: Layout, axes: Sequence[Axis]) -> list[int]:
    # As many as are named, and no more positions per axis: `product` makes a list of each.
    count = _count(axes) if _count(axes) <= MOST_DEVICES else 3
    steps = [(layout.mesh.divisor(a), min(a.size, MOST_DEVICES)) for a in axes]
    every = product(*(range(0, number * divisor, divisor) for divisor, number in steps))
    return [sum(offsets) for offsets in islice(every, count)]


def order_text(mesh: DeviceMesh) -> str:
    """Return which devices stand in the slots of a mesh, or nothing where each has the number of its slot.

    >>> from shardwise import CPU
    >>> order_text(DeviceMesh((2,), ("x",), [CPU(3), CPU(1)])), order_text(DeviceMesh((2,), ("x",)))
    ('0 is cpu:3, 1 is cpu:1', '')
    """
    if mesh.order == virtual_order(mesh.mesh_shape):
        return ""
    named = [f"{index} is {mesh.device(index)}" for index in range(min(mesh.num_devices, MOST_DEVICES))]
    return ", ".join(named) + (", ..." if mesh.num_devices > MOST_DEVICES else "")
