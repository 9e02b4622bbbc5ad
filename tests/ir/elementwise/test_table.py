"""Ops on elements do what Python's own arithmetic says they should, on scalars and on tensors alike."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise.errors import ProgramError
from shardwise.ir.elementwise.table import ELEMENTWISE
from shardwise.ir.interpret.run import execute
from shardwise.ir.text import parse_module


def run(op: str, kind: str, result: str, *operands: Any) -> Any:
    """Run one op on scalars of a kind; `op` has the operands %0, %1, ..."""
    names = ", ".join(f"%{i}: {kind}" for i in range(len(operands)))
    return execute(parse_module(f"func.func @f({names}) -> {result} {{ %r = {op}\n return %r : {result} }}"), *operands)


def wrapped(value: int, bits: int, signed: bool = True) -> int:
    value %= 1 << bits
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def towards_zero(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def unsigned(a: int, bits: int) -> int:
    return a % (1 << bits)


INTS: dict[str, Callable[[int, int, int], int]] = {
    "addi": lambda a, b, n: a + b,
    "subi": lambda a, b, n: a - b,
    "muli": lambda a, b, n: a * b,
    "divsi": lambda a, b, n: towards_zero(a, b),
    "divui": lambda a, b, n: unsigned(a, n) // unsigned(b, n),
    "floordivsi": lambda a, b, n: a // b,
    "ceildivsi": lambda a, b, n: -(-a // b),
    "ceildivui": lambda a, b, n: -(-unsigned(a, n) // unsigned(b, n)),
    "remsi": lambda a, b, n: a - towards_zero(a, b) * b,
    "remui": lambda a, b, n: unsigned(a, n) % unsigned(b, n),
    "maxsi": lambda a, b, n: max(a, b),
    "minsi": lambda a, b, n: min(a, b),
    "maxui": lambda a, b, n: max(unsigned(a, n), unsigned(b, n)),
    "minui": lambda a, b, n: min(unsigned(a, n), unsigned(b, n)),
    "andi": lambda a, b, n: a & b,
    "ori": lambda a, b, n: a | b,
    "xori": lambda a, b, n: a ^ b,
}


@given(st.sampled_from(sorted(INTS)), st.sampled_from([8, 16, 32, 64]), st.data())
def test_ints_wrap_around(name, bits, data):
    number = st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)
    a, b = data.draw(number), data.draw(number.filter(bool))
    made = run(f"arith.{name} %0, %1 : i{bits}", f"i{bits}", f"i{bits}", a, b)
    assert made == wrapped(INTS[name](a, b, bits), bits)


@given(st.sampled_from(["shli", "shrsi", "shrui"]), st.sampled_from([8, 32]), st.data())
def test_shifts(name, bits, data):
    a, by = data.draw(st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)), data.draw(st.integers(0, bits - 1))
    expected = {"shli": a << by, "shrsi": a >> by, "shrui": unsigned(a, bits) >> by}[name]
    assert run(f"arith.{name} %0, %1 : i{bits}", f"i{bits}", f"i{bits}", a, by) == wrapped(expected, bits)


@pytest.mark.parametrize(
    ("op", "operands", "message"),
    [
        ("arith.divsi %0, %1 : i32", (1, 0), r"arith.divsi \(%r\) at line 1 divides by zero"),
        (
            "arith.shli %0, %1 : i32",
            (1, 32),
            r"arith.shli \(%r\) at line 1 shifts by as many bits as there are, or more",
        ),
    ],
)
def test_what_has_no_value_is_an_error(op, operands, message):
    with pytest.raises(ProgramError, match=message):
        run(op, "i32", "i32", *operands)


SIGNED = {"eq": "__eq__", "ne": "__ne__", "slt": "__lt__", "sle": "__le__", "sgt": "__gt__", "sge": "__ge__"}


@given(st.sampled_from([*SIGNED, "ult", "ule", "ugt", "uge"]), st.integers(-128, 127), st.integers(-128, 127))
def test_comparisons_of_ints(how, a, b):
    made = run(f"arith.cmpi {how}, %0, %1 : i8", "i8", "i1", a, b)
    x, y = (unsigned(a, 8), unsigned(b, 8)) if how[0] == "u" else (a, b)
    assert made == getattr(x, SIGNED[how if how in SIGNED else "s" + how[1:]])(y)


ORDERED = {"eq": "__eq__", "ne": "__ne__", "lt": "__lt__", "le": "__le__", "gt": "__gt__", "ge": "__ge__"}


@given(st.sampled_from(sorted(ORDERED)), st.booleans(), st.floats(), st.floats())
def test_comparisons_of_floats_say_what_nan_is(how, ordered, a, b):
    made = run(f"arith.cmpf {'o' if ordered else 'u'}{how}, %0, %1 : f64", "f64", "i1", a, b)
    known = not (math.isnan(a) or math.isnan(b))
    assert made == (getattr(a, ORDERED[how])(b) if known else not ordered)


FUNCTIONS = {
    "absf": abs, "acos": math.acos, "acosh": math.acosh, "asin": math.asin, "asinh": math.asinh, "atan": math.atan,
    "atanh": math.atanh, "cbrt": lambda x: x ** (1 / 3), "ceil": math.ceil, "cos": math.cos, "cosh": math.cosh,
    "erf": math.erf, "exp": math.exp, "exp2": lambda x: 2**x, "expm1": math.expm1, "floor": math.floor, "log": math.log,
    "log10": math.log10, "log1p": math.log1p, "log2": math.log2, "roundeven": round, "rsqrt": lambda x: x**-0.5,
    "sin": math.sin, "sinh": math.sinh, "sqrt": math.sqrt, "tan": math.tan, "tanh": math.tanh, "trunc": math.trunc,
}  # fmt: skip


@given(st.sampled_from(sorted(FUNCTIONS)), st.floats(0.01, 0.99))
def test_functions_are_those_of_python(name, x):
    x = x + 1.5 if name == "acosh" else x
    made = run(f"math.{name} %0 : f64", "f64", "f64", x)
    np.testing.assert_allclose(made, FUNCTIONS[name](x), rtol=1e-12)


@pytest.mark.parametrize(("x", "away", "even"), [(0.5, 1, 0), (1.5, 2, 2), (-2.5, -3, -2), (0.49999999999999994, 0, 0)])
def test_halves_are_rounded_away_or_to_even(x, away, even):
    assert run("math.round %0 : f64", "f64", "f64", x) == away
    assert run("math.roundeven %0 : f64", "f64", "f64", x) == even


@given(st.integers(-(2**31), 2**31 - 1))
def test_bits_are_counted(x):
    text = f"{unsigned(x, 32):032b}"
    counts = [len(text) - len(text.lstrip("0")), len(text) - len(text.rstrip("0")), text.count("1")]
    assert [run(f"math.{op} %0 : i32", "i32", "i32", x) for op in ("ctlz", "cttz", "ctpop")] == counts


@pytest.mark.parametrize(
    ("op", "kind", "result", "x", "expected"),
    [
        ("arith.extsi %0 : i1 to i8", "i1", "i8", True, -1),
        ("arith.extui %0 : i1 to i8", "i1", "i8", True, 1),
        ("arith.extui %0 : i8 to i32", "i8", "i32", -1, 255),
        ("arith.extsi %0 : i8 to i32", "i8", "i32", -1, -1),
        ("arith.trunci %0 : i32 to i8", "i32", "i8", 300, 44),
        ("arith.trunci %0 : i32 to i1", "i32", "i1", 2, False),
        ("arith.sitofp %0 : i8 to f32", "i8", "f32", -3, -3.0),
        ("arith.uitofp %0 : i8 to f32", "i8", "f32", -1, 255.0),
        ("arith.fptosi %0 : f32 to i8", "f32", "i8", -2.9, -2),
        ("arith.fptoui %0 : f32 to i8", "f32", "i8", 200.5, -56),
        ("arith.bitcast %0 : f32 to i32", "f32", "i32", 1.0, 0x3F800000),
        ("arith.index_cast %0 : index to i32", "index", "i32", 7, 7),
        ("arith.truncf %0 : f64 to bf16", "f64", "bf16", 1.01, 1.0078125),
        ("index.casts %0 : index to i32", "index", "i32", -7, -7),
        ("arith.negf %0 : bf16", "bf16", "bf16", 1.5, -1.5),
        ("math.exp %0 : bf16", "bf16", "bf16", 1.0, 2.71875),
    ],
)
def test_conversions(op, kind, result, x, expected):
    assert run(op, kind, result, x) == expected


def test_one_bit_ints_wrap_around_too():
    assert run("arith.addi %0, %1 : i1", "i1", "i1", True, True) == np.False_
    assert run("arith.muli %0, %1 : i1", "i1", "i1", True, True) == np.True_


@pytest.mark.parametrize(
    ("op", "operands", "expected"),
    [
        ("add", "ab", lambda a, b: a + b),
        ("sub", "ab", lambda a, b: a - b),
        ("maximum", "ab", np.maximum),
        ("minimum", "ab", np.minimum),
        ("pow", "ab", np.power),
        ("abs", "a", np.abs),
        ("negate", "a", np.negative),
        ("reciprocal", "a", lambda a: 1 / a),
        ("rsqrt", "a", lambda a: 1 / np.sqrt(a)),
        ("sigmoid", "a", lambda a: 1 / (1 + np.exp(-a))),
        ("tanh", "a", np.tanh),
        ("exp", "a", np.exp),
        ("log", "a", np.log),
        ("floor", "a", np.floor),
        ("ceil", "a", np.ceil),
        ("sin", "a", np.sin),
        ("cos", "a", np.cos),
        ("erf", "a", np.vectorize(math.erf)),
    ],
)
def test_tosa_broadcasts(op, operands, expected):
    a = np.array([[0.5, 1.25, 2.0]], "float32")
    b = np.array([[0.75], [2.5]], "float32")
    kinds = {"a": "tensor<1x3xf32>", "b": "tensor<2x1xf32>"}
    listed = ", ".join(kinds[name] for name in operands)
    result = "tensor<2x3xf32>" if "b" in operands else "tensor<1x3xf32>"
    names = ", ".join(f"%{name}" for name in operands)
    made = execute(
        parse_module(
            f"""func.func @f(%a: tensor<1x3xf32>, %b: tensor<2x1xf32>) -> {result} {{
              %r = tosa.{op} {names} : ({listed}) -> {result}
              return %r : {result}
            }}"""
        ),
        a,
        b,
    )
    np.testing.assert_allclose(made, expected(*({"a": a, "b": b}[name] for name in operands)), rtol=1e-5)


def test_every_op_of_the_dialects_has_a_row():
    # What is not elementwise, or has several results, is listed.
    from shardwise.ir.dialects import make_context

    context = make_context()
    others = {
        "arith.constant", "arith.addui_extended", "arith.mului_extended", "arith.mulsi_extended", "index.constant",
        "index.bool.constant", "index.sizeof",
    }  # fmt: skip
    names = {op.name for op in context.loaded_ops if op.name.split(".")[0] in ("arith", "math", "index")}
    assert len(names) > 80
    assert names - others <= set(ELEMENTWISE)


def test_products_of_short_ints_are_wide():
    x = np.array([100, -128], "int8")
    made = run("tosa.mul %0, %0 : (tensor<2xi8>, tensor<2xi8>) -> tensor<2xi32>", "tensor<2xi8>", "tensor<2xi32>", x)
    np.testing.assert_array_equal(made, [10_000, 16_384])
