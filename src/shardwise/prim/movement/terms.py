"""Shards seen as terms: how the compiler writes what is done to them, with a dim of its own for each axis."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise, product

from shardwise.engine.storage import storage_of
from shardwise.errors import ProgramError
from shardwise.layout.axis import Axis, without
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.placement import ReduceOp
from shardwise.prim import forms
from shardwise.prim.forms import Form
from shardwise.prim.tensor import Tensor

Sources = tuple[int | None, ...]  # per device, the one whose shard it receives


def split_dims(layout: Layout, shape: Shape, axes: Sequence[Axis]) -> tuple[Shape, list[int]]:
    """Return a shape with a dim for each axis that splits one of the dims along `axes`, and which of them are `axes`.

    >>> from shardwise import DeviceMesh
    >>> mesh = DeviceMesh((2, 3), ("x", "y"))
    >>> split_dims(Layout(mesh, [("x", "y"), None]), (12, 5), [mesh.axis("y")])
    ((2, 3, 2, 5), [1])
    """
    sizes: list[int] = []
    chosen: list[int] = []
    for k, (cut, size) in enumerate(zip(layout.dims, shape, strict=True)):
        if without(cut.axes, axes) == cut.axes:  # other dims stay whole, and may be cut in any way
            sizes.append(size)
            continue
        if not layout.tiling(shape).dims[k].is_even:
            raise ProgramError(
                f"dim {k} of {size} elements is cut unevenly in {layout}, and reducing shards of it over "
                f"{', '.join(map(str, axes))} cannot be written as ops on whole tensors.\n"
                "  lay it out so that its parts are equal before."
            )
        for axis in _split_by(cut.axes, axes):
            if not without([axis], axes):
                chosen.append(len(sizes))
            sizes.append(axis.size)
            size //= axis.size
        sizes.append(size)
    return tuple(sizes), chosen


def _split_by(cut: Sequence[Axis], axes: Sequence[Axis]) -> list[Axis]:
    # The axes of a dim, cut where those that are folded begin and end.
    out: list[Axis] = []
    for axis in cut:
        ends = [m for a in axes if a.name == axis.name for m in (a.pre, a.pre * a.size)]
        first, last = axis.pre, axis.pre * axis.size
        marks = sorted({first, last, *(m for m in ends if first < m < last)})
        out += [Axis(axis.name, a, b // a, axis.of) for a, b in pairwise(marks)]
    return out


def fold_form(out: Tensor, x: Tensor, *, axes: tuple[Axis, ...], op: ReduceOp) -> Form:
    """Return the shards along axes combined."""
    sizes, chosen = split_dims(x.layout, x.shape, axes)
    return forms.reshape(forms.reduce(forms.reshape(x, sizes), chosen, op), out.shape)


def average_form(out: Tensor, x: Tensor, *, axes: tuple[Axis, ...]) -> Form:
    """Return the average of the shards along axes in place of each."""
    sizes, chosen = split_dims(x.layout, x.shape, axes)
    mean = forms.reduce(forms.reshape(x, sizes), chosen, ReduceOp.AVG)
    return forms.reshape(_repeat(mean, sizes, chosen), x.shape)


def unfold_form(out: Tensor, x: Tensor, *, layout: Layout, shape: Shape) -> Form:
    """Return a value as each of the shards along the axes that split the result and not the value."""
    sizes, chosen = split_dims(layout, shape, without(layout.sharded_axes, x.layout.sharded_axes))
    return forms.reshape(_repeat(x, sizes, chosen), shape)


def _repeat(x: Tensor | Form, sizes: Shape, dims: Sequence[int]) -> Form:
    ones = forms.reshape(x, tuple([1 if k in dims else n for k, n in enumerate(sizes)]))
    return forms.broadcast(ones, sizes)


def permutation_form(out: Tensor, x: Tensor, *, sources: Sources) -> Form:
    """Return shards in the place of others, and zeros where there is no source."""
    layout = x.layout.resolved()
    storage, tiling = storage_of(layout, x.shape), layout.tiling(x.shape)
    parts: dict[tuple[int, ...], Form] = {}
    for tile in product(*(range(dim.parts) for dim in tiling.dims)):
        sizes = [stop - start for start, stop in tiling.tile_box(tile)]
        source = sources[layout.first_holder(tile)]
        if source is None:
            parts[tile] = forms.full(tuple(sizes), 0, x.dtype)
        else:
            starts = [start for start, _ in storage.boxes[storage.index(source)]]
            parts[tile] = forms.take_slice(x, starts, sizes)
    for dim in reversed(range(len(tiling.dims))):
        rows: dict[tuple[int, ...], list[Form]] = {}
        for tile, part in parts.items():
            rows.setdefault(tile[:dim], []).append(part)
        parts = {tile: forms.concat(row, dim) for tile, row in rows.items()}
    return parts[()]


Piece = tuple[int, int]  # of which device, and for which member of its group


def rearrange(x: Tensor, dim: int, lengths: dict[Piece, int], before: Sequence[Piece], after: Sequence[Piece]) -> Form:
    """Return a value whose pieces along a dim come in another order."""
    ends = accumulate((lengths[piece] for piece in before), initial=0)
    starts = dict(zip(before, ends, strict=False))
    parts = [
        forms.take_slice(
            x,
            [starts[piece] if k == dim else 0 for k in range(x.ndim)],
            [*x.shape[:dim], lengths[piece], *x.shape[dim + 1 :]],
        )
        for piece in after
        if lengths[piece]
    ]
    return forms.concat(parts, dim) if parts else forms.as_form(x)
