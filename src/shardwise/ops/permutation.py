"""Permutations: which device's shard goes to which, checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

from shardwise.caches import cache
from shardwise.errors import ArgumentError, LayoutError, as_int
from shardwise.layout.axis import Axis
from shardwise.layout.mesh import DeviceMesh
from shardwise.ops.local_view import each_name, named_axes, position_along
from shardwise.prim.movement.shards import Sources


def sources_of(mesh: DeviceMesh, permutation: Iterable[tuple[int, int]], axis: Any) -> Sources:
    """Return per device the one that sends to it; pairs (source, target) are devices, or positions along an axis.

    Several axes are taken as one, major to minor.

    >>> sources_of(DeviceMesh((4,), ("x",)), [(0, 1)], None)
    (None, 0, None, None)
    """
    if not isinstance(permutation, Iterable) or isinstance(permutation, str | Mapping) or _is_number(permutation):
        raise ArgumentError(f"ppermute: a permutation is a list of (source, target) pairs, got {permutation!r}.")
    pairs = [tuple(pair) if isinstance(pair, Iterable) else pair for pair in permutation]
    names = None if axis is None else each_name(axis)
    if all(isinstance(pair, tuple) and all(type(end) is int for end in pair) for pair in pairs):
        return _sources_of(mesh, tuple(pairs), names)
    return _sources_of.__wrapped__(mesh, pairs, names)  # the check says what is wrong, or makes ints of it


def _is_number(value: Any) -> bool:
    return getattr(value, "ndim", 1) == 0  # which an array can be, although it has the methods of one that is not


@cache()
def _sources_of(
    mesh: DeviceMesh, permutation: Iterable[tuple[int, ...]], names: tuple[str | int | Axis, ...] | None
) -> Sources:
    axes = named_axes(mesh, names, "ppermute")
    count = mesh.num_devices if names is None else prod(axis.size for axis in axes)
    along = "" if names is None else repr(names[0]) if len(names) == 1 else repr(names)
    pairs = _check(permutation, count, "device" if names is None else f"position along {along}")
    back = {target: source for source, target in pairs}
    if names is None:
        return tuple(back.get(device) for device in range(count))
    out: list[int | None] = []
    for device in range(mesh.num_devices):
        at = position_along(mesh, axes, device)
        out.append(_device_at(mesh, axes, device, back[at]) if at in back else None)
    return tuple(out)


def _device_at(mesh: DeviceMesh, axes: Sequence[Axis], device: int, position: int) -> int:
    # The device of the same group that is at another position.
    for axis in reversed(axes):
        position, digit = divmod(position, axis.size)
        device += (digit - mesh.device_coord(device, axis)) * mesh.divisor(axis)
    return device


def _check(permutation: Iterable[tuple[int, ...]], count: int, where: str) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    for pair in permutation:
        ends = [as_int(end) for end in pair] if isinstance(pair, Iterable) else []
        match ends:
            case [int(source), int(target)]:
                pairs.append((source, target))
            case _:
                raise ArgumentError(f"ppermute: a permutation is a list of (source, target) pairs, got {pair!r}.")
    for role, ends in (("source", [s for s, _ in pairs]), ("target", [t for _, t in pairs])):
        for at in ends:
            if not 0 <= at < count:
                raise LayoutError(f"ppermute: {where} {at} does not exist; there are {count}.")
            if ends.count(at) > 1:
                raise LayoutError(f"ppermute: {where} {at} is named twice as a {role} in {pairs}.")
    return pairs
