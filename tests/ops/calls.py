"""A right call of every public function, for tests that change one thing about it: a dtype, an integer, an argument."""

from collections.abc import Callable
from functools import partial
from inspect import isclass
from typing import Any, NamedTuple

import numpy as np

import shardwise
from shardwise import DeviceMesh, Layout, P, Tensor, random, shard
from tests.prim.arithmetic.declared import BITS_OF_TWO, ONE, TWO

MESH = DeviceMesh((2, 3), ("x", "y"))


class Call(NamedTuple):
    """A function by its public name, and the arguments of a right call."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def function(self) -> Callable[..., Any]:
        """The function itself."""
        found: Any = shardwise
        for part in self.name.split("."):
            found = getattr(found, part)
        return found

    def __call__(self) -> Any:
        return self.function(*self.args, **self.kwargs)

    def with_(self, at: int | str, value: Any) -> "Call":
        """The call with another value for one argument, by position or by name."""
        if isinstance(at, str):
            return self._replace(kwargs={**self.kwargs, at: value})
        return self._replace(args=(*self.args[:at], value, *self.args[at + 1 :]))


OF_ONE = [
    *ONE,
    *"""gelu sigmoid silu softplus bitwise_invert stop_gradient matrix_transpose zeros_like ones_like
    empty_like""".split(),
]
OVER = "sum prod max min any all mean var std logsumexp norm flip layer_norm rms_norm".split()
ALONG = "softmax log_softmax argmax argmin cumulative_sum".split()

# What has tests of its own of all this, or takes no values: communication, `graph_ops`, engines, contexts.
ELSEWHERE = frozenset(
    """accelerator all_gather all_reduce all_slice all_to_all cpu distributed_broadcast gpu halo_exchange pmean ppermute
    reduce_scatter reshard shard shift to_device transfer_to broadcast gather reduce scatter send_recv axis_index
    local_call
    accelerator_count cache_info clear_caches current_engine current_mesh default_device engine_context init
    mesh_context mode step trace_communication from_dtensor to_dtensor from_torch to_torch""".split()
)


def tensor(shape: tuple[int, ...], *spec: Any, dtype: Any = "float64") -> Tensor:
    """A tensor of two small whole numbers that the dtype has, spread over the mesh."""
    low = 0 if str(np.dtype(dtype)) in ("int2", "bool", "int64") else 1  # int2 ends at 1, float8_e8m0fnu has no 0
    values = np.arange(int(np.prod(shape))).reshape(shape) % 2 + low
    return shard(values.astype(dtype), MESH, P(*spec))


def calls(dtype: Any = "float64") -> list[Call]:
    """At least one right call of every public function, its values in this dtype where it can be chosen."""
    x = partial(tensor, dtype=dtype)
    index = partial(tensor, dtype="int64")
    row, grid, cube = x((2,), "y"), x((4, 2), "x", "y"), x((2, 2, 2), None, "x", "y")  # some shards are empty
    key, sizes = random.key(7), (4, 6)
    where = {"mesh": MESH, "layout": P("x", "y")}
    total = shardwise.sum

    def made(name: str, *args: Any, **kwargs: Any) -> Call:
        return Call(name, args, kwargs)

    return [
        *(made(name, grid) for name in OF_ONE),
        *(made(name, grid, row) for name in (*TWO, *BITS_OF_TWO)),
        *(made(name, cube, axis=axis) for name in OVER for axis in (1, (0, 2))),
        *(made(name, cube, axis=1, keepdims=True) for name in OVER[:-3]),
        *(made(name, cube, axis=2) for name in ALONG),
        made("argmax", row),
        made("argmin", grid, axis=1, keepdims=True),
        made("cumulative_sum", row, include_initial=True),
        made("topk", grid, 2, axis=0),
        made("norm", row, ord=3),
        made("var", grid, axis=0, correction=1),
        made("astype", grid, "float32"),
        made("clip", grid, 0, 1),
        made("where", grid > 1, grid, row),
        made("matmul", grid, x((2, 3), "y")),
        made("einsum", "ij,j->i", grid, row),
        made("tensordot", grid, x((2, 3), "y"), axes=1),
        made("tensordot", grid, x((2, 3), "y"), axes=((1,), (0,))),
        made("conv", x((1, 2, 6), None, None, "y"), x((2, 1, 2)), stride=1, padding=((1, 0),), dilation=1, groups=2),
        made("conv", x((1, 2, 6), None, None, "y"), x((2, 2, 2)), stride=(2,), padding="SAME", dilation=(1,)),
        made("cross_entropy", grid, index((4,), "x"), axis=1, ignore_index=1),
        made("reshape", grid, (2, -1)),
        made("reshape", grid, 8),
        made("permute_dims", cube, (2, 0, 1)),
        made("moveaxis", cube, 0, 2),
        made("moveaxis", cube, (0, 1), (1, 2)),
        made("expand_dims", grid, axis=1),
        made("squeeze", x((2, 1, 3), "x"), 1),
        made("squeeze", x((1, 1, 3), "x"), (0, 1)),
        made("broadcast_to", row, (3, 2)),
        made("concat", [grid, grid], axis=1),
        made("concat", [grid, row], axis=None),
        made("stack", [grid, grid], axis=2),
        made("unstack", grid, axis=0),
        made("split", grid, 2, axis=1),
        made("split", grid, (1, 3), axis=0),
        made("roll", grid, 2, axis=1),
        made("roll", grid, (1, 2), axis=(0, 1)),
        made("roll", grid, 5),
        made("pad", grid, ((1, 0), (0, 2)), mode="constant", constant_values=1),
        made("pad", grid, 1, mode="edge"),
        made("take", grid, index((3,)), axis=1),
        made("take_along_axis", grid, index((4, 2), "x"), axis=1),
        made("embedding", index((2, 3), "x"), grid),
        made("one_hot", index((4,), "x"), 3, dtype="float32", axis_layout="y"),
        made("tril", grid, k=1),
        made("triu", grid, k=-1),
        made("meshgrid", row, x((2,)), indexing="ij"),
        made("full_like", grid, 1),
        *(made(name, sizes, dtype=dtype, **where) for name in ("zeros", "ones", "empty")),
        *(made(name, 6, dtype=dtype) for name in ("zeros", "ones", "empty")),
        made("full", sizes, 1, dtype=dtype, **where),
        made("eye", 4, 6, k=1, dtype=dtype, **where),
        made("arange", 0, 6, 2, dtype=dtype, mesh=MESH, layout=P("x")),
        made("linspace", 0, 1, 2, dtype=dtype, mesh=MESH, layout=P("x")),
        made("asarray", [1, 0], dtype),
        made("from_shards", [np.ones(1, dtype)] * 6, MESH, P(("x", "y")), (6,)),
        *(made(f"random.{name}", key, shape=sizes, **where) for name in ("bits", "uniform", "normal")),
        *(made(f"random.{name}", key, shape=6, dtype=dtype) for name in ("bits", "uniform", "normal")),
        made("random.bernoulli", key, 0.5, sizes, **where),
        made("random.integers", key, 0, 2, sizes, dtype, **where),
        made("random.dropout", key, grid, 0.5),
        made("random.key", 5),
        made("random.split", key, 3),
        made("random.fold_in", key, 3),
        made("random.Key", 1, 2),
        made("grad", total, 0),
        made("value_and_grad", total, (0,)),
        made("vjp", total, grid),
        made("jvp", total, (grid,), (grid,)),
        made("checkpoint", total),
        made("vmap", total, 0, 0),
        made("custom_op", total, rule="i->i"),
        made("custom_vjp", total, total, total),
        made("custom_jvp", total, total),
        *(made(name, total, 0) for name in ("jacfwd", "jacrev", "hessian")),
        made("explain", total, grid),
        made("as_layout", P("x"), 2, MESH),
        made("shard_shape", sizes, P("x", "y"), MESH),
        made("local_shard_shape_from_global", sizes, MESH, P("x", "y")),
        made("global_shape_from_local", (2, 2), MESH, P("x", "y")),
        made("plan_reshard", P("x"), P("y"), sizes, "float32", mesh=MESH, memory_limit=64),
        made("picture", Layout(MESH, ["x", "y"]), sizes),
        made("shard_map", total, MESH, P("x"), P("x")),
        made("DeviceMesh", (2, 3), ("x", "y")),
        made("DimSpec", ["x"], False, 1),
        made("Sharded", 0, offsets=(0, 2, 4), halo=(1, 1)),
        made("Cut", "x", offsets=(0, 2, 4), halo=1),
        made("Partial", "sum"),
        made("CPU", 1),
        made("Accelerator", 1),
        made("P", "x", None),
        made("Layout", MESH, ["x", None], ["y"]),
        made("NamedMapping", MESH, P("x")),
        made("PlacementMapping", MESH, [shardwise.Sharded(0), shardwise.Replicated()]),
        made("ShardingSpec", MESH, [shardwise.DimSpec(["x"])]),
        made("LocalType", "float32", sizes, shardwise.CPU(0)),
        made("TensorLayout", "float32", sizes, shardwise.NamedMapping(MESH, P("x"))),
        made("DistributedTensorType", "float32", sizes, MESH, P("x")),
        made("DistributedBufferType", "float32", sizes, MESH, P("x")),
        made("Link", 1e9, 1e-6),
    ]


def public_functions() -> set[str]:
    """The names of all public functions, but for those that are tried elsewhere."""
    found = {n for n in dir(shardwise) if not n.startswith("_") and _is_function(getattr(shardwise, n))}
    found |= {f"random.{n}" for n in random.__all__ if _is_function(getattr(random, n))}
    return found - ELSEWHERE


def _is_function(value: Any) -> bool:
    return callable(value) and not isclass(value)


def tensors_of(made: Any) -> list[Tensor]:
    """The tensors in what a call makes."""
    return [x for x in (made if isinstance(made, tuple | list) else [made]) if isinstance(x, Tensor)]
