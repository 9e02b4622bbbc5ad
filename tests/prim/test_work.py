"""Work of each device on what it holds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise import AbstractEngine, DeviceMesh, P, asarray, concat, current_engine, engine_context, shard, stack, vjp
from shardwise.engine.storage import storage_of
from shardwise.prim.work import made, taken, worked
from tests.layout.oracle import held_box
from tests.prim.cases import SHAPES, host_meshes, layouts_for


def test_the_abstract_engine_does_not_run_kernels() -> None:
    def fail(place, array):
        raise AssertionError

    with engine_context(AbstractEngine()):
        x = asarray(np.ones(2, "int8"))
        out = worked(fail, [x], x.layout, (3,))
    assert (out.arrays[0].shape, out.dtype) == ((3,), np.dtype("int8"))


def test_a_kernel_is_told_where_its_result_lies() -> None:
    mesh = DeviceMesh((2, 2), ("x", "y"))
    x = shard(np.zeros(5), mesh, P("y"))
    seen = []

    def kernel(place, array):
        seen.append((place.device, place.box, place.shape))
        return array + place.box[0][0]

    out = worked(kernel, [x], x.layout, x.shape)
    assert seen == [(0, ((0, 3),), (3,)), (1, ((3, 5),), (2,))]
    np.testing.assert_array_equal(out.numpy(), [0, 0, 0, 3, 3])


def test_arrays_of_two_libraries_become_those_of_one() -> None:
    torch = pytest.importorskip("torch")
    mesh = DeviceMesh((2, 2), ("x", "y"))
    value = np.arange(5, dtype="float32")
    n, t = shard(value, mesh, P("x")), shard(torch.arange(5, dtype=torch.float32), mesh, P("y"))
    for got, want in (
        (concat([n, t]), np.concatenate([value, value])),
        (concat([t, n]), np.concatenate([value, value])),
        (stack([t, n]), np.stack([value, value])),
        (t.at[1:3].set(np.array([7, 8], "float32")), np.array([0, 7, 8, 3, 4], "float32")),
        (n.at[1:3].set(torch.tensor([7.0, 8.0])), np.array([0, 7, 8, 3, 4], "float32")),
        (vjp(lambda x: x.at[1:3].set(0.0), t)[1](np.ones(5, "float32"))[0], np.array([1, 0, 0, 1, 1], "float32")),
    ):
        np.testing.assert_array_equal(got.numpy(), want)


@given(st.data(), host_meshes(), SHAPES)
def test_each_array_of_a_result_is_made_once_by_its_first_holder(data, mesh, shape) -> None:
    layout = data.draw(layouts_for(mesh, shape))
    seen = []

    def kernel(place):
        seen.append(place.device)
        assert place.box == held_box(layout, shape, place.device)
        return np.zeros(place.shape, "int8")

    x = made(kernel, [], layout, shape, np.dtype("int8"), current_engine())
    assert tuple(seen) == storage_of(layout, shape).firsts
    assert x.layout is layout


def test_arrays_are_taken_as_they_are() -> None:
    mesh = DeviceMesh((2,), ("x",))
    x = shard(np.arange(4), mesh, P("x"))
    swapped = taken(x, x.layout, x.shape, lambda device: 1 - device)
    assert swapped.arrays[0] is x.arrays[1]
    np.testing.assert_array_equal(swapped.numpy(), [2, 3, 0, 1])
