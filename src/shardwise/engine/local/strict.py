"""The strict engine: the local one, refusing what processes would refuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from shardwise.engine.arrays import Array
from shardwise.engine.grid import tiles_of
from shardwise.engine.local.engine import LocalEngine
from shardwise.engine.local_shards import LocalShards
from shardwise.engine.storage import Storage
from shardwise.layout.mesh import DeviceMesh
from shardwise.locks import make_lock


class StrictEngine(LocalEngine):
    """Runs programs in this process as if each device were a process of its own, the one with its number as rank.

    Values may be read only where every one of these processes could; otherwise the error is that of the first which
    could not. There are as many as the meshes of its tensors have shown.

    >>> from shardwise import P, engine_context, shard
    >>> with engine_context(StrictEngine()):
    ...     x = shard(np.arange(4.0), DeviceMesh((2,), ("x",)), P("x"))
    >>> x.gather().numpy()
    array([0., 1., 2., 3.])
    >>> x.numpy()
    Traceback (most recent call last):
    shardwise.EngineError: this process holds a part of float64[4@x] on (x=2) only, and reading never ...
    """

    size = 1  # of the processes that there are at least

    def each(
        self,
        storage: Storage,
        dtype: np.dtype,
        make: Callable[[int, int], Array],
        base: Sequence[Array] | None = None,
        like: Array | None = None,
    ) -> Sequence[Array]:
        """Return the arrays of a tensor, whose mesh shows that there are processes for its devices."""
        self._meet(storage.layout.mesh)
        return super().each(storage, dtype, make, base, like)

    def process(self, mesh: DeviceMesh, suffices: Callable[[Sequence[int]], bool]) -> tuple[int, Sequence[int]]:
        """Return the rank and the devices of the first process whose devices do not suffice, if there is one."""
        self._meet(mesh)
        for rank in range(self.size):
            own = tuple([i for i, device in enumerate(mesh.devices) if device.id == rank])
            if not suffices(own):
                return rank, own
        return super().process(mesh, suffices)

    def read(self, storage: Storage, arrays: Sequence[Array], index: int | None = None) -> Sequence[Array]:
        """Return the arrays, or those of the first process that lacks one of them (or the one with this index)."""
        wanted = set(range(storage.count)) if index is None else {index}
        rank, own = self.process(storage.layout.mesh, lambda devices: wanted <= set(map(storage.index, devices)))
        here = set(map(storage.index, own))
        if wanted <= here:
            return arrays
        tiles = tiles_of(arrays)
        return LocalShards(storage, {i: tiles[i] for i in sorted(here)}, rank)

    def _meet(self, mesh: DeviceMesh) -> None:
        size = 1 + max(device.id for device in mesh.devices)
        if size > self.size:
            with _lock:
                self.size = max(self.size, size)


_lock = make_lock()
