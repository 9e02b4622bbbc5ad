"""What all devices hold, as one array."""

import re

import numpy as np
import pytest

from shardwise.errors import ArgumentError, ProgramError
from shardwise.ir import parse_module
from shardwise.ir.interpret.stacks import stack_result, unstack_inputs
from shardwise.ir.module.values import undefined_tensor

MODULE = parse_module("""
  shard.grid @g(shape = 2x3)
  func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
    %y = shard.all_reduce %x on @g grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
    return %y : tensor<4xf32>
  }""")


@pytest.mark.parametrize("lead", [(6,), (2, 3), ()])
def test_inputs_have_an_entry_per_device_or_one_for_all(lead):
    x = np.arange(int(np.prod(lead)) * 4, dtype="float32").reshape(*lead, 4)
    (given,) = unstack_inputs(MODULE, [x])
    np.testing.assert_array_equal(given, np.broadcast_to(x.reshape(-1, 4), (6, 4)))


@pytest.mark.parametrize("shape", [(5, 4), (4, 4), (3,)])
def test_inputs_for_other_numbers_of_devices_are_refused(shape):
    message = f"input 0 is tensor<4xf32> on each of 6 devices, got float32 of shape {shape}.\n  give one array for all"
    with pytest.raises(ArgumentError, match=re.escape(message)):
        unstack_inputs(MODULE, [np.zeros(shape, "float32")])


def test_results_of_one_shape_are_stacked():
    np.testing.assert_array_equal(stack_result(0, [np.zeros(2), np.ones(2)]), [[0, 0], [1, 1]])
    with pytest.raises(ArgumentError, match=re.escape("result 0 has different shapes on the devices ([2], [1])")):
        stack_result(0, [np.zeros(2), np.ones(1)])
    with pytest.raises(ProgramError, match=r"result 0 on device 1 is undefined: shard\.gather left it so"):
        stack_result(0, [np.zeros(2), undefined_tensor((2,), np.dtype("float64"), "shard.gather")])
