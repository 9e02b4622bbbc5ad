"""Runs of partitioned modules that count the bytes which devices send."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import Any
from unittest.mock import patch

from shardwise.ir.interpret import run
from shardwise.ir.interpret.request import Collective, Request, Sending
from shardwise.ir.interpret.scheduler import Scheduler

# The part of its own tensor that each of n devices sends, in the way that needs the fewest bytes.
PARTS: dict[str, Callable[[int], Fraction]] = {
    "shard.all_gather": lambda n: Fraction(n - 1),
    "shard.all_to_all": lambda n: Fraction(n - 1, n),
    "shard.reduce_scatter": lambda n: Fraction(n - 1, n),
    "shard.all_reduce": lambda n: Fraction(2 * (n - 1), n),
}


class Traffic:
    """The bytes sent by all devices."""

    def __init__(self) -> None:
        self.bytes = Fraction(0)

    def follow(self, device: Generator[Request, Any, list[Any]]) -> Generator[Request, Any, list[Any]]:
        """Pass on what a device asks for, and what it is answered."""
        answer = None
        while True:
            try:
                request = device.send(answer)
            except StopIteration as stop:
                return stop.value
            if isinstance(request, Sending):
                self.bytes += request.value.nbytes
            elif isinstance(request, Collective):
                self.bytes += PARTS[request.op.name](len(request.group)) * request.value.nbytes
            answer = yield request


@contextmanager
def counted() -> Iterator[Traffic]:
    """Count the bytes of the runs inside the block."""
    traffic = Traffic()

    class Counting(Scheduler):
        def __init__(self, runs: Sequence[Generator[Request, Any, list[Any]]]) -> None:
            super().__init__([traffic.follow(device) for device in runs])

    with patch.object(run, "Scheduler", Counting):
        yield traffic
