"""Swaps: an all-to-all between several dims as one op, between a local rearrangement before and one after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from xdsl.dialects import linalg, tensor
from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, IntegerAttr, TensorType, i64
from xdsl.ir import SSAValue

from shardwise.ir.passes.layouts import local_sizes, number, numbers
from shardwise.ir.passes.writer import Writer
from shardwise.ir.shard import AllToAllOp
from shardwise.ir.types import element_type, shape_of
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
    axes = sorted({number(a): a for some in less.values() for a in some}.items())
    sizes = [axis.size for _, axis in axes]
    at = {n: k for k, (n, _) in enumerate(axes)}
    count, rank = len(axes), len(shape)
    local = list(local_sizes(src, shape))
    # Each dim that is to be split, as one dim per axis and the rest.
    parts = [
        [*(a.size for a in more.get(k, ())), local[k] // prod(a.size for a in more.get(k, ()))] for k in range(rank)
    ]
    spots, place = [0] * count, 0
    rests = []
    for k in range(rank):
        for axis in more.get(k, ()):
            spots[at[number(axis)]] = place
            place += 1
        rests.append(place)
        place += 1
    x = _expand(w, x, parts)
    x = _transpose(w, x, [*spots, *rests])
    piece = [part[-1] for part in parts]
    x = _collapse(w, x, [list(range(count)), *([count + k] for k in range(rank))], [prod(sizes), *piece])
    x = w.add(AllToAllOp(x.type, src.mesh.name, x, 0, 0, grid_axes=[n for n, _ in axes]))
    x = _expand(w, x, [sizes, *([n] for n in piece)])
    order, groups, joined, place = [], [], [], 0
    for k in range(rank):
        front = [at[n] for n in numbers(less.get(k, ()))]
        order += [*front, count + k]
        groups.append(list(range(place, place + len(front) + 1)))
        joined.append(piece[k] * prod(sizes[i] for i in front))
        place += len(front) + 1
    return _collapse(w, _transpose(w, x, order), groups, joined)


def _groups(groups: Sequence[Sequence[int]]) -> ArrayAttr[ArrayAttr[IntegerAttr]]:
    return ArrayAttr([ArrayAttr([IntegerAttr(k, i64) for k in group]) for group in groups])


def _expand(w: Writer, x: SSAValue, parts: Sequence[Sequence[int]]) -> SSAValue:
    # Each dim as several.
    shape = [n for part in parts for n in part]
    if len(shape) == len(parts):
        return x
    groups, place = [], 0
    for part in parts:
        groups.append(list(range(place, place + len(part))))
        place += len(part)
    return w.add(tensor.ExpandShapeOp(x, [], _groups(groups), shape, TensorType(element_type(x), shape)))


def _collapse(w: Writer, x: SSAValue, groups: Sequence[Sequence[int]], shape: Sequence[int]) -> SSAValue:
    if all(len(group) == 1 for group in groups):
        return x
    kind = TensorType(element_type(x), shape)
    return w.add(
        tensor.CollapseShapeOp.build(operands=[x], result_types=[kind], properties={"reassociation": _groups(groups)})
    )


def _transpose(w: Writer, x: SSAValue, order: Sequence[int]) -> SSAValue:
    if list(order) == sorted(order):
        return x
    shape = [shape_of(x)[k] for k in order]
    into = w.empty(shape, element_type(x))
    return w.add(linalg.ops.TransposeOp(x, into, DenseArrayBase.from_list(i64, list(order)), into.type))
