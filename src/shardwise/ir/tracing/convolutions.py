"""Convolution and its adjoints as structured ops: sums over windows whose places are sums of loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from xdsl.dialects import arith
from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineExpr

from shardwise.ir.tracing.emitter import Emitter
from shardwise.ir.types import shape_of
from shardwise.prim.bind import Node

Operands = Sequence[SSAValue]


class _Loops:
    """The loops of one convolution: batch, groups, channels of the result, channels, space and kernel."""

    def __init__(self, form: Any, out: str) -> None:
        count = len(form.slides)
        letters = [*"ngoc", *(f"t{k}" for k in range(count)), *(f"k{k}" for k in range(count))]
        space, kernel = letters[4 : 4 + count], letters[4 + count :]
        self.dims = {"x": [*"ngc", *space], "w": [*"goc", *kernel], "y": [*"ngo", *space]}
        # Loops of the result first, in its order; the others are summed.
        self.order = [*self.dims[out], *(letter for letter in letters if letter not in self.dims[out])]
        self.space, self.kernel, self.out = space, kernel, self.dims[out]

    def of(self, name: str) -> list[AffineExpr]:
        """Return the index of each dim of an operand that has one loop per dim."""
        return [self.loop(letter) for letter in self.dims[name]]

    def loop(self, letter: str) -> AffineExpr:
        """Return one loop."""
        return AffineExpr.dimension(self.order.index(letter))


def _split_groups(e: Emitter, value: SSAValue, groups: int, dim: int) -> SSAValue:
    shape = shape_of(value)
    return e.reshape(value, (*shape[:dim], groups, shape[dim] // groups, *shape[dim + 1 :]))


def _sum_products(
    e: Emitter, node: Node, loops: _Loops, inputs: Sequence[SSAValue], maps: Sequence[Any], shape: Sequence[int]
) -> SSAValue:
    assert node.out is not None
    dtype: np.dtype = node.out.dtype
    multiply, add = (arith.MuliOp, arith.AddiOp) if dtype.kind in "iu" else (arith.MulfOp, arith.AddfOp)

    def body(inner: Emitter, xs: Sequence[SSAValue]) -> SSAValue:
        return inner.add(add(xs[2], inner.add(multiply(xs[0], xs[1]))))

    init = e.full(tuple(shape), 0, dtype)
    made = e.generic(inputs, maps, init, range(len(loops.out)), len(loops.order), body)
    return e.reshape(made, node.out.shape)


def _pad(e: Emitter, x: SSAValue, form: Any, dtype: np.dtype) -> SSAValue:
    # x with zeros around it, so that every window lies inside.
    low = [slide.low for slide in form.slides]
    last = [(s.result - 1) * s.stride + (s.width - 1) * s.dilation + 1 for s in form.slides]
    sizes = [max(a + s.size, b) for a, s, b in zip(low, form.slides, last, strict=True)]
    shape = (*form.x[:2], *sizes)
    if shape == form.x:
        return x
    return e.place(x, e.full(shape, 0, dtype), [0, 0, *low], form.x)


def _windows(loops: _Loops, form: Any) -> list[AffineExpr]:
    places = zip(loops.space, loops.kernel, form.slides, strict=True)
    return [loops.loop(t) * slide.stride + loops.loop(k) * slide.dilation for t, k, slide in places]


def _convolve(e: Emitter, node: Node, operands: Operands) -> SSAValue:
    form, loops = node.params["form"], _Loops(node.params["form"], "y")
    x = _split_groups(e, _pad(e, operands[0], form, node.operands[0].dtype), form.groups, 1)
    w = _split_groups(e, operands[1], form.groups, 0)
    maps = [[*loops.of("x")[:3], *_windows(loops, form)], loops.of("w")]
    shape = (form.y[0], form.groups, form.y[1] // form.groups, *form.y[2:])
    return _sum_products(e, node, loops, [x, w], maps, shape)


def _correlate(e: Emitter, node: Node, operands: Operands) -> SSAValue:
    form, loops = node.params["form"], _Loops(node.params["form"], "w")
    x = _split_groups(e, _pad(e, operands[0], form, node.operands[0].dtype), form.groups, 1)
    y = _split_groups(e, operands[1], form.groups, 1)
    maps = [[*loops.of("x")[:3], *_windows(loops, form)], loops.of("y")]
    shape = (form.groups, form.w[0] // form.groups, *form.w[1:])
    return _sum_products(e, node, loops, [x, y], maps, shape)


def _deconvolve(e: Emitter, node: Node, operands: Operands) -> SSAValue:
    # An element of x is reached from places of y that lie a multiple of the dilation before it: y is laid out with
    # zeros between its elements, so that these places are a window too.
    form, loops = node.params["form"], _Loops(node.params["form"], "x")
    spread, offsets, starts, counts = [], [], [], []
    for slide in form.slides:
        reach = (slide.width - 1) * slide.dilation
        first = reach - slide.low  # where the first element of y would come
        skip = max(0, -(first // slide.stride)) if first < 0 else 0
        begin = first + skip * slide.stride
        room = slide.size + reach
        spread.append(room)
        starts.append(skip)
        counts.append(max(0, min(slide.result - skip, -(-(room - begin) // slide.stride))))
        offsets.append(min(begin, room))
    dtype = node.operands[1].dtype
    some = e.slice(operands[1], [0, 0, *starts], [*form.y[:2], *counts])
    strides = [1, 1, *(slide.stride for slide in form.slides)]
    wide = e.place(some, e.full((*form.y[:2], *spread), 0, dtype), [0, 0, *offsets], [*form.y[:2], *counts], strides)
    w, y = _split_groups(e, operands[0], form.groups, 0), _split_groups(e, wide, form.groups, 1)
    places = zip(loops.space, loops.kernel, form.slides, strict=True)
    back = [
        loops.loop(t) - loops.loop(k) * slide.dilation + (slide.width - 1) * slide.dilation for t, k, slide in places
    ]
    maps = [loops.of("w"), [*loops.of("y")[:3], *back]]
    shape = (form.x[0], form.groups, form.x[1] // form.groups, *form.x[2:])
    return _sum_products(e, node, loops, [w, y], maps, shape)


CONVOLUTIONS: dict[str, Callable[[Emitter, Node, Operands], SSAValue]] = {
    "convolve": _convolve,
    "correlate": _correlate,
    "deconvolve": _deconvolve,
}
