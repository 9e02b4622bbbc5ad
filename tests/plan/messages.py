"""The fewest messages that the elements of a pending tensor need, worked out from what the devices know.

A contribution to an element is on some devices, as equal copies. In the end all devices at a position along the pending
axes of the target have one value, and the values of all positions reduce to what the contributions reduce to; an
identity is free. A message carries one value of the element from any device to any other, and a device combines what it
knows for nothing. Three ways to count a contribution:

- ``"once"`` (sum, product, xor, avg): it is in exactly one of the values. What is combined is not taken apart again.
- ``"often"`` (max, min, and, or): it is in at least one of them.
- ``"whole"`` (the target has another reduction): the first reduction ends before the second begins, so one position has
  the value of all contributions, and the others have identities.

An average counts once because devices may scale: of C contributions to a mean, a position among P has P / C times the
sum of those it takes, and zero if it takes none. Who does not scale has fewer ways, so needs as many messages or more.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from heapq import heappop, heappush
from itertools import count, permutations, product
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from shardwise import Layout
from tests.layout.oracle import digit

Counting = Literal["once", "often", "whole"]
Shape = tuple[int, ...]
Mask = int  # a set of numbers: bit k says whether k is in it; a value is the set of contributions that are in it
State = tuple[tuple[Mask, ...], ...]  # the values that each device knows, without those that follow from the others

OFTEN = ("max", "min", "band", "bor")
NEVER = 10**6
MANY = 6  # contributions or positions up to which all assignments are tried


class Element(NamedTuple):
    """What one element needs: for each device, the contributions it has and the positions it ends up at."""

    devices: tuple[tuple[Mask, Mask], ...]
    counting: Counting = "once"

    @property
    def contributions(self) -> int:
        """The number of contributions."""
        return max(held for held, _ in self.devices).bit_length()

    @property
    def positions(self) -> int:
        """The number of positions along the pending axes of the target."""
        return max(wanted for _, wanted in self.devices).bit_length()

    @property
    def holders(self) -> list[frozenset[int]]:
        """The devices that have each contribution."""
        return [transpose(k, [held for held, _ in self.devices]) for k in range(self.contributions)]

    @property
    def targets(self) -> list[frozenset[int]]:
        """The devices at each position."""
        return [transpose(m, [wanted for _, wanted in self.devices]) for m in range(self.positions)]


def bits(mask: Mask) -> list[int]:
    """The numbers in a set."""
    return [k for k in range(mask.bit_length()) if mask >> k & 1]


def transpose(number: int, masks: Sequence[Mask]) -> frozenset[int]:
    """Which of some sets a number is in."""
    return frozenset(at for at, mask in enumerate(masks) if mask >> number & 1)


def element_of(
    holders: Iterable[Iterable[int]], targets: Iterable[Iterable[int]], counting: Counting = "once", relays: int = 0
) -> Element:
    """Return an element from who has each contribution, who is at each position, and how many devices are neither."""
    held: Counter[int] = Counter()
    wanted: Counter[int] = Counter()
    for masks, groups in ((held, holders), (wanted, targets)):
        for number, group in enumerate(groups):
            for device in set(group):
                masks[device] |= 1 << number
    return Element(tuple(sorted((held[d], wanted[d]) for d in {**held, **wanted}) + [(0, 0)] * relays), counting)


# -- by search over schedules --------------------------------------------------------------------------------


def fewest_messages_by_search(element: Element) -> int:
    """Return the length of the shortest schedule: best first over all that the devices can know after some messages.

    States that differ by a symmetry of the element are one state. The estimate of what is still to come is the
    number of devices that do not know what they end up with: each receives a message, and a message has one receiver.
    """
    symmetries, order = find_symmetries(element), count()
    end = element.targets, (1 << element.contributions) - 1, element.counting
    start = tuple(tuple(1 << k for k in bits(held)) for held, _ in element.devices)
    lengths = {start: 0}
    left = count_receivers(*end, start)
    waiting = [(left, left, next(order), start)]
    while waiting:
        total, left, _, state = heappop(waiting)
        length = total - left
        if length == lengths[state] and not left:
            return length
        if length > lengths[state]:
            continue
        for following in next_states(state, element.counting != "once"):
            following = choose_name(following, symmetries)
            if lengths.get(following, NEVER) > length + 1:
                lengths[following] = length + 1
                left = count_receivers(*end, following)
                heappush(waiting, (length + 1 + left, left, next(order), following))
    raise AssertionError("a schedule that brings everything to every device ends")


def next_states(state: State, is_often: bool) -> Iterator[State]:
    """Yield what devices know after one more message: any value that one knows, to any device that does not."""
    known = [follow(values, is_often) for values in state]
    for target, values in enumerate(state):
        for value in set[Mask]().union(*known) - known[target]:
            yield (*state[:target], simplify((*values, value), is_often), *state[target + 1 :])


@cache
def follow(values: tuple[Mask, ...], is_often: bool) -> frozenset[Mask]:
    """All values that a device can make of some; where a contribution counts once, of those that share none."""
    out = {0}
    for value in values:
        out |= {value | other for other in out if is_often or not value & other}
    return frozenset(out - {0})


@cache
def simplify(values: tuple[Mask, ...], is_often: bool) -> tuple[Mask, ...]:
    """The values without those that follow from others."""
    out: tuple[Mask, ...] = ()
    for value in sorted(set(values), key=lambda value: (value.bit_count(), value)):
        if value not in follow(out, is_often):
            out = (*out, value)
    return tuple(sorted(out))


def count_receivers(ends: Sequence[frozenset[int]], everything: Mask, counting: Counting, state: State) -> int:
    """The fewest devices that do not know what they end up with, over all values that the positions may end up with."""
    is_often = counting != "once"
    known = [follow(values, is_often) for values in state]
    # For each position: the values that one of its devices knows, and as a mask the devices that do not.
    choices: list[dict[Mask, Mask]] = []
    for group in ends:
        values = set[Mask]().union(*(known[d] for d in group))
        choices.append({value: sum(1 << d for d in group if value not in known[d]) for value in values})
    # A value that no device of its position knows may as well be everything: the other positions get identities.
    least = min(map(len, ends))
    if counting == "whole":
        return min([least, *(lacking[everything].bit_count() for lacking in choices if everything in lacking)])
    reached = {(0, 0)}
    for lacking in choices:
        for (taken, receivers), (value, others) in product(tuple(reached), lacking.items()):
            if (is_often or not taken & value) and (receivers | others).bit_count() < least:
                reached.add((taken | value, receivers | others))
    return min([least, *(receivers.bit_count() for taken, receivers in reached if taken == everything)])


class Symmetry(NamedTuple):
    """New names for the devices under which contributions and positions only change their names too."""

    arrange: Callable[[Sequence[Any]], tuple[Any, ...]]  # what the devices have, in the order of their new names
    values: list[Mask]  # the new name of every value


def find_symmetries(element: Element) -> list[Symmetry]:
    """Return symmetries of an element, among them the one that changes nothing."""
    holders, targets = element.holders, set(element.targets)
    numbers = {group: k for k, group in enumerate(holders)}
    kinds = [(held.bit_count(), wanted.bit_count()) for held, wanted in element.devices]
    out: list[Symmetry] = []
    for names in permutations(range(len(kinds))):
        if any(kinds[old] != kinds[new] for old, new in enumerate(names)):
            continue
        renamed = [frozenset(names[d] for d in group) for group in holders]
        # Contributions that the same devices have are told apart by their numbers alone, so they must stay in place.
        if renamed != holders and (len(numbers) < len(holders) or numbers.keys() != set(renamed)):
            continue
        if {frozenset(names[d] for d in group) for group in targets} != targets:
            continue
        new = range(len(holders)) if renamed == holders else [numbers[group] for group in renamed]
        order = sorted(range(len(names)), key=names.__getitem__)
        values = [sum(1 << new[k] for k in bits(value)) for value in range(1 << len(holders))]
        out.append(Symmetry(itemgetter(*order, order[0]), values))  # one more: of one item it would give no tuple
    return out


def choose_name(state: State, symmetries: list[Symmetry]) -> State:
    """One of the states that are this one under other names, which is the same for all of them."""
    kinds = [tuple(sorted(map(int.bit_count, values))) for values in state]
    first = min(symmetry.arrange(kinds) for symmetry in symmetries)
    chosen = (symmetry for symmetry in symmetries if symmetry.arrange(kinds) == first)
    return min(
        tuple(tuple(sorted([names[value] for value in values])) for values in arrange(state)[:-1])
        for arrange, names in chosen
    )


# -- by assignment of contributions to positions -----------------------------------------------------------------


def fewest_messages_by_assignment(element: Element) -> int:
    """Return the fewest messages over all ways to assign each contribution to a position, each position by itself."""
    devices = [held for held, _ in element.devices]
    costs = [group_costs(devices, element.contributions, targets) for targets in element.targets]
    if element.counting == "whole":
        return int(min(cost[-1] for cost in costs))
    if element.counting == "often":  # to several positions: each takes at least what is assigned to it
        costs = [cheapest_supersets(cost) for cost in costs]
    sets, best = np.arange(1 << element.contributions), costs[0]
    for cost in costs[1:-1]:
        reached = best.copy()
        for group in sets[1:]:
            others = sets[sets & group == 0]
            reached[others | group] = np.minimum(reached[others | group], best[others] + cost[group])
        best = reached
    return int(best[-1] if len(costs) == 1 else np.min(best + costs[-1][::-1]))


def group_costs(devices: Sequence[Mask], contributions: int, targets: frozenset[int]) -> np.ndarray:
    """For every set of contributions, the fewest messages after which all targets know what it reduces to.

    Where a device has all of them: one to each target that does not. Otherwise let v be the first device that knows the
    result. By then it has heard, directly or not, from devices that have all that it lacks: a message of each, and no
    more if they share out what it lacks. No other target knows the result yet, so each receives a message later.
    """
    groups = np.arange(1 << contributions)
    senders = np.where(groups == 0, 0, NEVER)  # the fewest devices that have all of a set among them
    for held in set(devices):
        senders = np.minimum(senders, senders[groups & ~held] + 1)
    knows = [groups & ~held == 0 for held in devices]
    lacking = np.sum([~knows[d] for d in targets], axis=0)
    first = [senders[groups & ~held] + len(targets - {d}) for d, held in enumerate(devices)]
    return np.where(np.any(knows, axis=0), lacking, np.min(first, axis=0))


def cheapest_supersets(costs: np.ndarray) -> np.ndarray:
    """For every set but the empty one, the least that a set costs of which it is a part."""
    out, sets = costs.copy(), np.arange(len(costs))
    for k in range(len(costs).bit_length() - 1):
        without = sets[(sets >> k & 1 == 0) & (sets > 0)]
        out[without] = np.minimum(out[without], out[without | 1 << k])
    return out


# -- of a tensor -------------------------------------------------------------------------------------------------


def least_elements(src: Layout, dst: Layout, shape: Shape) -> int:
    """Return the fewest elements of a tensor that must travel in all, halos left out."""
    return sum(number * fewest_messages(element) for element, number in elements_of(src, dst, shape).items())


@cache
def fewest_messages(element: Element) -> int:
    """Return the fewest messages of an element; of most elements it is known already."""
    if max(element.contributions, element.positions) <= MANY or any(held & (held - 1) for held, _ in element.devices):
        return fewest_messages_by_assignment(element)
    return fewest_messages_by_formula(element)


def fewest_messages_by_formula(element: Element) -> int:
    """Return the fewest messages where a device has one contribution at most and is at one position at most.

    A group of several contributions takes a message of each and one to each target, less those of the device that is
    first to know the result. What all devices of a position have stays there, and the rest is one group, or each
    contribution is at a position of its own.
    """
    held = [{d for d, (own, _) in enumerate(element.devices) if own >> k & 1} for k in range(element.contributions)]
    targets = [set(each) for each in element.targets]
    if element.counting == "whole" or len(targets) == 1:
        return min(count_of_group(held, each) for each in targets)
    homes = {k for k, own in enumerate(held) if any(each <= own for each in targets)}
    left = [own for k, own in enumerate(held) if k not in homes]
    if not left:
        return 0
    size = len(targets[0])
    assert all(len(each) == size for each in targets)
    together = len(left) + size - 1 - any(own & each for own in left for each in targets)
    if len(held) > len(targets):
        return together
    weights = np.array([[len(own & each) for each in targets] for own in held])
    return min(together, len(held) * size - int(weights[linear_sum_assignment(weights, maximize=True)].sum()))


def count_of_group(held: Sequence[set[int]], targets: set[int]) -> int:
    """Return the messages after which all targets know what some contributions reduce to."""
    if len(held) == 1:
        return len(targets - held[0])
    return len(held) + len(targets) - 2 + targets.isdisjoint(set().union(*held))


def elements_of(src: Layout, dst: Layout, shape: Shape) -> Counter[Element]:
    """Count the elements of a tensor by what they need."""
    is_one_mesh = src.mesh is dst.mesh
    names = range(src.mesh.num_devices) if is_one_mesh else dict.fromkeys((*src.mesh.devices, *dst.mesh.devices))
    number_of = {name: number for number, name in enumerate(names)}
    both: list[np.ndarray] = []
    for layout in (src, dst):
        slots = range(layout.mesh.num_devices) if is_one_mesh else layout.mesh.devices
        both.append(spread(layout, shape, [number_of[slot] for slot in slots], len(number_of)))
    raw: Counter[tuple[tuple[Mask, Mask], ...]] = Counter()
    for element in np.ndindex(shape):
        held, wanted = (each[(slice(None), *element)].tolist() for each in both)
        raw[tuple(zip(held, wanted, strict=True))] += 1
    out: Counter[Element] = Counter()
    for devices, number in raw.items():
        out[standardize(devices, how_to_count(src, dst))] += number
    return out


def spread(layout: Layout, shape: Shape, numbers: Sequence[int], count: int) -> np.ndarray:
    """For every device and element: the positions along the pending axes at which the device has the element."""
    out = np.zeros((count, *shape), dtype=np.int64)
    sizes = [axis.size for axis in layout.partial]
    for slot, number in enumerate(numbers):
        digits = [digit(layout.mesh, axis, slot) for axis in layout.partial]
        position = int(np.ravel_multi_index(digits, sizes)) if sizes else 0
        box = tuple(slice(start, stop) for start, stop in layout.box(shape, slot))
        out[(number, *box)] |= 1 << position
    return out


def how_to_count(src: Layout, dst: Layout) -> Counting:
    """How contributions count between two layouts."""
    if src.partial and dst.partial and src.reduce_op is not dst.reduce_op:
        return "whole"
    return "often" if str(src.reduce_op or dst.reduce_op) in OFTEN else "once"


@cache
def standardize(devices: tuple[tuple[Mask, Mask], ...], counting: Counting = "once") -> Element:
    """An element under other names of contributions, positions and devices; of most that are alike, the same."""
    contributions = sorted(set[int]().union(*(bits(held) for held, _ in devices)))
    positions = sorted(set[int]().union(*(bits(wanted) for _, wanted in devices)))
    shared = {
        (k, m): sum(held >> k & wanted >> m & 1 for held, wanted in devices) for k in contributions for m in positions
    }
    contributions.sort(key=lambda k: (sorted(shared[k, m] for m in positions), [shared[k, m] for m in positions]))
    positions.sort(key=lambda m: [shared[k, m] for k in contributions])
    contributions.sort(key=lambda k: [shared[k, m] for m in positions])
    holders = [transpose(k, [held for held, _ in devices]) for k in contributions]
    targets = [transpose(m, [wanted for _, wanted in devices]) for m in positions]
    return element_of(holders, targets, counting, devices.count((0, 0)))
