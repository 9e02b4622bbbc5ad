"""Cases that hypothesis generates: meshes, their axes, and layouts together with shapes they bind to."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from shardwise import CPU, Accelerator, Cut, Device, DeviceMesh, Layout, ReduceOp
from shardwise.layout.axis import Axis
from tests.layout.oracle import lengths

NAMES = st.text("abtxyzé_09-", min_size=1, max_size=3)
MOST_ELEMENTS = 4000  # of a generated tensor, so that oracles may count them one by one


class Bound(NamedTuple):
    """A layout and a shape that it binds to."""

    layout: Layout
    shape: tuple[int, ...]


@st.composite
def meshes(
    draw: st.DrawFn, min_axes: int = 1, max_axes: int = 4, max_size: int = 6, max_devices: int = 200
) -> DeviceMesh:
    """Meshes of named axes whose devices are virtual, regular in another order, listed, or all one device."""
    sizes: list[int] = []
    for _ in range(draw(st.integers(min_axes, max_axes))):
        sizes.append(draw(st.integers(1, min(max_size, max_devices // prod(sizes)))))
    names = draw(st.lists(NAMES, min_size=len(sizes), max_size=len(sizes), unique=True))
    return DeviceMesh(sizes, names, draw(device_orders(sizes)))


@st.composite
def device_orders(draw: st.DrawFn, sizes: Sequence[int]) -> Sequence[Device] | None:
    """The devices of a mesh of these sizes, or None for virtual ones."""
    count = prod(sizes)
    kind = draw(st.sampled_from(["virtual", "virtual", "regular", "listed", "simulated"]))
    if kind == "virtual":
        return None
    if kind == "simulated":
        return [CPU(0)] * count
    if kind == "listed":
        return [CPU(i) for i in draw(st.permutations(range(count)))]
    axes = draw(st.permutations(range(len(sizes))))
    ids = np.arange(count).reshape([sizes[a] for a in axes]).transpose(np.argsort(axes))
    return [Accelerator(int(i) + 3) for i in ids.ravel()]


@st.composite
def factors(draw: st.DrawFn, mesh: DeviceMesh) -> list[Axis]:
    """All of a mesh as disjoint axes, some of them cut into sub-axes, in any order."""
    out = []
    for name, of in zip(mesh.axis_names, mesh.mesh_shape, strict=True):
        cuts = [1, of]
        if draw(st.booleans()):
            inner = draw(st.sampled_from([d for d in range(1, of + 1) if of % d == 0]))
            cuts = sorted({1, inner, of})
        out += [Axis(name, low, high // low, of) for low, high in pairwise(cuts)] or [Axis(name, 1, 1, 1)]
    return draw(st.permutations(out))


@st.composite
def axis_lists(draw: st.DrawFn, mesh: DeviceMesh, min_size: int = 0) -> list[Axis]:
    """Some disjoint axes and sub-axes of a mesh, in any order."""
    found = draw(factors(mesh))
    return found[: draw(st.integers(min(min_size, len(found)), len(found)))]


@st.composite
def bound_layouts(
    draw: st.DrawFn,
    mesh: DeviceMesh | None = None,
    rank: int | None = None,
    *,
    plain: bool = False,
    partial: bool = True,
    halo: bool = True,
    even: bool = False,
) -> Bound:
    """Layouts with a shape they bind to.

    With `plain` each dim is cut the default way; with `even` all parts of it are equally long.
    """
    mesh = draw(meshes()) if mesh is None else mesh
    rank = draw(st.integers(0, 4)) if rank is None else rank
    homes: dict[int, list[Axis]] = {}
    for axis in draw(factors(mesh)):
        homes.setdefault(draw(st.integers(-2 if partial else -1, rank - 1)), []).append(axis)
    room, dims, shape = MOST_ELEMENTS, [], []
    for dim in range(rank):
        axes = homes.get(dim, [])
        parts = prod(a.size for a in axes)
        size = draw(st.integers(0, min(room, 24)))
        if even:
            size = parts * draw(st.integers(1, 3))
        cut: dict[str, Any] = {} if plain else draw(cuts(parts, size, halo=halo))
        dims.append(Cut(axes, **cut))
        shape.append(size)
        room //= max(size, 1)
    op = draw(st.sampled_from(ReduceOp))
    return Bound(Layout(mesh, dims, homes.get(-2, []), op), tuple(shape))


@st.composite
def cuts(draw: st.DrawFn, parts: int, size: int, halo: bool = True) -> dict[str, Any]:
    """The arguments of a `Cut` of a dim of `size` elements into `parts`."""
    split = draw(st.sampled_from(["balanced", "chunk", "offsets"]))
    out: dict[str, Any] = {"split": split}
    if split == "offsets":
        inner = draw(st.lists(st.integers(0, size), min_size=parts - 1, max_size=parts - 1))
        out["offsets"] = (0, *sorted(inner), size)
    if not halo or draw(st.booleans()):
        return out
    own = lengths(size, parts, split, out.get("offsets"))
    low = draw(st.integers(0, min(own[:-1], default=3)))
    high = draw(st.integers(0, min(own[1:], default=3)))
    return out | {"halo": (low, high), "edge": draw(st.sampled_from(["clip", "pad"]))}


def layouts(mesh: DeviceMesh, rank: int) -> st.SearchStrategy[Layout]:
    """Layouts of tensors of `rank` dims on a mesh."""
    return bound_layouts(mesh, rank).map(lambda case: case.layout)
