"""What is held before and after, against sets of elements."""

from itertools import product

import pytest

from shardwise import Cut, Layout
from shardwise.layout.axis import has_crossing
from shardwise.plan.agreement import count_agreeing, largest_common
from shardwise.plan.holders import Holders
from tests.layout.oracle import owned_box
from tests.plan.cases import all_layouts, mesh_of, sub_axis_layouts

SHAPES = [(), (0,), (1,), (7,), (12,), (6, 4), (5, 7)]


def elements(layout: Layout, shape: tuple[int, ...], device: int) -> set[tuple[int, ...]]:
    return set(product(*(range(*span) for span in owned_box(layout, shape, device))))


def check(src: Layout, dst: Layout, shape: tuple[int, ...]) -> None:
    both = [elements(src, shape, device) & elements(dst, shape, device) for device in range(src.mesh.num_devices)]
    before, after = Holders(src, shape), Holders(dst, shape)
    assert count_agreeing(before, after) == len(set().union(*both)), (src, dst)
    assert largest_common(before, after) >= max(map(len, both)), (src, dst)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_pair_of_layouts(shape: tuple[int, ...]) -> None:
    for sizes in ((2, 3), (2, 2, 2)):
        layouts = all_layouts(mesh_of(*sizes), len(shape))
        for src, dst in list(product(layouts, layouts))[:: 1 + len(layouts) // 12]:
            check(src, dst, shape)


def test_sub_axes_that_nest() -> None:
    layouts = sub_axis_layouts(mesh_of(8), 2)
    pairs = [pair for pair in product(layouts, layouts) if not any(layout.partial for layout in pair)]
    for src, dst in pairs[::17]:
        if not has_crossing(src.sharded_axes, dst.sharded_axes):
            check(src, dst, (8, 5))


def test_other_cuts() -> None:
    mesh = mesh_of(2, 3)
    cuts = [Cut("y", offsets=(0, 0, 3, 5)), Cut("y", split="chunk"), Cut(("x", "y")), Cut(("y", "x"), split="chunk")]
    for src, dst in product(cuts, cuts):
        check(Layout(mesh, [src]), Layout(mesh, [dst]), (5,))


@pytest.mark.parametrize("sizes", [(2, 3), (2, 2, 2)])
def test_the_largest_is_exact_where_no_axis_moves_between_dims(sizes: tuple[int, ...]) -> None:
    layouts = all_layouts(mesh_of(*sizes), 1)
    for src, dst in product(layouts, layouts):
        for shape in ((7,), (12,)):
            most = max(len(elements(src, shape, d) & elements(dst, shape, d)) for d in range(src.mesh.num_devices))
            assert largest_common(Holders(src, shape), Holders(dst, shape)) == most, (src, dst)


def test_a_million_devices() -> None:
    mesh = mesh_of(1024, 1024)
    rows, turned = Layout(mesh, ["x", "y"]), Layout(mesh, ["y", "x"])
    assert count_agreeing(Holders(rows, (4096, 2048)), Holders(turned, (4096, 2048))) == 4 * 2 * 1024
