"""Boxes in a grid are those that loops over cells and slots make."""

from itertools import product
from math import prod
from random import Random

import numpy as np
import pytest

from shardwise.layout.placement import Split
from shardwise.layout.tiling import Box, DimTiling, box_size
from shardwise.plan.cells import Cells, Columns, Patch
from shardwise.plan.slot_grid import SlotGrid
from shardwise.plan.span import Span
from shardwise.plan.transfer import portion


def seeded(rng: Random) -> Cells:
    spans = []
    for dim in range(rng.randint(0, 3)):
        size, parts = rng.randint(1, 9), rng.choice([1, 2, 3, 4])
        split: Split = "balanced" if rng.random() < 0.5 else "chunk"
        low, high = sorted(rng.sample(range(size + 1), 2)) if rng.random() < 0.5 else (0, size)
        spans.append(Span.over(DimTiling(size, parts, split), low, high, ((100 * 10**dim, parts),)))
    slots = SlotGrid(rng.randint(0, 3), tuple(rng.sample([(1, 2), (2, 3), (6, 2)], rng.randint(0, 3))))
    shares = rng.random() < 0.7
    picks = None
    if shares and rng.random() < 0.4:
        picks = np.array(sorted(rng.sample(range(len(slots)), rng.randint(0, len(slots)))), dtype=np.int64)
    places = {
        (*(rng.randrange(len(s)) for s in spans), rng.randrange(len(slots))) for _ in range(rng.choice([0, 1, 3]))
    }
    boxes = [((0, 1),) * len(spans), ((1, 3),) * len(spans)]
    patches = [Patch(place[:-1], place[-1], tuple(boxes[: rng.randint(0, 2)])) for place in sorted(places)]
    rng.shuffle(patches)
    return Cells(tuple(spans), slots, shares, picks, tuple(patches))


def listed(cells: Cells) -> list[tuple[int, Box]]:
    out, slots = [], list(cells.slots)
    patches = {(patch.place, patch.at): patch.boxes for patch in cells.patches}
    for place in product(*(range(len(span)) for span in cells.spans)):
        box = tuple(span.interval(k) for span, k in zip(cells.spans, place, strict=True))
        first = sum(span.offset(k) for span, k in zip(cells.spans, place, strict=True))
        for at, slot in enumerate(slots):
            if cells.picks is not None and at not in cells.picks:
                continue
            own = portion(box, len(slots), at) if cells.shares else box
            if box_size(own):
                out += [(first + slot, each) for each in patches.get((place, at), (own,))]
    return out


@pytest.mark.parametrize("seed", range(60))
def test_cells_are_what_loops_make(seed: int) -> None:
    rng = Random(seed)
    for _ in range(5):
        cells = seeded(rng)
        want, rank = listed(cells), len(cells.spans)
        assert list(cells) == want
        assert len(cells) == len(want)
        assert [cells[i] for i in range(len(cells))] == want
        assert cells.size == sum(box_size(box) for _, box in want)
        assert cells.room >= len(cells)
        out = Columns(np.full(cells.room, -1), *(np.full((rank, cells.room), -1) for _ in "ab"))
        cells.write(out)
        rows = slice(len(want))
        assert out.slots[rows].tolist() == [slot for slot, _ in want]
        for dim in range(rank):
            assert out.starts[dim, rows].tolist() == [box[dim][0] for _, box in want]
            assert out.stops[dim, rows].tolist() == [box[dim][1] for _, box in want]
        with pytest.raises(IndexError):
            cells[len(want)]


def test_one_box_goes_to_all_but_one() -> None:
    slots = SlotGrid(1, ((2, 3),))
    assert list(Cells.of_box(((2, 4),), slots, 3)) == [(1, ((2, 4),)), (5, ((2, 4),))]
    assert [slot for slot, _ in Cells.of_box((), slots, 2)] == [1, 3, 5]
    assert len(Cells.of_box((), slots)) == 3


def test_millions_of_boxes_are_counted_and_found_without_a_list() -> None:
    spans = tuple(Span.over(DimTiling(2**30, 2**10), 0, 2**30, ((2 ** (20 + 10 * k), 2**10),)) for k in range(2))
    cells = Cells(spans, SlotGrid(0, ((1, 2**20),)), shares=True, patches=(Patch((1, 1), 5),))
    assert len(cells) == 2**40 - 1
    last, box = cells[-1]
    assert (last, prod(stop - start for start, stop in box)) == (2**40 - 1, 2**20)
    assert box[0][1] == box[1][1] == 2**30
    assert cells.size == 2**60 - 2**20
