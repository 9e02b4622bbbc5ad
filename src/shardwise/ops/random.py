"""Random tensors: the same values whatever the layout, mesh or engine.

Each element comes from a key and its position in the global tensor, through a counter-based generator
(Threefry-2x32), so every device makes its own shard and nothing moves. Keys are explicit: there is no hidden
state. A key is used once, for one tensor or to make other keys; using it again gives the same numbers again.
Where numba is installed (the extra `fast`), many numbers are drawn by compiled loops, with the same bits.
`mesh` and `layout` are those of the creation functions such as `zeros`.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from math import isfinite, prod
from numbers import Real
from typing import Any, cast

import numpy as np

from shardwise.engine.arrays import finfo
from shardwise.engine.current import current_engine
from shardwise.errors import ArgumentError, BindingError, as_int
from shardwise.layout.conversion import LayoutLike
from shardwise.layout.layout import Shape
from shardwise.layout.mesh import DeviceMesh
from shardwise.layout.placement import check_dtype
from shardwise.ops.placement_args import layout_for, sizes_of
from shardwise.prim.random import draws
from shardwise.prim.random.creation import create
from shardwise.prim.random.dropout import dropout as dropout_row
from shardwise.prim.random.generator import Key, check_key
from shardwise.prim.tensor import Tensor, asarray

__all__ = ["Key", "bernoulli", "bits", "dropout", "fold_in", "integers", "key", "normal", "split", "uniform"]

# -- keys ----------------------------------------------------------------------------------------------


def key(seed: int) -> Key:
    """Return the key of a seed, an int of 0 or more and below 2**64.

    >>> key(42)
    Key(0, 42)
    """
    return Key(*divmod(_whole("key", "the seed", seed, 0, 2**64), 2**32))


def split(key: Key, num: int = 2) -> tuple[Key, ...]:
    """Return several keys made from one, whose numbers have nothing to do with each other.

    >>> split(key(42))
    (Key(1832780943, 270669613), Key(64467757, 2916123636))
    """
    parent = check_key(key)
    return tuple(parent.child(i) for i in range(_whole("split", "num", num, 0, 2**32)))


def fold_in(key: Key, data: int) -> Key:
    """Return the key made from one and a number, such as that of a step or a layer, below 2**63.

    It is the key that `split` gives at this place.

    >>> fold_in(key(42), 1)
    Key(64467757, 2916123636)
    """
    return check_key(key).child(_whole("fold_in", "the number", data, 0, 2**63))


def _whole(function: str, name: str, value: Any, low: int, high: int) -> int:
    number = as_int(value)
    if number is None:
        raise ArgumentError(f"{function}: {name} is an int, got {value!r}.")
    if not low <= number < high:
        raise BindingError(f"{function}: {name} is {low} or more and below 2**{high.bit_length() - 1}, got {number}.")
    return number


# -- tensors -------------------------------------------------------------------------------------------


def bits(
    key: Key,
    shape: int | Sequence[int] = (),
    dtype: Any = "uint32",
    *,
    mesh: DeviceMesh | None = None,
    layout: LayoutLike | None = None,
) -> Tensor:
    """Return unsigned integers of which every bit is random.

    >>> bits(key(42), 2).numpy()
    array([2098992034, 2919706841], dtype=uint32)
    """
    to = check_dtype(dtype)
    if to.kind != "u":
        raise ArgumentError(f"bits: a dtype of unsigned integers such as 'uint32' was expected, got {to}.")
    return _draw(key, draws.wide_bits if to.itemsize == 8 else draws.bits, shape, to, mesh, layout)


def uniform(
    key: Key,
    shape: int | Sequence[int] = (),
    dtype: Any = "float64",
    minval: float = 0.0,
    maxval: float = 1.0,
    *,
    mesh: DeviceMesh | None = None,
    layout: LayoutLike | None = None,
) -> Tensor:
    """Return floats that are evenly spread over [minval, maxval).

    In [0, 1) they are multiples of half the dtype's epsilon: of 2**-53 for float64, 2**-24 for float32.

    >>> from shardwise import P
    >>> uniform(key(42), 4, "float32", mesh=DeviceMesh((2,), ("x",)), layout=P("x"))
    Tensor([0.48870963, 0.6797972 , 0.61627156, 0.56101614], float32[4@x] on x=2)
    """
    to = _floating("uniform", dtype, complex_too=False)
    low, high = _number("uniform", "minval", minval), _number("uniform", "maxval", maxval)
    digits = finfo(to).nmant + 1
    if (low, high) == (0.0, 1.0):
        return _draw(key, partial(draws.unit, digits=digits), shape, to, mesh, layout)
    limits = _limits(low, high, to)
    if not isfinite(high - low) or not limits[0] <= limits[1]:
        raise BindingError(f"uniform: no {to} numbers can be drawn from [{low}, {high}).")
    draw = partial(draws.between, digits=digits, low=low, width=high - low, limits=limits)
    return _draw(key, draw, shape, to, mesh, layout)


def _limits(low: float, high: float, dtype: np.dtype) -> tuple[float, float]:
    # The first and the last number of the dtype in [low, high).
    with np.errstate(over="ignore"):
        first, last = np.asarray([low, high]).astype(dtype)
    if float(first) < low:
        first = np.nextafter(first, finfo(dtype).max)
    if float(last) >= high:
        last = np.nextafter(last, finfo(dtype).min)
    return float(first), float(last)


def normal(
    key: Key,
    shape: int | Sequence[int] = (),
    dtype: Any = "float64",
    *,
    mesh: DeviceMesh | None = None,
    layout: LayoutLike | None = None,
) -> Tensor:
    """Return floats of the normal distribution of mean 0 and variance 1, or complex numbers of variance 1.

    Real and imaginary parts of complex numbers are independent, of variance 1/2 each.

    >>> normal(key(42), 3, "float32").dtype
    dtype('float32')
    """
    to = _floating("normal", dtype, complex_too=True)
    wide = to.itemsize == (16 if to.kind == "c" else 8)
    return _draw(
        key, partial(draws.complex_normal if to.kind == "c" else draws.normal, wide=wide), shape, to, mesh, layout
    )


def bernoulli(
    key: Key,
    p: float = 0.5,
    shape: int | Sequence[int] = (),
    *,
    mesh: DeviceMesh | None = None,
    layout: LayoutLike | None = None,
) -> Tensor:
    """Return bools that are true with probability `p`, exact to 2**-64.

    >>> bernoulli(key(42), 0.5, 4)
    Tensor([ True,  True, False, False], bool[4] on cpu:0)
    """
    draw = partial(draws.below, chance=_chance("bernoulli", "p", p))
    return _draw(key, draw, shape, np.dtype(bool), mesh, layout)


def integers(
    key: Key,
    low: int,
    high: int,
    shape: int | Sequence[int] = (),
    dtype: Any = "int64",
    *,
    mesh: DeviceMesh | None = None,
    layout: LayoutLike | None = None,
) -> Tensor:
    """Return integers in [low, high), all equally probable but for less than a part in 2**32 of it.

    >>> integers(key(42), -1, 2, 5)
    Tensor([ 0, -1,  0,  1,  1], int64[5] on cpu:0)
    """
    to = check_dtype(dtype)
    if to.kind not in "iu":
        raise ArgumentError(f"integers: a dtype of integers such as 'int64' was expected, got {to}.")
    first, end, info = as_int(low), as_int(high), np.iinfo(to)
    if first is None or end is None:
        raise ArgumentError(f"integers: low and high are ints, got {low!r} and {high!r}.")
    if not first < end:
        raise BindingError(f"integers: low must be less than high, got {first} and {end}.")
    if first < info.min or end - 1 > info.max:
        raise BindingError(f"integers: {to} holds {info.min} to {info.max}, which {first} to {end - 1} are not in.")

    def draw(key: Key, work: np.ndarray) -> np.ndarray:
        return draws.whole(key, work, end - first) + np.uint64(first % 2**64)

    return _draw(key, draw, shape, to, mesh, layout)


def dropout(key: Key, x: Any, rate: float) -> Tensor:
    """Return `x` with each element dropped (set to 0) with probability `rate`, the others divided by 1 - rate.

    Which are dropped depends on their positions in the global tensor, so it is the same for any layout, in
    derivatives too, and differs between shards. Pending sums pass through.

    >>> dropout(key(42), np.ones(4), 0.5).numpy()
    array([2., 2., 0., 0.])
    """
    tensor, parent = asarray(x), check_key(key)
    _floating("dropout", tensor.dtype, complex_too=True)
    _check_size(tensor.shape)
    dropped = _chance("dropout", "rate", rate)
    return dropout_row(tensor, key=parent, chance=2**64 - dropped) if dropped else tensor


def _draw(
    key: Key,
    draw: draws.Draw,
    shape: int | Sequence[int],
    dtype: np.dtype,
    mesh: DeviceMesh | None,
    layout: LayoutLike | None,
) -> Tensor:
    parent, sizes = check_key(key), sizes_of(shape)
    _check_size(sizes)
    fill = draws.fill_with(parent, draw, sizes)
    return create(fill, sizes, dtype, layout_for(len(sizes), mesh, layout), current_engine())


def _check_size(shape: Shape) -> None:
    if prod(shape) >= 2**63:
        raise BindingError(f"a random tensor has fewer than 2**63 elements, got shape {shape}.")


def _floating(name: str, dtype: Any, complex_too: bool) -> np.dtype:
    to = check_dtype(dtype)
    if to.kind == "c" and complex_too and to.itemsize <= 16:
        return to
    try:
        if finfo(to).nmant <= 52 and to.kind != "c":
            return to
    except (ValueError, TypeError):
        pass
    wanted = "floats or complex numbers" if complex_too else "floats"
    raise ArgumentError(f"{name}: a dtype of {wanted} such as 'float32' was expected, got {to}.")


def _number(function: str, name: str, value: Any) -> float:
    if isinstance(value, Real) and not isinstance(value, bool) and isfinite(value):
        return float(value)
    raise ArgumentError(f"{function}: {name} is a finite number, got {value!r}.")


def _chance(function: str, name: str, value: Any) -> int:
    # A probability as so many in 2**64.
    if isinstance(value, Tensor | np.ndarray):
        raise ArgumentError(
            f"{function}: {name} is one number, got a tensor of shape {cast(Any, value).shape}.\n"
            "  for a probability per element, compare: uniform(key, p.shape) < p."
        )
    number = _number(function, name, value)
    if not 0 <= number <= 1:
        raise BindingError(f"{function}: {name} is a probability from 0 to 1, got {number}.")
    return int(Fraction(number) * 2**64)
