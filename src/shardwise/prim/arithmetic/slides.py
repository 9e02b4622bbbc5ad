"""Slides: how the kernel of a convolution slides over space, and the loops of it that the compiler writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from shardwise.layout.layout import Shape
from shardwise.prim import forms
from shardwise.prim.forms import Form, Loops, Read
from shardwise.prim.tensor import Tensor

Interval = tuple[int, int]


class Slide(NamedTuple):
    """How a kernel of `width` slides along one dim: sizes before and after, and where it stands."""

    size: int
    width: int
    result: int
    stride: int
    dilation: int
    low: int

    def before(self, start: int, stop: int) -> Interval:
        """Return the elements that a part of the result reaches, which may lie outside."""
        first = start * self.stride - self.low
        return first, max(first, (stop - 1) * self.stride + (self.width - 1) * self.dilation + 1 - self.low)

    def after(self, start: int, stop: int) -> Interval:
        """Return the part of the result that is reached from some elements, which may be larger than it is."""
        first = -((self.dilation * (self.width - 1) - self.low - start) // self.stride)
        return first, max(first, (stop - 1 + self.low) // self.stride + 1)


@dataclass(frozen=True)
class Convolution:
    """One convolution: the shapes of x, w and y, and how the kernel slides along each dim of space."""

    x: Shape
    w: Shape
    y: Shape
    slides: tuple[Slide, ...]
    groups: int

    def loops(self, out: str) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
        """Return the loops over the dims of x, w and y, and all of them, those of one of these first: the result.

        The loops are batch, groups, channels of the result, channels, space and kernel.
        """
        count = range(len(self.slides))
        space, kernel = [f"t{k}" for k in count], [f"k{k}" for k in count]
        dims = {"x": ("n", "g", "c", *space), "w": ("g", "o", "c", *kernel), "y": ("n", "g", "o", *space)}
        return dims, tuple(dict.fromkeys([*dims[out], "n", "g", "o", "c", *space, *kernel]))


# -- as loops: sums over windows whose places are sums of loops --------------------------------------------


def convolution_form(out: Tensor, x: Tensor, w: Tensor, *, form: Convolution) -> Form:
    """Return the loops that make y of x and w."""
    dims, names = form.loops("y")
    reads = [(_split_groups(_pad(x, form), form, 1), _windows(form)), (_split_groups(w, form, 0), dims["w"])]
    return _sum_products(out, form, 1, names, reads)


def correlation_form(out: Tensor, x: Tensor, y: Tensor, *, form: Convolution) -> Form:
    """Return the loops that make w of x and y."""
    dims, names = form.loops("w")
    reads = [(_split_groups(_pad(x, form), form, 1), _windows(form)), (_split_groups(y, form, 1), dims["y"])]
    return _sum_products(out, form, 0, names, reads)


def deconvolution_form(out: Tensor, w: Tensor, y: Tensor, *, form: Convolution) -> Form:
    """Return the loops that make x of w and y.

    An element of x is reached from places of y that lie a multiple of the dilation before it: y is laid out with zeros
    between its elements, so that these places are a window too.
    """
    sizes, offsets, starts, counts = list[int](), list[int](), list[int](), list[int]()
    at: list[str] = []
    for k, slide in enumerate(form.slides):
        reach = (slide.width - 1) * slide.dilation
        first = reach - slide.low  # where the first element of y would come
        skip = max(0, -(first // slide.stride)) if first < 0 else 0
        begin = first + skip * slide.stride
        size = slide.size + reach
        sizes.append(size)
        starts.append(skip)
        counts.append(max(0, min(slide.result - skip, -(-(size - begin) // slide.stride))))
        offsets.append(min(begin, size))
        at.append(f"t{k} - k{k} * {slide.dilation} + {reach}")
    some = forms.take_slice(y, [0, 0, *starts], [*form.y[:2], *counts])
    room = forms.full((*form.y[:2], *sizes), 0, y.dtype)
    wide = forms.place(some, room, [0, 0, *offsets], [1, 1, *(slide.stride for slide in form.slides)])
    dims, names = form.loops("x")
    reads = [(_split_groups(w, form, 0), dims["w"]), (_split_groups(wide, form, 1), ("n", "g", "o", *at))]
    return _sum_products(out, form, 1, names, reads)


def _split_groups(x: Tensor | Form, form: Convolution, dim: int) -> Form:
    return forms.reshape(x, _with_groups(x.shape, form, dim))


def _with_groups(shape: Shape, form: Convolution, dim: int) -> Shape:
    return (*shape[:dim], form.groups, shape[dim] // form.groups, *shape[dim + 1 :])


def _sum_products(
    out: Tensor, form: Convolution, dim: int, names: tuple[str, ...], reads: list[tuple[Form, tuple[str, ...]]]
) -> Form:
    both = tuple([Read(x, at, out.dtype) for x, at in reads])
    return forms.reshape(Loops(_with_groups(out.shape, form, dim), out.dtype, names, both, "total + x * y"), out.shape)


def _pad(x: Tensor, form: Convolution) -> Form:
    # x with zeros around it, so that every window lies inside.
    low = [slide.low for slide in form.slides]
    last = [(s.result - 1) * s.stride + (s.width - 1) * s.dilation + 1 for s in form.slides]
    sizes = [max(a + s.size, b) for a, s, b in zip(low, form.slides, last, strict=True)]
    shape = (*form.x[:2], *sizes)
    return forms.as_form(x) if shape == form.x else forms.place(x, forms.full(shape, 0, x.dtype), [0, 0, *low])


def _windows(form: Convolution) -> tuple[str, ...]:
    space = [f"t{k} * {slide.stride} + k{k} * {slide.dilation}" for k, slide in enumerate(form.slides)]
    return ("n", "g", "c", *space)
