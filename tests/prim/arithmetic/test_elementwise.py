"""Elementwise primitives against NumPy, in any layouts, dtypes and libraries."""

import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shardwise import BindingError, Cut, DeviceMesh, Layout, P, asarray, clip, explain, from_shards, jvp, shard, vjp
from shardwise.prim.arithmetic import elementwise as rows
from shardwise.prim.arithmetic.elementwise import astype, equal, pow
from tests.layout.oracle import held_box
from tests.prim.arithmetic.declared import OWN, PLAIN, TWO
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
    assert (np.ones(8) + x).layout is (x + np.ones(8)).layout is x.layout  # type: ignore
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
        assert isinstance(y.local(0), torch.Tensor)  # type: ignore
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


# -- derivatives of every row ----------------------------------------------------------------------------


INNER = np.array([-0.75, -0.25, 0.5, 0.8])  # inside (-1, 1), and nowhere a kink
ABOVE = np.array([1.25, 1.5, 2.0, 3.5])
SLOPES: dict[str, tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]] = {
    "negative": (INNER, lambda x: -np.ones(4)),
    "positive": (INNER, lambda x: np.ones(4)),
    "reciprocal": (INNER, lambda x: -1 / x**2),
    "square": (INNER, lambda x: 2 * x),
    "sqrt": (ABOVE, lambda x: 0.5 / np.sqrt(x)),
    "abs": (INNER, np.sign),
    "exp": (INNER, np.exp),
    "expm1": (INNER, np.exp),
    "log": (ABOVE, lambda x: 1 / x),
    "log1p": (ABOVE, lambda x: 1 / (1 + x)),
    "log2": (ABOVE, lambda x: 1 / (x * np.log(2))),
    "log10": (ABOVE, lambda x: 1 / (x * np.log(10))),
    "sin": (INNER, np.cos),
    "cos": (INNER, lambda x: -np.sin(x)),
    "tan": (INNER, lambda x: 1 / np.cos(x) ** 2),
    "asin": (INNER, lambda x: 1 / np.cos(np.arcsin(x))),
    "acos": (INNER, lambda x: -1 / np.sin(np.arccos(x))),
    "atan": (ABOVE, lambda x: np.cos(np.arctan(x)) ** 2),
    "sinh": (INNER, np.cosh),
    "cosh": (INNER, np.sinh),
    "tanh": (INNER, lambda x: 1 / np.cosh(x) ** 2),
    "asinh": (ABOVE, lambda x: 1 / np.cosh(np.arcsinh(x))),
    "acosh": (ABOVE, lambda x: 1 / np.sinh(np.arccosh(x))),
    "atanh": (INNER, lambda x: np.cosh(np.arctanh(x)) ** 2),
    "relu": (INNER, lambda x: 1.0 * (x > 0)),
    "sign": (INNER, lambda x: np.zeros(4)),
    "ceil": (INNER, lambda x: np.zeros(4)),
    "floor": (INNER, lambda x: np.zeros(4)),
    "trunc": (INNER, lambda x: np.zeros(4)),
    "round": (INNER, lambda x: np.zeros(4)),
}


def test_every_function_of_one_real_number_has_its_slope_here() -> None:
    truths = {"isfinite", "isinf", "isnan", "logical_not", "signbit"}
    assert {*PLAIN, *OWN} - truths == {*SLOPES}
    compare = {name for name in TWO if getattr(rows, name)(asarray([1.0]), 2.0).dtype == bool}
    assert {*TWO} - compare == {*PAIRS}


@pytest.mark.parametrize("name", SLOPES)
def test_slopes_are_those_of_calculus(name: str) -> None:
    x, slope = SLOPES[name]
    weight = np.array([2.0, -1.0, 0.5, 3.0])
    given, call = shard(x, M4, P("x")), getattr(rows, name)
    _, back = vjp(call, given)
    np.testing.assert_allclose(back(weight)[0].numpy(), slope(x) * weight, rtol=1e-12)
    np.testing.assert_allclose(jvp(call, (given,), (weight,))[1].numpy(), slope(x) * weight, rtol=1e-12)


PAIRS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "add": (lambda x, y: np.ones(4), lambda x, y: np.ones(4)),
    "subtract": (lambda x, y: np.ones(4), lambda x, y: -np.ones(4)),
    "multiply": (lambda x, y: y, lambda x, y: x),
    "divide": (lambda x, y: 1 / y, lambda x, y: -x / y**2),
    "pow": (lambda x, y: y * x ** (y - 1), lambda x, y: x**y * np.log(x)),
    "hypot": (lambda x, y: x / np.sqrt(x**2 + y**2), lambda x, y: y / np.sqrt(x**2 + y**2)),
    "remainder": (lambda x, y: np.ones(4), lambda x, y: -np.floor(x / y)),
    "atan2": (lambda x, y: y / (x**2 + y**2), lambda x, y: -x / (x**2 + y**2)),
    "logaddexp": (lambda x, y: 1 / (1 + np.exp(y - x)), lambda x, y: 1 / (1 + np.exp(x - y))),
    "maximum": (lambda x, y: (x > y) + 0.5 * (x == y), lambda x, y: (y > x) + 0.5 * (x == y)),
    "minimum": (lambda x, y: (x < y) + 0.5 * (x == y), lambda x, y: (y < x) + 0.5 * (x == y)),
    "floor_divide": (lambda x, y: np.zeros(4), lambda x, y: np.zeros(4)),
    "nextafter": (lambda x, y: np.ones(4), lambda x, y: np.zeros(4)),
    "copysign": (lambda x, y: np.sign(x) * np.sign(y), lambda x, y: np.zeros(4)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_slopes_of_two_operands_are_those_of_calculus(name: str) -> None:
    x, y = np.array([1.25, 2.0, 0.5, 3.5]), np.array([0.75, 2.0, 1.5, 0.6])  # the second are equal
    if name == "copysign":
        x, y = np.array([1.0, -2.0, 3.0, -4.0]), np.array([-1.0, -2.0, 3.0, 4.0])
    weight, call = np.array([2.0, -1.0, 0.5, 3.0]), getattr(rows, name)
    a, b = shard(x, M4, P("x")), shard(y, M4, P())
    first, second = (slope(x, y) * weight for slope in PAIRS[name])
    _, back = vjp(call, a, b)
    got = back(weight)
    np.testing.assert_allclose(got[0].numpy(), first, rtol=1e-12)
    np.testing.assert_allclose(got[1].numpy(), second, rtol=1e-12)  # type: ignore
    np.testing.assert_allclose(jvp(lambda a: call(a, b), (a,), (weight,))[1].numpy(), first, rtol=1e-12)
    np.testing.assert_allclose(jvp(lambda b: call(a, b), (b,), (weight,))[1].numpy(), second, rtol=1e-12)


def test_a_choice_hands_on_to_what_was_chosen() -> None:
    mask = shard(np.array([True, False, True, False]), M4, P("x"))
    a, b = shard(np.arange(4.0), M4, P("x")), shard(np.arange(4.0), M4, P())
    _, back = vjp(lambda a, b: rows.where(mask, a, b), a, b)
    weight = np.array([2.0, -1.0, 0.5, 3.0])
    assert [g.numpy().tolist() for g in back(weight)] == [[2.0, 0.0, 0.5, 0.0], [0.0, -1.0, 0.0, 3.0]]


def test_powers_with_a_base_or_an_exponent_of_zero() -> None:
    base, exponent = asarray(np.array([0.0, 0.0, 2.0])), asarray(np.array([0.0, 2.0, 0.0]))
    _, back = vjp(pow, base, exponent)
    first, second = back(np.ones(3))
    assert first.numpy().tolist() == [0.0, 0.0, 0.0]
    np.testing.assert_allclose(second.numpy(), [0.0, 0.0, np.log(2.0)])
    assert vjp(lambda y: pow(2.0, y), exponent)[1](np.ones(3))[0].numpy()[1] == 4.0 * np.log(2.0)
    assert vjp(lambda y: pow(0.0, y), exponent)[1](np.ones(3))[0].numpy().tolist() == [0.0, 0.0, 0.0]


def test_limits_hold_on_both_sides() -> None:
    x = shard(np.array([-2.0, 0.0, 2.0, 5.0]), M4, P("x"))
    assert clip(x, -1.0, 2.0).numpy().tolist() == [-1.0, 0.0, 2.0, 2.0]
    assert clip(x, min=1.0).numpy().tolist() == [1.0, 1.0, 2.0, 5.0]
    assert clip(x, max=1.0).numpy().tolist() == [-2.0, 0.0, 1.0, 1.0]
    assert clip(x) is x


def test_parts_of_complex_numbers_and_their_derivatives() -> None:
    z = np.array([1 + 2j, -3j, 4.0, -1 - 1j])
    x, ct = shard(z, M4, P("x")), np.array([1.0, 2.0, 3.0, 4.0])
    for name, want, back_want in (
        ("real", np.real(z), ct + 0j),
        ("imag", np.imag(z), -1j * ct),
        ("conj", z.conj(), ct + 0j),
    ):
        made, back = vjp(getattr(rows, name), x)
        assert np.array_equal(made.numpy(), want)
        got = back(ct if name != "conj" else ct + 0j)[0].numpy()
        assert np.array_equal(got, back_want)
        assert got.dtype == np.complex128
    plain = shard(ct, M4, P("x"))
    assert vjp(rows.imag, plain)[1](ct)[0].numpy().tolist() == [0.0] * 4


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_slope_of_a_sign_that_is_given_is_one_where_signs_are_alike(dtype: str) -> None:
    value = np.array([1.0, -2.0, 3.0, -4.0], dtype)
    x = shard(value, M4, P("x"))
    for sign in (-1.0, 2.0, asarray(np.full(1, -3.0, dtype)), asarray(np.array([-1.0, -1.0, 1.0, 1.0], dtype))):
        got = vjp(lambda x, sign=sign: rows.copysign(x, sign), x)[1](np.ones(4, dtype))[0]
        assert got.numpy().tolist() == (np.sign(value) * np.sign(np.asarray(sign))).tolist()
        assert got.dtype == dtype


MONOTONE = "exp expm1 atan sinh tanh asinh sign ceil floor trunc round relu".split()


@pytest.mark.parametrize("name", MONOTONE)
@pytest.mark.parametrize("op", ["max", "min"])
def test_a_pending_extreme_passes_through_what_keeps_the_order(name: str, op: str) -> None:
    mesh = DeviceMesh((2,), ("x",))
    terms = [np.array([-1.5, 0.25, 2.0]), np.array([0.5, -0.75, 1.0])]
    x = from_shards(terms, mesh, Layout(mesh, [None], ["x"], op), (3,))
    got = getattr(rows, name)(x)
    assert (str(got.layout.reduce_op), len(got.layout.partial)) == (op, 1)
    best = np.maximum(*terms) if op == "max" else np.minimum(*terms)
    want = np.maximum(best, 0.0) if name == "relu" else getattr(np, name)(best)
    np.testing.assert_allclose(got.numpy(), want)


@pytest.mark.parametrize("name", ["log", "sqrt", "cos", "square", "abs", "reciprocal", "acosh", "atanh", "asin"])
def test_a_pending_extreme_is_resolved_before_anything_else(name: str) -> None:
    mesh = DeviceMesh((2,), ("x",))
    x = from_shards([np.array([0.5]), np.array([0.25])], mesh, Layout(mesh, [None], ["x"], "max"), (1,))
    with np.errstate(all="ignore"):
        assert not getattr(rows, name)(x).layout.partial
