"""Folds of constants: numbers that are known are written down, and others are left as they are."""

import numpy as np
import pytest

from shardwise.ir import execute_on_devices, parse_module, print_module, verify
from shardwise.ir.passes import simplify

T = "tensor<6xi32>"


def simplified(body: str, grid: str = "2x3", out: str = "index", value: str = "%r") -> str:
    """The text of a function after simplification; before and after give the same on every device."""
    text = (
        f"shard.grid @g(shape = {grid})\nfunc.func @f(%x: {T}, %n: index) -> {out} {{\n{body}\n"
        f"return {value} : {out}\n}}"
    )
    module = parse_module(text)
    verify(module)
    made = simplify(module)
    verify(made)
    if "?" not in grid and "send" not in body:
        arrays = list(np.random.default_rng(0).integers(-9, 10, (6, 6)).astype("int32"))
        for a, b in zip(*(execute_on_devices(m, arrays, [np.int64(1)] * 6) for m in (module, made)), strict=True):
            assert repr(a) == repr(b)
    return print_module(made)


def test_the_size_of_a_grid_is_a_constant() -> None:
    assert "arith.constant 3 : index" in simplified("%r = shard.grid_shape @g axes = [1] : index")
    found = simplified("%a, %b = shard.grid_shape @g : index, index\n%r = arith.muli %a, %b : index")
    assert "grid_shape" not in found
    assert "arith.constant 2 : index" in found
    assert "arith.constant 3 : index" in found


def test_an_open_size_is_none() -> None:
    assert "grid_shape" in simplified("%r = shard.grid_shape @g axes = [1] : index", grid="2x?")
    assert "arith.constant 2" in simplified("%r = shard.grid_shape @g axes = [0] : index", grid="2x?")


def test_along_one_device_everybody_is_at_zero() -> None:
    body = "%a, %b = shard.process_multi_index on @g : index, index\n%r = arith.addi %a, %b : index"
    found = simplified(body, grid="1x6")
    assert "arith.constant 0 : index" in found
    assert "process_multi_index" in found
    assert "arith.constant" not in simplified(body)


@pytest.mark.parametrize(
    "line",
    [
        f"%r = shard.broadcast %x on @g grid_axes = [1] root = [%c] : ({T}, index) -> {T}",
        f"%r = shard.scatter %x on @g grid_axes = [1] scatter_axis = 0 root = [%c] : ({T}, index) -> tensor<2xi32>",
        f"%r = shard.gather %x on @g grid_axes = [1] gather_axis = 0 root = [%c] : ({T}, index) -> tensor<18xi32>",
        f"%r = shard.reduce %x on @g grid_axes = [1] root = [%c] : ({T}, index) -> {T}",
    ],
    ids=["broadcast", "scatter", "gather", "reduce"],
)
def test_a_root_that_is_a_constant_is_written_down(line: str) -> None:
    out = line.rsplit("-> ", 1)[1]
    found = simplified(f"%c = arith.constant 2 : index\n{line}", out=out)
    assert "root = [2]" in found
    kept = simplified(line.replace("%c", "%n"), out=out)
    assert "root = [%n]" in kept


def test_of_several_numbers_those_that_are_known_are_written_down() -> None:
    line = f"%r = shard.broadcast %x on @g grid_axes = [0, 1] root = [%n, %c] : ({T}, index, index) -> {T}"
    assert "root = [%n, 2]" in simplified(f"%c = arith.constant 2 : index\n{line}", out=T)
    turned = line.replace("[%n, %c]", "[%c, %n]")
    assert "root = [1, %n]" in simplified(f"%c = arith.constant 1 : index\n{turned}", out=T)
    static = line.replace("[%n, %c]", "[1, %c]").replace(", index, index", ", index")
    assert "root = [1, 2]" in simplified(f"%c = arith.constant 2 : index\n{static}", out=T)


def sharding(rest: str, constants: str = "") -> str:
    body = (
        f"{constants}\n%s = shard.sharding @g split_axes = [[1]]{rest} : !shard.sharding\n"
        f"%a = shard.shard %x to %s : {T}\n%r = shard.shard %a to %s annotate_for_users : {T}"
    )
    text = f"shard.grid @g(shape = 2x3)\nfunc.func @f(%x: {T}, %n: i64) -> {T} {{\n{body}\nreturn %r : {T}\n}}"
    module = parse_module(text)
    verify(module)
    made = simplify(module)
    verify(made)
    return next(line for line in print_module(made).splitlines() if "shard.sharding @" in line).strip()


PLAIN = "split_axes = [[1]] : !shard.sharding"


def test_halos_of_no_width_and_offsets_of_equal_shards_are_left_out() -> None:
    assert sharding("").endswith(PLAIN)
    assert sharding(" halo_sizes = [0, 0]").endswith(PLAIN)
    assert "halo_sizes = [0, 1]" in sharding(" halo_sizes = [0, 1]")
    assert sharding(" sharded_dims_offsets = [0, 2, 4, 6]").endswith(PLAIN)
    assert "sharded_dims_offsets = [0, 1, 4, 6]" in sharding(" sharded_dims_offsets = [0, 1, 4, 6]")


def test_constants_in_shardings_are_written_down() -> None:
    one, zero = "%c = arith.constant 1 : i64", "%c = arith.constant 0 : i64"
    assert "halo_sizes = [1, 0]" in sharding(" halo_sizes = [%c, 0]", one)
    assert sharding(" halo_sizes = [%c, 0]", zero).endswith(PLAIN)
    assert "sharded_dims_offsets = [0, 1, 4, 6]" in sharding(" sharded_dims_offsets = [0, %c, 4, 6]", one)
    assert "halo_sizes = [%n, 1]" in sharding(" halo_sizes = [%n, %c]", one)
