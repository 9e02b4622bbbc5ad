"""The least messages of one way to treat partial axes, against every assignment of reducers."""

from collections.abc import Iterable
from functools import cache
from itertools import chain, combinations, product

import pytest

from shardwise import CPU, Cut, DeviceMesh, Layout
from shardwise.layout.axis import Axis
from shardwise.plan.holders import Holders
from shardwise.plan.least import Option, least
from tests.layout.oracle import digit, owned_box
from tests.plan.cases import mesh_of


@cache
def owners(layout: Layout, shape: tuple[int, ...], element: tuple[int, ...]) -> list[int]:
    """The devices that own an element."""
    out = []
    for device in range(layout.mesh.num_devices):
        box = owned_box(layout, shape, device)
        if all(a <= i < b for i, (a, b) in zip(element, box, strict=True)):
            out.append(device)
    return out


@cache
def place(layout: Layout, axis: Axis, device: int) -> int:
    return digit(layout.mesh, axis, device)


def at(layout: Layout, axes: Iterable[Axis], device: int) -> tuple[int, ...]:
    return tuple(place(layout, axis, device) for axis in axes)


def messages(givers: list[list[int]], takers: list[int]) -> int:
    """The fewest messages that bring one of each list of givers together and tell all takers: by the definition.

    One device gathers, from the nearest of each list, and tells the takers: whoever it is, the fewest count.
    """
    everyone = set(chain(*givers, takers))
    return min(sum(d not in some for some in givers) + sum(d != taker for taker in takers) for d in everyone)


def brute(src: Layout, dst: Layout, shape: tuple[int, ...], option: Option) -> int:
    total = 0
    for element in product(*map(range, shape)):
        giving, taking = owners(src, shape, element), owners(dst, shape, element)
        for position in {at(src, option.batch, d) for d in range(src.mesh.num_devices)}:
            here = [d for d in giving if at(src, option.batch, d) == position]
            there = [d for d in taking if at(dst, option.batch, d) == position]
            parts = {at(src, option.pending, d) for d in here}
            givers = [[d for d in here if at(src, option.pending, d) == p] for p in parts]
            counts = []
            for fresh in {at(dst, option.fresh, d) for d in there}:
                takers = [d for d in there if at(dst, option.fresh, d) == fresh]
                counts.append(sum(d not in here for d in takers) if len(givers) == 1 else messages(givers, takers))
            total += min(counts)
    return total


def some(axes: tuple[Axis, ...]) -> list[tuple[Axis, ...]]:
    return list(chain.from_iterable(combinations(axes, n) for n in range(len(axes) + 1)))


MESH = mesh_of(2, 3)
X, Y = MESH.axis("x"), MESH.axis("y")
SIDES = [[None], ["x"], ["y"], [("x", "y")], [("y", "x")], [Cut("y", offsets=(0, 0, 3, 5))]]


@pytest.mark.parametrize("src", SIDES, ids=str)
def test_it_is_the_fewest_for_every_choice_of_axes(src) -> None:
    for dst in SIDES:
        before, after = Layout(MESH, src), Layout(MESH, dst)
        a, b = Holders(before, (5,)), Holders(after, (5,))
        both = tuple(axis for axis in before.replicated_axes if axis in after.replicated_axes)
        for batch in some(both):
            for pending in some(tuple(axis for axis in before.replicated_axes if axis not in batch)):
                for fresh in some(tuple(axis for axis in after.replicated_axes if axis not in batch)):
                    option = Option(pending, fresh, batch)
                    assert least(a, b, option) == brute(before, after, (5,), option), (src, dst, option)


def test_named_numbers() -> None:
    one = Holders(Layout(MESH, [None]), (5,))
    assert least(one, one, Option((), (), ())) == 0
    assert least(one, one, Option((X,), (), ())) == 5 * (2 + 6 - 2)
    assert least(one, one, Option((X,), (), (Y,))) == 5 * 3 * (2 + 2 - 2)
    assert least(one, one, Option((X, Y), (), ())) == 5 * (6 + 6 - 2)
    assert least(one, one, Option((X,), (X,), ())) == 5 * (2 + 3 - 2)
    assert least(one, one, Option((), (X,), ())) == 0


@pytest.mark.parametrize("shape", [(), (0,), (1,)])
def test_no_dims_no_elements_and_one_element(shape: tuple[int, ...]) -> None:
    count = 0 if shape == (0,) else 1
    before, after = Layout(MESH, ["x"] * len(shape)), Layout(MESH, [None] * len(shape))
    a, b = Holders(before, shape), Holders(after, shape)
    assert least(a, b, Option((), (), ())) == (3 if shape == (1,) else 0)
    assert least(a, b, Option((Y,), (), ())) == count * (3 + 6 - 2)


def test_where_no_contributor_is_a_target_it_takes_one_message_more() -> None:
    old, new = mesh_of(3), DeviceMesh((2,), ("x",), [CPU(3), CPU(4)])
    a, b = Holders(Layout(old, [None]), (7,), (0, 1, 2)), Holders(Layout(new, [None]), (7,), (3, 4))
    assert least(a, b, Option((old.axis("x"),), (), ())) == 7 * (3 + 2 - 2 + 1)
    assert least(a, b, Option((), (), ())) == 7 * 2
    near = Holders(Layout(new, [None]), (7,), (2, 4))
    assert least(a, near, Option((old.axis("x"),), (), ())) == 7 * (3 + 2 - 2)
    assert least(a, near, Option((), (), ())) == 7
