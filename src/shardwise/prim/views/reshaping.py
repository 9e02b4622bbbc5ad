"""Reshaping: the same elements, in row-major order, in another shape; only those that change device move.

Dims are taken in groups that have equally many elements on both sides, and a group keeps the axes that split it. If
they split it into equal runs on both sides, or into whole rows of the result, shards are reshaped as they are.
Otherwise the elements that a device needs are a few boxes of the value: each is brought to it, and it puts them
together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise, product
from math import prod
from typing import Any, NamedTuple

from array_api_compat import array_namespace

from shardwise.caches import cache
from shardwise.layout.axis import Axis, overlap
from shardwise.layout.cut import Cut
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.tiling import Box
from shardwise.plan.plan import plan_reshard
from shardwise.prim.dispatch.operands import fetch_operands, may_send
from shardwise.prim.dispatch.per_device import Place, in_shape, map_shards
from shardwise.prim.forms import reshape_form
from shardwise.prim.primitive import Primitive
from shardwise.prim.relayout import cut_as
from shardwise.prim.tensor import Tensor, move_to
from shardwise.prim.views.spans import Index, Span
from shardwise.prim.views.windows import window

Sizes = Sequence[int]
Cuts = tuple[Cut, ...]
Piece = tuple[Box, Cuts]  # a box of the dims of a group, and how it is cut


class Reshaping(NamedTuple):
    """How a value is reshaped: the pieces that devices put together, and the layout of the result.

    `groups` says how many dims each group has, `counts` how many pieces it is in; the pieces are those of the first
    group with those of the others, and so on.
    """

    pieces: tuple[tuple[Index, Layout], ...]
    after: Layout
    groups: tuple[int, ...]
    counts: tuple[int, ...]


@cache()
def reshaping(layout: Layout, old: Shape, new: Shape, cut: Cut | None = None) -> Reshaping:
    """Return how a value of a layout is reshaped, if `cut` is given into one dim that is cut in this way.

    >>> from shardwise import DeviceMesh, P
    >>> mesh = DeviceMesh((2, 2), ("x", "y"))
    >>> str(reshaping(P("x", None, "y").to_layout(3, mesh), (4, 3, 8), (12, 2, 4)).after)
    '[x|y|-]'
    >>> uneven = reshaping(P("y").to_layout(2, mesh), (5, 3), (15,))  # 3 and 2 rows
    >>> len(uneven.pieces), uneven.after.dims
    (1, (Cut('y', offsets=(0, 9, 15)),))
    >>> [index[:2] for index, _ in reshaping(P("y").to_layout(1, mesh), (15,), (5, 3)).pieces]
    [(Span(start=0, length=15, step=1),)]
    """
    # What is pending along axes that are to cut the result is resolved on the way.
    if cut is not None and any(overlap(a, b) for a, b in product(cut.axes, layout.partial)):
        layout = layout.resolved()
    groups = [
        _regroup(layout, [layout.dims[k] for k in sources], [old[k] for k in sources], [new[k] for k in targets], cut)
        for sources, targets in _groups(old, new)
    ]
    pieces: list[tuple[Index, Layout]] = []
    for parts in product(*(group for group, _ in groups)):
        boxes, cuts = [span for box, _ in parts for span in box], tuple(own for _, some in parts for own in some)
        pieces.append((tuple(Span(a, b - a) for a, b in boxes), cut_as(layout, cuts)))
    after = cut_as(layout, tuple(own for _, some in groups for own in some))
    ranks, counts = tuple(len(group[0][0]) for group, _ in groups), tuple(len(group) for group, _ in groups)
    return Reshaping(tuple(pieces), after, ranks, counts)


def _groups(old: Shape, new: Shape) -> Iterator[tuple[list[int], list[int]]]:
    # Runs of dims of either shape with equal products; what is left at the end of one shape alone, all of size one,
    # joins the run before it, so that no run is without dims on one side.
    i = j = 0
    while i < len(old) or j < len(new):
        sources: list[int] = []
        targets: list[int] = []
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
        if j == len(new):
            sources, i = [*sources, *range(i, len(old))], len(old)
        if i == len(old):
            targets, j = [*targets, *range(j, len(new))], len(new)
        yield sources, targets


def _regroup(
    layout: Layout, own: Sequence[Cut], old: Sizes, new: Sizes, wanted: Cut | None
) -> tuple[list[Piece], Cuts]:
    # The pieces of a group, and how the dims of the result are cut.
    cuts, axes = tuple(own), [axis for cut in own for axis in cut.axes]
    whole = tuple((0, size) for size in old)
    if wanted is None:
        if list(old) == list(new):
            return [(whole, cuts)], cuts
        if not axes or not prod(old) or not new:
            return [(whole, (Cut(),) * len(old))], (Cut(),) * len(new)
        before, after = _deal_out(axes, old), _deal_out(axes, new)
        if before is not None and after is not None and before == cuts:
            return [(whole, before)], after
        rows = _in_rows(layout, cuts, old, new)
        if rows is not None:
            return [(whole, cuts)], rows
        if before is not None and after is not None:
            return [(whole, before)], after
    # The result is cut along its first dim, and each device needs a run of elements.
    dim = _first(new)
    cut = wanted or Cut(axes)
    ends = [end * prod(new[dim + 1 :]) for end in _ends(layout, cut, new[dim])]
    breaks = sorted({end for end in ends if 0 < end < prod(old)})
    return [(box, _run(box, old, cut, ends)) for box in _boxes(old, breaks)], _only(cut, dim, len(new))


def _first(sizes: Sizes) -> int:
    return next((k for k, size in enumerate(sizes) if size > 1), 0)


def _only(cut: Cut, dim: int, rank: int) -> Cuts:
    return tuple(cut if k == dim else Cut() for k in range(rank))


def _ends(layout: Layout, cut: Cut, size: int) -> list[int]:
    # Where the parts of a dim end.
    tiling = Layout(layout.mesh, [cut]).tiling((size,)).dims[0]
    return [tiling.interval(part)[1] for part in range(tiling.parts)]


def _in_rows(layout: Layout, cuts: Cuts, old: Sizes, new: Sizes) -> Cuts | None:
    # How the result is cut if shards, which are runs of elements, are whole rows of it too.
    a, b = _first(old), _first(new)
    if any(cut.axes for k, cut in enumerate(cuts) if k != a):
        return None
    row = prod(new[b + 1 :])
    ends = [end * prod(old[a + 1 :]) for end in _ends(layout, cuts[a], old[a])]
    if any(end % row for end in ends):
        return None
    even = Cut(cuts[a].axes)
    rows = [end // row for end in ends]
    return _only(even if _ends(layout, even, new[b]) == rows else Cut(even.axes, offsets=(0, *rows)), b, len(new))


def _boxes(sizes: Sizes, breaks: Sequence[int]) -> Iterator[Box]:
    # Boxes of a value, each a run of its elements, of which breaks tear none but between rows.
    rest, start = prod(sizes[1:]), 0
    inner = tuple((0, size) for size in sizes[1:])
    for row in sorted({at // rest for at in breaks if at % rest}):
        if row > start:
            yield ((start, row), *inner)
        torn = [at - row * rest for at in breaks if row * rest < at < (row + 1) * rest]
        for box in _boxes(sizes[1:], torn):
            yield ((row, row + 1), *box)
        start = row + 1
    if start < sizes[0]:
        yield ((start, sizes[0]), *inner)


def _run(box: Box, sizes: Sizes, cut: Cut, ends: Sequence[int]) -> Cuts:
    # How a box is cut so that parts have what they need of it, if the parts of all elements end here.
    strides = [prod(sizes[k + 1 :]) for k in range(len(sizes))]
    base = sum(start * stride for (start, _), stride in zip(box, strides, strict=True))
    dim = _first([stop - start for start, stop in box])
    length = box[dim][1] - box[dim][0]
    own = [min(length, max(0, end - base) // strides[dim]) for end in ends]
    return _only(Cut(cut.axes, offsets=(0, *own)), dim, len(sizes))


def _deal_out(axes: Sequence[Axis], sizes: Sizes) -> Cuts | None:
    # The axes dealt out to the dims, so that they cut all elements into equal runs: a dim is filled before the next.
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
    return tuple(map(Cut, out))


def _reshape(x: Tensor, *, shape: Shape, cut: Cut | None = None) -> Tensor:
    x = move_to(x, x.layout.without_halo())
    how = reshaping(x.layout, x.shape, shape, cut)
    if len(how.pieces) == 1:
        return map_shards(in_shape, fetch_operands("reshape", [x], [how.pieces[0][1]]), how.after, shape, view=True)
    parts = [(window(x, index=index), layout) for index, layout in how.pieces]
    plans = [plan_reshard(part.layout, layout, part.shape, x.dtype) for part, layout in parts]
    may_send("reshape", x, [k for k, own in enumerate(x.layout.dims) if own.axes], *plans)
    ends = (0, *accumulate(how.groups))

    def kernel(place: Place, *arrays: Any) -> Any:
        flat = [a.reshape(tuple(prod(a.shape[i:j]) for i, j in pairwise(ends))) for a in arrays]
        return together(iter(flat), how.counts, 0).reshape(place.shape)

    return map_shards(kernel, [move_to(part, layout) for part, layout in parts], how.after, shape)


def together(arrays: Iterator[Any], counts: Sequence[int], axis: int) -> Any:
    """Return arrays put together: so many along each dim, those of the last dim first."""
    if axis == len(counts):
        return next(arrays)
    some = [together(arrays, counts, axis + 1) for _ in range(counts[axis])]
    return some[0] if len(some) == 1 else array_namespace(*some).concat(some, axis=axis)


def _reshape_vjp(ct: Tensor, out: Tensor, x: Tensor, **_: Any) -> tuple[Tensor, ...]:
    return (reshape(ct, shape=x.shape),)


def _batch(row: Primitive, lead: Any, mapped: Any, operands: Any, params: Any) -> Tensor:
    return reshape(*operands, shape=(*lead.sizes, *params["shape"]))  # no longer one dim that could be cut


# The value in another shape, element for element in row-major order; if it is one dim, cut in this way.
reshape = Primitive("reshape", _reshape, _reshape_vjp, linear=True, batch=_batch, lower=reshape_form)
