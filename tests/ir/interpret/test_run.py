"""Functions, calls, branches and loops run; inputs that do not fit are refused in the user's words."""

import re
from typing import Any

import numpy as np
import pytest

from shardwise.errors import ArgumentError, ProgramError
from shardwise.ir.interpret.run import execute, execute_on_devices
from shardwise.ir.module.program import is_partitioned
from shardwise.ir.text import parse_module

TWO = """
func.func private @square(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = arith.mulf %x, %x : tensor<2xf32>
  return %0 : tensor<2xf32>
}
func.func @both(%x: tensor<2xf32>, %c: i1) -> (tensor<2xf32>, i1) {
  %0 = func.call @square(%x) : (tensor<2xf32>) -> tensor<2xf32>
  %1 = scf.if %c -> (tensor<2xf32>) {
    %2 = func.call @square(%0) : (tensor<2xf32>) -> tensor<2xf32>
    scf.yield %2 : tensor<2xf32>
  } else {
    scf.yield %0 : tensor<2xf32>
  }
  return %1, %c : tensor<2xf32>, i1
}"""


@pytest.mark.parametrize("taken", [True, False])
def test_calls_and_branches(taken):
    made, flag = execute(parse_module(TWO), np.array([2, 3], "float32"), taken, function="both")
    np.testing.assert_array_equal(made, [16, 81] if taken else [4, 9])
    assert flag == taken


def test_loops_carry_values():
    made = execute(
        parse_module("""func.func @f(%n: index) -> index {
          %c0 = arith.constant 0 : index
          %c1 = arith.constant 1 : index
          %s = scf.for %i = %c0 to %n step %c1 iter_args(%t = %c0) -> (index) {
            %u = arith.addi %t, %i : index
            scf.yield %u : index
          }
          return %s : index
        }"""),
        5,
    )
    assert made == 10


def test_the_default_function_is_main_or_the_first():
    text = "func.func @a() -> i32 { %c = arith.constant 1 : i32\n return %c : i32 }"
    assert execute(parse_module(text)) == 1
    main = text.replace("@a", "@main").replace("constant 1", "constant 2")
    assert execute(parse_module(text + "\n" + main)) == 2
    assert execute(parse_module("func.func @n() { return }")) is None


@pytest.mark.parametrize(
    ("inputs", "function", "message"),
    [
        (([1.0, 2.0],), "both", "@both takes 2 inputs (tensor<2xf32>, i1), got 1."),
        (
            (np.zeros(2), True),
            "both",
            "input 0 of @both is tensor<2xf32>, got float64 of shape (2,).\n  convert it: x.astype('float32')",
        ),
        ((np.zeros(3, "float32"), True), "both", "input 0 of @both is tensor<2xf32>, got float32 of shape (3,)."),
        (
            ([1.0, 2.0],),
            "squares",
            "the module has no function @squares with a body.\n  functions: @square, @both\n  did you mean 'square'?",
        ),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs, function, message):
    with pytest.raises(ArgumentError, match=re.escape(message)):
        execute(parse_module(TWO), *inputs, function=function)


def test_plain_numbers_take_the_type_that_is_wanted():
    made, _ = execute(parse_module(TWO), [1.0, 2.0], False, function="both")
    assert made.dtype == np.float32


def test_functions_that_call_themselves_for_ever_are_an_error():
    text = "func.func @f() { func.call @f() : () -> ()\n return }"
    with pytest.raises(ProgramError, match=r"func\.call at line 1 is a call within 100 calls"):
        execute(parse_module(text))


def test_an_unknown_op_is_named():
    module = parse_module('func.func @f() { "my.op"() : () -> ()\n return }', allow_unregistered=True)
    with pytest.raises(ProgramError, match="cannot be run: it is not among the ops that the interpreter knows"):
        execute(module)


# -- grids -----------------------------------------------------------------------------------------------

SIZES = """
shard.grid @g(shape = ?x2)
func.func @f() -> (index, index) {
  %a, %b = shard.grid_shape @g : index, index
  return %a, %b : index, index
}"""


def test_grids_with_open_sizes_are_told_how_large_they_are():
    assert execute(parse_module(SIZES), grids={"g": (4, 2)}) == (4, 2)
    assert len(execute_on_devices(parse_module(SIZES), grids={"g": (4, 2)})) == 8


@pytest.mark.parametrize(
    ("grids", "message"),
    [
        (None, "the grid @g is ?x2: say how large, as in grids={'g': (2, 4)}."),
        ({"g": (4, 3)}, "the grid @g is ?x2, which (4, 3) does not fit."),
        ({"h": (1,), "g": (4, 2)}, "a shape was given for the grid @h, which the module does not have; grids: @g."),
    ],
)
def test_grids_that_do_not_fit_are_refused(grids: Any, message):
    with pytest.raises(ArgumentError, match=re.escape(message)):
        execute(parse_module(SIZES), grids=grids)


SHARDED = """
shard.grid @g(shape = 4)
func.func @f(%x: tensor<4x14xf32>) -> (tensor<4x14xf32>, index, index) {
  %s = shard.sharding @g split_axes = [[], [0]] sharded_dims_offsets = [0, 2, 5, 9, 14] : !shard.sharding
  %y = shard.shard %x to %s : tensor<4x14xf32>
  %z = shard.shard %y to %s annotate_for_users : tensor<4x14xf32>
  %t = shard.get_sharding %y : tensor<4x14xf32> -> !shard.sharding
  %i = arith.constant 3 : index
  %a, %b = shard.shard_shape dims = [4, 14] sharding = %t device = [%i] : index, index
  return %z, %a, %b : tensor<4x14xf32>, index, index
}"""


def test_annotations_do_not_change_values_and_say_the_shapes_of_the_reference():
    # "The shards of the devices will have the following shapes: [4x2, 4x3, 4x4, 4x5]"
    x = np.arange(56, dtype="float32").reshape(4, 14)
    for device, width in enumerate([2, 3, 4, 5]):
        made = execute(parse_module(SHARDED.replace("constant 3", f"constant {device}")), x)
        np.testing.assert_array_equal(made[0], x)
        assert made[1:] == (4, width)


def test_offsets_of_the_reference_for_two_dims():
    # "the first device of the device-grid will get a shard of shape 24x20x32 and the second device will get a shard
    # of shape 8x12x32": on a 2x2 grid these are the devices (0, 0) and (1, 1).
    text = """
    shard.grid @g(shape = 2x2)
    func.func @f(%i: index) -> (index, index, index) {
      %s = shard.sharding @g split_axes = [[0], [1]] sharded_dims_offsets = [0, 24, 32, 0, 20, 32] : !shard.sharding
      %a, %b, %c = shard.shard_shape dims = [32, 32, 32] sharding = %s device = [%i, %i] : index, index, index
      return %a, %b, %c : index, index, index
    }"""
    assert execute(parse_module(text), 0) == (24, 20, 32)
    assert execute(parse_module(text), 1) == (8, 12, 32)


def test_halos_and_offsets_may_be_values():
    text = """
    shard.grid @g(shape = 2)
    func.func @f(%h: i64, %o: i64) -> (index, index) {
      %s = shard.sharding @g split_axes = [[0]] halo_sizes = [%h, 2] : !shard.sharding
      %a = shard.shard_shape dims = [8] sharding = %s device = [0] : index
      %t = shard.sharding @g split_axes = [[0]] sharded_dims_offsets = [0, %o, 8] : !shard.sharding
      %i = arith.constant 1 : index
      %n = arith.constant 8 : index
      %b = shard.shard_shape dims = [%n] sharding = %t device = [%i] : index
      return %a, %b : index, index
    }"""
    assert execute(parse_module(text), 1, 5) == (4 + 1 + 2, 3)


def test_shards_with_halos_are_larger():
    text = """
    shard.grid @g(shape = 2x2x4)
    func.func @f() -> (index, index) {
      %s = shard.sharding @g split_axes = [[0]] halo_sizes = [1, 2] : !shard.sharding
      %a, %b = shard.shard_shape dims = [4, 8] sharding = %s device = [0, 0, 0] : index, index
      return %a, %b : index, index
    }"""
    assert execute(parse_module(text)) == (2 + 1 + 2, 8)


def test_global_values_have_no_position_and_devices_no_annotations():
    text = """
    shard.grid @g(shape = 2)
    func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> {
      %y = shard.all_reduce %x on @g grid_axes = [0] : tensor<2xf32> -> tensor<2xf32>
      return %y : tensor<2xf32>
    }"""
    module = parse_module(text)
    assert is_partitioned(module)
    assert not is_partitioned(parse_module(SHARDED))
    with pytest.raises(ProgramError, match=r"shard.all_reduce \(%y\) at line 4 is for one device of a grid, but"):
        execute(module, np.zeros(2, "float32"))
    with pytest.raises(ProgramError, match=r"shard.shard \(%y\) at line 5 says how a whole tensor is spread"):
        execute_on_devices(parse_module(SHARDED), [np.zeros((4, 14), "float32")] * 4)


def test_one_array_per_device_is_asked_for():
    with pytest.raises(ArgumentError, match="input 0 needs one array for each of 4 devices, got 2"):
        execute_on_devices(parse_module(SHARDED), [np.zeros((4, 14), "float32")] * 2)


# -- what only shows while a program runs ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("%r = arith.addf %x, %y : tensor<?xf32>", "arith.addf (%r) at line 2 combines shapes [1], [2]."),
        (
            "%e = tensor.expand_shape %x [[0, 1]] output_shape [1, 1] : tensor<?xf32> into tensor<1x1xf32>\n"
            "%r = tensor.collapse_shape %e [[0, 1]] : tensor<1x1xf32> into tensor<?xf32>",
            "tensor.expand_shape (%e) at line 2 sees float32[2] as shape [1, 1], which has other elements.",
        ),
        (
            "%c = arith.constant 7 : index\n%v = tensor.extract %x[%c] : tensor<?xf32>\n"
            "%r = tensor.from_elements %v : tensor<1xf32>",
            "tensor.extract (%v) at line 3 reads or writes element 7 of dim 0 of [2].",
        ),
    ],
)
def test_sizes_that_do_not_fit_are_reported(body, message):
    result = "tensor<1xf32>" if "from_elements" in body else "tensor<?xf32>"
    text = f"func.func @f(%x: tensor<?xf32>, %y: tensor<?xf32>) -> {result} {{\n{body}\nreturn %r : {result}\n}}"
    with pytest.raises(ProgramError, match=re.escape(message)):
        execute(parse_module(text), np.zeros(2, "float32"), np.zeros(1, "float32"))


def test_blocks_and_buffers_are_refused():
    jump = "func.func @f() {\n cf.br ^end\n^end:\n return\n}"
    with pytest.raises(ProgramError, match=r"@f has several blocks, which cannot be run\.\n  use scf\.if and scf\.for"):
        execute(parse_module(jump))
    with pytest.raises(ProgramError, match="values of type memref<2xf32> cannot be run"):
        execute(parse_module("func.func @f(%x: memref<2xf32>) { return }"), np.zeros(2, "float32"))


def test_bfloat16_products():
    import ml_dtypes

    a = np.arange(6, dtype=ml_dtypes.bfloat16).reshape(2, 3)
    text = """func.func @f(%a: tensor<2x3xbf16>, %b: tensor<3x2xbf16>) -> tensor<2x2xbf16> {
      %z = arith.constant dense<0.0> : tensor<2x2xbf16>
      %m = linalg.matmul ins(%a, %b : tensor<2x3xbf16>, tensor<3x2xbf16>) outs(%z : tensor<2x2xbf16>)
        -> tensor<2x2xbf16>
      return %m : tensor<2x2xbf16>
    }"""
    made = execute(parse_module(text), a, a.T)
    np.testing.assert_array_equal(made.astype("float32"), a.astype("float32") @ a.T.astype("float32"))
