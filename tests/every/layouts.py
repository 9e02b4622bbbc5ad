"""Layouts to draw: uneven, in chunks, at offsets, with halos, empty shards and pending reductions."""

from collections.abc import Sequence
from math import prod
from typing import Any

from shardwise import Cut, DeviceMesh, Layout, ReduceOp
from shardwise.layout.axis import Axis
from tests.every.draws import Draws
from tests.every.meshes import draw_homes
from tests.layout.oracle import lengths


def draw_layout(
    draws: Draws,
    mesh: DeviceMesh,
    shape: Sequence[int],
    op: ReduceOp | None = None,
    *,
    plain: bool = False,
    halo: bool = True,
) -> Layout:
    """A layout of this shape on a mesh; with a reduction, it may be pending; a plain one is cut the default way."""
    homes: dict[int, list[Axis]] = {}
    places = [-1, *range(len(shape)), *([-2] if op is not None else [])]
    for axis, place in draw_homes(draws, mesh, places):
        homes.setdefault(place, []).append(axis)
    dims = []
    for dim, size in enumerate(shape):
        axes = homes.get(dim, [])
        how = {} if plain or not draws.below(2) else _draw_cut(draws, prod(a.size for a in axes), size, halo)
        dims.append(Cut(axes, **how))
    return Layout(mesh, dims, homes.get(-2, []), op or "sum")


def _draw_cut(draws: Draws, parts: int, size: int, halo: bool) -> dict[str, Any]:
    split = draws.choice(["balanced", "chunk", "offsets"])
    out: dict[str, Any] = {"split": split}
    if split == "offsets":
        out["offsets"] = (0, *sorted(draws.between(0, size) for _ in range(parts - 1)), size)
    if not halo or not draws.below(2):
        return out
    own = lengths(size, parts, split, out.get("offsets"))
    widths = [draws.between(0, min(some, default=3)) for some in (own[:-1], own[1:])]
    return out | {"halo": tuple(widths), "edge": draws.choice(["clip", "pad"])}
