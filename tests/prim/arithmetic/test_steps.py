"""Derivatives by steps: those of the steps, in both modes, nested and inside maps."""

import numpy as np

from shardwise import Tensor, asarray, grad, jvp, shard_map, sum, vjp, vmap
from shardwise.layout.mesh import DeviceMesh
from shardwise.layout.spec import P
from shardwise.prim.arithmetic.by_element import work_by_element
from shardwise.prim.arithmetic.elementwise import add, multiply
from shardwise.prim.arithmetic.steps import pull, push, row_of_steps

M2 = DeviceMesh((2,), ("x",))
# x² y, computed in one go.
blend = row_of_steps(
    "blend",
    lambda x, y: work_by_element("blend", lambda a, b: a * a * b, (x, y)),
    lambda x, y: multiply(multiply(x, x), y),
)
X, Y = np.array([2.0, 3.0]), np.array([5.0, 7.0])


def test_both_modes_give_the_derivatives_of_the_steps() -> None:
    out, back = vjp(blend, X, Y)
    assert out.numpy().tolist() == [20.0, 63.0]
    assert [ct.numpy().tolist() for ct in back(np.ones(2))] == [[20.0, 42.0], [4.0, 9.0]]
    assert jvp(lambda x: blend(x, asarray(Y)), (X,), (np.ones(2),))[1].numpy().tolist() == [20.0, 42.0]
    assert jvp(blend, (X, Y), (np.ones(2), np.ones(2)))[1].numpy().tolist() == [24.0, 51.0]


def test_they_nest_and_are_mapped() -> None:
    slope = grad(lambda x: sum(blend(x, asarray(Y))))
    assert grad(lambda x: sum(slope(x)))(X).numpy().tolist() == [10.0, 14.0]
    assert vmap(grad(lambda x: blend(x, asarray(1.0))))(X).numpy().tolist() == [4.0, 6.0]
    inside = shard_map(lambda a: grad(lambda a: sum(blend(a, a)))(a), M2, P("x"), P("x"))
    assert inside(X).numpy().tolist() == [12.0, 27.0]


def test_what_does_not_reach_the_result_has_no_derivative() -> None:
    def first(x: Tensor, y: Tensor, labels: Tensor) -> Tensor:
        return add(x, 1.0)

    operands = [asarray(X), asarray(Y), asarray([1, 2])]
    ct, none, also_none = pull(first, asarray(X), operands, {})
    assert ct is not None
    assert ct.numpy().tolist() == X.tolist()
    assert none is also_none is None
    assert push(first, [None, asarray(Y), None], operands, {}) is None
    assert pull(lambda x: asarray(X), asarray(X), operands[:1], {}) == (None,)
