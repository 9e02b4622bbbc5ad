"""Kernels of either library."""

import ml_dtypes
import numpy as np
import pytest

from shardwise.prim.kernel import MANY, alike, full, in_room, makes_products, sum_over, wide_sum, zeros


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


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8", "int64"])
@pytest.mark.parametrize("dims", [0, 1, (0, 1), (1, 0), ()])
def test_sums_have_the_dtype_and_the_dims_of_their_operand(library, dtype, dims) -> None:
    value = np.arange(6).reshape(2, 3).astype(dtype)
    array = value if library == "numpy" else alike([pytest.importorskip("torch").ones(1), value], value.dtype)[1]
    got = sum_over(array, dims)
    want = value.astype("float64").sum(axis=dims)
    assert str(got.dtype).removeprefix("torch.") == dtype
    assert tuple(got.shape) == want.shape
    assert np.array(got.tolist() if library == "torch" else got, "float64").tolist() == want.tolist()
    assert tuple(sum_over(array, 0).shape) == (3,)


def test_small_integers_wrap_around_in_their_own_sums() -> None:
    assert sum_over(np.full(3, 100, "int8"), 0) == np.int8(300 - 256)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_wide_sums_are_float32_whatever_the_library(dtype) -> None:
    torch = pytest.importorskip("torch")
    value = np.full((2, 300), 0.5).astype(dtype)
    for array in (value, torch.full((2, 300), 0.5, dtype=getattr(torch, dtype))):
        got = wide_sum(array, 1)
        assert str(got.dtype).removeprefix("torch.") == "float32"
        assert tuple(got.shape) == (2,)
        assert got.tolist() == [150.0, 150.0]


def test_full_arrays_are_of_the_library_and_dtype() -> None:
    torch = pytest.importorskip("torch")
    assert full(np.ones(1, "int8"), (2,), 3).tolist() == [3, 3]
    assert full(np.ones(1, "int8"), (2,), 3).dtype == "int8"
    made = full(torch.ones(1, dtype=torch.float16), (1, 2), 3)
    assert (made.dtype, made.tolist()) == (torch.float16, [[3.0, 3.0]])


def test_only_torch_adds_up_products_of_16_bits_and_not_too_many() -> None:
    torch = pytest.importorskip("torch")
    half, brain, single = (torch.ones(1, dtype=t) for t in (torch.float16, torch.bfloat16, torch.float32))
    assert MANY == 65536
    assert makes_products([half, half], 2) is True
    assert makes_products([brain, brain], MANY) is True
    assert makes_products([brain, brain], MANY + 1) is False
    assert makes_products([half], MANY + 1) is False
    for arrays in (
        [half, brain],
        [half, single],
        [single, single],
        [np.ones(1, "float16")] * 2,
        [torch.ones(1).double()],
    ):
        assert makes_products(arrays, 2) is False


def test_only_small_floats_are_given_room() -> None:
    half, single, whole = np.ones(2, "float16"), np.ones(2, "float32"), np.ones(2, "int8")
    (a, b), result = in_room([half, single], 2)
    assert (a.dtype, b is single, result) == ("float32", True, np.dtype("float32"))
    (a, b), result = in_room([whole, half], 2)
    assert (a is whole, b.dtype, result) == (True, "float32", np.dtype("float16"))


def test_numbers_become_those_of_a_foreign_dtype_only() -> None:
    half = np.ones(2, ml_dtypes.bfloat16)
    for number in (2, 2.5):
        made = alike([half, number], half.dtype)
        assert made[0] is half
        assert made[1].dtype == half.dtype
        assert float(made[1]) == number
    plain = [np.ones(2, "float32"), 2.5]
    assert alike(plain, np.dtype("float32")) is plain
    small = [np.ones(2, ml_dtypes.int4), 2.5]
    assert alike(small, np.dtype(ml_dtypes.int4)) is small


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "int8", "bool", "complex64"])
def test_arrays_beside_those_of_torch_keep_dtype_and_values(dtype) -> None:
    torch = pytest.importorskip("torch")
    value = np.array([0, 1, 1]).astype(dtype)
    first, made = alike([torch.ones(3), value], value.dtype)
    assert first.dtype == torch.float32
    assert str(made.dtype) == f"torch.{dtype}"
    assert made.tolist() == value.astype("complex64" if dtype == "complex64" else "float64").tolist()
    made, first = alike([value, torch.ones(3)], value.dtype)
    assert str(made.dtype) == f"torch.{dtype}"
