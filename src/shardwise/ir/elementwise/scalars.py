"""Functions of numbers that NumPy does not have as MLIR means them, and the names of those that it has."""

from __future__ import annotations

from collections.abc import Callable
from math import erf
from typing import Any, cast

import numpy as np

Function = Callable[..., Any]
Unary = Callable[[Any], Any]


def as_unsigned(x: Any) -> Any:
    """Return ints as if they had no sign."""
    return x.view(f"uint{8 * x.dtype.itemsize}") if x.dtype.kind == "i" else x


def on_unsigned(function: Function) -> Function:
    """Return a function of ints that takes them without a sign."""
    return lambda *operands: function(*map(as_unsigned, operands))


# -- integers ------------------------------------------------------------------------------------------

# A bool is a one-bit int: sums and differences wrap around.


def _of_ints_or_bools(ints: Function, bools: Function) -> Function:
    def compute(a: Any, b: Any) -> Any:
        return (bools if a.dtype.kind == "b" else ints)(a, b)

    return compute


def truncating_divide(a: Any, b: Any) -> Any:
    """Return a quotient rounded towards zero, exactly, where NumPy's goes down."""
    down = a // b
    return down + ((a % b != 0) & ((a < 0) != (b < 0)))


def _remainder(a: Any, b: Any) -> Any:
    return a - truncating_divide(a, b) * b


def _ceiling(a: Any, b: Any) -> Any:
    return a // b + (a % b != 0)


def as_signed(x: Any) -> Any:
    """Return ints with their sign: a true i1 is -1."""
    return -x.astype("int8") if x.dtype.kind == "b" else x


def leading_zeros(x: Any) -> Any:
    """Return how many zero bits come first."""
    bits, wide = 8 * x.dtype.itemsize, as_unsigned(x)
    for shift in (1, 2, 4, 8, 16, 32):  # every bit below the first one that is set becomes set too
        if shift < bits:
            wide = wide | wide >> wide.dtype.type(shift)
    return bits - np.bitwise_count(wide).astype("int64")


def trailing_zeros(x: Any) -> Any:
    """Return how many zero bits come last."""
    wide = as_unsigned(x)
    return np.bitwise_count(~wide & wide - wide.dtype.type(1)).astype("int64")


INTEGERS: dict[str, Function] = {
    "add": _of_ints_or_bools(np.add, np.bitwise_xor),
    "sub": _of_ints_or_bools(np.subtract, np.bitwise_xor),
    "mul": _of_ints_or_bools(np.multiply, np.bitwise_and),
    "divs": truncating_divide,
    "divu": on_unsigned(np.floor_divide),
    "floordivs": np.floor_divide,
    "ceildivs": _ceiling,
    "ceildivu": on_unsigned(_ceiling),
    "rems": _remainder,
    "remu": on_unsigned(np.remainder),
    "mins": np.minimum,
    "maxs": np.maximum,
    "minu": on_unsigned(np.minimum),
    "maxu": on_unsigned(np.maximum),
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": np.left_shift,
    "shrs": np.right_shift,
    "shru": on_unsigned(np.right_shift),
}
# -- floats --------------------------------------------------------------------------------------------


def _round_half_away(x: Any) -> Any:
    # Exact, unlike adding one half.
    whole = np.trunc(x)
    return cast("np.ndarray", np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(1, x), whole))


def sigmoid(x: Any) -> Any:
    """Return 1 / (1 + exp(-x)), without overflow."""
    return 0.5 * (np.tanh(0.5 * x) + 1)


_erf: Unary = np.vectorize(erf, otypes=["float64"])

# Of one operand: the names of math, most of which NumPy has too.
SHARED = "cbrt ceil cos cosh exp exp2 expm1 floor log log10 log1p log2 sin sinh sqrt tan tanh trunc"
UNARY: dict[str, Unary] = {
    **{name: getattr(np, name) for name in SHARED.split()},
    **{f"a{name}": getattr(np, f"arc{name}") for name in ("cos", "cosh", "sin", "sinh", "tan", "tanh")},
    "absf": np.abs,
    "erf": _erf,
    "erfc": lambda x: 1 - _erf(x),
    "round": _round_half_away,
    "roundeven": np.rint,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}
BINARY: dict[str, Function] = {"atan2": np.arctan2, "copysign": np.copysign, "powf": np.power, "fpowi": np.power}
FLOATS: dict[str, Function] = {
    "addf": np.add,
    "subf": np.subtract,
    "mulf": np.multiply,
    "divf": np.divide,
    "remf": np.fmod,
    "negf": np.negative,
    "maximumf": np.maximum,
    "minimumf": np.minimum,
    "maxnumf": np.fmax,
    "minnumf": np.fmin,
}
