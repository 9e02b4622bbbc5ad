"""Types: what is asked about the shape and the elements of a value."""

import pytest
from xdsl.dialects.builtin import DYNAMIC_INDEX, MemRefType, TensorType, f32, i32
from xdsl.ir import Block

from shardwise.ir.types import element_type, is_static, shape_of

KINDS = (TensorType(i32, [6]), TensorType(f32, [DYNAMIC_INDEX, 2]), MemRefType(f32, [2]), i32)


def test_sizes_and_elements() -> None:
    x, y, buffer, n = Block(arg_types=KINDS).args
    assert shape_of(x) == (6,)
    assert shape_of(y) == (DYNAMIC_INDEX, 2)
    assert [element_type(value) for value in (x, y, buffer, n)] == [i32, f32, f32, i32]
    with pytest.raises(AssertionError):
        shape_of(n)


def test_what_is_no_tensor_of_known_sizes_is_not_static() -> None:
    x, y, buffer, n = KINDS
    assert is_static(x)
    assert is_static(x, TensorType(i32, []))
    assert not is_static(x, y)
    assert not is_static(buffer)
    assert not is_static(n)
    assert is_static()
