"""Blocks: ops one after another, calls, conditions and loops, and what cannot be run."""

from typing import Any

import numpy as np
import pytest

from shardwise.errors import ProgramError
from shardwise.ir import execute, parse_module
from shardwise.ir.interpret import blocks


def run(text: str, *values: Any) -> Any:
    return execute(parse_module(text, allow_unregistered=True), *values)


CALLS = """
func.func @main(%n: i32) -> i32 {
  %0 = func.call @twice(%n) : (i32) -> i32
  %1 = func.call @twice(%0) : (i32) -> i32
  return %1 : i32
}
func.func @twice(%n: i32) -> i32 {
  %0 = arith.addi %n, %n : i32
  return %0 : i32
}
"""


def test_a_call_runs_another_function_with_values_of_its_own() -> None:
    assert run(CALLS, np.int32(3)) == 12


def test_functions_that_call_one_another_are_stopped() -> None:
    text = "func.func @f() {\nfunc.call @f() : () -> ()\nreturn\n}"
    with pytest.raises(ProgramError, match=f"is a call within {blocks.DEEPEST} calls; the functions seem to call"):
        run(text)
    assert blocks.DEEPEST == 100


def test_a_chain_of_as_many_calls_is_run() -> None:
    chain = "".join(
        f"func.func @f{k}(%n: i32) -> i32 {{\n%0 = func.call @f{k + 1}(%n) : (i32) -> i32\nreturn %0 : i32\n}}\n"
        for k in range(100)
    )
    assert run(chain + "func.func @f100(%n: i32) -> i32 {\nreturn %n : i32\n}", np.int32(5)) == 5


def test_a_function_that_is_elsewhere_cannot_be_called() -> None:
    text = "func.func @f() {\nfunc.call @g() : () -> ()\nreturn\n}\nfunc.func private @g()"
    with pytest.raises(ProgramError, match="calls @g, which has no body in this module"):
        run(text)


IF = """
func.func @f(%c: i1, %n: i32) -> i32 {
  %r = scf.if %c -> (i32) {
    %0 = arith.addi %n, %n : i32
    scf.yield %0 : i32
  } else {
    scf.yield %n : i32
  }
  return %r : i32
}
"""


def test_a_condition_chooses_a_branch() -> None:
    assert run(IF, np.bool_(True), np.int32(3)) == 6
    assert run(IF, np.bool_(False), np.int32(3)) == 3
    empty = "func.func @f(%c: i1) {\nscf.if %c {\n}\nreturn\n}"
    assert run(empty, np.bool_(False)) is None
    assert run(empty, np.bool_(True)) is None


FOR = """
func.func @f(%a: index, %b: index, %s: index) -> index {
  %zero = arith.constant 0 : index
  %r = scf.for %i = %a to %b step %s iter_args(%t = %zero) -> (index) {
    %0 = arith.muli %i, %i : index
    %1 = arith.addi %t, %0 : index
    scf.yield %1 : index
  }
  return %r : index
}
"""


@pytest.mark.parametrize(("start", "stop", "step"), [(0, 5, 1), (1, 8, 3), (3, 3, 1), (5, 2, 1), (-2, 3, 2)])
def test_a_loop_hands_its_state_on(start: int, stop: int, step: int) -> None:
    got = run(FOR, *map(np.int64, (start, stop, step)))
    assert got == sum(i * i for i in range(start, stop, step))


@pytest.mark.parametrize("step", [0, -1])
def test_a_loop_goes_forward(step: int) -> None:
    with pytest.raises(ProgramError, match=rf"has the step {step}; it must be positive"):
        run(FOR, np.int64(0), np.int64(3), np.int64(step))


def test_an_op_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ProgramError) as caught:
        run('func.func @f() {\n"some.op"() : () -> ()\nreturn\n}')
    assert str(caught.value).endswith(
        "cannot be run: it is not among the ops that the interpreter knows.\n"
        "  it knows func, arith, math, index, tensor, linalg, scf.if, scf.for, elementwise tosa and shard"
    )


def test_a_value_is_used_after_it_is_made() -> None:
    text = "func.func @f() -> i32 {\n%0 = arith.addi %1, %1 : i32\n%1 = arith.constant 1 : i32\nreturn %0 : i32\n}"
    with pytest.raises(ProgramError, match="uses a value before it is made"):
        run(text)


OPEN = """
func.func @f(%a: tensor<?xi32>, %b: tensor<?xi32>) -> tensor<?xi32> {
  %0 = arith.addi %a, %b : tensor<?xi32>
  return %0 : tensor<?xi32>
}
"""


def test_shapes_that_are_known_only_now_must_fit() -> None:
    np.testing.assert_array_equal(run(OPEN, np.ones(2, "int32"), np.ones(2, "int32")), [2, 2])
    with pytest.raises(ProgramError, match=r"combines shapes \[1\], \[2\]"):
        run(OPEN, np.ones(2, "int32"), np.ones(1, "int32"))
