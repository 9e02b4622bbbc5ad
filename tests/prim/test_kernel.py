"""Kernels of either library."""

import ml_dtypes
import numpy as np
import pytest

from shardwise.prim.kernel import alike, zeros


def test_zeros_are_of_the_library_and_dtype() -> None:
    torch = pytest.importorskip("torch")
    assert zeros(np.ones(1, "int8"), (2, 0)).dtype == "int8"
    made = zeros(torch.ones(1, dtype=torch.float16), (2, 3))
    assert (made.dtype, tuple(made.shape)) == (torch.float16, (2, 3))


def test_operands_become_alike() -> None:
    torch = pytest.importorskip("torch")
    array, half = np.ones(2), np.ones(2, ml_dtypes.bfloat16)
    array.flags.writeable = False
    assert alike([array, 2.0], array.dtype)[1] == 2.0
    made = alike([torch.ones(2), array, half, 3], array.dtype)
    assert [getattr(x, "dtype", None) for x in made] == [torch.float32, torch.float64, torch.bfloat16, None]
    assert alike([half, 2.5], half.dtype)[1].dtype == half.dtype
