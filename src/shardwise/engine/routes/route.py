"""Routes: what one process does in a program: whom it sends which parts of its arrays, and what it makes of others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from shardwise.caches import cached_property
from shardwise.engine.call import Call
from shardwise.engine.storage import Region
from shardwise.layout.device import Device
from shardwise.layout.layout import Shape
from shardwise.layout.placement import ReduceOp
from shardwise.plan.record import StepNote


class Part(NamedTuple):
    """A part of the array of a slot; an empty region is all of it."""

    slot: int
    where: Region
    shape: Shape


class Message(NamedTuple):
    """What goes to or comes from one process in a round."""

    rank: int
    parts: tuple[Part, ...]
    size: int  # in elements


class Sum(NamedTuple):
    """A part of an array that is the reduction of terms: parts of arrays here, or offsets in what came."""

    part: Part
    terms: tuple[Part | int, ...]


class Out(NamedTuple):
    """An array to make: for which slot and device, its shape, and whether copies do not fill it entirely."""

    slot: int
    device: Device
    shape: Shape
    blank: bool


@dataclass(frozen=True)
class MessageRound:
    """One round of messages within a group of processes, or a chunk of one."""

    call: Call
    sends: tuple[Message, ...]  # by rank, as are the receives
    receives: tuple[Message, ...]
    sums: tuple[Sum, ...] = ()
    spreads: bool = False  # whether what is sent are parts of the arrays that are being made
    local_copies: tuple[tuple[Part, Part], ...] = ()  # into, from: what devices of this process then give each other
    talks: bool = True  # whether anything goes between processes of the group
    straight: bool = False
    gathers: bool = False  # whether every process sends all others the same, and all as much
    on_accelerators: bool = False

    @cached_property
    def received(self) -> int:
        """How many elements come."""
        return sum(message.size for message in self.receives)

    @cached_property
    def sent(self) -> int:
        """How many elements go."""
        return sum(message.size for message in self.sends)


@dataclass(frozen=True)
class Leg:
    """One or a few steps of a plan, between two layouts, as this process does them."""

    notes: tuple[StepNote, ...]
    outs: tuple[Out, ...]
    views: tuple[tuple[int, Part], ...]  # slots whose new array is a part of one that is here
    copies: tuple[tuple[Part, Part], ...]  # into, from
    near: tuple[tuple[str, int], ...]  # by kind, elements (of the plan's dtype) that devices here get from each other
    rounds: tuple[MessageRound, ...]
    op: ReduceOp | None
    filling: ReduceOp | None
    dtype: np.dtype | None = None  # of the arrays that are made, if that is not the program's


@dataclass(frozen=True)
class Route:
    """The program of one process: where its arrays come from, the legs, and where they go."""

    starts: tuple[tuple[int, int], ...]  # slot, and number of the array in the storage of the source
    legs: tuple[Leg, ...]
    ends: tuple[tuple[int, int], ...]  # number of the array in the storage of the target, and slot
