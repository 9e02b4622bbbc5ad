"""Portions of a box are those that `portion` cuts, without the empty ones."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shardwise.layout.tiling import box_size
from shardwise.plan.portions import Portions
from shardwise.plan.transfer import portion


@given(st.lists(st.integers(1, 9), max_size=3), st.integers(1, 24), st.data())
def test_portions_are_those_that_are_not_empty(lengths: list[int], count: int, data: st.DataObject) -> None:
    chosen = None
    if data.draw(st.booleans()):
        chosen = np.array(sorted(data.draw(st.sets(st.integers(0, count - 1)))), dtype=np.int64)
    indices = range(count) if chosen is None else chosen.tolist()
    box = tuple((0, length) for length in lengths)
    want = {i: own for i in indices if box_size(own := portion(box, count, i))}
    some = Portions(tuple(lengths), count, chosen)
    assert len(some) == len(want)
    assert [some.index(k) for k in range(len(some))] == list(want)
    assert [some.box(k) for k in range(len(some))] == list(want.values())
    assert [some.find(i) for i in range(count)] == [list(want).index(i) if i in want else None for i in range(count)]
    assert some.size == sum(map(box_size, want.values()))
    assert some.choose(np.arange(100, 100 + count)).ravel().tolist() == [100 + i for i in want]
    for dim in range(len(lengths)):
        for end, bound in enumerate(some.bounds(dim)):
            assert np.broadcast_to(bound, some.shape).ravel().tolist() == [own[dim][end] for own in want.values()]


def test_a_million_portions_are_not_listed() -> None:
    some = Portions((16384, 4096), 2**20)
    assert (len(some), some.size) == (2**20, 2**26)
    k = 777_777
    assert some.box(k) == portion(((0, 16384), (0, 4096)), 2**20, k)
    assert some.find(some.index(k)) == k
