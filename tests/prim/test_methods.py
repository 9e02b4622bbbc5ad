"""Operators and methods of tensors: each gives what the same operator of NumPy's arrays gives."""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardwise
from shardwise import DeviceMesh, P, Tensor, shard
from tests.ops.cases import agrees, sent, tensors

MESH = DeviceMesh((2, 4), ("x", "y"))
ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow]
COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
BITS = [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]
SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple)


def name_of(function: Callable[..., Any]) -> str:
    return function.__name__


@pytest.mark.parametrize("op", [*ARITHMETIC, *COMPARISONS, *BITS], ids=name_of)
def test_operators_between_tensors_arrays_and_numbers(op: Callable[..., Any]) -> None:
    a, b = np.array([5, 7, 9, 12, 3]), np.array([2, 2, 4, 5, 3])
    if op in ARITHMETIC:
        a, b = a.astype("float64"), b.astype("float64")
    x, y = shard(a, MESH, P("y")), shard(b, MESH, P("x"))
    for got, want in (
        (op(x, y), op(a, b)),
        (op(x, b), op(a, b)),
        (op(a, y), op(a, b)),
        (op(x, 2), op(a, 2)),
        (op(2, y), op(2, b)),
        (op(x, np.int64(2)), op(a, np.int64(2))),
    ):
        assert isinstance(got, Tensor)
        assert got.dtype == want.dtype
        assert np.array_equal(got.numpy(), want)


@pytest.mark.parametrize("op", [operator.neg, operator.pos, operator.abs, operator.invert], ids=name_of)
def test_operators_of_one_tensor(op: Callable[..., Any]) -> None:
    value = np.array([3, -4, 0, 7, -1])
    assert np.array_equal(op(shard(value, MESH, P("y"))).numpy(), op(value))


def test_the_matrix_product_from_either_side() -> None:
    a, b = np.arange(12.0).reshape(3, 4), np.arange(20.0).reshape(4, 5)
    x, y = shard(a, MESH, P("x", "y")), shard(b, MESH, P("y"))
    for got in (x @ y, x @ b, a @ y):
        assert isinstance(got, Tensor)
        assert np.array_equal(got.numpy(), a @ b)


def test_augmented_assignment_makes_a_new_tensor() -> None:
    x = before = shard(np.arange(4.0), MESH, P("y"))
    x += 1
    x *= 2
    assert x.numpy().tolist() == [2.0, 4.0, 6.0, 8.0]
    assert before.numpy().tolist() == [0.0, 1.0, 2.0, 3.0]


REDUCTIONS = ["sum", "prod", "mean", "var", "std", "max", "min", "any", "all", "argmax", "argmin"]


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_are_methods(name: str) -> None:
    value = np.random.default_rng(0).permutation(30).reshape(5, 6) / 8.0
    x = shard(value, MESH, P("x", "y"))
    for axis in (None, 0, -1):
        for keepdims in (False, True):
            got = getattr(x, name)(axis, keepdims=keepdims)
            want = getattr(value, name)(axis, keepdims=keepdims)
            assert got.dtype == want.dtype
            assert got.shape == want.shape
            assert np.allclose(got.numpy(), want)
            assert np.array_equal(got.numpy(), getattr(shardwise, name)(x, axis=axis, keepdims=keepdims).numpy())


def test_methods_take_what_the_functions_take() -> None:
    value = np.arange(10, dtype="int8")
    x = shard(value, MESH, P("y"))
    assert x.sum(dtype="float32").dtype == np.float32
    assert x.prod(dtype="int8").item() == value.prod(dtype="int8")
    assert np.isclose(x.var(correction=1).item(), value.var(ddof=1))
    assert np.isclose(x.std(correction=1).item(), value.std(ddof=1))
    assert x.astype("bool").any().item() is True


@given(st.data(), tensors(SHAPES))
def test_shapes_and_dtypes(data: st.DataObject, x: Tensor) -> None:
    order = tuple(data.draw(st.permutations(range(x.ndim))))
    agrees(lambda x: x.T, lambda v: v.T, x)
    agrees(lambda x: x.transpose(), lambda v: v.transpose(), x, torch=False)
    agrees(lambda x: x.transpose(*order), lambda v: v.transpose(order), x, torch=False)
    agrees(lambda x: x.transpose(order), lambda v: v.transpose(order), x, torch=False)
    agrees(lambda x: x.reshape(-1), lambda v: v.reshape(-1), x, torch=False)
    agrees(lambda x: x.reshape((1, x.size)), lambda v: v.reshape(1, v.size), x, torch=False)
    agrees(lambda x: x.reshape(x.size, 1), lambda v: v.reshape(v.size, 1), x, torch=False)
    agrees(lambda x: x.reshape(1, -1).squeeze(0), lambda v: v.reshape(-1), x, torch=False)
    if x.ndim > 1:
        agrees(lambda x: x.mT, lambda v: v.mT, x)
    if x.dtype.kind != "c":
        agrees(lambda x: x.astype("float32"), lambda v: v.astype("float32"), x)


def test_getting_and_updating_elements() -> None:
    value = np.arange(12.0).reshape(3, 4)
    x = shard(value, MESH, P("x", "y"))
    assert np.array_equal(x[1:, ::-1].numpy(), value[1:, ::-1])
    assert x.at[0, 0].set(5.0)[0, 0].item() == 5.0
    assert x.at[0].add(1.0)[0].numpy().tolist() == [1.0, 2.0, 3.0, 4.0]
    with pytest.raises(TypeError, match="does not support item assignment"):
        x[0] = 1.0


def test_transposing_sends_nothing() -> None:
    x = shard(np.ones((4, 5, 6)), MESH, P("x", None, "y"))
    for call in (lambda: x.T, lambda: x.mT, lambda: x.transpose(1, 0, 2)):
        assert sent(call)[1] == 0


def test_what_is_no_operand_says_so() -> None:
    x = shard(np.ones(4), MESH, P("y"))
    for op in (operator.add, operator.mul, operator.matmul, operator.lt):
        with pytest.raises(shardwise.ArgumentError, match=r"numbers were expected"):
            op(x, "a")


METHODS = [
    "exp",
    "log",
    "sqrt",
    "square",
    "abs",
    "sin",
    "cos",
    "tanh",
    "sign",
    "floor",
    "ceil",
    "round",
    "conj",
    "relu",
]
METHODS += ["sigmoid", "gelu", "silu", "clip", "softmax", "logsumexp", "norm", "flip"]


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_the_function_of_its_name(name):
    x = shard(np.arange(1.0, 9.0).reshape(2, 4), DeviceMesh((2,), ("x",)), P("x"))
    got, want = getattr(x, name)(), getattr(shardwise, name)(x)
    assert got.layout is want.layout
    assert np.array_equal(got.numpy(), want.numpy())


def test_methods_along_a_dim():
    values = np.arange(8.0).reshape(2, 4)
    x = shard(values, DeviceMesh((2,), ("x",)), P("x"))
    assert np.array_equal(x.cumulative_sum(1).numpy(), values.cumsum(1))
    assert np.array_equal(x.take([3, 0], axis=1).numpy(), values[:, [3, 0]])
    assert np.array_equal(x.roll(1, axis=0).numpy(), np.roll(values, 1, 0))
    assert np.array_equal(x.clip(2.0, 5.0).numpy(), values.clip(2.0, 5.0))
