"""Rules in words: the names, what must be whole, what is reduced, and the sizes that follow."""

import pytest

from shardwise import BindingError, Cut, ReduceOp
from shardwise.ops.own_rules import read_rule


@pytest.mark.parametrize(
    ("text", "operands", "out", "whole", "reduced"),
    [
        ("ij,jk->ik", (("i", "j"), ("j", "k")), ("i", "k"), {"j"}, ()),
        ("ij,jk->ik sum(j)", (("i", "j"), ("j", "k")), ("i", "k"), set(), (("j", ReduceOp.SUM),)),
        (" i [j] -> i [j] ", (("i", "j"),), ("i", "j"), {"j"}, ()),
        ("row col -> row max(col)", (("row", "col"),), ("row",), set(), (("col", ReduceOp.MAX),)),
        ("ijk->i sum(j, k)", (("i", "j", "k"),), ("i",), set(), (("j", ReduceOp.SUM), ("k", ReduceOp.SUM))),
        (",i->i", ((), ("i",)), ("i",), set(), ()),
        ("[i]->", (("i",),), (), {"i"}, ()),
    ],
)
def test_a_rule_is_read_as_it_is_written(text: str, operands, out, whole, reduced) -> None:
    rule = read_rule(text)
    assert (rule.operands, rule.out, rule.whole, rule.reduced) == (operands, out, frozenset(whole), reduced)
    assert repr(rule) == f"WrittenRule({text!r})"


def test_sizes_follow_from_the_operands_or_are_given() -> None:
    rule = read_rule("ij->ikl", {"k": 2, "l": lambda i, j: i + j})
    found = rule.bind("f", [(3, 4)], {"k": 2, "l": lambda i, j: i + j})
    assert found == {"i": 3, "j": 4, "k": 2, "l": 7}
    with pytest.raises(BindingError, match="operand 0 of 'ij->ikl' has 2 dims"):
        rule.bind("f", [(3,)], {"k": 2, "l": 1})


def test_dims_in_front_are_factors_of_their_own() -> None:
    rule = read_rule("ij,jk->ik")
    sizes = {"i": 1, "j": 2, "k": 3, "a": 4, "b": 5}
    found = rule.rule([(("a",), (True, False)), (("b",), (True, True))], sizes)
    assert found.operands == (("a", "b", "i", "j"), ("b", "j", "k"))
    assert found.out == ("a", "b", "i", "k")
    assert found.whole == {"j"}
    assert read_rule("i->ik", {"k": 3}).rule([], {"i": 1, "k": 3}).offered == (("k", Cut(), 3),)
