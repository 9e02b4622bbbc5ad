"""Permutations: which shard goes to which device, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise.errors import ArgumentError, LayoutError
from shardwise.prim.tensor import Tensor


def picks_of(x: Tensor, permutation: Sequence[tuple[int, int]], axis: str | None) -> dict[str, Any]:
    """Return what `permute_shards` needs for (source, target) pairs of devices, or of positions along an axis."""
    return _picks(x, _sources(x, [tuple(pair) for pair in permutation], axis))


def _sources(x: Tensor, pairs: list[tuple[int, ...]], name: str | None) -> list[int | None]:
    mesh = x.mesh
    found = None if name is None else mesh.axis(name, "ppermute")
    count = mesh.num_devices if found is None else found.size
    where = "device" if found is None else f"position along {name!r}"
    for role in (0, 1):
        seen: set[int] = set()
        for pair in pairs:
            if len(pair) != 2:
                raise ArgumentError(f"ppermute: a permutation is a list of (source, target) pairs, got {pair}.")
            at = pair[role]
            if not 0 <= at < count:
                raise LayoutError(f"ppermute: {where} {at} does not exist; there are {count}.")
            if at in seen:
                raise LayoutError(
                    f"ppermute: {where} {at} is named twice as a {('source', 'target')[role]} in {pairs}."
                )
            seen.add(at)
    out: list[int | None] = [None] * mesh.num_devices
    if found is None:
        for source, target in pairs:
            out[target] = source
        return out
    back, step = {target: source for source, target in pairs}, mesh.divisor(found)
    for device in range(mesh.num_devices):
        at = device // step % found.size
        if at in back:
            out[device] = device + (back[at] - at) * step
    return out


def _picks(x: Tensor, sources: Sequence[int | None]) -> dict[str, Any]:
    storage = x.storage
    picks, times = [], []
    for holders in storage.holders:
        found = {None if sources[d] is None else storage.index(sources[d] or 0) for d in holders}
        if len(found) > 1:
            raise LayoutError(
                f"devices {holders} hold the same data under {x.layout}, but would receive different shards.\n"
                "  permute along an axis that splits the tensor, or write local-view code with shard_map."
            )
        picks.append(found.pop())
        times.append(sum(picks[-1] is not None and storage.index(d) != picks[-1] for d in holders))
    return {"picks": tuple(picks), "times": tuple(times)}
