"""Primitives on shapes: dims of size one, the order of dims, reshaping."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import prod
from typing import Any

from array_api_compat import array_namespace

from shardwise.layout.axis import Axis
from shardwise.layout.cut import Cut
from shardwise.layout.layout import Layout, Shape
from shardwise.prim.needs import brought
from shardwise.prim.relayout import cut_as
from shardwise.prim.row import Row
from shardwise.prim.tensor import Tensor
from shardwise.prim.work import Place, worked


def _expand(x: Tensor, *, at: tuple[int, ...]) -> Tensor:
    cuts, sizes = list(x.layout.dims), list(x.shape)
    for position in sorted(at):
        cuts.insert(position, Cut())
        sizes.insert(position, 1)
    return _changed(x, cuts, tuple(sizes))


def _squeeze(x: Tensor, *, at: tuple[int, ...]) -> Tensor:
    kept = [k for k in range(x.ndim) if k not in at]
    whole = [Cut() if k in at else cut for k, cut in enumerate(x.layout.dims)]
    (x,) = brought("squeeze", [x], [cut_as(x.layout, tuple(whole))])
    cuts = [x.layout.dims[k] for k in kept]
    return _changed(x, cuts, tuple(x.shape[k] for k in kept))


def _changed(x: Tensor, cuts: list[Cut], shape: Shape) -> Tensor:
    # The layout follows from the operand's own, so that a tangent which is laid out otherwise is right too.
    return worked(_in_shape, [x], cut_as(x.layout, tuple(cuts)), shape, view=True)


def _in_shape(place: Place, array: Any) -> Any:
    return array.reshape(place.shape)


# The value with dims of size one at these positions of the result; and without those at these positions.
expand = Row("expand", _expand, lambda ct, out, x, *, at: (squeeze(ct, at=at),), linear=True)
squeeze = Row("squeeze", _squeeze, lambda ct, out, x, *, at: (expand(ct, at=at),), linear=True)


# -- order of dims ---------------------------------------------------------------------------------------


def _permute(x: Tensor, *, order: tuple[int, ...]) -> Tensor:
    layout = cut_as(x.layout, tuple([x.layout.dims[k] for k in order]))
    shape = tuple(x.shape[k] for k in order)
    return worked(lambda place, a: array_namespace(a).permute_dims(a, order), [x], layout, shape, view=True)


def _permute_vjp(ct: Tensor, out: Tensor, x: Tensor, *, order: tuple[int, ...]) -> tuple[Tensor, ...]:
    back = [0] * len(order)
    for new, old in enumerate(order):
        back[old] = new
    return (permute(ct, order=tuple(back)),)


# The value with its dims in another order.
permute = Row("permute_dims", _permute, _permute_vjp, linear=True)


# -- reshaping -------------------------------------------------------------------------------------------


def _reshape(x: Tensor, *, shape: Shape) -> Tensor:
    before, after = reshaped_layouts(x.layout, x.shape, shape)
    return worked(_in_shape, brought("reshape", [x], [before]), after, shape, view=True)


@lru_cache(maxsize=4096)
def reshaped_layouts(layout: Layout, old: Shape, new: Shape) -> tuple[Layout, Layout]:
    """Return the layout that a tensor must have so that each device can reshape its shard, and that of the result.

    Dims are taken in groups that have equally many elements on both sides. Of a group, the axes that split
    its leading dims evenly stay: they split the elements of the group into equal runs, major to minor.

    >>> from shardwise import DeviceMesh, P
    >>> mesh = DeviceMesh((2, 2), ("x", "y"))
    >>> [str(a) for a in reshaped_layouts(P("x", None, "y").to_layout(3, mesh), (4, 3, 8), (12, 2, 4))]
    ['[x|-|y]', '[x|y|-]']
    """
    before: list[Cut] = []
    after: list[Cut] = []
    for sources, targets in _groups(old, new):
        runs = _runs([layout.dims[k] for k in sources], [old[k] for k in sources], [new[k] for k in targets])
        before += _spread(runs, [old[k] for k in sources])
        after += _spread(runs, [new[k] for k in targets])
    pending = {"partial": layout.partial, "reduce_op": layout.reduce_op or "sum"}
    return Layout(layout.mesh, before, **pending), Layout(layout.mesh, after, **pending)


def _groups(old: Shape, new: Shape) -> Iterator[tuple[list[int], list[int]]]:
    # Runs of dims of either shape with equal products; dims of size one join the run before them.
    i = j = 0
    while i < len(old) or j < len(new):
        sources, targets = [], []
        a = b = 1
        while True:
            if a <= b and i < len(old):
                a, sources, i = a * old[i], [*sources, i], i + 1
            elif j < len(new):
                b, targets, j = b * new[j], [*targets, j], j + 1
            else:
                sources, i = [*sources, *range(i, len(old))], len(old)
                break
            if a == b and sources and targets:
                break
            if i == len(old) and j == len(new):
                break
        while i < len(old) and old[i] == 1 and i + 1 >= len(old):
            sources, i = [*sources, i], i + 1
        while j < len(new) and new[j] == 1 and j + 1 >= len(new):
            targets, j = [*targets, j], j + 1
        yield sources, targets


def _runs(cuts: list[Cut], old: list[int], new: list[int]) -> list[Axis]:
    # The axes, major to minor, that cut the elements of a group into equal runs on both sides.
    out: list[Axis] = []
    for cut, size in zip(cuts, old, strict=True):
        parts = prod(a.size for a in cut.axes)
        if not cut.is_plain or size % parts:
            break
        out += cut.axes
        if parts != size:  # what comes after this dim is not contiguous
            break
    while out and not (_fits(out, old) and _fits(out, new)):
        out.pop()
    return out


def _fits(axes: list[Axis], sizes: list[int]) -> bool:
    return _placed(axes, sizes) is not None


def _placed(axes: list[Axis], sizes: list[int]) -> list[list[Axis]] | None:
    # The axes dealt out to the dims: a dim is filled before the next one is split.
    out: list[list[Axis]] = [[] for _ in sizes]
    rest, k, left = list(axes), 0, sizes[0] if sizes else 1
    while rest:
        axis = rest.pop(0)
        while k < len(sizes) and left == 1:
            k += 1
            left = sizes[k] if k < len(sizes) else 1
        if k == len(sizes):
            return None
        if left % axis.size == 0:
            out[k].append(axis)
            left //= axis.size
        elif axis.size % left == 0:
            out[k].append(Axis(axis.name, axis.pre, left, axis.of))
            rest.insert(0, Axis(axis.name, axis.pre * left, axis.size // left, axis.of))
            left = 1
        else:
            return None
    return out


def _spread(axes: list[Axis], sizes: list[int]) -> list[Cut]:
    return [Cut(part) for part in _placed(axes, sizes) or [[] for _ in sizes]]


def _reshape_vjp(ct: Tensor, out: Tensor, x: Tensor, *, shape: Shape) -> tuple[Tensor, ...]:
    return (reshape(ct, shape=x.shape),)


# The value in another shape, element for element in row-major order.
reshape = Row("reshape", _reshape, _reshape_vjp, linear=True)
