"""Agreement: how many elements of a tensor some device of a mesh has both before and after."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from shardwise.layout.axis import Axis, common
from shardwise.layout.tiling import DimTiling
from shardwise.plan.holders import Holders


def count_agreeing(src: Holders, dst: Holders) -> int:
    """Return how many elements have a device that holds them under both layouts, which are on one mesh.

    An axis that splits a dim before and after fixes the devices of an element twice. Some device has the element both
    times if the two agree for all such axes. What a dim says of them is worked out for each dim by itself.

    >>> from shardwise import DeviceMesh, Layout
    >>> mesh = DeviceMesh((2, 2), ("x", "y"))
    >>> rows, columns = Layout(mesh, ["x", None]), Layout(mesh, [None, "x"])
    >>> count_agreeing(Holders(rows, (4, 6)), Holders(columns, (4, 6)))  # two of four blocks are in place
    12
    """
    axes = common(src.layout.sharded_axes, dst.layout.sharded_axes)
    letters = {axis: i for i, axis in enumerate(axes)}
    operands: list[np.ndarray | list[int]] = []
    for old, new, s, d in zip(src.layout.dims, dst.layout.dims, src.tiling.dims, dst.tiling.dims, strict=True):
        before, after, lengths = _cells(s, d)
        ours, theirs = _digits(old.axes, before, axes), _digits(new.axes, after, axes)
        keys = {**ours, **theirs}
        for axis in ours.keys() & theirs.keys():
            lengths = np.where(ours[axis] == theirs[axis], lengths, 0)
        table = np.zeros([axis.size for axis in keys], dtype=np.int64)
        np.add.at(table, tuple(keys.values()), lengths if keys else lengths.sum())
        operands += [table, [letters[axis] for axis in keys]]
    return int(np.einsum(*operands, [], optimize=True)) if operands else 1


def largest_common(src: Holders, dst: Holders) -> int:
    """Return how many elements the device that has most of them in common holds before and after.

    An upper bound where an axis splits different dims.

    >>> from shardwise import DeviceMesh, Layout
    >>> mesh = DeviceMesh((2, 2), ("x", "y"))
    >>> x, y = Layout(mesh, ["x"]), Layout(mesh, ["y"])
    >>> largest_common(Holders(x, (8,)), Holders(y, (8,))), largest_common(Holders(x, (8,)), Holders(x, (8,)))
    (4, 4)
    """
    axes = common(src.layout.sharded_axes, dst.layout.sharded_axes)
    out = 1
    for old, new, s, d in zip(src.layout.dims, dst.layout.dims, src.tiling.dims, dst.tiling.dims, strict=True):
        if s.parts == 1 or d.parts == 1:
            out *= min(s.largest, d.largest)
            continue
        before, after, lengths = _cells(s, d)
        ours, theirs = _digits(old.axes, before, axes), _digits(new.axes, after, axes)
        for axis in ours.keys() & theirs.keys():
            lengths = np.where(ours[axis] == theirs[axis], lengths, 0)
        out *= int(lengths.max(initial=0))
    return out


def _cells(s: DimTiling, d: DimTiling) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    # The pieces between all boundaries of two cuts of a dim: the part of either that each lies in, and its length.
    starts = [_starts(tiling) for tiling in (s, d)]
    edges = np.unique(np.concatenate([*starts, [0, s.size]]))
    at = edges[:-1]
    before, after = (np.searchsorted(start, at, side="right") - 1 for start in starts)
    return before, after, np.diff(edges)


def _starts(tiling: DimTiling) -> np.ndarray:
    if tiling.offsets is not None:
        return np.array(tiling.offsets[:-1], dtype=np.int64)
    parts = np.arange(tiling.parts, dtype=np.int64)
    if tiling.split == "chunk":
        return np.minimum(parts * -(-tiling.size // tiling.parts), tiling.size)
    width, longer = divmod(tiling.size, tiling.parts)
    return parts * width + np.minimum(parts, longer)


def _digits(own: Sequence[Axis], parts: np.ndarray, axes: Sequence[Axis]) -> dict[Axis, np.ndarray]:
    # The positions of parts along those of some axes that lie in the axes of their dim.
    out: dict[Axis, np.ndarray] = {}
    below = prod(axis.size for axis in own)
    for whole in own:
        below //= whole.size
        for axis in axes:
            if common([whole], [axis]) == (axis,):
                inside = whole.pre * whole.size // (axis.pre * axis.size)
                out[axis] = parts // (below * inside) % axis.size
    return out
