"""Rows of products, convolution, normalization and losses: NumPy's, in a dtype with room."""

from itertools import product as places
from math import prod
from typing import Any

import numpy as np

from tests.every.calls import Call, Setting
from tests.every.comparison import Rule
from tests.every.reductions import logsumexp_of, near, widen
from tests.every.shaping import draw_indices
from tests.every.table import row
from tests.every.values import COMPLEX, FLOATS, INTS, Shape

DTYPES = [*FLOATS, *INTS[:2], *COMPLEX]


# Without infinities and NaN: what NumPy's own products make of zero times NaN depends on their shapes.
def _products(setting: Setting, code: str, function: Any, dtype: np.dtype, count: int, local: bool = True) -> Call:
    def oracle(*operands: np.ndarray) -> np.ndarray:
        return np.asarray(function(*map(widen, operands))).astype(dtype)

    rule = near(dtype, count) if dtype.kind not in "biu" else Rule()
    return setting.call(code, oracle, rule=rule, scale=function, local=local)


@row("einsum")
def einsum(setting: Setting, name: str) -> Call:
    """Terms of some letters, of which some are left out of the result."""
    draws, dtype = setting.draws, setting.dtype(DTYPES)
    letters = "ijkl"[: draws.between(1, 4)]
    sizes = {letter: draws.between(1, 5) for letter in letters}
    terms = ["".join(draws.some(letters)) or letters[0] for _ in range(draws.between(1, 3))]
    used = sorted(set("".join(terms)))
    out = "".join(used[i] for i in draws.order(len(used)) if draws.below(2))
    text = ",".join(terms) + "->" + out
    names = [setting.operand(tuple(sizes[c] for c in terms[0]), dtype, "finite")]
    names += [setting.beside(tuple(sizes[c] for c in term), dtype, "finite") for term in terms[1:]]
    code = f"sw.einsum({text!r}, {', '.join(names)})"
    return _products(setting, code, lambda *xs: np.einsum(text, *xs), dtype, prod(sizes.values()))


@row("matmul")
def matmul(setting: Setting, name: str) -> Call:
    """Matrices and vectors, with leading dims that broadcast."""
    draws, dtype = setting.draws, setting.dtype(DTYPES)
    n, m, k = (draws.between(1, 6) for _ in range(3))
    batch = setting.shape(high=2, most=3, least=1)
    left: Shape = (m,) if draws.rarely(4) else (*batch, n, m)
    right: Shape = (m,) if draws.rarely(4) else (*(1 if draws.rarely(3) else b for b in batch), m, k)
    right = right[len(batch) :] if draws.below(2) and len(right) > 2 else right
    a, b = setting.operand(left, dtype, "finite"), setting.beside(right, dtype, "finite")
    code = f"{a} @ {b}" if draws.below(2) and setting.operands[a].layout else setting.spell(name, a, b, method=name)
    return _products(setting, code, np.matmul, dtype, m)


@row("tensordot")
def tensordot(setting: Setting, name: str) -> Call:
    """The last dims with the first, or pairs of dims."""
    draws, dtype = setting.draws, setting.dtype(DTYPES)
    shared = setting.shape(high=2, most=4, least=1)
    left, right = (*setting.shape(high=2, most=4, least=1), *shared), (*shared, *setting.shape(high=2, most=4, least=1))
    axes: Any = len(shared)
    if draws.below(2):
        axes = tuple(range(len(left) - len(shared), len(left))), tuple(range(len(shared)))
    a, b = setting.operand(left, dtype, "finite"), setting.beside(right, dtype, "finite")
    code = setting.spell(name, a, b, f"axes={axes}", method=name)
    return _products(setting, code, lambda x, y: np.tensordot(x, y, axes), dtype, prod(shared))


@row("conv")
def conv(setting: Setting, name: str) -> Call:
    """One or two dims of space, with strides, gaps, groups and padding."""
    draws, dtype = setting.draws, setting.dtype(FLOATS)
    space = draws.between(1, 2)
    groups = draws.choice([1, 1, 2])
    channels, filters = groups * draws.between(1, 2), groups * draws.between(1, 2)
    widths = tuple(draws.between(1, 3) for _ in range(space))
    stride, gap = draws.between(1, 2), draws.between(1, 2)
    sizes = tuple((w - 1) * gap + 1 + draws.below(5) for w in widths)
    padding: Any = draws.choice(["VALID", "SAME", [(1, 2)] * space])
    a = setting.operand((draws.between(1, 3), channels, *sizes), dtype, "finite")
    b = setting.beside((filters, channels // groups, *widths), dtype, "finite")
    how: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": gap, "groups": groups}
    text = ", ".join(f"{key}={value!r}" for key, value in how.items())
    code = setting.spell(name, a, b, text, method=name)
    count = channels * prod(widths)
    return _products(setting, code, lambda x, w: convolve(x, w, **how), dtype, count)


def convolve(x: np.ndarray, w: np.ndarray, stride: int, padding: Any, dilation: int, groups: int) -> np.ndarray:
    """The sum of the products with the kernel at every place, one place after the other."""
    sizes, widths = x.shape[2:], w.shape[2:]
    spans = [(width - 1) * dilation + 1 for width in widths]
    if padding == "SAME":
        wanted = [-(-size // stride) for size in sizes]
        totals = [max(0, (n - 1) * stride + span - s) for n, span, s in zip(wanted, spans, sizes, strict=True)]
        pairs = [(total // 2, total - total // 2) for total in totals]
    else:
        pairs = [(0, 0)] * len(sizes) if padding == "VALID" else padding
    x = np.pad(x, [(0, 0), (0, 0), *pairs])
    counts = [(size - span) // stride + 1 for size, span in zip(x.shape[2:], spans, strict=True)]
    out = np.zeros((x.shape[0], w.shape[0], *counts), x.dtype)
    for where in places(*map(range, counts)):
        box = tuple(slice(p * stride, p * stride + span, dilation) for p, span in zip(where, spans, strict=True))
        window = x[(slice(None), slice(None), *box)]
        for filter_, kernel in enumerate(w):
            group = filter_ * groups // w.shape[0]
            some = window[:, group * w.shape[1] : (group + 1) * w.shape[1]]
            out[(slice(None), filter_, *where)] = (some * kernel).reshape(len(x), -1).sum(1)
    return out


@row("layer_norm", "rms_norm")
def normalize(setting: Setting, name: str) -> Call:
    """Values over dims, by their mean and spread, or by their size."""
    dtype, shape = setting.dtype(FLOATS), setting.shape(low=1, least=1)
    axis: Any = setting.dim(len(shape))
    dims = (axis % len(shape),)
    if setting.draws.rarely(3):
        axis = dims = tuple(setting.draws.some(range(len(shape)))) or (0,)
    a = setting.operand(shape, dtype, "finite")
    weight = tuple(shape[k] for k in dims)
    names = [
        a,
        *(
            setting.beside(weight, dtype, "finite")
            for _ in range(setting.draws.below(3 if name == "layer_norm" else 2))
        ),
    ]
    code = setting.spell(name, *names, f"axis={axis}", method=name)
    wide = tuple(n if k in dims else 1 for k, n in enumerate(shape))

    def oracle(x: np.ndarray, *more: np.ndarray) -> np.ndarray:
        scale, shift = (*map(widen, more), None, None)[:2]
        x = widen(x)
        x = x - np.mean(x, axis=dims, keepdims=True) if name == "layer_norm" else x
        out = x / np.sqrt(np.mean(x * x, axis=dims, keepdims=True) + 1e-5)
        out = out if scale is None else out * scale.reshape(wide)
        return (out if shift is None else out + shift.reshape(wide)).astype(dtype)

    # The mean that is taken away is rounded; where all values are nearly one, what is left is that rounding.
    def scale(size: np.ndarray, *more: np.ndarray) -> np.ndarray:
        spread = np.sqrt(np.var(widen(setting.values[0]), axis=dims, keepdims=True) + 1e-5)
        out = np.max(size, axis=dims, keepdims=True) / (spread if name == "layer_norm" else 1) + 1 + 0 * size
        for some in more:
            out = out * (1 + some.reshape(wide))
        return out * 4

    return setting.call(code, oracle, rule=near(dtype, prod(weight)), scale=scale, local=name == "rms_norm")


@row("cross_entropy")
def cross_entropy(setting: Setting, name: str) -> Call:
    """Losses of labels, of which some do not count."""
    draws, dtype, shape = setting.draws, setting.dtype(FLOATS), setting.shape(low=1, least=1)
    axis = setting.dim(len(shape))
    rest = tuple(n for k, n in enumerate(shape) if k != axis % len(shape))
    a = setting.operand(shape, dtype, "finite")
    labels = np.abs(draw_indices(setting, rest, shape[axis]).astype("int64")) % shape[axis]
    b = setting.operand(rest, np.dtype("int64"), pending=False, value=labels)
    how: dict[str, Any] = {"axis": axis, "reduction": draws.choice(["mean", "sum", "none"])}
    ignored = 0 if draws.rarely(3) else None
    text = ", ".join(f"{key}={value!r}" for key, value in how.items()) + (", ignore_index=0" if ignored == 0 else "")

    def oracle(x: np.ndarray, index: np.ndarray) -> np.ndarray:
        rows, lines = np.moveaxis(widen(x), axis, -1), logsumexp_of(widen(x), axis, False)
        loss = lines - np.take_along_axis(rows, index[..., None], -1)[..., 0]
        counts = index != ignored if ignored is not None else np.ones(index.shape, bool)
        loss = np.where(counts, loss, 0.0)
        out = loss if how["reduction"] == "none" else loss.sum()
        return np.asarray(out / counts.sum() if how["reduction"] == "mean" else out).astype(dtype)

    count = prod(rest) if how["reduction"] == "sum" else 1
    return setting.call(
        setting.spell(name, a, b, text, method=name),
        oracle,
        rule=near(dtype, 16 + prod(shape)),
        scale=lambda size, index: np.full(rest if how["reduction"] == "none" else (), (4 + 4 * np.max(size)) * count),
        local=True,
    )
