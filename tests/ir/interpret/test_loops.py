"""Loops of structured ops: operands seen over them, against indexing element by element."""

import numpy as np
import pytest
from xdsl.dialects import test
from xdsl.ir.affine import AffineConstantExpr, AffineDimExpr, AffineExpr

from shardwise.errors import ProgramError
from shardwise.ir.interpret.loops import View, dims_map, loop_indices, loop_sizes, view

OP = test.TestOp()
A, B, C = (AffineDimExpr(k) for k in range(3))


def number(n: int) -> AffineExpr:
    return AffineConstantExpr(n)


def evaluate(expr: AffineExpr, place: tuple[int, ...]) -> int:
    return expr.eval(place, [])


CASES: list[tuple[list[AffineExpr], tuple[int, ...], tuple[int, ...]]] = [
    ([A, B], (3, 4), (3, 4)),
    ([B, A], (4, 3), (3, 4)),
    ([A], (3,), (3, 4)),
    ([A, A], (3, 3), (3,)),
    ([A + B], (6,), (3, 4)),
    ([A * 2 + B], (8,), (3, 4)),
    ([A * 2 + 1], (6,), (3,)),
    ([number(2), A], (3, 4), (4,)),
    ([A * -1 + 2], (3,), (3,)),
    ([number(2) * A], (5,), (3,)),
    ([A % number(2), B], (2, 4), (3, 4)),
    ([A // number(2)], (2,), (4,)),
    ([A.ceil_div(number(2))], (3,), (4,)),
    ([A % 2 * 3 + B], (7,), (3, 4)),
    ([], (), (3,)),
    ([A, B], (0, 4), (0, 4)),
    ([A, C, B], (2, 4, 3), (2, 3, 4)),
]


@pytest.mark.parametrize(("indices", "shape", "sizes"), CASES, ids=[", ".join(map(str, case[0])) for case in CASES])
def test_a_view_has_the_element_that_its_map_says(indices, shape, sizes) -> None:
    array = np.arange(int(np.prod(shape))).reshape(shape)
    found = view(OP, array, indices, sizes)
    assert list(found.loops) == sorted(found.loops)
    got = np.broadcast_to(found.over(len(sizes)), sizes)
    for place in np.ndindex(*sizes):
        want = array[tuple(evaluate(expr, place) for expr in indices)]
        assert got[place] == want, place


def test_a_view_is_no_copy_where_its_map_is_a_sum() -> None:
    array = np.arange(12).reshape(3, 4)
    found = view(OP, array, [B, A], (4, 3)).array
    assert np.shares_memory(found, array)
    assert not found.flags.writeable


@pytest.mark.parametrize(
    ("indices", "shape", "text"),
    [
        ([A + B], (5,), "reaches elements 0 to 5 of dim 0, which has 5"),
        ([A * -1], (3,), "reaches elements -2 to 0 of dim 0, which has 3"),
        ([A, B + 1], (3, 4), "reaches elements 1 to 4 of dim 1, which has 4"),
        ([A % number(2)], (1,), "reaches outside dim 0, which has 1 elements"),
        ([A % 2 + -1], (7,), "reaches outside dim 0, which has 7 elements"),
    ],
    ids=["sum", "backwards", "second dim", "remainder", "below"],
)
def test_a_map_that_reaches_outside_is_refused(indices, shape, text: str) -> None:
    with pytest.raises(ProgramError, match=text):
        view(OP, np.zeros(shape), indices, (3, 4))


def test_loops_are_as_long_as_the_dims_they_run_over() -> None:
    assert loop_sizes(OP, 2, [[A, B], [B]], [(3, 4), (4,)]) == (3, 4)
    assert loop_sizes(OP, 2, [[A + B], [B, A]], [(9,), (4, 3)]) == (3, 4)
    with pytest.raises(ProgramError, match=r": loop d1 is 4 and 5 long\.$"):
        loop_sizes(OP, 2, [[A, B], [B]], [(3, 4), (5,)])
    with pytest.raises(ProgramError, match=r": no operand says how long loop d1 is\.$"):
        loop_sizes(OP, 2, [[A, A + B]], [(3, 6)])


def test_indices_of_loops_broadcast_against_one_another() -> None:
    a, b = loop_indices((2, 3))
    assert (a.shape, b.shape) == ((2, 1), (1, 3))
    assert (a * 10 + b).tolist() == [[0, 1, 2], [10, 11, 12]]
    assert loop_indices(()) == []
    assert [expr.position for expr in dims_map([2, 0])] == [2, 0]  # type: ignore[attr-defined]
    assert View(np.zeros((4, 2)), (0, 2)).over(3).shape == (4, 1, 2)
