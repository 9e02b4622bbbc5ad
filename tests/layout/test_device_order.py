"""Orders of devices: formulas that agree with the lists they stand for."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shardwise import CPU, Accelerator, Device, DeviceMesh
from shardwise.layout.device_order import RegularOrder, fit_order, join_factors, virtual_order
from tests.layout.strategies import meshes

STRIDED = st.tuples(st.integers(1, 4), st.integers(0, 9))


def values(factors):
    out = np.zeros(1, dtype=int)
    for size, stride in factors:
        out = np.add.outer(out, np.arange(size) * stride).ravel()
    return out.tolist()


@given(st.lists(STRIDED, max_size=4))
def test_joined_factors_give_the_same_ids(factors):
    assert values(join_factors(factors)) == values(factors)
    assert join_factors(join_factors(factors)) == join_factors(factors)
    assert all(size > 1 for size, _ in join_factors(factors))


@given(st.lists(st.lists(STRIDED, max_size=3), max_size=3), st.integers(0, 5))
def test_a_list_made_by_a_formula_gives_the_formula_back(axes, start):
    order = RegularOrder("gpu", start, tuple(join_factors(factors) for factors in axes))
    shape = [len(values(factors)) for factors in axes]
    assert fit_order(order.devices(), shape) == order
    indices = np.ndindex(*shape)
    assert [order.device(tuple(index)) for index in indices] == list(order.devices())


@given(st.lists(st.integers(1, 5), max_size=4))
def test_virtual_devices_are_numbered_row_major(shape):
    order = virtual_order(shape)
    assert order.devices() == tuple(CPU(i) for i in range(int(np.prod(shape))))
    assert fit_order(order.devices(), shape) == order


@given(meshes())
def test_a_formula_and_its_list_are_the_same_mesh(mesh):
    assert DeviceMesh(mesh.mesh_shape, mesh.axis_names, mesh.devices) is mesh
    assert DeviceMesh(mesh.mesh_shape, mesh.axis_names, list(mesh.devices)) is mesh
    assert DeviceMesh(mesh.mesh_shape, mesh.axis_names, iter(mesh.devices)) is mesh


def test_irregular_and_mixed_devices_stay_a_list():
    assert fit_order((CPU(0), CPU(1), CPU(3)), [3]) is None
    assert fit_order((CPU(0), CPU(2), CPU(1), CPU(4)), [4]) is None
    assert fit_order((CPU(0), CPU(1), CPU(2), CPU(4)), [2, 2]) is None
    assert fit_order((CPU(0), Accelerator(1)), [2]) is None
    assert fit_order((Device(0), Device(1)), [2]) is None


def test_descending_devices_are_regular():
    order = fit_order((CPU(5), CPU(3), CPU(1)), [3])
    assert order == RegularOrder("cpu", 5, (((3, -2),),))


def test_a_device_of_another_class_keeps_its_class():
    class Board(CPU):
        pass

    mesh = DeviceMesh((2,), ("x",), [Board(0), Board(1)])
    assert [type(device) for device in mesh.devices] == [Board, Board]
