"""Surrounds: elements of a value repeated before and after it; a device is sent each that it needs and lacks once.

Along a dim the result is made of stretches: runs of elements of the value, forwards, backwards, or one again and again.
Of each dim a device needs a few intervals of elements. The first intervals of all devices, the second ones and so on
are values of their own, in which elements that several devices need are repeated; each is brought to its devices at
once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import accumulate, product
from typing import Any, Literal, NamedTuple

import numpy as np

from shardwise.caches import cache
from shardwise.engine.arrays import is_torch
from shardwise.layout.cut import Cut
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.tiling import DimTiling
from shardwise.plan.plan import Plan, plan_reshard
from shardwise.prim import forms
from shardwise.prim.arithmetic.broadcast import sum_to
from shardwise.prim.arithmetic.elementwise import add
from shardwise.prim.dispatch.operands import fetch_operands, may_send
from shardwise.prim.dispatch.per_device import Place, map_shards
from shardwise.prim.forms import Form
from shardwise.prim.movement.mirror import mirror
from shardwise.prim.primitive import Primitive
from shardwise.prim.relayout import cut_dim, lay_out
from shardwise.prim.tensor import Tensor, move_to
from shardwise.prim.views.reshaping import together
from shardwise.prim.views.spans import Span, Stretch, Stretches, whole_but
from shardwise.prim.views.windows import window, within

Interval = tuple[int, int]
Mode = Literal["edge", "reflect", "wrap"]
Picks = tuple[slice | np.ndarray, ...]  # per part of a dim, the positions of elements in its array


def stretches(size: int, low: int, high: int, mode: Mode) -> Stretches:
    """Return what a dim of this size becomes with `low` elements before it and `high` after it, as `numpy.pad` does.

    >>> stretches(4, 1, 2, "wrap")
    (Stretch(length=1, first=3, step=1), Stretch(length=4, first=0, step=1), Stretch(length=2, first=0, step=1))
    """
    before, after = {
        "edge": (Stretch(low, 0, 0), Stretch(high, size - 1, 0)),
        "reflect": (Stretch(low, low, -1), Stretch(high, size - 2, -1)),
        "wrap": (Stretch(low, size - low, 1), Stretch(high, 0, 1)),
    }[mode]
    return tuple(part for part in (before, Stretch(size, 0, 1), after) if part.length)


class Dim(NamedTuple):
    """How one dim of a result is put together: the rounds, and the positions that each part picks of what it gets."""

    rounds: tuple[IntervalRound, ...]
    picks: Picks


class IntervalRound(NamedTuple):
    """One interval of elements for each part: how many there are, and how they are cut before and after."""

    size: int
    before: tuple[int, ...]  # where each part that has them ends
    after: tuple[int, ...]  # and each part that needs them
    picks: Picks  # of what parts have


def _dim(own: DimTiling, target: DimTiling, stretches: Stretches) -> Dim:
    # Which element of the dim each element of the result is.
    runs = [part.first + part.step * np.arange(part.length) for part in stretches]
    elements = np.concatenate([np.zeros(0, int), *runs])
    needs = [np.unique(elements[slice(*target.interval(part))]) for part in range(target.parts)]
    rounds: list[list[Interval]] = []
    for part, need in enumerate(needs):
        taken = 0
        for start, stop in _intervals(need):
            # The elements of a round must not decrease, so that the parts that have them come in order too.
            free = (r for r in range(taken, len(rounds)) if all(b == a or b - 1 <= start for a, b in rounds[r]))
            taken = next(free, len(rounds))
            if taken == len(rounds):
                rounds.append([(0, 0)] * target.parts)
            rounds[taken][part] = (start, stop)
            taken += 1
    rounds = rounds or [[(0, 0)] * target.parts]  # of a dim without elements
    picks: list[slice | np.ndarray] = []
    for part, need in enumerate(needs):
        order = np.argsort(np.concatenate([np.zeros(0, int), *(np.arange(*intervals[part]) for intervals in rounds)]))
        wanted = elements[slice(*target.interval(part))]
        picks.append(_as_slice(order[np.searchsorted(need, wanted)]))
    return Dim(tuple(_round(own, intervals) for intervals in rounds), tuple(picks))


def _intervals(elements: np.ndarray) -> list[Interval]:
    ends = np.flatnonzero(np.diff(elements) != 1) + 1
    return [(int(run[0]), int(run[-1]) + 1) for run in np.split(elements, ends) if len(run)]


def _round(own: DimTiling, intervals: Sequence[Interval]) -> IntervalRound:
    picks: list[np.ndarray] = []
    for start, stop in map(own.interval, range(own.parts)):
        here = [np.arange(max(a, start), min(b, stop)) - start for a, b in intervals]
        picks.append(np.concatenate([np.zeros(0, int), *here]))
    after = tuple(accumulate(b - a for a, b in intervals))
    return IntervalRound(after[-1], tuple(accumulate(map(len, picks))), after, tuple(map(_as_slice, picks)))


def _as_slice(index: np.ndarray) -> slice | np.ndarray:
    first = int(index[0]) if len(index) else 0
    is_run = np.array_equal(index, np.arange(first, first + len(index)))
    return slice(first, first + len(index)) if is_run else index


@cache(entries=1024)
def _dims(src: Layout, dst: Layout, shape: Shape, stretches: tuple[Stretches, ...]) -> tuple[Dim, ...]:
    tilings = zip(src.tiling(shape).dims, dst.tiling(surrounded_shape(stretches)).dims, stretches, strict=True)
    return tuple(_dim(own, target, some) for own, target, some in tilings)


def surrounded_shape(stretches: Sequence[Stretches]) -> Shape:
    """Return the shape of a value with elements before and after it."""
    return tuple(sum(part.length for part in some) for some in stretches)


def _surround(x: Tensor, *, stretches: tuple[Stretches, ...], layout: Layout) -> Tensor:
    (x,) = fetch_operands("pad", [x], [x.layout.resolved().without_halo()])
    own, shape = x.layout, surrounded_shape(stretches)
    dims = _dims(own, layout, x.shape, stretches)
    parts: list[tuple[Tensor, Layout]] = []
    plans: list[Plan] = []
    for rounds in product(*(dim.rounds for dim in dims)):
        sizes = tuple(r.size for r in rounds)
        here, there = _cut(own, [r.before for r in rounds]), _cut(layout, [r.after for r in rounds])
        parts.append((map_shards(_picking(own, [r.picks for r in rounds]), [x], here, sizes), there))
        plans.append(plan_reshard(here, there, sizes, x.dtype))
    may_send("pad", x, [k for k, some in enumerate(stretches) if len(some) > 1], *plans)
    counts = [len(dim.rounds) for dim in dims]
    pick = _picking(layout, [dim.picks for dim in dims])

    def kernel(place: Place, *arrays: Any) -> Any:
        return pick(place, together(iter(arrays), counts, 0))

    return map_shards(kernel, [move_to(part, there) for part, there in parts], layout, shape)


def _cut(base: Layout, ends: Sequence[tuple[int, ...]]) -> Layout:
    cuts = [Cut(cut.axes, offsets=(0, *some)) if cut.axes else cut for cut, some in zip(base.dims, ends, strict=True)]
    return Layout(base.mesh, cuts)


def _picking(layout: Layout, picks: Sequence[Picks]) -> Callable[[Place, Any], Any]:
    def kernel(place: Place, array: Any) -> Any:
        for dim, (part, some) in enumerate(zip(layout.tile_of(place.device), picks, strict=True)):
            array = _pick(array, some[part], dim)
        return array

    return kernel


def _pick(array: Any, index: slice | np.ndarray, dim: int) -> Any:
    if isinstance(index, slice):
        return array[(*(slice(None),) * dim, index)]
    if is_torch(array):
        import torch

        return array.index_select(dim, torch.as_tensor(index, device=array.device))
    return np.take(array, index, dim)


def _surround_vjp(
    ct: Tensor, out: Tensor, x: Tensor, *, stretches: tuple[Stretches, ...], layout: Layout
) -> tuple[Tensor]:
    for dim, some in enumerate(stretches):
        if len(some) > 1:
            ct = _sum_repeats(ct, dim, some, x.shape[dim])
    return (lay_out(ct, x.layout.resolved().without_halo()),)


def _sum_repeats(ct: Tensor, dim: int, stretches: Stretches, size: int) -> Tensor:
    # Whatever is repeated gets the sum of what comes back.
    whole = tuple(size if k == dim else n for k, n in enumerate(ct.shape))
    start, terms = 0, list[Tensor]()
    for part in stretches:
        term = window(ct, index=whole_but(ct.shape, dim, Span(start, part.length)))
        start += part.length
        if part == Stretch(size, 0, 1):
            terms.append(term)
            continue
        if part.step == 0:
            term = sum_to(term, shape=tuple(1 if k == dim else n for k, n in enumerate(whole)))
        elif part.step < 0:
            term = mirror(term, dims=(dim,))
        base = cut_dim(ct.layout.resolved(), dim, Cut(ct.layout.dims[dim].axes))
        terms.append(within(term, index=whole_but(whole, dim, part.span), layout=base, shape=whole))
    return reduce(add, terms)


def _form(out: Tensor, x: Tensor, *, stretches: tuple[Stretches, ...], layout: Layout) -> Form:
    form = forms.as_form(x)
    for dim, some in enumerate(stretches):
        if len(some) > 1:
            form = forms.concat([_stretch(form, dim, part) for part in some], dim)
    return form


def _stretch(form: Form, dim: int, part: Stretch) -> Form:
    span, shape = part.span, form.shape
    starts = [span.start * (k == dim) for k in range(len(shape))]
    some = forms.take_slice(form, starts, [*shape[:dim], span.length, *shape[dim + 1 :]])
    if part.step < 0:
        return forms.reverse(some, (dim,))
    return some if part.step else forms.broadcast(some, (*shape[:dim], part.length, *shape[dim + 1 :]))


# The value with its dims made of stretches of its elements, in this layout, which cuts them by the same axes.
surround = Primitive("surround", _surround, _surround_vjp, linear=True, lower=_form)
