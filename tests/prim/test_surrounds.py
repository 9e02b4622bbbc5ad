"""Surrounds: what dims are made of, and that no element comes to a device twice."""

import numpy as np
import pytest

from shardwise import DeviceMesh, P, shard
from shardwise.prim.surrounds import stretches, surround, surrounded_shape
from tests.ops.cases import sent


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
@pytest.mark.parametrize(("size", "low", "high"), [(4, 2, 1), (5, 0, 3), (3, 2, 2), (4, 3, 0)])
def test_stretches_are_the_elements_that_numpy_takes(mode, size, low, high):
    ways = stretches(size, low, high, mode)
    got = [part.first + part.step * i for part in ways for i in range(part.length)]
    assert got == np.pad(np.arange(size), (low, high), mode=mode).tolist()
    assert surrounded_shape([ways]) == (low + size + high,)


def test_an_element_that_is_needed_again_and_again_is_sent_once():
    mesh = DeviceMesh((2,), ("x",))
    x = shard(np.arange(4.0), mesh, P("x"))
    # Twelve elements: the second device has six of the last seven, all of them the last element, which it has.
    made, size = sent(lambda: surround(x, ways=(stretches(4, 0, 8, "edge"),), layout=P("x").to_layout(1, mesh)))
    assert made.numpy().tolist() == [0.0, 1.0, 2.0, *[3.0] * 9]
    assert size == 2 * 8  # the first device lacks two elements, though it has one of them thrice
