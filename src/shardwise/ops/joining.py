"""Values joined, cut apart, padded, reversed and rolled; on a sharded dim only what changes device moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from shardwise.errors import (
    ArgumentError,
    BindingError,
    as_int,
    as_tuple,
    check_ints,
    check_number,
    did_you_mean,
    is_list,
)
from shardwise.layout.cut import Cut
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.placement import ReduceOp, joint_dtype
from shardwise.ops.indexing import slice_window
from shardwise.ops.reductions import Axis, dim_of, dims_of
from shardwise.plan.plan import plan_reshard
from shardwise.prim.arithmetic import elementwise as rows
from shardwise.prim.dispatch.operands import may_bring, may_send, rehearse
from shardwise.prim.dispatch.solvers import is_quiet, mode, permit
from shardwise.prim.face import public
from shardwise.prim.movement.borders import stretches, surround
from shardwise.prim.movement.joins import Widths, joined_shape, spans_along
from shardwise.prim.movement.joins import concat as join
from shardwise.prim.movement.joins import pad as constants_around
from shardwise.prim.movement.mirror import mirror
from shardwise.prim.relayout import cut_as, cut_dim
from shardwise.prim.tensor import Tensor, asarray, together
from shardwise.prim.views.reshaping import reshape, reshaping
from shardwise.prim.views.shapes import expand, squeeze
from shardwise.prim.views.spans import Span, between, whole_but
from shardwise.prim.views.windows import window, window_layout

PadMode = Literal["constant", "edge", "reflect", "wrap"]


@public()
def concat(arrays: Sequence[Any], /, *, axis: int | None = 0) -> Tensor:
    """Return arrays side by side along a dim; with `axis=None` all of them flattened.

    >>> concat([[1.0, 2.0], [3.0]]).numpy()
    array([1., 2., 3.])
    """
    parts = _alike(arrays, "concat")
    if axis is None:
        return _ask("concat", _in_a_row, parts, range(max(x.ndim for x in parts)))
    dim = dim_of(parts[0], axis, "concat")
    for part in parts:
        if part.ndim != parts[0].ndim or not _fits(part.shape, parts[0].shape, dim):
            shapes = ", ".join(str(x.shape) for x in parts)
            raise BindingError(f"concat: all dims but dim {dim} must be equal, got shapes {shapes}.")
    return join_along(parts, dim)


def _ask(op: str, run: Callable[..., Tensor], operands: Sequence[Tensor], dims: Sequence[int]) -> Tensor:
    # What a function of several ops returns, once the solver in use has been asked about all of them.
    if is_quiet():
        return run(*operands)
    may_send(op, operands, dims, *rehearse(run, *operands))
    with mode(permit()):
        return run(*operands)


def _in_a_row(*parts: Tensor) -> Tensor:
    # All elements one after the other, cut by the axes that split the largest of the values.
    largest = max(parts, key=lambda x: (not x.mesh.is_single, x.size))
    alike = len({(x.mesh, x.layout.partial, x.layout.reduce_op) for x in parts}) == 1
    axes = [axis for cut in largest.layout.dims for axis in cut.axes]
    pending = largest.layout.partial if alike else ()
    row = Layout(largest.mesh, [Cut(axes)], pending, largest.layout.reduce_op or "sum")
    total = sum(x.size for x in parts)
    if len(parts) == 1:
        return reshape(largest, shape=(total,))
    start = 0
    flat: list[Tensor] = []
    for x in parts:
        there = window_layout(row, (total,), (Span(start, x.size),))
        own = x.layout.without_halo()
        # Shards that are runs of elements stay where they are until all are joined; others are brought there at once.
        stays = not x.size or x.mesh is not row.mesh or reshaping(own, x.shape, (x.size,)).pieces[0][1] is own
        flat.append(reshape(x, shape=(x.size,), cut=None if stays else there.dims[0]))
        start += x.size
    return join(*flat, dim=0, layout=row)


def join_along(parts: Sequence[Tensor], dim: int) -> Tensor:
    """Return tensors of one dtype side by side, in the layout to which the fewest bytes have to be moved."""
    if len(parts) == 1:
        return parts[0]
    return join(*parts, dim=dim, layout=_cheapest(parts, dim))


def _alike(arrays: Sequence[Any], function: str) -> list[Tensor]:
    wanted = f"{function} takes a list of one or more arrays"
    parts = together(*as_tuple(arrays, wanted))
    if not parts:
        raise ArgumentError(f"{wanted}, got {arrays!r}.")
    dtype = joint_dtype(function, *(x.dtype for x in parts))
    return [x if x.dtype == dtype else rows.astype(x, dtype=dtype) for x in parts]


def _fits(shape: Shape, other: Shape, dim: int) -> bool:
    return all(a == b for k, (a, b) in enumerate(zip(shape, other, strict=True)) if k != dim)


def _cheapest(parts: Sequence[Tensor], dim: int) -> Layout:
    shapes = [part.shape for part in parts]
    shape = joined_shape(shapes, dim)
    spread = [x.layout for x in parts if not x.mesh.is_single] or [parts[0].layout]
    pending = {(layout.partial, layout.reduce_op) for layout in spread}
    keep = len(pending) == 1 and len(spread) == len(parts)  # all terms of one and the same reduction
    bases = [(layout if keep else layout.resolved()).without_halo() for layout in spread]
    layouts = dict.fromkeys(cut_dim(layout, dim, Cut(layout.dims[dim].axes)) for layout in bases)
    indices = spans_along(shapes, dim)

    def cost(layout: Layout) -> int:
        moves = zip(parts, indices, strict=True)
        return sum(plan_reshard(x.layout, window_layout(layout, shape, i), x.shape, x.dtype).estimate for x, i in moves)

    return min(layouts, key=cost)


@public()
def stack(arrays: Sequence[Any], /, *, axis: int = 0) -> Tensor:
    """Return arrays of one shape along a new dim.

    >>> stack([[1.0, 2.0], [3.0, 4.0]], axis=1).numpy()
    array([[1., 3.],
           [2., 4.]])
    """
    parts = _alike(arrays, "stack")
    if len({part.shape for part in parts}) > 1:
        raise BindingError(f"stack: arrays must have one shape, got {', '.join(str(x.shape) for x in parts)}.")
    dim = dim_of(parts[0], axis, "stack", rank=parts[0].ndim + 1)
    wide = [expand(part, at=(dim,)) for part in parts]
    if is_quiet() or len(parts) == 1:
        return join_along(wide, dim)
    layout = _cheapest(wide, dim)
    own = cut_as(layout, (*layout.dims[:dim], *layout.dims[dim + 1 :]))
    may_bring("stack", parts, [own] * len(parts))
    with mode(permit()):  # which has been asked
        return join_along(wide, dim)


@public(method=True)
def unstack(x: Any, /, axis: int = 0) -> tuple[Tensor, ...]:
    """Return the parts of a tensor along a dim, without that dim.

    >>> [float(y) for y in unstack([1.0, 2.0])]
    [1.0, 2.0]
    """
    x = asarray(x)
    dim = dim_of(x, axis, "unstack")
    rows = [whole_but(x.shape, dim, Span(at, 1)) for at in range(x.shape[dim])]
    return tuple(squeeze(slice_window(x, row, drop=(dim,)), at=(dim,)) for row in rows)


@public(method=True)
def split(x: Any, indices_or_sections: int | Sequence[int], /, axis: int = 0) -> list[Tensor]:
    """Return a tensor cut into equal sections along a dim, or at the given indices.

    >>> [y.numpy().tolist() for y in split([1, 2, 3, 4], 2)], len(split([1, 2, 3], [1]))
    ([[1, 2], [3, 4]], 2)
    """
    x = asarray(x)
    dim = dim_of(x, axis, "split")
    size, count = x.shape[dim], as_int(indices_or_sections)
    if count is not None:
        if count < 1 or size % count:
            raise BindingError(
                f"split: {size} elements do not make {count} equal sections.\n  give the indices to split at instead."
            )
        return _cut(x, dim, range(size // count, size, size // count) if size else [0] * (count - 1))
    return _cut(x, dim, check_ints(indices_or_sections, "split: sections are an int, or indices to split at"))


def _cut(x: Tensor, dim: int, at: Sequence[int]) -> list[Tensor]:
    ends = [slice(None, k).indices(x.shape[dim])[1] for k in at]
    bounds = [0, *ends, x.shape[dim]]
    return [slice_window(x, whole_but(x.shape, dim, between(a, b))) for a, b in pairwise(bounds)]


@public(method=True)
def flip(x: Any, /, axis: Axis = None) -> Tensor:
    """Return the elements in reverse order along dims, all of them by default.

    >>> flip([1.0, 2.0, 3.0]).numpy()
    array([3., 2., 1.])
    """
    x = asarray(x)
    dims = dims_of(x, axis, "flip")
    return mirror(x, dims=dims) if dims else x


@public(method=True)
def roll(x: Any, /, shift: int | Sequence[int], axis: Axis = None) -> Tensor:
    """Return the elements moved along by `shift` places; those that leave at the end come in at the start.

    >>> roll([1.0, 2.0, 3.0], 1).numpy()
    array([3., 1., 2.])
    """
    x = asarray(x)
    layout, shifts = x.layout.without_halo(), check_ints(shift, "roll: shift is an int or a tuple of ints")
    if axis is None:
        if len(shifts) != 1:
            raise ArgumentError(f"roll: several shifts need as many axes, got shift={shift!r} and axis=None.")
        run = partial(_roll, amounts=(*(0,) * (x.ndim - 1), *shifts), dims=x.ndim, layout=layout, carry=True)
        return _ask("roll", run, [x], range(x.ndim)) if x.ndim else x
    axes = check_ints(axis, "roll: axis is an int or a tuple of ints")
    shifts = shifts * len(axes) if as_int(shift) is not None else shifts
    if len(shifts) != len(axes):
        raise ArgumentError(f"roll: {len(shifts)} shifts for {len(axes)} axes.")
    amounts = [0] * x.ndim
    for amount, one in zip(shifts, axes, strict=True):
        amounts[dim_of(x, one, "roll")] += amount
    run = partial(_roll, amounts=tuple(amounts), dims=x.ndim, layout=layout, carry=False)
    return _ask("roll", run, [x], [k for k, amount in enumerate(amounts) if amount])


def _roll(x: Tensor, amounts: tuple[int, ...], dims: int, layout: Layout, carry: bool) -> Tensor:
    # The first `dims` dims rolled, the last of them first: what leaves it at its end and what stays are windows, each
    # rolled along the others and brought where it is needed at once. With `carry`, what leaves goes one place on in
    # the dim before, as in a row of all elements.
    if not x.size or not dims:
        return x
    dim = dims - 1
    turns, shift = divmod(amounts[dim], x.shape[dim])
    stay = (*amounts[:dim], 0) if not carry or not dim else (*amounts[: dim - 1], amounts[dim - 1] + turns, 0)
    if not shift:
        return _roll(x, stay, dim, layout, carry)
    leave = stay if not carry or not dim else (*stay[: dim - 1], stay[dim - 1] + 1, 0)
    cut = x.shape[dim] - shift
    parts: list[Tensor] = []
    for low, high, to, left in ((cut, cut + shift, 0, leave), (0, cut, shift, stay)):
        there = window_layout(layout, x.shape, whole_but(x.shape, dim, Span(to, high - low)))
        part = window(x, index=whole_but(x.shape, dim, between(low, high)))
        parts.append(_roll(part, left, dim, there, carry))
    return join(*parts, dim=dim, layout=layout)


# -- padding -------------------------------------------------------------------------------------------


@public(method=True)
def pad(x: Any, pad_width: Any, /, *, mode: PadMode = "constant", constant_values: complex = 0) -> Tensor:
    """Return a tensor with elements added before and after its dims, as `numpy.pad` does.

    `mode` is "constant", "edge" (repeats the last element), "reflect" or "wrap".

    >>> pad([1.0, 2.0], (1, 2)).numpy()
    array([0., 1., 2., 0., 0.])
    """
    x = asarray(x)
    widths = _widths(pad_width, x.ndim)
    if not isinstance(mode, str) or mode not in ("constant", "edge", "reflect", "wrap"):
        raise ArgumentError(
            f"pad: mode is 'constant', 'edge', 'reflect' or 'wrap', got {mode!r}."
            f"{did_you_mean(str(mode), ['constant', 'edge', 'reflect', 'wrap'])}"
        )
    plain = x.layout.without_halo()
    cuts = [Cut(c.axes) if w != (0, 0) else c for c, w in zip(plain.dims, widths, strict=True)]
    if mode == "constant":
        is_truth = isinstance(constant_values, bool | np.bool_)
        value = bool(constant_values) if is_truth else check_number(constant_values, "pad: constant_values is a number")
        if isinstance(value, complex) and x.dtype.kind != "c":
            raise BindingError(f"pad: {value} is no number of {x.dtype}.\n  convert first: x.astype('complex128').")
        pending = plain.partial if value == 0 and plain.reduce_op is ReduceOp.SUM else ()
        return constants_around(x, widths=widths, value=value, layout=Layout(x.mesh, cuts, pending))
    for dim, (low, high) in enumerate(widths):
        size = x.shape[dim]
        most = {"edge": max(low, high) if size else 0, "reflect": max(0, size - 1), "wrap": size}[mode]
        if max(low, high) > most:
            raise BindingError(
                f"pad: mode {mode!r} adds at most {most} elements on each side of a dim of {size}, got {low} and "
                f"{high}."
            )
    around = tuple(stretches(size, low, high, mode) for size, (low, high) in zip(x.shape, widths, strict=True))
    return surround(x, stretches=around, layout=Layout(x.mesh, cuts)) if any(map(any, widths)) else x


def _widths(pad_width: Any, rank: int) -> Widths:
    try:
        pairs = np.broadcast_to(np.asarray(_plain(pad_width)), (rank, 2))
    except (ValueError, TypeError):
        raise ArgumentError(
            f"pad: pad_width is a number, a pair, or a pair per dim ({rank}), got {pad_width!r}."
        ) from None
    if (pairs.dtype.kind not in "iu" and pairs.size) or (pairs.astype(object) < 0).any():
        raise ArgumentError(f"pad: widths are integers of 0 or more, got {pad_width!r}.")
    return tuple((int(a), int(b)) for a, b in pairs)


def _plain(widths: Any) -> Any:
    # Whatever counts as an int as one, also inside of lists.
    if is_list(widths):
        return [_plain(width) for width in widths]
    number = as_int(widths)
    return widths if number is None else number
