"""Values to draw: whole numbers, fractions, and what is special in a dtype: zeros, -0.0, infinities, NaN, extremes."""

from collections.abc import Sequence
from functools import cache, reduce
from typing import Any, Literal

import ml_dtypes
import numpy as np

from shardwise import ReduceOp
from tests.every.draws import Draws

Shape = tuple[int, ...]
Domain = Literal["any", "odd", "finite", "small", "unit", "positive"]  # odd: any but extremes

BOOL = [np.dtype(bool)]
INTS = [np.dtype(t) for t in ("int64", "int32", "int16", "int8")]
UINTS = [np.dtype(t) for t in ("uint8", "uint16", "uint32", "uint64")]
WIDE = [np.dtype(t) for t in ("float64", "float32")]
HALVES = [np.dtype("float16"), np.dtype(ml_dtypes.bfloat16)]
QUARTERS = [np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)]
FLOATS = [*WIDE, *HALVES]
COMPLEX = [np.dtype("complex128"), np.dtype("complex64")]
REAL = [*FLOATS, *INTS, *UINTS, *BOOL]
NUMBERS = [*FLOATS, *INTS, *UINTS, *COMPLEX]
EVERY = [*NUMBERS, *BOOL]
NIBBLES = [np.dtype(ml_dtypes.int4), np.dtype(ml_dtypes.uint4)]
MOVABLE = [*EVERY, *QUARTERS, *NIBBLES]  # dtypes that values are moved in, though not computed


def is_float(dtype: np.dtype) -> bool:
    """Whether a dtype holds real numbers that are rounded."""
    return dtype.kind == "f" or (dtype.kind == "V" and dtype in (*HALVES, *QUARTERS))


def is_whole(dtype: np.dtype) -> bool:
    """Whether a dtype holds bools or integers, those of four bits among them."""
    return dtype.kind in "biu" or dtype in NIBBLES


def finfo(dtype: np.dtype) -> Any:
    """What is known of a float dtype, or of the parts of a complex one."""
    return ml_dtypes.finfo({"complex64": "float32", "complex128": "float64"}.get(str(dtype), dtype))


@cache
def _special(dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "b":
        return np.array([False, True])
    if is_whole(dtype):
        info: Any = ml_dtypes.iinfo(dtype)
        return np.array([dtype.type(i) for i in (0, 1, int(info.max), int(info.min), int(info.max) - 1, 2)])
    info = finfo(dtype)
    numbers = [0.0, -0.0, np.inf, -np.inf, np.nan, float(info.max), float(info.min), float(info.tiny), -1.0]
    with np.errstate(all="ignore"):
        if dtype.kind == "c":
            return np.array([complex(a, b) for a in numbers[:5] for b in numbers[:5]], dtype)
        return np.array(numbers).astype(dtype)


def draw_values(draws: Draws, shape: Shape, dtype: np.dtype, domain: Domain = "any") -> np.ndarray:
    """An array of a dtype; the simplest counts 1, 2, 3 and so on."""
    styles = ["counted", "small", "fractions", *(["special"] if domain in ("any", "odd") else [])]
    style = draws.choice(styles if domain != "small" else styles[:2])
    size = int(np.prod(shape, dtype=int))
    rng = np.random.default_rng(draws.below(1 << 16)) if style != "counted" else None
    out = _draw_numbers(style, size, dtype, rng, domain)
    return out.reshape(shape)


def _draw_numbers(style: str, size: int, dtype: np.dtype, rng: np.random.Generator | None, domain: str) -> np.ndarray:
    if rng is None:
        out = np.arange(size) % 7 + 1 if dtype.kind != "b" else np.arange(size) % 3 == 0
        out = out / 8 if domain == "unit" else out
        return np.asarray(out).astype(dtype)
    if style == "special":
        out = _draw_numbers("small", size, dtype, rng, domain)
        odd = rng.random(size) < 0.4
        numbers = _special(dtype)
        out[odd] = rng.choice(numbers[:5] if domain == "odd" and is_float(dtype) else numbers, int(odd.sum()))
        return out
    low = 0 if dtype.kind in "bu" or dtype == NIBBLES[1] else 1 if domain == "positive" else -3
    high = 2 if dtype.kind == "b" else 5 if domain == "positive" else 4
    out = rng.integers(low, high, size)
    if style == "fractions" and (is_float(dtype) or dtype.kind == "c"):
        out = out + rng.integers(0, 8, size) / 8
    if domain == "unit":
        out = out / 4.5 if dtype.kind not in "biu" else out % 2
    if dtype.kind == "c":
        out = out + 1j * rng.integers(low, high, size)
    return np.asarray(out).astype(dtype)


# -- pending reductions --------------------------------------------------------------------------------------


def draw_terms(
    draws: Draws, shape: Shape, dtype: np.dtype, op: ReduceOp, count: int, domain: Domain
) -> list[np.ndarray]:
    """Contributions whose reduction is the same number in whatever order it is made."""
    salt = draws.below(1 << 16)
    size = int(np.prod(shape, dtype=int))
    rngs = [np.random.default_rng([salt, i]) for i in range(count)]
    if is_whole(dtype) or op in (ReduceOp.MAX, ReduceOp.MIN):
        style = "small" if domain not in ("any", "odd") else draws.choice(["small", "special"])
        return [_draw_numbers(style, size, dtype, rng, domain).reshape(shape) for rng in rngs]
    terms = [_draw_numbers("small", size, dtype, rng, "any") for rng in rngs]
    if dtype in QUARTERS:  # whose whole numbers end at 16
        terms = [term if i < 4 else np.zeros_like(term) for i, term in enumerate(terms)]
    if op is ReduceOp.PROD:
        ones = [np.where(rng.random(size) < 0.5, 1, -1).astype(dtype) for rng in rngs]
        terms = [np.clip(np.real(t), -2, 2).astype(dtype) if i < 4 else ones[i] for i, t in enumerate(terms)]
    if op is ReduceOp.AVG:  # the average of terms that differ by 1, up and down
        lone = terms[0] if dtype not in QUARTERS else np.clip(terms[0], -1, 1)
        terms = [(lone + (1 if i % 2 else -1) * (i < count // 2 * 2)).astype(dtype) for i in range(count)]
    if domain in ("any", "odd") and draws.rarely(3):
        terms = [_with_odd(term, rng, op is ReduceOp.SUM) for term, rng in zip(terms, rngs, strict=True)]
    return [term.reshape(shape) for term in terms]


def _with_odd(term: np.ndarray, rng: np.random.Generator, zeros: bool) -> np.ndarray:
    odd = rng.random(term.size) < 0.1
    numbers = [np.nan, *([-0.0] if zeros else []), *([np.inf] if term.dtype not in QUARTERS[:1] else [])]
    out = term.copy()
    out[odd] = np.array(rng.choice(numbers, int(odd.sum()))).astype(term.dtype)
    return out


def reduce_terms(terms: Sequence[np.ndarray], op: ReduceOp) -> np.ndarray:
    """The reduction, in a dtype with room for it, rounded once."""
    dtype = terms[0].dtype
    with np.errstate(all="ignore"):
        if dtype in NIBBLES:  # the last four bits of the result in eight
            return np.asarray(reduce(UFUNC[op], [term.astype("int8") for term in terms])).astype(dtype)
        if dtype.kind in "biu" or op in (ReduceOp.MAX, ReduceOp.MIN):
            return np.asarray(reduce(UFUNC[op], terms)).astype(dtype)
        wide = np.stack(terms).astype("complex128" if dtype.kind == "c" else "float64")
        # NaN is the other part of one times an infinite complex number: who contributes nothing is left out.
        alone = op is ReduceOp.PROD and dtype.kind == "c"
        out = reduce(_product_but_ones, wide) if alone else reduce(UFUNC[op], wide)
        if op is ReduceOp.AVG:  # of complex numbers part by part: a NaN in one says nothing of the other
            out = np.asarray(out)[..., None].view("float64") / len(terms)
            out = out.view(wide.dtype)[..., 0]
        return np.asarray(out).astype(dtype)


def _product_but_ones(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.array([y if x == 1 else x if y == 1 else x * y for x, y in zip(a.flat, b.flat, strict=True)]).reshape(
        a.shape
    )


UFUNC: dict[ReduceOp, np.ufunc] = {
    ReduceOp.SUM: np.add,
    ReduceOp.AVG: np.add,
    ReduceOp.PROD: np.multiply,
    ReduceOp.MAX: np.maximum,
    ReduceOp.MIN: np.minimum,
    ReduceOp.BAND: np.bitwise_and,
    ReduceOp.BOR: np.bitwise_or,
    ReduceOp.BXOR: np.bitwise_xor,
}
