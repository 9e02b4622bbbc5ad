"""Where tiles of two layouts meet, the slots that have both are those that sets of slots say."""

from itertools import product
from random import Random

import pytest

from shardwise import Cut, Layout
from shardwise.layout.tiling import Box, DimTiling, box_size, intersect
from shardwise.plan.holders import Holders
from shardwise.plan.meeting import Meeting, find_offset, find_place, marks_of
from shardwise.plan.movement import Handover
from shardwise.plan.span import Span
from shardwise.plan.transfer import portion
from tests.layout.oracle import digit
from tests.plan.cases import mesh_of, sub_axis_layouts


def meetings(seed: int, sizes: tuple[int, ...], rank: int, count: int) -> list[Meeting]:
    """Meetings of layouts of sub-axes, where all that is pending is reduced and all that becomes partial is fresh."""
    rng, found = Random(seed), sub_axis_layouts(mesh_of(*sizes), rank)
    out = []
    for _ in range(count):
        src, dst, shape = rng.choice(found), rng.choice(found), tuple(rng.choice([3, 8, 9]) for _ in range(rank))
        out.append(Meeting(Handover(Holders(src, shape), Holders(dst, shape), src.partial, dst.partial)))
    return out


def listed(meeting: Meeting, slot: int, target: bool) -> list[tuple[int, Box]] | None:
    """The portions of others, by sets; None if some two tiles that meet have no slot in common."""
    it, out = meeting.handover, []
    near, far = (it.dst, it.src) if target else (it.src, it.dst)
    slots, mesh = range(it.src.layout.mesh.num_devices), it.src.layout.mesh
    own, axes = near.tile(slot), it.fresh if target else (*it.src.layout.replicated_axes,)
    for tile in far.tiling.tiles():
        cell = intersect(far.tiling.tile_box(tile), near.tiling.box(slot))
        if cell is None:
            continue
        both = [s for s in slots if near.tile(s) == own and far.tile(s) == tile]
        if not both:
            return None
        for i, other in enumerate(both):
            is_alike = all(digit(mesh, a, slot) == digit(mesh, a, other) for a in axes)
            box = portion(cell, len(both), i)
            if other != slot and is_alike and box_size(box):
                out.append((other, box))
    return out


@pytest.mark.parametrize(("sizes", "rank"), [((8,), 1), ((4, 2), 2), ((2, 2, 3), 2), ((12,), 1)])
def test_cells_are_those_of_the_slots_that_have_both_tiles(sizes: tuple[int, ...], rank: int) -> None:
    counts = [0, 0]
    for meeting in meetings(1, sizes, rank, 60):
        if not meeting.is_regular:
            assert sizes == (12,)  # where factors may not nest
            continue
        for slot, target in product(range(0, meeting.handover.src.layout.mesh.num_devices, 3), (True, False)):
            cells = meeting.cells_of_target(slot) if target else meeting.cells_of_source(slot)
            want = listed(meeting, slot, target)
            assert want is not None or cells is None
            assert meeting.agrees(slot) or not target or cells is None
            counts[cells is not None] += 1
            if cells is not None and want is not None:
                assert list(cells) == want
            elif want is not None:  # tiles that meet agree, which is not seen where they are unequal
                assert any(dim.size % dim.parts for dim in meeting.handover.src.tiling.dims) or any(
                    dim.size % dim.parts for dim in meeting.handover.dst.tiling.dims
                )
    assert min(counts) > 10


def test_meetings_are_regular_on_one_mesh_without_halos() -> None:
    mesh = mesh_of(2, 3)
    plain, halo = Layout(mesh, ["y"]), Layout(mesh, [Cut("y", halo=1)])
    for src, dst, numbers, regular in (
        (plain, plain, (), True),
        (halo, plain, (), False),
        (plain, halo, (), False),
        (plain, plain, tuple(range(6)), False),
    ):
        holders = Holders(src, (9,), numbers), Holders(dst, (9,), numbers)
        assert Meeting(Handover(*holders)).is_regular is regular


def test_marks_tell_the_same_positions_of_parts_and_slots() -> None:
    rng = Random(2)
    for layout in rng.sample(sub_axis_layouts(mesh_of(4, 3), 2), 40):
        some = rng.choice(sub_axis_layouts(layout.mesh, 2)).sharded_axes
        for dim, (parts, slots) in enumerate(marks_of(layout, some)):
            for slot in range(12):
                part = layout.tile_of(slot)[dim]
                assert [part // b % s for b, s in parts] == [slot // d % s for d, s in slots]


def test_a_tile_is_found_by_its_parts() -> None:
    spans = [Span.over(DimTiling(8, 4), 2, 8, ((1, 4),)), Span.over(DimTiling(6, 2), 0, 6, ((4, 2),))]
    for tile in product(range(4), range(2)):
        place = find_place(spans, tile)
        assert (place is None) == (tile[0] == 0)
        if place is not None:
            assert find_offset(spans, place) == tile[0] + 4 * tile[1]
