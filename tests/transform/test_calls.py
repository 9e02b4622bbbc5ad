"""Functions as one entry of a tape: what is watched, what comes back, and what is none of it."""

from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import DerivativeError, asarray, vjp
from shardwise.transform.calls import call_of, write_call


def test_arguments_are_taken_apart_by_the_highest_level() -> None:
    x, seen = asarray([1.0]), []

    def program(y: Any) -> Any:
        seen.append(call_of(({"a": y, "b": x}, 3)))
        return y

    vjp(program, x)
    (call,) = seen
    assert call.watched == [True, False, False]
    assert [type(leaf).__name__ for leaf in call.below] == ["Tensor", "Tensor", "int"]
    assert call.args(["p", "q", "r"]) == ({"a": "p", "b": "q"}, "r")
    plain = call_of((x, 3))
    assert (plain.level, plain.watched) == (0, [False, False])


def test_results_without_a_cotangent_give_zeros() -> None:
    given: list[Any] = []

    def program(x: Any) -> Any:
        call = call_of((x,))

        def backward(cotangents: Any) -> Any:
            given.extend(cotangents)
            return [cotangents[0] * 5.0]

        (below,) = call.below
        first, number, second = write_call("f", call, (below * 2.0, 7, below.sum()), backward)
        assert number == 7
        assert second.level == first.level == call.level
        return first

    y, back = vjp(program, np.ones(2))
    assert y.numpy().tolist() == [2.0, 2.0]
    assert back(np.ones(2))[0].numpy().tolist() == [5.0, 5.0]
    assert [ct.numpy().tolist() for ct in given] == [[1.0, 1.0], 0.0]


def test_a_tensor_that_is_no_argument_is_refused() -> None:
    def program(x: Any) -> Any:
        call = call_of((x,))
        return write_call("f", call, x * 2.0, lambda cotangents: cotangents)

    with pytest.raises(
        DerivativeError, match=r"f uses a tensor that is being differentiated .*\n  pass it as an argument"
    ):
        sw.grad(lambda x: sw.sum(program(x)))(np.ones(2))
