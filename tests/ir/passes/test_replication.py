"""Replication: where values are proved equal they are equal when the module runs, and the plain cases are proved."""

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import ReturnOp
from xdsl.ir import SSAValue

from shardwise.ir import execute_on_devices, parse_module
from shardwise.ir.module.groups import group_of
from shardwise.ir.passes.layouts import grids_of
from shardwise.ir.passes.replication import Replication

T = "tensor<6xi32>"
CASES = {
    "argument": ("%r = arith.addi %x, %x : tensor<6xi32>", T, []),
    "constant": ("%r = arith.constant dense<3> : tensor<6xi32>", T, None),
    "reduced": (f"%r = shard.all_reduce %x on @g grid_axes = [1] : {T} -> {T}", T, [1]),
    "reduced over both": (f"%r = shard.all_reduce %x on @g grid_axes = [0, 1] : {T} -> {T}", T, [0, 1]),
    "gathered": (
        f"%r = shard.all_gather %x on @g grid_axes = [0] gather_axis = 0 : {T} -> tensor<12xi32>",
        "tensor<12xi32>",
        [0],
    ),
    "sliced again": (
        f"%0 = shard.all_reduce %x on @g grid_axes = [0, 1] : {T} -> {T}\n"
        f"%r = shard.all_slice %0 on @g grid_axes = [0] slice_axis = 0 : {T} -> tensor<3xi32>",
        "tensor<3xi32>",
        [1],
    ),
    "sum with an argument": (
        f"%0 = shard.all_reduce %x on @g grid_axes = [0, 1] : {T} -> {T}\n%r = arith.addi %0, %x : {T}",
        T,
        [],
    ),
    "sum with a constant": (
        f"%c = arith.constant dense<3> : {T}\n%0 = shard.all_reduce %x on @g grid_axes = [1] : {T} -> {T}\n"
        f"%r = arith.addi %0, %c : {T}",
        T,
        [1],
    ),
    "scattered": (
        f"%0 = shard.all_reduce %x on @g grid_axes = [0, 1] : {T} -> {T}\n"
        f"%r = shard.reduce_scatter %0 on @g grid_axes = [0] scatter_axis = 0 : {T} -> tensor<3xi32>",
        "tensor<3xi32>",
        [1],
    ),
    "position": (
        "%i = shard.process_multi_index on @g axes = [1] : index\n%n = arith.index_cast %i : index to i32\n"
        f"%r = tensor.splat %n : {T}",
        T,
        [0],
    ),
    "linear position": (
        "%i = shard.process_linear_index on @g : index\n%n = arith.index_cast %i : index to i32\n"
        f"%r = tensor.splat %n : {T}",
        T,
        [],
    ),
    "size of the grid": (
        "%i = shard.grid_shape @g axes = [1] : index\n%n = arith.index_cast %i : index to i32\n"
        f"%r = tensor.splat %n : {T}",
        T,
        None,
    ),
    "a body with something from outside": (
        f"%i = shard.process_multi_index on @g axes = [1] : index\n%n = arith.index_cast %i : index to i32\n"
        f"%e = tensor.empty() : {T}\n"
        '%r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} '
        f"outs(%e : {T}) {{\n^bb0(%o: i32):\nlinalg.yield %n : i32\n}} -> {T}",
        T,
        [0],
    ),
    "chosen by a condition": (
        f"%c = arith.constant true\n%0 = arith.constant dense<3> : {T}\n"
        f"%r = scf.if %c -> ({T}) {{\nscf.yield %0 : {T}\n}} else {{\nscf.yield %x : {T}\n}}",
        T,
        [],
    ),
}


def along(body: str, kind: str) -> tuple[ModuleOp, Replication, SSAValue]:
    text = f"shard.grid @g(shape = 2x3)\nfunc.func @f(%x: {T}) -> {kind} {{\n{body}\nreturn %r : {kind}\n}}"
    module = parse_module(text)
    returned = next(op for op in module.walk() if isinstance(op, ReturnOp))
    found = Replication(grids_of(module))
    return module, found, returned.operands[0]


@pytest.mark.parametrize("name", CASES)
def test_what_is_proved_is_true_and_is_what_is_wanted(name: str) -> None:
    body, kind, axes = CASES[name]
    module, found, value = along(body, kind)
    want = None if axes is None else frozenset(("g", axis) for axis in axes)
    assert found.along(value) == want
    arrays = list(np.random.default_rng(0).integers(-9, 10, (6, 6)).astype("int32"))
    made = execute_on_devices(module, arrays)
    for axis in range(2):
        proved = found.is_along(value, "g", (axis,))
        assert proved == (axes is None or axis in axes)
        groups = [group_of((2, 3), (axis,), device).devices for device in range(6)]
        equal = all(np.array_equal(made[d], made[group[0]]) for group in groups for d in group)
        assert equal or not proved


def test_an_axis_of_one_device_makes_no_difference() -> None:
    module = parse_module(f"shard.grid @g(shape = 1x3)\nfunc.func @f(%x: {T}) -> {T} {{\nreturn %x : {T}\n}}")
    returned = next(op for op in module.walk() if isinstance(op, ReturnOp))
    found = Replication(grids_of(module))
    assert found.is_along(returned.operands[0], "g", (0,))
    assert not found.is_along(returned.operands[0], "g", (1,))
    assert not found.is_along(returned.operands[0], "g", (0, 1))
    assert found.is_along(returned.operands[0], "g", ())


def test_another_grid_says_nothing_about_this_one() -> None:
    text = (
        f"shard.grid @g(shape = 6)\nshard.grid @h(shape = 2x3)\nfunc.func @f(%x: {T}) -> {T} {{\n"
        f"%0 = shard.all_reduce %x on @h grid_axes = [0, 1] : {T} -> {T}\n"
        f"%r = shard.all_to_all %0 on @g grid_axes = [0] split_axis = 0 concat_axis = 0 : {T} -> {T}\n"
        f"return %r : {T}\n}}"
    )
    module = parse_module(text)
    returned = next(op for op in module.walk() if isinstance(op, ReturnOp))
    found = Replication(grids_of(module))
    assert not found.is_along(returned.operands[0], "g", (0,))
    assert not found.is_along(returned.operands[0], "h", (0,))
