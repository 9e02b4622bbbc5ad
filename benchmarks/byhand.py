"""By hand: reshards and sums of shards in plain NumPy, each in several ways, with all views and buffers ready.

A result is kept while the next one is made, so there are two sets of buffers, used in turn. There are ways with buffers
as NumPy gives them, and ways with buffers that begin at other places in a page than the source does, which is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle, product
from typing import Any

import numpy as np

Call = Callable[[], Any]
Read = Callable[[Any], np.ndarray]
Grid = tuple[int, int]  # into how many parts each dim of a square tensor is cut, evenly
Pairs = list[tuple[np.ndarray, np.ndarray]]  # a target and a source of each copy
PAGE = 4096


def block(data: np.ndarray, grid: Grid) -> np.ndarray:
    """Return the shards of a tensor one after the other in memory, as one array: two dims of shards, two of elements.

    >>> block(np.arange(4).reshape(2, 2), (1, 2)).tolist()
    [[[[0], [2]], [[1], [3]]]]
    """
    rows, columns = data.shape[0] // grid[0], data.shape[1] // grid[1]
    return np.ascontiguousarray(data.reshape(grid[0], rows, grid[1], columns).transpose(0, 2, 1, 3))


def whole(shards: np.ndarray) -> np.ndarray:
    """Return the tensor that shards are of."""
    a, b, rows, columns = shards.shape
    return shards.transpose(0, 2, 1, 3).reshape(a * rows, b * columns)


def reshards(data: np.ndarray, src: Grid, dst: Grid) -> list[tuple[Call, Read]]:
    """Return ways to change how a tensor is cut: copies of the parts in common, or one strided copy of all."""
    source = block(data, src)
    like = block(data, dst)
    return [
        way
        for targets in ([np.ones_like(like) for _ in range(2)], [apart(like, source, 512 * k) for k in (1, 2)])
        for way in _ways(source, targets)
    ]


def _ways(source: np.ndarray, targets: list[np.ndarray]) -> list[tuple[Call, Read]]:
    ways: list[list[Pairs]] = [
        [_parts(target, source) for target in targets],
        [[_fine(target, source)] for target in targets],
    ]
    ways += [[[(_runs(t), _runs(s)) for t, s in pairs] for pairs in way] for way in list(ways)]
    by_source = [[sorted(pairs, key=_address) for pairs in way] for way in ways if len(way[0]) > 1]
    return [(partial(_next, _copied, cycle(way)), lambda _: whole(targets[0])) for way in (*ways, *by_source)]


def sums(arrays: list[np.ndarray]) -> list[tuple[Call, Read]]:
    """Return ways to add arrays up: in blocks that fit a cache, of several sizes."""
    sizes = dict.fromkeys((1 << 15, 1 << 16, 1 << 17, arrays[0].size))
    out: list[tuple[Call, Read]] = []
    for outs in ([np.ones_like(arrays[0]) for _ in range(2)], [apart(arrays[0], arrays[0], 512 * k) for k in (1, 2)]):
        ways = [[_cut([into, *arrays], size) for into in outs] for size in sizes]
        out += [(partial(_next, _summed, cycle(way)), lambda _, outs=outs: outs[0]) for way in ways]
    return out


def apart(like: np.ndarray, other: np.ndarray, distance: int) -> np.ndarray:
    """Return an array of ones like one, that begins in its page so many bytes after the place where another does.

    >>> a = apart(np.zeros(3), np.zeros(2), 512)
    >>> a
    array([1., 1., 1.])
    """
    memory = np.empty(like.nbytes + PAGE, np.uint8)
    start = (_begins(other) + distance - _begins(memory)) % PAGE
    out = np.ndarray(like.shape, like.dtype, memory, start)
    out[...] = 1
    return out


def _next(call: Callable[[Any], None], turns: Iterator[Any]) -> None:
    call(next(turns))


def _copied(pairs: Pairs) -> None:
    for target, source in pairs:
        np.copyto(target, source)


def _summed(blocks: list[list[np.ndarray]]) -> None:
    for out, first, second, *rest in blocks:
        np.add(first, second, out=out)
        for term in rest:
            np.add(out, term, out=out)


def _cut(arrays: list[np.ndarray], size: int) -> list[list[np.ndarray]]:
    flat = [array.reshape(-1) for array in arrays]
    return [[a[i : i + size] for a in flat] for i in range(0, flat[0].size, size)]


def _fine(target: np.ndarray, source: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return both as views with the same six dims: of each dim coarse parts, the fine ones in them, and elements."""
    coarse = [min(target.shape[k], source.shape[k]) for k in (0, 1)]
    fine = [max(target.shape[k], source.shape[k]) for k in (0, 1)]
    views = []
    for shards in (target, source):
        outer: list[list[int]] = []
        inner: list[list[int]] = []
        for k in (0, 1):
            many, steps = shards.shape[k], fine[k] // coarse[k]
            rest = shards.shape[k] * shards.shape[k + 2] // fine[k]
            split = many == fine[k]  # its own shards are the fine parts, or each holds some of them
            outer.append([coarse[k], steps] if split else [many, 1])
            inner.append([1, rest] if split else [steps, rest])
        shape = [*outer[0], *outer[1], *inner[0], *inner[1]]
        view = shards.reshape(shape).transpose(0, 1, 4, 5, 2, 3, 6, 7)
        views.append(view.reshape(coarse[0], fine[0] // coarse[0], -1, coarse[1], fine[1] // coarse[1], rest))
    return views[0], views[1]


def _parts(target: np.ndarray, source: np.ndarray) -> Pairs:
    """Return the parts that shards have in common, of each target in turn."""
    into, out = _fine(target, source)
    places = product(*(range(into.shape[k]) for k in (0, 1, 3, 4)))
    return [(into[a, b, :, c, d, :], out[a, b, :, c, d, :]) for a, b, c, d in places]


def _runs(array: np.ndarray) -> np.ndarray:
    # Each run of elements as one wide element: NumPy then copies without an inner loop.
    return array.view(np.dtype((np.void, array.shape[-1] * array.itemsize)))[..., 0]


def _address(pair: tuple[np.ndarray, np.ndarray]) -> int:
    return _begins(pair[1])


def _begins(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]
