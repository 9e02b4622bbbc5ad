"""Splats: read, printed, propagated, partitioned and run without a copy of each element."""

import numpy as np
import pytest

from shardwise.errors import ProgramError
from shardwise.ir import execute, execute_partitioned, parse_module, partition, print_module, propagate, simplify
from shardwise.ir.constants import MOST_REPEATED, number_of, splat


def doubled(sizes: str, literal: str, kind: str = "f32") -> str:
    """A function that adds a constant to its argument, which is to be split."""
    of = f"tensor<{sizes}x{kind}>"
    return f"""shard.grid @g(shape = 4)
func.func @f(%x: {of}) -> {of} {{
  %s = shard.sharding @g split_axes = [[0]] : !shard.sharding
  %c = arith.constant dense<{literal}> : {of}
  %y = arith.addf %c, %x : {of}
  %z = shard.shard %y to %s : {of}
  return %z : {of}
}}"""


@pytest.mark.parametrize("size", [1, 4, MOST_REPEATED, MOST_REPEATED + 1, 1000])
@pytest.mark.parametrize("literal", ["1.5", '"0x0000C03F"'])
def test_large_and_small_ones_compute_the_same(size, literal):
    module = parse_module(doubled(str(size), literal))
    values = np.arange(size, dtype="float32")
    assert np.array_equal(execute(module, values), values + 1.5)
    assert np.array_equal(execute_partitioned(module, values), values + 1.5)


def test_a_constant_larger_than_any_memory_is_partitioned():
    local = simplify(partition(propagate(parse_module(doubled("100000x100000", "0.5")))))
    assert "arith.constant dense<5.000000e-01> : tensor<25000x100000xf32>" in print_module(local)


def test_what_no_memory_holds_says_so_when_it_is_run():
    huge = "tensor<9223372036854775807x9223372036854775807xf32>"
    text = f"func.func @f() -> {huge} {{\n  %c = arith.constant dense<1.0> : {huge}\n  return %c : {huge}\n}}"
    with pytest.raises(ProgramError, match=r"arith.constant \(%c\) at line 2 has \d+ elements, which no memory holds"):
        execute(parse_module(text))


def test_bytes_that_do_not_fit_say_so():
    with pytest.raises(ValueError, match="8 bytes do not hold 3 elements of 4 bytes"):
        parse_module('%0 = arith.constant dense<"0x0000803F0000803F"> : tensor<3xf32>')


def test_constants_without_elements_have_no_number():
    module = parse_module("%0 = arith.constant dense<> : tensor<0xf32>")
    (constant,) = (op.properties["value"] for op in module.walk() if op.name == "arith.constant")
    assert number_of(constant) is None
    assert number_of(splat(constant.type, 1.0)) is None  # type: ignore[attr-defined]
