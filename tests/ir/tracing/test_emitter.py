"""The emitter: shapes, slices and constants as ops on tensors, run and compared with NumPy."""

from collections.abc import Callable
from itertools import permutations
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects import arith
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue

from shardwise.errors import ProgramError
from shardwise.ir import execute, verify
from shardwise.ir.tracing.emitter import ELEMENTS, Emitter, element_of
from shardwise.ir.types import element_type, shape_of

F64 = np.dtype("float64")


def run(write: Callable[[Emitter], SSAValue]) -> np.ndarray:
    block = Block()
    made = write(Emitter(block))
    block.add_op(ReturnOp(made))
    module = ModuleOp([FuncOp("f", ([], [made.type]), Region(block))])
    verify(module)
    return execute(module)


@pytest.mark.parametrize("dtype", ELEMENTS)
def test_constants_of_every_dtype(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype)) if dtype == "bfloat16" else np.dtype(dtype)
    array = np.array([[0, 1, 1], [1, 0, 1]]).astype(kind)
    got = run(lambda e: e.constant(array))
    assert got.dtype == kind
    np.testing.assert_array_equal(got, array)
    np.testing.assert_array_equal(run(lambda e: e.constant(np.ones((2, 2), kind))), np.ones((2, 2), kind))
    np.testing.assert_array_equal(run(lambda e: e.full((3,), 1, kind)), np.ones(3, kind))
    assert run(lambda e: e.constant(np.zeros((2, 0), kind))).shape == (2, 0)


def test_zeros_of_either_sign_are_two_numbers() -> None:
    got = run(lambda e: e.constant(np.array([0.0, -0.0])))
    assert np.signbit(got).tolist() == [False, True]


def test_constants_are_made_once() -> None:
    e = Emitter(Block())
    assert e.scalar(1, F64) is e.scalar(1.0, F64)
    assert e.scalar(1, F64) is not e.scalar(1, np.dtype("float32"))
    assert e.scalar(0.0, F64) is not e.scalar(-0.0, F64)
    assert e.full((2,), 1, F64) is e.full((2,), 1, F64)
    assert e.full((2,), 1, F64) is not e.full((3,), 1, F64)
    x = e.full((4,), 1, F64)
    assert e.slice(x, [1], [2]) is e.slice(x, [1], [2])
    assert e.slice(x, [1], [2]) is not e.slice(x, [0], [2])
    assert e.slice(x, [0], [4]) is x
    assert e.reshape(x, (4,)) is x
    assert e.broadcast(x, (4,)) is x
    assert e.transpose(x, (0,)) is x
    assert e.concat([x], 0) is x


SHAPES = [(), (1,), (6,), (2, 3), (3, 2), (1, 6), (6, 1, 1), (2, 1, 3), (1, 1), (2, 3, 1, 1), (1, 2, 3)]


@pytest.mark.parametrize("old", SHAPES, ids=str)
def test_reshapes_keep_the_order_of_elements(old: tuple[int, ...]) -> None:
    count = int(np.prod(old))
    array = np.arange(1.0, count + 1).reshape(old)
    for new in SHAPES:
        if int(np.prod(new)) == count:
            got = run(lambda e, new=new: e.reshape(e.constant(array), new))
            np.testing.assert_array_equal(got, array.reshape(new))


def test_reshapes_of_nothing() -> None:
    assert run(lambda e: e.reshape(e.constant(np.zeros((2, 0))), (0, 5))).shape == (0, 5)


X = np.arange(24.0).reshape(2, 3, 4)


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_transposes(order: tuple[int, ...]) -> None:
    np.testing.assert_array_equal(run(lambda e: e.transpose(e.constant(X), order)), X.transpose(order))


@pytest.mark.parametrize(
    ("old", "new"), [((3,), (2, 3)), ((1, 3), (4, 3)), ((2, 1), (2, 5)), ((), (2, 2)), ((1, 1), (3, 2, 2))]
)
def test_broadcasts(old: tuple[int, ...], new: tuple[int, ...]) -> None:
    array = np.arange(1.0, 1 + int(np.prod(old))).reshape(old)
    np.testing.assert_array_equal(run(lambda e: e.broadcast(e.constant(array), new)), np.broadcast_to(array, new))


def test_slices_places_and_joins() -> None:
    got = run(lambda e: e.slice(e.constant(X), [0, 1, 1], [2, 2, 2], [1, 1, 2]))
    np.testing.assert_array_equal(got, X[:, 1:3, 1::2])
    want = X.copy()
    want[:, 0:2, ::3] = -1
    small = np.full((2, 2, 2), -1.0)
    got = run(lambda e: e.place(e.constant(small), e.constant(X), [0, 0, 0], [2, 2, 2], [1, 1, 3]))
    np.testing.assert_array_equal(got, want)
    for dim in range(3):
        got = run(lambda e, dim=dim: e.concat([e.constant(X), e.constant(-X)], dim))
        np.testing.assert_array_equal(got, np.concatenate([X, -X], dim))


def test_structured_ops_sum_the_loops_that_the_result_has_not() -> None:
    def write(e: Emitter) -> SSAValue:
        a, b = e.constant(X[0]), e.constant(X[1])

        def body(inner: Emitter, xs: Any) -> SSAValue:
            return inner.add(arith.AddfOp(xs[2], inner.add(arith.MulfOp(xs[0], xs[1]))))

        return e.generic([a, b], [[0, 2], [1, 2]], e.full((3, 3), 0, F64), [0, 1], 3, body)

    np.testing.assert_array_equal(run(write), X[0] @ X[1].T)
    got = run(lambda e: e.reduce(e.constant(X), [0, 2], e.full((3,), 5, F64), arith.AddfOp))
    np.testing.assert_array_equal(got, X.sum(axis=(0, 2)) + 5)


def test_types_of_values() -> None:
    e = Emitter(Block())
    x = e.full((2, 3), 1, F64)
    assert shape_of(x) == (2, 3)
    assert element_type(x) == element_type(e.scalar(1, F64)) == element_of(F64)
    with pytest.raises(ProgramError) as caught:
        element_of(np.dtype("complex64"))
    assert str(caught.value).startswith("complex64 has no element type that arith computes with.\n  dtypes: ")
    assert all(name in str(caught.value) for name in ELEMENTS)
