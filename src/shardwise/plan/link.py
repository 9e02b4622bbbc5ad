"""Links: how fast the neighbours along one mesh axis talk."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

from shardwise.errors import ArgumentError, PlanError, seal


@seal
@dataclass(frozen=True, slots=True, repr=False)
class Link:
    """How fast neighbours along one mesh axis talk: seconds per message round, bytes per second.

    A device that talks to several others in one round posts its messages one after the other: each after the first
    takes `overhead` seconds more, which is nothing unless it is given.

    >>> Link(2e-6, 400e9)
    Link(latency=2e-06, bandwidth=400000000000.0)
    >>> Link(1e-3, 1e9, overhead=2e-4).overhead
    0.0002
    """

    latency: float = 1e-5
    bandwidth: float = 25e9
    overhead: float = 0.0

    def __post_init__(self) -> None:
        for value in (self.latency, self.bandwidth):
            if isinstance(value, bool) or not isinstance(value, Real):
                raise ArgumentError(f"a Link is made of two numbers, seconds and bytes per second, got {value!r}.")
        if isinstance(self.overhead, bool) or not isinstance(self.overhead, Real):
            raise ArgumentError(f"the overhead of a Link is a number of seconds per message, got {self.overhead!r}.")
        if not self.latency >= 0 or not self.bandwidth > 0:  # not a number fails too
            raise PlanError(
                f"a Link needs a latency of 0 or more and a bandwidth above 0, got {self.latency} and {self.bandwidth}."
            )
        if not self.overhead >= 0:
            raise PlanError(f"a Link needs an overhead of 0 or more, got {self.overhead}.")

    def __repr__(self) -> str:
        overhead = f", overhead={self.overhead!r}" if self.overhead else ""
        return f"Link(latency={self.latency!r}, bandwidth={self.bandwidth!r}{overhead})"
