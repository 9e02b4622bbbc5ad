"""Which values derivatives use: found by trying, without any values."""

import pytest

from shardwise import asarray
from shardwise.prim.arithmetic import elementwise as rows
from shardwise.prim.arithmetic.uses import values_used
from shardwise.prim.primitive import OUT, Primitive

USED = {  # by the cotangent of each of two tensors, or of the only one
    "multiply": ({1}, {0}),
    "divide": ({1}, {0, 1}),
    "add": (set(), set()),
    "maximum": ({0, 1}, {0, 1}),
    "exp": ({OUT},),
    "log": ({0},),
    "relu": ({OUT},),
    "floor": (set(),),
}


@pytest.mark.parametrize("name", USED)
def test_each_cotangent_needs_what_its_formula_names(name: str) -> None:
    row: Primitive = getattr(rows, name)
    operands = tuple(asarray([1.0]) for _ in USED[name])
    assert row.needs is not None
    for i, want in enumerate(USED[name]):
        assert {j for j in (OUT, *range(len(operands))) if row.needs(i, j, operands, {})} == want


def test_numbers_and_what_is_only_asked_for_its_dtype_do_not_count() -> None:
    assert values_used(lambda x, y, out: rows.multiply(x, y), (True, False)) == {0}
    assert values_used(lambda x, out: rows.astype(rows.greater(x, 0.0), dtype=out.dtype), (True,)) == {0}
    assert values_used(lambda x, out: 2.0, (True,)) == frozenset()
    assert values_used(lambda x, out: out, (True,)) == {OUT}
