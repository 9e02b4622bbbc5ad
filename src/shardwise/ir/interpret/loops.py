"""Loops of structured ops: how large they are, and operands seen over them without being copied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from xdsl.ir import Operation
from xdsl.ir.affine import AffineBinaryOpExpr, AffineBinaryOpKind, AffineConstantExpr, AffineDimExpr, AffineExpr

from shardwise.errors import ProgramError, seal
from shardwise.ir.module.program import op_text

Map = Sequence[AffineExpr]  # per dim of an operand, its index as a function of the loops


@seal
@dataclass(frozen=True, slots=True)
class View:
    """An operand over the loops that it depends on, in the order of the loops."""

    array: np.ndarray
    loops: tuple[int, ...]

    def over(self, count: int) -> np.ndarray:
        """Return the view with one dim per loop, of size one where it does not depend on the loop."""
        shape = [1] * count
        for loop, size in zip(self.loops, self.array.shape, strict=True):
            shape[loop] = size
        return self.array.reshape(shape)


def dims_map(dims: Sequence[int]) -> Map:
    """Return the map that takes these loops as indices."""
    return [AffineDimExpr(d) for d in dims]


def loop_sizes(op: Operation, count: int, maps: Sequence[Map], shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return how often each loop runs: the size of a dim whose index is the loop itself."""
    sizes: list[int | None] = [None] * count
    for indices, shape in zip(maps, shapes, strict=True):
        for expr, size in zip(indices, shape, strict=True):
            if not isinstance(expr, AffineDimExpr):
                continue
            if sizes[expr.position] not in (None, size):
                raise ProgramError(f"{op_text(op)}: loop d{expr.position} is {sizes[expr.position]} and {size} long.")
            sizes[expr.position] = size
    if None in sizes:
        raise ProgramError(f"{op_text(op)}: no operand says how long loop d{sizes.index(None)} is.")
    return tuple(size for size in sizes if size is not None)


def view(op: Operation, array: Any, indices: Map, sizes: Sequence[int]) -> View:
    """Return an operand as its map sees it; sums of multiples of loops need no copy."""
    array = np.asarray(array)
    sums = [_linear(expr) for expr in indices]
    if any(terms is None for terms in sums):
        return _gather(op, array, indices, sizes)
    strides: dict[int, int] = {}
    start = 0
    for k, terms in enumerate(sums):
        assert terms is not None
        _check(op, terms, k, array.shape, sizes)
        start += terms.get(-1, 0)
        for loop, factor in terms.items():
            if loop >= 0 and factor:
                strides[loop] = strides.get(loop, 0) + factor * array.strides[k]
    loops = tuple(sorted(strides))
    shape = tuple(sizes[loop] for loop in loops)
    if 0 in shape:
        return View(np.zeros(shape, array.dtype), loops)
    corner = array[tuple(slice((terms or {}).get(-1, 0), None) for terms in sums)]
    return View(as_strided(corner, shape, [strides[loop] for loop in loops], writeable=False), loops)


def _linear(expr: AffineExpr) -> dict[int, int] | None:
    # The factor of each loop, and under -1 the constant; None where it is no such sum.
    if isinstance(expr, AffineDimExpr):
        return {expr.position: 1}
    if isinstance(expr, AffineConstantExpr):
        return {-1: expr.value}
    if not isinstance(expr, AffineBinaryOpExpr):
        return None
    a, b = _linear(expr.lhs), _linear(expr.rhs)
    if a is None or b is None:
        return None
    if expr.kind is AffineBinaryOpKind.Add:
        return {loop: a.get(loop, 0) + b.get(loop, 0) for loop in {**a, **b}}
    if expr.kind is AffineBinaryOpKind.Mul and (set(a) <= {-1} or set(b) <= {-1}):
        factor, terms = (a, b) if set(a) <= {-1} else (b, a)
        return {loop: n * factor.get(-1, 0) for loop, n in terms.items()}
    return None


def _check(op: Operation, terms: dict[int, int], dim: int, shape: Sequence[int], sizes: Sequence[int]) -> None:
    ends = [n * (sizes[loop] - 1) for loop, n in terms.items() if loop >= 0]
    low = terms.get(-1, 0) + sum(min(end, 0) for end in ends)
    high = terms.get(-1, 0) + sum(max(end, 0) for end in ends)
    if 0 in sizes or (low >= 0 and high < shape[dim]):
        return
    raise ProgramError(f"{op_text(op)} reaches elements {low} to {high} of dim {dim}, which has {shape[dim]}.")


def _gather(op: Operation, array: np.ndarray, indices: Map, sizes: Sequence[int]) -> View:
    grids: Any = loop_indices(sizes)
    places = tuple(np.asarray(expr.eval(grids, [])) for expr in indices)
    for k, place in enumerate(places):
        if np.any(place < 0) or np.any(place >= array.shape[k]):
            raise ProgramError(f"{op_text(op)} reaches outside dim {k}, which has {array.shape[k]} elements.")
    elements = np.broadcast_to(array[places], np.broadcast_shapes(array[places].shape, tuple(sizes)))
    return View(elements, tuple(range(len(sizes))))


def loop_indices(sizes: Sequence[int]) -> list[np.ndarray]:
    """Return the index of each loop, as arrays that broadcast against one another."""
    rank = len(sizes)
    return [np.arange(n).reshape([-1 if k == j else 1 for j in range(rank)]) for k, n in enumerate(sizes)]
