"""Collapsed, expanded and transposed tensors are what NumPy makes of them, in valid modules."""

from collections.abc import Callable

import numpy as np
import pytest
from xdsl.dialects import arith, func, tensor
from xdsl.dialects.builtin import DYNAMIC_INDEX, IndexType, IntegerAttr, ModuleOp, TensorType, f64
from xdsl.ir import Block, Operation, Region, SSAValue

from shardwise.ir import execute, verify
from shardwise.ir.reshapes import Add, collapse, expand, transpose


def run(shape: tuple[int, ...], make: Callable[[Add, SSAValue], SSAValue]) -> np.ndarray:
    """What a module with these ops gives for numbers of this shape."""
    block = Block(arg_types=[TensorType(f64, shape)])

    def add(op: Operation) -> SSAValue:
        block.add_op(op)
        return op.results[0]

    out = make(add, block.args[0])
    block.add_op(func.ReturnOp(out))
    module = ModuleOp([func.FuncOp("main", ([TensorType(f64, shape)], [out.type]), Region(block))])
    verify(module)
    return execute(module, numbers(shape))


def numbers(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(np.prod(shape, dtype=int), dtype=float).reshape(shape)


GROUPS = [
    ((2, 3, 4), [[0, 1], [2]], (6, 4)),
    ((2, 3, 4), [[0], [1, 2]], (2, 12)),
    ((5, 1), [[0, 1]], (5,)),
    ((0, 3), [[0, 1]], (0,)),
]


@pytest.mark.parametrize(("shape", "groups", "small"), GROUPS)
def test_groups_of_dims_are_one_and_apart_again(
    shape: tuple[int, ...], groups: list[list[int]], small: tuple[int, ...]
) -> None:
    one = run(shape, lambda add, x: collapse(add, x, groups, small))
    np.testing.assert_array_equal(one, numbers(shape).reshape(small))
    apart = run(small, lambda add, x: expand(add, x, groups, shape))
    np.testing.assert_array_equal(apart, numbers(small).reshape(shape))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 0, 2), (2, 1, 0)])
def test_dims_come_in_another_order(order: tuple[int, ...]) -> None:
    got = run((2, 3, 4), lambda add, x: transpose(add, x, order))
    np.testing.assert_array_equal(got, numbers((2, 3, 4)).transpose(order))


def test_dims_in_their_own_order_take_no_op() -> None:
    added: list[Operation] = []
    block = Block(arg_types=[TensorType(f64, (2, 3))])

    def add(op: Operation) -> SSAValue:
        added.append(op)
        return op.results[0]

    assert transpose(add, block.args[0], (0, 1)) is block.args[0]
    assert added == []


def test_sizes_that_are_open_are_given_as_values() -> None:
    kind = TensorType(f64, (4, DYNAMIC_INDEX))
    block = Block(arg_types=[kind])

    def add(op: Operation) -> SSAValue:
        block.add_op(op)
        return op.results[0]

    size = add(tensor.DimOp(block.args[0], add(arith.ConstantOp(IntegerAttr(1, IndexType())))))
    apart = expand(add, block.args[0], [[0, 1], [2]], (2, 2, size))
    turned = transpose(add, apart, (1, 2, 0), (2, 2, size))
    out = collapse(add, turned, [[0], [1, 2]], (2, DYNAMIC_INDEX))
    block.add_op(func.ReturnOp(out))
    module = ModuleOp([func.FuncOp("main", ([kind], [out.type]), Region(block))])
    verify(module)
    got = execute(module, numbers((4, 3)))
    np.testing.assert_array_equal(got, numbers((4, 3)).reshape(2, 2, 3).transpose(1, 2, 0).reshape(2, 6))
