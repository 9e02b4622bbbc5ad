"""The primitives that keep a triangle of matrices: zeros below or above a diagonal."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace

from shardwise.prim.dispatch.per_device import Place, map_shards
from shardwise.prim.forms import Form, Loops, Read, as_form, loops_of
from shardwise.prim.primitive import Cotangents, Primitive
from shardwise.prim.tensor import Tensor

# Zeros take the place of all contributions to an element or of none, so any pending reduction passes through.


def _triangle(name: str, sign: str) -> Primitive:
    def run(x: Tensor, *, k: int) -> Tensor:
        def kernel(place: Place, array: Any) -> Any:
            (top, _), (left, _) = place.box[-2:]
            return getattr(array_namespace(array), name)(array, k=k + top - left)

        return map_shards(kernel, [x], x.layout, x.shape)

    def form(out: Tensor, x: Tensor, *, k: int) -> Form:
        names = loops_of(x.ndim)
        body = f"where({names[-1]} {sign} {names[-2]} + {k}, x, 0)"
        return Loops(x.shape, x.dtype, names, (Read(as_form(x), names, x.dtype),), body)

    def vjp(ct: Tensor, out: Tensor, x: Tensor, *, k: int) -> Cotangents:
        return (row(ct, k=k),)

    row = Primitive(name, run, vjp, linear=True, lower=form)
    return row


tril = _triangle("tril", "<=")
triu = _triangle("triu", ">=")
