"""Rows of the elementwise functions: NumPy's of the same name, or what they are defined as."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from shardwise import Tensor
from tests.every.calls import Call, Setting
from tests.every.comparison import Rule
from tests.every.table import row
from tests.every.values import BOOL, COMPLEX, EVERY, FLOATS, INTS, NUMBERS, REAL, UINTS, Domain, Shape
from tests.prim.arithmetic.declared import BITS_OF_TWO, ONE, OWN, SHIFTS, TWO

EXACT, NEAR = Rule(), Rule(exact=False, ulps=8)
METHODS = {name for name in dir(Tensor) if not name.startswith("_")}


def _method(name: str) -> str | None:
    return name if name in METHODS and name not in ("real", "imag") else None


# -- of one tensor ---------------------------------------------------------------------------------------------

ORDERED = [*FLOATS, *INTS, *UINTS]
WHOLE = [*INTS, *UINTS]
BITWISE = [*INTS, *UINTS, *BOOL]
UNARY: dict[str, tuple[Any, Domain]] = {
    **dict.fromkeys([name for name in ONE if name not in OWN], (FLOATS, "any")),
    **dict.fromkeys(("negative", "positive", "square", "conj", "real", "imag"), (NUMBERS, "any")),
    **dict.fromkeys(("abs", "isfinite", "isinf", "isnan", "logical_not"), (EVERY, "any")),
    **dict.fromkeys(("sign", "ceil", "floor", "trunc", "round"), (ORDERED, "any")),
    "bitwise_invert": (BITWISE, "any"),
}
EXACTLY = {
    "negative", "positive", "conj", "real", "imag", "isfinite", "isinf", "isnan", "sign", "signbit", "ceil", "floor",
    "trunc", "round", "logical_not", "bitwise_invert",
}  # fmt: skip


@cache
def _refused(name: str, count: int) -> list[np.dtype]:
    # The dtypes that NumPy's function of this name is not defined for.
    found = []
    for dtype in EVERY:
        try:
            getattr(np, name)(*[np.zeros(0, dtype)] * count)
        except TypeError:
            found.append(dtype)
    return found


@row(*UNARY)
def one(setting: Setting, name: str) -> Call:
    """A function of NumPy's."""
    if setting.draws.rarely(12) and (refused := _refused(name, 1)):
        a = setting.operand(setting.shape(), setting.draws.choice(refused))
        return setting.call(f"sw.{name}({a})", getattr(np, name), refusal=f"{name} is not defined for", local=True)
    dtypes, domain = UNARY[name]
    exact = name in EXACTLY
    if not exact and dtypes is FLOATS and setting.draws.rarely(6):
        dtypes, domain = [*COMPLEX, *INTS], "small"
    if name in ("log1p", "expm1", "log2", "atan", "asin", "acos", "acosh", "atanh", "asinh"):
        dtypes = [dtype for dtype in dtypes if dtype.kind != "c"]  # whose branch cuts are a library's own
    dtype = setting.dtype(dtypes)
    a = setting.operand(setting.shape(), dtype, domain)
    rule = EXACT if exact or (name == "abs" and dtype.kind != "c") else NEAR
    return setting.call(setting.spell(name, a, method=_method(name)), getattr(np, name), rule=rule, local=True)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": _sigmoid,
    "silu": lambda x: x * _sigmoid(x),
    "softplus": lambda x: np.logaddexp(x, 0),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
}


@row(*ACTIVATIONS)
def activation(setting: Setting, name: str) -> Call:
    """A function as it is defined, in 64 bits."""
    dtype = setting.dtype(FLOATS)
    a = setting.operand(setting.shape(), dtype, "finite")
    oracle = ACTIVATIONS[name]
    return setting.call(
        setting.spell(name, a, method=name),
        lambda x: oracle(x.astype("float64")).astype(dtype),
        rule=Rule(exact=False, ulps=16),
        scale=lambda size: 1 + size,
        local=True,
    )


# -- of two ----------------------------------------------------------------------------------------------------

COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
LOGIC = ("logical_and", "logical_or", "logical_xor")
OPERATORS = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "pow": "**", "floor_divide": "//", "remainder": "%",
    "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "bitwise_left_shift": "<<", "bitwise_right_shift": ">>",
    "equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=",
}  # fmt: skip
PAIRS: dict[str, Any] = {
    **dict.fromkeys(TWO, FLOATS),
    **dict.fromkeys(("add", "subtract", "multiply"), NUMBERS),
    "divide": [*FLOATS, *COMPLEX, *INTS],
    "pow": [*FLOATS, *INTS],
    **dict.fromkeys(("floor_divide", "remainder"), ORDERED),
    **dict.fromkeys(("maximum", "minimum", *COMPARISONS), REAL),
    **dict.fromkeys(LOGIC, EVERY),
    **dict.fromkeys(BITS_OF_TWO, BITWISE),
    **dict.fromkeys(SHIFTS, WHOLE),
}
ROUNDED = {"add", "subtract", "multiply", "divide", "pow", "hypot", "logaddexp", "atan2"}
SCALES: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add, "subtract": np.add, "multiply": np.multiply, "logaddexp": lambda x, y: 1 + x + y,
}  # fmt: skip
METHODS_OF_TWO = {name for name in TWO if name not in OPERATORS}


@row(*PAIRS)
def two(setting: Setting, name: str) -> Call:
    """A function of two tensors that broadcast, of a tensor and a number, or of a number and a tensor."""
    draws = setting.draws
    if draws.rarely(12) and (refused := _refused(name, 2)):
        dtype, shape = draws.choice(refused), setting.shape()
        a, b = setting.operand(shape, dtype), setting.beside(_broadcast(setting, shape), dtype)
        refusal = f"{name} is not defined for"
        return setting.call(f"sw.{name}({a}, {b})", getattr(np, name), refusal=refusal, local=True)
    dtype = setting.dtype(PAIRS[name])
    shape = setting.shape()
    ints = dtype.kind in "iu"
    # What NumPy leaves to the machine: shifts by more than there is.
    domain: Domain = "positive" if name in SHIFTS else "any"
    whole: list[Any] = [2, 3, 1, 0, *([-1] if name == "pow" else [])]
    parts: list[Any] = [2.0, 0.5, -1.5, 3, 0.0, np.inf, np.nan]
    number: Any = draws.choice(whole if ints else parts)
    number = draws.choice([True, False]) if dtype.kind == "b" else number
    number = max(1, number) if ints and name in ("floor_divide", "remainder", "divide") else number
    kind = draws.choice(["tensors", "tensors", "tensors", "number", "reflected"])
    text = repr(number).replace("nan", "np.nan").replace("inf", "np.inf")
    function = getattr(np, name) if name != "pow" else _power
    plain = np.array(number).astype(dtype) if dtype.kind == "V" else number  # which NumPy would widen
    how: dict[str, Any] = {"local": True, "rule": _rule(setting, name)}
    if name == "pow" and kind == "number" and ints and number < 0:
        how["refusal"] = "integers to the power of -1 are not integers"
    if kind == "reflected" and dtype.kind == "u":
        number = plain = abs(number)
        text = repr(number)
    if kind != "tensors":
        a = setting.operand(shape, dtype, domain)
        args = (a, text) if kind == "number" else (text, a)
        oracle = (lambda x: function(x, plain)) if kind == "number" else (lambda x: function(plain, x))
        size = abs(number) if np.isfinite(number) else 0.0
        if name in SCALES:
            how["scale"] = lambda x: SCALES[name](x, size)
    else:
        a = setting.operand(shape, dtype, domain)
        b = setting.beside(_broadcast(setting, shape), _partner(setting, dtype, name), domain)
        args, oracle = (a, b), function
        how["scale"] = SCALES.get(name)
    how["rule"] = _rule(setting, name)
    operator = OPERATORS.get(name)
    if operator and not draws.below(3):
        left = f"({args[0]})" if args[0].startswith("-") else args[0]  # of -1.5 ** a the sign would come last
        return setting.call(f"{left} {operator} {args[1]}", oracle, **how)
    method = name if name in METHODS_OF_TWO and kind != "reflected" else None
    return setting.call(setting.spell(name, *args, method=method), oracle, **how)


def _power(x: Any, y: Any) -> Any:
    # NumPy's; of integers to negative elements, which it refuses, what is left without the fraction.
    if np.result_type(x, y).kind not in "iu" or not np.any(np.asarray(y) < 0):
        return np.pow(x, y)
    rest = np.where(abs(x) == 1, np.pow(x, y & 1), 0)
    return np.where(y < 0, rest, np.pow(x, np.maximum(y, 0))).astype(np.result_type(x, y))


def _rule(setting: Setting, name: str) -> Rule:
    forgiving = name in ("multiply", "divide") and setting.is_pending
    if name in ROUNDED:
        return Rule(exact=False, ulps=8, forgiving=forgiving)
    return Rule(signs=name not in ("maximum", "minimum"))  # of two zeros either may be the larger


def _broadcast(setting: Setting, shape: Shape) -> Shape:
    # A shape that broadcasts with another.
    out = [1 if setting.draws.rarely(4) else n for n in shape]
    return tuple(out[setting.draws.below(len(out) + 1) if setting.draws.rarely(3) else 0 :])


def _partner(setting: Setting, dtype: np.dtype, name: str) -> np.dtype:
    if dtype.kind in "Vb" or dtype == np.float16 or name in SHIFTS or not setting.draws.rarely(4):
        return dtype
    options = [other for other in PAIRS[name] if other.kind == dtype.kind]
    return setting.draws.choice(options)


# -- others ------------------------------------------------------------------------------------------------------


@row("where")
def where(setting: Setting, name: str) -> Call:
    """A condition and two values."""
    shape, dtype = setting.shape(), setting.dtype(EVERY)
    c = setting.operand(shape, np.dtype(bool))
    a = setting.beside(_broadcast(setting, shape), dtype)
    number = setting.draws.below(2) == 1
    b = "1" if number else setting.beside(_broadcast(setting, shape), dtype)
    oracle = (lambda c, x: np.where(c, x, 1).astype(np.result_type(x, 1))) if number else np.where
    return setting.call(f"sw.where({c}, {a}, {b})", oracle, local=True)


@row("clip")
def clip(setting: Setting, name: str) -> Call:
    """Limits that are numbers, or none."""
    dtype = setting.dtype([*FLOATS, *INTS])
    a = setting.operand(setting.shape(), dtype)
    low, high = setting.draws.choice([(0, 2), (None, 2), (1, None), (-1, 1), (2, 0)])
    code = setting.spell(name, a, str(low), str(high), method=name)
    return setting.call(code, lambda x: _clip(x, low, high), local=True, rule=Rule(signs=False))


def _clip(x: np.ndarray, low: int | None, high: int | None) -> np.ndarray:
    out = x if low is None else np.maximum(x, low)
    return out if high is None else np.minimum(out, high)


@row("astype")
def astype(setting: Setting, name: str) -> Call:
    """From any dtype to any that holds its values."""
    old = setting.dtype(EVERY)
    new = setting.draws.choice([t for t in EVERY if t.kind == "c" or old.kind != "c"])
    # What an integer makes of a float outside its range is left to the machine, and uints have no negative numbers.
    domain = "any" if new.kind in "fcVb" or old.kind in "biu" else "positive"
    a = setting.operand(setting.shape(), old, domain)
    rule = Rule(exact=not setting.is_pending)
    return setting.call(
        setting.spell(name, a, repr(str(new)), method=name), lambda x: x.astype(new), local=True, rule=rule
    )
