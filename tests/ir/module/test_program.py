"""Programs: functions and grids by name, and ops as errors name them."""

from typing import Any

import numpy as np
import pytest

from shardwise.errors import ArgumentError, ProgramError
from shardwise.ir import parse_module
from shardwise.ir.module.program import Scope, fill_open, ints, name_of, op_text, program_of, property_of, where
from shardwise.ir.module.values import DYNAMIC

TEXT = """
shard.grid @g(shape = 2x3)
shard.grid @h(shape = 4)
func.func private @outside(i32) -> i32
func.func @first() { return }
func.func @second() { return }
"""


def test_functions_are_found_by_name_main_before_the_first() -> None:
    program = program_of(parse_module(TEXT))
    assert program.function("second").sym_name.data == "second"
    assert program.function(None).sym_name.data == "first"
    other = program_of(parse_module(TEXT + "func.func @main() { return }"))
    assert other.function(None).sym_name.data == "main"
    assert other.body(other.function("main")).last_op is not None


def test_a_function_that_is_not_there_is_refused_with_those_that_are() -> None:
    program = program_of(parse_module(TEXT))
    with pytest.raises(ArgumentError) as caught:
        program.function("secund")
    assert str(caught.value).startswith("the module has no function @secund with a body.\n  functions: @first, @second")
    assert "did you mean" in str(caught.value)
    with pytest.raises(ArgumentError, match="no function @outside with a body"):
        program.function("outside")
    with pytest.raises(ArgumentError, match=r"^the module has no function with a body, so there is nothing to run"):
        program_of(parse_module("func.func private @f()")).function(None)


def test_the_largest_grid_says_how_many_devices_there_are() -> None:
    program = program_of(parse_module(TEXT))
    assert program.grids == {"g": (2, 3), "h": (4,)}
    assert program.devices == 6
    assert program_of(parse_module("func.func private @f()")).devices == 1
    function = program.function("first")
    assert program.grid("h", function) == (4,)
    with pytest.raises(ProgramError, match=r"names the grid @k, which the module does not have; grids: @g, @h\.$"):
        program.grid("k", function)


OPEN = "shard.grid @g(shape = ?x3)"


def test_open_sizes_are_given() -> None:
    module = parse_module(OPEN)
    assert program_of(module, {"g": (4, 3)}).grids == {"g": (4, 3)}
    given: Any = {"g": [np.int64(1), 3]}
    assert program_of(module, given).grids == {"g": (1, 3)}
    with pytest.raises(ArgumentError) as caught:
        program_of(module)
    assert str(caught.value) == "the grid @g is ?x3: say how large, as in grids={'g': (2, 4)}."
    for wrong in ((4, 4), (4,), (4, 3, 1)):
        with pytest.raises(ArgumentError) as caught:
            program_of(module, {"g": wrong})
        assert str(caught.value) == f"the grid @g is ?x3, which {wrong} does not fit."
    with pytest.raises(ArgumentError, match=r"a shape was given for the grid @k, .* grids: @g\."):
        program_of(module, {"g": (4, 3), "k": (2,)})


def test_a_device_has_a_place_in_each_grid_that_has_it() -> None:
    program = program_of(parse_module(TEXT))
    op = program.function("first")
    assert Scope(program, 5).coordinates((2, 3), op) == (1, 2)
    assert Scope(program, 3).coordinates((4,), op) == (3,)
    with pytest.raises(ProgramError, match=r"^device 4 is not in the grid of .*, which is \[4\]\.$"):
        Scope(program, 4).coordinates((4,), op)
    with pytest.raises(ProgramError, match="is for one device of a grid, but the module runs on global values"):
        Scope(program).coordinates((4,), op)
    assert Scope(program).values is not Scope(program).values


def test_open_places_of_lists_are_filled_in_order() -> None:
    assert fill_open((DYNAMIC, 3, DYNAMIC), [np.int64(7), 9]) == (7, 3, 9)
    assert fill_open((), ()) == ()
    assert ints(None) == ()


def test_ops_are_named_with_their_results_and_their_lines() -> None:
    module = parse_module("func.func @f() {\n  %seven = arith.constant 7 : i32\n  return\n}")
    found = next(op for op in module.walk() if op.name == "arith.constant")
    assert op_text(found) == "arith.constant (%seven) at line 2"
    assert name_of(found.results[0]) == "%seven"
    assert property_of(found, "value") is not None
    assert property_of(found, "nothing") is None
    for op in module.walk():
        op.location = type(module)([]).location
    assert where(found) == " in @f"
    assert where(module) == ""
