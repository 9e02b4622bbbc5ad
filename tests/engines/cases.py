"""Meshes and reshards over the devices of a pool, and what both engines are asked to show."""

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np
import optree
from hypothesis import strategies as st

from shardwise import CPU, DeviceMesh, Tensor, current_engine
from shardwise.layout.placement import reductions_of
from tests.engines.pool import Pool
from tests.prim.cases import DTYPES, SHAPES, Move, layouts_for


class Seen(NamedTuple):
    """What one process shows of a tensor."""

    type_text: str
    layout: str
    shape: tuple[int, ...]
    dtype: str
    arrays: dict[int, np.ndarray]  # by device


def seen(tree: Any) -> list[Any]:
    """The tensors of a tree as far as they are in this process; other leaves as they are."""
    leaves = optree.tree_leaves(tree, none_is_leaf=True)
    return [_seen(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves]


def _seen(x: Tensor) -> Seen:
    arrays = {shard.index: np.asarray(shard.array) for shard in x.shards}
    assert all(x.storage.local_shape(x.storage.index(i)) == array.shape for i, array in arrays.items())
    return Seen(x.type_text, f"{x.layout} on {x.mesh!r}", x.shape, str(x.dtype), arrays)


def assert_same(want: list[Any], got: list[list[Any]], exact: bool = True) -> None:
    """What the processes show together is what the local engine shows, and replicas are equal bit by bit."""
    for number, leaf in enumerate(want):
        found = [some[number] for some in got]
        if not isinstance(leaf, Seen):
            assert all(value == leaf for value in found), (found, leaf)
            continue
        devices: set[int] = set()
        for process in found:
            assert process[:4] == leaf[:4]
            for device, array in process.arrays.items():
                expected = leaf.arrays[device]
                assert array.dtype == expected.dtype
                assert array.shape == expected.shape
                equal = array.tobytes() == expected.tobytes() if exact else np.allclose(
                    array, expected, rtol=1e-12, atol=1e-13, equal_nan=True
                )  # fmt: skip
                assert equal, (leaf[:3], device, array, expected)
                devices.add(device)
        assert devices == set(leaf.arrays), "every device belongs to a process"


def check(pool: Pool, function: Callable[..., Any], *args: Any, exact: bool = True, sent: bool = True) -> None:
    """A function gives in processes what it gives on the local engine, and counts the same bytes between devices."""
    engine = current_engine()
    engine.counters.reset()
    want = seen(function(*args))
    moved = {kind: size for kind, size in engine.counters.bytes_moved.items() if size}
    answers = pool.run(counted, function.__module__, function.__name__, args)
    assert_same(want, [answer for answer, _ in answers], exact)
    if not sent:
        return
    total: dict[str, int] = {}
    for _, counts in answers:
        for kind, size in counts.items():
            total[kind] = total.get(kind, 0) + size
    assert {kind: size for kind, size in total.items() if size} == moved


def counted(module: str, name: str, args: tuple[Any, ...]) -> tuple[list[Any], dict[str, int]]:
    """Run a function in this process and return what it shows, and the bytes that devices here received."""
    from importlib import import_module

    counters = current_engine().counters
    counters.reset()
    found = seen(getattr(import_module(module), name)(*args))
    return found, dict(counters.bytes_moved)


# -- generated -----------------------------------------------------------------------------------------


@st.composite
def process_meshes(draw: st.DrawFn, size: int) -> DeviceMesh:
    """Meshes over some or all processes, in any order; some give several slots to one process."""
    sizes: list[int] = []
    for _ in range(draw(st.integers(1, 3))):
        sizes.append(draw(st.integers(1, size // prod(sizes))))
    if draw(st.booleans()):
        sizes[0] *= size // prod(sizes)
    count = prod(sizes)
    devices = [CPU(i) for i in draw(st.permutations(range(size)))[:count]]
    if draw(st.integers(0, 5)) == 0:
        devices = [CPU(draw(st.integers(0, size - 1))) for _ in range(count)]
    return DeviceMesh(sizes, tuple("abc"[: len(sizes)]), None if draw(st.booleans()) else devices)


@st.composite
def process_moves(draw: st.DrawFn, size: int) -> Move:
    """Reshards on one mesh or between two, of any dtype, with partial values and halos."""
    src = draw(process_meshes(size))
    dst = src
    if draw(st.integers(0, 2)) == 0:
        dst = draw(process_meshes(size))
    shape, dtype = draw(SHAPES), draw(st.sampled_from(DTYPES))
    ops = [None, *reductions_of(dtype)]
    a, b = (draw(st.sampled_from(ops)) for _ in range(2))
    return Move(draw(layouts_for(src, shape, op=a)), draw(layouts_for(dst, shape, op=b)), shape, dtype)
