"""Programs: random work on random meshes, drawn from a seed. Every process draws the same, and checks what it holds
against NumPy on the global values, which it works out by itself."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

import shardwise as sw
from shardwise import CPU, DeviceMesh, Layout, P, Tensor
from tests.every.draws import Draws
from tests.every.layouts import draw_layout
from tests.every.meshes import CHAINS
from tests.layout.oracle import held_box
from tests.prim.cases import part, values

MEET = "meet"  # the operation that ends every iteration, of all processes together
LARGE = (384, 96)


@dataclass(frozen=True)
class Value:
    """A tensor, and what it is as a whole."""

    tensor: Tensor
    whole: np.ndarray


def draw_mesh(draws: Draws, size: int) -> DeviceMesh:
    """A mesh of some or all of so many processes, in any order; now and then one of them has several slots."""
    rng = Random(draws.below(1 << 30))
    count = size if draws.rarely(3) else _draw_count(rng, size)
    sizes = [count]
    for number in (2, 3):
        if sizes[0] % number == 0 and sizes[0] > number and draws.below(2):
            sizes = [sizes[0] // number, number, *sizes[1:]]
    rng.shuffle(sizes)
    ranks = rng.choices(range(size), k=count) if draws.rarely(12) else rng.sample(range(size), count)
    return DeviceMesh(sizes, tuple("abc"[: len(sizes)]), [CPU(rank) for rank in ranks])


def _draw_count(rng: Random, size: int) -> int:
    return rng.choice([count for count in CHAINS if 2 <= count <= size])


def all_of(size: int) -> DeviceMesh:
    """All processes along one axis."""
    return DeviceMesh((size,), ("x",))


def check(value: Value) -> None:
    """What this process holds of a value is right."""
    tensor, whole = value.tensor, value.whole
    assert (tensor.shape, tensor.dtype) == (whole.shape, whole.dtype), (tensor, whole)
    if tensor.layout.partial:
        tensor = sw.shard(tensor, tensor.mesh, Layout(tensor.mesh, [None] * whole.ndim))
    for shard in tensor.shards:
        want = part(whole, held_box(tensor.layout, whole.shape, shard.index))
        assert np.array_equal(np.asarray(shard.array), want), (tensor.type_text, shard, want)


def make(draws: Draws, size: int) -> Value:
    """A tensor to begin with."""
    shape = LARGE if draws.rarely(6) else tuple(draws.between(1, 9) for _ in range(draws.between(1, 3)))
    whole = values(shape, draws.choice(["float64", "float32"]), draws.below(1 << 20))
    mesh = draw_mesh(draws, size)
    return Value(sw.shard(whole, mesh, draw_layout(draws, mesh, shape, halo=False)), whole)


# -- operations ----------------------------------------------------------------------------------------------


def reshard(draws: Draws, size: int, x: Value) -> Value:
    mesh = draw_mesh(draws, size) if draws.below(2) else x.tensor.mesh
    return Value(sw.shard(x.tensor, mesh, draw_layout(draws, mesh, x.whole.shape, halo=False)), x.whole)


def widen(draws: Draws, size: int, x: Value) -> Value:
    """Shards that overlap, on the way to others that do not."""
    mesh = draw_mesh(draws, size)
    wide = Value(sw.shard(x.tensor, mesh, draw_layout(draws, mesh, x.whole.shape)), x.whole)
    check(wide)
    return reshard(draws, size, wide)


def gather(draws: Draws, size: int, x: Value) -> Value:
    return Value(x.tensor.gather(), x.whole)


def pend(draws: Draws, size: int, x: Value) -> Value:
    """Contributions of several processes, and what they give together."""
    mesh = draw_mesh(draws, size)
    op: Any = draws.choice(["sum", "max", "min"])
    pending = sw.shard(x.tensor, mesh, draw_layout(draws, mesh, x.whole.shape, op, halo=False))
    return reshard(draws, size, Value(pending, x.whole))


def add(draws: Draws, size: int, x: Value) -> Value:
    other = _beside(draws, x)
    return Value(x.tensor - other.tensor, x.whole - other.whole)


def total(draws: Draws, size: int, x: Value) -> Value:
    axis = draws.below(x.whole.ndim) if x.whole.ndim else None
    return Value(sw.sum(x.tensor, axis=axis), np.asarray(x.whole.sum(axis=axis)))


def product(draws: Draws, size: int, x: Value) -> Value:
    if x.whole.ndim != 2 or x.whole.size > 500:
        return reshard(draws, size, x)
    other = _beside(draws, x, (x.whole.shape[1], draws.between(1, 5)))
    return Value(x.tensor @ other.tensor, x.whole @ other.whole)


def slope(draws: Draws, size: int, x: Value) -> Value:
    other = _beside(draws, x)
    return Value(sw.grad(lambda a: (a * a * other.tensor).sum())(x.tensor), 2 * x.whole * other.whole)


def blocks(draws: Draws, size: int, x: Value) -> Value:
    """What every process has, added up, sent on to the next, or exchanged; in place of the value so far."""
    rng = Random(draws.below(1 << 30))
    count = _draw_count(rng, size)
    mesh = DeviceMesh((count,), ("x",), [CPU(rank) for rank in rng.sample(range(size), count)])
    high = draws.between(1, 4)
    whole = values((count * high, count * draws.between(1, 2)), "float64", draws.below(1 << 20))
    tensor, parts = sw.shard(whole, mesh, P("x")), whole.reshape(count, high, -1)
    how = draws.choice(["all_reduce", "reduce_scatter", "all_to_all", "shift"])
    if how == "all_reduce":
        return Value(sw.all_reduce(tensor), parts.sum(0))
    if how == "reduce_scatter":
        return Value(sw.reduce_scatter(tensor, 1), parts.sum(0))
    if how == "all_to_all":
        return Value(sw.all_to_all(tensor, 1, 0), whole)
    return Value(sw.shift(tensor, "x"), np.roll(whole, high, 0))


def _beside(draws: Draws, x: Value, shape: tuple[int, ...] | None = None) -> Value:
    # Another tensor on the same mesh.
    shape, mesh = x.whole.shape if shape is None else shape, x.tensor.mesh
    whole = values(shape, x.whole.dtype, draws.below(1 << 20))
    return Value(sw.shard(whole, mesh, draw_layout(draws, mesh, shape, halo=False)), whole)


OPERATIONS: dict[str, Callable[[Draws, int, Value], Value]] = {
    function.__name__: function for function in (reshard, widen, gather, pend, add, total, product, slope, blocks)
}


def meet(draws: Draws, size: int, odd: str = "") -> Value:
    """A call of all processes; one of them may make another."""
    whole, mesh = values((2 * size, 3), "float64", draws.below(1 << 20)), all_of(size)
    if odd == "mesh":
        mesh = DeviceMesh((size,), ("x",), [CPU(rank) for rank in reversed(range(size))])
    if odd == "shape":
        whole = whole[:, :2]
    if odd == "dtype":
        whole = whole.astype("int64")
    tensor = sw.shard(whole, mesh, P("x"))
    if odd == "layout":
        return Value(sw.shard(tensor, mesh, P(None, "x")), whole)
    if odd == "function":
        return Value(sw.all_reduce(tensor), whole.reshape(size, 2, -1).sum(0))
    return Value(tensor.gather(), whole)


ODD = ("mesh", "shape", "dtype", "layout", "function")


def iterate(seed: int, number: int, size: int, odd: str = "") -> Iterator[str]:
    """Do the work of one iteration; yield the name of each operation before it is done."""
    draws = Draws(f"{seed}/{number}")
    value = make(draws, size)
    check(value)
    for _ in range(draws.between(2, 5)):
        name = draws.choice(list(OPERATIONS))
        yield name
        value = OPERATIONS[name](draws, size, value)
        check(value)
    yield MEET
    check(meet(draws, size, odd))
