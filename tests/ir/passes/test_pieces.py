"""Pieces: what of shards stays and travels, and rounds in which nobody sends or receives twice."""

from itertools import product

import numpy as np
import pytest

from shardwise.ir.passes.pieces import Pieces, ShardMove, most_of_one, split_rounds
from shardwise.layout.cut import Cut
from shardwise.layout.layout import Layout
from shardwise.plan.plan import plan_reshard
from tests.ir.passes.devices import mesh_named

MESH = mesh_named(2, 3)
X, Y = "axis0", "axis1"


def pieces_between(ends: list[tuple[int, int]], sizes: list[int] | None = None) -> Pieces:
    source, target = (np.array([pair[k] for pair in ends], dtype=np.int64) for k in range(2))
    size = np.array(sizes or [1] * len(ends), dtype=np.int64).reshape(-1, 1)
    nothing = np.zeros((len(ends), 1), dtype=np.int64)
    return Pieces(source, target, nothing, nothing, size)


def check_rounds(pieces: Pieces, shape: tuple[int, ...]) -> int:
    found = split_rounds(pieces, shape)
    assert sorted(row for rows in found for row in rows.tolist()) == list(range(len(pieces)))
    for rows in found:
        one = pieces[rows]
        assert len(set(one.source.tolist())) == len(set(one.target.tolist())) == len(one) > 0
    return len(found)


@pytest.mark.parametrize("seed", range(5))
def test_a_round_has_no_source_and_no_target_twice(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = [(6,), (2, 3), (3, 3), (2, 2, 2), (4, 2)][seed]
    count = int(np.prod(shape))
    for _ in range(20):
        ends = [(int(a), int(b)) for a, b in rng.integers(0, count, (int(rng.integers(1, 60)), 2))]
        pieces = pieces_between(ends, rng.integers(1, 3, len(ends)).tolist())
        degree = max(max([a for a, _ in ends].count(k), [b for _, b in ends].count(k)) for k in range(count))
        assert most_of_one(pieces) == degree
        assert degree <= check_rounds(pieces, shape) < 2 * degree


@pytest.mark.parametrize("shape", [(2,), (7,), (2, 3), (3, 4), (2, 2, 3)])
def test_everybody_to_everybody_goes_around(shape: tuple[int, ...]) -> None:
    count = int(np.prod(shape))
    ends = [(a, b) for a in range(count) for b in range(count) if a != b]
    pieces = pieces_between(ends, [1 + (a + b) % 2 for a, b in ends])
    assert check_rounds(pieces, shape) == count - 1
    for rows in split_rounds(pieces, shape):
        steps = {
            tuple((y - x) % n for x, y, n in zip(*(np.unravel_index(k, shape) for k in ends[row]), shape, strict=True))
            for row in rows
        }
        assert len(steps) == 1


def test_nothing_takes_no_round() -> None:
    assert split_rounds(pieces_between([]), (4,)) == []
    assert most_of_one(pieces_between([])) == 0


def movement(src: Layout, dst: Layout, shape: tuple[int, ...]) -> ShardMove:
    (step,) = plan_reshard(src, dst, shape, "int32").steps
    (move,) = step.moves
    return ShardMove(step, move, shape)


def test_dims_that_stay_cut_alike_travel_whole() -> None:
    same = movement(Layout(MESH, [X, Y]), Layout(MESH, [X, None]), (4, 6))
    assert same.same == [True, False]
    stay, travel = same.pieces((0, 1, 2)) or pytest.fail("a group of its own")
    assert {tuple(size) for pieces in (stay, travel) for size in pieces.size.tolist()} == {(-1, 2)}
    rows = zip(*(a.tolist() for a in (travel.source, travel.target, travel.taken, travel.put)), strict=True)
    assert sorted(rows) == [(s, t, [0, 0], [0, 2 * s]) for s, t in product(range(3), range(3)) if s != t]
    assert stay.source.tolist() == stay.target.tolist() == [0, 1, 2]
    assert stay.put.tolist() == [[0, 2 * k] for k in range(3)]
    assert same.pieces((0, 1)) is None  # something comes from outside
    wide = movement(Layout(MESH, [Y]), Layout(MESH, [Cut(Y, halo=(1, 1), edge="pad")]), (6,))
    assert wide.same == [False]


def test_a_halo_that_is_cut_alike_is_not_the_same() -> None:
    src = Layout(MESH, [Cut(Y, halo=(1, 1), edge="pad"), X])
    dst = Layout(MESH, [Cut(Y, halo=(1, 1), edge="pad"), None])
    assert movement(src, dst, (6, 4)).same == [False, False]


def test_groups_that_are_alike_are_written_once() -> None:
    axes, _, travel = movement(Layout(MESH, [X, Y]), Layout(MESH, [X, None]), (4, 6)).parts
    assert axes == [1]
    assert len(travel) == 6


def test_groups_that_differ_are_one() -> None:
    # Five columns in three parts: groups of axis0 exchange pieces of 2, 2 and 1 columns.
    move = movement(Layout(MESH, [X, Y]), Layout(MESH, [None, (Y, X)]), (4, 5))
    assert [str(axis) for axis in move.step.axes] == [X]
    axes, stay, travel = move.parts
    assert axes == [0, 1]
    rows, columns = (np.prod(pieces.size, axis=1).sum() for pieces in (stay, travel))
    assert rows + columns == 4 * 5
