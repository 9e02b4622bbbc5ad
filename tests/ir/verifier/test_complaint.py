"""What complaints are made of: sizes, counts and lists as text."""

import pytest
from xdsl.dialects.builtin import DYNAMIC_INDEX, DenseArrayBase, MemRefType, TensorType, i32, i64
from xdsl.ir import Block

from shardwise.ir.verifier.complaint import count_text, mixed_complaints, shape_of, sizes_text, static_sizes


def test_sizes_are_none_where_they_are_not_known() -> None:
    kinds = [TensorType(i32, [2, DYNAMIC_INDEX]), MemRefType(i32, [3]), TensorType(i32, []), i32]
    assert [shape_of(x) for x in Block(arg_types=kinds).args] == [(2, None), (3,), (), ()]
    assert sizes_text((2, None, 4)) == "2x?x4"
    assert sizes_text(()) == ""
    assert sizes_text((0,)) == "0"


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (0, "axis", "0 axes"),
        (1, "axis", "1 axis"),
        (1, "index", "1 index"),
        (2, "index", "2 indices"),
        (3, "dim", "3 dims"),
    ],
)
def test_counts_have_their_nouns(count: int, noun: str, text: str) -> None:
    assert count_text(count, noun) == text


def test_a_list_has_a_value_for_each_place_that_stands_for_one() -> None:
    args = Block(arg_types=[i64, i64]).args
    static = DenseArrayBase.from_list(i64, [1, DYNAMIC_INDEX, 3])
    assert list(mixed_complaints(static, args[:1], "halo_sizes")) == []
    assert list(mixed_complaints(static, [], "halo_sizes")) == ["halo_sizes has 1 place for values, but 0 values."]
    assert list(mixed_complaints(static, args, "root")) == ["root has 1 place for values, but 2 values."]
    assert static_sizes(static) == (1, None, 3)
