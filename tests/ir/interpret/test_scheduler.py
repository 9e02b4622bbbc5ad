"""Deadlocks and mismatches are seen and reported with the ops that wait; what is undefined is not used."""

import numpy as np
import pytest

from shardwise.errors import ProgramError
from shardwise.ir.interpret.run import execute_on_devices
from shardwise.ir.module.values import Poisoned
from shardwise.ir.text import parse_module


def run(grid: str, body: str, result: str = "tensor<1xi32>"):
    module = parse_module(f"""shard.grid @g(shape = {grid})
func.func @f(%0: tensor<1xi32>) -> {result} {{
  %i = shard.process_linear_index on @g : index
  %c0 = arith.constant 0 : index
  %first = arith.cmpi eq, %i, %c0 : index
{body}
}}""")
    count = int(np.prod([int(n) for n in grid.split("x")]))
    return execute_on_devices(module, [np.array([n], "int32") for n in range(count)])


def failure(grid: str, body: str) -> str:
    with pytest.raises(ProgramError) as error:
        run(grid, body)
    return str(error.value)


SUM = "shard.all_reduce %0 on @g grid_axes = [0] : tensor<1xi32> -> tensor<1xi32>"
MAX = "shard.all_reduce %0 on @g grid_axes = [0] reduction = max : tensor<1xi32> -> tensor<1xi32>"


def branches(first: str, others: str) -> str:
    """What the first device does, and what the others do."""
    return f"""  %r = scf.if %first -> (tensor<1xi32>) {{
    {first}
    scf.yield %a : tensor<1xi32>
  }} else {{
    {others}
    scf.yield %a : tensor<1xi32>
  }}
  return %r : tensor<1xi32>"""


def test_devices_may_meet_at_different_ops_that_say_the_same():
    made = run("3", branches(f"%a = {SUM}", f"%a = {SUM}"))
    np.testing.assert_array_equal(np.ravel(made), [3, 3, 3])


def test_a_collective_that_some_members_never_reach_is_a_deadlock():
    copy = "%a = arith.addi %0, %0 : tensor<1xi32>"
    assert failure("2", branches(f"%a = {SUM}", copy)) == (
        "deadlock: no device can go on.\n"
        "  device 0 waits at shard.all_reduce (%a) at line 7 for device 1\n"
        "  device 1 has returned"
    )


def test_receives_that_wait_for_each_other_are_a_deadlock():
    body = """  %c1 = arith.constant 1 : index
  %other = arith.subi %c1, %i : index
  %got = shard.recv %0 on @g grid_axes = [0] source = [%other] : (tensor<1xi32>, index) -> tensor<1xi32>
  %sent = shard.send %got on @g grid_axes = [0] destination = [%other] : (tensor<1xi32>, index) -> tensor<1xi32>
  return %got : tensor<1xi32>"""
    assert failure("2", body) == (
        "deadlock: no device can go on.\n"
        "  device 0 waits at shard.recv (%got) at line 8 for a message from device 1\n"
        "  device 1 waits at shard.recv (%got) at line 8 for a message from device 0"
    )


def test_collectives_in_opposite_orders_are_a_deadlock():
    # Devices 0 and 3 begin with their columns, 1 and 2 with their rows: each waits for the next around the square.
    ops = [f"shard.all_reduce %0 on @g grid_axes = [{a}] : tensor<1xi32> -> tensor<1xi32>" for a in (0, 1)]
    body = branches(f"%b = {ops[0]}\n    %a = {ops[1]}", f"%c = {ops[1]}\n    %a = {ops[0]}")
    corner = """  %c3 = arith.constant 3 : index
  %place = arith.remui %i, %c3 : index
  %corner = arith.cmpi eq, %place, %c0 : index
"""
    assert failure("2x2", corner + body.replace("%first", "%corner")) == (
        "deadlock: no device can go on.\n"
        "  device 0 waits at shard.all_reduce (%b) at line 10 for device 2\n"
        "  device 1 waits at shard.all_reduce (%c) at line 14 for device 0\n"
        "  device 2 waits at shard.all_reduce (%c) at line 14 for device 3\n"
        "  device 3 waits at shard.all_reduce (%b) at line 10 for device 1"
    )


@pytest.mark.parametrize(
    ("other", "shown"),
    [
        (MAX, "(on @g, axes [0], max)"),
        (
            "shard.shift %0 on @g grid_axes = [0] shift_axis = 0 offset = 1 rotate : tensor<1xi32> -> tensor<1xi32>",
            "(on @g, axes [0], 0, 1, True)",
        ),
    ],
)
def test_collectives_that_disagree_are_reported(other, shown):
    name = other.split()[0]
    assert failure("2", branches(f"%a = {SUM}", f"%a = {other}")) == (
        "mismatched collectives in the group of devices 0, 1:\n"
        "  device 0 waits at shard.all_reduce (%a) at line 7 (on @g, axes [0], sum)\n"
        f"  device 1 waits at {name} (%a) at line 10 {shown}"
    )


def test_roots_that_disagree_are_reported():
    body = """  %a = shard.broadcast %0 on @g grid_axes = [0] root = [%i] : (tensor<1xi32>, index) -> tensor<1xi32>
  return %a : tensor<1xi32>"""
    assert failure("2", body).startswith("mismatched collectives in the group of devices 0, 1:")


def test_a_message_that_nobody_receives_is_reported():
    send = "shard.send %0 on @g grid_axes = [0] destination = [1] : (tensor<1xi32>) -> tensor<1xi32>"
    copy = "%a = arith.addi %0, %0 : tensor<1xi32>"
    assert failure("2", branches(f"%a = {send}", copy)) == (
        "messages were sent that no device receives:\n  from device 0 to device 1 at shard.send (%a) at line 7"
    )


def test_long_reports_are_cut():
    copy = "%a = arith.addi %0, %0 : tensor<1xi32>"
    text = failure("20", branches(copy, f"%a = {SUM}"))
    assert "and 11 more devices wait\n  device 0 has returned" in text


# -- undefined results -------------------------------------------------------------------------------------

GATHER = "%a = shard.gather %0 on @g grid_axes = [0] gather_axis = 0 root = [0] : (tensor<1xi32>) -> tensor<2xi32>"


def test_using_an_undefined_result_is_an_error_that_names_both_ops():
    body = f"""  {GATHER}
  %b = arith.addi %a, %a : tensor<2xi32>
  return %0 : tensor<1xi32>"""
    assert failure("2", body) == (
        "on device 1: arith.addi (%b) at line 7 uses an undefined value: "
        "shard.gather (%a) at line 6 (only the root has the result) left it so."
    )


def test_undefined_values_may_be_moved_and_ignored():
    # Broadcast from the root ignores what the others have; a slice of what is undefined is undefined.
    body = f"""  {GATHER}
  %s = tensor.extract_slice %a[0] [1] [1] : tensor<2xi32> to tensor<1xi32>
  %b = shard.broadcast %a on @g grid_axes = [0] root = [0] : (tensor<2xi32>) -> tensor<2xi32>
  %t = tensor.extract_slice %b[1] [1] [1] : tensor<2xi32> to tensor<1xi32>
  return %t : tensor<1xi32>"""
    np.testing.assert_array_equal(np.ravel(run("2", body)), [1, 1])


def test_a_tensor_is_defined_once_all_of_it_is_written():
    body = """  %e = tensor.empty() : tensor<2xi32>
  %x = tensor.insert_slice %0 into %e[0] [1] [1] : tensor<1xi32> into tensor<2xi32>
  %y = tensor.insert_slice %0 into %x[1] [1] [1] : tensor<1xi32> into tensor<2xi32>
  %z = arith.addi %y, %y : tensor<2xi32>
  %a = tensor.extract_slice %z[1] [1] [1] : tensor<2xi32> to tensor<1xi32>
  return %a : tensor<1xi32>"""
    np.testing.assert_array_equal(np.ravel(run("2", body)), [0, 2])
    partly = body.replace("%z = arith.addi %y, %y", "%z = arith.addi %x, %x")
    assert "arith.addi (%z) at line 9 uses an undefined value: tensor.empty (%e) at line 6 left it so." in failure(
        "2", partly
    )


def test_reductions_use_what_they_are_given():
    body = f"""  {GATHER}
  %b = shard.all_reduce %a on @g grid_axes = [0] : tensor<2xi32> -> tensor<2xi32>
  return %0 : tensor<1xi32>"""
    assert "shard.all_reduce (%b) at line 7 uses an undefined value: shard.gather (%a) at line 6" in failure("2", body)


def test_undefined_conditions_are_errors():
    body = """  %e = tensor.empty() : tensor<1xi1>
  %c = tensor.extract %e[%c0] : tensor<1xi1>
  %a = scf.if %c -> (tensor<1xi32>) {
    scf.yield %0 : tensor<1xi32>
  } else {
    scf.yield %0 : tensor<1xi32>
  }
  return %a : tensor<1xi32>"""
    assert "scf.if (%a) at line 8 uses an undefined value: tensor.empty (%e) at line 6" in failure("2", body)


def test_undefined_results_are_returned_as_such():
    made = run("2", f"  {GATHER}\n  return %a : tensor<2xi32>", "tensor<2xi32>")
    assert isinstance(made[1], Poisoned)
    assert repr(made[1]) == "Poisoned(int32[2] of shard.gather (%a) at line 6 (only the root has the result))"
