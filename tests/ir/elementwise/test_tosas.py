"""Elementwise ops of tosa against NumPy, and what of them is refused."""

import numpy as np
import pytest

from shardwise.errors import ProgramError
from shardwise.ir import execute, parse_module
from shardwise.ir.elementwise.tosas import BINARY_OPS, TOSA, UNARY_OPS


def run(line: str, out: str, *values: np.ndarray) -> np.ndarray:
    names = {"int32": "i32", "int8": "i8", "float32": "f32", "bool": "i1"}
    kinds = [f"tensor<{'x'.join([*map(str, v.shape), names[str(v.dtype)]])}>" for v in values]
    args = ", ".join(f"%{n}: {kind}" for n, kind in zip("xyz", kinds, strict=False))
    return execute(parse_module(f"func.func @f({args}) -> {out} {{\n%r = {line}\nreturn %r : {out}\n}}"), *values)


A, B = np.array([7, -7, 6, -128], "int32"), np.array([2, 2, -4, 3], "int32")


def test_quotients_go_towards_zero_and_not_by_zero() -> None:
    line = '"tosa.int_div"(%x, %y) : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>'
    np.testing.assert_array_equal(run(line, "tensor<4xi32>", A, B), [3, -3, -1, -42])
    with pytest.raises(ProgramError, match="divides by zero"):
        run(line, "tensor<4xi32>", A, B * 0)


@pytest.mark.parametrize("rounded", ["true", "false"])
def test_shifts_round_if_they_are_told_to(rounded: str) -> None:
    line = (
        f'"tosa.arithmetic_right_shift"(%x, %y) {{round = {rounded}}} : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>'
    )
    by = np.array([1, 1, 2, 0], "int32")
    half = np.where(by > 0, (A >> np.maximum(by - 1, 0)) & 1, 0) if rounded == "true" else 0
    np.testing.assert_array_equal(run(line, "tensor<4xi32>", A, by), (A >> by) + half)


def test_limits_are_inclusive() -> None:
    line = '"tosa.clamp"(%x) {min_val = -7 : i32, max_val = 6 : i32} : (tensor<4xi32>) -> tensor<4xi32>'
    np.testing.assert_array_equal(run(line, "tensor<4xi32>", A), [6, -7, 6, -7])
    floats = '"tosa.clamp"(%x) {min_val = -0.5 : f32, max_val = 0.25 : f32} : (tensor<3xf32>) -> tensor<3xf32>'
    got = run(floats, "tensor<3xf32>", np.array([-1, 0.125, 1], "float32"))
    np.testing.assert_array_equal(got, np.array([-0.5, 0.125, 0.25], "float32"))


def test_casts_round_to_even_and_are_true_where_not_zero() -> None:
    values = np.array([-2.5, -0.5, 0.5, 1.5, 0.0], "float32")
    got = run('"tosa.cast"(%x) : (tensor<5xf32>) -> tensor<5xi32>', "tensor<5xi32>", values)
    np.testing.assert_array_equal(got, [-2, 0, 0, 2, 0])
    got = run('"tosa.cast"(%x) : (tensor<5xf32>) -> tensor<5xi1>', "tensor<5xi1>", values)
    np.testing.assert_array_equal(got, [True, True, True, True, False])


SHIFT = np.zeros(1, "int8")


def test_products_are_made_in_the_type_of_the_result_and_not_shifted() -> None:
    line = '"tosa.mul"(%x, %y, %z) : (tensor<2xi8>, tensor<2xi8>, tensor<1xi8>) -> tensor<2xi32>'
    a = np.array([100, -100], "int8")
    np.testing.assert_array_equal(run(line, "tensor<2xi32>", a, a, SHIFT), [10000, 10000])
    with pytest.raises(ProgramError, match="shifts its product, which is not supported"):
        run(line, "tensor<2xi32>", a, a, SHIFT + np.int8(1))


def test_a_choice_broadcasts() -> None:
    c, x, y = np.array([[True], [False]]), np.array([[1, 2]], "int32"), np.array([[8], [9]], "int32")
    line = '"tosa.select"(%x, %y, %z) : (tensor<2x1xi1>, tensor<1x2xi32>, tensor<2x1xi32>) -> tensor<2x2xi32>'
    np.testing.assert_array_equal(run(line, "tensor<2x2xi32>", c, x, y), [[1, 2], [9, 9]])


def test_zero_points_that_are_not_zero_are_refused() -> None:
    line = '"tosa.negate"(%x, %y, %z) : (tensor<2xi8>, tensor<1xi8>, tensor<1xi8>) -> tensor<2xi8>'
    np.testing.assert_array_equal(run(line, "tensor<2xi8>", np.array([1, -2], "int8"), SHIFT, SHIFT), [-1, 2])
    with pytest.raises(ProgramError, match="has a zero point or shift other than 0"):
        run(line, "tensor<2xi8>", np.array([1, -2], "int8"), SHIFT, SHIFT + np.int8(3))


NAMES = {"logical_left_shift": "left_shift", "negate": "negative", "bitwise_not": "invert", "sub": "subtract"}
SPECIAL = ("erf", "rsqrt", "sigmoid", "identity", "logical_right_shift", "pow")


@pytest.mark.parametrize("name", sorted(set(UNARY_OPS) - set(SPECIAL)))
def test_functions_of_one_are_numpys(name: str) -> None:
    value = np.array([2, 5], "int32") if "not" in name else np.array([0.5, 2.0], "float32")
    np.testing.assert_array_equal(UNARY_OPS[name](value), getattr(np, NAMES.get(name, name))(value))


@pytest.mark.parametrize("name", sorted(set(BINARY_OPS) - set(SPECIAL)))
def test_functions_of_two_are_numpys(name: str) -> None:
    a, b = np.array([6, 1, 3], "int32"), np.array([3, 1, 2], "int32")
    np.testing.assert_array_equal(BINARY_OPS[name](a, b), getattr(np, NAMES.get(name, name))(a, b))
    assert f"tosa.{name}" in TOSA


def test_the_others() -> None:
    np.testing.assert_allclose(UNARY_OPS["sigmoid"](np.array([0.0, 2.0])), [0.5, 1 / (1 + np.exp(-2.0))])
    np.testing.assert_allclose(UNARY_OPS["rsqrt"](np.array([4.0])), [0.5])
    np.testing.assert_array_equal(UNARY_OPS["identity"](A), A)
    np.testing.assert_array_equal(
        BINARY_OPS["logical_right_shift"](np.array([-1], "int8"), np.array([4], "int8")), [15]
    )
    np.testing.assert_array_equal(BINARY_OPS["pow"](np.array([3.0]), np.array([2.0])), [9.0])
