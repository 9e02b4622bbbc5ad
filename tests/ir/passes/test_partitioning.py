"""Programs on whole tensors, partitioned and run on every device: the parts of the same results."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from shardwise.errors import ProgramError
from shardwise.ir import check_partition, execute_on_devices, parse_module, print_module, verify
from shardwise.ir.interpret.shards import cut
from shardwise.ir.module.program import program_of
from shardwise.ir.passes import partition, propagate, simplify
from shardwise.ir.passes.boundaries import boundary_of
from shardwise.ir.passes.layouts import Grids
from tests.ir.passes.programs import program

RNG = np.random.default_rng(0)


def made(text: str, *inputs: Any) -> str:
    """Partition a module as it is and propagated; check both against the whole, and what is printed of them."""
    module = parse_module(text)
    verify(module)
    assert check_partition(module, *inputs).agree, str(check_partition(module, *inputs))
    for whole in (module, propagate(module)):
        local = partition(whole)
        verify(local)
        printed = print_module(local)
        verify(parse_module(printed))
        assert print_module(partition(local)) == printed  # what is partitioned stays as it is
    return print_module(partition(module))


def numbers(*shape: int) -> np.ndarray:
    return RNG.integers(-5, 6, shape).astype("float32")


# -- random programs -------------------------------------------------------------------------------------


def check_random(seed: int) -> None:
    text, inputs = program(seed, details=seed % 2 == 1)
    module = parse_module(text)
    verify(module)
    found = check_partition(module, *inputs)
    assert found.agree, f"{text}\n{found}"
    said = propagate(module)
    verify(said)
    assert print_module(propagate(said)) == print_module(said)
    for whole in (module, said):
        local = partition(whole)
        verify(local)
        simple = simplify(local)
        verify(simple)
        assert print_module(simplify(simple)) == print_module(simple)
        same_on_devices(whole, local, simple, inputs)


def same_on_devices(whole: ModuleOp, local: ModuleOp, simple: ModuleOp, inputs: list[np.ndarray]) -> None:
    """Run what a device does, as it is and simplified."""
    ready = program_of(whole)
    boundary = boundary_of(ready.function(None), Grids(ready.grids))
    cuts = [cut(x, s, ready.devices) for x, s in zip(inputs, boundary.arguments, strict=True)]
    for a, b in zip(*(execute_on_devices(m, *cuts) for m in (local, simple)), strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("seed", range(24))
def test_random_programs(seed):
    check_random(seed)


@pytest.mark.long
@pytest.mark.parametrize("batch", range(20))
def test_many_random_programs(batch):
    for seed in range(100 + batch, 1100, 20):
        check_random(seed)


# -- reductions ------------------------------------------------------------------------------------------

PRODUCT = """
shard.grid @g(shape = 2x2)
func.func @f(%x: tensor<4x6xf32>, %w: tensor<6x8xf32>, %c: tensor<4x8xf32>) -> tensor<4x8xf32> {{
  %sx = shard.sharding @g split_axes = [[], [0]] : !shard.sharding
  %sw = shard.sharding @g split_axes = [[0], []] : !shard.sharding
  %so = shard.sharding @g split_axes = {out} : !shard.sharding
  %0 = shard.shard %x to %sx : tensor<4x6xf32>
  %1 = shard.shard %w to %sw : tensor<6x8xf32>
  {init}
  %3 = linalg.matmul ins(%0, %1 : tensor<4x6xf32>, tensor<6x8xf32>) outs(%2 : tensor<4x8xf32>) -> tensor<4x8xf32>
  %4 = shard.shard %3 to %so : tensor<4x8xf32>
  return %4 : tensor<4x8xf32>
}}"""
ZERO = "%2 = arith.constant dense<0.0> : tensor<4x8xf32>"
GIVEN = "%sc = shard.sharding @g split_axes = [[], []] : !shard.sharding\n%2 = shard.shard %c to %sc : tensor<4x8xf32>"


@pytest.mark.parametrize(
    ("out", "init", "collective"),
    [
        ("[[], []]", ZERO, "all_reduce"),
        ("[[0], []]", ZERO, "reduce_scatter"),
        ("[[], [0]]", GIVEN, "reduce_scatter"),
        ("[[1], [0]]", ZERO, "reduce_scatter"),
        ("[[], []]", GIVEN, "all_reduce"),
    ],
)
def test_a_loop_that_is_split_leaves_sums_to_be_taken(out, init, collective):
    text = made(PRODUCT.format(out=out, init=init), numbers(4, 6), numbers(6, 8), numbers(4, 8))
    assert text.count(f"shard.{collective} ") == 1
    # What is accumulated into counts on one device only.
    assert ("arith.select" in text) == (init == GIVEN)


@pytest.mark.parametrize(
    ("op", "kind", "dtype"),
    [
        ("arith.addf", "f32", "sum"),
        ("arith.mulf", "f32", "product"),
        ("arith.maximumf", "f32", "max"),
        ("arith.minimumf", "f32", "min"),
        ("arith.addi", "i32", "sum"),
        ("arith.maxsi", "i32", "max"),
        ("arith.minsi", "i32", "min"),
        ("arith.andi", "i32", "bitwise_and"),
        ("arith.ori", "i32", "bitwise_or"),
        ("arith.xori", "i32", "bitwise_xor"),
        ("arith.addi", "i1", "bitwise_xor"),
        ("arith.ori", "i1", "bitwise_or"),
    ],
)
def test_every_reduction_of_a_split_dim(op, kind, dtype):
    text = f"""
shard.grid @g(shape = 2)
func.func @f(%x: tensor<4x6x{kind}>, %c: tensor<4x{kind}>) -> tensor<4x{kind}> {{
  %s = shard.sharding @g split_axes = [[], [0]] : !shard.sharding
  %r = shard.sharding @g split_axes = [[]] : !shard.sharding
  %0 = shard.shard %x to %s : tensor<4x6x{kind}>
  %1 = linalg.reduce {{ {op} }} ins(%0 : tensor<4x6x{kind}>) outs(%c : tensor<4x{kind}>) dimensions = [1]
  %2 = shard.shard %1 to %r : tensor<4x{kind}>
  return %2 : tensor<4x{kind}>
}}"""
    name = {"f32": "float32", "i32": "int32", "i1": "bool"}[kind]
    inputs = [(RNG.integers(1, 5, shape) % (2 if kind == "i1" else 9)).astype(name) for shape in ((4, 6), (4,))]
    reduction = "" if dtype == "sum" else f" reduction = {dtype}"
    assert re.search(rf"shard.all_reduce %\d+ on @g grid_axes = \[0\]{reduction} :", made(text, *inputs))


def test_a_body_that_is_no_reduction_is_run_whole():
    text = """
shard.grid @g(shape = 2)
func.func @f(%x: tensor<4x6xf32>, %c: tensor<4xf32>) -> tensor<4xf32> {
  %s = shard.sharding @g split_axes = [[], [0]] : !shard.sharding
  %0 = shard.shard %x to %s : tensor<4x6xf32>
  %1 = linalg.reduce ins(%0 : tensor<4x6xf32>) outs(%c : tensor<4xf32>) dimensions = [1]
    (%a: f32, %b: f32) {
      %2 = arith.subf %a, %b : f32
      linalg.yield %2 : f32
    }
  return %1 : tensor<4xf32>
}"""
    local = print_module(partition(parse_module(text)))
    assert "shard.all_gather" in local
    assert "shard.all_reduce" not in local


# -- boundaries ------------------------------------------------------------------------------------------


def test_unused_arguments_scalars_and_several_results():
    text = """
shard.grid @g(shape = 2x3)
func.func @f(%x: tensor<6xf32>, %unused: tensor<3x3xf32>, %s: f32, %y: tensor<f32>)
    -> (f32, tensor<6xf32>, tensor<f32>) {
  %a = shard.sharding @g split_axes = [[1]] : !shard.sharding
  %b = shard.sharding @g split_axes = [[0, 1]] : !shard.sharding
  %0 = shard.shard %x to %a : tensor<6xf32>
  %u = shard.shard %unused to %a : tensor<3x3xf32>
  %1 = tensor.splat %s : tensor<6xf32>
  %2 = arith.mulf %0, %1 : tensor<6xf32>
  %3 = shard.shard %2 to %b annotate_for_users : tensor<6xf32>
  %t = linalg.reduce { arith.addf } ins(%3 : tensor<6xf32>) outs(%y : tensor<f32>) dimensions = [0]
  return %s, %3, %t : f32, tensor<6xf32>, tensor<f32>
}"""
    local = made(text, numbers(6), numbers(3, 3), np.float32(3), np.float32(2))
    assert "(%x: tensor<2xf32>, %unused: tensor<1x3xf32>, %s: f32, %y: tensor<f32>)" in local
    assert "-> (f32, tensor<1xf32>, tensor<f32>)" in local


def test_functions_call_each_other_across_their_boundaries():
    text = """
shard.grid @g(shape = 4)
func.func private @twice(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %s = shard.sharding @g split_axes = [[0], []] : !shard.sharding
  %t = shard.sharding @g split_axes = [[], [0]] : !shard.sharding
  %0 = shard.shard %x to %s : tensor<8x8xf32>
  %1 = arith.addf %0, %0 : tensor<8x8xf32>
  %2 = shard.shard %1 to %t : tensor<8x8xf32>
  return %2 : tensor<8x8xf32>
}
func.func @main(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %t = shard.sharding @g split_axes = [[], [0]] : !shard.sharding
  %0 = shard.shard %x to %t : tensor<8x8xf32>
  %1 = func.call @twice(%0) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %2 = func.call @twice(%1) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %2 : tensor<8x8xf32>
}"""
    local = made(text, numbers(8, 8))
    assert "func.func private @twice(%x: tensor<2x8xf32>) -> tensor<8x2xf32>" in local
    assert local.count("shard.all_to_all") == 3


def test_branches_and_loops():
    text = """
shard.grid @g(shape = 2x2)
func.func @f(%x: tensor<4x6xf32>, %c: i1, %n: index) -> (tensor<4x6xf32>, tensor<4x6xf32>) {
  %s = shard.sharding @g split_axes = [[0], [1]] : !shard.sharding
  %t = shard.sharding @g split_axes = [[1], []] : !shard.sharding
  %0 = shard.shard %x to %s : tensor<4x6xf32>
  %1 = scf.if %c -> (tensor<4x6xf32>) {
    %2 = arith.addf %0, %0 : tensor<4x6xf32>
    scf.yield %2 : tensor<4x6xf32>
  } else {
    %3 = shard.shard %0 to %t annotate_for_users : tensor<4x6xf32>
    %4 = arith.mulf %3, %3 : tensor<4x6xf32>
    scf.yield %4 : tensor<4x6xf32>
  }
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %5 = scf.for %i = %zero to %n step %one iter_args(%state = %1) -> (tensor<4x6xf32>) {
    %6 = shard.shard %state to %t annotate_for_users : tensor<4x6xf32>
    %7 = arith.addf %6, %x : tensor<4x6xf32>
    scf.yield %7 : tensor<4x6xf32>
  }
  return %1, %5 : tensor<4x6xf32>, tensor<4x6xf32>
}"""
    for condition in (True, False):
        made(text, numbers(4, 6), np.bool_(condition), np.int64(3))


def test_a_tensor_goes_between_grids():
    text = """
shard.grid @a(shape = 2x3)
shard.grid @b(shape = 6)
func.func @f(%x: tensor<7x6xf32>) -> tensor<7x6xf32> {
  %s = shard.sharding @a split_axes = [[0], [1]] : !shard.sharding
  %t = shard.sharding @b split_axes = [[], [0]] : !shard.sharding
  %0 = shard.shard %x to %s : tensor<7x6xf32>
  %1 = shard.shard %0 to %t annotate_for_users : tensor<7x6xf32>
  return %1 : tensor<7x6xf32>
}"""
    assert "shard.send" in made(text, numbers(7, 6))
    with pytest.raises(ProgramError, match=r"from the grid @a of 6 devices to the grid @b of 4;"):
        partition(parse_module(text.replace("@b(shape = 6)", "@b(shape = 4)")))


# -- shards that differ ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "src", "dst"),
    [
        ((8, 9), "[[0], []] halo_sizes = [1, 2]", "[[0], []]"),
        ((8, 9), "[[0], []]", "[[0], []] halo_sizes = [1, 2]"),
        ((7, 9), "[[0], [1]]", "[[0], [1]] halo_sizes = [2, 1, 0, 1]"),
        ((7, 9), "[[0], [1]] halo_sizes = [1, 1, 1, 1]", "[[0], [1]] halo_sizes = [2, 1, 0, 1]"),
        ((7, 9), "[[0], [1]] halo_sizes = [1, 1, 1, 1]", "[[1], [0]] halo_sizes = [1, 0, 1, 2]"),
        ((8, 9), "[[0], []] sharded_dims_offsets = [0, 3, 8]", "[[0], []]"),
        ((8, 9), "[[0], []] sharded_dims_offsets = [0, 3, 8]", "[[], [0]] sharded_dims_offsets = [0, 0, 9]"),
        ((8, 9), "[[], [1]] sharded_dims_offsets = [0, 1, 4, 9]", "[[0, 1], []]"),
        ((8, 9), "[[0], [1]] sharded_dims_offsets = [0, 1, 8, 0, 4, 5, 9]", "[[], []]"),
        ((8, 9), "[[], []]", "[[1], [0]] sharded_dims_offsets = [0, 1, 1, 8, 0, 9, 9]"),
        ((8, 9), "[[0], []] halo_sizes = [1, 1]", "[[], [1]] sharded_dims_offsets = [0, 2, 2, 9]"),
        ((1, 1), "[[0, 1], []]", "[[], [1, 0]]"),
    ],
)
def test_halos_offsets_and_uneven_shards(shape, src, dst):
    kind = f"tensor<{shape[0]}x{shape[1]}xf32>"
    text = f"""
shard.grid @g(shape = 2x3)
func.func @f(%x: {kind}) -> ({kind}, {kind}) {{
  %s = shard.sharding @g split_axes = {src} : !shard.sharding
  %t = shard.sharding @g split_axes = {dst} : !shard.sharding
  %0 = shard.shard %x to %s : {kind}
  %1 = arith.addf %0, %0 : {kind}
  %2 = shard.shard %1 to %s : {kind}
  %3 = shard.shard %2 to %t annotate_for_users : {kind}
  %4 = arith.mulf %3, %3 : {kind}
  %5 = shard.shard %4 to %t : {kind}
  return %5, %2 : {kind}, {kind}
}}"""
    local = made(text, numbers(*shape))
    if src == "[[0], []]":
        assert "shard.update_halo" in local


# -- what cannot be --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            """func.func @f(%x: tensor<?xf32>) -> tensor<?xf32> {
  %s = shard.sharding @g split_axes = [[0]] : !shard.sharding
  %0 = shard.shard %x to %s : tensor<?xf32>
  return %0 : tensor<?xf32>
}""",
            r"tensor<\?xf32> is to be spread as \[axis0\], but not all of its sizes are known",
        ),
        (
            """func.func @f(%x: tensor<4xf32>, %n: i64) -> tensor<4xf32> {
  %s = shard.sharding @g split_axes = [[0]] halo_sizes = [%n, 1] : !shard.sharding
  %0 = shard.shard %x to %s : tensor<4xf32>
  return %0 : tensor<4xf32>
}""",
            "has halos or offsets that are values.*\n.*use constants",
        ),
        (
            """func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %s = shard.sharding @g split_axes = [[0]] : !shard.sharding
  %0 = shard.shard %x to %s : tensor<4xf32>
  %1 = shard.all_reduce %0 on @g grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
  return %1 : tensor<4xf32>
}""",
            "has shard.shard, which is for whole tensors, and shard.all_reduce .* which is for one device",
        ),
        (
            """func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %s = shard.sharding @h split_axes = [[0]] : !shard.sharding
  %0 = shard.shard %x to %s : tensor<4xf32>
  return %0 : tensor<4xf32>
}
shard.grid @h(shape = ?)""",
            "the grid @h has open sizes",
        ),
    ],
    ids=["open sizes", "values", "both views", "open grid"],
)
def test_what_cannot_be_partitioned(text, message):
    module = parse_module("shard.grid @g(shape = 2)\n" + text)
    with pytest.raises(ProgramError, match=message):
        partition(module)


def test_open_grids_are_given_a_shape():
    module = parse_module("""
shard.grid @g(shape = ?x2)
func.func @f(%x: tensor<6xf32>) -> tensor<6xf32> {
  %s = shard.sharding @g split_axes = [[0]] : !shard.sharding
  %0 = shard.shard %x to %s : tensor<6xf32>
  return %0 : tensor<6xf32>
}""")
    assert "tensor<2xf32>" in print_module(partition(module, grids={"g": (3, 2)}))


def test_functions_that_are_partitioned_stay():
    text = """
shard.grid @g(shape = 2)
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = shard.all_reduce %x on @g grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
  return %0 : tensor<4xf32>
}"""
    module = parse_module(text)
    assert print_module(partition(module)) == print_module(module)
    assert print_module(propagate(module)) == print_module(module)
    (a, _) = execute_on_devices(partition(module), [numbers(4)] * 2)
    assert a.shape == (4,)


SCRIPT = """
from shardwise.ir import parse_module, print_module
from shardwise.ir.passes import partition, propagate, simplify
from tests.ir.passes.programs import program
for seed in range(6):
    print(print_module(simplify(partition(propagate(parse_module(program(seed)[0]))))))
"""


def test_the_same_under_any_hash_seed():
    root = Path(__file__).parents[3]
    printed = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": f"{root}:{root / 'src'}"},
            cwd=root,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1
    assert "shard.grid" in printed.pop()


def test_offsets_may_leave_only_the_middle_of_an_axis_something_to_do():
    text = """
    shard.grid @g(shape = 2x3)
    func.func @f(%x: tensor<3x3x2xi32>) -> tensor<2xi32> {
      %s = shard.sharding @g split_axes = [[], [1, 0], []] : !shard.sharding
      %0 = shard.shard %x to %s annotate_for_users : tensor<3x3x2xi32>
      %1 = arith.constant dense<[0, 1]> : tensor<2xi32>
      %2 = linalg.reduce { arith.addi } ins(%0 : tensor<3x3x2xi32>) outs(%1 : tensor<2xi32>) dimensions = [0, 1]
      %t = shard.sharding @g split_axes = [[1]] sharded_dims_offsets = [0, 0, 2, 2] : !shard.sharding
      %3 = shard.shard %2 to %t : tensor<2xi32>
      return %3 : tensor<2xi32>
    }"""
    assert check_partition(parse_module(text), np.arange(18, dtype="int32").reshape(3, 3, 2)).agree
