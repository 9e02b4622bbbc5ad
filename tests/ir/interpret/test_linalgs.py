"""Ops of linalg, and those of tosa that are not elementwise, against NumPy."""

import numpy as np
import pytest

from shardwise.errors import ProgramError
from shardwise.ir import execute, parse_module

X = np.arange(24, dtype="int32").reshape(2, 3, 4) - 7


def run(body: str, out: str, *values: np.ndarray, kinds: str = "%x: tensor<2x3x4xi32>") -> np.ndarray:
    return execute(parse_module(f"func.func @f({kinds}) -> {out} {{\n{body}\nreturn %r : {out}\n}}"), *values)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_transposes(order: tuple[int, ...]) -> None:
    sizes = "x".join(str(X.shape[k]) for k in order)
    body = (
        f"%e = tensor.empty() : tensor<{sizes}xi32>\n%r = linalg.transpose ins(%x : tensor<2x3x4xi32>) "
        f"outs(%e : tensor<{sizes}xi32>) permutation = {list(order)}"
    )
    np.testing.assert_array_equal(run(body, f"tensor<{sizes}xi32>", X), X.transpose(order))


@pytest.mark.parametrize(("dims", "shape"), [([0], (5, 2, 3, 4)), ([3], (2, 3, 4, 5)), ([1, 3], (2, 5, 3, 6, 4))])
def test_broadcasts(dims: list[int], shape: tuple[int, ...]) -> None:
    sizes = "x".join(map(str, shape))
    body = (
        f"%e = tensor.empty() : tensor<{sizes}xi32>\n%r = linalg.broadcast ins(%x : tensor<2x3x4xi32>) "
        f"outs(%e : tensor<{sizes}xi32>) dimensions = {dims}"
    )
    got = run(body, f"tensor<{sizes}xi32>", X)
    np.testing.assert_array_equal(got, np.broadcast_to(np.expand_dims(X, tuple(dims)), shape))


@pytest.mark.parametrize("dims", [(0,), (1,), (0, 2), (0, 1, 2)])
def test_reductions_add_to_what_is_there(dims: tuple[int, ...]) -> None:
    kept = [str(n) for k, n in enumerate(X.shape) if k not in dims]
    kind = f"tensor<{'x'.join([*kept, 'i32'])}>"
    body = (
        f"%c = arith.constant dense<10> : {kind}\n"
        f"%r = linalg.reduce ins(%x : tensor<2x3x4xi32>) outs(%c : {kind}) dimensions = {list(dims)}\n"
        "(%a: i32, %b: i32) {\n%s = arith.addi %a, %b : i32\nlinalg.yield %s : i32\n}"
    )
    np.testing.assert_array_equal(run(body, kind, X), X.sum(axis=dims) + 10)


THEIRS = {"sum": np.sum, "product": np.prod, "max": np.max, "min": np.min}


@pytest.mark.parametrize("name", THEIRS)
@pytest.mark.parametrize("axis", [0, 2])
def test_reductions_of_tosa_keep_the_dim(name: str, axis: int) -> None:
    shape = [1 if k == axis else n for k, n in enumerate(X.shape)]
    kind = f"tensor<{'x'.join(map(str, shape))}xi32>"
    body = f'%r = "tosa.reduce_{name}"(%x) {{axis = {axis} : i32}} : (tensor<2x3x4xi32>) -> {kind}'
    got = run(body, kind, X)
    np.testing.assert_array_equal(got, THEIRS[name](X, axis=axis, keepdims=True))
    assert got.dtype == np.int32


@pytest.mark.parametrize(("name", "theirs"), [("all", np.all), ("any", np.any)])
def test_reductions_of_truths(name: str, theirs) -> None:
    value = X > -3
    body = f'%r = "tosa.reduce_{name}"(%x) {{axis = 1 : i32}} : (tensor<2x3x4xi1>) -> tensor<2x1x4xi1>'
    got = run(body, "tensor<2x1x4xi1>", value, kinds="%x: tensor<2x3x4xi1>")
    np.testing.assert_array_equal(got, theirs(value, axis=1, keepdims=True))


PRODUCT = (
    '%z = "tosa.const"() <{{values = dense<{}> : tensor<1xi8>}}> : () -> tensor<1xi8>\n'
    '%r = "tosa.matmul"(%x, %y, %z, %z) : (tensor<1x2x3xi8>, tensor<1x3x2xi8>, tensor<1xi8>, tensor<1xi8>) '
    "-> tensor<1x2x2xi32>"
)


def test_products_of_short_ints_are_made_in_the_type_of_the_result() -> None:
    a, b = np.full((1, 2, 3), 100, "int8"), np.full((1, 3, 2), 100, "int8")
    kinds = "%x: tensor<1x2x3xi8>, %y: tensor<1x3x2xi8>"
    np.testing.assert_array_equal(run(PRODUCT.format(0), "tensor<1x2x2xi32>", a, b, kinds=kinds), [[[30000] * 2] * 2])
    with pytest.raises(ProgramError, match="has a zero point other than 0, which is not supported"):
        run(PRODUCT.format(1), "tensor<1x2x2xi32>", a, b, kinds=kinds)
