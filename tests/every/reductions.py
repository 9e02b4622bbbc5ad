"""Rows of the reductions, running sums, and where the largest are: NumPy's, in a dtype with room."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.every.calls import Call, Setting
from tests.every.comparison import Rule
from tests.every.table import row
from tests.every.values import BOOL, COMPLEX, EVERY, FLOATS, HALVES, INTS, NUMBERS, REAL, UINTS, finfo

ORDERED = [*FLOATS, *INTS, *UINTS, *BOOL]


def widen(x: np.ndarray) -> np.ndarray:
    """Floats in the widest dtype; integers as they are."""
    return x if x.dtype.kind in "biu" else x.astype("complex128" if x.dtype.kind == "c" else "float64")


def near(dtype: np.dtype, count: int = 1, **how: Any) -> Rule:
    """Within as many units in the last place as numbers are added up; half precision is added in single."""
    return Rule(exact=False, ulps=4 if dtype in HALVES else 8 + count, **how)


def _dims(setting: Setting, rank: int) -> tuple[Any, bool, str]:
    axis, keepdims = setting.dims(rank), setting.draws.below(2) == 1
    text = f"axis={axis}" + (", keepdims=True" if keepdims else "")
    return axis, keepdims, text


@row("sum", "prod")
def total(setting: Setting, name: str) -> Call:
    """Sums and products, those of small integers in wide ones."""
    dtype, shape = setting.dtype(EVERY), setting.shape()
    domain = "any" if dtype.kind in "biu" or name == "sum" else "finite"
    if name == "prod":
        shape = tuple(min(n, 3) for n in shape)
    a = setting.operand(shape, dtype, domain)
    axis, keepdims, text = _dims(setting, len(shape))
    function = getattr(np, name)
    to = None
    if setting.draws.rarely(4):
        to = setting.draws.choice([np.dtype("float64"), np.dtype("complex128"), dtype])
        text += f", dtype={str(to)!r}"
    rounded = to if to is not None else dtype if dtype.kind not in "biu" else function(np.zeros(1, dtype)).dtype

    def oracle(x: np.ndarray) -> np.ndarray:
        x = x if to is None else x.astype(to)
        if rounded.kind in "biu":
            return function(x, axis=axis, keepdims=keepdims, dtype=rounded)
        return np.asarray(function(widen(x.astype(rounded)), axis=axis, keepdims=keepdims)).astype(rounded)

    def scale(size: np.ndarray) -> np.ndarray:
        return function(size if name == "sum" else np.maximum(size, 1), axis=axis, keepdims=keepdims)

    rule = near(rounded, int(np.prod(shape, dtype=int)), forgiving=False)
    return setting.call(setting.spell(name, a, text, method=name), oracle, rule=rule, scale=scale, local=True)


@row("max", "min")
def extreme(setting: Setting, name: str) -> Call:
    """The largest and the smallest; over nothing there is none."""
    dtype, shape = setting.dtype(ORDERED), setting.shape()
    a = setting.operand(shape, dtype)
    axis, keepdims, text = _dims(setting, len(shape))
    function = getattr(np, name)
    return setting.call(
        setting.spell(name, a, text, method=name),
        lambda x: function(x, axis=axis, keepdims=keepdims),
        rule=Rule(signs=False),
        local=True,
    )


@row("any", "all")
def truth(setting: Setting, name: str) -> Call:
    """Whether any or all are true."""
    shape = setting.shape()
    a = setting.operand(shape, setting.dtype([*BOOL, *EVERY]))
    axis, keepdims, text = _dims(setting, len(shape))
    function = getattr(np, name)
    return setting.call(
        setting.spell(name, a, text, method=name), lambda x: function(x, axis=axis, keepdims=keepdims), local=True
    )


@row("mean", "var", "std")
def moment(setting: Setting, name: str) -> Call:
    """Means, and how far values are from them."""
    dtype, shape = setting.dtype([*NUMBERS, *BOOL]), setting.shape(least=1)
    domain = "odd" if name == "mean" else "finite"
    a = setting.operand(shape, dtype, domain)
    axis, keepdims, text = _dims(setting, len(shape))
    how: dict[str, Any] = {"axis": axis, "keepdims": keepdims}
    if name != "mean" and setting.draws.below(2):
        how["correction"] = setting.draws.choice([1.0, 0.5])
        text += f", correction={how['correction']}"
    out = np.dtype("float64") if dtype.kind in "biu" else dtype
    if name != "mean" and dtype.kind == "c":
        out = np.dtype("float32" if dtype == np.complex64 else "float64")
    function = getattr(np, name)
    (value,) = setting.values
    sums = value.size / max(1, np.mean(np.zeros(shape), axis=axis).size)  # of how many
    eps = float(finfo(out).eps)

    def oracle(x: np.ndarray) -> np.ndarray:
        if name != "mean" and sums <= how.get("correction", 0):
            return np.full_like(np.asarray(np.mean(np.real(x), axis=axis, keepdims=keepdims)), np.nan, dtype=out)
        return np.asarray(function(widen(x) if x.dtype.kind not in "b" else x.astype(float), **how)).astype(out)

    def scale(size: np.ndarray) -> np.ndarray:
        mean = np.mean(size, axis=axis, keepdims=keepdims)
        if name == "mean":
            return mean
        square = np.mean(size * size, axis=axis, keepdims=keepdims) * max(1.0, sums)
        if name == "var":
            return square
        found = np.asarray(oracle(value), "float64")
        return np.where(found * found > 0.01 * square, np.sqrt(square), np.sqrt(square) / np.sqrt(eps))

    rule = near(out, int(sums))
    return setting.call(setting.spell(name, a, text, method=name), oracle, rule=rule, scale=scale, local=True)


def logsumexp_of(x: np.ndarray, axis: Any, keepdims: bool) -> np.ndarray:
    """log(sum(exp(x))), from the largest."""
    top = np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0.0)
    out = np.log(np.sum(np.exp(x - top), axis=axis, keepdims=True)) + top
    return out if keepdims else out.reshape(np.sum(x, axis=axis).shape)


@row("logsumexp")
def logsumexp(setting: Setting, name: str) -> Call:
    """As it is defined, in 64 bits."""
    dtype, shape = setting.dtype(FLOATS), setting.shape(least=1)
    a = setting.operand(shape, dtype, "odd")
    axis, keepdims, text = _dims(setting, len(shape))
    return setting.call(
        setting.spell(name, a, text, method=name),
        lambda x: logsumexp_of(widen(x), axis, keepdims).astype(dtype),
        scale=lambda size: 2 + np.max(size, axis=axis, keepdims=keepdims),
        rule=near(dtype, 8),
        local=True,
    )


@row("softmax", "log_softmax")
def softmax(setting: Setting, name: str) -> Call:
    """Probabilities along a dim, or their logarithms."""
    dtype, shape = setting.dtype(FLOATS), setting.shape(low=1)
    a = setting.operand(shape, dtype, "finite")
    axis = setting.dim(len(shape))

    def oracle(x: np.ndarray) -> np.ndarray:
        out = widen(x) - logsumexp_of(widen(x), axis, True)
        return (np.exp(out) if name == "softmax" else out).astype(dtype)

    # A logarithm is rounded in the dtype before it is an exponent.
    return setting.call(
        setting.spell(name, a, f"axis={axis}", method=name),
        oracle,
        scale=lambda size: (
            (1 if name == "softmax" else 0) + 1 + np.max(size, axis=axis, keepdims=True, initial=0) + 0 * size
        ),
        rule=near(dtype, 8),
        local=True,
    )


@row("norm")
def norm(setting: Setting, name: str) -> Call:
    """Norms of several orders."""
    dtype, shape = setting.dtype([*FLOATS, *COMPLEX]), setting.shape(least=1)
    a = setting.operand(shape, dtype, "finite")
    axis, keepdims, text = _dims(setting, len(shape))
    order = setting.draws.choice([2, 1, np.inf, -np.inf, 0, 3])
    text += "" if order == 2 else f", ord={order}".replace("inf", "np.inf")
    out = np.dtype({"complex64": "float32", "complex128": "float64"}.get(str(dtype), dtype))
    how: dict[str, Any] = {"axis": axis, "keepdims": keepdims}

    def oracle(x: np.ndarray) -> np.ndarray:
        size = np.abs(widen(x))
        if abs(order) == np.inf:
            return (np.max if order > 0 else np.min)(size, **how).astype(out)
        powers = (size != 0).astype(float) if order == 0 else size**order
        sums = np.asarray(np.sum(powers, **how))
        return (sums if order == 0 else sums ** (1 / order)).astype(out)

    rule = near(out, int(np.prod(shape, dtype=int)))
    return setting.call(
        setting.spell(name, a, text, method=name), oracle, scale=lambda size: np.sum(size, **how), rule=rule, local=True
    )


@row("cumulative_sum")
def cumulative_sum(setting: Setting, name: str) -> Call:
    """Sums up to each element, after a zero if that is asked for."""
    dtype, shape = setting.dtype(EVERY), setting.shape(low=1)
    a = setting.operand(shape, dtype)
    axis = setting.dim(len(shape))
    initial = setting.draws.rarely(3)
    out = np.cumulative_sum(np.zeros(1, dtype), axis=0).dtype if dtype.kind in "biu" else dtype
    how: dict[str, Any] = {"axis": axis, "include_initial": initial}
    text = f"axis={axis}" + (", include_initial=True" if initial else "")

    def oracle(x: np.ndarray) -> np.ndarray:
        return np.cumulative_sum(widen(x) if out.kind not in "iu" else x.astype(out), **how).astype(out)

    return setting.call(
        setting.spell(name, a, text, method=name),
        oracle,
        scale=lambda size: np.cumulative_sum(size, **how),
        rule=near(out, max(shape)),
        local=True,
    )


@row("argmax", "argmin")
def place(setting: Setting, name: str) -> Call:
    """Where the best is, the first of several."""
    dtype, shape = setting.dtype(ORDERED), setting.shape()
    a = setting.operand(shape, dtype)
    axis = None if not shape or not setting.draws.below(3) else setting.dim(len(shape))
    keepdims = setting.draws.below(2) == 1
    text = f"axis={axis}" + (", keepdims=True" if keepdims else "")
    function: Callable[..., Any] = getattr(np, name)
    return setting.call(
        setting.spell(name, a, text, method=name),
        lambda x: np.asarray(function(x.astype("float64") if x.dtype.kind == "V" else x, axis=axis, keepdims=keepdims)),
        local=True,
    )


@row("topk")
def topk(setting: Setting, name: str) -> Call:
    """The largest along a dim, found one by one."""
    dtype, shape = setting.dtype([t for t in REAL if t.kind != "b"]), setting.shape(low=1)
    a = setting.operand(shape, dtype, "finite")
    axis = setting.dim(len(shape))
    k = setting.draws.between(0, shape[axis])

    def oracle(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = np.moveaxis(x, axis, -1)
        flat = rows.reshape(-1, rows.shape[-1]) if rows.size else np.zeros((0, max(1, rows.shape[-1])), x.dtype)
        best = [sorted(range(len(line)), key=lambda i: (-float(line[i]), i))[:k] for line in flat]
        where = np.asarray(best, "int64").reshape(*rows.shape[:-1], k)
        return np.moveaxis(np.take_along_axis(rows, where, -1), -1, axis), np.moveaxis(where, -1, axis)

    return setting.call(setting.spell(name, a, str(k), f"axis={axis}", method=name), oracle, local="many")
