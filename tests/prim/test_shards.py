"""Primitives on shards: each one's derivative is its adjoint, also of the derivative itself."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shardwise import BindingError, Cut, DeviceMesh, Layout, LayoutError, P, ReduceOp, Tensor, jvp, shard, vjp
from shardwise.prim.shards import embed, fold, folded, local_map, permute_shards, relabelled, restrict, unfold
from tests.prim.cases import held, same

MESH = DeviceMesh((2, 3), ("a", "b"))
A, B = MESH.axis("a"), MESH.axis("b")
RNG = np.random.default_rng(0)

SPLIT = Layout(MESH, ["a", "b"])
PART = MESH.fix(a=1)

LINEAR: dict[str, tuple[Callable[[Tensor], Tensor], Layout, tuple[int, ...]]] = {
    "fold": (lambda x: fold(x, axes=(A,), op=ReduceOp.SUM), SPLIT, (4, 6)),
    "fold both": (lambda x: fold(x, axes=(B, A), op=ReduceOp.AVG), SPLIT, (4, 6)),
    "unfold": (lambda x: unfold(x, layout=SPLIT, shape=(4, 6)), Layout(MESH, [None, "b"]), (2, 6)),
    "permute": (lambda x: permute_shards(x, sources=(1, 0, None, None, 2, 5)), SPLIT, (4, 6)),
    "local_map": (
        lambda x: local_map(
            x,
            kernel=lambda a: a.reshape(2, 2),
            transpose=lambda a: a.reshape(4),
            layout=Layout(MESH, ["a", "b"]),
            shape=(4, 6),
        ),
        Layout(MESH, [None]),
        (4,),
    ),
    "restrict": (lambda x: restrict(x, axis=A, at=1), SPLIT, (4, 6)),
    "embed": (lambda x: embed(x, axis=A, at=1, layout=SPLIT, shape=(4, 6)), Layout(PART, [None, "b"]), (2, 6)),
}


@pytest.mark.parametrize("name", LINEAR)
def test_derivatives_are_adjoint(name: str) -> None:
    f, layout, shape = LINEAR[name]
    x = shard(RNG.standard_normal(shape), layout.mesh, layout)
    y, back = vjp(f, x)
    t, w = RNG.standard_normal(shape), RNG.standard_normal(y.shape)
    tangent = jvp(f, (x,), (t,))[1]
    # They are linear, so that the tangent is the function of the direction.
    assert np.allclose(tangent.numpy(), f(shard(t, layout.mesh, layout)).numpy())
    gradient = back(w)[0]
    assert gradient.layout is layout
    assert np.isclose((tangent.numpy() * w).sum(), (gradient.numpy() * t).sum())
    # The derivative of the reverse derivative is the function again.
    again = vjp(lambda ct: back(ct)[0], w)[1](t)[0]
    assert np.allclose(again.numpy(), tangent.numpy())


def test_tangents_in_another_layout_are_brought_beside_their_values() -> None:
    constant = shard(RNG.standard_normal((4, 6)), MESH, SPLIT)
    x = shard(RNG.standard_normal((4, 6)), MESH, P())
    for name in ("fold", "permute", "restrict"):
        f = LINEAR[name][0]
        t = RNG.standard_normal((4, 6))
        got = jvp(lambda x, f=f: f(constant + x), (x,), (t,))[1]
        assert np.allclose(got.numpy(), f(shard(t, MESH, SPLIT)).numpy())


def test_fold_sees_shards_as_terms() -> None:
    layout, shape = folded(SPLIT, (4, 6), (A,), ReduceOp.MAX)
    assert layout is Layout(MESH, [None, "b"], ["a"], "max")
    assert shape == (2, 6)
    with pytest.raises(
        BindingError, match="reducing over b adds the shards of dim 1 up, so they must be equal; 7 elem"
    ):
        folded(SPLIT, (4, 7), (B,), ReduceOp.SUM)
    with pytest.raises(BindingError, match="over 3 devices with a halo are not"):
        folded(Layout(MESH, [None, Cut("b", halo=1)]), (4, 6), (B,), ReduceOp.SUM)
    with pytest.raises(BindingError, match="reduction 'avg' is not defined for int64"):
        fold(shard(np.ones((4, 6), int), MESH, SPLIT), axes=(A,), op=ReduceOp.AVG)


def test_relabelled_keeps_every_array() -> None:
    x = shard(np.arange(6.0), MESH, P(("a", "b")))
    y = relabelled(x, Layout(MESH, ["b"], ["a"]), (3,))
    assert [a is b for a, b in zip(x.arrays, [y.arrays[y.storage.index(d)] for d in range(6)], strict=True)] == [
        True
    ] * 6
    assert same(y.numpy(), np.array([3.0, 5, 7]))


def test_permutations_that_would_part_replicas_are_refused() -> None:
    x = shard(np.arange(2.0), MESH, P("a"))
    with pytest.raises(
        LayoutError, match=r"devices \(0, 1, 2\) hold the same data under \[a\], but would receive diff"
    ):
        permute_shards(x, sources=(3, None, None, None, None, None))
    uneven = shard(np.arange(4.0), DeviceMesh((3,), ("x",)), P("x"))
    with pytest.raises(LayoutError, match=r"equal shapes; devices \(0,\) hold \(2,\) and devices \(1,\) hold \(1,\)"):
        permute_shards(uneven, sources=(None, 0, None))


def test_positional_maps_know_the_device() -> None:
    x = shard(np.ones(2), MESH, P())
    how: dict[str, Any] = {"kernel": lambda a, device: a * device, "transpose": lambda a, device: a * device}
    y = local_map(x, **how, positional=True, layout=Layout(MESH, [("a", "b")]), shape=(12,))
    assert [h[0] for h in held(y)] == [0, 1, 2, 3, 4, 5]


def test_embedded_values_are_zero_elsewhere() -> None:
    x = shard(np.arange(1.0, 4.0), PART, P("b"))
    y = embed(x, axis=A, at=1, layout=Layout(MESH, [("a", "b")]), shape=(6,))
    assert [h.tolist() for h in held(y)] == [[0.0], [0.0], [0.0], [1.0], [2.0], [3.0]]
    assert same(restrict(y, axis=A, at=1).numpy(), np.arange(1.0, 4.0))
