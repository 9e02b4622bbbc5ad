"""Permutations: which device's shard goes to which, checked."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from shardwise.errors import ArgumentError, LayoutError, as_int
from shardwise.layout.mesh import DeviceMesh
from shardwise.prim.shards import Sources


def sources_of(mesh: DeviceMesh, permutation: Iterable[tuple[int, int]], axis: str | None) -> Sources:
    """Return per device the one that sends to it; pairs (source, target) are devices, or positions along an axis.

    >>> sources_of(DeviceMesh((4,), ("x",)), [(0, 1)], None)
    (None, 0, None, None)
    """
    given = [tuple(pair) if isinstance(pair, Iterable) else pair for pair in permutation]
    if all(isinstance(pair, tuple) and all(type(end) is int for end in pair) for pair in given):
        return _sources_of(mesh, tuple(given), axis)
    return _sources_of.__wrapped__(mesh, given, axis)  # the check says what is wrong, or makes ints of it


@lru_cache(maxsize=4096)
def _sources_of(mesh: DeviceMesh, permutation: Iterable[tuple[int, ...]], axis: str | None) -> Sources:
    found = None if axis is None else mesh.axis(axis, "ppermute")
    count = mesh.num_devices if found is None else found.size
    pairs = _checked(permutation, count, "device" if found is None else f"position along {axis!r}")
    back = {target: source for source, target in pairs}
    if found is None:
        return tuple(back.get(device) for device in range(count))
    out: list[int | None] = []
    for device in range(mesh.num_devices):
        at = mesh.device_coord(device, found)
        out.append(device + (back[at] - at) * mesh.divisor(found) if at in back else None)
    return tuple(out)


def _checked(permutation: Iterable[tuple[int, ...]], count: int, where: str) -> list[tuple[int, int]]:
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
