"""Elementwise methods: each is the public function of its name, and none is missing."""

import numpy as np
import pytest
import torch

import shardwise as sw
from shardwise import LocalTensor, P, Tensor, asarray, shard
from shardwise.prim.arithmetic import elementwise
from shardwise.prim.arithmetic.by_element import kernel_of
from shardwise.prim.face import face_of
from shardwise.prim.methods import Methods
from shardwise.prim.primitive import Primitive
from tests.plan.cases import mesh_of
from tests.prim.arithmetic import declared

FACES = {n: face_of(v.function) for n, v in vars(elementwise).items() if isinstance(v, Primitive) and v.function}
NAMES = [n for n, face in FACES.items() if face is not None and face.method]
TWO = ["atan2", "copysign", "hypot", "logaddexp", "maximum", "minimum", "nextafter"]
LOGICAL = ["logical_and", "logical_or", "logical_xor"]
ONE = [n for n in NAMES if n not in (*TWO, *LOGICAL, "clip")]
VALUE = np.array([0.25, 0.5, 0.75, 0.9])
OTHER = np.array([2.0, -1.0, 0.75, 0.1])
X, Y = shard(VALUE, mesh_of(2), P("x")), shard(OTHER, mesh_of(2), P("x"))


def test_they_are_as_many_as_there_are() -> None:
    assert len(ONE) >= 34
    assert isinstance(X, Methods)
    assert issubclass(Tensor, Methods)


@pytest.mark.parametrize("name", ONE)
def test_of_one_it_is_the_function(name: str) -> None:
    x = X + 1.0 if name == "acosh" else X
    got, want = getattr(x, name)(), getattr(sw, name)(x)
    assert np.array_equal(got.numpy(), want.numpy())
    assert got.dtype == want.dtype
    assert got.layout is want.layout


THEIRS = {"acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh", "atan": "arctan"} | {
    "atanh": "arctanh",
    "round": "rint",
    "atan2": "arctan2",
}


@pytest.mark.parametrize("name", [n for n in ONE if hasattr(np, str(THEIRS.get(n, n)))])
def test_of_one_it_is_what_numpy_says(name: str) -> None:
    value = VALUE + 1.0 if name == "acosh" else VALUE
    got = getattr(asarray(value), name)()
    np.testing.assert_allclose(got.numpy(), getattr(np, THEIRS.get(name, name))(value), rtol=1e-12)


@pytest.mark.parametrize("name", TWO)
def test_of_two_it_is_what_numpy_says(name: str) -> None:
    theirs = getattr(np, THEIRS.get(name, name))
    np.testing.assert_allclose(getattr(X, name)(Y).numpy(), theirs(VALUE, OTHER))
    np.testing.assert_allclose(getattr(X, name)(0.5).numpy(), theirs(VALUE, 0.5))


@pytest.mark.parametrize("name", LOGICAL)
def test_of_two_truths(name: str) -> None:
    a, b = np.array([True, True, False, False]), np.array([True, False, True, False])
    x, y = asarray(a), asarray(b)
    assert np.array_equal(getattr(x, name)(y).numpy(), getattr(np, name)(a, b))


def test_limits() -> None:
    assert np.array_equal(X.clip(0.3, 0.8).numpy(), np.clip(VALUE, 0.3, 0.8))
    assert np.array_equal(X.clip(max=0.6).numpy(), np.minimum(VALUE, 0.6))
    assert np.array_equal(X.clip(min=0.6).numpy(), np.maximum(VALUE, 0.6))


def test_parts_of_complex_numbers() -> None:
    z = np.array([1 + 2j, 3 - 4j])
    assert np.array_equal(asarray(z).real.numpy(), np.real(z))
    assert np.array_equal(asarray(z).imag.numpy(), np.imag(z))
    assert np.array_equal(asarray(z).conj().numpy(), z.conj())


def test_only_parts_are_properties() -> None:
    assert [n for n, face in FACES.items() if face is not None and face.attribute] == ["real", "imag"]
    assert LocalTensor is not Tensor


@pytest.mark.parametrize("name", [*declared.TWO, *declared.BITS_OF_TWO])
def test_kernels_of_torch_are_those_that_promote_where_there_is_nothing_to_promote(name: str) -> None:
    from array_api_compat import torch as promoting

    for dtype in (torch.float32, torch.int32, torch.bool, torch.float16):
        x, y = torch.tensor([0.5, 1.0, 3.0]).to(dtype), torch.tensor([2.0, 1.0, 1.0]).to(dtype)
        for operands in ((x, y), (x, y[0]), (x.reshape(3, 1), y)):
            try:
                want = getattr(promoting, name)(*operands)
            except (RuntimeError, TypeError) as error:
                with pytest.raises(type(error)):
                    kernel_of(name)(*operands)
                continue
            got = kernel_of(name)(*operands)
            assert got.dtype == want.dtype
            assert torch.equal(got, want)


def test_kernels_of_torch_promote_as_numpy_does() -> None:
    one = torch.tensor(1.5, dtype=torch.float64)
    assert kernel_of("add")(torch.ones(2, dtype=torch.float32), one).dtype == torch.float64
    assert kernel_of("add")(torch.ones(2, dtype=torch.float32), 1.5).dtype == torch.float32
    assert kernel_of("subtract")(1.5, torch.ones(2, dtype=torch.float32)).tolist() == [0.5, 0.5]
