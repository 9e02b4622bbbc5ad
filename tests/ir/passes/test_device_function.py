"""Device functions: bodies that read tensors from outside."""

import numpy as np
import pytest

import shardwise as sw
from shardwise import DeviceMesh, P, grad, shard
from shardwise.ir import check_partition, trace

MESH = DeviceMesh((2, 2), ("x", "y"))


@pytest.mark.parametrize("spec", [P("x", "y"), P("y"), P(None, ("x", "y")), P()], ids=str)
def test_elements_picked_by_index(spec):
    values = np.arange(24.0).reshape(6, 4)
    x, rows = shard(values, MESH, spec), np.array([3, 1, 5])

    def picked(x):
        return sw.take(sw.tanh(x), rows, axis=0) * 2.0

    for function in (picked, grad(lambda x: sw.sum(picked(x)))):
        assert check_partition(trace(function, x), values).agree
