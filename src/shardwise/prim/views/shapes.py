"""Primitives on shapes: dims of size one, the order of dims."""

from __future__ import annotations

from shardwise.layout.cut import Cut
from shardwise.layout.layout import Shape
from shardwise.prim import forms
from shardwise.prim.dispatch.operands import fetch_operands
from shardwise.prim.dispatch.per_device import in_shape, map_shards
from shardwise.prim.kernel import transpose
from shardwise.prim.primitive import Primitive
from shardwise.prim.relayout import cut_as
from shardwise.prim.tensor import Tensor


def _expand(x: Tensor, *, at: tuple[int, ...]) -> Tensor:
    cuts, sizes = list(x.layout.dims), list(x.shape)
    for position in sorted(at):
        cuts.insert(position, Cut())
        sizes.insert(position, 1)
    return _change_shape(x, cuts, tuple(sizes))


def _squeeze(x: Tensor, *, at: tuple[int, ...]) -> Tensor:
    left = [k for k in range(x.ndim) if k not in at]
    whole = [Cut() if k in at else cut for k, cut in enumerate(x.layout.dims)]
    (x,) = fetch_operands("squeeze", [x], [cut_as(x.layout, tuple(whole))])
    cuts = [x.layout.dims[k] for k in left]
    return _change_shape(x, cuts, tuple(x.shape[k] for k in left))


def _change_shape(x: Tensor, cuts: list[Cut], shape: Shape) -> Tensor:
    # The layout follows from the operand's own, so that a tangent which is laid out otherwise is right too.
    return map_shards(in_shape, [x], cut_as(x.layout, tuple(cuts)), shape, view=True)


def _expand_vjp(ct: Tensor, out: Tensor, x: Tensor, *, at: tuple[int, ...]) -> tuple[Tensor, ...]:
    return (squeeze(ct, at=at),)


def _squeeze_vjp(ct: Tensor, out: Tensor, x: Tensor, *, at: tuple[int, ...]) -> tuple[Tensor, ...]:
    return (expand(ct, at=at),)


# The value with dims of size one at these positions of the result; and without those at these positions.
expand = Primitive("expand", _expand, _expand_vjp, linear=True, lower=forms.reshape_form)
squeeze = Primitive("squeeze", _squeeze, _squeeze_vjp, linear=True, lower=forms.reshape_form)


# -- order of dims ---------------------------------------------------------------------------------------


def _permute(x: Tensor, *, order: tuple[int, ...]) -> Tensor:
    layout = cut_as(x.layout, tuple([x.layout.dims[k] for k in order]))
    shape = tuple(x.shape[k] for k in order)
    return map_shards(lambda place, a: transpose(a, order), [x], layout, shape, view=True)


def _permute_vjp(ct: Tensor, out: Tensor, x: Tensor, *, order: tuple[int, ...]) -> tuple[Tensor, ...]:
    back = [0] * len(order)
    for new, old in enumerate(order):
        back[old] = new
    return (permute(ct, order=tuple(back)),)


def _permute_form(out: Tensor, x: Tensor, *, order: tuple[int, ...]) -> forms.Form:
    return forms.transpose(x, order)


# The value with its dims in another order.
permute = Primitive("permute_dims", _permute, _permute_vjp, linear=True, lower=_permute_form)
