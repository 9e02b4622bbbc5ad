"""Elementwise ops, one row each: what an op of arith, math, index or tosa makes of arrays or scalars.

The same rows serve scalars, whole tensors, and the bodies of structured ops, where one array stands for the values
that a scalar takes over all iterations.
"""

from __future__ import annotations

from collections.abc import Callable
from math import erf
from typing import Any

import numpy as np
from xdsl.ir import Operation

from shardwise.errors import ProgramError
from shardwise.ir.interpret.program import integer, op_text, property_of
from shardwise.ir.interpret.values import dtype_of

Function = Callable[..., Any]


def _unsigned(x: Any) -> Any:
    return x.view(f"uint{8 * x.dtype.itemsize}") if x.dtype.kind == "i" else x


def _as_unsigned(function: Function) -> Function:
    return lambda *operands: function(*map(_unsigned, operands))


# -- integers ------------------------------------------------------------------------------------------

# A bool is a one-bit int: sums and differences wrap around.


def _add(a: Any, b: Any) -> Any:
    return a ^ b if a.dtype.kind == "b" else a + b


def _subtract(a: Any, b: Any) -> Any:
    return a ^ b if a.dtype.kind == "b" else a - b


def _multiply(a: Any, b: Any) -> Any:
    return a & b if a.dtype.kind == "b" else a * b


def _truncated(a: Any, b: Any) -> Any:
    # Towards zero, exactly, where NumPy's goes down.
    down = a // b
    return down + ((a % b != 0) & ((a < 0) != (b < 0)))


def _remainder(a: Any, b: Any) -> Any:
    return a - _truncated(a, b) * b


def _ceiling(a: Any, b: Any) -> Any:
    return a // b + (a % b != 0)


def _ones(x: Any) -> Any:
    # A true i1 extended with its sign is -1.
    return -x.astype("int8") if x.dtype.kind == "b" else x


def _leading_zeros(x: Any) -> Any:
    bits, wide = 8 * x.dtype.itemsize, _unsigned(x)
    found = np.zeros(x.shape, "int64")
    for k in range(bits):
        found = np.where((wide >> wide.dtype.type(k)) & wide.dtype.type(1), k + 1, found)
    return bits - found


def _trailing_zeros(x: Any) -> Any:
    bits, wide = 8 * x.dtype.itemsize, _unsigned(x)
    found = np.full(x.shape, bits)
    for k in reversed(range(bits)):
        found = np.where((wide >> wide.dtype.type(k)) & wide.dtype.type(1), k, found)
    return found


INTEGERS: dict[str, Function] = {
    "add": _add,
    "sub": _subtract,
    "mul": _multiply,
    "divs": _truncated,
    "divu": _as_unsigned(np.floor_divide),
    "floordivs": np.floor_divide,
    "ceildivs": _ceiling,
    "ceildivu": _as_unsigned(_ceiling),
    "rems": _remainder,
    "remu": _as_unsigned(np.remainder),
    "mins": np.minimum,
    "maxs": np.maximum,
    "minu": _as_unsigned(np.minimum),
    "maxu": _as_unsigned(np.maximum),
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": np.left_shift,
    "shrs": np.right_shift,
    "shru": _as_unsigned(np.right_shift),
}
# Where the second operand makes the result undefined: zero divisors, shifts by more than there are bits.
_DIVIDE = ("divs", "divu", "floordivs", "ceildivs", "ceildivu", "rems", "remu")
_SHIFT = ("shl", "shrs", "shru")


def _defined(name: str) -> Function:
    function = INTEGERS[name]

    def checked(op: Operation, a: Any, b: Any) -> Any:
        if name in _DIVIDE and not np.all(b):
            raise ProgramError(f"{op_text(op)} divides by zero.")
        if name in _SHIFT and np.any(_unsigned(b) >= 8 * b.dtype.itemsize):
            raise ProgramError(f"{op_text(op)} shifts by as many bits as there are, or more.")
        return function(a, b)

    return checked


# -- floats --------------------------------------------------------------------------------------------


def _away(x: Any) -> Any:
    # To the nearest, halves away from zero; exact, unlike adding one half.
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(1, x), whole)


def _sigmoid(x: Any) -> Any:
    return 0.5 * (np.tanh(0.5 * x) + 1)


_erf = np.vectorize(erf, otypes=["float64"])

# Of one operand: the names of math, then those that tosa has besides.
UNARY: dict[str, Function] = {
    "absf": np.abs,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "ceil": np.ceil,
    "cos": np.cos,
    "cosh": np.cosh,
    "erf": _erf,
    "erfc": lambda x: 1 - _erf(x),
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "floor": np.floor,
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "log2": np.log2,
    "round": _away,
    "roundeven": np.rint,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
    "trunc": np.trunc,
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

# -- comparisons ---------------------------------------------------------------------------------------

_UNORDERED: dict[str, Function] = {
    "eq": np.equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lt": np.less,
    "le": np.less_equal,
    "ne": np.not_equal,
}
# In the order of their numbers.
CMPI = ["eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"]
CMPF = [
    "false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true"
]  # fmt: skip


def _cmpi(op: Operation, a: Any, b: Any) -> Any:
    name = _predicate(op, CMPI)
    if name in ("eq", "ne"):
        return _UNORDERED[name](a, b)
    how = _UNORDERED[name[1:]]
    return how(_unsigned(a), _unsigned(b)) if name[0] == "u" else how(_ones(a), _ones(b))


def _cmpf(op: Operation, a: Any, b: Any) -> Any:
    name = _predicate(op, CMPF)
    both = ~(np.isnan(a) | np.isnan(b))
    if name in ("false", "true"):
        return np.full(np.broadcast_shapes(np.shape(a), np.shape(b)), name == "true")
    if name in ("ord", "uno"):
        return both if name == "ord" else ~both
    found = _UNORDERED[name[1:]](a, b)
    return found & both if name[0] == "o" else found | ~both


def _predicate(op: Operation, names: list[str]) -> str:
    given = property_of(op, "predicate")
    if given is None:
        given = property_of(op, "pred")
    try:
        return names[integer(given)]
    except (AttributeError, TypeError):  # spelt as a word, as the index dialect does
        return str(getattr(given, "data", given))


# -- conversions ---------------------------------------------------------------------------------------


def _to(convert: Function) -> Function:
    return lambda op, x: convert(x)


def _truncate(op: Operation, x: Any) -> Any:
    return x & 1 == 1 if dtype_of(op.results[0].type).kind == "b" else x


def _bitcast(op: Operation, x: Any) -> Any:
    return x.view(dtype_of(op.results[0].type))


CONVERSIONS: dict[str, Function] = {
    "arith.index_cast": _to(_ones),
    "arith.index_castui": _to(_unsigned),
    "arith.extsi": _to(_ones),
    "arith.extui": _to(_unsigned),
    "arith.trunci": _truncate,
    "arith.extf": _to(lambda x: x),
    "arith.truncf": _to(lambda x: x),
    "arith.sitofp": _to(_ones),
    "arith.uitofp": _to(_unsigned),
    "arith.fptosi": _to(np.trunc),
    "arith.fptoui": _to(lambda x: np.trunc(x).astype("uint64")),
    "arith.bitcast": _bitcast,
    "index.casts": _to(_ones),
    "index.castu": _to(_unsigned),
}


# -- tosa ----------------------------------------------------------------------------------------------


def _first(count: int, function: Function) -> Function:
    # Later operands are zero points and shifts, which are zero for floats.
    def checked(op: Operation, *operands: Any) -> Any:
        if any(np.any(extra) for extra in operands[count:]):
            raise ProgramError(f"{op_text(op)} has a zero point or shift other than 0, which is not supported.")
        return function(*operands[:count])

    return checked


def _clamp(op: Operation, x: Any) -> Any:
    low, high = (property_of(op, name).value.data for name in ("min_val", "max_val"))
    return np.clip(x, x.dtype.type(low), x.dtype.type(high))


def _cast(op: Operation, x: Any) -> Any:
    to = dtype_of(op.results[0].type)
    if to.kind == "b":
        return x != 0
    return np.rint(x) if to.kind in "iu" and x.dtype.kind not in "iub" else x


def _invert(x: Any) -> Any:
    return ~x


_TOSA_UNARY: dict[str, Function] = {
    "abs": np.abs,
    "bitwise_not": _invert,
    "ceil": np.ceil,
    "cos": np.cos,
    "erf": _erf,
    "exp": np.exp,
    "floor": np.floor,
    "identity": lambda x: x,
    "log": np.log,
    "logical_not": np.logical_not,
    "negate": np.negative,
    "reciprocal": lambda x: 1 / x,
    "rsqrt": UNARY["rsqrt"],
    "sigmoid": _sigmoid,
    "sin": np.sin,
    "tanh": np.tanh,
}
_TOSA_BINARY: dict[str, Function] = {
    "add": _add,
    "sub": _subtract,
    "mul": _multiply,
    "intdiv": _truncated,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "pow": np.power,
    "equal": np.equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "arithmetic_right_shift": np.right_shift,
    "logical_left_shift": np.left_shift,
    "logical_right_shift": _as_unsigned(np.right_shift),
}


def _plain(function: Function) -> Function:
    return lambda op, *operands: function(*operands)


# -- the table -----------------------------------------------------------------------------------------

_ARITH_NAMES = {name: f"{name[:-1]}{name[-1]}i" if name[-1] in "su" else f"{name}i" for name in INTEGERS}

# By op name, a function of the op and its operands.
ELEMENTWISE: dict[str, Function] = {
    **{f"arith.{spelt}": _defined(name) for name, spelt in _ARITH_NAMES.items()},
    **{f"index.{name}": _defined(name) for name in INTEGERS},
    **{f"arith.{name}": _plain(function) for name, function in FLOATS.items()},
    **{f"math.{name}": _plain(function) for name, function in (UNARY | BINARY).items()},
    "math.absi": _plain(np.abs),
    "math.ipowi": _plain(np.power),
    "math.fma": _plain(lambda a, b, c: a * b + c),
    "math.ctlz": _plain(_leading_zeros),
    "math.cttz": _plain(_trailing_zeros),
    "math.ctpop": _plain(lambda x: np.bitwise_count(_unsigned(x))),
    "arith.cmpi": _cmpi,
    "index.cmp": _cmpi,
    "arith.cmpf": _cmpf,
    "arith.select": _plain(np.where),
    **CONVERSIONS,
    **{f"tosa.{name}": _first(1, function) for name, function in _TOSA_UNARY.items()},
    **{f"tosa.{name}": _first(2, function) for name, function in _TOSA_BINARY.items()},
    "tosa.select": _plain(np.where),
    "tosa.clamp": _clamp,
    "tosa.cast": _cast,
}


def elementwise(op: Operation, operands: list[Any], dtype: np.dtype) -> Any:
    """Return what an op of the table makes of its operands, in the dtype of its result."""
    function = ELEMENTWISE[op.name]
    if any(x.dtype.kind == "V" for x in operands) and op.name != "arith.bitcast":
        # NumPy lacks some functions for bfloat16; rounding once from float32 is what hardware does too.
        operands = [x.astype("float32") if x.dtype.kind == "V" else x for x in operands]
    return np.asarray(function(op, *operands)).astype(dtype, copy=False)[()]
