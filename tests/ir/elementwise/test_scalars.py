"""Functions of numbers as MLIR means them: exact in every small width, against Python's own integers."""

from itertools import product
from math import erf, trunc

import numpy as np
import pytest

from shardwise.ir.elementwise.scalars import (
    BINARY,
    FLOATS,
    INTEGERS,
    UNARY,
    as_signed,
    as_unsigned,
    leading_zeros,
    sigmoid,
    trailing_zeros,
    truncating_divide,
)

SMALL = [-128, -127, -100, -7, -2, -1, 0, 1, 2, 3, 7, 100, 127]


def wrapped(n: int) -> int:
    return (n + 128) % 256 - 128


def down(a: int, b: int) -> int:
    return a // b


PYTHON = {
    "add": lambda a, b: wrapped(a + b),
    "sub": lambda a, b: wrapped(a - b),
    "mul": lambda a, b: wrapped(a * b),
    "divs": lambda a, b: trunc(a / b),
    "floordivs": down,
    "ceildivs": lambda a, b: -(-a // b),
    "rems": lambda a, b: a - trunc(a / b) * b,
    "mins": min,
    "maxs": max,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}
UNSIGNED = {
    "divu": down,
    "remu": lambda a, b: a % b,
    "ceildivu": lambda a, b: -(-a // b),
    "minu": min,
    "maxu": max,
}


@pytest.mark.parametrize("name", PYTHON)
def test_of_ints_with_a_sign(name: str) -> None:
    for a, b in product(SMALL, SMALL):
        if ("div" in name or "rem" in name) and (b == 0 or (a, b) == (-128, -1)):
            continue
        with np.errstate(over="ignore"):
            got = INTEGERS[name](np.array([a], "int8"), np.array([b], "int8"))
        assert int(got[0]) == PYTHON[name](a, b), (a, b)


@pytest.mark.parametrize("name", UNSIGNED)
def test_of_ints_without_a_sign(name: str) -> None:
    for a, b in product(SMALL, SMALL):
        if b == 0 and name not in ("minu", "maxu"):
            continue
        got = INTEGERS[name](np.array([a], "int8"), np.array([b], "int8"))
        assert int(got[0]) % 256 == UNSIGNED[name](a % 256, b % 256), (a, b)


def test_shifts() -> None:
    for a, by in product(SMALL, range(8)):
        x, y = np.array([a], "int8"), np.array([by], "int8")
        assert int(INTEGERS["shl"](x, y)[0]) == wrapped(a << by)
        assert int(INTEGERS["shrs"](x, y)[0]) == a >> by
        assert int(INTEGERS["shru"](x, y)[0]) == (a % 256) >> by


def test_a_bool_is_an_int_of_one_bit() -> None:
    for a, b in product((False, True), repeat=2):
        x, y = np.array([a]), np.array([b])
        assert bool(INTEGERS["add"](x, y)[0]) == ((a + b) % 2 == 1)
        assert bool(INTEGERS["sub"](x, y)[0]) == ((a - b) % 2 == 1)
        assert bool(INTEGERS["mul"](x, y)[0]) == (a and b)
    assert as_signed(np.array([True, False])).tolist() == [-1, 0]
    assert as_signed(np.array([5])).tolist() == [5]
    assert as_unsigned(np.array([-1], "int16")).tolist() == [65535]
    assert as_unsigned(np.array([1.5])).tolist() == [1.5]


def test_zero_bits_are_counted_from_both_ends() -> None:
    for n in SMALL:
        bits = f"{n % 256:08b}"
        x = np.array([n], "int8")
        assert int(leading_zeros(x)[0]) == len(bits) - len(bits.lstrip("0"))
        assert int(trailing_zeros(x)[0]) == len(bits) - len(bits.rstrip("0"))
    assert int(leading_zeros(np.array([1], "int64"))[0]) == 63


def test_quotients_of_large_ints_are_exact() -> None:
    big = 2**62 + 1
    assert int(truncating_divide(np.array([-big]), np.array([3]))[0]) == -(big // 3)


def test_floats() -> None:
    x = np.array([-2.5, -1.5, -0.5, -0.4, 0.0, 0.4, 0.5, 1.5, 2.5, 0.49999999999999994])
    assert UNARY["round"](x).tolist() == [-3, -2, -1, 0, 0, 0, 1, 2, 3, 0]
    assert UNARY["roundeven"](x).tolist() == [-2, -2, 0, 0, 0, 0, 0, 2, 2, 0]
    np.testing.assert_allclose(UNARY["erf"](x), [erf(v) for v in x])
    np.testing.assert_allclose(UNARY["erfc"](x), [1 - erf(v) for v in x])
    np.testing.assert_allclose(UNARY["rsqrt"](np.array([4.0, 0.25])), [0.5, 2.0])
    np.testing.assert_allclose(sigmoid(x), 1 / (1 + np.exp(-x)))
    assert sigmoid(np.array([-1e4, 1e4])).tolist() == [0, 1]
    assert FLOATS["remf"](np.array([-7.0]), np.array([3.0])).tolist() == [-1.0]
    nan = np.array([np.nan]), np.array([1.0])
    assert np.isnan(FLOATS["maximumf"](*nan)[0])
    assert np.isnan(FLOATS["minimumf"](*nan)[0])
    assert FLOATS["maxnumf"](*nan).tolist() == [1.0]
    assert FLOATS["minnumf"](*nan).tolist() == [1.0]
    assert BINARY["atan2"](np.array([1.0]), np.array([-1.0])).tolist() == [np.arctan2(1.0, -1.0)]


NAMED = ["acos", "acosh", "asin", "asinh", "atan", "atanh"]


@pytest.mark.parametrize("name", sorted(set(UNARY) - {"round", "roundeven", "erf", "erfc", "rsqrt"}))
def test_functions_of_one_are_numpys(name: str) -> None:
    theirs = getattr(np, {"absf": "abs"}.get(name, "arc" + name[1:] if name in NAMED else name))
    value = np.array([1.25 if name == "acosh" else 0.75, 1.0])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(UNARY[name](value), theirs(value))
