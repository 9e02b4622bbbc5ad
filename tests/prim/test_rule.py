"""Factor rules: the sizes of factors, and which dims of operands that broadcast belong together."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from shardwise import BindingError, Cut, ReduceOp
from shardwise.prim.rule import Rule, elementwise_rule

MATMUL = Rule((("m", "k"), ("k", "n")), ("m", "n"), (("k", ReduceOp.SUM),), linear="each")


def test_the_shape_of_a_result_is_the_sizes_of_its_factors() -> None:
    assert MATMUL.shape(((2, 3), (3, 4))) == (2, 4)
    assert MATMUL.sizes(((2, 0), (0, 4))) == {"m": 2, "k": 0, "n": 4}
    assert Rule((("a",),), (None, "a", None)).shape(((5,),)) == (1, 5, 1)
    assert Rule(((),), ()).shape(((),)) == ()
    assert Rule((("a", None),), ("a",)).sizes(((5, 1),)) == {"a": 5}


def test_operands_that_disagree_about_a_factor_are_refused() -> None:
    with pytest.raises(BindingError) as caught:
        MATMUL.shape(((2, 3), (4, 5)))
    assert str(caught.value) == "operands of shapes (2, 3), (4, 5) do not fit together."
    with pytest.raises(BindingError):
        Rule((("a", "a"),), ("a",)).sizes(((2, 3),))


@pytest.mark.parametrize("shapes", [((2, 3),), ((2, 3), (3,)), ((2,), (2, 2))])
def test_ranks_and_counts_must_be_those_of_the_rule(shapes: Any) -> None:
    with pytest.raises(ValueError, match="zip"):
        MATMUL.sizes(shapes)


def test_a_factor_that_is_offered_brings_its_size() -> None:
    rule = Rule((("a",),), ("a", "b"), offered=(("b", Cut("x"), 7),))
    assert rule.sizes(((2,),)) == {"b": 7, "a": 2}
    assert rule.shape(((2,),)) == (2, 7)
    with pytest.raises(BindingError, match=r"operands of shapes \(2,\) do not fit"):
        Rule((("a",),), ("a",), offered=(("a", Cut("x"), 7),)).sizes(((2,),))


def test_what_reaches_over_ends_knows_its_own_shape() -> None:
    class Six:
        shape, places = (6,), 12

        def cuts(self, operands: Any, out: Any) -> Any:
            return operands, out

    rule = Rule((("a",),), ("a",), reach=Six())
    assert (rule.shape(((4,),)), rule.places(((4,),))) == ((6,), 12)


SIZES = [(), (0,), (1,), (2,), (3,), (1, 1), (2, 1), (1, 3), (2, 3), (0, 1), (0, 3), (1, 0), (2, 1, 3), (1, 1, 1)]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_dims_that_broadcast_are_told_apart_from_those_that_are_of_size_one(count: int) -> None:
    for shapes in product(SIZES, repeat=count):
        if count == 3 and len({*shapes}) < 3:
            continue
        try:
            want = np.broadcast_shapes(*shapes)
        except ValueError:
            with pytest.raises(BindingError) as caught:
                elementwise_rule(shapes)
            assert str(caught.value) == f"shapes {' and '.join(map(str, shapes))} do not broadcast."
            continue
        rule = elementwise_rule(shapes)
        assert rule.shape(shapes) == want
        assert rule.out == tuple(f"d{k}" for k in range(len(want)))
        for dims, shape in zip(rule.operands, shapes, strict=True):
            lead = len(want) - len(shape)
            for k, size in enumerate(shape):
                stretched = size == 1 and want[lead + k] != 1
                assert dims[k] == (None if stretched else f"d{lead + k}"), shapes


def test_an_elementwise_rule_says_what_passes_through() -> None:
    plain = elementwise_rule(((2,),))
    assert (plain.linear, plain.monotone, plain.dense) == (None, False, False)
    assert (plain.reduced, plain.whole) == ((), frozenset())
    assert elementwise_rule(((2,), (2,)), "joint").linear == "joint"
    assert elementwise_rule(((2,),), None, True).monotone
    assert elementwise_rule(((2,),)) is plain
