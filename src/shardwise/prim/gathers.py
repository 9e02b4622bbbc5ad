"""Gathers: elements picked by index, and their adjoint, sums put at an index.

Where the dim that is picked from is sharded, every device picks what it has and the results, which are
small, are a pending sum. A device that has nothing of it contributes the number that changes no sum: -0.0.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from shardwise.engine.arrays import is_torch
from shardwise.engine.job import RESULT
from shardwise.errors import BindingError
from shardwise.layout.cut import Cut
from shardwise.layout.placement import ReduceOp
from shardwise.layout.tiling import Box
from shardwise.prim.dispatch import apply
from shardwise.prim.kernel import full, zeros
from shardwise.prim.row import Row
from shardwise.prim.rule import Factor, Rule
from shardwise.prim.tensor import Tensor

Names = tuple[Factor, ...]


def _names(rank: int, picked: int, dim: int, along: bool) -> tuple[Names, Names, Names]:
    # The factors of the values, of the indices and of what is picked.
    own = tuple(f"d{k}" for k in range(rank))
    if along:
        out = (*own[:dim], "i0", *own[dim + 1 :])
        return own, out, out
    index = tuple(f"i{k}" for k in range(picked))
    return own, index, (*own[:dim], *index, *own[dim + 1 :])


def _reduction(dtype: np.dtype) -> ReduceOp:
    return ReduceOp.BOR if dtype.kind == "b" else ReduceOp.SUM


@lru_cache(maxsize=4096)
def gather_rule(rank: int, picked: int, dim: int, along: bool, op: ReduceOp) -> Rule:
    """Return the rule of picking: the dim is reduced, as all but one device contribute nothing.

    >>> gather_rule(2, 1, 0, False, ReduceOp.SUM).out
    ('i0', 'd1')
    """
    own, index, out = _names(rank, picked, dim, along)
    return Rule((own, index), out, ((own[dim], op),), linear="first" if op is ReduceOp.SUM else None)


def positions(indices: Any, size: int) -> Any:
    """Return indices counted from the start, after checking that they are in range."""
    low, high = (int(indices.min()), int(indices.max())) if 0 not in indices.shape else (0, -1)
    if low < -size or high >= size:
        wrong = low if low < -size else high
        raise BindingError(f"index {wrong} is out of range for a dim of {size} elements.")
    return indices if low >= 0 else (indices + size) % size


def _local(indices: Any, low: int, high: int) -> tuple[Any, Any]:
    # Which of the indices lie in [low, high), and the indices inside it; 0 for the others.
    inside = (indices >= low) & (indices < high)
    return inside, (indices - low) * inside


def _gather(x: Tensor, indices: Tensor, *, dim: int, along: bool) -> Tensor:
    size = x.shape[dim]

    def kernel(box: Box, array: Any, index: Any) -> Any:
        index = positions(index, size)
        low, high = box[dim]
        if high - low == size:
            return _picked(array, index, dim, along)
        inside, local = _local(index, low, high)
        shape = local.shape if along else (*array.shape[:dim], *local.shape, *array.shape[dim + 1 :])
        nothing = full(array, shape, -0.0 if x.dtype.kind in "fcV" else 0)
        if low == high:
            return nothing
        here = inside if along else inside.reshape((*local.shape, *(1,) * (array.ndim - dim - 1)))
        found = _picked(array, local, dim, along)
        if is_torch(array):
            return found.where(here, nothing)
        return np.where(here, found, nothing)

    rule = gather_rule(x.ndim, indices.ndim, dim, along, _reduction(x.dtype))
    return apply("take", kernel, rule, [x, indices], located=(0,), dtype=x.dtype)


def _picked(array: Any, index: Any, dim: int, along: bool) -> Any:
    if is_torch(array):
        import torch

        index = index.to(torch.int64)
        if along:
            return torch.take_along_dim(array, index, dim)
        flat = torch.index_select(array, dim, index.reshape(-1))
        return flat.reshape((*array.shape[:dim], *index.shape, *array.shape[dim + 1 :]))
    return np.take_along_axis(array, index, dim) if along else np.take(array, index, dim)


def _gather_vjp(ct: Tensor, out: Tensor, x: Tensor, indices: Tensor, *, dim: int, along: bool) -> tuple[Any, ...]:
    cut = x.layout.without_halo().dims[dim]
    return (scatter(ct, indices, dim=dim, along=along, size=x.shape[dim], cut=cut), None)


def _gather_jvp(tangents: Any, out: Tensor, x: Tensor, indices: Tensor, **how: Any) -> Tensor | None:
    return None if tangents[0] is None else gather(tangents[0], indices, **how)


# The elements of a dim at these indices: for all the rest of the value (NumPy's take), or `along` one dim (its
# take_along_axis).
gather = Row("take", _gather, _gather_vjp, _gather_jvp)


# -- sums at an index ----------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def scatter_rule(rank: int, picked: int, dim: int, along: bool, cut: Cut, size: int) -> Rule:
    """Return the rule of adding up by index: each device takes what falls into its part of the dim."""
    own, index, out = _names(rank, picked, dim, along)
    reduced = tuple((name, ReduceOp.SUM) for name in (index if not along else ("i0",)))
    return Rule((out, index), own, reduced, linear="first", offered=((own[dim], cut, size),))


def _scatter(values: Tensor, indices: Tensor, *, dim: int, along: bool, size: int, cut: Cut) -> Tensor:
    rank = values.ndim if along else values.ndim - indices.ndim + 1

    def kernel(box: Box, array: Any, index: Any) -> Any:
        inside, local = _local(positions(index, size), *box[dim])
        out = zeros(array, tuple(stop - start for start, stop in box))
        if box[dim][0] < box[dim][1]:
            _add_at(out, array, inside, local, dim, along)
        return out

    rule = scatter_rule(rank, indices.ndim, dim, along, cut, size)
    return apply("scatter", kernel, rule, [values, indices], located=(RESULT,), dtype=values.dtype)


def _add_at(out: Any, array: Any, inside: Any, local: Any, dim: int, along: bool) -> None:
    if along:
        array = array * inside
        if is_torch(out):
            out.scatter_add_(dim, local.long(), array)
            return
        grid = list(np.ogrid[tuple(slice(n) for n in local.shape)])
        grid[dim] = local
        np.add.at(out, tuple(grid), array)
        return
    count = local.ndim
    flat = array.reshape((*array.shape[:dim], prod(local.shape), *array.shape[dim + count :]))
    here, where = inside.reshape(-1), local.reshape(-1)
    at = (*(slice(None),) * dim, here)
    if is_torch(out):
        out.index_add_(dim, where[here].long(), flat[at])
    else:
        spots: Any = (*(slice(None),) * dim, where[here])
        np.add.at(out, spots, flat[at])


def _scatter_vjp(ct: Tensor, out: Tensor, values: Tensor, indices: Tensor, *, dim: int, along: bool, **_: Any) -> Any:
    return (gather(ct, indices, dim=dim, along=along), None)


def _scatter_jvp(tangents: Any, out: Tensor, values: Tensor, indices: Tensor, **how: Any) -> Tensor | None:
    return None if tangents[0] is None else scatter(tangents[0], indices, **how)


# Values added up at these indices of a dim of this size, cut in this way if that is cheapest.
scatter = Row("scatter", _scatter, _scatter_vjp, _scatter_jvp)
