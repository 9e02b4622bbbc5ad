"""LLVM 19's vocabulary: what it can say is said, what it cannot is refused by name."""

import subprocess

import pytest

from shardwise.errors import ConversionError
from shardwise.ir import parse_module, print_module

HEADER = """shard.grid @g(shape = 2x4)
%t = "test.op"() : () -> tensor<8x12xf32>
%i = "test.op"() : () -> index
"""
T = "tensor<8x12xf32>"

REFUSED = [
    (f"%s = shard.get_sharding %t : {T} -> !shard.sharding", "shard.get_sharding: LLVM 19 has no shardings as values."),
    (
        "%r, %u = shard.neighbors_linear_indices on @g[%i, %i] split_axes = [0] : index, index",
        "shard.neighbors_linear_indices: LLVM 19 has no such op.",
    ),
    (
        f"%r = shard.update_halo %t on @g split_axes = [[0]] halo_sizes = [1, 1] : {T}",
        "shard.update_halo: LLVM 19 has no such op.",
    ),
    (
        f"%s = shard.sharding @g split_axes = [[0]] halo_sizes = [1, 1]\n%r = shard.shard %t to %s : {T}",
        "shard.sharding: LLVM 19 has no halos and no offsets of shards.",
    ),
    (
        f"%s = shard.sharding @g split_axes = [[0]] sharded_dims_offsets = [0, 4, 8]\n%r = shard.shard %t to %s : {T}",
        "shard.sharding: LLVM 19 has no halos and no offsets of shards.",
    ),
    (
        f'%s = "test.op"() : () -> !shard.sharding\n%r = shard.shard %t to %s : {T}',
        "shard.shard: LLVM 19 writes the sharding as an attribute, and this one is not made by shard.sharding.",
    ),
    ("%s = shard.sharding @g split_axes = [[0]]", "shard.sharding: LLVM 19 has no shardings as values."),
    (
        f"%s = shard.sharding @g split_axes = [[0]] {{partial_axes = 3}}\n%r = shard.shard %t to %s : {T}",
        "shard.sharding: partial_axes is `array<i16: ...>` and partial_type is `#shard.partial<...>`.",
    ),
    (
        '"test.op"() ({\n^bb0(%a: !shard.sharding):\n  "test.op"() : () -> ()\n}) : () -> ()',
        "test.op: LLVM 19 has no shardings as values.",
    ),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_what_llvm_19_cannot_say_is_refused(text: str, message: str):
    module = parse_module(HEADER + text, "m.mlir", allow_unregistered=True)
    before = print_module(module)
    with pytest.raises(ConversionError) as caught:
        print_module(module, "mesh19")
    assert message.partition(": ")[2] in str(caught.value)
    assert str(caught.value).startswith("m.mlir:")
    assert str(caught.value).endswith("print the module in the `shard` dialect instead.")
    # The copy that is printed is a copy.
    assert print_module(module) == before


def test_a_sharding_that_several_ops_name_is_written_at_each():
    text = f"{HEADER}%s = shard.sharding @g split_axes = [[0], [1]]\n"
    text += f"%a = shard.shard %t to %s : {T}\n%b = shard.shard %a to %s annotate_for_users : {T}"
    printed = print_module(parse_module(text, allow_unregistered=True), "mesh19")
    assert printed.count("to <@g, [[0], [1]]>") == 2
    assert "shard.sharding" not in printed


def test_a_module_that_does_not_verify_is_printed_in_the_generic_form_or_refused():
    text = f'{HEADER}%r = "shard.shard"(%t) : ({T}) -> {T}\n%u = "shard.all_gather"(%t) <{{grid = @g}}> : ({T}) -> {T}'
    module = parse_module(text, allow_unregistered=True)
    printed = print_module(module)
    assert '"shard.all_gather"(%t)' in printed
    assert print_module(parse_module(printed, allow_unregistered=True)) == printed
    with pytest.raises(ConversionError, match="the module lacks what LLVM 19's text needs"):
        print_module(module, "mesh19")


def test_attributes_of_the_dialect_are_printed_as_those_of_mesh(mlir_opt: str):
    text = "shard.grid @g(shape = 2) {a.b = #shard.partial<max>}"
    printed = print_module(parse_module(text), "mesh19")
    assert "#mesh.partial<max>" in printed
    done = subprocess.run([mlir_opt], input=printed, capture_output=True, text=True, timeout=60, check=True)
    assert print_module(parse_module(done.stdout)) == print_module(parse_module(text))


def test_an_attribute_that_mesh_lacks_is_refused():
    module = parse_module("shard.grid @g(shape = 2) {a.b = #shard<axisarray[[0]]>}")
    with pytest.raises(ConversionError, match="LLVM 19 has no attribute `axisarray`"):
        print_module(module, "mesh19")


def test_partial_axes_come_through_both_ways():
    line = "%0 = mesh.shard %t to <@g, [[0]], partial = max[1]> annotate_for_users : tensor<8x12xf32>"
    assert line in print_module(parse_module(HEADER + line, allow_unregistered=True), "mesh19")
