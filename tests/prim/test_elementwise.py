"""Elementwise primitives against NumPy, in any layouts, dtypes and libraries."""

import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shardwise import BindingError, Cut, DeviceMesh, Layout, P, asarray, explain, from_shards, jvp, shard, vjp
from shardwise.prim.elementwise import astype, equal, pow
from tests.layout.oracle import held_box
from tests.prim.cases import DTYPES, held, host_meshes, layouts_for, same, spread, values

M4 = DeviceMesh((4,), ("x",))
M23 = DeviceMesh((2, 3), ("a", "b"))
BINARY = [operator.add, operator.sub, operator.mul, operator.truediv]


@st.composite
def broadcastable(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes that broadcast."""
    full = draw(st.lists(st.integers(0, 5), max_size=3))

    def some() -> tuple[int, ...]:
        kept = full[draw(st.integers(0, len(full))) :]
        return tuple(1 if draw(st.booleans()) else size for size in kept)

    return some(), some()


@given(st.data(), st.sampled_from(BINARY))
def test_operands_in_any_layouts_give_what_numpy_gives(data: st.DataObject, op: Callable[..., Any]) -> None:
    mesh = data.draw(host_meshes())
    left, right = data.draw(broadcastable())
    dtype = data.draw(st.sampled_from([t for t in DTYPES if t.kind != "b"]))
    a, want_a = spread(data.draw(layouts_for(mesh, left)), left, dtype)
    b, want_b = spread(data.draw(layouts_for(mesh, right)), right, dtype, seed=5)
    assume(op is not operator.truediv or bool(np.all(want_b != 0)))
    y, want = op(a, b), op(want_a, want_b)
    assert same(y.numpy(), want)
    assert not y.layout.partial
    for device, got in enumerate(held(y)):
        assert isinstance(y.local(device), np.ndarray)
        assert got.shape == tuple(stop - start for start, stop in held_box(y.layout, y.shape, device))


@pytest.mark.parametrize("dtype", [t for t in DTYPES if t.kind != "b"], ids=str)
def test_python_numbers_take_the_dtype(dtype: np.dtype) -> None:
    x, want = spread(Layout(M4, ["x"]), (8,), dtype)
    for op in (operator.add, operator.mul):
        assert same(op(x, 2).numpy(), op(want, dtype.type(2)))
        assert same(op(2, x).numpy(), op(dtype.type(2), want))
    assert (3 - x).dtype == dtype
    assert same((-x).numpy(), -want)
    if dtype.kind not in "iu":
        assert (x * 0.5).dtype == (2.0 / (x + 9)).dtype == dtype


def test_the_layout_is_that_of_the_operand_that_is_spread() -> None:
    x = shard(np.arange(8.0), M4, P("x"))
    assert (np.ones(8) + x).layout is (x + np.ones(8)).layout is x.layout
    assert (asarray(1.0) - x).layout is x.layout
    assert (x * shard(np.ones(8), M4, P())).layout is x.layout
    assert (x + np.ones((2, 8))).layout is Layout(M4, [None, "x"])
    column = shard(np.ones((4, 1)), M4, P("x"))
    assert (column + shard(np.ones(8), M4, P())).layout is Layout(M4, ["x", None])
    halo = shard(np.arange(8.0), M4, Layout(M4, [Cut("x", halo=1)]))
    assert (halo * 2.0).layout is x.layout


def test_a_dim_of_one_element_may_be_sharded() -> None:
    x = shard(np.array([5.0]), M4, P("x"))
    assert [h.tolist() for h in held(x + x)] == [[10.0], [], [], []]
    assert same((x * np.ones((2, 1))).numpy(), np.full((2, 1), 5.0))


def test_pending_values_are_resolved_first() -> None:
    x = from_shards([[1.0], [2.0], [3.0], [4.0]], M4, P(unreduced=["x"]), (1,))
    assert (x * x).item() == 100.0


def test_shapes_that_do_not_broadcast() -> None:
    with pytest.raises(BindingError, match=r"shapes \(2,\) and \(3,\) do not broadcast"):
        operator.add(asarray(np.ones(2)), np.ones(3))


def test_a_mask_is_a_constant_in_the_dtype() -> None:
    x = shard(np.array([1.0, 2.0], "float32"), M4, P())

    def mask(x: Any) -> Any:
        return astype(equal(x, 2.0), dtype=x.dtype)

    assert same(mask(x).numpy(), np.array([0, 1], "float32"))
    assert same(jvp(mask, (x,), (np.ones(2),))[1].numpy(), np.zeros(2, "float32"))


@pytest.mark.parametrize("exponent", [-1, 0, 1, 2, 3, 0.5])
def test_powers_and_their_derivatives(exponent: float) -> None:
    x = asarray(np.array([0.25, 2.0]))
    y, back = vjp(lambda x: pow(x, exponent), x)
    assert np.allclose(y.numpy(), x.numpy() ** exponent)
    slope = exponent * x.numpy() ** (exponent - 1)
    assert np.allclose(back(np.ones(2))[0].numpy(), slope)
    assert np.allclose(jvp(lambda x: pow(x, exponent), (x,), (np.ones(2),))[1].numpy(), slope)


def test_powers_at_zero_have_all_derivatives() -> None:
    x = asarray(np.zeros(1))
    f: Callable[..., Any] = lambda x: pow(x, 2)  # noqa: E731
    got = []
    for _ in range(4):
        got.append(f(x).item())
        f = lambda x, f=f: jvp(f, (x,), (np.ones(1),))[1]  # noqa: E731
    assert got == [0.0, 0.0, 2.0, 0.0]


def test_numpy_and_torch_operands_meet_in_torch() -> None:
    torch = pytest.importorskip("torch")
    x = shard(torch.arange(4.0), M4, P("x"))
    for y in (x + np.ones(4, "float32"), np.ones(4, "float32") * x, x - shard(np.ones(4, "float32"), M4, P())):
        assert isinstance(y.local(0), torch.Tensor)
        assert y.dtype == "float32"
    small = shard(torch.ones(4, dtype=torch.bfloat16), M4, P("x")) + values((4,), "bfloat16")
    assert small.local(0).dtype == torch.bfloat16


# -- powers of integers ----------------------------------------------------------------------------------------

WHOLE = [np.dtype(t) for t in ("int64", "int8", "uint8", "int32", "int4", "bool")]


def _to_the_power(base: int, exponent: int) -> int:
    # By exact fractions, without what is behind the point; 0 has no reciprocal.
    if exponent >= 0:
        return base**exponent
    return 0 if base == 0 else int(Fraction(base) ** exponent)


@pytest.mark.parametrize("left", WHOLE, ids=str)
@pytest.mark.parametrize("right", [t for t in WHOLE if t.kind != "u"], ids=str)
def test_integers_to_negative_elements_lose_their_fraction(left: np.dtype, right: np.dtype) -> None:
    signed = right.kind != "b"
    bases, exponents = np.arange(-3 if left.kind not in "ub" else 0, 4), np.arange(-4 if signed else 0, 3)
    x, y = (grid.ravel() for grid in np.meshgrid(bases, exponents))
    x, y = x.astype(left), y.astype(right)
    dtype = np.pow(np.ones(1, left), np.ones(1, right)).dtype
    want = [_to_the_power(int(a), int(b)) for a, b in zip(x, y, strict=True)]
    for spec in (P(), P("x"), Layout(M4, [Cut("x", offsets=(0, 0, 1, 3, x.size))])):
        found = shard(x, M4, spec) ** shard(y, M4, P("x"))
        assert (found.dtype, found.numpy().tolist()) == (dtype, np.array(want).astype(dtype).tolist())
    if str(left) in ("int64", "int8"):
        assert (2 ** shard(y, M4, P("x"))).numpy().tolist() == [_to_the_power(2, int(b)) for b in y]


@pytest.mark.parametrize("dtype", WHOLE, ids=str)
@pytest.mark.parametrize("size", [0, 5])
def test_integers_to_a_negative_number_are_refused_wherever_they_are(dtype: np.dtype, size: int) -> None:
    x = shard(np.ones(size, dtype), M4, P("x"))
    says = rf"^pow of {dtype}: integers to the power of -2 are not integers.\n  convert first: x.astype\('float32'\).$"
    for raising in (lambda: x**-2, lambda: explain(lambda x: x**-2, x)):
        with pytest.raises(BindingError, match=says):
            raising()
