"""Types of values, and values that are undefined in part."""

import numpy as np
import pytest
from xdsl.dialects.builtin import ComplexType, IntegerType, Signedness, TensorType, f32, i1, i8

from shardwise.errors import ProgramError
from shardwise.ir.module.values import DYNAMIC, Poisoned, dtype_of, fits, move, undefined_tensor


def test_dtypes_of_types():
    assert dtype_of(IntegerType(16, Signedness.UNSIGNED)) == np.uint16
    assert dtype_of(ComplexType(f32)) == np.complex64
    assert dtype_of(TensorType(i8, [2])) == np.int8
    with pytest.raises(ProgramError, match=r"values of type i7 cannot be run\.\n  element types that can: i1, i8"):
        dtype_of(IntegerType(7))


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (np.zeros((2, 3), "float32"), TensorType(f32, [2, 3]), True),
        (np.zeros((2, 3), "float32"), TensorType(f32, [DYNAMIC, 3]), True),
        (np.zeros((2, 3), "float32"), TensorType(f32, [3, 3]), False),
        (np.zeros((2, 3), "float64"), TensorType(f32, [2, 3]), False),
        (np.float32(1), f32, True),
        (np.True_, i1, True),
        (1.0, f32, False),
    ],
)
def test_values_fit_types(value, kind, expected):
    assert fits(value, kind) == expected


def test_what_is_written_over_is_defined():
    x = undefined_tensor((2, 2), np.dtype("int32"), "%x")

    def put(part, whole):
        out = whole.copy()
        out[0] = part
        return out

    half = move(put, np.array([1, 2]), x)
    assert isinstance(half, Poisoned)
    np.testing.assert_array_equal(half.mask, [[False, False], [True, True]])

    def row(i):
        return lambda whole: whole[i]

    np.testing.assert_array_equal(move(row(0), half), [1, 2])
    assert isinstance(move(row(1), half), Poisoned)
