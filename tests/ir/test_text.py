"""Modules as text: round trips, both vocabularies, and LLVM's own tool as the oracle."""

import subprocess
from io import StringIO

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import FileLineColLoc
from xdsl.printer import Printer

from shardwise.errors import ArgumentError, ParseError
from shardwise.ir import parse_module, print_module, shard, verify
from shardwise.ir.place import place_of
from tests.ir.cases import NEW, OLD, Case, modules

SEPARATOR = "// -----\n"
SPLIT = "--split-input-file"


def mlir(tool: str, text: str, *options: str) -> str:
    """What mlir-opt prints of a text, which it must accept."""
    done = subprocess.run([tool, *options], input=text, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{done.stderr}\n{text}"
    return done.stdout


@given(modules())
def test_text_round_trips_for_every_op_in_every_form(case: Case):
    verify(case.module)
    text = print_module(case.module)
    again = parse_module(text)
    verify(again)
    assert print_module(again) == text
    assert again.is_structurally_equivalent(parse_module(text))


@given(modules())
def test_the_generic_form_is_read_as_the_same_module(case: Case):
    stream = StringIO()
    Printer(stream, print_generic_format=True).print_op(case.module)
    again = parse_module(stream.getvalue())
    verify(again)
    assert again.is_structurally_equivalent(parse_module(print_module(case.module)))


@pytest.mark.parametrize("make", [*OLD, *NEW], ids=lambda make: make.__name__)
@settings(max_examples=12)
@given(data=st.data())
def test_each_op_alone_round_trips(make, data):
    module = data.draw(modules([make])).module
    verify(module)
    text = print_module(module)
    assert print_module(parse_module(text)) == text


# Several modules for each start of the tool, and no shrinking, which would start it thousands of times.
@settings(max_examples=8, phases=[Phase.generate])
@given(st.lists(modules(OLD, 12), min_size=6, max_size=6))
def test_mlir_opt_accepts_what_is_printed_for_llvm_19_and_its_text_is_read_as_the_same_module(mlir_opt, cases):
    printed = mlir(mlir_opt, SEPARATOR.join(print_module(case.module, "mesh19") for case in cases), SPLIT)
    generic = mlir(mlir_opt, printed, SPLIT, "--mlir-print-op-generic")
    for text in (printed, generic):
        read = [parse_module(part) for part in text.split(SEPARATOR)]
        for module in read:
            verify(module)
        # Names of values differ, so the same tool prints both.
        assert mlir(mlir_opt, SEPARATOR.join(print_module(module, "mesh19") for module in read), SPLIT) == printed


OLD_AND_NEW = [
    ("mesh.mesh @g(shape = 2x?)", "shard.grid @g(shape = 2x?)"),
    ('shard.grid "private" @g(shape = 2)', 'shard.grid "private" @g(shape = 2)'),
    ('mesh.mesh @g(shape = 2) {sym_visibility = "private"}', 'shard.grid "private" @g(shape = 2)'),
    ("%0 = mesh.mesh_shape @g axes = [0] : index", "%0 = shard.grid_shape @g axes = [0] : index"),
    (
        "%0 = mesh.all_reduce %t on @g mesh_axes = [0] reduction = <max> : tensor<4xf32> -> tensor<4xf32>",
        "%0 = shard.all_reduce %t on @g grid_axes = [0] reduction = max : tensor<4xf32> -> tensor<4xf32>",
    ),
    (
        "%0 = shard.all_reduce %t on @g reduction = <sum> : tensor<4xf32> -> tensor<4xf32>",
        "%0 = shard.all_reduce %t on @g : tensor<4xf32> -> tensor<4xf32>",
    ),
    (
        "%0 = shard.reduce_scatter %t on @g grid_axes = [0] scatter_dim = 0 : tensor<4xf32> -> tensor<2xf32>",
        "%0 = shard.reduce_scatter %t on @g grid_axes = [0] scatter_axis = 0 : tensor<4xf32> -> tensor<2xf32>",
    ),
    (
        "%0 = shard.scatter %t on @g grid_axes = [0] scatter_dim = 0 root = [1] : (tensor<4xf32>) -> tensor<2xf32>",
        "%0 = shard.scatter %t on @g grid_axes = [0] scatter_axis = 0 root = [1] : (tensor<4xf32>) -> tensor<2xf32>",
    ),
    (
        "%0 = mesh.shard %t to <@g, [[0]], partial = max[1]> annotate_for_users : tensor<4xf32>",
        "%0 = shard.sharding @g split_axes = [[0]] {partial_axes = array<i16: 1>, partial_type = #shard.partial<max>}"
        " : !shard.sharding\n%1 = shard.shard %t to %0 annotate_for_users : tensor<4xf32>",
    ),
    (
        '%0 = "mesh.shard"(%t) <{shard = #mesh.shard<@g, [[0]]>}> : (tensor<4xf32>) -> tensor<4xf32>',
        "%0 = shard.sharding @g split_axes = [[0]] : !shard.sharding\n%1 = shard.shard %t to %0 : tensor<4xf32>",
    ),
    (
        "%s = mesh.sharding @g split_axes = [[0]] : !mesh.sharding",
        "%s = shard.sharding @g split_axes = [[0]] : !shard.sharding",
    ),
    (
        "%s = mesh.sharding @g split_axes = [[0]] partial = max [1] : !mesh.sharding",
        "%s = shard.sharding @g split_axes = [[0]] {partial_type = #shard.partial<max>, partial_axes = array<i16: 1>}"
        " : !shard.sharding",
    ),
    ("%s = shard.sharding @g split_axes = [[]]", "%s = shard.sharding @g split_axes = [[]] : !shard.sharding"),
    (
        "%i, %j = shard.neighbors_linear_indices on @g[%k, %k] split_axes = [1] : index",
        "%i, %j = shard.neighbors_linear_indices on @g[%k, %k] split_axes = [1] : index, index",
    ),
]


@pytest.mark.parametrize(("old", "new"), OLD_AND_NEW)
def test_older_spellings_are_read_and_newer_ones_printed(old: str, new: str):
    header = '%t = "test.op"() : () -> tensor<4xf32>\n%k = "test.op"() : () -> index\n'
    read = parse_module(header + old, allow_unregistered=True)
    assert print_module(read) == print_module(parse_module(header + new, allow_unregistered=True))
    lines = [line.strip() for line in print_module(read).splitlines()[3:-1]]
    assert lines == new.split("\n") or old.startswith(("mesh.shard", "%0 = mesh.shard", '%0 = "mesh'))


def test_an_op_knows_the_line_and_column_where_it_is_written():
    module = parse_module("shard.grid @g(shape = 2)\n\n  %i = shard.process_linear_index on @g : index", "m.mlir")
    assert [str(place_of(op)) for op in module.body.block.ops] == ["m.mlir:1:1", "m.mlir:3:3"]


def test_a_location_in_the_text_is_kept():
    module = parse_module('%i = shard.process_linear_index on @g : index loc("model.py":7:3)', "m.mlir")
    (op,) = module.body.block.ops
    assert isinstance(op.location, FileLineColLoc)
    assert str(place_of(op)) == "model.py:7:3"


@pytest.mark.parametrize(
    ("location", "place"),
    [
        ('loc(callsite("a.py":1:2 at "b.py":3:4))', "a.py:1:2"),
        ('loc("name"("a.py":1:2))', "a.py:1:2"),
        ('loc(fused["a.py":1:2, "b.py":3:4])', "a.py:1:2"),
        ("loc(unknown)", "m.mlir:1:1"),
    ],
)
def test_nested_locations_have_a_place(location: str, place: str):
    module = parse_module(f"%i = shard.process_linear_index on @g : index {location}", "m.mlir")
    assert str(place_of(next(iter(module.body.block.ops)))) == place


PARSE_ERRORS = [
    ("shard.grid @g(shape = 2", (1, 24), "expected"),
    ("shard.nothing", (1, 14), "operation shard.nothing is not registered."),
    ("%0 = shard.shard %t to 7 : tensor<4xf32>", (1, 24), "expected a sharding: `%s`, or `<@grid, [[0]]>`."),
    ("%0 = shard.process_linear_index @g : index", (1, 33), "expected 'on'."),
    ("%0 = shard.all_gather %t on @g : tensor<4xf32> -> tensor<4xf32>", (1, 32), "expected `gather_axis =`."),
    (
        "%0 = shard.all_gather %t on @g grid_axes = [40000] gather_axis = 0 : tensor<4xf32> -> tensor<4xf32>",
        (1, 45),
        "the int does not fit 16 bits.",
    ),
    (
        "%0 = shard.shift %t on @g shift_axis = 0 offset = 9223372036854775808 : tensor<4xf32> -> tensor<4xf32>",
        (1, 51),
        "the int does not fit 64 bits.",
    ),
    ("shard.grid @g(shape = 9223372036854775808)", (1, 23), "the int does not fit 64 bits."),
    (
        "%0 = shard.send %t on @g destination = [] : () -> tensor<4xf32>",
        (1, 45),
        "expected 1 types of values.",
    ),
    (
        "%0 = shard.send %t on @g destination = [] : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)",
        (1, 45),
        "expected one result type, got 2.",
    ),
    ("%0 = shard.process_linear_index on @g : index, index", (1, 41), "expected 1 result types, got 2."),
    ("%0 = shard.process_linear_index on @g {grid = @h} : index", (1, 51), "`grid` is given twice."),
    ("%0 = shard.get_sharding %t : tensor<4xf32> -> !shard.sharding", (1, 62), "values used but not defined"),
    ('%t = "test.op"() : () -> index', (1, 15), "operation test.op is not registered."),
    ("%0 = shard.all_reduce %t on @g reduction = most : tensor<4xf32> -> tensor<4xf32>", (1, 44), "most"),
    ('"builtin.unregistered"() : () -> ()', (1, 23), "operation builtin.unregistered is not registered."),
    ("", (1, 1), "the text is empty."),
]


@pytest.mark.parametrize(("text", "place", "message"), PARSE_ERRORS)
def test_a_fault_in_the_text_is_an_error_with_line_column_and_a_mark(text, place, message):
    with pytest.raises(ParseError) as caught:
        parse_module(f"\n{text}" if text else "", "m.mlir")
    line, column = place
    assert (caught.value.line, caught.value.column) == (line + bool(text), column), str(caught.value)
    assert str(caught.value).startswith(f"m.mlir:{line + bool(text)}:{column}: ")
    assert message in str(caught.value)
    assert str(caught.value).splitlines()[-1].rstrip() == " " * (column + 1) + "^"


def test_an_unknown_vocabulary_is_refused():
    with pytest.raises(ArgumentError, match=r"unknown dialect 'mesh'\.\n  dialects: shard, mesh19"):
        print_module(parse_module("shard.grid @g(shape = 2)"), "mesh")  # type: ignore[arg-type]


def test_bytes_are_read_as_utf_8():
    module = parse_module('shard.grid @"größe"(shape = 2)'.encode())
    (grid,) = module.body.block.ops
    assert isinstance(grid, shard.GridOp)
    assert grid.sym_name.data == "größe"
    assert print_module(parse_module(print_module(module))) == print_module(module)
