"""Swaps: an all-to-all between several dims as one op, between a local rearrangement before and one after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import prod

from xdsl.ir import SSAValue

from shardwise.ir.passes.layouts import number, numbers
from shardwise.ir.passes.writer import Number, Writer, split_known
from shardwise.ir.reshapes import collapse, expand, transpose
from shardwise.ir.shard import AllToAllOp
from shardwise.layout.axis import Axis
from shardwise.layout.layout import Layout, Shape


def swap_axes(
    w: Writer,
    x: SSAValue,
    src: Layout,
    shape: Shape,
    less: Mapping[int, Sequence[Axis]],
    more: Mapping[int, Sequence[Axis]],
) -> SSAValue:
    """Return a shard after the axes in `less` stop to split their dims and those in `more` begin to split theirs.

    Both are per dim, major to minor, and the same axes in all; every cut is even. The pieces for each device are
    brought to the front, exchanged there, and put where they belong.
    """
    size_of_axis = {number(axis): axis.size for axes in less.values() for axis in axes}
    axes, rank = sorted(size_of_axis), len(shape)
    sizes = [size_of_axis[n] for n in axes]
    # Each dim that is to be split, as one dim per axis and the rest. Dims that stay may be of open size.
    cuts = [[axis.size for axis in more.get(k, ())] for k in range(rank)]
    piece = [_divide(n, prod(cut)) for cut, n in zip(cuts, w.sizes(src, shape), strict=True)]
    parts = [[*cut, n] for cut, n in zip(cuts, piece, strict=True)]
    names = [n for k in range(rank) for n in (*numbers(more.get(k, ())), None)]
    rests = [place for place, n in enumerate(names) if n is None]
    flat = [n for part in parts for n in part]
    x = transpose(w.add, _expand(w, x, parts), [*map(names.index, axes), *rests], flat)
    x = _collapse(w, x, _neighbours([len(axes), *[1] * rank]), [prod(sizes), *split_known(piece)[0]])
    x = w.add(AllToAllOp(x.type, src.mesh.name, x, 0, 0, grid_axes=axes))
    x = _expand(w, x, [sizes, *([n] for n in piece)])
    fronts = [[axes.index(n) for n in numbers(less.get(k, ()))] for k in range(rank)]
    order = [place for k, front in enumerate(fronts) for place in (*front, len(axes) + k)]
    x = transpose(w.add, x, order, [*sizes, *piece])
    joined = [w.times(n, prod(sizes[place] for place in front)) for n, front in zip(piece, fronts, strict=True)]
    return _collapse(w, x, _neighbours([len(front) + 1 for front in fronts]), split_known(joined)[0])


def _divide(size: Number, parts: int) -> Number:
    assert parts == 1 or isinstance(size, int), "a dim that is split is even"
    return size // parts if isinstance(size, int) else size


def _neighbours(counts: Sequence[int]) -> list[range]:
    # So many dims in each group, one group after the other.
    return [range(stop - count, stop) for count, stop in zip(counts, accumulate(counts), strict=True)]


def _expand(w: Writer, x: SSAValue, parts: Sequence[Sequence[Number]]) -> SSAValue:
    # Each dim as several.
    shape = [n for part in parts for n in part]
    if len(shape) == len(parts):
        return x
    return expand(w.add, x, _neighbours([len(part) for part in parts]), shape)


def _collapse(w: Writer, x: SSAValue, groups: Sequence[Sequence[int]], shape: Sequence[int]) -> SSAValue:
    if all(len(group) == 1 for group in groups):
        return x
    return collapse(w.add, x, groups, shape)
