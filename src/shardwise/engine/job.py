"""Jobs: the work of each device on the arrays that it holds, without any communication."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from shardwise.engine.storage import Storage
from shardwise.layout.tiling import Box

RESULT = -1


@dataclass(frozen=True)
class Job:
    """How the arrays of a result are made of those of the operands: devices that hold equal ones work once.

    >>> from shardwise import DeviceMesh, P
    >>> from shardwise.engine.storage import storage_of
    >>> mesh = DeviceMesh((2, 2), ("x", "y"))
    >>> a, b = (storage_of(P(axis).to_layout(1, mesh), (4,)) for axis in "xy")
    >>> Job(storage_of(P("x", "y").to_layout(2, mesh), (4, 4)), (a, b)).works
    ((0, 0), (0, 1), (1, 0), (1, 1))
    """

    out: Storage
    operands: tuple[Storage, ...]
    located: tuple[int, ...] = ()  # the operands, or RESULT, whose boxes the kernel is told
    by_element: bool = False  # whether the kernel is one of elements, so that it takes arrays of any shape

    @cached_property
    def is_aligned(self) -> bool:
        """Whether elements meet those at the same place of arrays that lie alike, so that one call may do for all."""
        return self.by_element and not self.located and all(store is self.out for store in self.operands)

    @cached_property
    def works(self) -> tuple[tuple[int, ...], ...]:
        """Every distinct piece of work: the arrays of the operands that it takes."""
        return tuple(dict.fromkeys(map(self.sources, self.out.firsts)))

    @cached_property
    def boxes(self) -> tuple[tuple[Box, ...], ...]:
        """The boxes that each piece of work is told."""
        return tuple(map(self.boxes_of, self.works))

    def boxes_of(self, sources: tuple[int, ...]) -> tuple[Box, ...]:
        """Return the boxes that a piece of work is told."""
        stores = (*self.operands, self.out)
        return tuple([stores[i].box(sources[i]) for i in self.located])

    @cached_property
    def order(self) -> tuple[int, ...] | None:
        """Which piece of work makes each array of the result, or None if they are one for one."""
        if len(self.works) == self.out.count:
            return None
        which = {sources: i for i, sources in enumerate(self.works)}
        return tuple(which[self.sources(device)] for device in self.out.firsts)

    def sources(self, device: int) -> tuple[int, ...]:
        """Return which arrays of the operands a device works on and, if that is told, which of the result it makes."""
        taken = (*self.operands, self.out) if RESULT in self.located else self.operands
        return tuple([store.index(device) for store in taken])
