"""Bind: levels, tapes, and rows that lack a derivative."""

import numpy as np
import pytest

from shardwise import DerivativeError, DeviceMesh, Layout, P, asarray, jvp, shard, vjp
from shardwise.prim.bind import Traced, bind, new_level
from shardwise.prim.elementwise import add, multiply, negative
from shardwise.prim.row import Row
from tests.prim.cases import same

M4 = DeviceMesh((4,), ("x",))
ODD = Row("odd", lambda x: x)


def test_levels_open_above_each_other_and_close() -> None:
    with new_level() as outer:
        with new_level() as inner:
            assert inner == outer + 1
        with new_level() as again:
            assert again == inner
    with pytest.raises(RuntimeError, match="inside"), new_level():
        raise RuntimeError("inside")
    with new_level() as level:
        assert level == outer


def test_plain_values_are_not_watched() -> None:
    x = asarray(np.ones(2))
    assert bind(add, x, 1.0).level == 0
    seen = []
    vjp(lambda y: seen.append(bind(add, x, 1.0).level) or y, x)
    assert seen == [0]


def test_the_highest_level_is_handled_first() -> None:
    seen = []

    def outer(x):
        return vjp(lambda y: seen.append(multiply(x, y)) or seen[-1], asarray([2.0]))[0]

    vjp(outer, asarray([3.0]))
    assert isinstance(seen[0], Traced)
    assert isinstance(seen[0].value, Traced)
    assert seen[0].level == seen[0].value.level + 1


def test_a_row_without_a_derivative_is_never_silently_zero() -> None:
    x = asarray(np.ones(2))
    assert vjp(ODD, x)[0].shape == (2,)
    with pytest.raises(DerivativeError, match="odd has no reverse derivative"):
        vjp(ODD, x)[1](np.ones(2))
    with pytest.raises(DerivativeError, match="odd has no forward derivative"):
        jvp(ODD, (x,), (np.ones(2),))
    assert repr(ODD) == "Row(odd)"


def test_long_tapes_do_not_recurse() -> None:
    def f(x):
        for _ in range(3000):
            x = negative(x)
        return x

    assert same(vjp(f, asarray(np.ones(1)))[1](np.ones(1))[0].numpy(), np.ones(1))


def test_shared_subexpressions_are_pulled_back_once() -> None:
    # Without that, forty doublings would take a trillion steps.
    def f(x):
        for _ in range(40):
            x = add(x, x)
        return x

    assert vjp(f, asarray(np.ones(1)))[1](np.ones(1))[0].item() == 2.0**40


def test_tangents_lie_as_their_values_do() -> None:
    seen = []
    x = shard(np.arange(4.0), M4, P())
    constant = shard(np.ones(4), M4, P("x"))
    jvp(lambda x: seen.append(constant + x) or seen[-1], (x,), (np.ones(4),))
    assert isinstance(seen[0], Traced)
    assert seen[0].tangent is not None
    assert seen[0].tangent.layout is seen[0].layout is Layout(M4, ["x"])
