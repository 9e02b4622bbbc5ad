"""Convolution over one or more dims of space, which may be sharded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from shardwise.engine.storage import MOST_ELEMENTS
from shardwise.errors import ArgumentError, BindingError, as_int, as_tuple, check_ints
from shardwise.layout.placement import joint_dtype, kind_of
from shardwise.prim.arithmetic import elementwise as rows
from shardwise.prim.arithmetic.convolve import convolve
from shardwise.prim.arithmetic.slides import Convolution, Slide
from shardwise.prim.face import public
from shardwise.prim.tensor import Tensor, together

Padding = Literal["VALID", "SAME"] | Sequence[tuple[int, int]]


@public(method=True)
def conv(
    x: Any,
    w: Any,
    /,
    *,
    stride: int | Sequence[int] = 1,
    padding: Padding = "VALID",
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Return the convolution (without flipping the kernel) of `x`, of dims (batch, channel, space...), with `w`.

    `w` has the dims (channels of the result, channels of x / groups, kernel...). `padding` is "VALID", "SAME" or a
    pair of widths per dim of space. Where space is sharded, devices exchange only the edges that kernels reach over.

    >>> conv([[[1.0, 2.0, 3.0]]], [[[1.0, 1.0]]]).numpy()
    array([[[3., 5.]]])
    """
    x, w = together(x, w)
    space = x.ndim - 2
    if space not in (1, 2, 3) or w.ndim != x.ndim:
        raise BindingError(
            f"conv needs x of (batch, channel, space...) and w of (out, in, kernel...) with 1 to 3 dims of space, got "
            f"shapes {x.shape} and {w.shape}."
        )
    many = as_int(groups)
    if many is None or many < 1 or w.shape[0] % many:
        raise BindingError(f"conv: groups must divide the {w.shape[0]} channels of the result, got {groups!r}.")
    groups = many
    if x.shape[1] != w.shape[1] * groups:
        raise BindingError(
            f"conv: x has {x.shape[1]} channels, w takes {w.shape[1]} in each of {groups} groups (x {x.shape}, w "
            f"{w.shape})."
        )
    strides, dilations = _several(stride, space, "stride"), _several(dilation, space, "dilation")
    pairs = _pairs(padding, x.shape[2:], w.shape[2:], strides, dilations)
    slides: list[Slide] = []
    for size, width, step, gap, (low, high) in zip(x.shape[2:], w.shape[2:], strides, dilations, pairs, strict=True):
        span = (width - 1) * gap + 1
        if low + size + high + span >= MOST_ELEMENTS:
            raise BindingError(
                f"conv: padding {low} and {high}, or dilation {gap}, is more than a tensor has elements."
            )
        if not width:
            raise BindingError(f"conv: a kernel has at least one element, got w of shape {w.shape}.")
        slides.append(Slide(size, width, max(0, (size + low + high - span) // step + 1), step, gap, low))
    dtype = joint_dtype("conv", x.dtype, w.dtype)
    dtype = np.dtype("int8") if dtype.kind == "V" and kind_of(dtype) in "iu" else dtype
    x, w = (v if v.dtype == dtype else rows.astype(v, dtype=dtype) for v in (x, w))
    y = (x.shape[0], w.shape[0], *(slide.result for slide in slides))
    return convolve(x, w, form=Convolution(x.shape, w.shape, y, tuple(slides), groups))


def _several(sizes: int | Sequence[int], count: int, what: str) -> tuple[int, ...]:
    wanted = f"conv: {what} is a positive int, or one per dim of space ({count})"
    values = check_ints(sizes, wanted)
    values = values * count if as_int(sizes) is not None else values
    if len(values) != count or any(v < 1 for v in values):
        raise ArgumentError(f"{wanted}, got {sizes!r}.")
    return values


def _pairs(
    padding: Padding, sizes: Sequence[int], widths: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> list[tuple[int, int]]:
    if isinstance(padding, str) and padding == "VALID":
        return [(0, 0)] * len(sizes)
    if isinstance(padding, str) and padding == "SAME":
        out: list[tuple[int, int]] = []
        for size, width, step, gap in zip(sizes, widths, strides, dilations, strict=True):
            total = max(0, (-(-size // step) - 1) * step + (width - 1) * gap + 1 - size)
            out.append((total // 2, total - total // 2))
        return out
    wanted = f"conv: padding is 'VALID', 'SAME' or a pair of widths per dim of space ({len(sizes)})"
    pairs = [check_ints(as_tuple(pair, wanted), wanted) for pair in as_tuple(padding, wanted)]
    if len(pairs) != len(sizes) or any(len(pair) != 2 or min(pair) < 0 for pair in pairs):
        raise ArgumentError(f"{wanted}, got {padding!r}.")
    return [(pair[0], pair[1]) for pair in pairs]
