"""Updates of some elements, each of which gives a new tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.errors import BindingError
from shardwise.ops.indexing import Flat, Key, basic, parse, pick
from shardwise.ops.shapes import broadcast_to
from shardwise.prim.arithmetic import elementwise as rows
from shardwise.prim.dispatch.operands import may_bring
from shardwise.prim.dispatch.solvers import is_quiet, mode, permit
from shardwise.prim.face import public
from shardwise.prim.movement.gathers import scatter
from shardwise.prim.movement.mirror import mirror
from shardwise.prim.movement.updates import write, write_at
from shardwise.prim.relayout import relayout
from shardwise.prim.tensor import Tensor, together
from shardwise.prim.views.shapes import expand, permute, squeeze
from shardwise.prim.views.spans import Span
from shardwise.prim.views.windows import window_layout, within


class Updates:
    """The elements of a tensor, to be named by an index: `x.at[index]`."""

    __slots__ = ("_x",)

    def __init__(self, x: Tensor) -> None:
        """Prepare updates of `x`."""
        self._x = x

    def __getitem__(self, key: Any) -> Update:
        return Update(self._x, key)


@public(name=None, attribute="at")
def updates_of(x: Tensor) -> Updates:
    """Updates that return a new tensor: `x.at[2:4].set(0.0)`, `x.at[indices].add(values)`.

    >>> from shardwise import asarray
    >>> asarray([1.0, 2.0]).at[0].set(5.0).numpy()
    array([5., 2.])
    """
    return Updates(x)


class Update:
    """Some elements of a tensor, to be replaced or added to in a new tensor.

    >>> import numpy as np
    >>> from shardwise import DeviceMesh, P, shard
    >>> x = shard(np.zeros(4), DeviceMesh((2,), ("x",)), P("x"))
    >>> x.at[1:3].set(5.0)
    Tensor([0., 5., 5., 0.], float64[4@x] on x=2)
    >>> x.at[np.array([0, 0, 3])].add(1.0).numpy()
    array([2., 0., 0., 1.])
    """

    __slots__ = ("_key", "_x")

    def __init__(self, x: Tensor, key: Any) -> None:
        """Name the elements of `x` at an index."""
        self._x, self._key = x, key

    def get(self) -> Tensor:
        """Return the elements."""
        return pick(self._x, self._key)

    def set(self, values: Any) -> Tensor:
        """Return the tensor with these elements replaced; where an index is repeated, the last one counts."""
        x, key = self._x, parse(self._x, self._key)
        if not key.arrays:
            return _write(x, key, _fit(x, values, key.shape))
        flat = Flat(basic(x, key), key)
        new = write_at(flat.x, _order_values(flat, key, x, values), flat.index, dim=flat.dim, merged=flat.merged)
        return _write(x, key, flat.undo(new))

    def add(self, values: Any) -> Tensor:
        """Return the tensor with values added to these elements; where an index is repeated, all of them are."""
        x, key = self._x, parse(self._x, self._key)
        if not key.arrays:
            new = _in_window(_fit(x, values, key.shape), key, x)
        else:
            flat = Flat(basic(x, key), key)
            cuts = flat.x.layout.without_halo().dims[flat.dim : flat.dim + flat.merged]
            terms = _order_values(flat, key, x, values)
            sums = scatter(terms, flat.index, dim=flat.dim, along=False, sizes=flat.sizes, cuts=cuts)
            new = _in_window(flat.undo(sums), key, x)
        layout = x.layout.resolved().without_halo()
        if new.shape != x.shape:
            if new.layout.partial or is_quiet():
                new = within(new, index=key.window, layout=layout, shape=x.shape)
            else:
                may_bring("x.at[...].add", [x, new], [x.layout, window_layout(layout, x.shape, key.window)])
                with mode(permit()):  # which has been asked
                    new = within(new, index=key.window, layout=layout, shape=x.shape)
        elif not new.layout.partial:
            may_bring("x.at[...].add", [new], [layout])
            new = relayout(new, layout=layout)
        return rows.add(x, new)


def _fit(x: Tensor, values: Any, shape: tuple[int, ...]) -> Tensor:
    # The values as a tensor of the dtype and shape of the elements that they are for.
    new = together(x, values)[1]
    if new.dtype != x.dtype:
        new = rows.astype(new, dtype=x.dtype)
    try:
        fits = np.broadcast_shapes(new.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise BindingError(f"values of shape {new.shape} do not fit the {shape} elements that the index names.")
    return broadcast_to(new, shape) if new.shape != shape else new


def _order_values(flat: Flat, key: Key, x: Tensor, values: Any) -> Tensor:
    # The values in the order of dims in which the index picks: if its dims come first, they are put back.
    if not key.scattered or not flat.dim:
        return _fit(x, values, flat.picked)
    count = flat.index.ndim
    others = [k for k in range(len(flat.picked)) if not flat.dim <= k < flat.dim + count]
    order = (*range(flat.dim, flat.dim + count), *others)
    new = _fit(x, values, tuple(flat.picked[k] for k in order))
    return permute(new, order=tuple(sorted(range(new.ndim), key=order.__getitem__)))


def _in_window(values: Tensor, key: Key, x: Tensor) -> Tensor:
    # The values in the shape of the window: without new dims, elements in order, with the dims that were dropped.
    out = squeeze(values, at=key.add) if key.add else values
    out = expand(out, at=key.drop) if key.drop else out
    if not key.reverse:
        return out
    there = window_layout(x.layout.resolved().without_halo(), x.shape, key.window)
    return mirror(out, dims=key.reverse, layout=there if there.mesh is out.mesh else None)


def _write(x: Tensor, key: Key, values: Tensor) -> Tensor:
    whole = all(span == Span(0, size) for span, size in zip(key.window, x.shape, strict=True))
    new = _in_window(values, key, x)
    if not whole:
        return write(x, new, index=key.window)
    layout = x.layout.resolved().without_halo()
    may_bring("x.at[...].set", [new], [layout])
    return relayout(new, layout=layout)
