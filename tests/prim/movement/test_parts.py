"""Tensors on single devices, joined and taken apart again."""

import numpy as np
import pytest

from shardwise import CPU, DeviceMesh, P, Tensor, asarray, jvp, shard, to_device, vjp
from shardwise.prim.movement.parts import (
    join,
    join_layouts,
    on,
    own_copy,
    stack_parts,
    take_part,
    unstack_part,
    zeros_like,
)
from tests.prim.cases import held, same

RNG = np.random.default_rng(0)


def parts(*sizes: int) -> list[Tensor]:
    return [to_device(RNG.standard_normal((2, size)), CPU(i)) for i, size in enumerate(sizes)]


def test_joined_parts_are_shards_of_one_tensor() -> None:
    given = parts(1, 0, 3)
    whole = join(*given, dim=1)
    assert whole.shape == (2, 4)
    assert whole.mesh.devices == (CPU(0), CPU(1), CPU(2))
    assert same(whole.numpy(), np.concatenate([p.numpy() for p in given], 1))
    for i, piece in enumerate(given):
        assert same(take_part(whole, part=i, dim=1).numpy(), piece.numpy())
        assert take_part(whole, part=i, dim=1).device == CPU(i)
    assert join_layouts([(2, 1)], [CPU(0)], 0)[0].is_replicated


def test_stacked_parts_come_apart_again() -> None:
    given = [asarray(np.arange(2.0)), asarray(np.ones(2))]
    whole = stack_parts(*given)
    assert whole.shape == (2, 2)
    assert same(unstack_part(whole, part=1, count=2).numpy(), np.ones(2))
    scalars = stack_parts(asarray(1.0), asarray(2.0))
    assert isinstance(unstack_part(scalars, part=1, count=2).local(0), np.ndarray)


@pytest.mark.parametrize(
    ("f", "count"),
    [
        (lambda *p: join(*p, dim=1), 3),
        (lambda *p: take_part(join(*p, dim=1), part=1, dim=1), 3),
        (lambda *p: stack_parts(*(to_device(x, CPU(0)) for x in p)), 3),
        (lambda *p: unstack_part(stack_parts(*(to_device(x, CPU(0)) for x in p)), part=2, count=3), 3),
        (lambda p: own_copy(p), 1),
    ],
)
def test_derivatives_are_adjoint(f, count: int) -> None:
    given = parts(*[2] * count)
    y, back = vjp(f, *given)
    w, tangents = RNG.standard_normal(y.shape), [RNG.standard_normal((2, 2)) for _ in given]
    gradients = back(w)
    assert [g.device for g in gradients] == [p.device for p in given]
    forward = jvp(f, given, tangents)[1]
    want = sum((g.numpy() * t).sum() for g, t in zip(gradients, tangents, strict=True))
    assert np.isclose((forward.numpy() * w).sum(), want)
    one = jvp(lambda last: f(*given[:-1], last), (given[-1],), (tangents[-1],))[1]
    all_but = [np.zeros((2, 2))] * (count - 1)
    assert np.allclose(one.numpy(), jvp(f, given, [*all_but, tangents[-1]])[1].numpy())


def test_own_copies_share_no_memory() -> None:
    x = shard(np.arange(4.0), DeviceMesh((2,), ("x",)), P("x"))
    y = own_copy(x)
    assert all(same(a, b) and not np.shares_memory(a, b) for a, b in zip(held(x), held(y), strict=True))


def test_zeros_like_keep_dtype_and_library() -> None:
    torch = pytest.importorskip("torch")
    made = zeros_like(asarray(torch.ones(2, dtype=torch.bfloat16)), (3,), on(CPU(1), 1))
    assert made.local(0).dtype == torch.bfloat16
    assert made.device == CPU(1)
    assert same(zeros_like(asarray(np.ones(2, "int8")), (1, 2), on(CPU(0), 2)).numpy(), np.zeros((1, 2), "int8"))
