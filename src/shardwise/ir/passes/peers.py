"""Peers: what a device of a group computes from its own place: numbers, and with whom it exchanges a piece.

Numbers are given for some places, and are anything at the others. A sum of multiples of coordinates is computed; so
is a coordinate a few places further on around its axis. All else is looked up in a table.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np
from xdsl.ir import SSAValue

from shardwise.caches import cached_property
from shardwise.ir.passes.writer import Number, Writer
from shardwise.layout.layout import Shape
from shardwise.layout.mesh import DeviceMesh

Numbers = np.ndarray  # of int64


@dataclass(frozen=True, eq=False)
class PlaceGroup:
    """The group of the device that the writer writes for: the grid, and the axes along which its devices differ."""

    w: Writer
    mesh: DeviceMesh
    axes: list[int]

    @cached_property
    def shape(self) -> Shape:
        """The sizes of the axes."""
        return tuple(self.mesh.mesh_shape[a] for a in self.axes)

    @cached_property
    def size(self) -> int:
        """How many devices there are in a group."""
        return prod(self.shape)

    @cached_property
    def coordinates(self) -> Numbers:
        """The coordinates of every place, one column per axis."""
        return np.stack(np.unravel_index(np.arange(self.size), self.shape), axis=1).astype(np.int64)

    @property
    def own(self) -> list[Number]:
        """The coordinates of this device."""
        return [self.w.coordinate(self.mesh, axis) for axis in self.axes]

    def sum(self, factors: Numbers, coordinates: list[Number]) -> Number:
        """Return a constant and the sum of multiples of coordinates."""
        total: Number = int(factors[0])
        for n, factor in zip(coordinates, factors[1:].tolist(), strict=True):
            total = self.w.plus(total, self.w.times(n, factor))
        return total

    def fit(self, places: Numbers, values: Numbers) -> Number | None:
        """Return the number of this device if a sum of multiples of its coordinates says it at these places."""
        factors = fit_sum(self.coordinates[places], values)
        return None if factors is None else self.sum(factors, self.own)

    def look_up(self, places: Numbers, values: Numbers) -> Number:
        """Return the number of this device from a table."""
        table = np.zeros(self.size, dtype=np.int64)
        table[places] = values
        return self.w.entry(table.tolist(), self.w.position(self.mesh, self.axes))

    def peers(self, places: Numbers, others: Numbers) -> Peers:
        """Return the peer of this device, where those at `places` have those at `others`."""
        rules = self._rules(places, others)
        numbers = [
            self._coordinate(rule, size) if rule is not None else self.look_up(places, self.coordinates[others][:, k])
            for k, (rule, size) in enumerate(zip(rules, self.shape, strict=True))
        ]
        known = [
            rule is None or _is_in_range(rule.at(self.coordinates), size)
            for rule, size in zip(rules, self.shape, strict=True)
        ]
        return Peers(self, numbers, all(known))

    def has_peer(self, places: Numbers, others: Numbers) -> SSAValue:
        """Return whether this device is one of those at `places`, which have those at `others` as peers."""
        every, filled = np.arange(self.size), np.arange(self.size)
        filled[places] = others
        rules = self._rules(every, filled)
        if None in rules or (places == others).any():
            flags = np.full(self.size, -1, dtype=np.int64)
            flags[places] = 0
            flag = self.fit(every, flags)
            return self.w.not_negative(self.w.value(self.look_up(every, flags) if flag is None else flag))
        # Those who have none are their own.
        out = None
        for own, rule, size in zip(self.own, rules, self.shape, strict=True):
            other = own if rule is None else self._coordinate(rule, size)
            if other is not own:
                out = self.w.either(out, self.w.unequal(self.w.value(own), self.w.value(other)))
        assert out is not None, "some have a peer"
        return out

    def _rules(self, places: Numbers, others: Numbers) -> list[Rule | None]:
        own, wanted = self.coordinates[places], self.coordinates[others]
        return [_rule(own, wanted[:, k], size) for k, size in enumerate(self.shape)]

    def _coordinate(self, rule: Rule, size: int) -> Number:
        total = self.sum(rule.factors, self.own)
        return self.w.remainder(total, size) if rule.turns else total


class Rule(NamedTuple):
    """A coordinate as a sum of multiples of coordinates, or what is left of that after turns around the axis."""

    factors: Numbers  # the constant and one per coordinate
    turns: int  # the size of the axis, or 0

    def at(self, coordinates: Numbers) -> Numbers:
        """Return the coordinate for places with these coordinates, one in each row."""
        total = self.factors[0] + coordinates @ self.factors[1:]
        return total % self.turns if self.turns else total


def _rule(own: Numbers, wanted: Numbers, size: int) -> Rule | None:
    factors = fit_sum(own, wanted)
    if factors is not None:
        return Rule(factors, 0)
    for k in range(own.shape[1]):
        offsets = np.unique((wanted - own[:, k]) % size)
        if len(offsets) == 1:
            factors = np.zeros(own.shape[1] + 1, dtype=np.int64)
            factors[0], factors[k + 1] = offsets[0], 1
            return Rule(factors, size)
    return None


def fit_sum(coordinates: Numbers, values: Numbers) -> Numbers | None:
    """Return the constant and the factor of each coordinate of which values are the sum, if they are one.

    >>> fit_sum(np.array([[0, 0], [0, 1], [1, 0]]), np.array([0, 2, 1]))
    array([0, 1, 2])
    >>> fit_sum(np.array([[0, 0], [0, 1], [1, 0], [1, 1]]), np.array([0, 0, 0, 1])) is None
    True
    """
    if not len(values) or (values == values[0]).all():
        out = np.zeros(coordinates.shape[1] + 1, dtype=np.int64)
        out[0] = values[0] if len(values) else 0
        return out
    rows = np.concatenate([np.ones((len(values), 1), dtype=np.int64), coordinates], axis=1)
    for some in (slice(None, None, -(-len(values) // 64)), slice(None)):  # most are refused by few of them
        factors = np.rint(np.linalg.lstsq(rows[some], values[some], rcond=None)[0]).astype(np.int64)
        if (rows @ factors == values).all():
            return factors
        if some != slice(None) and not (rows[some] @ factors == values[some]).all():
            return None
    return None


def _is_in_range(values: Numbers, size: int) -> bool:
    return bool(((values >= 0) & (values < size)).all())


@dataclass(frozen=True, eq=False)
class Peers:
    """The device with which this one exchanges a piece: its coordinates in the group."""

    group: PlaceGroup
    coordinates: list[Number]
    are_in_range: bool  # whether they are a device's, even where this one has no peer

    def number(self, places: Numbers, values: Numbers) -> Number | None:
        """Return the number of the peer, given those of peers at places, if it can be computed or looked up."""
        group = self.group
        factors = fit_sum(group.coordinates[places], values)
        if factors is not None:
            return group.sum(factors, self.coordinates)
        if not self.are_in_range:
            return None
        table = np.zeros(group.size, dtype=np.int64)
        table[places] = values
        place: Number = 0
        for n, size in zip(self.coordinates, group.shape, strict=True):
            place = group.w.plus(group.w.times(place, size), n)
        return group.w.entry(table.tolist(), place)
