"""Grids: the arrays of a tensor seen as one array, where they are equal tiles that lie in one block.

Between two such tensors any reshard is one strided copy, which NumPy does in one call, in the order of memory, and
torch in one kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from operator import attrgetter
from typing import Any

import numpy as np

from shardwise.caches import cache
from shardwise.engine.arrays import Array, is_torch
from shardwise.engine.storage import Storage, storage_of
from shardwise.errors import seal
from shardwise.layout.device import Accelerator
from shardwise.layout.layout import Layout, Shape

LONG = 1 << 14  # bytes of a run from which NumPy's own loops are as good as copying it as one element


class Grid(Sequence[Array]):
    """Arrays that are the tiles of one array: its dims are those of the parts, and then those of a tile.

    The tiles are made when they are first asked for: who moves them on never does.

    >>> Grid(np.arange(4).reshape(2, 2))
    (array([0, 1]), array([2, 3]))
    """

    __slots__ = ("_tiles", "whole")
    sample = property(attrgetter("whole"))  # for its library and dtype

    def __init__(self, whole: Array, tiles: Sequence[Array] | None = None) -> None:
        """Cut an array; tiles that are views of it already need not be made."""
        self.whole, self._tiles = whole, None if tiles is None else tuple(tiles)

    @property
    def tiles(self) -> tuple[Array, ...]:
        """The arrays, in the order of the leading dims."""
        if self._tiles is None:
            shape = self.whole.shape
            self._tiles = tuple(self.whole.reshape(-1, *shape[len(shape) // 2 :]))
        return self._tiles

    def __getitem__(self, index: Any) -> Any:
        return self.tiles[index]

    def __len__(self) -> int:
        return len(self.tiles)

    def __repr__(self) -> str:
        return repr(self.tiles)


def tiles_of(arrays: Sequence[Array]) -> Sequence[Array]:
    """Return the arrays of a tensor, those of a grid as a tuple."""
    return arrays.tiles if type(arrays) is Grid else arrays


def whole_of(arrays: Sequence[Array]) -> Array | None:
    """Return the one array that all of them are tiles of, if there is one."""
    if type(arrays) is Grid:
        return arrays.whole
    return arrays[0][(None,) * arrays[0].ndim] if len(arrays) == 1 else None


def blocks_of(operands: Sequence[Sequence[Array]]) -> list[Array] | None:
    """Return the blocks that the arrays of operands are tiles of, if all lie in memory in the same order.

    >>> a = np.arange(4.0).reshape(2, 2)
    >>> blocks_of([Grid(a), Grid(a + 1)])
    [array([[0., 1.],
           [2., 3.]]), array([[1., 2.],
           [3., 4.]])]
    >>> blocks_of([Grid(a), Grid(a.T)]) is blocks_of([Grid(a), (a[0], a[1])]) is None
    True
    """
    blocks: list[Array] = []
    for arrays in operands:
        if type(arrays) is not Grid:
            return None
        block = arrays.whole
        if not (block.flags.c_contiguous if type(block) is np.ndarray else block.is_contiguous()):
            return None
        blocks.append(block)
    return blocks


@seal
@dataclass(frozen=True, slots=True)
class Regrid:
    """How the whole of one grid becomes that of another.

    Every dim is cut at the boundaries of both. `split` and `turn` put the source's pieces in the order in which they
    lie in the target, which `pieces` splits likewise.
    """

    before: Shape
    after: Shape
    split: Shape
    turn: tuple[int, ...]
    pieces: Shape
    run: int  # elements that stay side by side and are copied as one; 1 if all of the last dim does

    def match(self, whole: Array, out: Array, wide: bool = True) -> tuple[Array, Array]:
        """Return views of a source and of the target between which every element has the same index."""
        source, into = self._turn(whole), out.reshape(self.pieces)
        if is_torch(source):
            return source, into
        size = self.run * source.itemsize
        if not wide or self.run == 1 or size >= LONG or source.strides[-1] != source.itemsize:
            return source, into
        return source.view(_run(size)), into.view(_run(size))

    def _turn(self, whole: Array) -> Array:
        split = whole.reshape(self.split)
        return split.permute(self.turn) if is_torch(split) else split.transpose(self.turn)

    def view_of(self, whole: Array) -> Array | None:
        """Return the target's whole as a view of the source's, where no dim is cut that was cut before."""
        rank = len(self.before) // 2
        if any(p not in (1, q) for p, q in zip(self.before[:rank], self.after[:rank], strict=True)):
            return None
        return self._turn(whole).reshape(self.after)


@cache(entries=256)
def _run(size: int) -> np.dtype:
    return np.dtype((np.void, size))


def regrid_of(before: Storage, after: Storage) -> Regrid | None:
    """Return how arrays of one storage become those of another in one copy, where all cuts are even.

    >>> from shardwise import DeviceMesh, P
    >>> from shardwise.engine.storage import storage_of
    >>> mesh = DeviceMesh((2,), ("x",))
    >>> rows, columns = (storage_of(P(*axes).to_layout(2, mesh), (4, 6)) for axes in (("x",), (None, "x")))
    >>> regrid = regrid_of(rows, columns)
    >>> regrid.split, regrid.turn, regrid.pieces
    ((1, 2, 1, 2, 2, 3), (0, 2, 4, 1, 3, 5), (1, 1, 2, 2, 2, 3))
    """
    if before.shape != after.shape or not prod(before.shape) or not before.shape:
        return None
    source_counts, target_counts = _even(before), _even(after)
    if source_counts is None or target_counts is None:
        return None
    pairs = list(zip(source_counts, target_counts, before.shape, strict=True))
    if any(max(p, q) % min(p, q) for p, q, _ in pairs):
        return None
    split, source = _split(pairs)
    pieces, target = _split([(q, p, n) for p, q, n in pairs])
    run = pieces[-1]
    return Regrid(
        _whole_shape(source_counts, before.shape),
        _whole_shape(target_counts, after.shape),
        split,
        tuple(source.index(name) for name in target),
        pieces,
        1 if run == before.shape[-1] else run,
    )


@cache()
def regrid_from_host(storage: Storage) -> Regrid | None:
    """Return how an array on the host becomes those of a storage there in one copy, where all cuts are even.

    >>> from shardwise import DeviceMesh, P
    >>> from shardwise.engine.storage import storage_of
    >>> regrid_from_host(storage_of(P("x").to_layout(1, DeviceMesh((2,), ("x",))), (4,))).after
    (2, 2)
    """
    mesh = storage.layout.mesh
    if any(isinstance(device, Accelerator) for device in set(mesh.devices)):
        return None
    return regrid_of(storage_of(Layout.replicated(mesh, len(storage.shape)), storage.shape), storage)


def grid_shape_of(storage: Storage) -> Shape | None:
    """Return the shape of the grid whose tiles are the arrays of a storage, if the tensor is one after the other.

    >>> from shardwise import DeviceMesh, P
    >>> from shardwise.engine.storage import storage_of
    >>> mesh = DeviceMesh((2,), ("x",))
    >>> [grid_shape_of(storage_of(P(*axes).to_layout(2, mesh), (4, 6))) for axes in (("x",), (None, "x"))]
    [(2, 1, 2, 6), None]
    """
    counts = _even(storage) if storage.shape else None
    return None if counts is None or prod(counts[1:]) > 1 else _whole_shape(counts, storage.shape)


def _even(storage: Storage) -> tuple[int, ...] | None:
    # Into how many parts every dim is cut, if they are equal and the arrays hold nothing else.
    if storage.layout.partial:
        return None
    counts: list[int] = []
    for dim, size in zip(storage.tiling.dims, storage.shape, strict=True):
        step = size // dim.parts
        if any(dim.extent(part) != (part * step, (part + 1) * step) for part in range(dim.parts)):
            return None
        if step * dim.parts != size:
            return None
        counts.append(dim.parts)
    return tuple(counts)


def _whole_shape(counts: Sequence[int], shape: Shape) -> Shape:
    return (*counts, *(size // count for size, count in zip(shape, counts, strict=True)))


def _split(dims: Sequence[tuple[int, int, int]]) -> tuple[Shape, list[Any]]:
    # A dim of n in p parts here and q there: pieces by the fewer parts, by what the more cut of these, and the rest.
    # Each is named after its dim and which of the three it is, unless it is all of a dim that neither cuts further.
    shape: list[int] = []
    names: list[Any] = []
    for k, (p, q, _) in enumerate(dims):
        cuts = [(min(p, q), 0), (p // q, 1)] if p > q else [(p, 0)]
        shape += [size for size, _ in cuts]
        names += [(k, which) for _, which in cuts]
    for k, (p, q, n) in enumerate(dims):
        cuts = [(q // p, 1), (n // q, 2)] if q > p else [(n // p, 2)]
        shape += [size for size, _ in cuts]
        names += [(k, which) for _, which in cuts]
    return tuple(shape), names
