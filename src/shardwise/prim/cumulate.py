"""Running sums along a dim: each shard by itself, and of the shards before it only the totals."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace

from shardwise.layout.cut import Cut
from shardwise.layout.layout import Layout
from shardwise.prim.relayout import relayout
from shardwise.prim.row import Row
from shardwise.prim.tensor import Tensor, moved
from shardwise.prim.work import Place, worked


def _cumulate(x: Tensor, *, dim: int, reverse: bool) -> Tensor:
    x = moved(x, x.layout.without_halo().resolved())
    layout, cut = x.layout, x.layout.dims[dim]
    if not cut.axes:
        return worked(lambda place, a: _running(a, dim, reverse), [x], layout, x.shape)
    parts = layout.parts(dim)
    shape = tuple(parts if k == dim else size for k, size in enumerate(x.shape))
    totals = worked(lambda place, a: _total(a, dim), [x], _with(layout, dim, Cut(cut.axes)), shape)
    known = moved(totals, _with(layout, dim, Cut()))

    def kernel(place: Place, array: Any, sums: Any) -> Any:
        part = layout.tile_of(place.device)[dim]
        others = slice(part + 1, None) if reverse else slice(0, part)
        return _running(array, dim, reverse) + _total(sums[(*(slice(None),) * dim, others)], dim)

    return worked(kernel, [x, known], layout, x.shape)


def _with(layout: Layout, dim: int, cut: Cut) -> Layout:
    return Layout(layout.mesh, [cut if k == dim else own for k, own in enumerate(layout.dims)])


def _total(array: Any, dim: int) -> Any:
    return array_namespace(array).sum(array, axis=dim, keepdims=True, dtype=array.dtype)


def _running(array: Any, dim: int, reverse: bool) -> Any:
    xp = array_namespace(array)
    if not reverse:
        return xp.cumulative_sum(array, axis=dim, dtype=array.dtype)
    return xp.flip(xp.cumulative_sum(xp.flip(array, axis=dim), axis=dim, dtype=array.dtype), axis=dim)


def _cumulate_vjp(ct: Tensor, out: Tensor, x: Tensor, *, dim: int, reverse: bool) -> tuple[Tensor, ...]:
    back = cumulate(relayout(ct, layout=out.layout), dim=dim, reverse=not reverse)
    return (relayout(back, layout=x.layout.resolved().without_halo()),)


# The sums of all elements up to each, from the start of a dim or from its end.
cumulate = Row("cumulative_sum", _cumulate, _cumulate_vjp, linear=True)
