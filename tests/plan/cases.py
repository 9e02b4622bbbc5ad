"""Transitions to plan: all of a mesh, and those that hypothesis generates."""

from collections.abc import Iterator
from itertools import permutations, product
from math import prod
from random import Random
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from shardwise import CPU, Cut, DeviceMesh, Layout, ReduceOp
from shardwise.layout.axis import Axis
from shardwise.layout.placement import reductions_of
from tests.layout.strategies import cuts, factors, meshes

MOST_DEVICES = 24


class Transition(NamedTuple):
    """Two layouts and a shape that both bind to."""

    src: Layout
    dst: Layout
    shape: tuple[int, ...]


def mesh_of(*sizes: int) -> DeviceMesh:
    """A mesh of these sizes with the axes x, y, z, ..."""
    return DeviceMesh(sizes, tuple("xyzuvw"[: len(sizes)]))


def all_layouts(mesh: DeviceMesh, rank: int, partial: bool = False, op: str = "sum") -> list[Layout]:
    """Every layout of whole axes: each axis splits a dim (in any order of axes), is replicated or partial."""
    out = []
    for roles in product(range(-1 - partial, rank), repeat=mesh.ndim):
        homes = [[n for n, role in zip(mesh.axis_names, roles, strict=True) if role == k] for k in range(rank)]
        pending = [n for n, role in zip(mesh.axis_names, roles, strict=True) if role == -2]
        out += [Layout(mesh, dims, pending, op) for dims in product(*map(permutations, homes))]
    return list(dict.fromkeys(out))  # axes of size one make no difference


def all_transitions(mesh: DeviceMesh, shape: tuple[int, ...], partial: bool = False) -> Iterator[Transition]:
    """Every pair of such layouts; with `partial`, those where one of them has partial axes."""
    found = all_layouts(mesh, len(shape), partial)
    for src, dst in product(found, found):
        if not partial or src.partial or dst.partial:
            yield Transition(src, dst, shape)


@st.composite
def mesh_pairs(draw: st.DrawFn) -> tuple[DeviceMesh, DeviceMesh]:
    """One mesh twice, or two whose devices are the same, some of them, or others."""
    mesh = draw(meshes(max_axes=3, max_size=5, max_devices=MOST_DEVICES))
    kind = draw(st.sampled_from(["same", "same", "same", "turned", "flat", "part", "shuffled", "subset", "other"]))
    if kind == "same" or len(set(mesh.devices)) < mesh.num_devices:
        return mesh, mesh
    if kind == "turned":
        return mesh, mesh.transpose(*draw(st.permutations(mesh.axis_names)))
    if kind == "flat":
        return mesh, mesh.flatten()
    if kind == "part":
        return mesh, mesh.select(*mesh.axis_names[:1])
    sizes = draw(meshes(max_axes=3, max_size=5, max_devices=MOST_DEVICES)).mesh_shape
    ours, new = list(mesh.devices), [CPU(1000 + i) for i in range(MOST_DEVICES)]
    pool = {"shuffled": ours, "subset": ours + new[: len(ours)], "other": new}[kind]
    if prod(sizes) > len(pool):
        sizes = (len(pool),)
    order = draw(st.permutations(pool))[: prod(sizes)]
    return mesh, DeviceMesh(sizes, tuple("uvw"[: len(sizes)]), order)


@st.composite
def layouts_of(
    draw: st.DrawFn, mesh: DeviceMesh, shape: tuple[int, ...], partial: bool, halo: bool, op: ReduceOp
) -> Layout:
    """Layouts on a mesh that bind to a shape."""
    homes: dict[int, list[Axis]] = {}
    for axis in draw(factors(mesh)):
        homes.setdefault(draw(st.integers(-2 if partial else -1, len(shape) - 1)), []).append(axis)
    dims = []
    for dim, size in enumerate(shape):
        axes = homes.get(dim, [])
        cut: dict[str, Any] = {}
        if draw(st.booleans()):
            cut = draw(cuts(prod(a.size for a in axes), size, halo=halo))
        dims.append(Cut(axes, **cut))
    return Layout(mesh, dims, homes.get(-2, []), op)


@st.composite
def transitions(draw: st.DrawFn, *, partial: bool = False, halo: bool = True, one_mesh: bool = False) -> Transition:
    """Transitions of tensors of 0 to 4 dims on one mesh or between two."""
    src, dst = draw(mesh_pairs())
    dst = src if one_mesh else dst
    shape = tuple(draw(st.lists(st.integers(0, 9), max_size=4)))
    if shape and draw(st.booleans()):
        shape = tuple(max(2, size) for size in shape)
    ops = [draw(st.sampled_from([op for op in ReduceOp if op is not ReduceOp.AVG])) for _ in range(2)]
    if draw(st.booleans()):
        ops[1] = ops[0]
    a = draw(layouts_of(src, shape, partial, halo, ops[0]))
    b = draw(layouts_of(dst, shape, partial, halo, ops[1]))
    return Transition(a, b, shape)


def chains_of(number: int) -> list[tuple[int, ...]]:
    """Every way to write a number as a product of factors above one, in every order."""
    if number == 1:
        return [()]
    return [(d, *rest) for d in range(2, number + 1) if number % d == 0 for rest in chains_of(number // d)]


def factored(mesh: DeviceMesh) -> Iterator[list[Axis]]:
    """Every way to see a mesh as disjoint sub-axes."""
    per_axis = []
    for name, of in zip(mesh.axis_names, mesh.mesh_shape, strict=True):
        per_axis.append([[Axis(name, prod(c[:i]), n, of) for i, n in enumerate(c)] for c in chains_of(of)])
    for parts in product(*per_axis):
        yield [axis for part in parts for axis in part]


def sub_axis_layouts(mesh: DeviceMesh, rank: int, op: str = "sum") -> list[Layout]:
    """Every layout of sub-axes: each splits a dim (in any order within it), is replicated or partial."""
    out = []
    for axes in factored(mesh):
        for roles in product(range(-2, rank), repeat=len(axes)):
            homes = [[a for a, role in zip(axes, roles, strict=True) if role == k] for k in range(rank)]
            pending = [a for a, role in zip(axes, roles, strict=True) if role == -2]
            out += [Layout(mesh, dims, pending, op) for dims in product(*map(permutations, homes))]
    return list(dict.fromkeys(out))


class Move(NamedTuple):
    """A transition of a dtype for which both layouts are defined."""

    src: Layout
    dst: Layout
    shape: tuple[int, ...]
    dtype: np.dtype


def crowded_mesh(rng: Random, names: str) -> DeviceMesh:
    """A small mesh of some of six devices, which may stand in several slots."""
    sizes = [rng.choice([1, 2, 2, 3, 4]) for _ in range(rng.randint(1, 2))]
    count = prod(sizes)
    kind = rng.choice(["one", "few", "few", "distinct"])
    devices = [CPU(rng.randrange(4)) for _ in range(count)]
    if kind == "one":
        devices = devices[:1] * count
    if kind == "distinct" and count <= 6:
        devices = [CPU(i) for i in rng.sample(range(6), count)]
    return DeviceMesh(sizes, tuple(names[: len(sizes)]), devices)


def seeded_layout(rng: Random, mesh: DeviceMesh, shape: tuple[int, ...], op: ReduceOp | None) -> Layout:
    """A layout on a mesh, of sub-axes and with halos; with partial axes if a reduction is given."""
    homes: dict[int, list[Axis]] = {}
    for axis in rng.sample(axes := rng.choice(list(factored(mesh))), len(axes)):
        homes.setdefault(rng.randint(-2 if op else -1, len(shape) - 1), []).append(axis)
    dims = []
    for dim, size in enumerate(shape):
        owned, cut = homes.get(dim, []), {}
        if rng.random() < 0.25:
            most = size // prod(a.size for a in owned)
            cut = {"halo": (rng.randint(0, most), rng.randint(0, most)), "edge": rng.choice(["clip", "pad"])}
        dims.append(Cut(owned, **cut))
    return Layout(mesh, dims, homes.get(-2, []), op or "sum")


def crowded_moves(rng: Random) -> Move:
    """A reshard between two meshes of which one, at least, has a device in several slots."""
    shape = tuple(rng.choice([0, 1, 2, 3, 5, 6, 8]) for _ in range(rng.randint(0, 2)))
    dtype = np.dtype(rng.choice(["int64", "float64"]))
    ops = [None, *reductions_of(dtype)]
    while True:
        a, b = crowded_mesh(rng, "xy"), crowded_mesh(rng, "uv")
        if any(len(set(mesh.devices)) < mesh.num_devices for mesh in (a, b)):
            break
    src, dst = (seeded_layout(rng, mesh, shape, rng.choice(ops)) for mesh in (a, b))
    return Move(src, dst, shape, dtype)
