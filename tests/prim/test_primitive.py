"""Rows: a primitive runs at once, or under the interpreter that an operand carries."""

import numpy as np
import pytest

from shardwise import asarray, grad, jvp
from shardwise.prim.arithmetic.elementwise import multiply
from shardwise.prim.primitive import CONSTANT, Primitive
from shardwise.prim.tensor import Tensor


def counted() -> tuple[Primitive, list[str]]:
    seen: list[str] = []

    def run(x: Tensor, *, by: float) -> Tensor:
        seen.append("run")
        assert x.level == 0
        return multiply(x, by)

    def vjp(ct: Tensor, out: Tensor, x: Tensor, *, by: float) -> tuple[Tensor]:
        seen.append("vjp")
        return (multiply(ct, by),)

    return Primitive("times", run, vjp, linear=True), seen


def test_without_an_interpreter_a_primitive_is_run() -> None:
    row, seen = counted()
    assert row(asarray([1.0, 2.0]), by=3.0).numpy().tolist() == [3.0, 6.0]
    assert seen == ["run"]


def test_an_operand_brings_its_interpreter() -> None:
    row, seen = counted()
    got = grad(lambda x: row(x, by=3.0).sum())(asarray([1.0, 2.0]))
    assert got.numpy().tolist() == [3.0, 3.0]
    assert seen.count("vjp") == 1


def test_a_linear_primitive_is_its_own_tangent() -> None:
    row, _ = counted()
    _, pushed = jvp(lambda x: row(x, by=3.0), (asarray([1.0, 2.0]),), (asarray([10.0, 20.0]),))
    assert pushed.numpy().tolist() == [30.0, 60.0]


def test_any_operand_may_bring_it() -> None:
    pair = Primitive("pair", lambda a, b: multiply(a, b), lambda ct, out, a, b: (multiply(ct, b), multiply(ct, a)))
    one, two = asarray([1.0, 2.0]), asarray([3.0, 5.0])
    assert grad(lambda b: pair(one, b).sum())(two).numpy().tolist() == [1.0, 2.0]
    assert grad(lambda a: pair(a, two).sum())(one).numpy().tolist() == [3.0, 5.0]


def test_a_constant_has_no_derivative_to_hand_on() -> None:
    row = Primitive("steps", lambda *xs: xs[0], **CONSTANT)
    x = asarray([1.0])
    assert row.vjp is not None
    assert row.jvp is not None
    assert row.vjp(x, x, x, x, more=1) == (None, None)
    assert row.vjp(x, x) == ()
    assert row.jvp((x,), x, x, more=1) is None
    assert not row.linear
    assert np.array_equal(grad(lambda x: (row(x) * x).sum())(x).numpy(), [1.0])


def test_rows_are_known_by_name_and_equal_only_themselves() -> None:
    row, _ = counted()
    other, _ = counted()
    assert repr(row) == "Primitive(times)"
    assert row != other
    with pytest.raises(AttributeError):
        row.name = "other"  # type: ignore[misc]
