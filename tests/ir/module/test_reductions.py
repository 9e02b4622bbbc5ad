"""Reductions: each row says one thing in the words of layouts, of the dialect, of arith and of NumPy."""

import numpy as np
import pytest

from shardwise.ir.module.reductions import BY_COMBINER, BY_WORD, REDUCTIONS, Reduction
from shardwise.ir.shard import ReductionKind
from shardwise.layout.placement import ReduceOp


def test_every_reduction_of_a_layout_has_a_word_of_the_dialect() -> None:
    assert {row.op for row in REDUCTIONS} == set(ReduceOp)
    assert set(BY_WORD) <= {str(kind) for kind in ReductionKind}
    assert len(BY_WORD) == len(REDUCTIONS)


@pytest.mark.parametrize("row", REDUCTIONS, ids=lambda row: row.word)
def test_ops_combine_as_their_names_say(row: Reduction) -> None:
    for op in (row.floats, row.ints):
        assert op is None or BY_COMBINER[op.name] is row
    words = {"sum": 7, "product": 12, "max": 4, "min": 3, "average": 7, "bitwise_and": 0, "bitwise_or": 7}
    assert row.combine(np.int64(3), np.int64(4)) == words.get(row.word, 7)
