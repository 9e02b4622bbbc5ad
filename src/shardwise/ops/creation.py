"""Creation functions of the Python array API standard: each device makes its own shard, and nothing moves.

`mesh` and `layout` say where the tensor lies: a layout (`P(...)`, a mapping, a Layout) on a mesh, which is that of
the `mesh_context` where it is omitted. With a mesh alone every device holds the whole tensor; with neither it is on
`device`, by default the one that `asarray` uses. A layout may have halos, which are filled, and pending
reductions: then the first device of a group contributes the value, and the others nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Complex, Integral, Real
from typing import Any, Literal

import numpy as np

from shardwise.engine.current import current_engine
from shardwise.errors import ArgumentError, BindingError, as_int
from shardwise.layout.axis import is_disjoint
from shardwise.layout.conversion import LayoutLike
from shardwise.layout.cut import Cut
from shardwise.layout.device import Device
from shardwise.layout.layout import Layout, Shape, check_shape
from shardwise.layout.mesh import DeviceMesh
from shardwise.ops.placement_args import layout_for, number_dtype, sizes_of
from shardwise.prim.arithmetic import triangle
from shardwise.prim.arithmetic.broadcast import broadcast
from shardwise.prim.face import public
from shardwise.prim.random.creation import Fill, constant, create, diagonal, progression, whole_progression
from shardwise.prim.tensor import Tensor, asarray
from shardwise.prim.views import shapes

# -- constants -----------------------------------------------------------------------------------------


@public()
def zeros(
    shape: int | Sequence[int],
    *,
    dtype: Any = None,
    device: Device | None = None,
    mesh: DeviceMesh | None = None,
    layout: LayoutLike | None = None,
) -> Tensor:
    """Return a tensor of zeros, of float64 unless another dtype is given.

    >>> from shardwise import P
    >>> x = zeros((4, 2), mesh=DeviceMesh((2,), ("x",)), layout=P("x"))
    >>> x.type_text, x.local(1).shape
    ('float64[4@x, 2]', (2, 2))
    """
    return full(shape, False, dtype=number_dtype(dtype, float, "zeros"), device=device, mesh=mesh, layout=layout)


@public()
def ones(
    shape: int | Sequence[int],
    *,
    dtype: Any = None,
    device: Device | None = None,
    mesh: DeviceMesh | None = None,
    layout: LayoutLike | None = None,
) -> Tensor:
    """Return a tensor of ones, of float64 unless another dtype is given.

    >>> ones(3, dtype="int8")
    Tensor([1, 1, 1], int8[3] on cpu:0)
    """
    return full(shape, True, dtype=number_dtype(dtype, float, "ones"), device=device, mesh=mesh, layout=layout)


@public()
def empty(
    shape: int | Sequence[int],
    *,
    dtype: Any = None,
    device: Device | None = None,
    mesh: DeviceMesh | None = None,
    layout: LayoutLike | None = None,
) -> Tensor:
    """Return a tensor to which no values were given: zeros.

    A tensor cannot be written to, and devices that hold the same part of it must hold the same values, so
    there is nothing to gain from values that are left to chance.

    >>> empty(2)
    Tensor([0., 0.], float64[2] on cpu:0)
    """
    return full(shape, False, dtype=number_dtype(dtype, float, "empty"), device=device, mesh=mesh, layout=layout)


@public()
def full(
    shape: int | Sequence[int],
    fill_value: Any,
    *,
    dtype: Any = None,
    device: Device | None = None,
    mesh: DeviceMesh | None = None,
    layout: LayoutLike | None = None,
) -> Tensor:
    """Return a tensor with one value everywhere; its dtype is that of the value unless it is given.

    >>> full((2,), 7)
    Tensor([7, 7], int64[2] on cpu:0)
    """
    sizes = sizes_of(shape)
    number = _filling(fill_value, dtype, "full")
    return _new(constant(number), sizes, number.dtype, layout_for(len(sizes), mesh, layout, device))


def _new(fill: Fill, shape: Shape, dtype: np.dtype, layout: Layout) -> Tensor:
    return create(fill, shape, dtype, layout, current_engine())


_RANKS = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}


def _filling(value: Any, dtype: Any, name: str) -> Any:
    # The value as a NumPy scalar of the dtype, if that can hold it.
    if getattr(value, "ndim", 0) or not isinstance(value, Complex | np.generic | np.ndarray):
        raise ArgumentError(f"{name}: the value to fill with is one number, got {value!r}.")
    scalar = np.asarray(value)[()]
    if not isinstance(scalar, np.generic):  # an int that no dtype holds, or what is no number
        raise BindingError(f"{name}: no dtype holds {value!r}.")
    to, own = number_dtype(dtype, scalar.dtype, name), scalar.dtype.kind
    if own in _RANKS and to.kind in _RANKS and _RANKS[to.kind] < _RANKS[own]:
        raise ArgumentError(f"{name}: {to} cannot hold {value!r}.\n  give a dtype such as {scalar.dtype}.")
    try:
        if isinstance(scalar, np.integer) and to.kind in "iu":
            return to.type(int(scalar))
        return np.asarray(scalar).astype(to)[()]
    except OverflowError:
        raise BindingError(f"{name}: {value!r} is out of range for {to}.") from None


@public()
def zeros_like(
    x: Any,
    /,
    *,
    dtype: Any = None,
    device: Device | None = None,
    mesh: DeviceMesh | None = None,
    layout: LayoutLike | None = None,
) -> Tensor:
    """Return zeros of the shape of a tensor and, unless others are given, its dtype and layout.

    >>> zeros_like([1.0, 2.0])
    Tensor([0., 0.], float64[2] on cpu:0)
    """
    return full_like(x, False, dtype=dtype, device=device, mesh=mesh, layout=layout)


@public()
def ones_like(
    x: Any,
    /,
    *,
    dtype: Any = None,
    device: Device | None = None,
    mesh: DeviceMesh | None = None,
    layout: LayoutLike | None = None,
) -> Tensor:
    """Return ones of the shape of a tensor and, unless others are given, its dtype and layout.

    >>> ones_like([1.0, 2.0])
    Tensor([1., 1.], float64[2] on cpu:0)
    """
    return full_like(x, True, dtype=dtype, device=device, mesh=mesh, layout=layout)


@public()
def empty_like(
    x: Any,
    /,
    *,
    dtype: Any = None,
    device: Device | None = None,
    mesh: DeviceMesh | None = None,
    layout: LayoutLike | None = None,
) -> Tensor:
    """Return zeros, as `empty` does, of the shape of a tensor and, unless others are given, its dtype and layout.

    >>> empty_like([[1, 2, 3]]).shape
    (1, 3)
    """
    return full_like(x, False, dtype=dtype, device=device, mesh=mesh, layout=layout)


@public()
def full_like(
    x: Any,
    /,
    fill_value: Any,
    *,
    dtype: Any = None,
    device: Device | None = None,
    mesh: DeviceMesh | None = None,
    layout: LayoutLike | None = None,
) -> Tensor:
    """Return one value in the shape of a tensor and, unless others are given, its dtype and layout.

    What is pending in the layout of `x` is not pending in the result.

    >>> full_like([1, 2], 5)
    Tensor([5, 5], int64[2] on cpu:0)
    """
    x = asarray(x)
    number = _filling(fill_value, x.dtype if dtype is None else dtype, "full_like")
    own = mesh is None and layout is None and device is None
    to = x.layout.resolved() if own else layout_for(x.ndim, mesh, layout, device)
    return create(constant(number), x.shape, number.dtype, to, x.engine, x if own else None)


# -- progressions ----------------------------------------------------------------------------------------


@public()
def arange(
    start: float,
    /,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: Any = None,
    device: Device | None = None,
    mesh: DeviceMesh | None = None,
    layout: LayoutLike | None = None,
) -> Tensor:
    """Return start, start + step, ... up to but without `stop`; with one argument, 0, 1, ... up to it.

    >>> from shardwise import P
    >>> arange(5, mesh=DeviceMesh((2,), ("x",)), layout=P("x"))
    Tensor([0, 1, 2, 3, 4], int64[5@x] on x=2)
    """
    first, end = (0, start) if stop is None else (start, stop)
    first, end, by = _real(first, "start"), _real(end, "stop"), _real(step, "step")
    if not by:
        raise BindingError("arange: a step of 0 leads nowhere.")
    whole = isinstance(first, int) and isinstance(end, int) and isinstance(by, int)
    to = number_dtype(dtype, int if whole else float, "arange")
    if to.kind == "b" or (to.kind in "iu" and not whole):
        raise ArgumentError(f"arange: {to} cannot hold steps from {first} by {by}.\n  use a dtype of floats.")
    count = _count(first, end, by)
    if to.kind not in "iu":
        return _new(progression(float(first), float(by)), (count,), to, layout_for(1, mesh, layout, device))
    if count:
        _check_range("arange", (first, first + (count - 1) * by), to)
    return _new(whole_progression(int(first), int(by)), (count,), to, layout_for(1, mesh, layout, device))


def _count(start: int | float, stop: int | float, step: int | float) -> int:
    steps = -((start - stop) // step) if isinstance(start + stop + step, int) else np.ceil((stop - start) / step)
    if not steps < 2**63:
        raise BindingError(f"arange: from {start} to {stop} by {step} are too many steps.")
    return max(0, int(steps))


def _real(value: Any, name: str) -> int | float:
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, Real) and not isinstance(value, bool) and np.isfinite(float(value)):
        return float(value)
    raise ArgumentError(f"arange: {name} is a finite number, got {value!r}.")


def _check_range(name: str, values: Sequence[float], dtype: np.dtype) -> None:
    info = np.iinfo(dtype)
    if odd := [value for value in values if not info.min <= value <= info.max]:
        raise BindingError(f"{name}: {odd[0]} is out of range for {dtype}, which holds {info.min} to {info.max}.")


@public()
def linspace(
    start: complex,
    stop: complex,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: Device | None = None,
    mesh: DeviceMesh | None = None,
    layout: LayoutLike | None = None,
    endpoint: bool = True,
) -> Tensor:
    """Return `num` evenly spaced numbers from `start` to `stop`, which is the last one unless `endpoint` is false.

    >>> linspace(0, 1, 5)
    Tensor([0.  , 0.25, 0.5 , 0.75, 1.  ], float64[5] on cpu:0)
    """
    for value in (start, stop):
        if not isinstance(value, Complex) or isinstance(value, bool):
            raise ArgumentError(f"linspace: start and stop are numbers, got {value!r}.")
    (count,) = check_shape((num,))
    is_complex = not (isinstance(start, Real) and isinstance(stop, Real))
    to = number_dtype(dtype, complex if is_complex else float, "linspace")
    if to.kind == "b" or (is_complex and to.kind != "c"):
        raise ArgumentError(f"linspace: {to} cannot hold steps from {start} to {stop}.\n  use a dtype of floats.")
    first, end = (complex(start), complex(stop)) if is_complex else (float(start), float(stop))  # type: ignore[arg-type]
    if not np.isfinite(end - first):
        raise BindingError(f"linspace: from {start} to {stop} there are no even steps.")
    if to.kind in "iu" and count:
        _check_range("linspace", (float(np.floor(first)), float(np.floor(end))), to)
    parts = count - 1 if endpoint else count
    last = (count - 1, end) if endpoint and count > 1 else None
    fill = progression(first, (end - first) / parts if parts > 0 else 0.0, last, down=to.kind in "iu")
    return _new(fill, (count,), to, layout_for(1, mesh, layout, device))


# -- matrices --------------------------------------------------------------------------------------------


@public()
def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: Any = None,
    device: Device | None = None,
    mesh: DeviceMesh | None = None,
    layout: LayoutLike | None = None,
) -> Tensor:
    """Return a matrix with ones on the k-th diagonal, counted upwards from the main one, and zeros elsewhere.

    >>> from shardwise import P
    >>> eye(2, 3, k=1, mesh=DeviceMesh((2,), ("x",)), layout=P(None, "x")).numpy()
    array([[0., 1., 0.],
           [0., 0., 1.]])
    """
    shape = check_shape((n_rows, n_rows if n_cols is None else n_cols))
    to = number_dtype(dtype, float, "eye")
    return _new(diagonal(_diagonal("eye", k)), shape, to, layout_for(2, mesh, layout, device))


@public(method=True)
def tril(x: Any, /, *, k: int = 0) -> Tensor:
    """Return matrices with zeros above the k-th diagonal; nothing moves.

    >>> tril([[1, 2], [3, 4]]).numpy()
    array([[1, 0],
           [3, 4]])
    """
    return triangle.tril(_matrices("tril", x), k=_diagonal("tril", k))


@public(method=True)
def triu(x: Any, /, *, k: int = 0) -> Tensor:
    """Return matrices with zeros below the k-th diagonal; nothing moves.

    >>> triu([[1, 2], [3, 4]]).numpy()
    array([[1, 2],
           [0, 4]])
    """
    return triangle.triu(_matrices("triu", x), k=_diagonal("triu", k))


def _diagonal(name: str, k: Any) -> int:
    number = as_int(k)
    if number is None:
        raise ArgumentError(f"{name}: k is the number of a diagonal, an int, got {k!r}.")
    return max(-(2**62), min(number, 2**62))  # beyond which there are no elements


def _matrices(name: str, x: Any) -> Tensor:
    out = asarray(x)
    if out.ndim < 2:
        raise BindingError(f"{name}: a tensor of at least 2 dims was expected, got shape {out.shape}.")
    return out


# -- grids -----------------------------------------------------------------------------------------------


@public()
def meshgrid(*arrays: Any, indexing: Literal["xy", "ij"] = "xy") -> list[Tensor]:
    """Return the coordinates of a grid, one tensor for each of the given vectors of coordinates.

    Each dim of the grid is laid out as the vector that it comes from, unless an earlier one uses the same mesh axes.

    >>> [x.tolist() for x in map(np.asarray, meshgrid([1, 2], [3, 4, 5]))]
    [[[1, 2], [1, 2], [1, 2]], [[3, 3], [4, 4], [5, 5]]]
    """
    if not isinstance(indexing, str) or indexing not in ("xy", "ij"):
        raise ArgumentError(f"meshgrid: indexing is 'xy' or 'ij', got {indexing!r}.")
    vectors = [x if x.ndim else shapes.expand(x, at=(0,)) for x in map(asarray, arrays)]
    if odd := [x.shape for x in vectors if x.ndim != 1]:
        raise BindingError(f"meshgrid: vectors were expected, got shape {odd[0]}.")
    order = list(range(len(vectors)))
    if indexing == "xy" and len(order) > 1:
        order[:2] = [1, 0]
    if not vectors:
        return []
    mesh = next((x.mesh for x in vectors if not x.mesh.is_single), vectors[0].mesh)
    cuts = _grid_cuts(vectors, mesh)
    layout = Layout(mesh, [cuts[i] for i in order])
    shape = tuple(vectors[i].shape[0] for i in order)
    out: list[Tensor] = []
    for i, x in enumerate(vectors):
        others = tuple(dim for dim, j in enumerate(order) if j != i)
        out.append(broadcast(shapes.expand(x, at=others), layout=layout, shape=shape))
    return out


def _grid_cuts(vectors: Sequence[Tensor], mesh: DeviceMesh) -> list[Cut]:
    cuts: list[Cut] = []
    for x in vectors:
        cut = x.layout.without_halo().dims[0]
        used = [axis for earlier in cuts for axis in earlier.axes]
        cuts.append(cut if x.mesh is mesh and is_disjoint(cut.axes, used) else Cut())
    return cuts
