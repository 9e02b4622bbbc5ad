"""Primitives on shards: each one's derivative is its adjoint, also of the derivative itself."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shardwise import (
    BindingError,
    Cut,
    DerivativeError,
    DeviceMesh,
    Layout,
    LayoutError,
    P,
    ReduceOp,
    Tensor,
    asarray,
    jvp,
    shard,
    vjp,
)
from shardwise.layout.axis import Axis
from shardwise.prim.movement.shards import (
    average,
    cut_into,
    divide_by,
    embed,
    fold,
    fold_layout,
    lengths_of_terms,
    local_map,
    permute_shards,
    reduce_copies,
    relabel,
    restrict,
    unfold,
)
from tests.layout.oracle import held_box, position
from tests.ops.cases import sent
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
    "restrict": (lambda x: restrict(x, axis=A, position=1), SPLIT, (4, 6)),
    "embed": (lambda x: embed(x, axis=A, position=1, layout=SPLIT, shape=(4, 6)), Layout(PART, [None, "b"]), (2, 6)),
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
    layout, shape = fold_layout(SPLIT, (4, 6), (A,), ReduceOp.MAX)
    assert layout is Layout(MESH, [None, "b"], ["a"], "max")
    assert shape == (2, 6)
    with pytest.raises(
        BindingError, match="reducing over b adds the shards of dim 1 up, so they must be equal; 7 elem"
    ):
        fold_layout(SPLIT, (4, 7), (B,), ReduceOp.SUM)
    with pytest.raises(BindingError, match="over 3 devices with a halo are not"):
        fold_layout(Layout(MESH, [None, Cut("b", halo=1)]), (4, 6), (B,), ReduceOp.SUM)
    with pytest.raises(BindingError, match="reduction 'avg' is not defined for int64"):
        fold(shard(np.ones((4, 6), int), MESH, SPLIT), axes=(A,), op=ReduceOp.AVG)


def test_relabelled_keeps_every_array() -> None:
    x = shard(np.arange(6.0), MESH, P(("a", "b")))
    y = relabel(x, Layout(MESH, ["b"], ["a"]), (3,))
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
    y = embed(x, axis=A, position=1, layout=Layout(MESH, [("a", "b")]), shape=(6,))
    assert [h.tolist() for h in held(y)] == [[0.0], [0.0], [0.0], [1.0], [2.0], [3.0]]
    assert same(restrict(y, axis=A, position=1).numpy(), np.arange(1.0, 4.0))


# -- copies, counts and lengths --------------------------------------------------------------------------


REDUCTIONS = {
    ReduceOp.SUM: lambda terms: np.add.reduce(terms, axis=0, dtype=terms.dtype),
    ReduceOp.PROD: lambda terms: np.multiply.reduce(terms, axis=0, dtype=terms.dtype),
    ReduceOp.MAX: lambda terms: terms.max(axis=0),
    ReduceOp.BOR: lambda terms: np.bitwise_or.reduce(terms, axis=0),
    ReduceOp.BXOR: lambda terms: np.bitwise_xor.reduce(terms, axis=0),
}


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "float32", "float64", "complex64"])
@pytest.mark.parametrize("op", REDUCTIONS, ids=str)
def test_equal_copies_are_reduced_as_one_after_the_other(op: ReduceOp, dtype: str) -> None:
    kind = np.dtype(dtype).kind
    if (op in (ReduceOp.BOR, ReduceOp.BXOR) and kind not in "iu") or (op is ReduceOp.MAX and kind == "c"):
        return
    value = np.array([0, 1, 3, 2] if kind == "u" else [0, -1, 3, 2]).astype(dtype)
    for count in (1, 2, 3, 4, 5, 6, 12):
        got = reduce_copies(asarray(value), op, count)
        assert got.dtype == dtype
        assert same(got.numpy(), REDUCTIONS[op](np.stack([value] * count)), exact=kind != "c")


def test_counts_that_a_dtype_cannot_hold_count_all_the_same() -> None:
    half, brain = np.array([0.5, -1.0], "float16"), np.array([0.5, -1.0], "bfloat16")
    assert (
        reduce_copies(asarray(half), ReduceOp.SUM, 2049).numpy().tolist()
        == np.array([1024.5, -2049], "float16").tolist()
    )
    assert reduce_copies(asarray(brain), ReduceOp.SUM, 257).numpy().astype("float32").tolist() == [128.0, -256.0]
    assert reduce_copies(asarray(brain), ReduceOp.PROD, 257).numpy().astype("float32")[1] == -1.0  # 256 would be even
    assert divide_by(asarray(np.full(1, 257, "float16")), 257).numpy().tolist() == [1.0]
    for count in (257, 70000):
        got = divide_by(asarray(np.array([3.0]).astype("bfloat16")), count)
        assert got.dtype == "bfloat16"
        assert got.numpy()[0] == np.float32(3.0 / count).astype("bfloat16")
    assert divide_by(asarray(np.full(1, 60000, "float16")), 70000).numpy()[0] == np.float16(60000 / 70000)


def test_lengths_of_terms_are_those_of_groups_of_devices() -> None:
    mesh = DeviceMesh((4, 3), ("p", "q"))
    low, high, other = Axis("p", 1, 2, 4), Axis("p", 2, 2, 4), mesh.axis("q")
    rng, found = np.random.default_rng(0), {True: 0, False: 0}
    for trial in range(120):
        axes = tuple([low, high, other][k] for k in rng.permutation(3))
        gone = [axis for axis in axes if rng.integers(2)]
        lengths = rng.integers(0, 3, 12)
        if trial % 3:  # equal along what is gone
            shape, along = [a.size for a in axes], tuple(k for k, a in enumerate(axes) if a in gone)
            grid = lengths.reshape(shape)
            lengths = np.broadcast_to(grid.max(axis=along, keepdims=True), shape).ravel()
        layout = Layout(mesh, [Cut(axes, offsets=(0, *np.cumsum(lengths).tolist()))])
        size, kept = int(lengths.sum()), [a for a in axes if a not in gone]
        held_by: dict[int, set[int]] = {}
        for device in range(12):
            ((start, stop),) = held_box(layout, (size,), device)
            held_by.setdefault(position(mesh, kept, device), set()).add(stop - start)
        alike = all(len(some) == 1 for some in held_by.values())
        got = lengths_of_terms(layout, (size,), 0, gone)
        found[alike] += 1
        assert (None if got is None else list(got)) == (
            [held_by[part].pop() for part in range(len(held_by))] if alike else None
        )
    assert min(found.values()) > 20
    assert lengths_of_terms(Layout(mesh, [Cut("p", halo=1)]), (8,), 0, [mesh.axis("p")]) is None
    assert lengths_of_terms(Layout(mesh, [Cut("p", halo=(0, 1))]), (8,), 0, [mesh.axis("p")]) is None


@pytest.mark.parametrize(
    "lengths", [(2, 2, 2), (2, 2, 1), (2, 1, 1), (1, 2, 1), (3, 1, 1), (0, 0, 0), (1, 0, 0), (0, 1, 0)]
)
def test_balanced_lengths_need_no_offsets(lengths: tuple[int, ...]) -> None:
    balanced = [len(part) for part in np.array_split(np.arange(sum(lengths)), 3)] == list(lengths)
    assert cut_into((B,), lengths) == (Cut((B,)) if balanced else Cut((B,), offsets=(0, *np.cumsum(lengths).tolist())))


def test_folds_of_uneven_shards_that_are_equal_in_groups() -> None:
    layout = Layout(MESH, [Cut(("a", "b"), offsets=(0, 1, 3, 3, 4, 6, 6)), None])
    got, shape = fold_layout(layout, (6, 2), (A,), ReduceOp.SUM)
    assert got is Layout(MESH, [Cut("b", offsets=(0, 1, 3, 3)), None], ["a"])
    assert shape == (3, 2)
    pending = Layout(MESH, ["b"], ["a"], "max")
    assert fold_layout(pending, (6,), (B,), ReduceOp.MAX) == (Layout(MESH, [None], ["a", "b"], "max"), (2,))
    haloed = Layout(MESH, [Cut("a", halo=1), "b"])
    assert fold_layout(haloed, (5, 6), (B,), ReduceOp.SUM)[0] is Layout(MESH, [Cut("a", halo=1), None], ["b"])


# -- derivatives of reductions of shards -----------------------------------------------------------------


@pytest.mark.parametrize("op", [ReduceOp.MAX, ReduceOp.MIN, ReduceOp.PROD, ReduceOp.AVG, ReduceOp.SUM], ids=str)
@pytest.mark.parametrize("axes", [(A,), (B,), (A, B)], ids=str)
def test_each_term_has_its_share_of_the_derivative(op: ReduceOp, axes: tuple[Axis, ...]) -> None:
    count = int(np.prod([axis.size for axis in axes]))
    terms = np.random.default_rng(count).integers(-2, 3, (count, 4)).astype("float64")  # with ties and zeros
    x = shard(terms.reshape(-1), MESH, P(tuple(str(axis) for axis in axes)))
    weight, tangent = np.array([1.0, -2.0, 3.0, 0.5]), np.random.default_rng(1).standard_normal(terms.shape)
    if op in (ReduceOp.MAX, ReduceOp.MIN):
        best = terms == (terms.max(axis=0) if op is ReduceOp.MAX else terms.min(axis=0))
        slope = best / best.sum(axis=0)
    elif op is ReduceOp.PROD:
        slope = np.array([np.prod(np.delete(terms, i, axis=0), axis=0) for i in range(count)])
    else:
        slope = np.full(terms.shape, 1.0 if op is ReduceOp.SUM else 1 / count)
    out, back = vjp(lambda x: fold(x, axes=axes, op=op), x)
    np.testing.assert_allclose(back(weight)[0].numpy(), (slope * weight).ravel())
    assert back(weight)[0].layout is x.layout
    pushed = jvp(lambda x: fold(x, axes=axes, op=op), (x,), (tangent.reshape(-1),))[1]
    np.testing.assert_allclose(pushed.numpy(), (slope * tangent).sum(axis=0))
    assert out.shape == (4,)


@pytest.mark.parametrize("op", [ReduceOp.MAX, ReduceOp.PROD, ReduceOp.AVG], ids=str)
def test_one_term_is_its_own_reduction(op: ReduceOp) -> None:
    mesh = DeviceMesh((1, 2), ("a", "b"))
    x = shard(np.array([2.0, 0.0]), mesh, P("a"))
    _, back = vjp(lambda x: fold(x, axes=(mesh.axis("a"),), op=op), x)
    assert back(np.array([3.0, 5.0]))[0].numpy().tolist() == [3.0, 5.0]


def test_reductions_of_bits_have_no_derivative() -> None:
    x = shard(np.arange(4), MESH, P("a"))
    out = fold(x, axes=(A,), op=ReduceOp.BOR)
    assert fold.vjp is not None
    with pytest.raises(DerivativeError, match=r"^the reduction bor has no derivative\.$"):
        fold.vjp(shard(np.ones(2, int), MESH, P()), out, x, axes=(A,), op=ReduceOp.BOR)


def test_an_average_stands_in_the_place_of_every_term() -> None:
    x = shard(np.arange(6.0), MESH, P(("a", "b")))
    made, back = vjp(lambda x: average(x, axes=(B,)), x)
    assert made.numpy().tolist() == [1.0, 1.0, 1.0, 4.0, 4.0, 4.0]
    assert made.layout is x.layout
    assert back(np.array([3.0, 0, 0, 6, 0, 0]))[0].numpy().tolist() == [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]


# -- who sends what to whom ------------------------------------------------------------------------------


def test_only_devices_that_get_another_shard_are_sent_one() -> None:
    x = shard(np.arange(6.0), MESH, P(("a", "b")))
    made, size = sent(lambda: permute_shards(x, sources=(0, 2, 1, None, None, 3)))
    assert made.numpy().tolist() == [0.0, 2.0, 1.0, 0.0, 0.0, 3.0]
    assert size == 3 * 8
    twice = shard(np.arange(6.0), MESH, P("b"))
    made, size = sent(lambda: permute_shards(twice, sources=(1, 0, 2, 4, 3, 5)))
    assert made.numpy().tolist() == [2.0, 3.0, 0.0, 1.0, 4.0, 5.0]
    assert size == 4 * 2 * 8
    for sources in ((3, 4, 5, 0, 1, 2), (0, 1, 2, 3, 4, 5)):
        assert sent(lambda sources=sources: permute_shards(twice, sources=sources))[1] == 0  # a replica has the same


def test_values_are_permuted_not_the_terms_of_their_sum() -> None:
    pending = shard(np.arange(2.0), MESH, P("a", unreduced=["b"]))
    with pytest.raises(LayoutError, match=r"devices \(0, 1, 2\) hold the same data under \[a\]"):
        permute_shards(pending, sources=(3, 1, 2, 0, 4, 5))
    made = permute_shards(pending, sources=(3, 4, 5, 0, 1, 2))
    assert made.numpy().tolist() == [1.0, 0.0]
    assert made.layout is pending.layout


def test_devices_that_hold_equal_arrays_share_what_is_made_of_them() -> None:
    x, calls = shard(np.ones(2), MESH, P()), []

    def kernel(a: Any) -> Any:
        calls.append(a)
        return a * 2

    y = local_map(x, kernel=kernel, transpose=kernel, layout=Layout(MESH, [("a", "b")]), shape=(12,))
    assert len(calls) == 1
    assert all(array is y.arrays[0] for array in y.arrays)
    assert y.numpy().tolist() == [2.0] * 12


def test_the_transpose_of_a_positional_map_knows_the_device_too() -> None:
    x = shard(np.ones(2), MESH, P())
    how: dict[str, Any] = {"kernel": lambda a, device: a * device, "transpose": lambda a, device: a * (device + 1)}
    _, back = vjp(lambda x: local_map(x, **how, positional=True, layout=Layout(MESH, [("a", "b")]), shape=(12,)), x)
    assert back(np.ones(12))[0].numpy().tolist() == [21.0, 21.0]


@pytest.mark.parametrize("name", ["x", "y", "z"])
def test_part_of_a_mesh_is_found_by_coordinates(name: str) -> None:
    mesh = DeviceMesh((2, 3, 2), ("x", "y", "z"))
    axis, names = mesh.axis(name), ["x", "y", "z"]
    x = shard(np.arange(24.0).reshape(12, 2), mesh, P(("x", "y", "z")))
    layout, shape = x.layout, x.shape
    for at in range(axis.size):
        part = restrict(x, axis=axis, position=at)
        assert part.shape == (12 // axis.size, 2)
        kept = [d for d in range(12) if mesh.coords(d)[names.index(name)] == at]
        assert [h.tolist() for h in held(part)] == [held(x)[d].tolist() for d in kept]
        back = embed(part, axis=axis, position=at, layout=layout, shape=shape)
        zero = [[0.0, 0.0]]
        assert [h.tolist() for h in held(back)] == [held(x)[d].tolist() if d in kept else zero for d in range(12)]
