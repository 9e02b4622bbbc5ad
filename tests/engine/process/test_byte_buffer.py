"""Parcels: bytes as arrays of either library, and arrays as bytes."""

import ml_dtypes
import numpy as np
import pytest
import torch

from shardwise.engine.arrays import to_numpy, torch_of, torch_view
from shardwise.engine.pool import Pool
from shardwise.engine.process.byte_buffer import ByteBuffer, bytes_of
from tests.engine.test_arrays import DTYPES
from tests.prim.cases import values

ODD = [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]


@pytest.mark.parametrize("dtype", [*DTYPES, *ODD], ids=str)
def test_what_is_put_into_a_parcel_comes_out_of_its_bytes(dtype: str) -> None:
    kind, pool = np.dtype(dtype), Pool()
    given = values((2, 3), kind)
    parcel = ByteBuffer(9 * kind.itemsize, kind, pool)
    parcel.view(3, (2, 3), given)[...] = given
    other = ByteBuffer(6 * kind.itemsize, kind, pool)
    other.bytes.copy_(parcel.part(3, 6).bytes)
    assert other.view(0, (2, 3), given).tobytes() == given.tobytes()
    if hasattr(torch, str(kind)):
        assert to_numpy(other.view(0, (2, 3), torch.zeros(1))).tobytes() == given.tobytes()


@pytest.mark.parametrize("dtype", [*DTYPES, *ODD], ids=str)
def test_arrays_are_seen_as_bytes_in_place(dtype: str) -> None:
    for shape in ((2, 3), (), (0, 2)):
        given = values(shape, dtype)
        flat = bytes_of(given)
        assert flat is not None
        assert flat.numpy().tobytes() == given.tobytes()
        if hasattr(torch, str(given.dtype)):
            tensor = torch_of(given)
            seen = bytes_of(tensor)
            assert seen is not None
            assert seen.numpy().tobytes() == given.tobytes()
            assert seen.data_ptr() == tensor.data_ptr()
            assert to_numpy(tensor).tobytes() == given.tobytes()


def test_what_is_scattered_or_read_only_is_not() -> None:
    table = np.zeros((4, 4))
    assert bytes_of(table[:, 1:2]) is None
    assert bytes_of(torch.zeros(4, 4).T) is None
    assert bytes_of(np.broadcast_to(1.0, (2,))) is None
    assert bytes_of(table[1:2]) is not None


def test_torch_shares_the_memory_that_may_be_written_to() -> None:
    table = np.zeros((4, 4))
    assert torch_view(table.T).data_ptr() == table.ctypes.data
    fixed = np.broadcast_to(1.0, (2,))
    assert torch_view(fixed).tolist() == [1, 1]
    tensor = torch.zeros(2)
    assert torch_view(tensor) is tensor
