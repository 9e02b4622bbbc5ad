"""The fewest messages that one way to treat partial axes needs, element by element."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from shardwise.errors import seal
from shardwise.layout.axis import Axis, common, has_crossing
from shardwise.layout.mesh import walk
from shardwise.layout.tiling import box_size
from shardwise.plan.agreement import count_agreeing
from shardwise.plan.holders import Holders
from shardwise.plan.matching import match


@seal
@dataclass(frozen=True, slots=True)
class Option:
    """One way to treat partial axes: those reduced, those that become partial, those left as they are.

    With `keeps`, a contribution stays where it is if that is where a new one is to be.
    """

    pending: tuple[Axis, ...]
    fresh: tuple[Axis, ...]
    batch: tuple[Axis, ...]
    keeps: bool = False


class Messages(NamedTuple):
    """How many messages an element takes: to where it is reduced, or needed, and from there to all who need it."""

    first: int
    second: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.first + self.second

    def times(self, count: int) -> Messages:
        """Return those of several elements."""
        return Messages(self.first * count, self.second * count)


def count_messages(src: Holders, dst: Holders, option: Option) -> tuple[Messages, Messages] | None:
    """Return the messages that an element takes: one that some device has before and after, and one that none has.

    None where axes cross, so that elements differ in other ways. With c contributors and t targets an element takes
    c + t - 2 messages, one more where no contributor is a target: each contribution but one must leave its device, and
    each target but one must receive it. Where nothing is reduced it takes one message for each target that does not
    hold it. Contributions that stay take none, and what is left is combined with one of them.

    >>> from shardwise import DeviceMesh, Layout
    >>> mesh = DeviceMesh((2, 3), ("x", "y"))
    >>> whole = Holders(Layout(mesh, [None]), (6,))
    >>> count_messages(whole, whole, Option((mesh.axis("x"),), (), ()))
    (Messages(first=1, second=5), Messages(first=2, second=5))
    """
    old, new, mesh = src.layout.sharded_axes, dst.layout.sharded_axes, src.layout.mesh
    before, after = (*old, *option.pending, *option.batch), (*new, *option.fresh, *option.batch)
    if not (src.is_on_common_mesh and dst.is_on_common_mesh) or has_crossing(before, after):
        return None
    replicated = mesh.rest(after)
    contributions, targets = _product(option.pending), _product(replicated)
    holders = _product(common(mesh.rest(before), replicated))  # of those that need an element, if one holds it
    times = _product(option.batch)
    if contributions == 1:
        return Messages(targets - holders).times(times), Messages(targets).times(times)
    near, far = Messages(contributions - 1, targets - 1), Messages(contributions, targets - 1)
    if option.keeps and holders == targets:
        left = contributions - _product(common(option.pending, option.fresh))
        near = Messages(left, targets - 1) if left else Messages(0)
    return near.times(times), far.times(times)


def _product(axes: Sequence[Axis]) -> int:
    return prod([axis.size for axis in axes])


def count_moved(src: Holders, dst: Holders, option: Option) -> Messages | None:
    """Return how many elements travel in either round, in all, without looking at devices; None where axes cross."""
    counts = count_messages(src, dst, option)
    if counts is None or src.layout.has_halo or dst.layout.has_halo:
        return None
    near, far = counts
    if near == far:
        return near.times(prod(src.shape))
    agreeing = count_agreeing(src, dst)
    a, b = near.times(agreeing), far.times(prod(src.shape) - agreeing)
    return Messages(a.first + b.first, a.second + b.second)


def least(src: Holders, dst: Holders, option: Option) -> int:
    """Return the least number of elements that must travel in all."""
    moved = count_moved(src, dst, option)
    return _add_cells(src, dst, option) if moved is None else moved.total


def _add_cells(src: Holders, dst: Holders, option: Option) -> int:
    total = 0
    takers = {tile: _by_position(dst, tile, option) for tile in dst.tiling.tiles()}
    for tile in src.tiling.tiles():
        givers = set(src.slots(tile, option.batch))
        for target, box in dst.tiling.cells(src.tiling.tile_box(tile)):
            total += box_size(box) * _count_of_cell(src, tile, givers, takers[target], option)
    return total * _product(option.batch)


def _by_position(dst: Holders, tile: tuple[int, ...], option: Option) -> list[list[int]]:
    positions: dict[int, list[int]] = {}
    for slot in dst.slots(tile, option.batch):
        positions.setdefault(dst.position(slot, option.fresh), []).append(slot)
    return list(positions.values())


def _count_of_cell(
    src: Holders, tile: tuple[int, ...], givers: set[int], takers: list[list[int]], option: Option
) -> int:
    contributions = _product(option.pending)
    if contributions == 1:
        return min(sum(slot not in givers for slot in slots) for slots in takers)
    targets = len(takers[0])
    held = [[src.position(slot, option.pending) for slot in slots if slot in givers] for slots in takers]
    terms = walk(src.layout.mesh, option.pending)
    places = place_terms(held, targets, terms) if option.keeps else [None] * len(takers)
    missing = sum(targets - some.count(term) for some, term in zip(held, places, strict=True) if term is not None)
    left = set(terms).difference(places)
    return missing + (len(left) and len(left) + targets - 1 - any(left.intersection(some) for some in held))


def place_terms(held: Sequence[Sequence[int]], targets: int, terms: Sequence[int]) -> list[int | None]:
    """Return for each position of the new contributions the one old contribution that it gets, or None.

    `held` has, per position, what its `targets` devices have. All who are at home keep what they have. The others are
    combined at one position, unless it takes fewer messages to bring each to a position of its own.

    >>> place_terms([[0, 0], [1, 2], [2]], 2, [0, 1, 2])  # the first is at home
    [0, None, None]
    >>> place_terms([[0, 0], [1, 1], []], 3, [0, 1])  # two messages, where to combine both takes three
    [0, 1, None]
    """
    out: list[int | None] = []
    for some in held:
        is_home = len(some) == targets and len(set(some)) == 1 and some[0] not in out  # each counts once
        out.append(some[0] if is_home else None)
    left = set(terms).difference(out)
    combined = len(left) + targets - 1 - any(left.intersection(some) for some in held)
    most = sum(max(some.count(term) for some in held) for term in terms)
    if not left or len(terms) > len(held) or len(terms) * targets - most >= combined:
        return out
    chosen = match([[some.count(term) for some in held] for term in terms])
    pairs = zip(terms, chosen, strict=True)
    if sum(targets - held[position].count(term) for term, position in pairs) >= combined:
        return out
    by_position = dict(zip(chosen, terms, strict=True))
    return [by_position.get(position) for position in range(len(held))]
