"""Primitives that pick, place and order elements, as slices or as structured ops that say which element goes where."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from xdsl.dialects import arith, linalg, tensor
from xdsl.dialects.builtin import IndexType
from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineExpr

from shardwise.errors import ProgramError
from shardwise.ir.tracing.emitter import Emitter, element_of
from shardwise.ir.tracing.formulas import convert
from shardwise.ir.types import shape_of
from shardwise.prim.bind import Node
from shardwise.prim.views.spans import Stretch

Operands = Sequence[SSAValue]


def _out(node: Node) -> Any:
    assert node.out is not None
    return node.out


# -- windows ---------------------------------------------------------------------------------------------


def _spans(node: Node) -> tuple[list[int], list[int], list[int]]:
    index = node.params["index"]
    return [s.start for s in index], [s.length for s in index], [s.step for s in index]


def _window(e: Emitter, node: Node, operands: Operands) -> SSAValue:
    return e.slice(operands[0], *_spans(node))


def _within(e: Emitter, node: Node, operands: Operands) -> SSAValue:
    out = _out(node)
    return e.place(operands[0], e.full(out.shape, 0, out.dtype), *_spans(node))


def _write(e: Emitter, node: Node, operands: Operands) -> SSAValue:
    return e.place(operands[1], operands[0], *_spans(node))


def _pad(e: Emitter, node: Node, operands: Operands) -> SSAValue:
    out = _out(node)
    around = e.full(out.shape, node.params["value"], out.dtype)
    return e.place(operands[0], around, [low for low, _ in node.params["widths"]], shape_of(operands[0]))


def _mirror(e: Emitter, node: Node, operands: Operands) -> SSAValue:
    return _flip(e, operands[0], node.params["dims"], _out(node).dtype)


def _flip(e: Emitter, x: SSAValue, dims: Sequence[int], dtype: np.dtype) -> SSAValue:
    shape = shape_of(x)
    loops = range(len(shape))
    own = [AffineExpr.dimension(k) for k in loops]
    indices = [own[k] * -1 + (shape[k] - 1) if k in dims else own[k] for k in loops]
    init = e.empty(shape, element_of(dtype))
    return e.generic([x], [indices], init, loops, len(shape), lambda inner, xs: xs[0])


def _surround(e: Emitter, node: Node, operands: Operands) -> SSAValue:
    x = operands[0]
    for dim, ways in enumerate(node.params["ways"]):
        if len(ways) > 1:
            x = e.concat([_stretch(e, x, dim, part, _out(node).dtype) for part in ways], dim)
    return x


def _stretch(e: Emitter, x: SSAValue, dim: int, part: Stretch, dtype: np.dtype) -> SSAValue:
    shape = shape_of(x)
    span, rank = part.span, range(len(shape))
    starts, sizes = [span.start * (k == dim) for k in rank], [span.length if k == dim else shape[k] for k in rank]
    some = e.slice(x, starts, sizes)
    if part.step < 0:
        return _flip(e, some, (dim,), dtype)
    return some if part.step else e.broadcast(some, tuple(part.length if k == dim else shape[k] for k in rank))


# -- indices ---------------------------------------------------------------------------------------------


def _position(e: Emitter, index: SSAValue, dtype: np.dtype, size: int) -> SSAValue:
    # An index counted from the start.
    wide = np.dtype("int64")
    index = convert(e, index, dtype, wide)
    below = e.add(arith.CmpiOp(index, e.scalar(0, wide), "slt"))
    return e.add(arith.SelectOp(below, e.add(arith.AddiOp(index, e.scalar(size, wide))), index))


def _number_elements(e: Emitter, node: Node, operands: Operands) -> SSAValue:
    x, out = node.operands[0], _out(node)
    rank = range(x.ndim)

    def body(inner: Emitter, xs: Sequence[SSAValue]) -> SSAValue:
        at = _position(inner, xs[0], x.dtype, node.params["size"])
        return convert(inner, at, np.dtype("int64"), out.dtype)

    return e.generic([operands[0]], [rank], e.empty(x.shape, element_of(out.dtype)), rank, x.ndim, body)


def _dims(node: Node, rank: int, picked: int) -> tuple[list[int], list[int], int]:
    # Of the loops over what is picked: those of the dims of the value but one, those of the index, and their number.
    dim = node.params["dim"]
    if node.params["along"]:
        return list(range(rank)), list(range(rank)), rank
    count = rank + picked - 1
    own = [k if k < dim else k + picked - 1 for k in range(rank)]
    return own, list(range(dim, dim + picked)), count


def _single(node: Node, merged: int) -> None:
    if merged > 1:
        assert node.row is not None
        raise ProgramError(
            f"{node.row.name} at several arrays of indices cannot be traced.\n  index one dim at a time: x[i][j]."
        )


def _take(e: Emitter, node: Node, operands: Operands) -> SSAValue:
    x, indices = node.operands
    _single(node, node.params.get("merged", 1))
    own, picked, count = _dims(node, x.ndim, indices.ndim)
    dim = node.params["dim"]

    def body(inner: Emitter, xs: Sequence[SSAValue]) -> SSAValue:
        at = _position(inner, xs[0], indices.dtype, x.shape[dim])
        place = inner.add(arith.IndexCastOp(at, IndexType()))
        spots = [place if k == dim else inner.add(linalg.ops.IndexOp(own[k])) for k in range(x.ndim)]
        return inner.add(tensor.ExtractOp(operands[0], spots, element_of(x.dtype)))

    init = e.empty(_out(node).shape, element_of(x.dtype))
    return e.generic([operands[1]], [picked], init, range(count), count, body)


def _scatter(e: Emitter, node: Node, operands: Operands) -> SSAValue:
    # Each element is the sum of the values whose index is its position: no value has to know where it goes.
    values, indices = node.operands
    along, dim, dtype, sizes = node.params["along"], node.params["dim"], values.dtype, node.params["sizes"]
    _single(node, len(sizes))
    rank = values.ndim if along else values.ndim - indices.ndim + 1
    summed = [rank] if along else list(range(rank, rank + indices.ndim))
    given = [*range(dim), *summed, *range(dim + 1, rank)]
    picked = given if along else summed
    count = rank + len(summed)
    wide = np.dtype("int64")

    def body(inner: Emitter, xs: Sequence[SSAValue]) -> SSAValue:
        value, index, total = xs
        at = _position(inner, index, indices.dtype, sizes[0])
        own = inner.add(arith.IndexCastOp(inner.add(linalg.ops.IndexOp(dim)), element_of(wide)))
        here = inner.add(arith.CmpiOp(at, own, "eq"))
        term = inner.add(arith.SelectOp(here, value, inner.scalar(0, dtype)))
        return inner.add((arith.AddiOp if dtype.kind in "iu" else arith.AddfOp)(total, term))

    init = e.full(_out(node).shape, 0, dtype)
    return e.generic(list(operands), [given, picked], init, range(rank), count, body)


def _cumulate(e: Emitter, node: Node, operands: Operands) -> SSAValue:
    # Each element is the sum of those before it, which one more loop goes over.
    x, dim, reverse = node.operands[0], node.params["dim"], node.params["reverse"]
    loops = [x.ndim if k == dim else k for k in range(x.ndim)]

    def body(inner: Emitter, xs: Sequence[SSAValue]) -> SSAValue:
        value, total = xs
        here, there = inner.add(linalg.ops.IndexOp(dim)), inner.add(linalg.ops.IndexOp(x.ndim))
        counts = inner.add(arith.CmpiOp(there, here, "sge" if reverse else "sle"))
        term = inner.add(arith.SelectOp(counts, value, inner.scalar(0, x.dtype)))
        return inner.add((arith.AddiOp if x.dtype.kind in "iu" else arith.AddfOp)(total, term))

    init = e.full(x.shape, 0, x.dtype)
    return e.generic([operands[0]], [loops], init, range(x.ndim), x.ndim + 1, body)


def _triangle(how: str) -> Callable[[Emitter, Node, Operands], SSAValue]:
    # Elements on one side of a diagonal of matrices, and zeros on the other.
    def lower(e: Emitter, node: Node, operands: Operands) -> SSAValue:
        x, rank = node.operands[0], node.operands[0].ndim

        def body(inner: Emitter, xs: Sequence[SSAValue]) -> SSAValue:
            wide = np.dtype("int64")
            row, column = (
                inner.add(arith.IndexCastOp(inner.add(linalg.ops.IndexOp(d)), element_of(wide)))
                for d in (rank - 2, rank - 1)
            )
            end = inner.add(arith.AddiOp(row, inner.scalar(node.params["k"], wide)))
            stays = inner.add(arith.CmpiOp(column, end, how))
            return inner.add(arith.SelectOp(stays, xs[0], inner.scalar(0, x.dtype)))

        return e.generic([operands[0]], [range(rank)], e.empty(x.shape, element_of(x.dtype)), range(rank), rank, body)

    return lower


INDEXING: dict[str, Callable[[Emitter, Node, Operands], SSAValue]] = {
    "concat": lambda e, node, xs: e.concat(xs, node.params["dim"]),
    "cumulative_sum": _cumulate,
    "mirror": _mirror,
    "pad": _pad,
    "position": _number_elements,
    "scatter": _scatter,
    "surround": _surround,
    "take": _take,
    "tril": _triangle("sle"),
    "triu": _triangle("sge"),
    "window": _window,
    "within": _within,
    "write": _write,
}
