"""Traced functions, printed, read again and run on global values, give the numbers that they give eagerly."""

import re
from typing import Any, cast

import numpy as np
import optree
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardwise as sw
from shardwise import AbstractEngine, DeviceMesh, P, engine_context, grad, jvp, shard, stop_gradient, value_and_grad
from shardwise.errors import ProgramError
from shardwise.ir import execute, parse_module, print_module, trace, verify
from tests.ir.tracing.test_formulas import FORMULAS
from tests.prim.arithmetic.declared import BITS, TWO

MESH = DeviceMesh((2, 2), ("x", "y"))
RNG = np.random.default_rng(0)


def same(fn: Any, *args: Any, rtol: float = 1e-9) -> str:
    """Check a traced function against the eager one, on the arguments it was traced with and on others."""
    text = print_module(trace(fn, *args))
    module = parse_module(text)
    verify(module)
    leaves, tree = optree.tree_flatten(cast(Any, args))
    layouts = [leaf.layout if isinstance(leaf, sw.Tensor) else None for leaf in leaves]
    for factor in (1, 2):  # what depends on the arguments must not have become a constant
        values = [(np.asarray(leaf) * factor).astype(np.asarray(leaf).dtype) for leaf in leaves]
        placed = [v if at is None else shard(v, at.mesh, at) for v, at in zip(values, layouts, strict=True)]
        wanted = optree.tree_leaves(fn(*optree.tree_unflatten(tree, placed)))
        made = execute(module, *values)
        for got, want in zip(made if isinstance(made, tuple) else (made,), wanted, strict=True):
            assert got.dtype == np.asarray(want).dtype
            np.testing.assert_allclose(got, np.asarray(want), rtol=rtol, atol=1e-12)
    return text


def spread(shape: tuple[int, ...], *axes: Any, dtype: str = "float64") -> sw.Tensor:
    return shard(RNG.normal(size=shape).astype(dtype), MESH, P(*axes))


# -- programs --------------------------------------------------------------------------------------------


def mlp(weights: list[Any], x: Any) -> Any:
    for w, b in weights[:-1]:
        x = sw.gelu(sw.matmul(x, w) + b)
    w, b = weights[-1]
    return sw.matmul(x, w) + b


def mlp_loss(weights: list[Any], x: Any, y: Any) -> Any:
    return sw.mean(sw.square(mlp(weights, x) - y))


WEIGHTS = [
    (spread((6, 8), None, "y"), spread((8,), "y")),
    (spread((8, 4), "y", None), spread((4,), None)),
]
BATCH, LABELS = spread((8, 6), "x", None), spread((8, 4), "x", None)


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = sw.einsum("bhqd,bhkd->bhqk", q, k) / float(np.sqrt(q.shape[-1]))
    return sw.einsum("bhqk,bhkd->bhqd", sw.softmax(scores, axis=-1), v)


HEADS = [spread((2, 4, 3, 5), "x", "y") for _ in range(3)]


def stencil(u: Any) -> Any:
    around = sw.shift(u, "x", 1) + sw.shift(u, "x", -1, rotate=False)
    return u + 0.1 * (around - 2.0 * u)


FIELD = spread((8, 6), "x", "y")


@pytest.mark.parametrize(
    ("fn", "args"),
    [
        (mlp, (WEIGHTS, BATCH)),
        (mlp_loss, (WEIGHTS, BATCH, LABELS)),
        (grad(mlp_loss), (WEIGHTS, BATCH, LABELS)),
        (value_and_grad(mlp_loss, argnums=(0, 1)), (WEIGHTS, BATCH, LABELS)),
        (attention, HEADS),
        (grad(lambda q, k, v: sw.sum(attention(q, k, v) ** 2), argnums=(0, 1, 2)), HEADS),
        (stencil, (FIELD,)),
        (grad(lambda u: sw.sum(stencil(stencil(u)) ** 2)), (FIELD,)),
        (lambda u: jvp(stencil, (u,), (u,)), (FIELD,)),
        (grad(lambda u: sw.sum(grad(lambda v: sw.sum(sw.tanh(v) * v))(u) ** 2)), (FIELD,)),
    ],
    ids=["mlp", "loss", "its gradient", "both", "attention", "its gradient", "stencil", "gradient", "jvp", "second"],
)
def test_programs_and_their_derivatives(fn, args):
    same(fn, *args)


# -- primitives ------------------------------------------------------------------------------------------

# Where a function is not defined on all numbers, and what it takes besides.
POSITIVE = ("log", "log2", "log10", "sqrt", "pow", "reciprocal", "divide", "remainder", "floor_divide")
SMALL = ("asin", "acos", "atanh", "log1p")


def sample(name: str, shape: tuple[int, ...]) -> np.ndarray:
    values = RNG.normal(size=shape)
    if name in POSITIVE:
        return np.abs(values) + 0.5
    if name in SMALL:
        return np.clip(values / 10, -0.2, 0.2)
    return np.abs(values) + 1.5 if name == "acosh" else np.round(values, 1)


@pytest.mark.parametrize("name", sorted(set(FORMULAS) - set(BITS)))
def test_every_elementwise_primitive(name):
    function = getattr(sw, name)
    x = shard(sample(name, (4, 3)), MESH, P("x", "y"))
    if name not in TWO:
        same(function, x, rtol=1e-7)
        return
    y = shard(sample(name, (3,)), MESH, P("y"))
    same(function, x, y, rtol=1e-7)  # one operand is broadcast
    same(lambda x: function(x, 2.0), x, rtol=1e-7)
    same(lambda x: function(3.0, x), x, rtol=1e-7)


@pytest.mark.parametrize("name", BITS)
def test_every_primitive_on_bits(name):
    x = shard(RNG.integers(0, 50, (4, 3)), MESH, P("x", "y"))
    by = shard(RNG.integers(0, 4, (3,)), MESH, P("y"))
    same(lambda x, y: getattr(sw, name)(x, *([y] if name != "bitwise_invert" else [])) + 0 * y, x, by)


@given(st.sampled_from(["float16", "float32", "float64", "int8", "int32", "int64", "bool"]), st.data())
def test_conversions_and_mixed_dtypes(dtype, data):
    other = data.draw(st.sampled_from(["float32", "float64", "int16", "int64", "bool"]))
    x = shard(RNG.integers(0, 3, (4,)).astype(dtype), MESH, P("x"))
    y = shard(RNG.integers(1, 3, (4,)).astype(other), MESH, P("y"))
    same(lambda x: sw.astype(x, other), x)
    same(lambda x, y: sw.where(sw.less(x, y), x, y), x, y)
    if dtype != "bool" and other != "bool":
        same(lambda x, y: x * y + 1, x, y, rtol=1e-3)


@pytest.mark.parametrize("op", ["sum", "prod", "max", "min", "mean", "var", "any", "all", "logsumexp"])
@pytest.mark.parametrize("axis", [None, 0, (0, 2)])
def test_reductions(op, axis):
    same(lambda x: getattr(sw, op)(x, axis=axis), spread((4, 3, 2), "x", None, "y"))
    same(lambda x: getattr(sw, op)(x, axis=axis, keepdims=True), spread((4, 3, 2), "x", None, "y"))


@pytest.mark.parametrize(
    "terms",
    ["ij,jk->ik", "ij,kj->ik", "bij,bjk->bik", "ij->ji", "ij->i", "ij,ij->", "i,j->ij", "ij,jk,kl->il", "ab,b->a"],
)
def test_contractions(terms):
    sizes = dict(zip("ijklab", (4, 2, 6, 2, 4, 2), strict=True))
    operands = [spread(tuple(sizes[c] for c in t), "x") for t in terms.split("->")[0].split(",")]
    text = same(lambda *xs: sw.einsum(terms, *xs), *operands)
    assert ("linalg.matmul" in text) == (terms == "ij,jk->ik")


@given(st.data())
def test_reshapes(data):
    old = data.draw(st.lists(st.sampled_from([1, 2, 3, 4]), max_size=4))
    sizes = list(data.draw(st.permutations(old)))
    ones = data.draw(st.integers(0, 2))
    new = (*sizes, *[1] * ones)
    same(lambda x: sw.reshape(x, new), spread(tuple(old)))


def test_shapes():
    x = spread((4, 1, 6), "x", None, "y")
    same(lambda x: sw.squeeze(sw.permute_dims(x, (2, 0, 1)), axis=2), x)
    same(lambda x: sw.broadcast_to(sw.expand_dims(x, axis=0), (3, 4, 5, 6)), x)


def test_communication_is_traced_as_what_it_does_to_the_whole():
    x = spread((8, 4), "x", "y")
    same(lambda x: sw.all_gather(x, 0), x)
    same(lambda x: sw.all_reduce(x, reduce_axes="x"), x)  # adds shards up
    same(lambda x: sw.all_reduce(x, reduce_op="max"), x)
    same(lambda x: sw.pmean(x, "y"), x)
    same(lambda x: sw.reduce_scatter(x, 1, reduce_axes="x"), x)
    same(lambda x: sw.all_to_all(x, 0, 1), x)
    same(lambda x: sw.all_to_all(x, 0, 0), x)  # exchanges blocks
    same(lambda x: sw.ppermute(x, [(0, 3), (3, 0)]), x)
    same(lambda x: grad(lambda x: sw.sum(sw.all_reduce(x, reduce_axes="y") ** 2))(x), x)


def test_dims_that_are_cut_unevenly_are_traced_whole():
    x = spread((4, 5), "x", "y")
    same(lambda x: sw.all_reduce(x, reduce_axes="x"), x)
    same(lambda x: grad(lambda x: sw.sum(sw.all_reduce(x, reduce_axes="x") ** 2))(x), x)
    same(lambda x: sw.all_to_all(x, 1, 1), x)
    same(lambda x: grad(lambda x: sw.sum(sw.all_to_all(x, 1, 1)[:, :2] ** 2))(x), x)


# -- annotations -----------------------------------------------------------------------------------------


def shardings(text: str) -> list[str]:
    return re.findall(r"split_axes = (\[.*\]\]).* : !shard", text)


def test_a_reshard_is_a_user_annotation_after_a_producer_annotation():
    x = spread((4, 4), "x", None)
    text = same(lambda x: shard(x, MESH, P(None, "y")) * 2.0, x)
    assert shardings(text) == ["[[0], []]", "[[], [1]]"]
    assert text.count("annotate_for_users") == 1


def test_annotations_do_not_follow_one_another():
    x = spread((4, 4), "x", None)
    text = same(lambda x: shard(shard(x * 2.0, MESH, P("y", None)), MESH, P(None, "x")), x)
    sources = re.findall(r"(%\d+) = shard.shard (%\d+) .*annotate_for_users", text)
    assert len({source for _, source in sources}) == 1
    assert not {made for made, _ in sources} & {source for _, source in sources}


def test_sub_axes_become_axes_of_a_finer_grid():
    mesh = DeviceMesh((8,), ("x",))
    x = shard(RNG.normal(size=(8, 4)), mesh, P("x:(1)4", "x:(4)2"))
    text = same(lambda x: x + shard(x, mesh, P("x:(1)2", "x:(2)4")), x)
    assert "shard.grid @mesh(shape = 2x2x2)" in text
    assert shardings(text) == ["[[0, 1], [2]]", "[[0], [1, 2]]"]


def test_sub_axes_without_a_common_grid_are_an_error():
    mesh = DeviceMesh((6,), ("x",))
    x = shard(np.zeros((6, 6)), mesh, P("x:(1)2", "x:(2)3"))
    with pytest.raises(
        ProgramError, match="axis x of size 6 is cut at 2 and at 3 positions, which no grid has axes for"
    ):
        trace(lambda x: x + shard(x, mesh, P("x:(1)3", "x:(3)2")), x)


def test_bounds_and_halos_are_said():
    mesh = DeviceMesh((2,), ("x",))
    chunks = shard(np.zeros(3), mesh, sw.Layout(mesh, [sw.Cut("x", split="chunk")]))
    assert "sharded_dims_offsets = [0, 2, 3]" in same(lambda x: x + 1.0, chunks)
    x = shard(np.zeros(4), mesh, P("x"))
    assert "halo_sizes = [1, 2]" in same(lambda x: sw.halo_exchange(x, 0, (1, 2), edge="pad"), x)
    with pytest.raises(ProgramError, match='use edge="pad" on a dim that is split'):
        trace(lambda x: sw.halo_exchange(x, 0, 1), x)


def test_without_devices_there_are_no_annotations():
    text = same(lambda x: sw.sum(x * x), np.arange(3.0))
    assert "shard." not in text


# -- constants and errors --------------------------------------------------------------------------------


def test_what_is_not_an_argument_is_a_constant():
    c = spread((4, 4), "x", "y")
    text = same(lambda x: x + c + np.ones((4, 4)), spread((4, 4)))
    assert text.count("dense<") == 1  # ones are a splat
    same(lambda x: (x, c, 3.0), spread((4, 4)))


def test_stop_gradient_keeps_what_is_traced():
    same(grad(lambda x: sw.sum(x * stop_gradient(x * x))), spread((4,), "x"))


def test_reading_values_is_an_error():
    with pytest.raises(ProgramError, match=r"the values of bool\[\] were read inside a function that is being traced"):
        trace(lambda x: x if sw.sum(x) > 0 else -x, spread((4,), "x"))
    seen = []
    trace(lambda x: (seen.append(repr(x)), x)[1], spread((4,), "x"))
    assert seen == ["Tensor(float64[4@x] on x=2, y=2, being traced)"]


@pytest.mark.parametrize(
    ("fn", "x", "message"),
    [
        (lambda x: sw.nextafter(x, 1.0), np.zeros(2), "nextafter cannot be written as ops on whole tensors"),
        (
            lambda x: sw.shard_map(lambda a: a, MESH, P("x"), P("x"))(x),
            np.zeros(4),
            "cannot be written as ops on whole",
        ),
        (
            lambda x: x + 1,
            np.zeros(2, "uint8"),
            "uint8 has no element type that arith computes with.\n  dtypes: bool, int8",
        ),
        (lambda x: x + 1, np.zeros(2, "complex64"), "complex64 has no element type"),
    ],
)
def test_what_cannot_be_said_is_an_error(fn, x, message):
    with pytest.raises(ProgramError, match=re.escape(message)):
        trace(fn, shard(x, MESH, P("x")))


def test_shapes_alone_can_be_traced_on_the_abstract_engine():
    with engine_context(AbstractEngine()):
        x = shard(np.zeros((8, 4)), MESH, P("x", None))
        module = trace(lambda x: sw.matmul(sw.permute_dims(x, (1, 0)), x), x)
        with pytest.raises(ProgramError, match="which has no values on the abstract engine"):
            trace(lambda x: x + np.ones((8, 4)), x)
    x = RNG.normal(size=(8, 4))
    np.testing.assert_allclose(execute(module, x), x.T @ x)


def test_mlir_opt_accepts_traced_modules(mlir_opt, tmp_path):
    import subprocess

    programs = [(grad(mlp_loss), (WEIGHTS, BATCH, LABELS)), (attention, HEADS), (stencil, (FIELD,))]
    for k, (fn, args) in enumerate(programs):
        path = tmp_path / f"{k}.mlir"
        path.write_text(print_module(trace(fn, *args), dialect="mesh19"))
        done = subprocess.run([mlir_opt, str(path)], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr[:2000]
