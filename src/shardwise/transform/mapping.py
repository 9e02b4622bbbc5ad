"""Maps: a function of one value, run on many at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar, cast

import optree

from shardwise.errors import ArgumentError, BindingError, RangeError, as_int, check_function, is_list
from shardwise.layout.axis import Axis, is_disjoint
from shardwise.layout.cut import Cut
from shardwise.layout.layout import Layout
from shardwise.ops.local_view import each_name
from shardwise.ops.shapes import moveaxis
from shardwise.prim.bind import new_level
from shardwise.prim.face import public
from shardwise.prim.interpreters.batch import Batched, Lead
from shardwise.prim.relayout import relayout
from shardwise.prim.tensor import Tensor, asarray

Axes = Any  # an int, None, or a tree of them that begins as that of the arguments does
Result = TypeVar("Result")


@public()
def vmap(
    fn: Callable[..., Result],
    in_axes: Axes = 0,
    out_axes: Axes = 0,
    *,
    spmd_axis_name: str | Sequence[str] | None = None,
) -> Callable[..., Result]:
    """Return the function that runs `fn` on every slice of its arguments at once, and stacks the results.

    `in_axes` says along which dim each argument is taken apart: an int for all, or one per argument, where None is an
    argument that all share and a tree goes with a tree of tensors. `out_axes` says where the new dim of each result is.
    The dim is cut as it comes; `spmd_axis_name` names mesh axes that it is to be split by.

    >>> import numpy as np
    >>> from shardwise import DeviceMesh, P, shard
    >>> x = shard(np.arange(6.0).reshape(2, 3), DeviceMesh((2,), ("x",)), P("x"))
    >>> vmap(lambda row: row / row.sum())(x).numpy().sum(1)
    array([1., 1.])
    >>> vmap(lambda row, y: row @ y, in_axes=(0, None))(x, np.ones(3)).type_text
    'float64[2@x]'
    """
    check_function(fn, "vmap")
    names = () if spmd_axis_name is None else each_name(spmd_axis_name)

    @wraps(fn)
    def call(*args: Any) -> Any:
        leaves, tree = optree.tree_flatten(cast(Any, args))
        entries = tuple(in_axes) if is_list(in_axes) else (in_axes,) * len(args)
        if len(entries) != len(args):
            raise ArgumentError(f"vmap: in_axes has {len(entries)} entries for {len(args)} arguments: {in_axes!r}.")
        axes = _spread_axes(entries, tree, "in_axes")
        values = [_in_front(leaf, axis, names) for leaf, axis in zip(leaves, axes, strict=True)]
        sizes = {value.shape[0] for value, axis in zip(values, axes, strict=True) if axis is not None}
        if not sizes:
            raise ArgumentError("vmap needs an argument to map over: in_axes is None for all of them.")
        if len(sizes) > 1:
            raise BindingError(f"vmap: the dims that are mapped over have the sizes {sorted(sizes)}; they must be one.")
        first = next(value for value, axis in zip(values, axes, strict=True) if axis is not None)
        lead = Lead(first.shape[:1], first.layout.without_halo().dims[:1], first.mesh)
        with new_level() as level:
            ready = [
                value if axis is None else Batched(level, value, 1) for value, axis in zip(values, axes, strict=True)
            ]
            out = cast(Any, fn)(*optree.tree_unflatten(tree, ready))
        ends, out_tree = optree.tree_flatten(out)
        places = _spread_axes(out_axes, out_tree, "out_axes")
        done = [_out(end, place, lead, level) for end, place in zip(ends, places, strict=True)]
        return optree.tree_unflatten(out_tree, done)

    return cast(Any, call)


def _spread_axes(axes: Axes, tree: optree.PyTreeSpec, name: str) -> list[int | None]:
    # One entry for each leaf: a tree of axes may end where a whole tree of tensors shares one.
    whole = optree.tree_unflatten(tree, list(range(tree.num_leaves)))
    try:
        every = optree.broadcast_prefix(axes, whole, is_leaf=lambda v: v is None, none_is_leaf=True)
    except (ValueError, TypeError):
        raise ArgumentError(
            f"vmap: {name} is an int, None, or a tree of them that goes with {tree}, got {axes!r}."
        ) from None
    out: list[int | None] = []
    for axis in every:
        number = as_int(axis)
        if number is None and axis is not None:
            raise ArgumentError(f"vmap: {name} is made of ints and None, got {axis!r}.")
        out.append(number)
    return out


def _in_front(leaf: Any, axis: int | None, names: Sequence[str | int | Axis]) -> Tensor:
    x = asarray(leaf)
    if axis is None:
        return x
    if not -x.ndim <= axis < x.ndim:
        raise RangeError(f"vmap: in_axes {axis} is out of range for an argument with {x.ndim} dims.")
    x = moveaxis(x, axis, 0) if axis % x.ndim else x
    return _split_by(x, names) if names else x


def _split_by(x: Tensor, names: Sequence[str | int | Axis]) -> Tensor:
    # The first dim split by these axes, and no other dim by any of them.
    layout = x.layout.without_halo()
    axes = tuple(layout.mesh.axis(name, "spmd_axis_name") for name in names)
    rest = [cut if is_disjoint(cut.axes, axes) else Cut() for cut in layout.dims[1:]]
    partial: tuple[Axis, ...] = layout.partial if is_disjoint(layout.partial, axes) else ()
    return relayout(x, layout=Layout(layout.mesh, [Cut(axes), *rest], partial, layout.reduce_op or "sum"))


def _out(end: Any, place: int | None, lead: Lead, level: int) -> Any:
    is_mapped = isinstance(end, Batched) and end.level == level
    if place is None:
        if is_mapped:
            raise ArgumentError(
                "vmap: out_axes is None for a result that differs from slice to slice.\n  say where its new dim is."
            )
        return end
    value = end.value if is_mapped else lead.spread(asarray(end))
    if not -value.ndim <= place < value.ndim:
        raise RangeError(f"vmap: out_axes {place} is out of range for a result with {value.ndim} dims.")
    return moveaxis(value, 0, place) if place % value.ndim else value
