"""Joins: values side by side along a dim, and constants around a value; only what changes device moves."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from array_api_compat import array_namespace

from shardwise.layout.layout import Layout, Shape
from shardwise.prim import forms
from shardwise.prim.dispatch.operands import fetch_operands
from shardwise.prim.dispatch.per_device import Place, map_shards
from shardwise.prim.kernel import full
from shardwise.prim.movement.parts import fill_tangents, join_form
from shardwise.prim.primitive import Primitive, needs_nothing
from shardwise.prim.relayout import lay_out
from shardwise.prim.tensor import Tensor
from shardwise.prim.views.spans import Index, Span, whole_but
from shardwise.prim.views.windows import window, window_layout

Widths = tuple[tuple[int, int], ...]  # before and after, per dim


def joined_shape(shapes: list[Shape], dim: int) -> Shape:
    """Return the shape of values side by side along a dim.

    >>> joined_shape([(2, 3), (2, 4)], 1)
    (2, 7)
    """
    return tuple(sum(shape[k] for shape in shapes) if k == dim else size for k, size in enumerate(shapes[0]))


def spans_along(shapes: list[Shape], dim: int) -> list[Index]:
    """Return where values side by side along a dim lie in what they make."""
    whole = joined_shape(shapes, dim)
    starts = accumulate((shape[dim] for shape in shapes), initial=0)
    return [whole_but(whole, dim, Span(start, shape[dim])) for start, shape in zip(starts, shapes, strict=False)]


def _concat(*parts: Tensor, dim: int, layout: Layout) -> Tensor:
    shapes = [part.shape for part in parts]
    shape = joined_shape(shapes, dim)
    ready = fetch_operands("concat", parts, [window_layout(layout, shape, index) for index in spans_along(shapes, dim)])

    def kernel(place: Place, *arrays: Any) -> Any:
        return array_namespace(*arrays).concat(arrays, axis=dim)

    return map_shards(kernel, ready, layout, shape)


def _concat_vjp(ct: Tensor, out: Tensor, *parts: Tensor, dim: int, layout: Layout) -> tuple[Tensor, ...]:
    indices = spans_along([part.shape for part in parts], dim)
    return tuple(
        lay_out(window(ct, index=index), part.layout.resolved().without_halo())
        for part, index in zip(parts, indices, strict=True)
    )


def _concat_jvp(tangents: Any, out: Tensor, *parts: Tensor, dim: int, layout: Layout) -> Tensor:
    return concat(*fill_tangents(tangents, parts), dim=dim, layout=layout.resolved())


# Values of one dtype side by side along a dim, in this layout.
concat = Primitive("concat", _concat, _concat_vjp, _concat_jvp, needs=needs_nothing, lower=join_form)


# -- padding -------------------------------------------------------------------------------------------


def padded_shape(shape: Shape, widths: Widths) -> Shape:
    """Return the shape of a value with constants around it.

    >>> padded_shape((2, 3), ((1, 1), (0, 2)))
    (4, 5)
    """
    return tuple(low + size + high for size, (low, high) in zip(shape, widths, strict=True))


def _inner(shape: Shape, widths: Widths) -> Index:
    return tuple(Span(low, size) for size, (low, _) in zip(shape, widths, strict=True))


def _pad(x: Tensor, *, widths: Widths, value: Any, layout: Layout) -> Tensor:
    shape, index = padded_shape(x.shape, widths), _inner(x.shape, widths)
    small = window_layout(layout, shape, index)

    def kernel(place: Place, array: Any) -> Any:
        out = full(array, place.shape, value)
        own = small.box(x.shape, place.device)
        spots = zip(index, own, place.box, strict=True)
        at = [slice(span.start + a - start, span.start + b - start) for span, (a, b), (start, _) in spots]
        if all(a < b for a, b in own):
            out[(*at, ...)] = array
        return out

    return map_shards(kernel, fetch_operands("pad", [x], [small]), layout, shape)


def _pad_vjp(ct: Tensor, out: Tensor, x: Tensor, *, widths: Widths, value: Any, layout: Layout) -> tuple[Tensor, ...]:
    back = window(ct, index=_inner(x.shape, widths))
    return (lay_out(back, x.layout.resolved().without_halo()),)


def _pad_jvp(tangents: Any, out: Tensor, x: Tensor, *, widths: Widths, value: Any, layout: Layout) -> Tensor:
    return pad(tangents[0], widths=widths, value=0, layout=layout.resolved())


def _pad_form(out: Tensor, x: Tensor, *, widths: Widths, value: Any, layout: Layout) -> forms.Form:
    return forms.place(x, forms.full(out.shape, value, out.dtype), [low for low, _ in widths])


# The value with a constant around it, in this layout.
pad = Primitive("pad", _pad, _pad_vjp, _pad_jvp, needs=needs_nothing, lower=_pad_form)
