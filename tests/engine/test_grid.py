"""Grids: one strided copy makes what many copies make, is counted as they are, and never shows arrays that changed."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import shardwise as sw
from shardwise import Cut, DeviceMesh, Layout, Tensor, plan_reshard
from shardwise.engine import grid as gridding
from shardwise.engine.counters import Counters
from shardwise.engine.execute import program_of
from shardwise.engine.grid import Grid, regrid_of, whole_of
from shardwise.engine.local import engine as local
from shardwise.engine.local.engine import LocalEngine
from shardwise.engine.storage import storage_of

MESH = DeviceMesh((2, 2, 3), ("x", "y", "z"))
CUTS = [(), ("x",), ("y",), ("z",), ("x", "y"), ("y", "x"), ("x", "z"), ("z", "x"), ("z", "y", "x")]
Moves = tuple[tuple[int, ...], list[Layout], str]
DTYPES = ["int8", "bool", "float16", "float32", "float64", "complex128"]


@st.composite
def layouts(draw: Any, rank: int) -> Layout:
    """Layouts of one rank on the mesh, no axis used twice."""
    dims: list[tuple[str, ...]] = []
    for _ in range(rank):
        used = {axis for dim in dims for axis in dim}
        dims.append(draw(st.sampled_from([cut for cut in CUTS if not used & set(cut)])))
    return Layout(MESH, dims)


@st.composite
def moves(draw: Any) -> Moves:
    """A shape, a few layouts that it goes through, and a dtype."""
    rank = draw(st.integers(1, 3))
    shape = tuple(draw(st.sampled_from([12, 24, 36, 7, 1, 0, 4])) for _ in range(rank))
    return shape, [draw(layouts(rank)) for _ in range(draw(st.integers(2, 4)))], draw(st.sampled_from(DTYPES))


def values(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


def honest(x: Tensor) -> None:
    """Whatever says to be the tiles of one array is."""
    if isinstance(x.kept, Grid):
        tiles = Grid(x.kept.whole)
        assert x.arrays is x.kept.tiles
        assert len(tiles) == len(x.arrays) == x.storage.count
        for tile, array in zip(tiles, x.arrays, strict=True):
            assert tile.shape == array.shape
            assert np.array_equal(tile, array)


@given(moves(), st.booleans())
def test_reshards_one_after_the_other_keep_the_value(case: Moves, torchs: bool) -> None:
    shape, through, dtype = case
    data = values(shape, dtype)
    x = sw.shard(torch.from_numpy(data) if torchs else data, MESH, through[0])
    for layout in through[1:]:
        x = sw.shard(x, MESH, layout)
        honest(x)
        assert np.array_equal(x.numpy(), data)
        for shard in x.shards:
            assert np.array_equal(shard.array, data[tuple(slice(a, b) for a, b in shard.box)])


@given(moves(), st.booleans())
def test_one_copy_is_counted_as_many(case: Moves, torchs: bool) -> None:
    shape, (src, dst, *_), dtype = case
    data = values(shape, dtype)
    x = sw.shard(torch.from_numpy(data) if torchs else data, MESH, src)
    program = program_of(plan_reshard(src, dst, shape, np.dtype(dtype)))
    made, counted = [], []
    for arrays in (x.kept, [array.clone() if torchs else array.copy() for array in x.arrays]):
        engine = LocalEngine()
        made.append(engine.run(program, arrays))
        counted.append(engine.counters)
    for one, other in zip(*made, strict=True):
        assert np.array_equal(one, other)
    together, apart = counted
    for name in ("bytes_moved", "copies", "bytes_copied", "kernel_calls"):
        assert getattr(together, name) == getattr(apart, name), name


STEPS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[np.ndarray], np.ndarray]]] = {
    "shift": (lambda x: sw.shift(x, "z"), lambda a: np.roll(a, 12, axis=0)),
    "back": (lambda x: sw.shift(x, "z", -1), lambda a: np.roll(a, -12, axis=0)),
    "out": (
        lambda x: sw.shift(x, "z", 1, rotate=False),
        lambda a: np.concatenate([np.zeros_like(a[:12]), a[:-12]]),
    ),
    "flip": (lambda x: sw.flip(x, axis=0), lambda a: np.flip(a, 0)),
    "roll": (lambda x: sw.roll(x, 12, axis=0), lambda a: np.roll(a, 12, 0)),
    "less": (lambda x: sw.roll(x, 5, axis=0), lambda a: np.roll(a, 5, 0)),
    "reverse": (lambda x: x[::-1, :], lambda a: a[::-1, :]),
    "swap": (lambda x: x[:, ::-1], lambda a: a[:, ::-1]),
    "add": (lambda x: x + x, lambda a: a + a),
    "turn": (lambda x: sw.permute_dims(x, (1, 0)), lambda a: a.T),
    "columns": (lambda x: sw.shard(x, MESH, Layout(MESH, [(), ("z",)])), lambda a: a),
    "rows": (lambda x: sw.shard(x, MESH, Layout(MESH, [("z",), ()])), lambda a: a),
    "both": (lambda x: sw.shard(x, MESH, Layout(MESH, [("z",), ("x",)])), lambda a: a),
    "whole": (lambda x: sw.shard(x, MESH, Layout(MESH, [(), ()])), lambda a: a),
}


@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=6))
def test_whatever_made_a_tensor_its_grid_is_its_arrays(names: list[str]) -> None:
    data = values((36, 36), "int64")
    rows = Layout(MESH, [("z",), ()])
    x = sw.shard(data, MESH, rows)
    for name in names:
        ours, numpys = STEPS[name]
        if name in ("shift", "back", "out"):
            x = sw.shard(x, MESH, rows)
        x, data = ours(x), numpys(data)
        honest(x)
        assert np.array_equal(x.numpy(), data), name
    assert np.array_equal(sw.shard(x, MESH, Layout(MESH, [(), ("y", "z")])).numpy(), data)


def test_only_even_cuts_without_halo_or_pending_sums_are_grids() -> None:
    rows, columns = Layout(MESH, [("x",), ()]), Layout(MESH, [(), ("y",)])
    assert regrid_of(storage_of(rows, (4, 6)), storage_of(columns, (4, 6))) is not None
    halo = Layout(MESH, [Cut(("x",), halo=(1, 1)), ()])
    ahead, behind = (Layout(MESH, [Cut(("x",), halo=some, edge="clip"), ()]) for some in ((0, 1), (1, 0)))
    unlike = Layout(MESH, [("z",), ()]), Layout(MESH, [("x",), ()])  # 3 parts and 2: borders that cross
    for src, dst, shape in [
        (rows, columns, (5, 6)),
        (rows, columns, (4, 5)),
        (rows, columns, (0, 4)),
        (rows, halo, (4, 6)),
        (halo, rows, (4, 6)),
        (ahead, columns, (4, 6)),  # the last part has nothing more than its own
        (columns, behind, (4, 6)),  # the first
        (rows, Layout(MESH, [("x",), ()], ["y"]), (4, 6)),
        (*unlike, (6, 6)),
        (Layout(MESH, []), Layout(MESH, []), ()),
    ]:
        assert regrid_of(storage_of(src, shape), storage_of(dst, shape)) is None, (src, dst, shape)


def test_arrays_from_elsewhere_are_not_a_grid() -> None:
    rows = Layout(MESH, [("x",), ()])
    arrays = [np.ones((2, 4)), np.zeros((2, 4))]
    x = sw.from_shards([arrays[device // 6] for device in range(12)], MESH, rows, (4, 4))
    assert whole_of(x.kept) is None
    assert np.array_equal(sw.shard(x, MESH, Layout(MESH, [(), ("y",)])).numpy(), np.concatenate(arrays))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_share_one_copy(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PARALLEL", "PIECE", "WIDE"):
        monkeypatch.setattr(local, name, 64)
    data = values((48, 24), "float32")
    src, dst = Layout(MESH, [("x", "z"), ()]), Layout(MESH, [("y",), ("z", "x")])
    engine = LocalEngine(threads=threads)
    x = sw.shard(data, MESH, src)
    program = program_of(plan_reshard(src, dst, data.shape, data.dtype))
    out = engine.run(program, x.kept)
    assert isinstance(out, Grid)
    y = Tensor(out, dst, data.shape, data.dtype, engine)
    honest(y)
    assert np.array_equal(y.numpy(), data)
    alone = Counters()
    for stage in program.stages:
        for kind, size in stage.traffic:
            alone.count_moved(kind, size)
    assert engine.counters.bytes_moved == alone.bytes_moved


@given(st.sampled_from(["rows", "columns", "both"]), st.sampled_from(DTYPES[:-1]), st.booleans())
def test_what_a_reduction_leaves_in_tiles_moves_on_like_any_other(then: str, dtype: str, torchs: bool) -> None:
    data = values((72, 24), dtype)
    x = sw.shard(torch.from_numpy(data) if torchs else data, MESH, Layout(MESH, [("z",), ()]))
    y = sw.reduce_scatter(x, 0, reduce_op="max", reduce_axes="z")
    honest(y)
    assert isinstance(y.kept, Grid)
    want = data.reshape(3, 24, 24).max(axis=0)
    assert np.array_equal(y.numpy(), want)
    assert np.array_equal(STEPS[then][0](y).numpy(), want)


LINE = DeviceMesh((4,), ("x",))
ROWS, COLUMNS = (Layout(LINE, dims) for dims in ([("x",), ()], [(), ("x",)]))


def test_tiles_are_made_once_and_a_single_array_is_its_own_whole() -> None:
    grid = Grid(np.arange(12).reshape(2, 1, 3, 2))
    assert grid.tiles is grid.tiles
    assert [tile.tolist() for tile in grid] == [[[0, 1], [2, 3], [4, 5]], [[6, 7], [8, 9], [10, 11]]]
    assert len(grid) == 2
    one = np.ones((3, 2))
    whole = whole_of([one])
    assert whole is not None
    assert whole.shape == (1, 1, 3, 2)
    assert np.shares_memory(whole, one)
    assert whole_of([one, one]) is None
    assert whole_of(grid) is grid.whole


def test_runs_are_copied_as_one_element_below_the_limit_only(monkeypatch: pytest.MonkeyPatch) -> None:
    regrid = regrid_of(storage_of(ROWS, (8, 16)), storage_of(COLUMNS, (8, 16)))
    assert regrid is not None
    assert regrid.run == 4
    gridding._run.cache_clear()  # what is tested is made here
    whole = np.arange(128, dtype="float32").reshape(regrid.before)
    out = np.zeros(regrid.after, "float32")
    for limit, wide, kind in [(17, True, "V"), (16, True, "f"), (17, False, "f")]:
        monkeypatch.setattr(gridding, "LONG", limit)
        source, into = regrid.match(whole, out, wide)
        assert source.dtype.kind == into.dtype.kind == kind
        assert source.shape == into.shape
        assert source.dtype.itemsize == (16 if kind == "V" else 4)
        into[...] = source
        assert np.array_equal(np.concatenate(list(out.reshape(4, 8, 4)), 1), np.arange(128).reshape(8, 16))
    source, _ = regrid.match(torch.from_numpy(whole), torch.from_numpy(out))
    assert isinstance(source, torch.Tensor)


@pytest.mark.parametrize(("columns", "run", "size"), [(4, 1, 4), (8, 2, 8), (12, 3, 12), (20, 5, 20)])
def test_a_run_of_one_element_is_that_element_and_longer_ones_are_one_of_their_size(
    columns: int, run: int, size: int
) -> None:
    gridding._run.cache_clear()
    regrid = regrid_of(storage_of(ROWS, (8, columns)), storage_of(COLUMNS, (8, columns)))
    assert regrid is not None
    assert regrid.run == run
    whole = np.arange(8 * columns, dtype="float32").reshape(regrid.before)
    out = np.zeros(regrid.after, "float32")
    source, into = regrid.match(whole, out)
    assert source.dtype == into.dtype == (np.dtype("float32") if run == 1 else np.dtype((np.void, size)))
    assert gridding._run(size) == np.dtype((np.void, size))
    # Elements that do not lie side by side in the source are not seen as runs.
    spread = np.repeat(whole, 2, -1)[..., ::2]
    assert regrid.match(spread, out)[0].dtype == np.float32


def test_a_storage_becomes_another_only_of_the_same_shape() -> None:
    assert regrid_of(storage_of(ROWS, (8, 16)), storage_of(COLUMNS, (16, 16))) is None
    same = regrid_of(storage_of(ROWS, (8, 16)), storage_of(ROWS, (8, 16)))
    assert same is not None
    assert (same.run, same.before, same.after) == (1, (4, 1, 2, 16), (4, 1, 2, 16))
    assert (same.split, same.turn, same.pieces) == ((4, 1, 2, 16), (0, 1, 2, 3), (4, 1, 2, 16))  # no dim is cut
    half = regrid_of(storage_of(Layout(MESH, ["x"]), (12,)), storage_of(Layout(MESH, [("x", "y")]), (12,)))
    assert half is not None
    assert (half.split, half.turn, half.pieces) == ((2, 2, 3), (0, 1, 2), (2, 2, 3))


@pytest.mark.parametrize(
    ("src", "dst", "sees"),
    [
        ((None, None, None), ("x", None, None), True),
        ((None, None, None), (None, "x", "y"), True),
        (("x", None, None), ("x", "y", None), True),
        (("x", "y", "z"), ("x", "y", "z"), True),
        (("x", None, None), (("x", "y"), None, None), False),  # cut already, and further
        (("x", None, None), (None, None, None), False),
        ((None, "x", None), ("x", None, None), False),
        ((None, None, "x"), ("x", None, None), False),
        ((None, None, "x"), ("y", None, None), False),
    ],
)
def test_a_whole_is_seen_in_tiles_where_no_dim_is_cut_that_was_cut(src: Any, dst: Any, sees: bool) -> None:
    shape = (4, 4, 6)
    before, after = (storage_of(Layout(MESH, dims), shape) for dims in (src, dst))
    regrid = regrid_of(before, after)
    assert regrid is not None
    value = np.arange(96).reshape(shape)
    whole = np.stack([value[tuple(slice(*span) for span in box)] for box in before.boxes]).reshape(regrid.before)
    seen = regrid.view_of(whole)
    assert (seen is not None) == sees
    if seen is not None:
        assert np.shares_memory(seen, whole)
        for tile, box in zip(Grid(seen), after.boxes, strict=True):
            assert np.array_equal(tile, value[tuple(slice(*span) for span in box)])
