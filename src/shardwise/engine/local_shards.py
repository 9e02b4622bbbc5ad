"""Local shards: the arrays of a tensor that are in this process: all of them, or some where others hold the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from shardwise.engine.arrays import Array, cast, is_torch
from shardwise.engine.storage import Storage
from shardwise.errors import EngineError
from shardwise.layout.mesh import DeviceMesh, place_of


class LocalShards(Sequence[Array]):
    """The arrays of a tensor by their number in its storage; to ask for one that is elsewhere is an error.

    >>> from shardwise import DeviceMesh, P
    >>> from shardwise.engine.storage import storage_of
    >>> shards = LocalShards(storage_of(P("x").to_layout(1, DeviceMesh((2,), ("x",))), (4,)), {1: np.ones(2)}, rank=1)
    >>> shards[1], len(shards), shards.is_whole
    (array([1., 1.]), 2, False)
    """

    __slots__ = ("arrays", "check", "rank", "sample", "storage")

    def __init__(
        self,
        storage: Storage,
        arrays: Mapping[int, Array],
        rank: int,
        dtype: np.dtype | None = None,
        like: Array | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        """Hold these arrays; `dtype` and `like` say what the others are, where there are none.

        `sample` is one of the arrays; where none is here, one of single elements, to ask kernels about. Where arrays
        may not have come yet, `check` raises if they never will.
        """
        self.storage, self.arrays, self.rank, self.check = storage, arrays, rank, check
        for array in arrays.values():
            self.sample: Array = array
            return
        self.sample = _single(len(storage.shape), dtype, like)

    def __len__(self) -> int:
        return self.storage.count

    def __getitem__(self, index: Any) -> Array:
        array = self.arrays.get(index)
        if array is None:
            raise self._elsewhere(index)
        if self.check is not None:
            self.check()
        return array

    @property
    def is_whole(self) -> bool:
        """Whether every array is here."""
        return len(self.arrays) == self.storage.count

    def _elsewhere(self, index: Any) -> Exception:
        if not isinstance(index, int) or not 0 <= index < self.storage.count:
            return IndexError(index)
        layout = self.storage.layout
        return EngineError(
            f"a tensor laid out {layout} on ({place_of(layout.mesh)}) has its array {index} in the "
            f"process of {layout.mesh.device(self.storage.holder(index))!r}; this is the process with rank {self.rank}."
            "\n  x.gather() brings the value to every process of its mesh; x.shards is what this one holds."
        )


def _single(rank: int, dtype: np.dtype | None, like: Array | None) -> Array:
    if like is None or not is_torch(like):
        return np.ones((1,) * rank, dtype)
    ones = like.new_ones((1,) * rank)
    return ones if dtype is None else cast(ones, dtype)


class SoleProcess:
    """What engines have in common whose devices are all in this process."""

    def addressable(self, mesh: DeviceMesh) -> range:
        """Return the indices of the devices of a mesh that are in this process: all of them."""
        return range(mesh.num_devices)

    def process(self, mesh: DeviceMesh, suffices: Callable[[Sequence[int]], bool]) -> tuple[int, Sequence[int]]:
        """Return the rank and the devices of the one process that there is, which has them all."""
        return 0, range(mesh.num_devices)

    def read(self, storage: Storage, arrays: Sequence[Array], index: int | None = None) -> Sequence[Array]:
        """Return the arrays of a tensor, all of which can be read."""
        return arrays


def sample(arrays: Sequence[Array]) -> Array:
    """Return one of the arrays of a tensor, for its library and dtype.

    >>> sample((np.zeros(2), np.ones(2)))
    array([0., 0.])
    """
    kind = type(arrays)
    return arrays[0] if kind is tuple or kind is list else arrays.sample  # type: ignore[attr-defined]
