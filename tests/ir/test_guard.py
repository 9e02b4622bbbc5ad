"""Hostile texts: an error with line and column, within a second and 200 MB, and nothing else."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shardwise.errors import ParseError, VerifyError
from shardwise.ir import parse_module, print_module, verify
from shardwise.ir.guard import MAX_DIGITS, MAX_NESTING, check_text, decode
from shardwise.ir.source import Source
from tests.ir.hostile import HOSTILE, LARGE, measured
from tests.ir.mutations import SEEDS, small_seeds
from tests.ir.survival import accepts, survive

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_text_is_an_error_with_line_and_column_within_a_second(name: str):
    line, column, seconds = measured(HOSTILE[name])
    assert line >= 1
    assert column >= 1
    assert seconds < 1


@pytest.mark.parametrize("name", LARGE)
def test_a_constant_of_equal_elements_is_read_and_printed_whatever_its_size(name: str):
    start = time.process_time()
    module = parse_module(LARGE[name])
    text = print_module(module)
    assert print_module(parse_module(text)) == text
    assert "dense<" in text
    assert time.process_time() - start < 3


def test_all_hostile_texts_together_stay_under_200_megabytes():
    command = [sys.executable, "-m", "tests.ir.hostile"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=True)
    report = json.loads(done.stdout)
    assert report["megabytes"] < 200
    assert all(line and seconds < 1 for line, _, seconds in report["found"].values())


MESSAGES = [
    ('a "b', (1, 3), "the string does not end on its line."),
    ('"a\\', (1, 1), "the string does not end on its line."),
    ('"a\n"', (1, 1), "the string does not end on its line."),
    ("a\n" + "(" * (MAX_NESTING + 1), (2, MAX_NESTING + 1), f"brackets nest deeper than {MAX_NESTING} levels."),
    ("7" * (MAX_DIGITS + 1), (1, 1), f"an int of {MAX_DIGITS + 1} digits; at most {MAX_DIGITS} are read."),
    ("tensor<" + "2x" * 65 + "f32>", (1, 8), "a shape of more than 64 dims."),
    ("shape = " + "2x" * 64 + "2", (1, 9), "a shape of more than 64 dims."),
    ("affine_map<" + "d" * 1000, (1, 1), "an affine map of more than 1000 characters."),
    ("a\x00", (1, 2), "control character '\\x00'."),
    ("a\n é", (2, 2), "character 'é' outside of strings and comments."),
]


@pytest.mark.parametrize(("text", "place", "message"), MESSAGES)
def test_each_message_has_its_place(text: str, place: tuple[int, int], message: str):
    with pytest.raises(ParseError) as caught:
        check_text(Source(text, "m.mlir"))
    assert (caught.value.line, caught.value.column) == place
    assert str(caught.value).startswith(f"m.mlir:{place[0]}:{place[1]}: {message}")


@pytest.mark.parametrize(
    "text",
    [
        "tensor<" + "2x" * 64 + "f32>",
        "affine_map<(d0) -> (d0)>, " * 100,
        '"é" // é',
        '"\\""',
        '"\\\\"',
        "(" * MAX_NESTING,
        "()" * 1000,
        "-> >= <=" * 100,
        "1" * MAX_DIGITS,
        "<->" * 60,
    ],
)
def test_what_is_unusual_but_fine_passes(text: str):
    check_text(Source(text))


def test_bytes_that_are_not_utf_8_are_named_with_their_place():
    with pytest.raises(ParseError, match=r"^m\.mlir:2:2: byte 0xff is not UTF-8\."):
        decode(b"a\n\xc3\xa9\xff", "m.mlir")


def test_aliases_that_grow_are_refused_and_others_read():
    with pytest.raises(ParseError, match="the alias stands for more than"):
        parse_module(HOSTILE["type aliases"])
    uses = "".join('"test.op"() {a = #a} : () -> ()\n' for _ in range(3))
    assert parse_module(f"#a = [1, 2]\n{uses}", allow_unregistered=True)
    many = f"#a = [{', '.join(['1'] * 200_000)}]\n" + "[#a, #a]" * 20
    with pytest.raises(ParseError, match="aliases stand for more than"):
        parse_module(many)


@pytest.mark.parametrize("name", [r"\"t", "a b", "", "builtin.unregistered", "1a", "a\u00e9"])
def test_a_name_that_no_op_can_have_is_refused(name: str):
    for allowed in (False, True):
        with pytest.raises(ParseError, match=r"<text>:1:\d+: "):
            parse_module(f'"{name}"() : () -> ()', allow_unregistered=allowed)


@pytest.mark.parametrize("text", SEEDS)
def test_the_seeds_of_mutations_are_valid(text: str):
    verify(parse_module(text))


def test_each_op_alone_is_valid_where_it_needs_nothing_around_it():
    lonely = [text for text in small_seeds() if "linalg.index" not in text and "func.call" not in text]
    assert len(lonely) > 250
    for text in lonely:
        verify(parse_module(text))


INDEX = "{value = -9223372036854775808 : index}"
FOUND = {  # by mutations
    "the least index": f'%0 = "index.constant"() <{INDEX}> : () -> index',
    "the least offset": """shard.grid @g(shape = 2)
%t = "test.op"() : () -> tensor<4xf32>
%0 = "shard.shift"(%t) <{grid = @g, grid_axes = array<i16: 0>, shift_axis = 0 : index,
  offset = -9223372036854775808 : i64}> : (tensor<4xf32>) -> tensor<4xf32>""",
    "a module of two blocks": """"builtin.module"() ({
  "test.op"() : () -> ()
^bb1:
  "test.op"() : () -> ()
}) : () -> ()""",
    "a module of no blocks": '"builtin.module"() : () -> ()',
    "a loop of two blocks": """%i = "test.op"() : () -> index
"scf.for"(%i, %i, %i) ({
  "scf.yield"() : () -> ()
^bb0(%k: index):
  "scf.yield"() : () -> ()
}) : (index, index, index) -> ()""",
    "an op that cannot be printed in one that is not known": """"test.outer"() ({
  "shard.all_gather"() : () -> ()
  "test.inner"() : () -> ()
}) {a} : () -> ()""",
    "a body that its op does not say": """%t = "test.op"() : () -> tensor<4xf32>
%0 = "linalg.abs"(%t, %t) <{operandSegmentSizes = array<i32: 1, 1>}> ({
^bb0(%x: f32, %y: f32):
  %1 = math.exp %x : f32
  linalg.yield %1 : f32
}) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>""",
}


@pytest.mark.parametrize("text", FOUND.values(), ids=FOUND)
def test_what_mutations_found_is_read_and_printed_again(text: str):
    assert accepts(text, allow_unregistered=True)
    printed = print_module(parse_module(text, allow_unregistered=True))
    assert print_module(parse_module(printed, allow_unregistered=True)) == printed


def test_an_index_has_64_bits():
    with pytest.raises(ParseError, match=r"^<text>:1:\d+: the int does not fit 64 bits\."):
        parse_module('%0 = "index.constant"() <{value = 9223372036854775808 : index}> : () -> index')


def test_an_int_that_stands_for_a_value_is_not_read_as_one():
    text = "shard.grid @g(shape = 2)\n%0 = shard.recv %t on @g grid_axes = [0] source = [-9223372036854775808]"
    with pytest.raises(ParseError, match=r"^<text>:2:52: the int stands for a value, which is written in its place\."):
        parse_module(text)


def test_a_name_that_would_be_lost_is_refused():
    with pytest.raises(ParseError, match=r"^<text>:1:13: the name op_name__ is taken\."):
        parse_module('"test.a"() {op_name__ = "b"} : () -> ()', allow_unregistered=True)


def test_errors_name_ops_that_are_not_known():
    text = '"test.user"(%0) : (index) -> ()\n%0 = "test.maker"() : () -> index'
    with pytest.raises(VerifyError, match=r"^<text>:1:1: test\.user: operand 0 is used before it is made"):
        verify(parse_module(text, allow_unregistered=True))


@pytest.mark.parametrize("place", ["^bb0", "^bb1"])
def test_no_op_goes_to_the_first_block(place: str):
    text = f'"func.func"() <{{sym_name = "f", function_type = () -> ()}}> ({{\n^bb0:\n "cf.br"()[{place}] : () -> ()\n'
    text += '^bb1:\n "func.return"() : () -> ()\n}) : () -> ()'
    if place == "^bb1":
        verify(parse_module(text))
        return
    with pytest.raises(VerifyError, match=r"^<text>:3:2: cf\.br: goes to the first block of its region, which is"):
        verify(parse_module(text))


@pytest.mark.parametrize("first", ["", '%0 = "arith.constant"() <{value = 1 : index}> : () -> index'])
def test_each_of_several_blocks_says_where_to_go(first: str):
    text = f'"func.func"() <{{sym_name = "f", function_type = () -> ()}}> ({{\n^bb0:\n {first}\n'
    text += '^bb1:\n "func.return"() : () -> ()\n}) : () -> ()'
    with pytest.raises(VerifyError, match=r"^<text>:1:1: func\.func: each of several blocks ends with an op that says"):
        verify(parse_module(text))


@pytest.mark.parametrize("visibility", ['"hidden"', "1 : i32"])
def test_a_visibility_is_one_of_three(visibility: str):
    text = f'"shard.grid"() <{{sym_name = "g", shape = array<i64: 2>, sym_visibility = {visibility}}}> : () -> ()'
    with pytest.raises(VerifyError, match="sym_visibility is one of public, private, nested, got "):
        verify(parse_module(text))


def test_ten_seconds_of_mutations_are_survived():
    assert survive(10, seed=0) > 0


@pytest.mark.long
def test_minutes_of_mutations_are_survived():
    assert survive(180, seed=time.time_ns()) > 0
