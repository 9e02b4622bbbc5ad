"""Layouts: how one tensor is spread over one mesh, as one canonical value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain
from math import prod
from operator import is_
from typing import Any, cast

from shardwise.caches import Interned, cache, cached_property, intern
from shardwise.errors import (
    ArgumentError,
    BindingError,
    LayoutError,
    RangeError,
    ShardwiseError,
    as_tuple,
    check_int,
    check_sizes,
    is_sequence_of,
    printable,
    seal,
)
from shardwise.layout.axis import Axis, check_disjoint, merge
from shardwise.layout.context import current_mesh
from shardwise.layout.cut import WHOLE, AxisLike, Cut, cut_of
from shardwise.layout.mesh import DeviceMesh, walk
from shardwise.layout.notebook import Drawable
from shardwise.layout.placement import ReduceOp, check_dtype
from shardwise.layout.slot import Slot
from shardwise.layout.tiling import Box, DimTiling, Radix, Tiling, tile_of

Shape = tuple[int, ...]


draw_layout: Slot[[Layout, Shape], str] = Slot("draw_layout")


@seal
class Layout(Interned, Drawable):
    """How one tensor is spread over one mesh: per dim a `Cut`, and the axes that are partial.

    Every vocabulary (placements, named specs, sharding specs) converts to and from it. It is canonical:
    axes of size one disappear and neighbouring sub-axes merge. Equal layouts are the same object.

    >>> mesh = DeviceMesh((2, 4), ("dp", "tp"))
    >>> layout = Layout(mesh, ["dp", "tp"])
    >>> layout
    Layout(mesh(dp=2, tp=4), ['dp', 'tp'])
    >>> layout.box((10, 8), device=5)
    ((5, 10), (2, 4))
    >>> layout is Layout(mesh, [("dp",), "tp:(1)4"])
    True
    >>> layout.rank, layout.sharded_axes, layout.replicated_axes, layout.is_replicated, layout.parts(1)
    (2, (dp, tp), (), False, 4)
    >>> layout.local_shape((10, 8), device=5), layout.max_local_bytes((10, 8), "float32")
    ((5, 2), 40)
    >>> layout.tile_of(5), layout.holders((1, 1)), layout.first_holder((1, 1))
    ((1, 1), (5,), 5)
    """

    __slots__ = ("__dict__", "__weakref__", "dims", "mesh", "partial", "reduce_op")

    mesh: DeviceMesh
    dims: tuple[Cut, ...]
    partial: tuple[Axis, ...]
    reduce_op: ReduceOp | None

    def __new__(
        cls,
        mesh: DeviceMesh | None,
        dims: Iterable[AxisLike | Sequence[AxisLike] | Cut | None] = (),
        partial: Iterable[AxisLike] | Mapping[Any, ReduceOp | str] = (),
        reduce_op: ReduceOp | str = "sum",
    ) -> Layout:
        """Lay out each dim as its entry says: None (whole), an axis, several axes, or a `Cut`."""
        mesh, entries, pairs = current_mesh(mesh), _entries(dims), _pairs(partial, reduce_op)
        try:
            return _look_up(mesh, entries, pairs, "")
        except ShardwiseError:  # which is to say where, and that takes long to write
            pass
        return _look_up(mesh, entries, pairs, _where(entries, pairs))

    @classmethod
    def replicated(cls, mesh: DeviceMesh, rank: int) -> Layout:
        """Return the layout of which every device holds the whole tensor.

        >>> Layout.replicated(DeviceMesh((2,), ("x",)), 2)
        Layout(mesh(x=2), [None, None])
        """
        return _intern(current_mesh(mesh), (WHOLE,) * check_rank(rank), (), None)

    # -- the value ---------------------------------------------------------------------------------

    def __reduce__(self) -> tuple[Any, ...]:
        return _intern, (self.mesh, self.dims, self.partial, self.reduce_op)

    def __str__(self) -> str:
        """Return the short form used in tables: axes per dim between bars, then what is pending."""
        dims = "|".join(" ".join(map(str, cut.axes)) + _marks(cut) or "-" for cut in self.dims)
        pending = f" {self.reduce_op}({', '.join(map(str, self.partial))})" if self.partial else ""
        return printable(f"[{dims}]{pending}", keep="")

    def __repr__(self) -> str:
        dims = ", ".join(_entry_text(cut) for cut in self.dims)
        pending = f", partial={[str(a) for a in self.partial]}" if self.partial else ""
        op = f", reduce_op={str(self.reduce_op)!r}" if self.reduce_op not in (None, ReduceOp.SUM) else ""
        return f"Layout({printable(self.mesh.name, keep='')}({self.mesh}), [{dims}]{pending}{op})"

    @property
    def rank(self) -> int:
        """How many dims the tensor has."""
        return len(self.dims)

    @cached_property
    def sharded_axes(self) -> tuple[Axis, ...]:
        """The axes that split a dim, dim by dim, major to minor."""
        return tuple([a for cut in self.dims for a in cut.axes])

    @cached_property
    def replicated_axes(self) -> tuple[Axis, ...]:
        """The factors of the mesh along which devices hold equal data, in mesh order."""
        return self.mesh.rest((*self.sharded_axes, *self.partial))

    @property
    def is_replicated(self) -> bool:
        """Whether every device holds the whole, finished value."""
        return not self.sharded_axes and not self.partial

    @cached_property
    def has_halo(self) -> bool:
        """Whether any dim has a halo.

        >>> Layout(DeviceMesh((4,), ("x",)), [Cut("x", halo=(1, 0))]).has_halo
        True
        """
        for cut in self.dims:  # noqa: SIM110 - every plan asks, and a generator takes longer than the loop
            if cut.halo != (0, 0):
                return True
        return False

    def parts(self, dim: int) -> int:
        """Return into how many pieces a dim is cut."""
        try:
            return prod(a.size for a in self.dims[dim].axes)
        except (TypeError, IndexError, AttributeError):
            number = check_int(dim, "a dim of a layout is given by its number, an int")
            raise RangeError(f"dim {number} is out of range for a layout of {self.rank} dims.") from None

    def resolved(self) -> Layout:
        """Return the same layout with nothing pending.

        >>> str(Layout(DeviceMesh((2, 2), ("x", "y")), ["x"], ["y"]).resolved())
        '[x]'
        """
        if not self.partial:
            return self
        return _intern(self.mesh, self.dims, (), None)

    def without_halo(self) -> Layout:
        """Return the same layout with no halo.

        >>> Layout(DeviceMesh((4,), ("x",)), [Cut("x", halo=(1, 0))]).without_halo()
        Layout(mesh(x=4), ['x'])
        """
        if not self.has_halo:
            return self
        dims = [cut_of(c.axes, c.split, c.offsets, (0, 0), "clip") for c in self.dims]
        return Layout(self.mesh, dims, self.partial, self.reduce_op or "sum")

    def to_layout(self, rank: int | None = None) -> Layout:
        """Return this layout; checks the rank, as every other vocabulary's `to_layout` does.

        >>> Layout(DeviceMesh((4,), ("x",)), ["x"]).to_layout(2)
        Traceback (most recent call last):
        shardwise.BindingError: the layout [x] has 1 dims, the tensor has 2.
        """
        if rank is not None and check_rank(rank) != self.rank:
            raise BindingError(f"the layout {self} has {self.rank} dims, the tensor has {rank}.")
        return self

    def to_mesh(self, mesh: DeviceMesh) -> Layout:
        """Return the layout on another mesh that has axes of the same names.

        >>> Layout(DeviceMesh((4,), ("x",)), ["x"]).to_mesh(DeviceMesh((2, 2), ("x", "y")))
        Layout(mesh(x=2, y=2), ['x'])
        """
        dims = [cut_of(tuple(map(str, c.axes)), c.split, c.offsets, c.halo, c.edge) for c in self.dims]
        return Layout(mesh, dims, [str(a) for a in self.partial], self.reduce_op or "sum")

    # -- bound to a shape --------------------------------------------------------------------------

    def tiling(self, shape: Sequence[int]) -> Tiling:
        """Return the tiles of a tensor of this shape, after checking that the layout fits it.

        >>> tiling = Layout(DeviceMesh((4,), ("x",)), ["x"]).tiling((10,))
        >>> tiling.largest, list(tiling.tiles())
        ((3,), [(0,), (1,), (2,), (3,)])
        """
        return self._tiling(self, check_shape(shape))

    def box(self, shape: Sequence[int], device: int) -> Box:
        """Return the box, one (start, stop) per dim, that a device owns.

        >>> Layout(DeviceMesh((4,), ("x",)), ["x"]).box((10,), 2)
        ((6, 8),)
        """
        return self.tiling(shape).box(self.mesh.check_index(device))

    def held_box(self, shape: Sequence[int], device: int) -> Box:
        """Return the box that a device holds: what it owns, and the halo.

        >>> Layout(DeviceMesh((4,), ("x",)), [Cut("x", halo=(1, 1))]).held_box((10,), 2)
        ((5, 9),)
        """
        return self.tiling(shape).held_box(self.mesh.check_index(device))

    def local_shape(self, shape: Sequence[int], device: int) -> Shape:
        """Return the shape of the array that a device holds."""
        return tuple(stop - start for start, stop in self.held_box(shape, device))

    def max_local_bytes(self, shape: Sequence[int], dtype: Any) -> int:
        """Return the bytes of the largest shard."""
        return prod(self.tiling(shape).largest) * check_dtype(dtype).itemsize

    def tiles(self, shape: Sequence[int]) -> Iterator[tuple[Box, tuple[int, ...]]]:
        """Yield each distinct tile, as the box it owns, with the devices that hold it.

        >>> for box, devices in Layout(DeviceMesh((2, 2), ("x", "y")), ["x"]).tiles((4,)):
        ...     print(box, devices)
        ((0, 2),) (0, 1)
        ((2, 4),) (2, 3)
        """
        tiling = self.tiling(shape)
        for tile in tiling.tiles():
            yield tiling.tile_box(tile), self.holders(tile)

    def tile_of(self, device: int) -> tuple[int, ...]:
        """Return, per dim, which part of it a device has; needs no shape."""
        try:
            return tile_of(self.radix, device)
        except TypeError:
            raise ArgumentError(f"a device of a mesh is given by its index, an int, got {device!r}.") from None

    def holders(self, tile: tuple[int, ...]) -> tuple[int, ...]:
        """Return the devices whose part is `tile`, replicas and contributors alike."""
        return tuple(walk(self.mesh, self.mesh.rest(self.sharded_axes), self.first_holder(tile)))

    def first_holder(self, tile: tuple[int, ...]) -> int:
        """Return the first of the devices whose part is `tile`."""
        first = 0
        try:
            for radix, part in zip(self.radix, tile, strict=True):
                for divisor, size in reversed(radix):
                    part, digit = divmod(part, size)
                    first += divisor * digit
        except (TypeError, ValueError):
            wanted = f"a tile of {self} is a tuple of {self.rank} parts, one per dim"
            raise ArgumentError(f"{wanted}, got {tile!r}.") from None
        return first

    def check_dtype(self, dtype: Any) -> None:
        """Raise a BindingError if the pending reduction is not defined for this dtype.

        >>> Layout(DeviceMesh((4,), ("x",)), [None], ["x"], "band").check_dtype("float32")
        Traceback (most recent call last):
        shardwise.BindingError: reduction 'band' is not defined for float32.
          reductions of float32: sum, avg, min, max, prod
        """
        if self.reduce_op is not None:
            self.reduce_op.check_dtype(dtype)

    def picture(self, shape: Sequence[int]) -> str:
        """Return a drawing of which device holds which box of a tensor of this shape.

        >>> print(Layout(DeviceMesh((2, 2), ("x", "y")), ["x", None]).picture((4, 6)))
              0:6
            ┌─────┐
        0:2 │ 0,1 │
            ├─────┤
        2:4 │ 2,3 │
            └─────┘
        """
        return draw_layout(self, check_shape(shape))

    # -- inside ------------------------------------------------------------------------------------

    @cached_property
    def radix(self) -> Radix:
        """Per dim, the (divisor, size) of each axis that splits it, by which a device finds its part.

        >>> mesh = DeviceMesh((2, 4), ("x", "y"))
        >>> Layout(mesh, [("y", "x"), None]).radix
        (((1, 4), (4, 2)), ())
        """
        strides = self.mesh.strides
        return tuple(
            [
                tuple([(strides[name] * (of // (pre * size)), size) for name, pre, size, of in cut.axes])
                for cut in self.dims
            ]
        )

    @staticmethod
    @cache()
    def _tiling(layout: Layout, shape: Shape) -> Tiling:
        if len(shape) != layout.rank:
            raise BindingError(f"the layout {layout} has {layout.rank} dims, the shape {shape} has {len(shape)}.")
        dims: list[DimTiling] = []
        for size, cut, radix in zip(shape, layout.dims, layout.radix, strict=True):
            parts = 1
            for _, count in radix:
                parts *= count
            dim = DimTiling(size, parts, cut.split, cut.offsets, cut.halo, cut.edge)
            if cut.offsets is not None or cut.halo != (0, 0):
                dim.check(f"dim {len(dims)}")
            dims.append(dim)
        return Tiling(tuple(dims), layout.radix)


MOST_DIMS = 1024


def check_rank(rank: int) -> int:
    """Return a number of dims as an int of 0 or more."""
    number = check_int(rank, "a rank is the number of dims, an int")
    if number < 0:
        raise BindingError(f"a rank is 0 or more, got {number}.")
    if number > MOST_DIMS:
        raise BindingError(f"a tensor has at most {MOST_DIMS} dims, got {number}.")
    return number


def check_shape(shape: Sequence[int]) -> Shape:
    """Return a shape as a tuple of ints of 0 or more; the shape itself, if it is one."""
    if shape.__class__ is tuple:
        for size in shape:
            if size.__class__ is not int or size < 0:
                break
        else:
            return cast("Shape", shape)
    return check_sizes(shape, "a shape is a tuple of ints", "in a shape", 0, BindingError)


def _look_up(mesh: DeviceMesh, entries: list[Cut], pairs: list[tuple[AxisLike, ReduceOp]], where: str) -> Layout:
    # The layout of cuts and pending axes whose names are looked up in the mesh; `where` is for errors.
    split = [[mesh.axis(a, where) for a in entry.axes] for entry in entries]
    pending = [(mesh.axis(a, where), op) for a, op in pairs]
    check_disjoint([*chain(*split), *(axis for axis, _ in pending)], where)
    cuts = [_canonical(entry, merge(axes), where) for entry, axes in zip(entries, split, strict=True)]
    return _intern(mesh, tuple(cuts), *_pending(mesh, pending, where))


def _intern(mesh: DeviceMesh, dims: tuple[Cut, ...], partial: tuple[Axis, ...], op: ReduceOp | None) -> Layout:
    layout = intern(Layout, mesh=mesh, dims=dims, partial=partial, reduce_op=op)
    if not vars(layout):  # It is new. What every plan asks of its layouts is worked out once, when they are made.
        _ = layout.sharded_axes, layout.has_halo, layout.radix
    return layout


def _entries(dims: Iterable[Any]) -> list[Cut]:
    if isinstance(dims, str | Axis | Cut):
        raise ArgumentError(f"a Layout needs one entry per dim in a list, got {dims!r}; write [{dims!r}].")
    if hasattr(dims, "to_layout"):  # a spec says more than its entries
        raise ArgumentError(f"a Layout needs a list of entries, got {dims!r}; use as_layout to convert it.")
    out: list[Cut] = []
    for entry in as_tuple(dims, "a Layout needs one entry per dim in a list"):
        if isinstance(entry, Cut):
            out.append(entry)
        elif entry is None:
            out.append(WHOLE)
        elif isinstance(entry, str | Axis) or is_sequence_of(entry, (str, Axis)):
            out.append(Cut(entry))
        else:
            raise ArgumentError(f"an entry of a Layout is None, an axis, several axes or a Cut, got {entry!r}.")
    return out


def _canonical(cut: Cut, axes: tuple[Axis, ...], where: str) -> Cut:
    if not axes and cut is WHOLE:
        return cut
    parts = prod([a.size for a in axes])
    if cut.offsets is not None and len(cut.offsets) != parts + 1:
        raise LayoutError(
            f"{len(cut.offsets)} offsets for {parts} shards in {where}: {parts} shards have {parts + 1} boundaries."
        )
    if parts > 1:
        # It has been through here if its axes are those that the mesh made, whose numbers are plain ints.
        is_same = len(cut.axes) == len(axes) and all(map(is_, cut.axes, axes))
        if is_same and (cut.edge == "clip" or cut.halo != (0, 0)):
            return cut
        return cut_of(axes, cut.split, cut.offsets, cut.halo, cut.edge if cut.halo != (0, 0) else "clip")
    # A dim in one piece has nothing to cut; a halo has meaning there only as padding.
    padded = cut.edge == "pad" and cut.halo != (0, 0)
    return Cut((), halo=cut.halo, edge="pad") if padded else WHOLE


def _pairs(partial: Iterable[AxisLike], reduce_op: ReduceOp | str) -> list[tuple[AxisLike, ReduceOp]]:
    op = ReduceOp.of(reduce_op)
    if isinstance(partial, Mapping):
        return [(axis, ReduceOp.of(own)) for axis, own in cast("Mapping[AxisLike, ReduceOp | str]", partial).items()]
    if isinstance(partial, str | Axis):
        return [(partial, op)]
    axes = sorted(partial, key=str) if isinstance(partial, Set) else partial  # their order says nothing
    return [(axis, op) for axis in as_tuple(axes, "partial is a list of axes, or a dict from axes to reductions")]


def _pending(
    mesh: DeviceMesh, named: Sequence[tuple[Axis, ReduceOp]], where: str
) -> tuple[tuple[Axis, ...], ReduceOp | None]:
    ops = {op for axis, op in named if axis.size > 1}
    if len(ops) > 1:
        raise LayoutError(f"two different reductions are pending in {where}.\n  resolve one before making the other.")
    axes = merge(sorted((axis for axis, _ in named), key=lambda a: (mesh.axis_names.index(a.name), a.pre)))
    return (axes, ops.pop()) if axes else ((), None)


def _where(entries: Sequence[Cut], pairs: Sequence[tuple[Any, ReduceOp]]) -> str:
    dims = f"[{', '.join(map(_entry_text, entries))}]"
    return dims + (f" with partial {', '.join(f'{axis} ({op})' for axis, op in pairs)}" if pairs else "")


def _entry_text(cut: Cut) -> str:
    if cut.details:
        return repr(cut)
    names = tuple(map(str, cut.axes))
    return "None" if not names else repr(names[0] if len(names) == 1 else names)


def _marks(cut: Cut) -> str:
    # Short marks for tables: c chunk, o offsets, h(low,high) halo.
    out = {"balanced": "", "chunk": "/chunk", "offsets": "/offsets"}[cut.split]
    low, high = cut.halo
    return out + (f"±({low},{high})" if low or high else "") + ("pad" if cut.edge == "pad" else "")
