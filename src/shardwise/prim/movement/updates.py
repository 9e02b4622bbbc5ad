"""Updates: a value with some of its elements replaced; only what replaces them moves."""

from __future__ import annotations

from math import prod
from typing import Any

from shardwise.caches import cache
from shardwise.engine.arrays import is_torch
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.tiling import Box
from shardwise.prim.arithmetic.elementwise import astype, equal, multiply
from shardwise.prim.arithmetic.positions import iota
from shardwise.prim.dispatch.decision import row_of_work
from shardwise.prim.dispatch.operands import fetch_operands
from shardwise.prim.dispatch.per_device import Place, map_shards
from shardwise.prim.forms import Form, place
from shardwise.prim.movement.gathers import (
    back_in_front,
    batch_behind,
    gather,
    in_a_row,
    local_positions,
    positions,
    side_by_side,
)
from shardwise.prim.movement.parts import fill_tangents, zeros_for, zeros_like
from shardwise.prim.primitive import Primitive, needs_nothing
from shardwise.prim.relayout import relayout
from shardwise.prim.rule import Rule
from shardwise.prim.tensor import Tensor
from shardwise.prim.views.shapes import expand
from shardwise.prim.views.spans import Index
from shardwise.prim.views.windows import local_slices, window, window_layout
from shardwise.prim.work import Work


def _copy(array: Any) -> Any:
    return array.clone() if is_torch(array) else array.copy()


def _write(x: Tensor, values: Tensor, *, index: Index) -> Tensor:
    layout = x.layout.resolved().without_halo()
    small = window_layout(layout, x.shape, index)

    def kernel(place: Place, array: Any, new: Any) -> Any:
        out = _copy(array)
        out[local_slices(index, small.box(values.shape, place.device), place.box)] = new
        return out

    return map_shards(kernel, fetch_operands("x.at[...].set", [x, values], [layout, small]), layout, x.shape)


def _write_vjp(ct: Tensor, out: Tensor, x: Tensor, values: Tensor, *, index: Index) -> tuple[Tensor, ...]:
    back = relayout(window(ct, index=index), layout=values.layout.resolved().without_halo())
    return write(ct, zeros_for(values), index=index), back


def _write_jvp(tangents: Any, out: Tensor, x: Tensor, values: Tensor, *, index: Index) -> Tensor:
    return write(*fill_tangents(tangents, (x, values)), index=index)


def _write_form(out: Tensor, x: Tensor, values: Tensor, *, index: Index) -> Form:
    return place(values, x, [span.start for span in index], [span.step for span in index])


# A value with a window of it replaced.
write = Primitive("write", _write, _write_vjp, _write_jvp, needs=needs_nothing, lower=_write_form)


# -- at indices ----------------------------------------------------------------------------------------


@cache()
def _rule(rank: int, picked: int, dim: int, merged: int, batch: int) -> Rule:
    own, index = tuple(f"d{k}" for k in range(rank)), tuple(f"i{k}" for k in range(picked - batch))
    values = (*own[:dim], *index, *own[dim + merged :])
    # Which of several values for one element comes last is only known where all of them are.
    return Rule((own, values, (*own[:batch], *index)), own, whole=frozenset(index))


def _write_at(x: Tensor, values: Tensor, indices: Tensor, *, dim: int, merged: int = 1, batch: int = 0) -> Work:
    sizes = x.shape[dim : dim + merged]

    def kernel(box: Box, array: Any, new: Any, index: Any) -> Any:
        inside, local = local_positions(positions(index, prod(sizes)), sizes, box[dim : dim + merged])
        out = in_a_row(array, dim, merged)
        if batch:
            new = batch_behind(new, dim, batch)
            (flat, local), apart = side_by_side(out, local, dim, batch), (*out.shape[batch:dim], *out.shape[:batch])
            done = _put(flat, new, inside, local, dim - batch).reshape((*apart, *out.shape[dim:]))
            return back_in_front(done, dim, batch).reshape(array.shape)
        return _put(out, new, inside, local, dim).reshape(array.shape)

    rule = _rule(x.ndim, indices.ndim, dim, merged, batch)
    return Work("write_at", kernel, rule, [x, values, indices], located=(0,), dtype=x.dtype)


def _put(array: Any, new: Any, inside: Any, local: Any, dim: int) -> Any:
    out, lead = _copy(array), (slice(None),) * dim
    out[(*lead, local[inside])] = new[(*lead, inside)]
    return out


def _winners(x: Tensor, values: Tensor, indices: Tensor, sizes: Shape, batch: int) -> Tensor:
    # 1 for the values that stay, 0 for those which another one for the same element comes after.
    numbers = iota(indices.layout.resolved().without_halo(), indices.shape, x.engine)
    line = zeros_like(numbers, (*indices.shape[:batch], prod(sizes)), Layout.replicated(x.mesh, batch + 1))
    wrote = write_at(line, numbers, indices, dim=batch, batch=batch)
    last = gather(wrote, indices, dim=batch, along=False, batch=batch)
    return astype(equal(last, numbers), dtype=values.dtype)


def _write_at_vjp(
    ct: Tensor, out: Tensor, x: Tensor, values: Tensor, indices: Tensor, *, dim: int, merged: int = 1, batch: int = 0
) -> Any:
    stays = _winners(x, values, indices, x.shape[dim : dim + merged], batch)
    stays = expand(stays, at=(*range(batch, dim), *range(dim + indices.ndim - batch, values.ndim)))
    back = multiply(gather(ct, indices, dim=dim, along=False, merged=merged, batch=batch), stays)
    return write_at(ct, zeros_for(values), indices, dim=dim, merged=merged, batch=batch), back, None


def _write_at_jvp(tangents: Any, out: Tensor, x: Tensor, values: Tensor, indices: Tensor, **how: Any) -> Any:
    return write_at(*fill_tangents(tangents[:2], (x, values)), indices, **how)


def _batch_write_at(row: Primitive, lead: Any, mapped: Any, operands: Any, params: Any) -> Tensor:
    dim, batch = params["dim"] + lead.count, params.get("batch", 0)
    if not mapped[2] and not batch:
        pair = lead.spread_all(mapped[:2], operands[:2])
        return write_at(*pair, operands[2], **(params | {"dim": dim}))
    return write_at(*lead.spread_all(mapped, operands), **(params | {"dim": dim, "batch": batch + lead.count}))


# A value with the elements at some indices of a dim (or of some, taken as a row) replaced; where an index is
# repeated, the last one counts.
write_at = row_of_work(
    "write_at",
    _write_at,
    _write_at_vjp,
    _write_at_jvp,
    batch=_batch_write_at,
    needs=lambda i, j, operands, params: j == 2,  # the indices
)
