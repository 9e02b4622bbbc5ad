"""The fewest messages by search over schedules, by assignment of contributions to positions, and by the formulas."""

from collections import deque
from collections.abc import Iterator
from itertools import combinations, permutations, product
from math import prod
from random import Random

import pytest

from shardwise import CPU, Cut, DeviceMesh, Layout
from tests.plan.cases import all_layouts, mesh_of
from tests.plan.messages import (
    Counting,
    Element,
    bits,
    element_of,
    elements_of,
    fewest_messages_by_assignment,
    fewest_messages_by_formula,
    fewest_messages_by_search,
    group_costs,
    least_elements,
    next_states,
)

COUNTINGS: list[Counting] = ["once", "often", "whole"]


# -- elements to try -------------------------------------------------------------------------------------------


def parts_of_same_size(rng: Random, devices: int, most: int) -> list[list[int]]:
    """Some disjoint sets of devices, as many in each."""
    size = rng.randint(1, devices)
    chosen = rng.sample(range(devices), devices)
    return [chosen[i * size : (i + 1) * size] for i in range(rng.randint(1, min(most, devices // size)))]


def parts_of_any_size(rng: Random, devices: int, most: int) -> list[list[int]]:
    """Some disjoint sets of devices."""
    homes = [rng.randrange(most + 1) for _ in range(devices)]
    return [part for k in range(most) if (part := [d for d, home in enumerate(homes) if home == k])] or [[0]]


def sets_that_overlap(rng: Random, devices: int, most: int) -> list[list[int]]:
    """Some sets of devices, as where a device stands in several slots of a mesh."""
    sets = [[d for d in range(devices) if rng.random() < 0.4] for _ in range(rng.randint(1, most))]
    return [chosen or [rng.randrange(devices)] for chosen in sets]


KINDS = {
    "one mesh or two": (parts_of_same_size, parts_of_same_size, 5),
    "disjoint sets of any size": (parts_of_any_size, parts_of_any_size, 4),
    "devices with several contributions": (sets_that_overlap, parts_of_same_size, 4),
    "devices in several slots of both": (sets_that_overlap, sets_that_overlap, 3),
}


def random_elements(kind: str, seed: int, devices: int, number: int) -> Iterator[Element]:
    """Elements of a kind, each counted in all ways."""
    rng = Random(seed)
    holders, targets, most = KINDS[kind]
    for _ in range(number):
        among = rng.randint(1, devices)
        giving, taking = holders(rng, among, most), targets(rng, among, most)
        unused = among - len(set().union(*giving, *taking))
        for counting in COUNTINGS:
            yield element_of(giving, taking, counting, unused)


def elements_of_mesh(sizes: tuple[int, ...]) -> set[Element]:
    """The different elements of all transitions of a small mesh."""
    mesh, out = mesh_of(*sizes), set[Element]()
    for (src_op, dst_op), shape in product((("sum", "sum"), ("max", "max"), ("sum", "max")), ((7,), (6, 6))):
        for src in all_layouts(mesh, len(shape), True, src_op):
            for dst in all_layouts(mesh, len(shape), True, dst_op):
                if src.partial or dst.partial:
                    out |= elements_of(src, dst, shape).keys()
    return out


def agree(element: Element) -> None:
    """Check that both ways to count the fewest messages come to the same."""
    assert fewest_messages_by_search(element) == fewest_messages_by_assignment(element), element


# -- the search ----------------------------------------------------------------------------------------------------


def is_end(element: Element, state: tuple[tuple[int, ...], ...]) -> bool:
    """Whether devices know values for all positions that count every contribution: by trying all values."""
    everything = (1 << element.contributions) - 1
    ends: list[set[int]] = []
    for targets in element.targets:
        known = []
        for device in targets:
            sums = {0}
            for chosen in (c for n in range(len(state[device])) for c in combinations(state[device], n + 1)):
                value = 0
                for part in chosen:
                    value |= part
                if element.counting != "once" or value.bit_count() == sum(map(int.bit_count, chosen)):
                    sums.add(value)
            known.append(sums)
        ends.append(set.intersection(*known))
    for values in product(*ends):
        each = [sum(value >> k & 1 for value in values) for k in range(element.contributions)]
        if {
            "once": set(each) == {1},
            "often": 0 not in each,
            "whole": everything in values,
        }[element.counting]:
            return True
    return False


def shortest_schedule(element: Element) -> int:
    """The length of the shortest schedule, breadth first, with no symmetries and no estimates."""
    start = tuple(tuple(1 << k for k in bits(held)) for held, _ in element.devices)
    lengths, waiting = {start: 0}, deque([start])
    while not is_end(element, state := waiting.popleft()):
        for following in next_states(state, element.counting != "once"):
            if following not in lengths:
                lengths[following] = lengths[state] + 1
                waiting.append(following)
    return lengths[state]


@pytest.mark.parametrize("kind", KINDS)
def test_estimates_and_symmetries_do_not_change_what_the_search_finds(kind: str) -> None:
    for element in {*random_elements(kind, 1, 3, 60), *random_elements(kind, 2, 4, 12)}:
        if fewest_messages_by_assignment(element) <= 4:
            assert fewest_messages_by_search(element) == shortest_schedule(element), element


def test_named_elements() -> None:
    everyone = range(5)
    assert fewest_messages_by_search(element_of([[d] for d in everyone], [everyone])) == 5 + 5 - 2  # all-reduce
    assert fewest_messages_by_search(element_of([[d] for d in everyone], [[0]])) == 5 - 1  # reduce
    assert fewest_messages_by_search(element_of([[0]], [everyone])) == 5 - 1  # broadcast
    assert fewest_messages_by_search(element_of([[d] for d in everyone], [[d] for d in everyone])) == 0
    assert fewest_messages_by_search(element_of([[0], [1]], [[2], [3]])) == 2
    assert fewest_messages_by_search(element_of([[0], [1]], [[2, 3]])) == 3
    # Three contributions that are each on two of three targets' devices: cheaper apart than together.
    apart = element_of([[0, 1, 6], [2, 3, 7], [4, 5, 8]], [[0, 1, 2], [3, 4, 6], [5, 7, 8]])
    assert fewest_messages_by_assignment(apart) == 4


# -- search and assignment -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_best_assignment_is_as_good_as_the_best_schedule(kind: str) -> None:
    for element in set(random_elements(kind, 3, 4, 120)):
        agree(element)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_the_best_assignment_is_as_good_as_the_best_schedule_of_more_devices(kind: str) -> None:
    for element in {*random_elements(kind, 4, 5, 2000), *random_elements(kind, 5, 6, 30)}:
        agree(element)


@pytest.mark.parametrize("sizes", [(2, 2), (5,), (2, 3)])
def test_it_is_as_good_for_elements_of_a_mesh(sizes: tuple[int, ...]) -> None:
    for element in elements_of_mesh(sizes):
        if prod(sizes) < 6 or fewest_messages_by_assignment(element) <= 3:
            agree(element)


@pytest.mark.long
@pytest.mark.parametrize("sizes", [(2, 3), (3, 2), (6,)])
def test_it_is_as_good_for_all_elements_of_six_devices(sizes: tuple[int, ...]) -> None:
    for element in elements_of_mesh(sizes):
        agree(element)


@pytest.mark.parametrize("kind", KINDS)
def test_a_contribution_that_may_count_twice_saves_no_message(kind: str) -> None:
    for element in set(random_elements(kind, 6, 9, 120)):
        once, often = (element._replace(counting=counting) for counting in COUNTINGS[:2])
        assert fewest_messages_by_assignment(once) == fewest_messages_by_assignment(often), element


# -- formulas --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["one mesh or two", "disjoint sets of any size"])
def test_a_group_takes_c_plus_t_minus_two_messages_and_one_more_if_no_target_contributes(kind: str) -> None:
    for element in set(random_elements(kind, 7, 8, 60)):
        for targets in element.targets:
            costs = group_costs([held for held, _ in element.devices], element.contributions, targets)
            for group, cost in enumerate(costs):
                holders = [element.holders[k] for k in bits(group)]
                apart = all(targets.isdisjoint(devices) for devices in holders)
                assert cost == {
                    0: 0,
                    1: len(targets.difference(*holders[:1])),
                }.get(len(holders), len(holders) + len(targets) - 2 + apart)


def choices(rows: int, columns: int) -> Iterator[list[tuple[int, int]]]:
    """Every way to pair some of the rows with columns of their own."""
    for n in range(min(rows, columns) + 1):
        for chosen in combinations(range(rows), n):
            for places in permutations(range(columns), n):
                yield list(zip(chosen, places, strict=True))


def formula(element: Element) -> int:
    """The fewest messages where no device has two contributions or is at two positions, and positions are alike.

    Contributions stay at home, where all devices of a position have them, as many as can; what is left goes to one
    position, or each contribution to a position of its own.
    """
    holders, targets = element.holders, element.targets
    c, size = len(holders), len(targets[0])
    ways = list(choices(len(targets), c))
    homes = [way for way in ways if all(targets[m] <= holders[k] for m, k in way)]
    most = max(map(len, homes))
    if most == c:
        return 0
    meets = False  # whether a position that is left has a device with a contribution that is left
    for way in (way for way in homes if len(way) == most):
        used, placed = {m for m, _ in way}, {k for _, k in way}
        left = frozenset[int]().union(*(holders[k] for k in range(c) if k not in placed))
        meets |= any(targets[m] & left for m in range(len(targets)) if m not in used)
    together = c - most + size - 1 - meets
    apart = [c * size - sum(len(targets[m] & holders[k]) for m, k in way) for way in ways if len(way) == c]
    return min([together, *apart])


@pytest.mark.parametrize("devices", [4, 7, 10])
def test_contributions_stay_at_home_and_the_rest_goes_to_one_position_or_each_to_its_own(devices: int) -> None:
    for element in set(random_elements("one mesh or two", devices, devices, 150)):
        if element.counting != "whole":
            assert fewest_messages_by_assignment(element) == formula(element), element
        assert fewest_messages_by_assignment(element) == fewest_messages_by_formula(element), element


def messages_on_one_mesh(c: int, t: int, homes: int, copies: int, is_here: bool) -> int:
    """The formula on one mesh: c contributions, t devices a position, of which `copies` have a contribution it has."""
    if c == 1:
        return t - copies * is_here
    if not is_here:
        return c + t - 1
    if copies < t:
        return c + t - 2
    return 0 if c == homes else c - homes + t - 1


@pytest.mark.parametrize(("sizes", "every"), [((2, 2), 1), ((2, 3), 1), ((2, 2, 2), 3), ((3, 2, 2), 5)])
def test_on_one_mesh_what_stays_at_home_is_read_off_the_axes(sizes: tuple[int, ...], every: int) -> None:
    mesh, size = mesh_of(*sizes), dict(zip("xyz", sizes, strict=False))
    layouts = [layout for layout in all_layouts(mesh, 1, True) if prod(a.size for a in layout.partial) <= 8]
    for src, dst in list(product(layouts, layouts))[::every]:
        if not src.partial and not dst.partial:
            continue
        before, after = ({a.name for a in layout.partial} for layout in (src, dst))
        kept, copies = ({a.name for a in layout.replicated_axes} for layout in (src, dst))
        c, t, homes, both = (prod(size[a] for a in axes) for axes in (before, copies, before & after, kept & copies))
        number = prod(sizes)
        here = sum(
            any(a <= i < b and e <= i < f for (((a, b),), ((e, f),)) in boxes(src, dst, number)) for i in range(number)
        )
        want = here * messages_on_one_mesh(c, t, homes, both, True)
        want += (number - here) * messages_on_one_mesh(c, t, homes, both, False)
        assert least_elements(src, dst, (number,)) == want, (src, dst)


def boxes(src: Layout, dst: Layout, number: int) -> list[tuple[tuple[tuple[int, int], ...], ...]]:
    """What each device has before and after."""
    return [(src.box((number,), d), dst.box((number,), d)) for d in range(src.mesh.num_devices)]


# -- tensors ---------------------------------------------------------------------------------------------------------


def test_named_transitions() -> None:
    mesh = mesh_of(2, 3, 2)
    assert least_elements(Layout(mesh, ["y", None], ["z"]), Layout(mesh, [None, "y"], ["z"]), (6, 6)) == 72
    mesh = mesh_of(2, 2, 2)
    before, after = Layout(mesh, [None, None], ["x", "y"]), Layout(mesh, [None, "x"], ["y"])
    assert least_elements(before, after, (5, 7)) == 3 * 35
    assert least_elements(after, before, (5, 7)) == 0
    uneven = Layout(mesh, [Cut("x", offsets=(0, 1, 5)), None], ["y"])
    assert least_elements(uneven, Layout(mesh, ["x", None], ["y"]), (5, 7)) == 2 * 7 * (2 + 2 - 1)


def test_devices_have_what_they_have_under_any_mesh() -> None:
    devices = [CPU(i) for i in (3, 1, 2, 0)]
    old, new = mesh_of(4), DeviceMesh((4,), ("u",), devices)
    pending = Layout(old, [None], ["x"])
    assert least_elements(pending, Layout(new, [None], ["u"]), (6,)) == 0
    assert least_elements(pending, Layout(new, [None]), (6,)) == 6 * (4 + 4 - 2)
    part = DeviceMesh((2,), ("u",), [CPU(3), CPU(9)])
    assert least_elements(pending, Layout(part, [None], ["u"]), (6,)) == 6 * 3
    assert least_elements(Layout(part, [None], ["u"]), pending, (6,)) == 6
    twice = DeviceMesh((2,), ("u",), [CPU(0), CPU(0)])
    assert least_elements(Layout(twice, [None], ["u"]), Layout(part, [None]), (6,)) == 6 * 2
    assert least_elements(Layout(twice, [None], ["u"]), Layout(old, ["x"]), (8,)) == 6


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 0)])
def test_no_dims_no_elements_and_one_element(shape: tuple[int, ...]) -> None:
    mesh = mesh_of(2, 2)
    layouts = [Layout(mesh, [None] * len(shape), axes) for axes in (["x", "y"], ["x"], [])]
    found = [least_elements(src, dst, shape) for src, dst in product(layouts, layouts)]
    assert found == [prod(shape) * n for n in (0, 4, 6, 0, 0, 4, 0, 0, 0)]


def test_reductions_that_differ_end_before_the_next_begins() -> None:
    mesh = mesh_of(2, 2)
    for op, number in (("sum", 0), ("max", 2)):
        before, after = Layout(mesh, [None], ["x"], "sum"), Layout(mesh, [None], ["x"], op)
        assert least_elements(before, after, (6,)) == 6 * number
