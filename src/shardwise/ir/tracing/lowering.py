"""Lowering: each primitive of a recording as ops on tensors, by the name of its row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise, product
from math import prod
from typing import Any

import numpy as np
from xdsl.dialects import arith, linalg
from xdsl.ir import SSAValue

from shardwise.engine.arrays import identity
from shardwise.engine.storage import storage_of
from shardwise.errors import ProgramError
from shardwise.ir.tracing.convolutions import CONVOLUTIONS
from shardwise.ir.tracing.emitter import Emitter, element_of
from shardwise.ir.tracing.formulas import BOOL, compares, compute, convert, is_single
from shardwise.ir.tracing.indexing import INDEXING
from shardwise.ir.types import shape_of
from shardwise.layout.axis import Axis, without
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.placement import ReduceOp, accumulator
from shardwise.prim.arithmetic import elementwise
from shardwise.prim.bind import Node
from shardwise.prim.movement.exchanges import blocks
from shardwise.prim.primitive import Formula, Primitive
from shardwise.prim.tensor import Tensor

Operand = SSAValue | int | float | bool
Lowering = Callable[[Emitter, Node, Sequence[Any]], SSAValue]
# The elementwise primitives that say in their row how they are written.
FORMULAS = tuple(row.name for row in vars(elementwise).values() if isinstance(row, Primitive) and row.lower is not None)


def lower(e: Emitter, node: Node, operands: Sequence[Operand]) -> SSAValue:
    """Return the value of one primitive, given those of its operands."""
    assert node.row is not None
    name = node.row.name
    if node.row.lower is not None:
        return _elementwise(e, node, node.row.lower, operands)
    if name not in LOWERINGS:
        known = ", ".join(sorted([*FORMULAS, *LOWERINGS, "relayout"]))
        raise ProgramError(
            f"{name} cannot be written as ops on whole tensors, so it cannot be traced.\n  rows: {known}"
        )
    return LOWERINGS[name](e, node, operands)


def _out(node: Node) -> Tensor:
    assert node.out is not None
    return node.out


# -- elementwise -----------------------------------------------------------------------------------------


def _dtypes(node: Node) -> list[np.dtype | None]:
    return [x.dtype if isinstance(x, Tensor) else None for x in node.operands]


def _common(node: Node) -> np.dtype:
    # The dtype in which operands are compared: numbers take that of the tensors, if it can hold them.
    found = np.result_type(*[d for d in _dtypes(node) if d is not None])
    for x in node.operands:
        if isinstance(x, float) and found.kind in "iub":
            found = np.dtype("float64")
        elif isinstance(x, int) and not isinstance(x, bool) and found.kind == "b":
            found = np.dtype("int64")
    return found


def _elementwise(e: Emitter, node: Node, formula: Formula, operands: Sequence[Operand]) -> SSAValue:
    out, asks = _out(node), compares(formula)
    dtype = BOOL if formula.of == "bool" else _common(node) if asks else out.dtype
    tensors = [x for x in node.operands if isinstance(x, Tensor)]
    if is_single(formula) and all(x.dtype == dtype and x.shape == out.shape for x in tensors):
        return compute(
            e, formula, [x if isinstance(x, SSAValue) else e.full(out.shape, x, dtype) for x in operands], dtype
        )

    def body(inner: Emitter, xs: Sequence[SSAValue]) -> SSAValue:
        value = compute(inner, formula, _convert(inner, node, xs, [dtype] * len(node.operands)), dtype)
        return convert(inner, value, BOOL if asks else dtype, out.dtype)

    return map_elements(e, node, operands, body)


def _convert(e: Emitter, node: Node, xs: Sequence[SSAValue], wanted: Sequence[np.dtype]) -> list[SSAValue]:
    # The operands as scalars: arguments of the body, or constants inside it.
    rest = iter(xs)
    out = []
    for x, to in zip(node.operands, wanted, strict=True):
        out.append(convert(e, next(rest), x.dtype, to) if isinstance(x, Tensor) else e.scalar(x, to))
    return out


def map_elements(e: Emitter, node: Node, operands: Sequence[Operand], body: Callable[..., SSAValue]) -> SSAValue:
    """Return a structured op over the elements of the result, to whose shape tensors are broadcast."""
    shape = _out(node).shape
    inputs, maps = [], []
    for x in operands:
        if not isinstance(x, SSAValue):
            continue
        old = shape_of(x)
        lead = len(shape) - len(old)
        kept = [k for k in range(len(old)) if old[k] == shape[lead + k]]
        inputs.append(e.reshape(x, tuple(old[k] for k in kept)))
        maps.append([lead + k for k in kept])
    init = e.empty(shape, element_of(_out(node).dtype))
    return e.generic(
        inputs, maps, init, range(len(shape)), len(shape), lambda inner, xs: body(inner, xs[: len(inputs)])
    )


def _where(e: Emitter, node: Node, operands: Sequence[Operand]) -> SSAValue:
    dtype = _out(node).dtype

    def body(inner: Emitter, xs: Sequence[SSAValue]) -> SSAValue:
        c, x, y = _convert(inner, node, xs, [np.dtype(bool), dtype, dtype])
        return inner.add(arith.SelectOp(c, x, y))

    return map_elements(e, node, operands, body)


def _astype(e: Emitter, node: Node, operands: Sequence[Operand]) -> SSAValue:
    src, dst = node.operands[0].dtype, _out(node).dtype
    if src == dst:
        return operands[0]  # type: ignore[return-value]
    return map_elements(e, node, operands, lambda inner, xs: convert(inner, xs[0], src, dst))


# -- products and reductions -----------------------------------------------------------------------------


def _einsum(e: Emitter, node: Node, operands: Sequence[SSAValue]) -> SSAValue:
    terms, out, dtype = node.params["terms"], node.params["out"], _out(node).dtype
    letters = [*out, *dict.fromkeys(c for term in terms for c in term if c not in out)]
    element, shape = element_of(dtype), _out(node).shape
    summed = len(letters) > len(out)
    init = e.full(shape, 0, dtype) if summed else e.empty(shape, element)
    plain = all(x.dtype == dtype for x in node.operands) and dtype.kind != "b"
    if plain and len(terms) == 2 and [len(t) for t in terms] == [2, 2] and _is_matmul(terms, out):
        return e.add(linalg.ops.MatmulOp(list(operands), [init], [init.type]))
    multiply, add = _arithmetic(dtype)

    def body(inner: Emitter, xs: Sequence[SSAValue]) -> SSAValue:
        *factors, total = xs
        factors = [convert(inner, x, y.dtype, dtype) for x, y in zip(factors, node.operands, strict=True)]
        made = factors[0]
        for factor in factors[1:]:
            made = inner.add(multiply(made, factor))
        return inner.add(add(total, made)) if summed else made

    maps = [[letters.index(c) for c in term] for term in terms]
    return e.generic(list(operands), maps, init, range(len(out)), len(letters), body)


def _is_matmul(terms: Sequence[str], out: str) -> bool:
    (a, b), (c, d) = terms
    return b == c and out == a + d and len({a, b, d}) == 3


def _arithmetic(dtype: np.dtype) -> tuple[Any, Any]:
    if dtype.kind == "b":
        return arith.AndIOp, arith.OrIOp
    return (arith.MuliOp, arith.AddiOp) if dtype.kind in "iu" else (arith.MulfOp, arith.AddfOp)


def _reduce(e: Emitter, node: Node, operands: Sequence[SSAValue]) -> SSAValue:
    return reduce_dims(e, operands[0], node.operands[0].dtype, _out(node).dtype, node.params["dims"], node.params["op"])


def reduce_dims(e: Emitter, x: SSAValue, src: np.dtype, dtype: np.dtype, dims: Sequence[int], op: ReduceOp) -> SSAValue:
    """Return a tensor reduced over dims, in the dtype of the result."""
    if src != dtype:
        x = _cast(e, x, src, dtype)
    if not dims:
        return x
    shape = tuple(n for k, n in enumerate(shape_of(x)) if k not in dims)
    neutral, combine = _combination(op, dtype)
    return e.reduce(x, dims, e.full(shape, neutral, dtype), combine)


def _cast(e: Emitter, x: SSAValue, src: np.dtype, dst: np.dtype) -> SSAValue:
    rank = range(len(shape_of(x)))
    init = e.empty(shape_of(x), element_of(dst))
    return e.generic([x], [rank], init, rank, len(rank), lambda inner, xs: convert(inner, xs[0], src, dst))


def _combination(op: ReduceOp, dtype: np.dtype) -> tuple[Any, Any]:
    floats = dtype.kind not in "iub"
    multiply, add = _arithmetic(dtype)
    if op in (ReduceOp.SUM, ReduceOp.AVG):
        return 0, add
    if op is ReduceOp.PROD:
        return 1, multiply
    if op is ReduceOp.BXOR:
        return 0, arith.XOrIOp
    if op is ReduceOp.BOR or (op is ReduceOp.MAX and dtype.kind == "b"):
        return 0, arith.OrIOp
    if op is ReduceOp.BAND or (op is ReduceOp.MIN and dtype.kind == "b"):
        return (True if dtype.kind == "b" else -1), arith.AndIOp
    if op is ReduceOp.MAX:
        return identity(op, dtype), arith.MaximumfOp if floats else arith.MaxSIOp
    return identity(op, dtype), arith.MinimumfOp if floats else arith.MinSIOp


def _sum_to(e: Emitter, node: Node, operands: Sequence[SSAValue]) -> SSAValue:
    x, shape = node.operands[0], node.params["shape"]
    lead = x.ndim - len(shape)
    dims = [k for k in range(x.ndim) if k < lead or shape[k - lead] != x.shape[k]]
    return e.reshape(reduce_dims(e, operands[0], x.dtype, x.dtype, dims, ReduceOp.SUM), shape)


# -- shards seen as terms --------------------------------------------------------------------------------


def _pieces(layout: Layout, shape: Shape, axes: Sequence[Axis]) -> tuple[list[int], list[int], list[int]]:
    # The shape with one dim per axis that splits a dim, then the rest of that dim; which of them belong to `axes`;
    # and which dim each comes from.
    sizes: list[int] = []
    chosen: list[int] = []
    origin: list[int] = []
    for k, (cut, size) in enumerate(zip(layout.dims, shape, strict=True)):
        left = size
        if without(cut.axes, axes) != cut.axes and not layout.tiling(shape).dims[k].is_even:
            raise ProgramError(
                f"dim {k} of {size} elements is cut unevenly in {layout}, and reducing shards of it over "
                f"{', '.join(map(str, axes))} cannot be written as ops on whole tensors.\n"
                "  lay it out so that its parts are equal before."
            )
        touched = without(cut.axes, axes) != cut.axes  # other dims stay whole, and may be cut in any way
        for axis in _split_by(cut.axes, axes) if touched else ():
            if not without([axis], axes):
                chosen.append(len(sizes))
            sizes.append(axis.size)
            origin.append(k)
            left //= axis.size
        sizes.append(left)
        origin.append(k)
    return sizes, chosen, origin


def _split_by(cut: Sequence[Axis], axes: Sequence[Axis]) -> list[Axis]:
    # The axes of a dim, cut where those that are folded begin and end.
    out = []
    for axis in cut:
        marks = {axis.pre, axis.pre * axis.size}
        marks |= {
            m
            for a in axes
            if a.name == axis.name
            for m in (a.pre, a.pre * a.size)
            if axis.pre < m < axis.pre * axis.size
        }
        bounds = sorted(marks)
        out += [Axis(axis.name, a, b // a, axis.of) for a, b in pairwise(bounds)]
    return out


def _fold(e: Emitter, node: Node, operands: Sequence[SSAValue]) -> SSAValue:
    x, op, axes = node.operands[0], node.params["op"], node.params["axes"]
    sizes, chosen, _ = _pieces(x.layout, x.shape, axes)
    terms = e.reshape(operands[0], tuple(sizes))
    if op is ReduceOp.AVG:
        return e.reshape(_mean(e, terms, x.dtype, chosen), _out(node).shape)
    return e.reshape(reduce_dims(e, terms, x.dtype, x.dtype, chosen, op), _out(node).shape)


def _mean(e: Emitter, x: SSAValue, dtype: np.dtype, dims: Sequence[int]) -> SSAValue:
    # Divided before it is rounded: the sum may be too large for 16 bits.
    wide, count = accumulator(dtype), prod(shape_of(x)[k] for k in dims)
    total = reduce_dims(e, x, dtype, wide, dims, ReduceOp.SUM)
    made = e.add(arith.DivfOp(total, e.full(shape_of(total), count, wide)))
    return made if wide == dtype else _cast(e, made, wide, dtype)


def _average(e: Emitter, node: Node, operands: Sequence[SSAValue]) -> SSAValue:
    x, axes = node.operands[0], node.params["axes"]
    sizes, chosen, _ = _pieces(x.layout, x.shape, axes)
    mean = _mean(e, e.reshape(operands[0], tuple(sizes)), x.dtype, chosen)
    ones = e.reshape(mean, tuple(1 if k in chosen else n for k, n in enumerate(sizes)))
    return e.reshape(e.broadcast(ones, tuple(sizes)), x.shape)


def _unfold(e: Emitter, node: Node, operands: Sequence[SSAValue]) -> SSAValue:
    layout, shape, x = node.params["layout"], node.params["shape"], node.operands[0]
    sizes, chosen, _ = _pieces(layout, shape, without(layout.sharded_axes, x.layout.sharded_axes))
    ones = e.reshape(operands[0], tuple(1 if k in chosen else n for k, n in enumerate(sizes)))
    return e.reshape(e.broadcast(ones, tuple(sizes)), shape)


def _permute_shards(e: Emitter, node: Node, operands: Sequence[SSAValue]) -> SSAValue:
    x, sources = node.operands[0], node.params["sources"]
    layout = x.layout.resolved()
    storage = storage_of(layout, x.shape)
    tiling = layout.tiling(x.shape)
    picks: dict[tuple[int, ...], SSAValue] = {}
    for tile in product(*(range(dim.parts) for dim in tiling.dims)):
        box = tiling.tile_box(tile)
        source = sources[layout.first_holder(tile)]
        sizes = [stop - start for start, stop in box]
        if source is None:
            picks[tile] = e.full(tuple(sizes), 0, x.dtype)
        else:
            start = [low for low, _ in storage.boxes[storage.index(source)]]
            picks[tile] = e.slice(operands[0], start, sizes)
    for dim in reversed(range(len(tiling.dims))):
        rows: dict[tuple[int, ...], list[SSAValue]] = {}
        for tile, part in picks.items():
            rows.setdefault(tile[:dim], []).append(part)
        picks = {tile: e.concat(parts, dim) for tile, parts in rows.items()}
    return picks[()]


def _exchange_blocks(e: Emitter, node: Node, operands: Sequence[SSAValue]) -> SSAValue:
    x, dim, back = node.operands[0], node.params["dim"], node.params.get("back_to")
    layout, shape = back or x.layout.resolved(), x.shape
    how = blocks(layout, shape, dim, node.params["axes"])
    # Where each piece begins before, and in which order the pieces lie after.
    order = [(at - at % how.members + i, at % how.members) for at in how.numbers for i in range(how.members)]
    lengths = {(at, i): length for at, pieces in enumerate(how.pieces) for i, length in enumerate(pieces)}
    first = [(at, i) for at in how.numbers for i in range(how.members)]
    held, wanted = (first, order) if back is None else (order, first)
    starts = dict(zip(held, accumulate((lengths[key] for key in held), initial=0), strict=False))
    parts = [
        e.slice(
            operands[0], [starts[key] if k == dim else 0 for k in range(len(shape))], _but(shape, dim, lengths[key])
        )
        for key in wanted
        if lengths[key]
    ]
    return e.concat(parts, dim) if parts else operands[0]


def _but(shape: Shape, dim: int, size: int) -> list[int]:
    return [*shape[:dim], size, *shape[dim + 1 :]]


# -- shapes and parts ------------------------------------------------------------------------------------


def _reshape(e: Emitter, node: Node, operands: Sequence[SSAValue]) -> SSAValue:
    return e.reshape(operands[0], _out(node).shape)


def _same(e: Emitter, node: Node, operands: Sequence[SSAValue]) -> SSAValue:
    return operands[0]


def _take_part(e: Emitter, node: Node, operands: Sequence[SSAValue]) -> SSAValue:
    x = node.operands[0]
    box = x.storage.boxes[x.storage.index(node.params["part"])]
    return e.slice(operands[0], [a for a, _ in box], [b - a for a, b in box])


def _stack(e: Emitter, node: Node, operands: Sequence[SSAValue]) -> SSAValue:
    return e.concat([e.reshape(x, (1, *shape_of(x))) for x in operands], 0)


def _unstack(e: Emitter, node: Node, operands: Sequence[SSAValue]) -> SSAValue:
    shape = shape_of(operands[0])
    part = e.slice(operands[0], [node.params["part"], *[0] * (len(shape) - 1)], [1, *shape[1:]])
    return e.reshape(part, shape[1:])


LOWERINGS: dict[str, Lowering] = {
    **INDEXING,
    **CONVOLUTIONS,
    "astype": _astype,
    "average": _average,
    "broadcast": lambda e, node, xs: e.broadcast(xs[0], node.params["shape"]),
    "einsum": _einsum,
    "exchange_blocks": _exchange_blocks,
    "expand": _reshape,
    "fold": _fold,
    "join": lambda e, node, xs: e.concat(xs, node.params["dim"]),
    "own_copy": _same,
    "permute_dims": lambda e, node, xs: e.transpose(xs[0], node.params["order"]),
    "permute_shards": _permute_shards,
    "reduce": _reduce,
    "reshape": _reshape,
    "squeeze": _reshape,
    "stack_parts": _stack,
    "sum_to": _sum_to,
    "take_part": _take_part,
    "unfold": _unfold,
    "unstack_part": _unstack,
    "where": _where,
}
