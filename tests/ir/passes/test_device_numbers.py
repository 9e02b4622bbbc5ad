"""Device numbers: what each device computes of its place, as the interpreter has it when every device runs."""

from typing import Any

import numpy as np
import pytest
from xdsl.dialects import scf

from shardwise.ir import execute_on_devices, parse_module
from shardwise.ir.passes.device_numbers import DeviceNumbers
from tests.ir.passes.devices import mesh_named

TEXT = """
shard.grid @g(shape = 2x3)
func.func @f(%x: index) -> (index, index, i1, index, i1, index, index) {
  %0, %1 = shard.process_multi_index on @g : index, index
  %2 = shard.process_multi_index on @g axes = [1] : index
  %l = shard.process_linear_index on @g : index
  %three = arith.constant 3 : index
  %five = arith.constant 5 : index
  %a = arith.muli %0, %three : index
  %b = arith.addi %a, %1 : index
  %c = arith.cmpi slt, %2, %0 : index
  %table = arith.constant dense<[7, 1, 8, 2, 8, 1]> : tensor<6xindex>
  %t = tensor.extract %table[%b] : tensor<6xindex>
  %m = arith.remui %t, %five : index
  %n = arith.minsi %l, %three : index
  %flat = arith.constant dense<4> : tensor<6xindex>
  %u = tensor.extract %flat[%b] : tensor<6xindex>
  %d = arith.cmpi eq, %t, %n : index
  %e = arith.ori %c, %d : i1
  %y = arith.addi %x, %three : index
  return %b, %m, %c, %n, %e, %u, %y : index, index, i1, index, i1, index, index
}"""


def test_every_device_computes_what_is_told_of_it() -> None:
    module = parse_module(TEXT)
    function: Any = list(module.body.block.ops)[1]
    results = list(function.body.block.last_op.operands)
    numbers = DeviceNumbers(mesh_named(2, 3))
    told = [numbers.of(x) for x in results]
    assert told[-1] is None  # it follows from an argument
    for device, made in enumerate(execute_on_devices(module, [np.int64(0)] * 6)):
        for got, each in zip(made[:-1], told[:-1], strict=True):
            assert each is not None
            assert np.broadcast_to(each, 6)[device] == got


CONDITIONS = """
shard.grid @g(shape = 2x2)
shard.grid @h(shape = 4)
func.func @f(%w: i1) {
  %0, %1 = shard.process_multi_index on @g : index, index
  %h = shard.process_multi_index on @h : index
  %c = arith.cmpi eq, %0, %1 : index
  %zero = arith.constant 0 : index
  %d = arith.cmpi eq, %0, %zero : index
  %e = arith.cmpi eq, %h, %zero : index
  scf.if %c {
    %a = arith.constant 1 : index
    scf.if %d {
      %b = arith.constant 2 : index
    } else {
      %b = arith.constant 3 : index
    }
  } else {
    %a = arith.constant 4 : index
  }
  scf.if %w {
    %a = arith.constant 5 : index
  }
  scf.if %e {
    %a = arith.constant 6 : index
  }
  return
}"""


def test_who_comes_to_an_op() -> None:
    numbers = DeviceNumbers(mesh_named(2, 2))
    ops: list[Any] = list(parse_module(CONDITIONS).walk())
    doing = {
        op.value.value.data: numbers.doing(op)
        for op in ops
        if op.name == "arith.constant" and isinstance(op.parent_op(), scf.IfOp)
    }
    wanted = {1: [1, 0, 0, 1], 2: [1, 0, 0, 0], 3: [0, 0, 0, 1], 4: [0, 1, 1, 0]}
    for number, devices in wanted.items():
        found = doing[number]
        assert found is not None
        assert found.tolist() == [bool(k) for k in devices]
    assert doing[5] is None  # nobody knows what it is called with
    assert doing[6] is None  # another grid


@pytest.mark.parametrize("most", [0, 5])
def test_no_more_is_kept_than_there_is_room_for(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardwise.ir.passes.device_numbers.MOST", most)
    function: Any = list(parse_module(TEXT).body.block.ops)[1]
    numbers = DeviceNumbers(mesh_named(2, 3))
    assert numbers.of(function.body.block.last_op.operands[0]) is None
