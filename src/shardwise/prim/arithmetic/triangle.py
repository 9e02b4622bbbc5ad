"""The primitives that keep a triangle of matrices: zeros below or above a diagonal."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace

from shardwise.prim.dispatch.per_device import Place, map_shards
from shardwise.prim.primitive import Primitive
from shardwise.prim.tensor import Tensor

# Zeros take the place of all contributions to an element or of none, so any pending reduction passes through.


def _keep(name: str, x: Tensor, k: int) -> Tensor:
    def kernel(place: Place, array: Any) -> Any:
        (top, _), (left, _) = place.box[-2:]
        return getattr(array_namespace(array), name)(array, k=k + top - left)

    return map_shards(kernel, [x], x.layout, x.shape)


tril = Primitive("tril", lambda x, *, k: _keep("tril", x, k), lambda ct, out, x, *, k: (tril(ct, k=k),), linear=True)
triu = Primitive("triu", lambda x, *, k: _keep("triu", x, k), lambda ct, out, x, *, k: (triu(ct, k=k),), linear=True)
