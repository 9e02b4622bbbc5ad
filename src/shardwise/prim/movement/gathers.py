"""Gathers: elements picked by index, and their adjoint, sums put at an index.

Where the dim that is picked from is sharded, every device picks what it has and the results, which are
small, are a pending sum. A device that has nothing of it contributes the number that changes no sum: -0.0.

The first `batch` dims of values and indices are the same: at each place of them, indices pick from what is there.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from shardwise.caches import cache
from shardwise.engine.arrays import Array, cast, identity, is_torch, room_for
from shardwise.engine.job import RESULT
from shardwise.errors import ProgramError, RangeError
from shardwise.layout.cut import Cut
from shardwise.layout.layout import Shape
from shardwise.layout.placement import ReduceOp
from shardwise.layout.tiling import Box
from shardwise.prim.dispatch.decision import row_of_work
from shardwise.prim.forms import INDEX, Form, Loops, Read, as_form, position
from shardwise.prim.kernel import full, transpose, zeros
from shardwise.prim.primitive import Lowering, Primitive
from shardwise.prim.rule import Factor, Rule
from shardwise.prim.tensor import Tensor
from shardwise.prim.work import Work

Names = tuple[Factor, ...]
_where: Callable[..., Array] = np.where  # of which pyright cannot tell what it makes of an Array


def _names(rank: int, picked: int, dim: int, along: bool, merged: int, batch: int) -> tuple[Names, Names, Names]:
    # The factors of the values, of the indices and of what is picked.
    own = tuple(f"d{k}" for k in range(rank))
    if along:
        out = (*own[:dim], "i0", *own[dim + 1 :])
        return own, out, out
    index = tuple(f"i{k}" for k in range(picked - batch))
    return own, (*own[:batch], *index), (*own[:dim], *index, *own[dim + merged :])


def _reduction(dtype: np.dtype) -> ReduceOp:
    return ReduceOp.BOR if dtype.kind == "b" else ReduceOp.SUM


@cache()
def gather_rule(rank: int, picked: int, dim: int, along: bool, op: ReduceOp, merged: int = 1, batch: int = 0) -> Rule:
    """Return the rule of picking: what is picked from is reduced, as all but one device contribute nothing.

    >>> gather_rule(2, 1, 0, False, ReduceOp.SUM).out
    ('i0', 'd1')
    """
    own, index, out = _names(rank, picked, dim, along, merged, batch)
    reduced = tuple((name, op) for name in own[dim : dim + merged])
    return Rule((own, index), out, reduced, linear="first" if op is ReduceOp.SUM else None)


def positions(indices: Any, size: int) -> Any:
    """Return indices counted from the start, after checking that they are in range.

    >>> positions(np.array([0, -1], "int8"), 200)
    array([  0, 199])
    """
    low, high = (int(indices.min()), int(indices.max())) if 0 not in indices.shape else (0, -1)
    if low < -size or high >= size:
        wrong = low if low < -size else high
        raise RangeError(f"index {wrong} is out of range for a dim of {size} elements.")
    wide = indices.long() if is_torch(indices) else indices.astype(np.int64, copy=False)  # room for what is added
    return wide if low >= 0 else (wide + size) % size


def local_positions(indices: Any, sizes: Shape, boxes: Box) -> tuple[Any, Any]:
    """Return which indices, into some dims in a row, lie in a box of them, and those inside it; 0 for the others.

    >>> inside, local = local_positions(np.array([0, 4, 5]), (2, 3), ((0, 2), (1, 3)))
    >>> inside.tolist(), local.tolist()
    ([False, True, True], [0, 2, 3])
    """
    if len(sizes) == 1:
        ((low, high),) = boxes
        inside = (indices >= low) & (indices < high)
        return inside, (indices - low) * inside
    inside, local, stride = indices == indices, indices * 0, prod(sizes)
    if not stride:  # of no elements there are no indices
        return inside, local
    for size, (low, high) in zip(sizes, boxes, strict=True):
        stride //= size
        place = indices // stride % size
        inside = inside & (place >= low) & (place < high)
        local = local * (high - low) + place - low
    return inside, local * inside


def in_a_row(array: Any, dim: int, merged: int) -> Any:
    """Return an array with some dims made one."""
    if merged == 1:
        return array
    return array.reshape((*array.shape[:dim], prod(array.shape[dim : dim + merged]), *array.shape[dim + merged :]))


def side_by_side(array: Any, index: Any, dim: int, batch: int) -> tuple[Any, Any]:
    """Return an array with its batch dims and dim `dim` made one, and indices into that.

    >>> array, index = side_by_side(np.arange(6).reshape(2, 3), np.array([[0], [2]]), 1, 1)
    >>> array[index].tolist()
    [[0], [5]]
    """
    first: Shape = array.shape[:batch]
    size: int = array.shape[dim]
    flat = batch_behind(array, dim, batch).reshape(
        (*array.shape[batch:dim], prod(first) * size, *array.shape[dim + 1 :])
    )
    starts = np.arange(0, prod(first) * size, size).reshape((*first, *(1,) * (index.ndim - batch))) if size else 0
    return flat, index + (index.new_tensor(starts) if is_torch(index) else starts)


def batch_behind(array: Any, dim: int, batch: int) -> Any:
    """Return an array with its batch dims just before dim `dim`."""
    return transpose(array, (*range(batch, dim), *range(batch), *range(dim, array.ndim)))


def back_in_front(array: Any, dim: int, batch: int) -> Any:
    """Return an array whose dims before `dim` are those that were between batch dims and it, with the batch first."""
    return transpose(array, (*range(dim - batch, dim), *range(dim - batch), *range(dim, array.ndim)))


def _gather(x: Tensor, indices: Tensor, *, dim: int, along: bool, merged: int = 1, batch: int = 0) -> Work:
    sizes = x.shape[dim : dim + merged]

    def kernel(box: Box, array: Any, index: Any) -> Any:
        index, own = positions(index, prod(sizes)), box[dim : dim + merged]
        array = in_a_row(array, dim, merged)
        if all(high - low == size for size, (low, high) in zip(sizes, own, strict=True)):
            return _pick(array, index, dim, along, batch)
        after = (1,) * (array.ndim - dim - 1)
        shape = index.shape if along else (*array.shape[:dim], *index.shape[batch:], *array.shape[dim + 1 :])
        nothing = full(array, shape, identity(_reduction(x.dtype), x.dtype))
        if not array.shape[dim]:
            return nothing
        inside, local = local_positions(index, sizes, own)
        before = (*inside.shape[:batch], *(1,) * (dim - batch))
        here = inside if along else inside.reshape((*before, *local.shape[batch:], *after))
        picks = _pick(array, local, dim, along, batch)
        return picks.where(here, nothing) if is_torch(array) else _where(here, picks, nothing)

    rule = gather_rule(x.ndim, indices.ndim, dim, along, _reduction(x.dtype), merged, batch)
    return Work("take", kernel, rule, [x, indices], located=(0,), dtype=x.dtype)


def _pick(array: Any, index: Any, dim: int, along: bool, batch: int) -> Any:
    if batch:
        if not prod(array.shape[:batch]):
            return zeros(array, (*array.shape[:dim], *index.shape[batch:], *array.shape[dim + 1 :]))
        flat, spots = side_by_side(array, index, dim, batch)
        return back_in_front(_pick(flat, spots, dim - batch, False, 0), dim, batch)
    if is_torch(array):
        if along:
            return array.take_along_dim(index, dim)
        flat = array.index_select(dim, index.reshape(-1))
        return flat.reshape((*array.shape[:dim], *index.shape, *array.shape[dim + 1 :]))
    return np.take_along_axis(array, index, dim) if along else np.take(array, index, dim)


def _gather_vjp(
    ct: Tensor, out: Tensor, x: Tensor, indices: Tensor, *, dim: int, along: bool, merged: int = 1, batch: int = 0
) -> tuple[Any, ...]:
    cuts, sizes = x.layout.without_halo().dims[dim : dim + merged], x.shape[dim : dim + merged]
    return (scatter(ct, indices, dim=dim, along=along, sizes=sizes, cuts=cuts, batch=batch), None)


def _loops_at_one(
    name: str, rank: int, picked: int, dim: int, along: bool, merged: int, batch: int
) -> tuple[Names, Names, Names]:
    if merged > 1 or batch:
        raise ProgramError(
            f"{name} at several arrays of indices cannot be traced.\n  index one dim at a time: x[i][j]."
        )
    return _names(rank, picked, dim, along, 1, 0)


def _gather_form(
    out: Tensor, x: Tensor, indices: Tensor, *, dim: int, along: bool, merged: int = 1, batch: int = 0
) -> Form:
    own, index, loops = _loops_at_one("take", x.ndim, indices.ndim, dim, along, merged, batch)
    spots = ", ".join([position("x", x.shape[dim]) if k == dim else name for k, name in enumerate(own)])
    return Loops(out.shape, x.dtype, loops, (Read(as_form(indices), index, INDEX),), f"table[{spots}]", as_form(x))


def _batch(row: Primitive, lead: Any, mapped: Any, operands: Any, params: Any) -> Tensor:
    dim, batch = params["dim"] + lead.count, params.get("batch", 0)
    if mapped == (True, False) and not params["along"] and not batch:
        return row(*operands, **(params | {"dim": dim}))
    shared = 0 if params["along"] else batch + lead.count
    return row(*lead.spread_all(mapped, operands), **(params | {"dim": dim, "batch": shared}))


def _batch_gather(row: Primitive, lead: Any, mapped: Any, operands: Any, params: Any) -> Tensor:
    if mapped == (False, True) and not params["along"] and not params.get("batch", 0):
        return lead.in_front(gather(*operands, **params), params["dim"])
    return _batch(row, lead, mapped, operands, params)


def _row_of_indices(
    name: str, work: Callable[..., Work], vjp: Callable[..., Any], batch: Callable[..., Tensor], lower: Lowering
) -> Primitive:
    # The row of what is linear in the first operand, with indices as the second.
    def jvp(tangents: Any, out: Tensor, x: Tensor, indices: Tensor, **how: Any) -> Tensor | None:
        return None if tangents[0] is None else row(tangents[0], indices, **how)

    def needs(i: int, j: int, operands: Any, params: Any) -> bool:
        return j == 1

    row = row_of_work(name, work, vjp, jvp, batch=batch, needs=needs, lower=lower)
    return row


# The elements of a dim (or of some `merged` ones, taken as a row) at these indices: for all the rest of the value
# (NumPy's take), or `along` one dim (its take_along_axis).
gather = _row_of_indices("take", _gather, _gather_vjp, _batch_gather, _gather_form)


# -- sums at an index ----------------------------------------------------------------------------------


@cache()
def scatter_rule(
    rank: int, picked: int, dim: int, along: bool, cuts: tuple[Cut, ...], sizes: Shape, batch: int = 0
) -> Rule:
    """Return the rule of adding up by index: each device takes what falls into its part of the dims."""
    own, index, out = _names(rank, picked, dim, along, len(sizes), batch)
    reduced = tuple((name, ReduceOp.SUM) for name in (index[batch:] if not along else ("i0",)))
    offered = tuple(zip(own[dim : dim + len(sizes)], cuts, sizes, strict=True))
    return Rule((out, index), own, reduced, linear="first", offered=offered)


def _scatter(
    values: Tensor, indices: Tensor, *, dim: int, along: bool, sizes: Shape, cuts: tuple[Cut, ...], batch: int = 0
) -> Work:
    merged = len(sizes)
    rank = values.ndim if along else values.ndim - indices.ndim + batch + merged

    def kernel(box: Box, array: Any, index: Any) -> Any:
        inside, local = local_positions(positions(index, prod(sizes)), sizes, box[dim : dim + merged])
        shape = tuple(stop - start for start, stop in box)
        # Many values may fall on one element; they are rounded once.
        array = cast(array, room_for(values.dtype, prod(index.shape)))
        out = zeros(array, (*shape[:dim], prod(shape[dim : dim + merged]), *shape[dim + merged :]))
        if out.shape[dim]:
            out = _add_at(out, array, inside, local, dim, along, batch)
        return cast(out, values.dtype).reshape(shape)

    rule = scatter_rule(rank, indices.ndim, dim, along, cuts, sizes, batch)
    return Work("scatter", kernel, rule, [values, indices], located=(RESULT,), dtype=values.dtype)


def _add_at(out: Any, array: Any, inside: Any, local: Any, dim: int, along: bool, batch: int) -> Any:
    if batch:
        flat, spots = side_by_side(out, local, dim, batch)
        # What was turned may be a copy: it is what the values are added to.
        sums = _add_at(flat, batch_behind(array, dim, batch), inside, spots, dim - batch, False, 0)
        shape = (*out.shape[batch:dim], *out.shape[:batch], *out.shape[dim:])
        return back_in_front(sums.reshape(shape), dim, batch)
    if along:
        nothing = zeros(array, ())  # not array * inside: that is NaN where infinity is not meant
        values = array.where(inside, nothing) if is_torch(array) else _where(inside, array, nothing)
        if is_torch(out):
            return out.scatter_add_(dim, local, values)
        grid = list(np.ogrid[tuple(slice(n) for n in local.shape)])
        grid[dim] = local
        np.add.at(out, tuple(grid), values)
        return out
    count = local.ndim
    flat = array.reshape((*array.shape[:dim], prod(local.shape), *array.shape[dim + count :]))
    here, where = inside.reshape(-1), local.reshape(-1)
    at = (*(slice(None),) * dim, here)
    if is_torch(out):
        out.index_add_(dim, where[here], flat[at])
    else:
        spots: Any = (*(slice(None),) * dim, where[here])
        np.add.at(out, spots, flat[at])
    return out


def _scatter_vjp(
    ct: Tensor, out: Tensor, values: Tensor, indices: Tensor, *, dim: int, along: bool, sizes: Shape, **how: Any
) -> Any:
    return (gather(ct, indices, dim=dim, along=along, merged=len(sizes), batch=how.get("batch", 0)), None)


def _scatter_form(
    out: Tensor, values: Tensor, indices: Tensor, *, dim: int, along: bool, sizes: Shape, batch: int = 0, **_: Any
) -> Form:
    # Each element is the sum of the values whose index is its position: no value has to know where it goes.
    own, index, loops = _loops_at_one("scatter", len(out.shape), indices.ndim, dim, along, len(sizes), batch)
    summed = tuple([name for name in index if name not in own])
    reads = (Read(as_form(values), loops, values.dtype), Read(as_form(indices), index, INDEX))
    body = f"total + where({position('y', sizes[0])} == {own[dim]}, x, 0)"
    return Loops(out.shape, values.dtype, (*own, *summed), reads, body)


# Values added up at these indices of a dim (or of some, taken as a row) of these sizes, cut in this way if that is
# cheapest.
scatter = _row_of_indices("scatter", _scatter, _scatter_vjp, _batch, _scatter_form)
