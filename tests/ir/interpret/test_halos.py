"""Halos: borders are filled with what the shards beside own, from further ones where those are too small."""

import numpy as np
import pytest
from xdsl.dialects import test

from shardwise.errors import ProgramError
from shardwise.ir.interpret.halos import fill_halos
from shardwise.ir.module.values import Poisoned

OP = test.TestOp()


@pytest.mark.parametrize("sizes", [[3], [2, 2], [1, 2, 1], [3, 0, 1], [0, 0]])
@pytest.mark.parametrize(("low", "high"), [(0, 0), (1, 0), (0, 1), (1, 2), (3, 2)])
@pytest.mark.parametrize("dim", [0, 1])
def test_every_border_is_what_lies_beside_and_stays_beyond_the_ends(sizes, low: int, high: int, dim: int) -> None:
    total = sum(sizes)
    line = np.arange(100, 100 + 2 * total).reshape((2, total) if dim else (total, 2))
    if not dim:
        line = line.copy()
    shards, start, want = [], 0, []
    for k, size in enumerate(sizes):
        stop = start + size
        shape = [2, 2]
        shape[dim] = low + size + high
        own = np.full(shape, -k - 1)
        full = own.copy()
        for at in range(low + size + high):
            position = start - low + at
            if 0 <= position < total:
                np.moveaxis(full, dim, 0)[at] = np.moveaxis(line, dim, 0)[position]
        np.moveaxis(own, dim, 0)[low : low + size] = np.moveaxis(line, dim, 0)[start:stop]
        shards.append(own)
        want.append(full)
        start = stop
    before = [x.copy() for x in shards]
    got = fill_halos(OP, shards, dim, low, high)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)
    assert all(np.array_equal(a, b) for a, b in zip(shards, before, strict=True))


def test_a_shard_without_room_is_refused() -> None:
    with pytest.raises(ProgramError, match="a shard of 2 elements in dim 0 has no room for halos"):
        fill_halos(OP, [np.zeros(2), np.zeros(4)], 0, 2, 1)
    assert fill_halos(OP, [np.zeros(3)], 0, 2, 1)[0].shape == (3,)


def test_what_is_undefined_stays_so() -> None:
    lost = Poisoned(np.zeros(3), np.array([True, False, True]), "nobody")  # its borders, which are filled
    first, second = fill_halos(OP, [lost, np.ones(3)], 0, 1, 1)
    assert isinstance(first, Poisoned)
    assert first.mask.tolist() == [True, False, False]
    assert first.data.tolist() == [0, 0, 1]
    assert not isinstance(second, Poisoned) or not second.mask.any()
    inner = Poisoned(np.zeros(3), np.array([False, True, False]), "nobody")
    handed = fill_halos(OP, [inner, np.ones(3)], 0, 1, 1)[1]
    assert isinstance(handed, Poisoned)
    assert handed.mask.tolist() == [True, False, False]
