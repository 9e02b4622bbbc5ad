"""Ops of one's own: what the function makes of whole arrays, in any layout and view, with the bytes of the rule."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import shardwise as sw
from shardwise import ArgumentError, BindingError, DerivativeError, DeviceMesh, P, current_engine, custom_op, shard
from tests.prim.cases import jax_of_eight

MESH = DeviceMesh((2, 3), ("x", "y"))


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def attend(q: Any, k: Any, v: Any) -> Any:
    """Attention, head by head."""
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def plain(q: Any, k: Any, v: Any) -> Any:
    return sw.softmax(q @ k.mT / float(np.sqrt(q.shape[-1]))) @ v


attention = custom_op(
    attend,
    rule="b h s [d], b h [t] [d], b h [t] [e] -> b h s [e]",
    vjp=lambda ct, out, q, k, v: sw.vjp(plain, q, k, v)[1](ct),
    jvp=lambda tangents, out, q, k, v: sw.jvp(
        plain, (q, k, v), [sw.zeros_like(x) if t is None else t for t, x in zip(tangents, (q, k, v), strict=True)]
    )[1],
)
product = custom_op(lambda a, b: a @ b, rule="ij,jk->ik sum(j)", vjp=lambda ct, out, a, b: (ct @ b.T, a.T @ ct))
QKV = numbers(2, 3, 4, 5), numbers(2, 3, 6, 5, seed=1), numbers(2, 3, 6, 2, seed=2)
AXES = st.sampled_from([None, "x", "y", ("x", "y")])


def spec(data: st.DataObject, rank: int) -> Any:
    used: set[str] = set()
    out = []
    for _ in range(rank):
        entry = data.draw(AXES)
        names = {entry} if isinstance(entry, str) else set(entry or ())
        out.append(entry if not names & used else None)
        used |= names if out[-1] is not None else set()
    return P(*out)


@given(st.data())
def test_any_layout_gives_what_the_function_gives(data: st.DataObject) -> None:
    q, k, v = (shard(x, MESH, spec(data, 4)) for x in QKV)
    np.testing.assert_allclose(attention(q, k, v).numpy(), attend(*QKV), rtol=1e-12)
    a, b = numbers(4, 6), numbers(6, 5)
    got = product(shard(a, MESH, spec(data, 2)), shard(b, MESH, spec(data, 2)))
    np.testing.assert_allclose(got.numpy(), a @ b, rtol=1e-12, atol=1e-13)


def test_dims_that_are_shared_stay_split_and_nothing_is_sent() -> None:
    q, k, v = (shard(x, MESH, P("x", "y")) for x in QKV)
    counters = current_engine().counters
    counters.reset()
    assert attention(q, k, v).type_text == "float64[2@x, 3@y, 4, 2]"
    assert counters.total == 0
    a, b = shard(numbers(4, 6), MESH, P(None, "x")), shard(numbers(6, 5), MESH, P("x"))
    assert product(a, b).layout.partial  # parts of a sum
    assert counters.total == 0


def test_derivatives_are_those_of_jax() -> None:
    jax = jax_of_eight()

    def theirs(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.softmax(q @ k.swapaxes(-1, -2) / np.sqrt(5.0)) @ v

    given = [shard(x, MESH, P("x", "y")) for x in QKV]
    got = sw.grad(lambda *x: sw.sum(attention(*x) * attention(*x)), (0, 1, 2))(*given)
    want = jax.grad(lambda *x: (theirs(*x) ** 2).sum(), (0, 1, 2))(*QKV)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a.numpy(), b, rtol=1e-9, atol=1e-11)
    _, tangent = sw.jvp(lambda q: attention(q, *given[1:]), (given[0],), (QKV[0],))
    _, wanted = jax.jvp(lambda q: theirs(q, *QKV[1:]), (QKV[0],), (QKV[0],))
    np.testing.assert_allclose(tangent.numpy(), wanted, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("mapped", [(0, None, None), (None, 0, 0), (0, 0, 0)])
def test_maps_of_ops_and_of_their_derivatives(mapped: Any) -> None:
    many = [np.stack([x, x * 0.5]) if m == 0 else x for x, m in zip(QKV, mapped, strict=True)]
    each = [[x[i] if m == 0 else x for x, m in zip(many, mapped, strict=True)] for i in range(2)]
    got = sw.vmap(attention, mapped)(*(shard(x, MESH, P("x")) for x in many))
    np.testing.assert_allclose(got.numpy(), np.stack([attend(*x) for x in each]), rtol=1e-12)
    slopes = sw.grad(lambda *x: sw.sum(sw.vmap(attention, mapped)(*x)), (0, 1, 2))(*many)
    wanted = [sw.grad(lambda *x: sw.sum(plain(*x)), (0, 1, 2))(*x) for x in each]  # type: ignore
    for k, m in enumerate(mapped):
        parts = [w[k].numpy() for w in wanted]
        np.testing.assert_allclose(slopes[k].numpy(), np.stack(parts) if m == 0 else sum(parts), rtol=1e-10, atol=1e-12)
    twice = sw.vmap(sw.vmap(lambda a, b: product(a, b), (0, None)), (None, 0))(numbers(2, 4, 6), numbers(3, 6, 5))
    np.testing.assert_allclose(twice.numpy(), numbers(2, 4, 6)[None] @ numbers(3, 6, 5)[:, None], rtol=1e-12)
    inner = sw.grad(lambda a, b: sw.sum(sw.vmap(sw.vmap(product, (0, None)), (None, 0))(a, b)), (0, 1))
    a, b = numbers(2, 4, 6), numbers(3, 6, 5)
    left, right = inner(a, b)
    np.testing.assert_allclose(left.numpy(), np.broadcast_to(b.sum((0, 2)), a.shape), rtol=1e-12)
    np.testing.assert_allclose(right.numpy(), np.broadcast_to(a.sum((0, 1))[:, None], b.shape), rtol=1e-12)


def test_the_local_view_runs_it_on_each_device() -> None:
    inside = sw.shard_map(attention, MESH, P("x", "y"), P("x", "y"))
    np.testing.assert_allclose(inside(*QKV).numpy(), attend(*QKV), rtol=1e-12)
    slope = sw.grad(lambda q: sw.sum(inside(q, *QKV[1:])))(QKV[0])
    np.testing.assert_allclose(slope.numpy(), sw.grad(lambda q: sw.sum(plain(q, *QKV[1:])))(QKV[0]).numpy(), rtol=1e-10)
    within = sw.shard_map(
        lambda q, k, v: sw.grad(lambda q: sw.sum(attention(q, k, v)))(q), MESH, P("x", "y"), P("x", "y")
    )
    np.testing.assert_allclose(within(*QKV).numpy(), slope.numpy(), rtol=1e-10)


def test_sizes_and_dtypes_of_results_are_said() -> None:
    count = custom_op(
        lambda a: np.stack([np.bincount(row, minlength=4) for row in a]), rule="i[j]->ik", sizes={"k": 4}, dtype="int64"
    )
    x = np.array([[0, 1, 1], [3, 3, 0]], "int32")
    np.testing.assert_array_equal(count(shard(x, MESH, P("x"))).numpy(), [[1, 2, 0, 0], [1, 0, 0, 2]])
    pairs = custom_op(
        lambda a: a[:, :, None] * a[:, None, :] > 0,
        rule="i[j]->ikl",
        sizes={"k": lambda i, j: j, "l": lambda i, j: j},
        dtype=lambda kind: np.dtype(bool),
    )
    assert pairs(shard(numbers(4, 3), MESH, P(("x", "y")))).type_text == "bool[4@x.y, 3, 3]"
    assert custom_op(lambda a, b: a * b, rule="i,->i")(np.arange(3.0), 2.0).numpy().tolist() == [0.0, 2.0, 4.0]


def test_torch_arrays_come_as_torch_arrays() -> None:
    relu = custom_op(lambda a: torch.relu(a), rule="i->i")
    x = shard(torch.tensor([-1.0, 2.0, 3.0]), MESH, P("y"))
    np.testing.assert_array_equal(relu(x).numpy(), [0.0, 2.0, 3.0])


def test_an_abstract_program_knows_it_too() -> None:
    found = sw.explain(attention, *(shard(x, MESH, P("x", None, None, "y")) for x in QKV))
    assert found.bytes > 0
    assert attention.__name__ == "attend"
    assert attention.__doc__ == "Attention, head by head."


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: custom_op(3, rule="i->i"), ArgumentError, "custom_op"),  # type: ignore[arg-type]
        (lambda: custom_op(abs, rule="i"), ArgumentError, "with one arrow, got 'i'"),
        (lambda: custom_op(abs, rule="ii->i"), ArgumentError, "a dim is named twice in 'ii'"),
        (
            lambda: custom_op(abs, rule="i->j"),
            ArgumentError,
            r"'j' is in no operand; give its size: sizes=",
        ),
        (
            lambda: custom_op(abs, rule="i->i sum(i)"),
            ArgumentError,
            "'i' is reduced, so it is in an operand",
        ),
        (lambda: custom_op(abs, rule="ij->i sun(j)"), ArgumentError, r"got 'sun'.\n  did you mean 'sum'"),
        (lambda: custom_op(abs, rule="i;j->i"), ArgumentError, "a dim is a letter, a name or either in"),
        (lambda: product(numbers(2, 3)), ArgumentError, "takes 2 operands by 'ij,jk->ik sum"),
        (
            lambda: product(numbers(2, 3), numbers(2)),
            BindingError,
            r"operand 1 of 'ij,jk->ik sum\(j\)' has 2 dims",
        ),
        (lambda: product(numbers(2, 3), numbers(2, 3)), BindingError, "'j' of .* has size 3 in one operand and 2 in"),
        (
            lambda: custom_op(np.sum, rule="i->i")(numbers(3)),
            BindingError,
            r"sum made float64\[\] of \[3\], and by",
        ),
        (
            lambda: custom_op(lambda a: a > 0, rule="i->i")(numbers(3)),
            BindingError,
            r"made bool\[3\] of \[3\], and by its rule that is float64\[3\]",
        ),
        (
            lambda: sw.grad(lambda x: sw.sum(custom_op(np.exp, rule="i->i")(x)))(numbers(3)),
            DerivativeError,
            "no reverse",
        ),
        (
            lambda: sw.grad(lambda x: sw.sum(custom_op(np.exp, rule="i->i", vjp=lambda ct, out, x: (ct, ct))(x)))(
                numbers(3)
            ),
            DerivativeError,
            "exp: vjp returns 1 cotangents, one per operand, got 2",
        ),
        (
            lambda: sw.grad(lambda x: sw.sum(custom_op(np.exp, rule="i->i", vjp=lambda ct, out, x: ct[:1])(x)))(
                numbers(3)
            ),
            BindingError,
            r"exp: operand 0 is float64\[3\], its cotangent float64\[1\]",
        ),
    ],
)
def test_what_does_not_fit_is_refused(make: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()


def test_a_kernel_cannot_write_to_a_tensor() -> None:
    x = shard(np.array([3.0, 1.0, 2.0]), MESH, P())
    with pytest.raises(ValueError, match="read-only"):
        custom_op(lambda a: a.sort() or a, rule="[i]->[i]")(x)
    assert x.numpy().tolist() == [3.0, 1.0, 2.0]


@pytest.mark.parametrize("dtype", [bool, "bool", np.bool_, np.dtype(bool), lambda kind: bool])
@pytest.mark.parametrize("library", [np.asarray, torch.tensor])
def test_maps_over_nothing_have_the_dtype_that_was_said(library: Any, dtype: Any) -> None:
    signs = custom_op(lambda a: a > 0, rule="i->i", dtype=dtype)
    made = sw.vmap(signs)(shard(library(np.ones((0, 3))), MESH, P()))
    assert (made.shape, made.dtype, made.numpy().dtype) == ((0, 3), np.dtype(bool), np.dtype(bool))
