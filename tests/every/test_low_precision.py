"""Every function on floats of 16 and 8 bits, beside the same in float64 and over layouts.

A sum is made in float32 and rounded once, whatever it is spread over: it is off by 2 units in the last place of the sum
of |x| at most, and so are two layouts of one value. A public function without a case here, or a reason, fails.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

import shardwise as sw
from shardwise import Cut, DeviceMesh, Layout, P, Tensor, from_shards, grad, shard, shard_map
from shardwise.engine.arrays import torch_of
from shardwise.ir import execute_partitioned, partition, print_module, propagate, trace
from tests.prim.arithmetic.declared import PLAIN, TWO

Values = np.ndarray
MESH = DeviceMesh((2, 4), ("y", "x"))
DTYPES = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
HALVES = DTYPES[:2]
SMALLER = (DTYPES[0], *DTYPES[2:])  # whose sums have room in float32; bfloat16 is as large as that
WIDTH = 4
SPECS: dict[str, Any] = {
    "whole": P(),
    "sharded": P("x"),
    "all axes": P(("x", "y")),
    "grid": P("x", "y"),
    "sub-axes": P("x:(1)2", "x:(2)2"),
    "chunks": Layout(MESH, [Cut("x", offsets=(0, 1, 1, 7, 203)), None]),
    "halo": Layout(MESH, [Cut("x", halo=(1, 1)), None]),
    "pending": P(unreduced=["y"]),
    "sharded and pending": P("x", unreduced=["y"]),
}


class Case(NamedTuple):
    """A function of a matrix, the same in NumPy, and that of which a unit in the last place is counted."""

    run: Callable[[Any], Any]
    want: Callable[[Values], Any]
    scale: Callable[[Values], Any] | None = None  # the result itself, if not given
    data: str = "positive"
    ulps: float = 2.0
    layouts: tuple[str, ...] = tuple(SPECS)
    dtypes: tuple[str, ...] = DTYPES


def ulp(values: Any, dtype: Any) -> Values:
    """The distance between floats of a dtype at these values."""
    info = ml_dtypes.finfo(dtype)
    size = np.maximum(np.abs(np.asarray(values, "float64")), float(info.smallest_normal))
    return np.exp2(np.floor(np.log2(size))) * float(info.eps)


def values(kind: str, count: int, dtype: str) -> Values:
    """A matrix whose columns can be added up in a dtype."""
    info, rng = ml_dtypes.finfo(dtype), np.random.default_rng(count)
    unit = min(1.0, float(info.max) / (4.0 * count))
    out = {
        "positive": lambda: rng.uniform(0.3, 0.9, (count, WIDTH)) * unit,
        "alike": lambda: np.full((count, WIDTH), 0.7 * unit),  # every rounding goes the same way
        "signed": lambda: rng.uniform(-0.9, 0.9, (count, WIDTH)) * unit,
        "unit": lambda: rng.uniform(0.3, 0.9, (count, WIDTH)),
        "near one": lambda: rng.permuted(np.resize([1.125, 0.875, 1.0, 1.0], (WIDTH, count)), axis=1).T,
        "above one": lambda: rng.uniform(1.5, 3.0, (count, WIDTH)),
        "large": lambda: np.full((count, WIDTH), float(info.max) / 2),
    }[kind]()
    twice = 2 * float(info.smallest_subnormal)
    return (np.round(out / twice) * twice).astype(dtype)  # half of each is a number of the dtype too


def tensor(data: Values, name: str, torch: bool = False) -> Tensor:
    """The values in one of the layouts; what is pending is half on each device, which is exact."""
    spec = SPECS[name]
    if not (isinstance(spec, P) and spec.unreduced):
        return shard(torch_of(data) if torch else data, MESH, spec)
    whole = shard(data, MESH, P(*tuple(spec)))
    halves = [(array / data.dtype.type(2)).astype(data.dtype) for array in (s.array for s in whole.shards)]
    return from_shards([torch_of(half) if torch else half for half in halves], MESH, spec, data.shape)


def as_float64(out: Any) -> Values:
    return np.asarray(out.gather() if isinstance(out, Tensor) else out).astype("float64")


def check(name: str, case: Case, dtype: str, data: Values, torch: bool = False) -> None:
    """A case on every one of its layouts: near the oracle, and the layouts near each other."""
    wide = data.astype("float64")
    want = np.asarray(case.want(wide), "float64")
    size = want if case.scale is None else np.broadcast_to(np.asarray(case.scale(wide), "float64"), want.shape)
    made = []
    for layout in case.layouts:
        if layout == "chunks" and len(data) != 203:
            continue
        out = case.run(tensor(data, layout, torch))
        assert not isinstance(out, Tensor) or out.dtype in (np.dtype(dtype), np.dtype(bool), np.dtype("int64")), name
        got = as_float64(out)
        assert got.shape == want.shape, (name, layout, got.shape, want.shape)
        off = np.abs(got - want) / ulp(size, dtype)
        assert np.max(off, initial=0) <= case.ulps, (name, dtype, layout, float(np.max(off)))
        made.append(got)
    apart = (np.max(made, axis=0) - np.min(made, axis=0)) / ulp(size, dtype)
    assert np.max(apart, initial=0) <= case.ulps, (name, dtype, "layouts", float(np.max(apart)))


# -- functions that add up ---------------------------------------------------------------------------------


def column(w: Values) -> Values:
    return np.abs(w).sum(0)


def lse(w: Values) -> Values:
    top = w.max(0)
    return np.log(np.exp(w - top).sum(0)) + top


def normal(w: Values) -> Values:
    return (w - w.mean(0)) / np.sqrt(w.var(0) + 1e-5)


def embedded(x: Tensor) -> Tensor:
    table = shard(np.zeros((2, WIDTH), x.dtype), MESH, P(None, "y"))
    return grad(lambda t: sw.sum(sw.multiply(sw.embedding(np.arange(len(x)) % 2, t), x)))(table)


def folded(w: Values) -> Values:
    return np.stack([w[::2].sum(0), w[1::2].sum(0)])


def biased(x: Tensor) -> Tensor:
    return grad(lambda b: sw.sum(sw.multiply(sw.add(b, 0.0), x)))(shard(np.zeros(WIDTH, x.dtype), MESH, P()))


def spread_out(x: Tensor) -> Tensor:
    zero = shard(np.zeros((1, WIDTH), x.dtype), MESH, P())
    return grad(lambda b: sw.sum(sw.multiply(sw.broadcast_to(b, x.shape), x)))(zero)


def picked(x: Tensor) -> Tensor:
    zero = shard(np.zeros((1, WIDTH), x.dtype), MESH, P())
    return grad(lambda t: sw.sum(sw.multiply(sw.take(t, np.zeros(len(x), int), axis=0), x)))(zero)


def put(x: Tensor) -> Tensor:
    return shard(np.zeros((2, WIDTH), x.dtype), MESH, P()).at[np.arange(len(x)) % 2].add(x)


def padded(x: Tensor) -> Tensor:
    zero = shard(np.zeros((1, WIDTH), x.dtype), MESH, P())
    count = len(x) - 1
    return grad(lambda t: sw.sum(sw.multiply(sw.pad(t, ((0, count), (0, 0)), mode="edge"), x)))(zero)


def entropy(x: Tensor, reduction: Any) -> Tensor:
    return sw.cross_entropy(x, np.arange(WIDTH) % len(x), axis=0, reduction=reduction)


def entropies(w: Values) -> Values:
    return lse(w) - w[np.arange(WIDTH) % len(w), np.arange(WIDTH)]


def blocks(x: Any) -> Any:
    """The rows in four equal blocks along x; those that are left over are dropped."""
    return shard(x[: len(x) // 4 * 4], MESH, P("x"))


def quarters(w: Values) -> Values:
    return w[: len(w) // 4 * 4].reshape(4, -1, WIDTH)


def local(function: Callable[..., Any]) -> Callable[[Any], Any]:
    return shard_map(function, MESH, P("x"), P("x"))


def halo_back(x: Tensor) -> Tensor:
    # The cotangents of blocks with a row of either neighbour, which go back to whose they are.
    size = len(x) // 4
    zeros = shard(np.zeros((4 * (size - 2), WIDTH), x.dtype), MESH, P("x"))
    return sw.vjp(local(lambda a: sw.halo_exchange(a, 0, (1, 1), mesh_axis="x")), zeros)[1](blocks(x))[0]


def halo_sums(w: Values) -> Values:
    held = quarters(w)
    out = held[:, 1:-1].copy()
    out[:-1, -1] += held[1:, 0]
    out[1:, 0] += held[:-1, -1]
    return out.reshape(-1, WIDTH)


def slide(w: Values) -> Values:
    return np.stack([w[: len(w) - 2].T @ w[k : len(w) - 2 + k] for k in range(3)], -1)


def kernel_back(x: Tensor) -> Tensor:
    zeros = shard(np.zeros((WIDTH, WIDTH, 3), x.dtype), MESH, P())
    return grad(lambda k: sw.sum(sw.multiply(sw.conv(x.T[None], k), x[:-2].T[None])))(zeros)


def image_back(x: Tensor) -> Tensor:
    ones = shard(np.ones((WIDTH, WIDTH, 3), x.dtype), MESH, P())
    image = shard(np.zeros((1, WIDTH, len(x)), x.dtype), MESH, P(None, None, "x"))
    return grad(lambda a: sw.sum(sw.multiply(sw.conv(a, ones), x[:-2].T[None])))(image)


def image_sums(w: Values) -> Values:
    rows = w[: len(w) - 2].sum(1)
    out = sum(np.pad(rows, (k, 2 - k)) for k in range(3))
    return np.broadcast_to(out, (1, WIDTH, len(w)))


BOTH = ("x", "y")
SUMS: dict[str, Case] = {
    "sum": Case(lambda x: sw.sum(x, axis=0), lambda w: w.sum(0), column),
    "mean": Case(lambda x: sw.mean(x, axis=0), lambda w: w.mean(0), lambda w: column(w) / len(w)),
    "prod": Case(  # the rounding of every contribution counts in full
        lambda x: sw.prod(x, axis=0), lambda w: w.prod(0), data="near one", ulps=9.0, dtypes=HALVES
    ),
    "var": Case(lambda x: sw.var(x, axis=0), lambda w: w.var(0), lambda w: (w * w).mean(0)),
    "std": Case(lambda x: sw.std(x, axis=0), lambda w: w.std(0), lambda w: np.sqrt((w * w).mean(0))),
    "norm": Case(lambda x: sw.norm(x, axis=0), lambda w: np.sqrt((w * w).sum(0))),
    "norm of order 1": Case(lambda x: sw.norm(x, axis=0, ord=1), column),
    "norm of order 3": Case(lambda x: sw.norm(x, axis=0, ord=3), lambda w: np.cbrt((np.abs(w) ** 3).sum(0))),
    "cumulative_sum": Case(
        lambda x: sw.cumulative_sum(x, axis=0), lambda w: w.cumsum(0), lambda w: np.abs(w).cumsum(0)
    ),
    "logsumexp": Case(lambda x: sw.logsumexp(x, axis=0), lse, lambda w: np.abs(lse(w)) + np.abs(w).max(0)),
    "softmax": Case(lambda x: sw.softmax(x, axis=0), lambda w: np.exp(w - lse(w))),
    "log_softmax": Case(lambda x: sw.log_softmax(x, axis=0), lambda w: w - lse(w)),
    "layer_norm": Case(lambda x: sw.layer_norm(x, axis=0), normal, lambda w: 1 + np.abs(normal(w)), "unit"),
    "rms_norm": Case(lambda x: sw.rms_norm(x, axis=0), lambda w: w / np.sqrt((w * w).mean(0) + 1e-5), data="unit"),
    "cross_entropy": Case(
        partial(entropy, reduction="mean"), lambda w: entropies(w).mean(), lambda w: lse(w).mean() + 1
    ),
    "cross_entropy, summed": Case(partial(entropy, reduction="sum"), lambda w: entropies(w).sum()),
    "matmul": Case(lambda x: sw.matmul(x.T, x), lambda w: w.T @ w, lambda w: np.abs(w).T @ np.abs(w)),
    "einsum": Case(lambda x: sw.einsum("ij,ij->j", x, x), lambda w: (w * w).sum(0)),
    "einsum of three": Case(
        lambda x: sw.einsum("ij,ij,ij->j", x, x, x),
        lambda w: (w**3).sum(0),
        lambda w: (np.abs(w) ** 3).sum(0),
        dtypes=(*HALVES, "float8_e5m2"),  # in the other, contributions are too small to be counted in whole units
    ),
    "tensordot": Case(
        lambda x: sw.tensordot(x, x, axes=((0,), (0,))), lambda w: w.T @ w, lambda w: np.abs(w).T @ np.abs(w)
    ),
    "conv": Case(
        lambda x: sw.conv(x.T[None], x[:3].T[None]),
        lambda w: np.sum([w[k : len(w) - 2 + k] @ w[k] for k in range(3)], 0)[None, None],
        lambda w: np.sum([np.abs(w[k : len(w) - 2 + k]) @ np.abs(w[k]) for k in range(3)], 0)[None, None],
    ),
    "gradient of conv by its kernel": Case(kernel_back, slide, lambda w: slide(np.abs(w))),
    "gradient of conv by its image": Case(image_back, image_sums, lambda w: image_sums(np.abs(w))),
    "embedding": Case(embedded, folded, lambda w: folded(np.abs(w))),
    "take": Case(picked, lambda w: w.sum(0)[None], column),
    "at add": Case(put, folded, lambda w: folded(np.abs(w))),
    "gradient of a bias": Case(biased, lambda w: w.sum(0), column),
    "broadcast_to": Case(spread_out, lambda w: w.sum(0)[None], column),
    "pad": Case(padded, lambda w: w.sum(0)[None], column),
    "gradient of logsumexp": Case(
        lambda x: grad(lambda a: sw.sum(sw.logsumexp(a, axis=0)))(x), lambda w: np.exp(w - lse(w))
    ),
    "gradient of the mean": Case(
        lambda x: grad(lambda a: sw.sum(sw.mean(a, axis=0)))(x), lambda w: np.full(w.shape, 1 / len(w))
    ),
    "all_reduce": Case(
        lambda x: sw.all_reduce(blocks(x), reduce_axes="x"),
        lambda w: quarters(w).sum(0),
        lambda w: np.abs(quarters(w)).sum(0),
    ),
    "reduce_scatter": Case(
        lambda x: sw.reduce_scatter(shard(x[: len(x) // 16 * 16], MESH, P("x")), 0, reduce_axes="x"),
        lambda w: quarters(w[: len(w) // 16 * 16]).sum(0),
        lambda w: np.abs(quarters(w[: len(w) // 16 * 16])).sum(0),
    ),
    "pmean": Case(
        lambda x: sw.pmean(blocks(x), "x"), lambda w: quarters(w).mean(0), lambda w: np.abs(quarters(w)).mean(0)
    ),
    "pmean of large numbers": Case(
        lambda x: sw.pmean(blocks(x), "x"), lambda w: quarters(w).mean(0), data="large", dtypes=SMALLER
    ),
    "mean of large numbers": Case(lambda x: sw.mean(x, axis=0), lambda w: w.mean(0), data="large", dtypes=SMALLER),
    "gradient of pmean": Case(
        lambda x: sw.vjp(local(lambda a: sw.pmean(a, "x")), blocks(x))[1](blocks(x))[0],
        lambda w: np.tile(quarters(w).mean(0), (4, 1)),
        data="large",
        dtypes=SMALLER,
    ),
    "reduce": Case(
        lambda x: local(lambda a: sw.reduce(a, "x", 0))(blocks(x)),
        lambda w: np.concatenate([quarters(w).sum(0), 0 * w[: len(w) // 4 * 3]]),
        lambda w: np.tile(np.abs(quarters(w)).sum(0), (4, 1)),
    ),
    "halo_exchange": Case(halo_back, halo_sums, lambda w: halo_sums(np.abs(w))),
}

# -- functions of single elements --------------------------------------------------------------------------

FEW = ("whole", "grid", "sharded and pending")
single = partial(Case, layouts=FEW)
COMPOSED = {"scale": lambda w: np.maximum(1.0, np.abs(w)), "ulps": 4.0}  # of several steps, each of which rounds


def unary(name: str, data: str = "unit", oracle: Any = None) -> Case:
    return single(getattr(sw, name), oracle or getattr(np, name), data=data)


def half(x: Any) -> Any:
    return x * 0.5 if isinstance(x, np.ndarray) else sw.multiply(x, 0.5)


def binary(name: str, scale: Any = None) -> Case:
    """A function of the values and of their halves."""
    return single(lambda x: getattr(sw, name)(x, half(x)), lambda w: getattr(np, name)(w, half(w)), scale, "unit")


ELEMENTWISE: dict[str, Case] = {
    **{name: unary(name) for name in (*PLAIN, "conj", "real", "imag")},
    **{name: binary(name) for name in TWO if name != "nextafter"},
    "acosh": unary("acosh", "above one"),
    "add": binary("add", lambda w: 1.5 * w),
    "subtract": binary("subtract", lambda w: 1.5 * w),
    "pow": single(lambda x: sw.pow(x, 1.5), lambda w: w**1.5, data="unit"),
    "clip": single(lambda x: sw.clip(x, 0.5, 0.75), lambda w: np.clip(w, 0.5, 0.75), data="unit"),
    "where": single(lambda x: sw.where(x > 0.5, x, 0.25), lambda w: np.where(w > 0.5, w, 0.25), data="unit"),
    "astype": single(lambda x: sw.astype(x, x.dtype), lambda w: w, data="unit", ulps=0),
    "relu": single(sw.relu, lambda w: np.maximum(w, 0), data="signed", ulps=0, layouts=("whole", "grid")),
    "sigmoid": single(sw.sigmoid, lambda w: 1 / (1 + np.exp(-w)), data="unit", **COMPOSED),
    "silu": single(sw.silu, lambda w: w / (1 + np.exp(-w)), data="unit", **COMPOSED),
    "softplus": single(sw.softplus, lambda w: np.logaddexp(w, 0), data="unit", **COMPOSED),
    "gelu": single(
        sw.gelu,
        lambda w: 0.5 * w * (1 + np.tanh(np.sqrt(2 / np.pi) * (w + 0.044715 * w**3))),
        data="unit",
        **COMPOSED,
    ),
}

# -- functions that move elements, or only look at them ----------------------------------------------------

exact = partial(Case, layouts=FEW, ulps=0)
EVEN = slice(0, 8)  # rows that every axis divides


def moving(name: str, *args: Any, oracle: Any = None, **how: Any) -> Case:
    return exact(lambda x: getattr(sw, name)(x, *args, **how), lambda w: (oracle or getattr(np, name))(w, *args, **how))


def made(name: str, *args: Any) -> Case:
    """A function that makes values of a dtype out of nothing."""
    return single(lambda x: getattr(sw, name)(*args, dtype=x.dtype), lambda w: getattr(np, name)(*args), ulps=1)


def same(name: str, *args: Any, at: Any = slice(None), **how: Any) -> Case:
    """A function that changes where a value is, and not the value."""
    return exact(lambda x: getattr(sw, name)(shard(x[at], MESH, P("x")), *args, **how), lambda w: w[at])


MOVES: dict[str, Case] = {
    "all": exact(lambda x: sw.all(x, axis=0), lambda w: w.all(0)),
    "any": exact(lambda x: sw.any(x, axis=0), lambda w: w.any(0)),
    "argmax": exact(lambda x: sw.argmax(x, axis=0), lambda w: w.argmax(0)),
    "argmin": exact(lambda x: sw.argmin(x, axis=0), lambda w: w.argmin(0)),
    "max": exact(lambda x: sw.max(x, axis=0), lambda w: w.max(0)),
    "min": exact(lambda x: sw.min(x, axis=0), lambda w: w.min(0)),
    "topk": exact(lambda x: sw.topk(x, 3, axis=0)[0], lambda w: -np.sort(-w, 0)[:3]),
    "arange": made("arange", 9),
    "linspace": made("linspace", 0.0, 1.0, 7),
    "ones": made("ones", (3,)),
    "zeros": made("zeros", (3,)),
    "full": made("full", (3,), 0.7),
    "eye": made("eye", 3),
    "full_like": exact(lambda x: sw.full_like(x, 0.5), lambda w: np.full_like(w, 0.5)),
    "ones_like": moving("ones_like"),
    "zeros_like": moving("zeros_like"),
    "one_hot": exact(lambda x: sw.one_hot([1, 0], 3, dtype=x.dtype), lambda w: np.eye(3)[[1, 0]]),
    "asarray": exact(sw.asarray, lambda w: w),
    "concat": exact(lambda x: sw.concat([x, x], axis=0), lambda w: np.concatenate([w, w])),
    "stack": exact(lambda x: sw.stack([x, x]), lambda w: np.stack([w, w])),
    "unstack": exact(lambda x: sw.unstack(x, axis=1)[2], lambda w: w[:, 2]),
    "split": exact(lambda x: sw.split(x, 2, axis=1)[1], lambda w: w[:, 2:]),
    "meshgrid": exact(lambda x: sw.meshgrid(x[:, 0], x[0])[0], lambda w: np.meshgrid(w[:, 0], w[0])[0]),
    "expand_dims": moving("expand_dims", axis=1),
    "flip": moving("flip", axis=0),
    "roll": moving("roll", 5, axis=0),
    "matrix_transpose": moving("matrix_transpose", oracle=np.transpose),
    "moveaxis": moving("moveaxis", 0, 1),
    "permute_dims": moving("permute_dims", (1, 0), oracle=np.transpose),
    "reshape": moving("reshape", (-1,)),
    "squeeze": exact(lambda x: sw.squeeze(x[:, None], axis=1), lambda w: w),
    "tril": moving("tril"),
    "triu": moving("triu"),
    "take_along_axis": exact(lambda x: sw.take_along_axis(x, np.zeros((1, WIDTH), int), axis=0), lambda w: w[:1]),
    "stop_gradient": exact(sw.stop_gradient, lambda w: w),
    "checkpoint": exact(lambda x: sw.checkpoint(lambda a: a)(x), lambda w: w),
    "shard": exact(lambda x: shard(x, MESH, P("y", "x")), lambda w: w),
    "all_gather": same("all_gather", 0),
    "all_slice": exact(lambda x: sw.all_slice(shard(x, MESH, P()), 1, "x"), lambda w: w),
    "all_to_all": exact(lambda x: sw.all_to_all(shard(x, MESH, P("x")), 1, 0), lambda w: w),
    "to_device": exact(lambda x: sw.to_device(x, sw.CPU(1)), lambda w: w),
    "transfer_to": exact(lambda x: sw.transfer_to(x, sw.CPU(1)), lambda w: w),
    "cpu": exact(sw.cpu, lambda w: w),
    "distributed_broadcast": exact(lambda x: sw.distributed_broadcast(x, MESH), lambda w: w),
    "from_shards": exact(lambda x: from_shards([x.gather().local(0)] * 8, MESH, P(), x.shape), lambda w: w),
    "shard_map": exact(lambda x: local(lambda a: a)(blocks(x)), lambda w: w[: len(w) // 4 * 4]),
    "ppermute": exact(
        lambda x: local(lambda a: sw.ppermute(a, [(i, (i + 1) % 4) for i in range(4)], axis="x"))(blocks(x)),
        lambda w: np.roll(quarters(w), 1, 0).reshape(-1, WIDTH),
    ),
    "shift": exact(
        lambda x: local(lambda a: sw.shift(a, "x"))(blocks(x)),
        lambda w: np.roll(quarters(w), 1, 0).reshape(-1, WIDTH),
    ),
    "broadcast": exact(
        lambda x: local(lambda a: sw.broadcast(a, "x", 2))(blocks(x)), lambda w: np.tile(quarters(w)[2], (4, 1))
    ),
    "gather": exact(
        lambda x: local(lambda a: sw.gather(a, "x", 0))(blocks(x)),
        lambda w: np.pad(quarters(w).reshape(-1, WIDTH), ((0, len(w) // 4 * 12), (0, 0))),
    ),
    "scatter": exact(
        lambda x: local(lambda a: sw.scatter(a, "x", 0))(shard(x[: len(x) // 16 * 16], MESH, P("x"))),
        lambda w: quarters(w[: len(w) // 16 * 16])[0],
    ),
    "send_recv": exact(
        lambda x: local(lambda a: sw.send_recv(a, "x", 0, 0))(blocks(x)),
        lambda w: np.pad(quarters(w)[0], ((0, len(w) // 4 * 3), (0, 0))),
    ),
    "to_torch": exact(lambda x: sw.to_torch(sw.cpu(x)).double().numpy(), lambda w: w),
    "from_torch": exact(
        lambda x: sw.from_torch(sw.to_torch(sw.cpu(x)), DeviceMesh((1,), ("x",)), P(), x.shape), lambda w: w
    ),
}

# Public functions that have no case of their own, by why.
WITHOUT = {
    "what they make does not depend on a dtype": "accelerator accelerator_count as_layout axis_index cache_info"
    " clear_caches current_engine"
    " current_mesh default_device engine_context explain global_shape_from_local gpu init local_shard_shape_from_global"
    " mesh_context picture plan_reshard shard_shape step trace_communication",
    "integers only": "bitwise_and bitwise_invert bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor",
    "whatever is there": "empty empty_like",
    "used in the cases": "grad vjp value_and_grad jvp",
    "made of the functions that have cases": "custom_op hessian jacfwd jacrev local_call vmap",
    "what comes next depends on the dtype": "nextafter",
    "an older name of shard": "reshard",
    "DTensors are made and read between processes": "from_dtensor to_dtensor",
}
CASES = {**SUMS, **ELEMENTWISE, **MOVES}


def public_functions() -> Iterator[str]:
    for name in dir(sw):
        if not name.startswith("_") and inspect.isfunction(getattr(sw, name)):
            yield name


def test_every_public_function_has_a_case_or_a_reason():
    excused = {name for names in WITHOUT.values() for name in names.split()}
    functions = set(public_functions())
    assert functions - set(CASES) - excused == set()
    assert excused & set(CASES) == set()
    assert excused - functions == set()


SMALL = 203


ALL = os.environ.get("SHARDWISE_TEST_PROFILE") == "long"


def some(items: Sequence[str], name: str, count: int) -> tuple[str, ...]:
    """All items in the long profile, and otherwise a few, of which other functions have others."""
    start = list(CASES).index(name)
    return tuple(items) if ALL else tuple(items[(start + k * 3) % len(items)] for k in range(min(count, len(items))))


def near_oracle(name: str, kind: str, dtypes: Sequence[str], layouts: int, torch: bool = False) -> None:
    case = CASES[name]
    few = case._replace(layouts=some(case.layouts, name, layouts))
    for dtype in dtypes:
        check(name, few, dtype, values(kind, SMALL, dtype), torch)


@pytest.mark.parametrize("name", CASES)
def test_results_are_near_those_in_float64(name):
    case = CASES[name]
    near_oracle(name, case.data, some(case.dtypes, name, 2), 4 if name in SUMS else 2)


@pytest.mark.parametrize("kind", ["alike", "signed"])
@pytest.mark.parametrize("name", [name for name in SUMS if SUMS[name].data == "positive"])
def test_sums_of_numbers_that_are_alike_or_cancel_out(name, kind):
    near_oracle(name, kind, some(SUMS[name].dtypes, name, 1), 2)


@pytest.mark.parametrize("name", SUMS)
def test_sums_of_torch_arrays(name):
    case = SUMS[name]
    near_oracle(name, case.data, some([d for d in HALVES if d in case.dtypes], name, 1), 2, torch=True)


def longest(dtype: str) -> int:
    """The length up to which numbers that are not too small to count can be added up in a dtype."""
    info = ml_dtypes.finfo(dtype)
    return int(float(info.max) / (4 * float(info.smallest_normal)))


LONG = [name for name in SUMS if SUMS[name].data != "near one"]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["alike", "positive", "signed"])
@pytest.mark.parametrize("name", LONG)
def test_long_sums_over_all_layouts(name, kind):
    case = SUMS[name]
    for dtype in case.dtypes:
        check(name, case, dtype, values(kind, min(1 << 13, longest(dtype)), dtype))


FEW_TERMS = ("conv", "gradient of conv by its image", "halo_exchange", "all_reduce", "reduce_scatter", "reduce")


@pytest.mark.long
@pytest.mark.parametrize("torch", [False, True])
@pytest.mark.parametrize("name", [name for name in LONG if name not in FEW_TERMS])
def test_sums_of_a_million_numbers(name, torch):
    # Numbers that are alike are the hardest: float32 itself rounds them all in one direction.
    case = SUMS[name]
    start, count = list(SUMS).index(name), len(case.layouts)
    few = case._replace(layouts=("whole", case.layouts[start % (count - 1) + 1]))
    for dtype in [d for d in case.dtypes if d in HALVES or not torch]:
        data = values("alike" if case.data == "positive" else case.data, min(1 << 20, longest(dtype)), dtype)
        check(name, few, dtype, data, torch)


TRACED = ("sum", "cumulative_sum", "softmax", "matmul", "embedding", "gradient of a bias", "pmean of large numbers")


@pytest.mark.parametrize("name", TRACED)
def test_programs_that_are_traced_and_partitioned_round_once(name):
    case = SUMS[name]
    for dtype in some(HALVES if case.data == "positive" else HALVES[:1], name, 1):
        data = values(case.data, 64, dtype)
        wide = data.astype("float64")
        want = np.asarray(case.want(wide), "float64")
        size = want if case.scale is None else case.scale(wide)
        for layout in some(("sharded", "all axes", "grid"), name, 1):
            got = execute_partitioned(propagate(trace(case.run, tensor(data, layout))), data)
            off = np.abs(as_float64(got) - want) / ulp(size, dtype)
            assert np.max(off) <= 2, (name, dtype, layout, float(np.max(off)))


@pytest.mark.parametrize("shape", [(64, 8, 4), (64, 7, 5)], ids=["collectives", "sends and receives"])
def test_a_sum_over_two_axes_that_is_scattered_over_two_dims_rounds_once(shape):
    data = np.random.default_rng(0).uniform(0.3, 0.9, shape).astype("bfloat16")
    x = shard(data, MESH, P(("x", "y")))
    module = propagate(trace(lambda x: shard(sw.sum(x, axis=0), MESH, P("x", "y")), x))
    got = execute_partitioned(module, data)
    want = data.astype("float64").sum(0)
    assert np.max(np.abs(as_float64(got) - want) / ulp(want, "bfloat16")) <= 2
    assert "arith.truncf" in print_module(partition(module))
