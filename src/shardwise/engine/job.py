"""Jobs: a kernel on the arrays that each device holds, without any communication."""

from __future__ import annotations

from dataclasses import dataclass

from shardwise.caches import cached_property
from shardwise.engine.storage import Storage
from shardwise.layout.tiling import Box

RESULT = -1


@dataclass(frozen=True, eq=False)
class Job:
    """Which arrays of the operands a kernel makes each array of the result from: once for devices with equal ones.

    >>> from shardwise import DeviceMesh, P
    >>> from shardwise.engine.storage import storage_of
    >>> mesh = DeviceMesh((2, 2), ("x", "y"))
    >>> a, b = (storage_of(P(axis).to_layout(1, mesh), (4,)) for axis in "xy")
    >>> Job(storage_of(P("x", "y").to_layout(2, mesh), (4, 4)), (a, b)).distinct_sources
    ((0, 0), (0, 1), (1, 0), (1, 1))
    """

    out: Storage
    operands: tuple[Storage, ...]
    located: tuple[int, ...] = ()  # the operands, or RESULT, whose boxes the kernel takes first
    takes_lead: bool = False  # whether the kernel takes arrays with a leading dim for devices, as one of elements does

    @cached_property
    def is_aligned(self) -> bool:
        """Whether one call does for all devices: elements meet those at the same place of arrays that lie alike."""
        return self.takes_lead and not self.located and all(store is self.out for store in self.operands)

    @cached_property
    def distinct_sources(self) -> tuple[tuple[int, ...], ...]:
        """The arrays that the kernel takes in each of its calls, one of every operand."""
        return tuple(dict.fromkeys(map(self.sources, self.out.firsts)))

    @cached_property
    def boxes(self) -> tuple[tuple[Box, ...], ...]:
        """The boxes that the kernel takes in each of its calls."""
        return tuple(map(self.boxes_of, self.distinct_sources))

    def boxes_of(self, sources: tuple[int, ...]) -> tuple[Box, ...]:
        """Return the boxes that the kernel takes with these arrays."""
        stores = (*self.operands, self.out)
        return tuple([stores[i].box(sources[i]) for i in self.located])

    @cached_property
    def picks(self) -> tuple[int, ...] | None:
        """Which call of the kernel makes each array of the result, or None if call i makes array i."""
        if len(self.distinct_sources) == self.out.count:
            return None
        numbers = {sources: i for i, sources in enumerate(self.distinct_sources)}
        return tuple(numbers[self.sources(device)] for device in self.out.firsts)

    def sources(self, device: int) -> tuple[int, ...]:
        """Return which array of each operand a device holds and, if the kernel takes its box, which of the result."""
        stores = (*self.operands, self.out) if RESULT in self.located else self.operands
        return tuple([store.index(device) for store in stores])
