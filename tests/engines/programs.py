"""What is run in processes and on the local engine alike: every communication function, op and derivative."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

import shardwise as sw
from shardwise import (
    CPU,
    Cut,
    DeviceMesh,
    Layout,
    P,
    Tensor,
    all_gather,
    all_reduce,
    all_slice,
    all_to_all,
    axis_index,
    graph_ops,
    halo_exchange,
    pmean,
    ppermute,
    reduce_scatter,
    shard,
    shard_map,
    shift,
)
from shardwise.engine.execute import program_of
from shardwise.ops.graph_ops import SignalBuffer
from tests.prim.arithmetic.declared import BITS_OF_TWO, PLAIN, TWO
from tests.prim.cases import Move, spread, values


def resharded(moves: Sequence[Move]) -> list[tuple[Tensor, Tensor]]:
    """Tensors made from shards, and the same in another layout."""
    out = []
    for seed, move in enumerate(moves):
        x, _ = spread(move.src, move.shape, move.dtype, seed)
        out.append((x, shard(x, move.dst.mesh, move.dst)))
    return out


def line(size: int) -> DeviceMesh:
    """All processes along one axis."""
    return DeviceMesh((size,), ("x",))


def grid(size: int) -> DeviceMesh:
    """All processes along two axes."""
    return DeviceMesh((2, size // 2) if size % 2 == 0 else (1, size), ("a", "b"))


def whole(*shape: int, dtype: str = "float64", seed: int = 0) -> np.ndarray:
    return values(shape, dtype, seed)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


# -- communication functions: what they do to values is exact ------------------------------------------------

Program = Callable[[int], Any]
EXACT: dict[str, Program] = {}
NEAR: dict[str, Program] = {}


def exact(program: Program) -> Program:
    EXACT[program.__name__] = program
    return program


def near(program: Program) -> Program:
    NEAR[program.__name__] = program
    return program


def run_exact(name: str, size: int) -> Any:
    return EXACT[name](size)


def run_near(name: str, size: int) -> Any:
    return NEAR[name](size)


@exact
def gathers(n: int) -> Any:
    x, y = shard(whole(7, 6), grid(n), P("a", "b")), shard(whole(3), line(n), P("x"))
    along = [all_gather(x, physical_axis="b")] if n > 2 else []  # an axis of one device splits nothing
    return all_gather(x), all_gather(x, 1), along, all_gather(y), y.gather()


@exact
def slices(n: int) -> Any:
    x = shard(whole(7, 6), grid(n), P("a"))
    return all_slice(x, 1), all_slice(x, 0, "b"), all_slice(shard(whole(2), line(n), P()), 0)


@exact
def transposes(n: int) -> Any:
    x, y = shard(whole(7, 6), line(n), P("x")), shard(whole(4, n, 2 * n), line(n), P(None, None, "x"))
    return all_to_all(x, 1, 0), all_to_all(y, 1, 2, tiled=False), all_to_all(shard(whole(1, 9), line(n), P("x")), 1, 0)


@exact
def block_exchanges(n: int) -> Any:
    mesh = grid(n)
    even = shard(whole(n * n * 2, 5), line(n), P("x"))
    xs = [even, shard(whole(n * n + 3, 2), line(n), P("x")), shard(whole(5, 3 * n), mesh, P("a", "b"))]
    pending = shard(whole(4 * n, 3), mesh, P("b", unreduced=["a"]))
    uneven = shard(whole(5, n, 2 * n), mesh, P("a", None, "b"))
    slices = shard(whole(5, mesh.axis_size("b"), 2 * n), mesh, P("a", None, "b"))
    return (
        [all_to_all(x, 0, 0) for x in xs],
        all_to_all(xs[2], 1, 1),
        all_to_all(shard(whole(3 * n + 1), mesh, P(("a", "b"))), 0, 0, mesh_axes="b"),
        all_to_all(pending, 0, 0).gather(),
        all_to_all(uneven, 2, 2),
        all_to_all(slices, 1, 2, tiled=False),
        sw.vjp(lambda x: all_to_all(x, 0, 0), xs[1])[1](whole(n * n + 3, 2)),
    )


@exact
def reductions(n: int) -> Any:
    x, pending = shard(whole(2 * n, 3), line(n), P("x")), spread_terms(n)
    ops = [all_reduce(x, reduce_op=op) for op in ("sum", "max", "min", "prod", "avg")]
    bits = shard(whole(n, 2, dtype="uint8"), line(n), P("x"))
    more = [all_reduce(bits, reduce_op=op) for op in ("band", "bor", "bxor")]
    grids = shard(whole(4, 2 * n), grid(n), P("a", "b"))
    parts = all_reduce(grids, reduce_axes="b"), reduce_scatter(grids, 0, reduce_axes="b"), pmean(grids, "a")
    return ops, more, parts, all_reduce(pending), reduce_scatter(pending, 0), reduce_scatter(pending, 1), pmean(x)


@exact
def reductions_beside_uneven_dims(n: int) -> Any:
    mesh = grid(n)
    a, b = mesh.mesh_shape
    ends = (*range(0, 3 * (b - 1) + 1, 3), 3 * b + 1)
    cuts = [Cut("b"), Cut("b", split="chunk"), Cut("b", offsets=ends)]
    xs = [shard(whole(2 * a, 3 * b + 1), mesh, Layout(mesh, ["a", cut])) for cut in cuts]
    few = shard(whole(2 * a, 1, dtype="uint8"), mesh, P("a", "b"))  # most devices hold nothing
    sums = [all_reduce(x, reduce_op=op, reduce_axes="a") for x in xs for op in ("sum", "avg", "max", "prod")]
    pieces = [reduce_scatter(x, dim, reduce_axes="a") for x in xs for dim in (0, 1)]
    return sums, pieces, [pmean(x, "a") for x in xs], all_reduce(few, reduce_op="bxor", reduce_axes="a")


def spread_terms(n: int) -> Tensor:
    x, _ = spread(Layout(line(n), [None, None], ["x"]), (5, 7))
    return x


@exact
def pending(n: int) -> Any:
    mesh = grid(n)
    x = shard(whole(5, 6), mesh, P(None, "b", unreduced=["a"]))
    again = shard(x, mesh, P("a", unreduced=["b"]))
    return x, again, shard(again, mesh, P(unreduced={"a": "max"})), shard(x, mesh, P("b", "a"))


@exact
def permutations(n: int) -> Any:
    x, y = shard(whole(2 * n, 3), line(n), P("x")), shard(whole(4, 2 * n), grid(n), P("a", "b"))
    few = shard(whole(2 * n, 3), line(n), P(None, None))
    return (
        ppermute(x, [(i, (i * 3 + 1) % n) for i in range(n) if n % 3]),
        ppermute(x, [(0, n - 1)]),
        shift(x, "x"),
        shift(x, "x", -2, rotate=False),
        shift(y, "a"),
        shift(y, "b", 1),
        shift(shard(whole(4, 6), grid(n), P("a")), "a"),
        ppermute(few, [(i, i) for i in range(n)]),
    )


@exact
def halos(n: int) -> Any:
    x, y = shard(whole(3 * n, 2), line(n), P("x")), shard(whole(4, 3 * n), grid(n), P("a", "b"))
    wide = halo_exchange(y, 1, (1, 2))
    return (
        halo_exchange(x, 0, 1),
        halo_exchange(x, 0, (2, 1), edge="pad"),
        wide,
        halo_exchange(wide, 0, 1, edge="pad"),
        shard(wide, y.mesh, P("b", "a")),
    )


@exact
def uneven(n: int) -> Any:
    mesh = line(n)
    some = Layout(mesh, [Cut("x", offsets=[0, *[0] * (n - 1), 5] if n > 1 else [0, 5])])
    chunk = Layout(mesh, [Cut("x", split="chunk"), None])
    return (
        shard(shard(whole(5), mesh, P("x")), mesh, some),
        shard(shard(whole(5), mesh, some), mesh, P("x")).gather(),
        shard(shard(whole(5, 3), mesh, P(None, "x")), mesh, chunk),
        shard(whole(0, 3), mesh, P("x")).gather(),
        shard(shard(whole(1), mesh, P("x")), mesh, P()),
        shard(np.float32(3), mesh, P()).gather(),
        all_reduce(shard(np.float32(3), mesh, P(unreduced=["x"]))),
    )


@exact
def dtypes(n: int) -> Any:
    out = []
    for dtype in "bfloat16 float8_e4m3fn bool complex64 complex128 int8 uint16 uint64 float16".split():
        x, y = shard(whole(6, 5, dtype=dtype), line(n), P("x")), shard(whole(n, dtype=dtype), line(n), P("x"))
        out.append((shard(x, line(n), P(None, "x")), x.gather(), shift(y, "x")))
    return out


@exact
def devices(n: int) -> Any:
    last, mesh = CPU(n - 1), line(n)
    there = sw.to_device(whole(3), last)
    return (
        sw.asarray(whole(3)),
        there,
        sw.transfer_to(there, CPU(0)),
        sw.cpu(there),
        sw.to_device(there, sharding=P("x").to_layout(1, mesh)),
        sw.distributed_broadcast(there, mesh),
        sw.distributed_broadcast(whole(2, 2), mesh),
        sw.to_device(shard(whole(2 * n), mesh, P("x")), last),
        {"tree": [shard([1.0, 2.0], mesh, P("x"))]},
    )


@exact
def meshes(n: int) -> Any:
    # Meshes of some processes, in other orders: who is outside takes part in the program and holds nothing.
    mesh = grid(n)
    turned, part = mesh.transpose(), mesh.fix(a=0)
    back = DeviceMesh((n,), ("r",), [CPU(i) for i in reversed(range(n))])
    x = shard(whole(5, 6), mesh, P("a", "b"))
    inside = shard(x, part, P("b"))
    doubled = (inside + inside) * 2.0
    total = sw.sum(doubled, axis=0)
    return (
        shard(x, turned, P("b", "a")),
        shard(x, back, P(None, "r")),
        inside,
        doubled,
        total,
        shard(total, mesh, P("a")),
        shard(doubled, back, P("r")),
        sw.reshape(doubled, (6, 5)),
        doubled > 3.0,
    )


@exact
def several_slots(n: int) -> Any:
    # One process may hold several slots of a mesh.
    mesh = DeviceMesh((2, n), ("a", "b"), [CPU(i) for i in range(n)] * 2)
    x = shard(whole(4, 2 * n), mesh, P("a", "b"))
    alone = DeviceMesh((3,), ("x",), [CPU(n - 1)] * 3)
    y = shard(whole(3, 4), alone, P("x"))
    return (
        shard(x, mesh, P("b", "a")),
        all_reduce(x),
        x.gather(),
        shift(x, "a"),
        shift(x, "b"),
        all_reduce(y),
        shard(y, alone, P(None, "x")),
        all_reduce(shard(whole(4, 5), mesh, P("a", unreduced=["b"]))),
        # Between two meshes a device holds what each of its slots holds.
        shard(x, alone, P("x")),
        shard(y, mesh, P("b", "a")),
        shard(shard(whole(4, 5), mesh, P("a", unreduced=["b"])), alone, P(None, "x")),
        shard(shard(whole(4, 5), alone, P(unreduced={"x": "max"})), mesh, P("b")),
        sw.transfer_to(y, CPU(0)),
        y * sw.asarray(whole(3, 4)),
    )


# -- the local view ------------------------------------------------------------------------------------------


@exact
def local_view(n: int) -> Any:
    mesh, m = grid(n), n // 2 if n % 2 == 0 else n
    x = whole(4 * m, 2 * n * m)

    def mapped(function: Callable[[Any], Any], *out: Any) -> Tensor:
        return shard_map(function, mesh, P("a", "b"), out[0] if out else P("a", "b"))(x)

    return (
        mapped(lambda a: all_reduce(a, reduce_axes="b")),
        mapped(lambda a: all_reduce(a, reduce_op="max")),
        mapped(lambda a: all_gather(a, 0, physical_axis="b")),
        mapped(lambda a: all_gather(a, 1)),
        mapped(lambda a: reduce_scatter(a, 1, reduce_axes="b")),
        mapped(lambda a: all_slice(a, 1, "b")),
        mapped(lambda a: all_to_all(a, 1, 0, mesh_axes="b")),
        mapped(lambda a: ppermute(a, [(0, m - 1)], axis="b")),
        mapped(lambda a: shift(a, "b")),
        mapped(lambda a: halo_exchange(a, 1, (1, 1), mesh_axis="b")),
        mapped(lambda a: sw.broadcast(a, "b", m - 1)),
        mapped(lambda a: sw.broadcast(a, ("b", "a"), n - 1)),
        mapped(lambda a: sw.reduce(a, ("a", "b"), n // 2)),
        mapped(lambda a: sw.gather(a, ("a", "b"), n - 1, 1)),
        mapped(lambda a: pmean(a, ("a", "b"))),
        mapped(lambda a: sw.reduce(a, "b", 0)),
        mapped(lambda a: sw.reduce(a, "a", 0, "max")),
        mapped(lambda a: sw.gather(a, "b", m - 1, 1)),
        mapped(lambda a: sw.scatter(a, "b", 0, 1)),
        mapped(lambda a: sw.send_recv(a, "b", 0, m - 1)),
        mapped(lambda a: a * 2.0 + axis_index("b") - all_reduce(a * a, reduce_axes="a")),
        mapped(lambda a: all_reduce(a, reduce_axes="b"), P("a", None)),
        mapped(lambda a: a, P("a", unreduced=["b"])),
    )


@exact
def lists(n: int) -> Any:
    count = min(n, 3)
    buffers = [SignalBuffer(CPU(i)) for i in range(count)]
    parts = [graph_ops.transfer_to(whole(i + 1, 2, seed=i), CPU(i)) for i in range(count)]
    out: list[Any] = [graph_ops.allgather(parts, buffers), parts]
    if count > 1:
        out.append(graph_ops.distributed_broadcast(graph_ops.transfer_to(whole(3), CPU(0)), buffers))
        places = [CPU(i) for i in range(count)]
        out.append(graph_ops.shard_and_stack([whole(2 * count), whole(2 * count, seed=1)], places))
    return out


@exact
def own_shards(n: int) -> Any:
    mesh = line(n)
    engine = sw.current_engine()
    mine = {i: np.full(2, float(i)) for i in engine.addressable(mesh)}
    x = sw.from_shards(mine, mesh, P("x"), (2 * n,), dtype="float64")
    some = [sw.from_shards(x.shards, mesh, x.layout, x.shape)] if mine else [x]
    return x, some, sw.from_shards({s.index: s for s in x.shards}, mesh, x.layout, x.shape, dtype=x.dtype)


@exact
def torch_tensors(n: int) -> Any:
    import torch

    mesh = line(n)
    x = shard(torch.arange(12.0).reshape(6, 2), mesh, P("x"))
    half = shard(torch.arange(6.0, dtype=torch.bfloat16), mesh, P("x"))
    assert all(isinstance(s.array, torch.Tensor) for s in x.shards)
    pending = shard(x * 2.0, mesh, P(unreduced=["x"]))
    tensors = shard(x, mesh, P(None, "x")), x.gather(), all_reduce(pending), half.gather(), x + shard(x, mesh, P())
    return [sw.astype(t, "float32") for t in tensors], shift(shard(torch.arange(2 * n), mesh, P("x")), "x")


# -- arithmetic: the same kernels on the same shards, but not always in the same place in memory ---------------


UNARY = [*PLAIN, "relu", "gelu", "sigmoid", "silu", "softplus"]


@near
def elementwise(n: int) -> Any:
    mesh = grid(n)
    x, y = shard(normal(5, 6), mesh, P("a", "b")), shard(normal(5, 6, seed=1), mesh, P("b"))
    with np.errstate(all="ignore"):
        out = [getattr(sw, name)(x) for name in UNARY]
        out += [getattr(sw, name)(x, y) for name in TWO]
    i, j = shard(whole(5, 6, dtype="uint8"), mesh, P("a")), shard(whole(6, dtype="uint8"), mesh, P("b"))
    out += [getattr(sw, name)(i, j) for name in BITS_OF_TWO]
    mixed = sw.where(x > 0.0, x, y), sw.clip(x, -0.5, 0.5), sw.astype(x, "float32"), sw.bitwise_invert(i), x - 1.0
    return out, mixed


@near
def products(n: int) -> Any:
    mesh = grid(n)
    a, b = shard(whole(4, 6), mesh, P("a", "b")), shard(whole(6, 5, seed=1), mesh, P("b"))
    c = shard(whole(3, 4, 6), mesh, P(None, "a"))
    return (
        sw.matmul(a, b),
        sw.matmul(c, b),
        sw.einsum("ij,jk->ki", a, b),
        sw.einsum("bij->j", c),
        sw.tensordot(c, b, axes=([2], [0])),
        all_reduce(sw.matmul(shard(a, mesh, P(None, "b")), b)),
    )


@near
def pending_sums(n: int) -> Any:
    """Sums that are pending meet zeros and infinities that some processes hold and others do not."""
    mesh = line(n)
    zeros, infinities = np.where(np.arange(4) == 0, 0.0, 2.0), np.where(np.arange(4) == 3, np.inf, 2.0)
    out = []
    with np.errstate(all="ignore"):
        for kind in ("float64", "int64", "bool"):
            x = sw.einsum("ij->j", shard(np.abs(whole(2 * n, 4)) + 1.0, mesh, P("x")))
            y = shard(zeros.astype(kind), mesh, P("x"))
            out += [x / y, x / y[1:3].gather()[:1], x // (y + 1.0), x * shard(infinities, mesh, P("x")), x / 0.0]
        with sw.mode(sw.GreedyReshard(resolve_products=True)):
            x = sw.einsum("ij->j", shard(whole(2 * n, 4), mesh, P("x")))
            out.append(x * shard(infinities, mesh, P()))
    return out


@near
def sums(n: int) -> Any:
    x = shard(normal(5, 6, 3), grid(n), P("a", None, "b"))
    names = ("sum", "mean", "var", "std", "max", "min", "prod", "logsumexp")
    out = [getattr(sw, name)(x, axis=axis) for name in names for axis in (None, 0, (0, 2))]
    bools = x > 0.0
    return out, sw.softmax(x, axis=0), sw.log_softmax(x, axis=-1), sw.any(bools, axis=0), sw.all(bools)


@exact
def shapes(n: int) -> Any:
    x = shard(whole(4, 6, 2), grid(n), P("a", "b"))
    return (
        sw.reshape(x, (24, 2)),
        sw.reshape(x, (2, 2, 12)),
        sw.permute_dims(x, (2, 0, 1)),
        sw.expand_dims(x, axis=1),
        sw.squeeze(sw.expand_dims(x, axis=0), axis=0),
        sw.broadcast_to(shard(whole(6, 1), grid(n), P("b")), (3, 6, 2)),
    )


# -- picking, joining, making -------------------------------------------------------------------------------------


@exact
def indexing(n: int) -> Any:
    x = shard(whole(9, 2 * n), grid(n), P("a", "b"))
    picks = shard(np.array([3, 0, 8, 3]), grid(n), P("a"))
    return (
        x[1:7:2],
        x[::-1, 3:],
        x[2],
        x[..., -1],
        x[None, :, 0],
        x[np.array([1, 5, 1])],
        sw.take(x, picks, axis=0),
        sw.take_along_axis(x, shard(np.argsort(whole(9, 2 * n), axis=0), grid(n), P("b")), axis=0),
        sw.embedding(picks, x),
        sw.one_hot(picks, 9),
        x.at[2:5].set(7.0),
        x.at[np.array([1, 4])].add(1.0),
    )


@exact
def joining(n: int) -> Any:
    x, y = shard(whole(5, 6), grid(n), P("a", "b")), shard(whole(3, 6, seed=1), grid(n), P("b"))
    return (
        sw.concat([x, y]),
        sw.concat([x, x], axis=1),
        sw.stack([x, x], axis=1),
        sw.unstack(shard(whole(2, 6), grid(n), P(None, "b"))),
        sw.split(x, [2, 3]),
        sw.flip(x),
        sw.roll(x, 2, axis=0),
        sw.pad(x, ((1, 2), (0, 1))),
        sw.pad(x, 1, mode="reflect"),
        sw.matrix_transpose(x),
        sw.moveaxis(x, 0, 1),
    )


@exact
def picked(n: int) -> Any:
    x = shard(whole(9, 2 * n), grid(n), P("a", "b"))
    return (
        sw.argmax(x, axis=0),
        sw.argmin(x),
        sw.topk(x, 2, axis=0),
        sw.cumulative_sum(x, axis=0),
        sw.cumulative_sum(x, axis=1, include_initial=True),
        sw.tril(x),
        sw.triu(x, k=1),
    )


@exact
def making(n: int) -> Any:
    mesh = grid(n)
    where = {"mesh": mesh, "layout": P("a", "b")}
    key = sw.random.key(3)
    x = shard(whole(6, 2 * n), mesh, P("a", "b"))
    return (
        sw.zeros((5, 6), **where),
        sw.full((5, 6), 2.5, **where),
        sw.eye(6, **where),
        sw.arange(9.0, mesh=mesh, layout=P("b")),
        sw.linspace(0.0, 1.0, 9, mesh=mesh, layout=P("b")),
        sw.ones_like(x),
        sw.meshgrid(sw.arange(4.0, mesh=mesh, layout=P("b")), sw.arange(3.0, mesh=mesh, layout=P())),
        sw.random.uniform(key, (7, 6), **where),
        sw.random.normal(key, (7, 6), **where),
        sw.random.integers(key, 0, 9, (7, 6), **where),
        sw.random.dropout(key, x, 0.5),
        sw.zeros((3,)),
    )


@near
def layers(n: int) -> Any:
    mesh = grid(n)
    x, w = shard(normal(6, 4 * n), mesh, P("a", "b")), shard(normal(4 * n, seed=1), mesh, P("b"))
    image, kernel = shard(normal(2, 3, 4 * n, 5), mesh, P(None, None, "b")), shard(normal(4, 3, 3, 3), mesh, P())
    labels = shard(np.arange(6) % (4 * n), mesh, P("a"))

    def loss(x: Tensor, w: Tensor) -> Tensor:
        return sw.mean(sw.layer_norm(x, w) * sw.rms_norm(x))

    return (
        sw.layer_norm(x, w),
        sw.rms_norm(x, w),
        sw.cross_entropy(x, labels),
        sw.norm(x, axis=0),
        sw.conv(image, kernel, padding="SAME"),
        sw.grad(loss, argnums=(0, 1))(x, w),
        sw.vjp(lambda image: sw.conv(image, kernel), image)[1](normal(2, 4, 4 * n - 2, 3)),
    )


# -- derivatives -----------------------------------------------------------------------------------------------


@near
def derivatives(n: int) -> Any:
    mesh = line(n)
    x = shard(normal(2 * n, 3), mesh, P("x"))
    tangent = shard(normal(2 * n, 3, seed=1), mesh, P("x"))
    functions: list[Callable[[Tensor], Tensor]] = [
        all_gather,
        lambda x: all_reduce(x * x),
        lambda x: all_reduce(x, reduce_op="max"),
        lambda x: all_reduce(x, reduce_op="prod"),
        lambda x: reduce_scatter(x, 1),
        lambda x: shift(x, "x", rotate=False),
        lambda x: halo_exchange(x, 0, 1) * 2.0,
        *([lambda x: all_to_all(x, 1, 0)] if n > 1 else []),
        lambda x: sw.softmax(x, axis=0),
        lambda x: sw.to_device(x, CPU(n - 1)) * 3.0,
        shard_map(lambda a: all_reduce(a * a, reduce_axes="x") * a, mesh, P("x"), P("x")),
        shard_map(lambda a: sw.broadcast(a, "x", n - 1) * a, mesh, P("x"), P("x")),
        shard_map(lambda a: halo_exchange(a, 0, (1, 1), mesh_axis="x") * 2.0, mesh, P("x"), P("x")),
    ]
    out = []
    for function in functions:
        y, back = sw.vjp(function, x)
        out.append((y, back(normal(*y.shape, seed=2)), sw.jvp(function, (x,), (tangent,))))
    return out


@near
def training(n: int) -> Any:
    mesh = grid(n)
    weights = [shard(normal(8, 16) / 3, mesh, P(None, "b")), shard(normal(16, 1, seed=1) / 4, mesh, P("b"))]
    inputs, targets = shard(normal(32, 8, seed=2), mesh, P("a")), shard(normal(32, 1, seed=3), mesh, P("a"))

    def loss(weights: list[Tensor]) -> Tensor:
        error = sw.matmul(sw.tanh(sw.matmul(inputs, weights[0])), weights[1]) - targets
        return sw.mean(error * error)

    values = []
    for _ in range(5):
        value, gradients = sw.value_and_grad(loss)(weights)
        weights = [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)]
        values.append(value)
    return values, weights


@exact
def logged(n: int) -> Any:
    with sw.trace_communication() as log:
        x = shard(whole(8, 8), line(n), P("x"))
        shard(x, line(n), P(None, "x"))
        shift(shard(whole(2 * n), line(n), P("x")), "x")
    ours = {record.rank for record in log} == {getattr(sw.current_engine(), "rank", 0)}
    starts = [record.start for record in log]
    found = [(record.kind, record.axes, record.before, record.after) for record in log]
    return found, prod(x.shape), ours and starts[0] > 0 and starts == sorted(starts)


def staged(moves: Sequence[Move], library_gathers: bool | None) -> list[Any]:
    """Reshards in as many chunks as the smallest staging buffer makes of them, and by the library's own gather."""
    engine, out = sw.current_engine(), []
    if isinstance(engine, sw.LocalEngine):
        library_gathers = None
    before = getattr(engine, "library_gathers", None)
    try:
        if library_gathers is not None:
            engine.library_gathers = library_gathers  # type: ignore[attr-defined]
        for seed, move in enumerate(moves):
            x, _ = spread(move.src, move.shape, move.dtype, seed)
            least = max((s.least_staging for s in sw.plan_reshard(*move).steps), default=0)
            plan = sw.plan_reshard(*move, memory_limit=least * (1 + seed % 3))
            if plan.steps:
                arrays = engine.run(program_of(plan), x.arrays)
                out.append(Tensor(arrays, move.dst, move.shape, x.dtype, engine))
    finally:
        if library_gathers is not None:
            engine.library_gathers = before  # type: ignore[attr-defined]
    return out


def carried(size: int) -> list[Any]:
    """Sums of small floats over the fast links of a grid, and then over the slow ones."""
    mesh, engine, out = grid(size), sw.current_engine(), []
    links = {"a": sw.Link(0, 1e6), "b": sw.Link(0, 1e12)}
    for dtype, op in (("bfloat16", "sum"), ("float16", "avg"), ("float8_e5m2", "sum"), ("float16", "max")):
        src, dst, shape = Layout(mesh, [None, None], ["a", "b"], op), Layout(mesh, [None, None]), (6 * size, 5)
        x, _ = spread(src, shape, np.dtype(dtype), size)
        plan = sw.plan_reshard(src, dst, shape, dtype, links=links)
        out.append(Tensor(engine.run(program_of(plan), x.arrays), dst, shape, x.dtype, engine))
    return out


# -- meshes in which a device stands several times -----------------------------------------------------------


def run_repeated(name: str, size: int) -> Any:
    """Run a program with meshes whose devices stand in two slots each; half of the processes have none."""
    make = DeviceMesh

    def mesh(shape: Sequence[int], names: Sequence[str], devices: Any = None) -> DeviceMesh:
        return make(shape, names, devices or [CPU(i // 2) for i in range(prod(shape))])

    globals()["DeviceMesh"] = mesh
    try:
        return {**EXACT, **NEAR}[name](size)
    except sw.ShardwiseError as error:  # which must be the same in all
        return f"{type(error).__name__}: {error}"
    finally:
        globals()["DeviceMesh"] = make
