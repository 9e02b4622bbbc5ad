"""Operators: each is what it is for numbers, from the left and from the right."""

import operator
from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import P, asarray, shard
from shardwise.prim.face import attributes_of, face_of
from shardwise.prim.methods import Methods
from tests.plan.cases import mesh_of

MESH = mesh_of(2, 2)
REALS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow, operator.floordiv, operator.mod]
ORDERS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
BITS = [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]


def spread(value: np.ndarray) -> Any:
    return shard(value, MESH, P("x"))


@pytest.mark.parametrize("op", [*REALS, *ORDERS], ids=lambda op: op.__name__)
def test_of_two_reals(op: Any) -> None:
    a, b = np.array([7.0, 2.0, 5.0, -3.0]), np.array([2.0, 2.0, 3.0, 2.0])
    for got, want in (
        (op(spread(a), spread(b)), op(a, b)),
        (op(spread(a), 2.0), op(a, 2.0)),
        (op(2.0, spread(b)), op(2.0, b)),
        (op(asarray(7.0), 2.0), op(np.float64(7.0), 2.0)),
    ):
        np.testing.assert_allclose(got.numpy(), want)
        assert got.dtype == np.asarray(want).dtype


@pytest.mark.parametrize("op", BITS, ids=lambda op: op.__name__)
def test_of_two_integers(op: Any) -> None:
    a, b = np.array([12, 5, 7, 1]), np.array([2, 3, 1, 0])
    assert np.array_equal(op(spread(a), spread(b)).numpy(), op(a, b))
    assert np.array_equal(op(spread(a), 2).numpy(), op(a, 2))
    assert np.array_equal(op(9, spread(b)).numpy(), op(9, b))


@pytest.mark.parametrize("op", [operator.neg, operator.pos, abs], ids=lambda op: op.__name__)
def test_of_one(op: Any) -> None:
    a = np.array([7.0, -2.0])
    assert np.array_equal(op(spread(a)).numpy(), op(a))


def test_bits_are_inverted() -> None:
    a = np.array([7, 0, -1])
    assert np.array_equal((~spread(a)).numpy(), ~a)


def test_products_of_matrices_from_both_sides() -> None:
    a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    x, y = asarray(a), asarray(b)
    assert np.array_equal((x @ y).numpy(), a @ b)
    assert np.array_equal(x.__rmatmul__(asarray(np.ones((4, 2)))).numpy(), np.ones((4, 2)) @ a)


def test_a_value_that_is_taken_from_the_right_is_the_left_operand() -> None:
    x = asarray(2.0)
    reals = (Methods.__rsub__, Methods.__rtruediv__, Methods.__rpow__, Methods.__rfloordiv__)
    assert [f(x, 7.0).item() for f in (*reals, Methods.__rmod__)] == [5.0, 3.5, 49.0, 3.0, 1.0]
    n = asarray(2)
    assert [f(n, 9).item() for f in (Methods.__rlshift__, Methods.__rrshift__)] == [36, 2]


def test_elements_are_taken_and_updated() -> None:
    x = spread(np.arange(6))
    assert np.array_equal(x[1:4].numpy(), [1, 2, 3])
    assert x[2].item() == 2
    assert np.array_equal(x.at[1:3].set(9).numpy(), [0, 9, 9, 3, 4, 5])
    assert np.array_equal(x.numpy(), np.arange(6))


def test_a_tensor_is_hashed_by_what_it_is_and_not_by_its_elements() -> None:
    x, y = asarray([1.0]), asarray([1.0])
    assert hash(x) == hash(x)
    assert hash(x) != hash(y)
    assert len({x, y}) == 2


def test_an_operator_is_a_copy_of_its_function_under_its_own_name() -> None:
    forward, backward = dict(attributes_of(sw.subtract)).values()
    assert (forward.__name__, backward.__name__) == ("__sub__", "__rsub__")
    assert (forward(asarray(5.0), 3.0).item(), backward(asarray(5.0), 3.0).item()) == (2.0, -2.0)
    assert forward.__code__.co_qualname == "Tensor.__sub__"
    face = face_of(sw.subtract)
    assert face is not None
    assert (face.name, face.method, face.operator) == ("subtract", None, "-")
    assert face_of(len) is None
