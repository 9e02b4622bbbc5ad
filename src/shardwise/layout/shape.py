"""Shapes: from the global shape to the shards' shapes and back."""

import re
from collections.abc import Sequence
from math import gcd
from typing import Any

from shardwise.errors import BindingError, as_tuple
from shardwise.layout.conversion import LayoutLike, as_layout
from shardwise.layout.layout import Layout, check_shape
from shardwise.layout.mesh import DeviceMesh
from shardwise.layout.tiling import DimTiling

Dim = int | str
_NAMED = re.compile(r"(?:(?P<times>[1-9][0-9]*)\*)?(?P<name>[A-Za-z_]\w*)(?:/(?P<over>[1-9][0-9]*))?")


def check_dims(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """Return a shape as a tuple of names and of ints of 0 or more.

    >>> check_dims(["batch", 8])
    ('batch', 8)
    """
    dims = as_tuple(shape, "a shape is a tuple of ints or names")
    sizes = iter(check_shape([size for size in dims if not isinstance(size, str)]))
    return tuple(size if isinstance(size, str) else next(sizes) for size in dims)


def shard_shape(global_shape: Sequence[Dim], placements: LayoutLike, mesh: DeviceMesh | None = None) -> tuple[Dim, ...]:
    """Return the shape of one representative shard: the first, which is the largest.

    With explicit offsets or halos it is the largest size per dim. A named dim passes through as itself,
    or as a quotient of itself where it is sharded.

    >>> from shardwise import DeviceMesh, P, Replicated, Sharded
    >>> mesh = DeviceMesh((2, 4), ("dp", "tp"))
    >>> shard_shape((10, 8), [Sharded(0), Sharded(0)], mesh)
    (2, 8)
    >>> shard_shape(("batch", 8), P("dp", "tp"), mesh)
    ('batch/2', 2)
    """
    shape = check_dims(global_shape)
    layout = as_layout(placements, len(shape), mesh)
    return tuple(
        _quotient(size, layout, dim) if isinstance(size, str) else _bind(size, layout, dim).largest
        for dim, size in enumerate(shape)
    )


def local_shard_shape_from_global(
    global_shape: Sequence[Dim], mesh: DeviceMesh | None, placements: LayoutLike
) -> list[tuple[Dim, ...]]:
    """Return the shape of every device's shard, in device order.

    >>> from shardwise import DeviceMesh, Sharded
    >>> local_shard_shape_from_global((10,), DeviceMesh((4,), ("x",)), [Sharded(0)])
    [(3,), (3,), (2,), (2,)]
    """
    shape = check_dims(global_shape)
    layout = as_layout(placements, len(shape), mesh)
    lengths: list[list[Dim]] = [
        [_quotient(size, layout, dim)] * layout.parts(dim)
        if isinstance(size, str)
        else _held_lengths(_bind(size, layout, dim))
        for dim, size in enumerate(shape)
    ]
    tile = layout.tile_of
    return [
        tuple(own[part] for own, part in zip(lengths, tile(device), strict=True))
        for device in range(layout.mesh.num_devices)
    ]


def global_shape_from_local(local: Sequence[Any], mesh: DeviceMesh | None, placements: LayoutLike) -> tuple[Dim, ...]:
    """Return the global shape from one local shape that all shards share, or from the list of all.

    What cannot be inverted raises a BindingError.

    >>> from shardwise import DeviceMesh, Sharded
    >>> mesh = DeviceMesh((4,), ("x",))
    >>> global_shape_from_local((3, 5), mesh, [Sharded(0)])
    (12, 5)
    >>> global_shape_from_local([(3,), (3,), (2,), (2,)], mesh, [Sharded(0)])
    (10,)
    """
    shapes = as_tuple(local, "a local shape is a tuple of sizes, or a list of such tuples")
    if any(isinstance(shape, Sequence) and not isinstance(shape, str) for shape in shapes):
        return _from_all([check_dims(shape) for shape in shapes], mesh, placements)
    shape = check_dims(shapes)
    layout = as_layout(placements, len(shape), mesh)
    return tuple(_whole(size, layout, dim) for dim, size in enumerate(shape))


def _from_all(locals_: list[tuple[Dim, ...]], mesh: DeviceMesh | None, placements: LayoutLike) -> tuple[Dim, ...]:
    layout = as_layout(placements, len(locals_[0]), mesh)
    if len(locals_) != layout.mesh.num_devices:
        raise BindingError(
            f"the mesh ({layout.mesh}) has {layout.mesh.num_devices} devices, got {len(locals_)} local shapes."
        )
    if odd := [shape for shape in locals_ if len(shape) != layout.rank]:
        raise BindingError(f"local shapes must have equally many dims, got {locals_[0]} and {odd[0]}.")
    shape = tuple(_sum_lengths(locals_, layout, dim) for dim in range(layout.rank))
    expected = local_shard_shape_from_global(shape, None, layout)
    for device, (got, want) in enumerate(zip(locals_, expected, strict=True)):
        if got != want:
            raise BindingError(
                f"the local shapes do not come from one global shape: {shape} would give device {device} "
                f"the shape {want}, it has {got}.\n  layout: {layout}"
            )
    return shape


def _sum_lengths(locals_: list[tuple[Dim, ...]], layout: Layout, dim: int) -> Dim:
    # One device per part: the first that has it. Halos are counted once per part that has them.
    by_part: dict[int, Dim] = {}
    for device, shape in enumerate(locals_):
        by_part.setdefault(layout.tile_of(device)[dim], shape[dim])
    sizes = list(by_part.values())
    if all(isinstance(size, int) for size in sizes):
        return max(0, sum(size for size in sizes if isinstance(size, int)) - _halos(layout, dim))
    return _whole(sizes[0], layout, dim)


def _halos(layout: Layout, dim: int) -> int:
    # What all parts of a dim hold beyond what they own; without padding there is none at the two borders.
    cut, parts = layout.dims[dim], layout.parts(dim)
    return sum(cut.halo) * (parts if cut.edge == "pad" else parts - 1)


def _whole(size: Dim, layout: Layout, dim: int) -> Dim:
    cut, parts = layout.dims[dim], layout.parts(dim)
    if isinstance(size, str):
        return _quotient(size, layout, dim, inverse=True)
    whole = size * parts - _halos(layout, dim) if cut.offsets is None else cut.offsets[-1]
    if whole < 0 or set(_held_lengths(_bind(whole, layout, dim))) != {size}:
        raise BindingError(
            f"dim {dim} of one local shape does not give the global size: "
            f"not all shards of {layout} can have {size} elements.\n"
            "  pass the list of all devices' shapes."
        )
    return whole


def _quotient(size: str, layout: Layout, dim: int, inverse: bool = False) -> Dim:
    match, cut, parts = _NAMED.fullmatch(size), layout.dims[dim], layout.parts(dim)
    if match is None:
        raise BindingError(f"a named dim is a name such as 'batch', or a quotient such as 'batch/4', got {size!r}.")
    if cut.offsets is not None or cut.halo != (0, 0):
        raise BindingError(
            f"the named dim {size!r} has no known size, so it cannot be cut with {cut.details.lstrip(', ')}."
        )
    times, over = int(match["times"] or 1), int(match["over"] or 1)
    times, over = (times * parts, over) if inverse else (times, over * parts)
    shared = gcd(times, over)
    times, over = times // shared, over // shared
    return (f"{times}*" if times > 1 else "") + match["name"] + (f"/{over}" if over > 1 else "")


def _held_lengths(tiling: DimTiling) -> list[Any]:
    return [stop - start for start, stop in map(tiling.extent, range(tiling.parts))]


def _bind(size: int, layout: Layout, dim: int) -> DimTiling:
    cut = layout.dims[dim]
    tiling = DimTiling(size, layout.parts(dim), cut.split, cut.offsets, cut.halo, cut.edge)
    tiling.check(f"dim {dim}")
    return tiling
