"""Constants: the value that is written, in every type, splat or not."""

import numpy as np
import pytest

from shardwise.errors import ProgramError
from shardwise.ir import execute, parse_module
from shardwise.ir.interpret.constants import constant


def value(text: str, kind: str, op: str = "arith.constant") -> np.ndarray:
    module = parse_module(f"func.func @f() -> {kind} {{\n%0 = {op} {text} : {kind}\nreturn %0 : {kind}\n}}")
    return execute(module)


@pytest.mark.parametrize(
    ("text", "kind", "want", "dtype"),
    [
        ("7", "i32", 7, "int32"),
        ("-7", "i8", -7, "int8"),
        ("-1", "i64", -1, "int64"),
        ("255", "i8", -1, "int8"),  # written without a sign
        ("3", "index", 3, "int64"),
        ("true", "i1", True, "bool"),
        ("false", "i1", False, "bool"),
        ("1.5", "f32", 1.5, "float32"),
        ("-0.1", "f64", -0.1, "float64"),
        ("1.5", "f16", 1.5, "float16"),
        ("0x7F800000", "f32", np.inf, "float32"),
    ],
)
def test_scalars(text: str, kind: str, want, dtype: str) -> None:
    if kind == "i1":
        module = parse_module(f"func.func @f() -> i1 {{\n%0 = arith.constant {text}\nreturn %0 : i1\n}}")
        got = execute(module)
    else:
        got = value(text, kind)
    assert got == want
    assert np.asarray(got).dtype == dtype


@pytest.mark.parametrize(
    ("text", "kind", "want"),
    [
        ("dense<[[1, 2], [3, -4]]>", "tensor<2x2xi32>", [[1, 2], [3, -4]]),
        ("dense<5>", "tensor<2x3xi16>", [[5] * 3] * 2),
        ("dense<1.5>", "tensor<2xf32>", [1.5, 1.5]),
        ("dense<[true, false]>", "tensor<2xi1>", [True, False]),
        ("dense<true>", "tensor<3xi1>", [True] * 3),
        ("dense<7>", "tensor<i64>", 7),
        ("dense<>", "tensor<0xi32>", []),
    ],
)
def test_tensors(text: str, kind: str, want) -> None:
    got = value(text, kind)
    np.testing.assert_array_equal(got, want)
    assert got.shape == np.shape(want)


def test_constants_of_tosa_and_index() -> None:
    text = '"tosa.const"() <{values = dense<[1, 2]> : tensor<2xi32>}> : () -> tensor<2xi32>'
    module = parse_module(f"func.func @f() -> tensor<2xi32> {{\n%0 = {text}\nreturn %0 : tensor<2xi32>\n}}")
    np.testing.assert_array_equal(execute(module), [1, 2])
    found = next(op for op in module.walk() if op.name == "tosa.const")
    np.testing.assert_array_equal(constant(found), [1, 2])


def test_what_holds_no_value_is_refused() -> None:
    module = parse_module('func.func @f() {\n%0 = "arith.constant"() {value = "seven"} : () -> i32\nreturn\n}')
    found = next(op for op in module.walk() if op.name == "arith.constant")
    with pytest.raises(ProgramError, match=r'has a value that cannot be run: "seven"\.'):
        constant(found)
