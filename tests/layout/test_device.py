"""Devices, and which one is the default."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from shardwise import CPU, Accelerator, ArgumentError, Device, MeshError, accelerator_count, default_device

make: Any = CPU  # lets the type checker pass wrong arguments


def test_devices_are_equal_by_kind_and_number():
    assert CPU() == CPU(0) == CPU(id=0)
    assert len({CPU(1), CPU(1), Accelerator(1), Device(1), CPU(2)}) == 4
    assert [repr(d) for d in (CPU(1), Accelerator(2), Device(3))] == ["CPU(1)", "Accelerator(2)", "Device(3)"]
    assert [str(d) for d in (CPU(1), Accelerator(2), Device(3))] == ["cpu:1", "gpu:2", "device:3"]


def test_a_numpy_number_is_a_number():
    device = make(np.int64(3))
    assert device == CPU(3)
    assert type(device.id) is int
    assert hash(device) == hash(CPU(3))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda d: pickle.loads(pickle.dumps(d))])
def test_copies_are_equal(copied):
    assert copied(Accelerator(7)) == Accelerator(7)


@pytest.mark.parametrize("wrong", [True, 1.0, "0", None, np.bool_(True), np.array([1, 2])])
def test_a_device_needs_a_number(wrong):
    with pytest.raises(ArgumentError) as caught:
        make(wrong)
    assert str(caught.value) == f"CPU needs an int as its id, got {wrong!r}."
    assert isinstance(caught.value, TypeError)


def test_a_number_is_not_negative():
    with pytest.raises(MeshError) as caught:
        Accelerator(-1)
    assert str(caught.value) == "Accelerator needs an id of 0 or more, got -1."
    assert isinstance(caught.value, ValueError)


def test_a_device_does_not_change():
    device: Any = CPU(1)
    with pytest.raises(AttributeError):
        device.id = 2


def test_accelerators_are_counted():
    assert accelerator_count() >= 0


def test_the_default_device_nests():
    assert default_device() == CPU(0)
    with default_device(CPU(1)) as outer:
        assert outer == default_device() == CPU(1)
        with default_device(Accelerator(2)):
            assert default_device() == Accelerator(2)
        assert default_device() == CPU(1)
    assert default_device() == CPU(0)


def test_the_default_device_is_restored_after_an_error():
    with pytest.raises(RuntimeError, match="inside"), default_device(CPU(1)):
        raise RuntimeError("inside")
    assert default_device() == CPU(0)


def test_making_the_context_changes_nothing():
    context = default_device(CPU(5))
    assert default_device() == CPU(0)
    with context:
        assert default_device() == CPU(5)


def test_the_default_device_is_a_device():
    using: Any = default_device
    with pytest.raises(ArgumentError) as caught:
        using("cpu:0")
    assert str(caught.value) == "default_device needs a Device such as CPU(0), got 'cpu:0'."
