"""Indexing: slices, integers and arrays of integers; only elements that change device move."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from operator import index as as_index
from types import EllipsisType
from typing import Any, NamedTuple

import numpy as np

from shardwise.caches import cache
from shardwise.engine.arrays import dtype_of
from shardwise.errors import ArgumentError, BindingError, RangeError, ShardwiseError, check_int
from shardwise.layout.cut import Cut
from shardwise.layout.layout import Layout, Shape, check_shape
from shardwise.ops.placement_args import number_dtype
from shardwise.ops.reductions import dim_of
from shardwise.prim import forms
from shardwise.prim.arithmetic import elementwise as rows
from shardwise.prim.arithmetic.positions import iota
from shardwise.prim.dispatch.decision import row_of_work
from shardwise.prim.dispatch.operands import may_carry
from shardwise.prim.dispatch.solvers import is_quiet
from shardwise.prim.face import public
from shardwise.prim.movement.gathers import gather, positions
from shardwise.prim.movement.mirror import mirror
from shardwise.prim.primitive import CONSTANT
from shardwise.prim.relayout import relayout
from shardwise.prim.rule import elementwise_rule
from shardwise.prim.tensor import Tensor, asarray, host_array, together
from shardwise.prim.views.shapes import expand, permute, squeeze
from shardwise.prim.views.spans import Index, Span
from shardwise.prim.views.windows import cutting, window, window_layout
from shardwise.prim.work import Work


@public(method=True)
def take(x: Any, indices: Any, /, axis: int | None = None) -> Tensor:
    """Return the elements of a dim at these indices, which may be of any shape.

    Along a sharded dim every device picks what it has; the small results are a pending sum.

    >>> take([1.0, 2.0, 3.0], [2, 0]).numpy()
    array([3., 1.])
    """
    values, index = together(x, indices)
    if axis is None and values.ndim != 1:
        raise ArgumentError(f"take needs an axis for a tensor with {values.ndim} dims.")
    dim = dim_of(values, 0 if axis is None else axis, "take")
    return gather(values, _integers(index, "take"), dim=dim, along=False)


@public(method=True)
def take_along_axis(x: Any, indices: Any, /, axis: int = -1) -> Tensor:
    """Return, for each place of the other dims, the elements along one dim at the indices given for that place.

    >>> take_along_axis([[1.0, 2.0], [3.0, 4.0]], [[1], [0]]).numpy()
    array([[2.],
           [3.]])
    """
    values, index = together(x, indices)
    dim = dim_of(values, axis, "take_along_axis")
    others = [shape[:dim] + shape[dim + 1 :] for shape in (values.shape, index.shape)]
    if index.ndim != values.ndim or others[0] != others[1]:
        raise BindingError(
            f"take_along_axis: indices of shape {index.shape} do not fit a tensor of shape {values.shape} along dim "
            f"{dim}: all other dims must be equal.\n  use broadcast_to first."
        )
    return gather(values, _integers(index, "take_along_axis"), dim=dim, along=True)


@public()
def embedding(indices: Any, table: Any, /) -> Tensor:
    """Return the rows of a table at these indices; the table may be sharded along either dim.

    >>> embedding([[2, 0]], [[1.0], [2.0], [3.0]]).shape
    (1, 2, 1)
    """
    index, values = together(indices, table)
    if values.ndim != 2:
        raise BindingError(f"embedding: a table has two dims, got shape {values.shape}.")
    return gather(values, _integers(index, "embedding"), dim=0, along=False)


@public(method=True)
def one_hot(indices: Any, num_classes: int, /, *, dtype: Any = "float64", axis_layout: Any = None) -> Tensor:
    """Return 1 at each index along a new last dim of `num_classes`, and 0 elsewhere.

    Indices outside 0 to num_classes - 1 give zeros. `axis_layout` names the mesh axes that shard the new dim.

    >>> one_hot([0, 2], 3).numpy()
    array([[1., 0., 0.],
           [0., 0., 1.]])
    """
    index = _integers(asarray(indices), "one_hot")
    cut = Cut() if axis_layout is None else Cut(axis_layout)
    sizes = check_shape((check_int(num_classes, "one_hot: num_classes is an int"),))
    classes = iota(Layout(index.mesh, [cut]), sizes, index.engine)
    return rows.astype(rows.equal(expand(index, at=(index.ndim,)), classes), dtype=number_dtype(dtype, None, "one_hot"))


def _integers(x: Tensor, function: str) -> Tensor:
    if x.dtype.kind not in "iu":
        if not x.size:
            return rows.astype(x, dtype=np.dtype("int64"))
        raise ArgumentError(f"{function}: indices are integers, got {x.dtype}.")
    return x


# -- basic indexing ------------------------------------------------------------------------------------


def slice_window(x: Tensor, index: Index, reverse: Sequence[int] = (), drop: tuple[int, ...] = ()) -> Tensor:
    """Return a window of a tensor, with some dims reversed, cut again as the tensor was; dims to drop are whole."""
    own, shape, engine = x.layout, x.shape, x.engine
    if not drop and all(span == (0, size, 1) for span, size in zip(index, shape, strict=True)):
        return mirror(x, dims=tuple(reverse)) if reverse else x
    if not reverse and not x.level and engine.holds_all and is_quiet():  # often, so it is done in one go
        layout, dtype = _sliced_layout(own, shape, index, drop), x.dtype
        program = cutting(own, layout, shape, index, dtype)
        if program is not None:
            return Tensor(engine.run(program, x.arrays), layout, program.target.shape, dtype, engine)
    out = window(x, index=index)
    layout = _cut_again(own, out.layout, drop)
    if reverse:
        return mirror(out, dims=tuple(reverse), layout=layout)
    cut = [k for k, (span, size) in enumerate(zip(index, shape, strict=True)) if span != (0, size, 1)]
    may_carry("x[...]", x, cut, out, layout)
    return relayout(out, layout=layout)


@cache()
def _sliced_layout(layout: Layout, shape: Shape, index: Index, drop: tuple[int, ...]) -> Layout:
    return _cut_again(layout, window_layout(layout, shape, index), drop)


@cache()
def _cut_again(own: Layout, piece: Layout, drop: tuple[int, ...] = ()) -> Layout:
    # The layout of a window, cut where it was found, as its tensor is cut.
    both = zip(own.dims, piece.dims, strict=True)
    cuts = [old if old == new or old.offsets is None else new for old, new in both]
    cuts = [Cut() if k in drop else cut for k, cut in enumerate(cuts)]
    pairs = zip(cuts, piece.without_halo().dims, strict=True)
    moves = any((a.axes or b.axes) and b is not a for a, b in pairs)
    plain = [Cut(cut.axes, split=cut.split, offsets=cut.offsets) for cut in cuts]
    # Where elements change device anyway, pending sums are resolved on the way.
    pending = () if moves else piece.partial
    return Layout(own.mesh, plain, pending, piece.reduce_op or "sum")


class Key(NamedTuple):
    """An index, taken apart: a window, the dims to reverse, to drop and to add, and the arrays by dim."""

    window: Index
    reverse: tuple[int, ...]
    drop: tuple[int, ...]
    add: tuple[int, ...]  # places of new dims, in the result of slicing and dropping
    arrays: tuple[tuple[int, Any], ...]  # by dim, after slicing and dropping
    scattered: bool  # arrays that do not stand side by side: their dims come first

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what slices, integers and new dims leave."""
        out = [span.length for dim, span in enumerate(self.window) if dim not in self.drop]
        for place in self.add:
            out.insert(place, 1)
        return tuple(out)


def parse(x: Tensor, key: Any) -> Key:
    """Return an index taken apart, as NumPy understands it."""
    entries: tuple[Any, ...] = key if issubclass(type(key), tuple) else (key,)
    spelled = _hashable(entries)
    return _take_apart(x, entries) if spelled is None else _known(x.shape, spelled)


Entry = tuple[int | None, int | None, int | None] | int | EllipsisType | None


def _hashable(entries: tuple[Any, ...]) -> tuple[Entry, ...] | None:
    # An index of slices, integers, None and dots as a value that can be looked up; slices cannot. Others are None.
    out: list[Entry] = []
    for entry in entries:
        kind = entry.__class__
        if kind is slice:
            ends = entry.start, entry.stop, entry.step
            for end in ends:
                if end is not None and type(end) is not int:
                    return None
            out.append(ends)
        elif kind is int or entry is None or entry is Ellipsis:
            out.append(entry)
        else:
            return None
    return tuple(out)


@cache()
def _known(shape: Shape, spelled: tuple[Entry, ...]) -> Key:
    return _take_apart(_Shaped(shape), tuple(slice(*e) if isinstance(e, tuple) else e for e in spelled))


class _Shaped(NamedTuple):
    # What an index is taken apart for: only the shape counts.
    shape: Shape

    @property
    def ndim(self) -> int:
        return len(self.shape)


def _take_apart(x: Tensor | _Shaped, key: tuple[Any, ...]) -> Key:
    entries = list(_entries_of(x, key))
    advanced = any(_is_array(entry) for entry in entries)
    spans: list[Span] = []
    reverse, drop, add, places = list[int](), list[int](), list[int](), list[int]()
    arrays: list[tuple[int, Any]] = []
    for place, entry in enumerate(entries):
        is_slice = issubclass(type(entry), slice)
        if advanced and not is_slice and entry is not None:
            places.append(place)
        if entry is None:
            add.append(len(spans) - len(drop) + len(add))
            continue
        size = x.shape[len(spans)]
        if is_slice:
            start, stop, step = _bounds(entry, size)
            count = len(range(start, stop, step))
            if step < 0:
                reverse.append(len(spans))
                start, step = start + (count - 1) * step if count else 0, -step
            spans.append(Span(start if count else 0, count, step))
        elif _is_array(entry):
            arrays.append((len(spans) - len(drop), entry))
            spans.append(Span(0, size))
        else:
            drop.append(len(spans))
            spans.append(Span(_check(entry, size), 1))
    gaps = bool(places) and places[-1] - places[0] + 1 != len(places)
    return Key(tuple(spans), tuple(reverse), tuple(drop), tuple(add), tuple(arrays), gaps)


def _entries_of(x: Tensor | _Shaped, key: tuple[Any, ...]) -> Iterator[Any]:
    # One entry per dim, beside None for new ones; masks as the indices where they are true.
    entries: list[Any] = []
    masks: list[tuple[int, tuple[int, ...]]] = []
    for entry in key:
        if _is_mask(entry):
            masks.append((len(entries), np.shape(entry)))
            entries += _mask(entry)
        elif entry is None or entry is Ellipsis or isinstance(entry, slice):
            entries.append(entry)
        elif _is_array(entry):
            entries.append(entry if isinstance(entry, Tensor) else host_array(entry))
        else:
            entries.append(_number(entry))
    dots = [i for i, entry in enumerate(entries) if entry is Ellipsis]
    if len(dots) > 1:
        raise ArgumentError("an index can have one ellipsis (...), got several.")
    missing = x.ndim - sum(entry is not None and entry is not Ellipsis for entry in entries)
    if missing < 0:
        raise RangeError(f"an index with {x.ndim - missing} entries does not fit a tensor with {x.ndim} dims.")
    at = dots[0] if dots else len(entries)
    whole = [*entries[:at], *[slice(None)] * missing, *entries[at + 1 :]]
    for place, shape in masks:
        before = whole[: place if place < at else place + missing - 1]
        dim = sum(entry is not None for entry in before)
        if x.shape[dim : dim + len(shape)] != shape:
            raise RangeError(f"a mask of shape {shape} does not fit dim {dim} and on of a tensor of shape {x.shape}.")
    yield from whole


def _bounds(entry: slice, size: int) -> tuple[int, int, int]:
    try:
        return entry.indices(size)
    except ShardwiseError:  # what is no one number says so itself
        raise
    except TypeError:
        raise ArgumentError(f"a slice is made of integers and None, got {entry!r}.") from None
    except ValueError:
        raise BindingError(f"the step of a slice is not 0, got {entry!r}.") from None


def _is_array(entry: Any) -> bool:
    return isinstance(entry, list | Tensor | np.ndarray) or (hasattr(entry, "__array__") and np.ndim(entry) > 0)


def _is_mask(entry: Any) -> bool:
    if not _is_array(entry):
        return isinstance(entry, bool | np.bool_)
    return (entry.dtype if isinstance(entry, Tensor) else dtype_of(host_array(entry))).kind == "b"


def _mask(entry: Any) -> list[Any]:
    if isinstance(entry, Tensor) or np.ndim(entry) == 0:
        raise ArgumentError(
            "a tensor of booleans as an index would give a shape that depends on values.\n"
            "  use where(mask, x, other), or the indices themselves."
        )
    return list(np.nonzero(np.asarray(entry)))


def _number(entry: Any) -> int:
    try:
        return as_index(entry.item() if isinstance(entry, Tensor) else entry)
    except (TypeError, AttributeError):
        raise ArgumentError(
            f"an index is made of integers, slices, None, ... and arrays of integers, got {type(entry).__name__}."
        ) from None


def _check(position: int, size: int) -> int:
    if not -size <= position < size:
        raise RangeError(f"index {position} is out of range for a dim of {size} elements.")
    return position % size


@public(name=None, method="__getitem__")
def pick(x: Tensor, key: Any, /) -> Tensor:
    """Return the elements at an index: integers, slices, None, an ellipsis, arrays of integers.

    >>> asarray([1.0, 2.0, 3.0])[1:].numpy()
    array([2., 3.])
    """
    parts = parse(x, key)
    out = basic(x, parts)
    if not parts.arrays:
        return out
    flat = Flat(out, parts)
    out = gather(flat.x, flat.index, dim=flat.dim, along=False, merged=flat.merged)
    if not parts.scattered or not flat.dim:
        return out
    front = range(flat.dim, flat.dim + flat.index.ndim)
    return permute(out, order=(*front, *(k for k in range(out.ndim) if k not in front)))


def basic(x: Tensor, key: Key) -> Tensor:
    """Return what the slices, integers and new dims of an index leave of a tensor."""
    out = slice_window(x, key.window, key.reverse, key.drop)
    out = squeeze(out, at=key.drop) if key.drop else out
    return expand(out, at=key.add) if key.add else out


class Flat:
    """A tensor with the dims that arrays index side by side, and the index into them, taken as a row."""

    def __init__(self, x: Tensor, key: Key) -> None:
        """Bring together the dims that the arrays of a key index in `x`, to which the rest of the key was applied."""
        dims = [dim + sum(place <= dim + i for i, place in enumerate(key.add)) for dim, _ in key.arrays]
        arrays = together(x, *(array for _, array in key.arrays))[1:]
        self.sizes = tuple(x.shape[k] for k in dims)
        indices = [_position(_integers(i, "an index"), size=n) for i, n in zip(arrays, self.sizes, strict=True)]
        rest = [k for k in range(x.ndim) if k not in dims]
        self.dim, self.merged = len([k for k in rest if k < dims[0]]), len(dims)
        self._order = (*rest[: self.dim], *dims, *rest[self.dim :])
        self.index = indices[0]
        for index, size in zip(indices[1:], self.sizes[1:], strict=True):
            self.index = rows.add(rows.multiply(self.index, size), index)
        self.x = permute(x, order=self._order) if self._order != tuple(range(x.ndim)) else x

    @property
    def picked(self) -> tuple[int, ...]:
        """The shape of what the index picks."""
        return (*self.x.shape[: self.dim], *self.index.shape, *self.x.shape[self.dim + self.merged :])

    def undo(self, x: Tensor) -> Tensor:
        """Return a tensor with its dims in the order that they had."""
        back = tuple(sorted(range(x.ndim), key=self._order.__getitem__))
        return permute(x, order=back) if back != tuple(range(x.ndim)) else x


def _in_range(index: Tensor, *, size: int) -> Work:
    rule = elementwise_rule((index.shape,))
    return Work("position", partial(positions, size=size), rule, [index], dtype=np.dtype("int64"))


def _position_form(out: Tensor, index: Tensor, *, size: int) -> forms.Form:
    return forms.by_element(out, forms.position("x", size), [index], [out.dtype])


# Indices counted from the start, checked against the size of their dim.
_position = row_of_work("position", _in_range, **CONSTANT, lower=_position_form)
