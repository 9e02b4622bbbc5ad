"""Convolution, and its adjoints: the three ways to leave one of three values out of one form.

    form(x, w, y) = sum over n, o, c, t, k of  x[n, c, t*stride + k*dilation - low] * w[o, c, k] * y[n, o, t]

`convolve` gives what y is multiplied with, `deconvolve` what x is and `correlate` what w is. Each is linear in both
operands and its derivatives are the other two. Where space is sharded, a device holds the part of the operand that
its part of the result reaches: its own and a halo, which comes from its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, product
from math import prod
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from shardwise.caches import cache
from shardwise.engine.arrays import cast, dtype_of, is_low, is_torch
from shardwise.engine.job import RESULT
from shardwise.layout.cut import Cut
from shardwise.layout.layout import Shape
from shardwise.layout.placement import ReduceOp
from shardwise.layout.tiling import Box, DimTiling
from shardwise.prim.arithmetic.elementwise import tangent_of_product
from shardwise.prim.arithmetic.slides import (
    Convolution,
    Interval,
    convolution_form,
    correlation_form,
    deconvolution_form,
)
from shardwise.prim.dispatch.decision import row_of_work
from shardwise.prim.kernel import in_room, makes_products, zeros
from shardwise.prim.primitive import Cotangents, Primitive, needs_others
from shardwise.prim.rule import Cuts, Rule
from shardwise.prim.tensor import Tensor
from shardwise.prim.views.reshaping import reshape
from shardwise.prim.work import Work


def reaching(cut: Cut, size: int, wanted: list[Interval]) -> Cut:
    """Return the cut, with a halo, of a dim of `size` in which each part holds an interval that it wants.

    Without such a cut, because a part would reach over its neighbour, the dim is whole.

    >>> reaching(Cut("x"), 8, [(-1, 5), (3, 9)])
    Cut('x', offsets=(0, 3, 8), halo=(0, 2))
    """
    starts = [0, *(min(size, max(0, low)) for low, _ in wanted[1:]), size]
    wide = max([0, *(min(size, high) - start for (_, high), start in zip(wanted, starts[1:-1], strict=False))])
    if wide and min(b - a for a, b in pairwise(starts[1:])) < wide:
        return Cut()
    return Cut(cut.axes, offsets=starts, halo=(0, wide))


@dataclass(frozen=True)
class Reached:
    """The cuts of a convolution or one of its adjoints; `missing` says which of x, w and y is made of the others."""

    form: Convolution
    missing: str

    @property
    def shape(self) -> Shape:
        """The shape of the result."""
        return getattr(self.form, self.missing)

    @property
    def places(self) -> int:
        """The products that the sums are made of: a window of every group for each element of y."""
        return prod(self.form.y) * prod(self.form.w[1:])

    def cuts(self, operands: Any, out: Cuts) -> tuple[Any, Cuts] | None:
        """Return the cuts that operands and result really have, or None if groups would be torn apart."""
        known = dict(zip((c for c in "xwy" if c != self.missing), operands, strict=True)) | {self.missing: out}
        if self.form.groups > 1 and self.form.groups % prod([a.size for a in known["y"][1].axes]):
            return None
        space = [self._space(k, known) for k in range(len(self.form.slides))]
        cuts = {
            "x": [*_channels(known["x"]), *(x for x, _ in space)],
            "w": [*_channels(known["w"]), *[Cut()] * len(space)],
            "y": [*_channels(known["y"]), *(y for _, y in space)],
        }
        return [cuts[c] for c in "xwy" if c != self.missing], cuts[self.missing]

    def _space(self, k: int, known: dict[str, Cuts]) -> tuple[Cut, Cut]:
        slide, cut = self.form.slides[k], known["x"][2 + k]
        if not cut.axes:
            return Cut(), Cut()
        plain, parts = Cut(cut.axes), prod([a.size for a in cut.axes])
        if self.missing == "x":
            own = [DimTiling(slide.size, parts).interval(i) for i in range(parts)]
            return plain, reaching(cut, slide.result, [slide.after(*part) for part in own])
        own = [DimTiling(slide.result, parts).interval(i) for i in range(parts)]
        return reaching(cut, slide.size, [slide.before(*part) for part in own]), plain


def _channels(cuts: Cuts) -> list[Cut]:
    return [Cut(cut.axes) for cut in cuts[:2]]


@cache(entries=1024)
def _rule(form: Convolution, missing: str) -> Rule:
    space = tuple(f"s{k}" for k in range(len(form.slides)))
    window = (None,) * len(space)
    if form.groups == 1:
        dims = {"x": ("n", "c", *space), "w": ("o", "c", *window), "y": ("n", "o", *space)}
    else:  # every group by itself, so one factor for the channels of all
        dims = {"x": ("n", "g", *space), "w": ("g", None, *window), "y": ("n", "g", *space)}
    operands, out = tuple(dims[c] for c in "xwy" if c != missing), dims[missing]
    factors = dict.fromkeys(f for some in operands for f in some if f is not None)
    reduced = tuple((f, ReduceOp.SUM) for f in factors if f not in out)
    return Rule(operands, out, reduced, linear="each", reach=Reached(form, missing))


# -- kernels -------------------------------------------------------------------------------------------


def _cut_out(array: Any, own: list[Interval], wanted: list[Interval]) -> Any:
    # The part of an array that is wanted, with zeros where it is outside; channels first, then space.
    pairs = zip(wanted, own, strict=True)
    inside = [(max(a, start), max(a, start, min(b, stop))) for (a, b), (start, stop) in pairs]
    at = tuple(slice(a - start, b - start) for (a, b), (start, _) in zip(inside, own, strict=True))
    part = array[(slice(None), slice(None), *at)]
    if inside == wanted:
        return part
    out = zeros(array, (*array.shape[:2], *(b - a for a, b in wanted)))
    spots = tuple(slice(a - low, b - low) for (a, b), (low, _) in zip(inside, wanted, strict=True))
    out[(slice(None), slice(None), *spots)] = part
    return out


def _positions(form: Convolution) -> Any:
    return product(*(range(slide.width) for slide in form.slides))


def _group(array: Any, dim: int, groups: int, k: int) -> Any:
    size = array.shape[dim] // groups
    return array[(*(slice(None),) * dim, slice(k * size, (k + 1) * size))]


def _each_group(kernel: Any, groups: int, first: Any, second: Any, dims: tuple[int, int], out: int) -> Any:
    if groups == 1:
        return kernel(first, second)
    parts = [kernel(_group(first, dims[0], groups, k), _group(second, dims[1], groups, k)) for k in range(groups)]
    return array_namespace(first).concat(parts, axis=out)


def _local_groups(form: Convolution, channels: int) -> int:
    # A device that has only some of the channels has as many of the groups.
    return max(1, form.groups * channels // form.y[1]) if form.groups > 1 else 1


def _round_once(kernel: Any, first: Any, second: Any, count: int, own: bool = True) -> Any:
    # What a kernel makes of arrays by adding up `count` products, each sum of small floats rounded once. With `own`, a
    # library makes whole sums, and may round them itself.
    if not is_low(dtype_of(first)) or (own and makes_products([first, second], count)):
        return kernel(first, second)
    wide, dtype = in_room([first, second], count)
    return cast(kernel(*wide), dtype)


def _convolve(x: Tensor, w: Tensor, *, form: Convolution) -> Work:
    def kernel(x_box: Box, box: Box, a: Any, b: Any) -> Any:
        shape = tuple(stop - start for start, stop in box)
        if 0 in shape:
            return zeros(a, shape)
        wanted = [slide.before(*part) for slide, part in zip(form.slides, box[2:], strict=True)]
        groups = _local_groups(form, shape[1])
        part, valid = _cut_out(a, list(x_box[2:]), wanted), partial(_valid, sizes=shape[2:], form=form, groups=groups)
        return _round_once(valid, part, b, prod(b.shape[1:]))

    return Work("conv", kernel, _rule(form, "y"), [x, w], located=(0, RESULT), dtype=x.dtype)


def _valid(x: Any, w: Any, sizes: Shape, form: Convolution, groups: int) -> Any:
    strides, dilations = ([getattr(slide, name) for slide in form.slides] for name in ("stride", "dilation"))
    if is_torch(x):
        import torch

        function = getattr(torch.nn.functional, f"conv{len(sizes)}d")
        return function(x, w, stride=tuple(strides), dilation=tuple(dilations), groups=groups)
    space = x.strides[2:]
    shape = (*x.shape[:2], *sizes, *w.shape[2:])
    steps = [s * n for s, n in zip(space, strides, strict=True)], [s * n for s, n in zip(space, dilations, strict=True)]
    bits = x if x.dtype.isbuiltin == 1 else x.view(f"u{x.itemsize}")  # NumPy cannot stride over what it does not know
    windows = np.lib.stride_tricks.as_strided(bits, shape, (*x.strides[:2], *steps[0], *steps[1]), writeable=False)
    windows = windows.view(x.dtype)
    count = len(sizes)
    summed = [1, *range(2 + count, 2 + 2 * count)], [1, *range(2, 2 + count)]

    def one(a: Any, b: Any) -> Any:
        return np.moveaxis(np.tensordot(a, b, axes=summed), -1, 1)

    return np.ascontiguousarray(_each_group(one, groups, windows, w, (1, 0), 1))


def _deconvolve(w: Tensor, y: Tensor, *, form: Convolution) -> Work:
    def kernel(y_box: Box, box: Box, b: Any, c: Any) -> Any:
        shape = tuple(stop - start for start, stop in box)
        if 0 in shape:
            return zeros(c, shape)
        wanted = [slide.after(*part) for slide, part in zip(form.slides, box[2:], strict=True)]
        part = _cut_out(c, list(y_box[2:]), wanted)
        groups = _local_groups(form, c.shape[1])

        def spread(y: Any, w: Any) -> Any:
            return _spread(w, y, wanted, box, form)

        def multiply(p: Any, q: Any) -> Any:
            return _each_group(spread, groups, p, q, (1, 0), 1)

        return _round_once(multiply, part, b, prod(b.shape), own=False)

    return Work("conv", kernel, _rule(form, "x"), [w, y], located=(1, RESULT), dtype=y.dtype)


def _spread(w: Any, y: Any, part: list[Interval], box: Box, form: Convolution) -> Any:
    # Every place of the kernel adds its multiple of y to every stride-th element of x.
    xp = array_namespace(y)
    reached = [slide.before(*p) for slide, p in zip(form.slides, part, strict=True)]
    ends = [(min(a, start), max(b, stop)) for (a, b), (start, stop) in zip(reached, box[2:], strict=True)]
    out = zeros(y, (y.shape[0], w.shape[1], *(b - a for a, b in ends)))
    for place in _positions(form):
        term = xp.moveaxis(xp.tensordot(y, w[(slice(None), slice(None), *place)], axes=((1,), (0,))), -1, 1)
        at = [
            slice(start + k * slide.dilation, start + k * slide.dilation + (q - p - 1) * slide.stride + 1, slide.stride)
            if q > p
            else slice(0, 0)
            for slide, k, (p, q), (a, _), (low, _) in zip(form.slides, place, part, reached, ends, strict=True)
            for start in [a - low]
        ]
        out[(slice(None), slice(None), *at)] += term
    cut = [slice(start - low, stop - low) for (start, stop), (low, _) in zip(box[2:], ends, strict=True)]
    return out[(slice(None), slice(None), *cut)]


def _correlate(x: Tensor, y: Tensor, *, form: Convolution) -> Work:
    def kernel(x_box: Box, y_box: Box, box: Box, a: Any, c: Any) -> Any:
        shape = tuple(stop - start for start, stop in box)
        if 0 in c.shape or 0 in shape:
            return zeros(a, shape)
        wanted = [slide.before(*part) for slide, part in zip(form.slides, y_box[2:], strict=True)]
        part, groups = _cut_out(a, list(x_box[2:]), wanted), _local_groups(form, c.shape[1])

        def multiply(p: Any, q: Any) -> Any:
            return _each_group(partial(_match_windows, form=form), groups, p, q, (1, 1), 0)

        return _round_once(multiply, part, c, prod(c.shape) // c.shape[1])

    return Work("conv", kernel, _rule(form, "w"), [x, y], located=(0, 1, RESULT), dtype=x.dtype)


def _match_windows(x: Any, y: Any, form: Convolution) -> Any:
    xp = array_namespace(x)
    summed = (0, *range(2, y.ndim))
    terms: list[Any] = []
    for place in _positions(form):
        at = [
            slice(k * slide.dilation, k * slide.dilation + (size - 1) * slide.stride + 1, slide.stride)
            for slide, k, size in zip(form.slides, place, y.shape[2:], strict=True)
        ]
        terms.append(xp.tensordot(y, x[(slice(None), slice(None), *at)], axes=(summed, summed)))
    return xp.reshape(xp.stack(terms, axis=-1), (y.shape[1], x.shape[1], *form.w[2:]))


# -- rows ----------------------------------------------------------------------------------------------


Adjoint = Callable[[Tensor, Tensor, Tensor, Convolution], Tensor]  # of the cotangent and the operands


def _row(name: str, work: Callable[..., Work], first: Adjoint, second: Adjoint) -> Primitive:
    def vjp(ct: Tensor, out: Tensor, a: Tensor, b: Tensor, *, form: Convolution) -> Cotangents:
        return partial(first, ct, a, b, form), partial(second, ct, a, b, form)

    def jvp(tangents: Any, out: Tensor, *operands: Tensor, form: Convolution) -> Tensor:
        return tangent_of_product(row, tangents, operands, {"form": form})

    missing, lower = {
        "convolve": ("y", convolution_form),
        "deconvolve": ("x", deconvolution_form),
        "correlate": ("w", correlation_form),
    }[name]
    batch = partial(_batch, missing=missing)
    row = row_of_work(name, work, vjp, jvp, batch=batch, needs=needs_others, effort=2, lower=lower)
    return row


def _batch(row: Primitive, lead: Any, mapped: Any, operands: Any, params: Any, missing: str) -> Tensor:
    # One kernel for all places of leading dims: those are part of the batch. Otherwise they are groups, each with a
    # kernel of its own.
    form, names, many = params["form"], [c for c in "xwy" if c != missing], prod(lead.sizes)
    known = dict(zip(names, zip(operands, mapped, strict=True), strict=True))
    if "w" in known and not known["w"][1]:
        first, shapes = 0, {"x": (many * form.x[0], *form.x[1:]), "w": form.w, "y": (many * form.y[0], *form.y[1:])}
        new = replace(form, x=shapes["x"], y=shapes["y"])
        ready = [x if c == "w" else reshape(x, shape=shapes[c]) for c, (x, _) in known.items()]
    else:
        first, shapes = 1, {c: (s[0], many * s[1], *s[2:]) for c, s in (("x", form.x), ("y", form.y))}
        shapes["w"] = (many * form.w[0], *form.w[1:])
        new = Convolution(shapes["x"], shapes["w"], shapes["y"], form.slides, form.groups * many)
        ready: list[Tensor] = []
        for c, x in zip(names, lead.spread_all(mapped, operands), strict=True):
            ready.append(reshape(x if c == "w" else lead.behind(x, 1), shape=shapes[c]))
    out, own = row(*ready, form=new), getattr(form, missing)
    if missing == "w" or not first:
        return reshape(out, shape=(*lead.sizes, *own))
    return lead.in_front(reshape(out, shape=(own[0], *lead.sizes, *own[1:])), 1)


convolve: Primitive = _row(
    "convolve",
    _convolve,
    lambda ct, x, w, form: deconvolve(w, ct, form=form),
    lambda ct, x, w, form: correlate(x, ct, form=form),
)
deconvolve: Primitive = _row(
    "deconvolve",
    _deconvolve,
    lambda ct, w, y, form: correlate(ct, y, form=form),
    lambda ct, w, y, form: convolve(ct, w, form=form),
)
correlate: Primitive = _row(
    "correlate",
    _correlate,
    lambda ct, x, y, form: deconvolve(ct, y, form=form),
    lambda ct, x, y, form: convolve(x, ct, form=form),
)
