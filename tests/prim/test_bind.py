"""Bind: levels, tapes, and rows that lack a derivative."""

from typing import Any

import numpy as np
import pytest

from shardwise import (
    DerivativeError,
    DeviceMesh,
    Layout,
    P,
    Tensor,
    asarray,
    jvp,
    matmul,
    shard,
    trace_communication,
    vjp,
)
from shardwise import sum as total
from shardwise.prim.arithmetic.elementwise import add, multiply, negative
from shardwise.prim.bind import Bundle, Node, Traced, new_level, pull_back
from shardwise.prim.primitive import Primitive
from tests.prim.cases import same

M4 = DeviceMesh((4,), ("x",))
ODD = Primitive("odd", lambda x: x)


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
    assert add(x, 1.0).level == 0
    seen = []
    vjp(lambda y: seen.append(add(x, 1.0).level) or y, x)
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
    assert repr(ODD) == "Primitive(odd)"


def test_long_tapes_do_not_recurse() -> None:
    def f(x):
        for _ in range(3000):
            x = negative(x)
        return x

    assert same(vjp(f, asarray(np.ones(1)))[1](np.ones(1))[0].numpy(), np.ones(1))


def test_shared_subexpressions_are_pull_back_once() -> None:
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


def test_cotangents_that_nobody_asks_for_are_not_made() -> None:
    made = []

    def cotangent(name: str, value: Tensor) -> Tensor:
        made.append(name)
        return value

    pair = Primitive("pair", add.run, lambda ct, out, x, y: (lambda: cotangent("x", ct), lambda: cotangent("y", ct)))
    constant = asarray([1.0])
    assert vjp(lambda x: pair(x, constant), asarray([2.0]))[1]([3.0])[0].item() == 3.0
    assert made == ["x"]
    vjp(lambda x: pair(x, x), asarray([2.0]))[1]([3.0])
    assert sorted(made) == ["x", "x", "y"]


def test_terms_of_a_cotangent_that_are_pending_alike_are_added_before_they_are_resolved() -> None:
    x, w = shard(np.arange(12.0).reshape(4, 3), M4, P()), shard(np.ones((3, 8)), M4, P(None, "x"))
    _, back = vjp(lambda x: [total(matmul(x, w) * matmul(x, w)), total(x * x)], x)
    _, both = vjp(lambda x: total(x * x) + total(matmul(x, w)) + total(matmul(2.0 * x, w)), x)
    for call in (lambda: back([1.0, 1.0]), lambda: both(1.0)):
        with trace_communication() as log:
            (found,) = call()
        assert [(record.kind, record.bytes) for record in log if record.bytes] == [("all_reduce", 2 * 3 * x.nbytes)]
        assert found.layout is x.layout


def test_a_cotangent_that_was_resolved_for_one_is_not_resolved_again_for_another() -> None:
    # The cotangent of y is pending over x. The branch through v needs it resolved, which the other then is given.
    v, w = (shard(np.ones(shape), M4, spec) for shape, spec in (((8, 3), P("x")), ((3, 8), P(None, "x"))))

    def block(y: Tensor) -> Tensor:
        return total(matmul(y + matmul(matmul(y, w), v), w))

    y = shard(np.arange(12.0).reshape(4, 3), M4, P())
    _, back = vjp(block, y)
    with trace_communication() as log:
        (found,) = back(1.0)
    assert [record.bytes for record in log if record.bytes] == [2 * 3 * y.nbytes] * 2
    plain = np.ones((4, 8)) @ np.ones((8, 3))
    np.testing.assert_allclose(found.numpy(), plain + plain @ np.ones((3, 8)) @ np.ones((8, 3)))


# -- tapes -------------------------------------------------------------------------------------------------


def test_cotangents_in_several_layouts_are_added_up_once() -> None:
    mesh, sums = DeviceMesh((2,), ("x",)), []

    def counted(a: Tensor, b: Tensor) -> Tensor:
        sums.append((a.layout, b.layout))
        return add(a, b)

    x = shard(np.arange(4.0), mesh, P("x"))
    start = Node()
    node = Node(negative, (x,), {}, negative(x), (start,))
    split, pending = shard(np.ones(4), mesh, P("x")), shard(np.full(4, 2.0), mesh, P(unreduced=["x"]))
    (got,) = pull_back([(node, split), (node, pending)], [start], counted)
    assert got is not None
    assert got.numpy().tolist() == [-3.0] * 4
    assert len(sums) == 1


def test_bundles_are_added_part_by_part() -> None:
    one, two = asarray([1.0]), asarray([2.0])
    seen: list[Bundle] = []

    def back(ct: Any, out: Tensor, x: Tensor) -> tuple[Tensor | None]:
        seen.append(ct)
        return (ct.parts[0],)

    start = Node()
    node = Node(Primitive("several", lambda x: x, back), (one,), {}, one, (start,))
    ends: Any = [(node, Bundle((one, None, two))), (node, Bundle((two, one, None)))]
    (got,) = pull_back(ends, [start], add)
    assert got is not None
    assert got.item() == 3.0
    assert [part.item() for part in seen[0].parts if part is not None] == [3.0, 1.0, 2.0]
    (alone,) = pull_back(ends[:1], [start], add)
    assert alone is one


def test_a_start_that_nothing_reaches_has_no_cotangent() -> None:
    start, other = Node(), Node()
    x = asarray([1.0])
    node = Node(negative, (x,), {}, negative(x), (start,))
    assert pull_back([(node, x)], [other], add) == [None]
