"""Work of each device on what it holds."""

import numpy as np

from shardwise import AbstractEngine, DeviceMesh, P, asarray, engine_context, shard
from shardwise.prim.work import taken, worked


def test_the_abstract_engine_does_not_run_kernels() -> None:
    def fail(place, array):
        raise AssertionError

    with engine_context(AbstractEngine()):
        x = asarray(np.ones(2, "int8"))
        made = worked(fail, [x], x.layout, (3,))
    assert (made.arrays[0].shape, made.dtype) == ((3,), np.dtype("int8"))


def test_a_kernel_is_told_where_its_result_lies() -> None:
    mesh = DeviceMesh((2, 2), ("x", "y"))
    x = shard(np.zeros(5), mesh, P("y"))
    seen = []

    def kernel(place, array):
        seen.append((place.device, place.box, place.shape))
        return array + place.box[0][0]

    made = worked(kernel, [x], x.layout, x.shape)
    assert seen == [(0, ((0, 3),), (3,)), (1, ((3, 5),), (2,))]
    np.testing.assert_array_equal(made.numpy(), [0, 0, 0, 3, 3])


def test_arrays_are_taken_as_they_are() -> None:
    mesh = DeviceMesh((2,), ("x",))
    x = shard(np.arange(4), mesh, P("x"))
    swapped = taken(x, x.layout, x.shape, lambda device: 1 - device)
    assert swapped.arrays[0] is x.arrays[1]
    np.testing.assert_array_equal(swapped.numpy(), [2, 3, 0, 1])
