"""When a result is what NumPy says: bit by bit where values are moved or counted, near where they are rounded.

- Shapes and dtypes are equal; integers and bools too, and what is only moved, to the sign of zero and which are NaN.
- Rounded results lie within some units in the last place of `scale`, the size of what was added up on the way to
  each element (its own size, if nothing was). NaN is NaN and an infinity an infinity, except where sums on the way to
  it can leave the range of the dtype in one order and not in another.
- The one exception of the library: an infinite factor of a pending sum may give NaN where NumPy has an infinity.
"""

from dataclasses import dataclass

import numpy as np

from tests.every.values import finfo


@dataclass(frozen=True)
class Rule:
    """How near is near enough."""

    exact: bool = True
    ulps: float = 4.0
    signs: bool = True  # of zeros, where exact
    forgiving: bool = False  # NaN for an infinity


def difference(got: np.ndarray, want: np.ndarray, scale: np.ndarray | None, rule: Rule) -> str | None:
    """What is wrong with an array, or None."""
    if got.shape != want.shape:
        return f"shape {got.shape} instead of {want.shape}"
    if got.dtype != want.dtype:
        return f"dtype {got.dtype} instead of {want.dtype}"
    if want.dtype.kind in "biu":
        wrong = got != want
    elif rule.exact:
        wrong = _differ(got, want, rule)
    else:
        wrong = _far(got, want, scale, rule)
    if not np.any(wrong):
        return None
    where = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{got[where]!r} instead of {want[where]!r} at {where}, {int(np.sum(wrong))} of {want.size} differ"


def _parts(array: np.ndarray) -> list[np.ndarray]:
    if array.dtype.kind == "c":
        return [np.real(array).astype("float64"), np.imag(array).astype("float64")]
    return [array.astype("float64")]


def _differ(got: np.ndarray, want: np.ndarray, rule: Rule) -> np.ndarray:
    wrong = np.zeros(want.shape, bool)
    for g, w in zip(_parts(got), _parts(want), strict=True):
        equal = (g == w) | (np.isnan(g) & np.isnan(w))
        if rule.signs:
            equal &= (np.signbit(g) == np.signbit(w)) | np.isnan(w)
        if rule.forgiving:
            equal |= np.isnan(g) & np.isinf(w)
        wrong |= ~equal
    return wrong


def _far(got: np.ndarray, want: np.ndarray, scale: np.ndarray | None, rule: Rule) -> np.ndarray:
    info = finfo(want.dtype)
    with np.errstate(all="ignore"):
        size = np.abs(want.astype("complex128" if want.dtype.kind == "c" else "float64"))
        size = size if scale is None else np.maximum(np.asarray(scale, "float64"), np.where(np.isfinite(size), size, 0))
        room = rule.ulps * (float(info.eps) * size + float(info.smallest_subnormal))
        wrong = np.zeros(want.shape, bool)
        for g, w in zip(_parts(got), _parts(want), strict=True):
            fine = (np.isnan(g) & np.isnan(w)) | (g == w) | (np.isfinite(w) & (np.abs(g - w) <= room))
            if rule.forgiving:
                fine |= np.isnan(g) & np.isinf(w)
            wrong |= ~fine
        if want.dtype.kind == "c":  # which part of it is infinite or NaN depends on how it was multiplied
            wrong &= np.isfinite(got.astype("complex128")) | np.isfinite(want.astype("complex128"))
        return wrong & ~(size > float(info.max) / 4) if scale is not None else wrong
