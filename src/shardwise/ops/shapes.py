"""Functions on shapes, which keep the sharding wherever they can."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from shardwise.errors import BindingError, RangeError, as_int, check_ints
from shardwise.layout.layout import Layout
from shardwise.ops.placement_args import sizes_of
from shardwise.ops.reductions import dim_of, dims_of
from shardwise.prim.arithmetic.broadcast import broadcast, broadcast_shape
from shardwise.prim.face import public
from shardwise.prim.tensor import Tensor, asarray
from shardwise.prim.views import shapes as rows
from shardwise.prim.views.reshaping import reshape as row_major


@public()
def reshape(x: Any, /, shape: int | Sequence[int]) -> Tensor:
    """Return the elements in another shape, in row-major order; one size may be -1.

    The sharding stays wherever the factors allow it. A dim that does not divide stays sharded too: then the elements
    that change device move, each once.

    >>> import numpy as np
    >>> from shardwise import DeviceMesh, P, shard
    >>> x = shard(np.arange(8.0), DeviceMesh((4,), ("x",)), P("x"))
    >>> reshape(x, (2, 4)).layout
    Layout(mesh(x=4), ['x:(1)2', 'x:(2)2'])
    """
    x = asarray(x)
    sizes = list(check_ints(shape, "reshape: a shape is an int or a tuple of ints"))
    if any(n < -1 for n in sizes) or sizes.count(-1) > 1:
        raise BindingError(f"reshape: a shape has sizes of 0 or more, and at most one -1, got {tuple(sizes)}.")
    if -1 in sizes:
        known = prod(n for n in sizes if n != -1)
        if not known or x.size % known:
            raise BindingError(f"reshape: {x.shape} has {x.size} elements, which {tuple(sizes)} cannot hold.")
        sizes[sizes.index(-1)] = x.size // known
    if prod(sizes) != x.size:
        raise BindingError(f"reshape: {x.shape} has {x.size} elements, {tuple(sizes)} has {prod(sizes)}.")
    return row_major(x, shape=tuple(sizes)) if tuple(sizes) != x.shape else x


@public(name=None, method="reshape")
def reshape_to(x: Any, /, *shape: Any) -> Tensor:
    """Return the elements in another shape: `x.reshape(2, -1)` or `x.reshape((2, -1))`.

    >>> asarray([[1.0, 2.0]]).reshape(2, -1).shape
    (2, 1)
    """
    return reshape(x, shape[0] if len(shape) == 1 and as_int(shape[0]) is None else shape)


@public(method=True)
def permute_dims(x: Any, /, axes: Sequence[int]) -> Tensor:
    """Return the tensor with its dims in another order; nothing moves.

    >>> permute_dims([[1.0, 2.0]], (1, 0)).shape
    (2, 1)
    """
    x, dims = asarray(x), check_ints(axes, "permute_dims: axes is a tuple of ints")
    if odd := [k for k in dims if not -x.ndim <= k < x.ndim]:
        raise RangeError(f"permute_dims: axis {odd[0]} is out of range for a tensor with {x.ndim} dims.")
    order = tuple(k % x.ndim for k in dims)
    if sorted(order) != list(range(x.ndim)):
        raise BindingError(f"permute_dims: {dims} is no order of {x.ndim} dims.")
    return rows.permute(x, order=order)


@public(name=None, attribute="T")
def reverse_dims(x: Tensor) -> Tensor:
    """Return the tensor with its dims in reverse order.

    >>> asarray([[1.0, 2.0]]).T.shape
    (2, 1)
    """
    return rows.permute(x, order=tuple(reversed(range(x.ndim))))


@public(name=None, method="transpose")
def order_dims(x: Tensor, /, *axes: Any) -> Tensor:
    """Return the dims in another order, or in reverse if none is given: `x.transpose(1, 0)`.

    >>> asarray([[1.0, 2.0]]).transpose(1, 0).shape
    (2, 1)
    """
    if not axes:
        return reverse_dims(x)
    return permute_dims(x, axes[0] if len(axes) == 1 and as_int(axes[0]) is None else axes)


@public(method=True, attribute="mT")
def matrix_transpose(x: Any, /) -> Tensor:
    """Return the tensor with its last two dims exchanged; nothing moves.

    >>> matrix_transpose([[1, 2], [3, 4]]).numpy()
    array([[1, 3],
           [2, 4]])
    """
    x = asarray(x)
    if x.ndim < 2:
        raise BindingError(f"matrix_transpose needs at least two dims, got shape {x.shape}.")
    return rows.permute(x, order=(*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


@public(method=True)
def moveaxis(x: Any, source: int | Sequence[int], destination: int | Sequence[int], /) -> Tensor:
    """Return the tensor with some dims at other positions; nothing moves.

    >>> moveaxis([[[1.0], [2.0]]], 0, -1).shape
    (2, 1, 1)
    """
    x = asarray(x)
    wanted = "moveaxis: a source and a destination are ints or tuples of ints"
    sources, targets = check_ints(source, wanted), check_ints(destination, wanted)
    if len(sources) != len(targets):
        raise BindingError(f"moveaxis: {len(sources)} dims cannot go to {len(targets)} positions.")
    for dims in (sources, targets):
        dims_of(x, dims, "moveaxis")  # each of them once
    sources, targets = ([dim_of(x, k, "moveaxis") for k in dims] for dims in (sources, targets))
    order = [k for k in range(x.ndim) if k not in sources]
    for target, dim in sorted(zip(targets, sources, strict=True)):
        order.insert(target, dim)
    return permute_dims(x, order)


@public(method=True)
def expand_dims(x: Any, /, axis: int = 0) -> Tensor:
    """Return the tensor with a new dim of size one at position `axis`.

    >>> expand_dims([1.0, 2.0], axis=0).shape
    (1, 2)
    """
    x = asarray(x)
    return rows.expand(x, at=(dim_of(x, axis, "expand_dims", rank=x.ndim + 1),))


@public(method=True)
def squeeze(x: Any, /, axis: int | Sequence[int]) -> Tensor:
    """Return the tensor without dims of size one.

    >>> squeeze([[1.0, 2.0]], 0).shape
    (2,)
    """
    x = asarray(x)
    dims = dims_of(x, axis, "squeeze")
    if odd := [k for k in dims if x.shape[k] != 1]:
        raise BindingError(f"squeeze: dim {odd[0]} has size {x.shape[odd[0]]}, not 1.")
    return rows.squeeze(x, at=dims)


@public(method=True)
def broadcast_to(x: Any, /, shape: Sequence[int]) -> Tensor:
    """Return the tensor repeated along new leading dims and dims of size one.

    >>> broadcast_to([1.0, 2.0], (3, 2)).shape
    (3, 2)
    """
    x, to = asarray(x), sizes_of(shape)
    if broadcast_shape(x.shape, to) != to:
        raise BindingError(f"broadcast_to: {x.shape} does not broadcast to {to}.")
    lead = len(to) - x.ndim
    base = x.layout.resolved().without_halo()
    own = [cut if n == m else None for cut, n, m in zip(base.dims, x.shape, to[lead:], strict=True)]
    return broadcast(x, layout=Layout(x.mesh, [*[None] * lead, *own]), shape=to)
