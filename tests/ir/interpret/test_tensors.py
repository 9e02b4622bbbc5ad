"""Ops on tensors do what NumPy does, also with sizes that only the running program knows."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise.errors import ProgramError
from shardwise.ir.interpret.run import execute
from shardwise.ir.text import parse_module


def run(text: str, *inputs: Any) -> Any:
    return execute(parse_module(text), *inputs)


@given(st.data())
def test_slices_are_those_of_numpy(data):
    shape = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    starts = [data.draw(st.integers(0, n - 1)) for n in shape]
    steps = [data.draw(st.integers(1, 3)) for _ in shape]
    sizes = [data.draw(st.integers(0, -(-(n - a) // s))) for n, a, s in zip(shape, starts, steps, strict=True)]
    x = np.arange(np.prod(shape)).reshape(shape).astype("int64")
    where = tuple(slice(a, a + n * s, s) for a, n, s in zip(starts, sizes, steps, strict=True))
    old, new = ("x".join(map(str, s)) for s in (shape, sizes))
    made = run(
        f"""func.func @f(%x: tensor<{old}xi64>, %v: tensor<{new}xi64>) -> (tensor<{new}xi64>, tensor<{old}xi64>) {{
          %a = tensor.extract_slice %x{starts} {sizes} {steps} : tensor<{old}xi64> to tensor<{new}xi64>
          %b = tensor.insert_slice %v into %x{starts} {sizes} {steps} : tensor<{new}xi64> into tensor<{old}xi64>
          return %a, %b : tensor<{new}xi64>, tensor<{old}xi64>
        }}""",
        x,
        np.full(sizes, -1, "int64"),
    )
    np.testing.assert_array_equal(made[0], x[where])
    expected = x.copy()
    expected[where] = -1
    np.testing.assert_array_equal(made[1], expected)


DYNAMIC = """func.func @f(%x: tensor<?x4xf32>, %i: index, %n: index) -> (tensor<?x4xf32>, index, tensor<?x4xf32>) {
  %c0 = arith.constant 0 : index
  %a = tensor.extract_slice %x[%i, 0] [%n, 4] [1, 1] : tensor<?x4xf32> to tensor<?x4xf32>
  %d = tensor.dim %a, %c0 : tensor<?x4xf32>
  %z = arith.constant 7.0 : f32
  %s = tensor.splat %z[%d] : tensor<?x4xf32>
  return %a, %d, %s : tensor<?x4xf32>, index, tensor<?x4xf32>
}"""


def test_open_sizes_are_those_of_the_values():
    x = np.arange(20, dtype="float32").reshape(5, 4)
    made = run(DYNAMIC, x, 2, 3)
    np.testing.assert_array_equal(made[0], x[2:5])
    assert made[1] == 3
    np.testing.assert_array_equal(made[2], np.full((3, 4), 7))


def test_a_slice_outside_the_tensor_is_an_error():
    with pytest.raises(ProgramError) as error:
        run(DYNAMIC, np.zeros((5, 4), "float32"), 3, 3)
    assert str(error.value) == (
        "tensor.extract_slice (%a) at line 3 reaches outside dim 0 of [5, 4]: offset 3, size 3, stride 1."
    )


def test_ranks_are_reduced_by_leaving_out_ones():
    x = np.arange(6, dtype="int32").reshape(2, 1, 3)
    made = run(
        """func.func @f(%x: tensor<2x1x3xi32>) -> (tensor<3xi32>, tensor<2x1x3xi32>) {
          %a = tensor.extract_slice %x[1, 0, 0] [1, 1, 3] [1, 1, 1] : tensor<2x1x3xi32> to tensor<3xi32>
          %b = tensor.insert_slice %a into %x[0, 0, 0] [1, 1, 3] [1, 1, 1] : tensor<3xi32> into tensor<2x1x3xi32>
          return %a, %b : tensor<3xi32>, tensor<2x1x3xi32>
        }""",
        x,
    )
    np.testing.assert_array_equal(made[0], [3, 4, 5])
    np.testing.assert_array_equal(made[1], [[[3, 4, 5]], [[3, 4, 5]]])


def test_shapes_are_joined_split_cast_and_padded():
    x = np.arange(12, dtype="int32").reshape(3, 4)
    made = run(
        """func.func @f(%x: tensor<3x4xi32>) -> (tensor<12xi32>, tensor<3x2x2xi32>, tensor<6x4xi32>, tensor<5x6xi32>) {
          %a = tensor.collapse_shape %x [[0, 1]] : tensor<3x4xi32> into tensor<12xi32>
          %b = tensor.expand_shape %x [[0], [1, 2]] output_shape [3, 2, 2] : tensor<3x4xi32> into tensor<3x2x2xi32>
          %c = tensor.concat dim(0) %x, %x : (tensor<3x4xi32>, tensor<3x4xi32>) -> tensor<6x4xi32>
          %d = tensor.cast %x : tensor<3x4xi32> to tensor<?x4xi32>
          %e = tensor.cast %d : tensor<?x4xi32> to tensor<3x4xi32>
          %one = arith.constant 1 : index
          %z = arith.constant -1 : i32
          %p = tensor.pad %e low[1, %one] high[1, 1] {
          ^bb0(%i: index, %j: index):
            tensor.yield %z : i32
          } : tensor<3x4xi32> to tensor<5x?xi32>
          %q = tensor.cast %p : tensor<5x?xi32> to tensor<5x6xi32>
          return %a, %b, %c, %q : tensor<12xi32>, tensor<3x2x2xi32>, tensor<6x4xi32>, tensor<5x6xi32>
        }""",
        x,
    )
    np.testing.assert_array_equal(made[0], x.reshape(12))
    np.testing.assert_array_equal(made[1], x.reshape(3, 2, 2))
    np.testing.assert_array_equal(made[2], np.concatenate([x, x]))
    np.testing.assert_array_equal(made[3], np.pad(x, 1, constant_values=-1))


def test_a_cast_to_another_size_is_an_error():
    with pytest.raises(ProgramError, match=r"tensor.cast \(%a\) at line 2 casts float32\[2\] to tensor<3xf32>"):
        run(
            """func.func @f(%x: tensor<?xf32>) -> tensor<3xf32> {
            %a = tensor.cast %x : tensor<?xf32> to tensor<3xf32>
            return %a : tensor<3xf32>
            }""",
            np.zeros(2, "float32"),
        )


def test_elements_are_read_and_written():
    made = run(
        """func.func @f(%x: tensor<3xi32>, %i: index) -> (i32, tensor<3xi32>, tensor<2xi32>) {
          %a = tensor.extract %x[%i] : tensor<3xi32>
          %c = arith.constant 9 : i32
          %b = tensor.insert %c into %x[%i] : tensor<3xi32>
          %d = tensor.from_elements %a, %c : tensor<2xi32>
          return %a, %b, %d : i32, tensor<3xi32>, tensor<2xi32>
        }""",
        np.array([1, 2, 3], "int32"),
        1,
    )
    assert made[0] == 2
    np.testing.assert_array_equal(made[1], [1, 9, 3])
    np.testing.assert_array_equal(made[2], [2, 9])
