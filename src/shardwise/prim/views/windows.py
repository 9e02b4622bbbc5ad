"""Windows: every so many elements of a dim, and their place in a larger value.

A window is taken shard by shard: each device keeps what it has of it, so nothing moves, and the result is cut
where the shards happened to end. Bringing it into another layout then moves only what changes device.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from shardwise.caches import cache
from shardwise.engine.execute import Program, program_of
from shardwise.engine.storage import Region, storage_of
from shardwise.layout.axis import is_disjoint
from shardwise.layout.cut import Cut
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.placement import ReduceOp
from shardwise.layout.tiling import Box
from shardwise.plan.plan import plan_reshard
from shardwise.prim import forms
from shardwise.prim.dispatch.operands import fetch_operands
from shardwise.prim.dispatch.per_device import Place, map_shards
from shardwise.prim.forms import Form
from shardwise.prim.kernel import zeros
from shardwise.prim.primitive import Primitive
from shardwise.prim.relayout import relayout
from shardwise.prim.tensor import Tensor, move_to
from shardwise.prim.views.spans import Index, Span

SMALL = 1 << 15  # bytes below which what a call costs counts more than what is copied


@cache()
def window_layout(layout: Layout, shape: Shape, index: Index) -> Layout:
    """Return the layout in which devices hold what they already have of a window.

    >>> from shardwise import DeviceMesh, P
    >>> window_layout(P("x").to_layout(1, DeviceMesh((2,), ("x",))), (8,), (Span(1, 4),))
    Layout(mesh(x=2), [Cut('x', offsets=(0, 3, 4))])
    """
    dims: list[Cut] = []
    for cut, dim, span in zip(layout.dims, layout.tiling(shape).dims, index, strict=True):
        if not cut.axes or span == Span(0, dim.size):
            dims.append(cut)
            continue
        ends = [span.below(dim.interval(part)[1]) for part in range(dim.parts)]
        dims.append(Cut(cut.axes, offsets=(0, *ends)))
    return Layout(layout.mesh, dims, layout.partial, layout.reduce_op or "sum")


def _window(x: Tensor, *, index: Index) -> Tensor:
    x = move_to(x, x.layout.without_halo())
    layout, shape = window_layout(x.layout, x.shape, index), tuple([span.length for span in index])
    spots = _spots(x.layout, x.shape, index)

    def kernel(place: Place, array: Any) -> Any:
        spot = spots.get(place.device)
        if spot is None:
            spot = spots[place.device] = local_slices(index, place.box, x.layout.box(x.shape, place.device))
        return array[spot]

    return map_shards(kernel, [x], layout, shape, view=True)


@cache()
def _spots(layout: Layout, shape: Shape, index: Index) -> dict[int, tuple[Any, ...]]:
    # By device, where its part of a window lies in its array: filled as devices ask.
    return {}


@cache()
def cutting(src: Layout, dst: Layout, shape: Shape, index: Index, dtype: np.dtype) -> Program | None:
    """Return the program that takes a window and brings it into a layout in one go, if that is one round of copies.

    Instead of views of the window, of which parts are copied, it copies parts of the arrays themselves.
    """
    here = window_layout(src, shape, index)
    plan = plan_reshard(here, dst, tuple([span.length for span in index]), dtype)
    program = program_of(plan)
    if src.has_halo or len(program.stages) != 1 or program.picks is not None:
        return None
    (stage,), own = program.stages, storage_of(src, shape)
    if stage.size >= SMALL or stage.picks is not None or not stage.is_joined:
        return None
    spots = [
        local_slices(index, part, box) for part, box in zip(storage_of(here, plan.shape).boxes, own.boxes, strict=True)
    ]
    joins = tuple(
        join._replace(terms=tuple((i, inside(spots[i], where)) for i, where in join.terms)) for join in stage.joins
    )
    takes = tuple(take._replace(region=inside(spots[take.source], take.region)) for take in stage.takes)
    stage = replace(stage, before=own, joins=joins, takes=takes, is_small=True)
    return Program(program.target, dtype, own_stages=(stage,))


def inside(outer: Region, inner: Region) -> Region:
    """Return where a region of a region of an array lies in the array.

    >>> inside((slice(1, 8, 2), ...), (slice(1, 3), ...))
    (slice(3, 6, 2), Ellipsis)
    """
    if not inner:
        return outer
    out: list[slice] = []
    for a, b in zip(outer[:-1], inner[:-1], strict=True):
        step, start = a.step or 1, a.start + b.start * (a.step or 1)
        out.append(slice(start, start + (b.stop - b.start - 1) * step + 1, step) if b.stop > b.start else slice(0, 0))
    return (*out, ...)


def local_slices(index: Index, part: Box, own: Box) -> tuple[Any, ...]:
    """Return where the part of a window that a device has lies in its array of the whole."""
    out: list[Any] = []
    for span, (first, last), (start, _) in zip(index, part, own, strict=True):
        begin = span.start + first * span.step - start
        out.append(slice(begin, begin + (last - first - 1) * span.step + 1, span.step) if last > first else slice(0, 0))
    return (*out, ...)


def _window_vjp(ct: Tensor, out: Tensor, x: Tensor, *, index: Index) -> tuple[Tensor, ...]:
    return (within(ct, index=index, layout=x.layout.resolved().without_halo(), shape=x.shape),)


def _within(y: Tensor, *, index: Index, layout: Layout, shape: Shape) -> Tensor:
    sums = y.layout.reduce_op in (ReduceOp.SUM, ReduceOp.AVG) and is_disjoint(y.layout.partial, layout.sharded_axes)
    if sums and y.mesh is layout.mesh:
        layout = Layout(layout.mesh, layout.dims, y.layout.partial, y.layout.reduce_op or "sum")
    small = window_layout(layout, shape, index)
    (y,) = fetch_operands("x.at[...].add", [y], [small])
    window = tuple(span.length for span in index)

    def kernel(place: Place, array: Any) -> Any:
        out = zeros(array, place.shape)
        out[local_slices(index, small.box(window, place.device), place.box)] = array
        return out

    return map_shards(kernel, [y], layout, shape)


def _within_vjp(ct: Tensor, out: Tensor, y: Tensor, *, index: Index, **_: Any) -> tuple[Tensor, ...]:
    return (relayout(window(ct, index=index), layout=y.layout.resolved()),)


def _window_form(out: Tensor, x: Tensor, *, index: Index) -> Form:
    starts, sizes, steps = zip(*index, strict=True) if index else ((), (), ())
    return forms.take_slice(x, starts, sizes, steps)


def _within_form(out: Tensor, y: Tensor, *, index: Index, layout: Layout, shape: Shape) -> Form:
    starts, steps = [span.start for span in index], [span.step for span in index]
    return forms.place(y, forms.full(shape, 0, y.dtype), starts, steps)


# The elements of a window, each on the device that has it; and a value as the window of one that is zero elsewhere.
window = Primitive("window", _window, _window_vjp, linear=True, lower=_window_form)
within = Primitive("within", _within, _within_vjp, linear=True, lower=_within_form)
