"""Faults: what may happen to one process of a round, when, and what all others must be told of it.

What they must be told follows from what happens, and from nothing that shardwise does.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from tests.soak.program import ODD

TIMEOUT, HEARTBEAT = 4.0, 0.3  # seconds, in rounds with faults
PATIENT = 30.0  # seconds of the timeout where what happens must be known long before its end
START = 8.0  # seconds until all must have come
SOON = 8.0  # seconds from what happens to the error of the last who is told, on a busy machine
SHORT = 0.4 * TIMEOUT  # seconds for which nobody may be missed
LONG = TIMEOUT + 3.0  # seconds for which one is missed
ITERATIONS = 16  # of a round; what happens does so in the first of them
BETWEEN, CALL, INSIDE, THREAD, MEETING, GATHERING, BEFORE_START, IN_START, JOINING = MOMENTS = (
    "between iterations",
    "before a call",
    "while data moves",
    "at any moment, by a thread",
    "at the end of an iteration",
    "before it gathers much",
    "before the start",
    "in the start",
    "while torch connects",
)
STARTS = (BEFORE_START, IN_START, JOINING)
ANYWHERE = (BETWEEN, CALL, INSIDE, THREAD)


@dataclass(frozen=True)
class Kind:
    """One kind of fault: when it may happen, and what the others must be told; without an error, that is nothing."""

    moments: tuple[str, ...]
    error: str = ""
    says: str = ""  # what the text of the error has in it
    is_late: bool = False  # whether it can only be known when the timeout is over
    codes: tuple[int, ...] = (0,)  # with which the process itself may end
    reports: bool = True  # whether it lives on, and is told as the others are
    variants: tuple[str, ...] = ("",)


KINDS = {
    "killed": Kind((*ANYWHERE, *STARTS), "RankLost", "without a goodbye", codes=(-9,), reports=False),
    "stopped": Kind((*ANYWHERE, *STARTS), "CollectiveTimeout", "it is stopped by a signal", is_late=True),
    "paused": Kind((*ANYWHERE, *STARTS)),
    "raises": Kind((BETWEEN, CALL, BEFORE_START), "RankLost", "ValueError: bad luck", codes=(1,), reports=False),
    "interrupted": Kind((THREAD,), "RankLost", "KeyboardInterrupt", codes=(1, -2, 130), reports=False),
    "skips": Kind((CALL,), "CollectiveMismatch", "different: [^\n]*iteration"),
    "exits": Kind((BETWEEN, CALL, BEFORE_START), "RankLost", r"sys\.exit\(3\) at ", codes=(3,), reports=False),
    "leaves": Kind((BETWEEN,), "RankLost", "it came to the end of its program", reports=False),
    "differs": Kind((MEETING,), "CollectiveMismatch", "came to different calls; no data was moved", variants=ODD),
    "no memory": Kind((GATHERING,), "RankLost", "MemoryError"),
    "late": Kind((BETWEEN, CALL, INSIDE, BEFORE_START)),
    "holds": Kind((BETWEEN, CALL, INSIDE)),
    "holds long": Kind(
        (BETWEEN, CALL), "CollectiveTimeout", "one long call holds its interpreter, or it gets no time", is_late=True
    ),
    "nonsense": Kind(
        (BETWEEN, CALL), "RankLost", "it sent what cannot be read", variants=("text", "json", "header", "calls")
    ),
    "forks": Kind((BETWEEN, CALL)),
    "no reader": Kind((BETWEEN, CALL), "RankLost", "BrokenPipeError", codes=(1, 120), reports=False),
}
IN_PAIRS = ("killed", "stopped", "raises", "exits", "leaves", "holds long", "no reader", "skips")
NAMED = re.compile(r"\branks? (\d+(?:, \d+)*)")


@dataclass(frozen=True)
class Fault:
    """What happens to whom, and when."""

    kind: str
    rank: int
    moment: str
    iteration: int = 0
    operation: int = 0
    seconds: float = 0.0  # of a delay
    variant: str = ""

    def __str__(self) -> str:
        what = f"{self.kind} ({self.variant})" if self.variant else self.kind
        when = "" if self.moment in STARTS else f", iteration {self.iteration}"
        return f"rank {self.rank} {what} {self.moment}{when}"

    @property
    def timeout(self) -> float:
        """The timeout with which it is to happen: short only where it is waited for, or must be kept."""
        row = KINDS[self.kind]
        return TIMEOUT if row.is_late or not row.error else PATIENT

    @property
    def limit(self) -> float:
        """Seconds from the fault to the last error that names it."""
        if self.moment in STARTS:
            return START + SOON + TIMEOUT * KINDS[self.kind].is_late
        return SOON + TIMEOUT * KINDS[self.kind].is_late


def draw_fault(rng: Random, kind: str, size: int, but: Sequence[int] = ()) -> Fault:
    """One fault of a kind, in any process but some."""
    row = KINDS[kind]
    moment = rng.choice(row.moments if not but else [name for name in row.moments if name not in STARTS])
    return Fault(
        kind,
        rng.choice([rank for rank in range(size) if rank not in but]),
        moment,
        iteration=rng.randint(1, ITERATIONS // 4),
        operation=rng.randint(0, 2) if moment == CALL else 0,
        seconds=rng.uniform(0.0, 0.15),
        variant=rng.choice(row.variants),
    )


def draw_faults(rng: Random, kind: str, size: int) -> list[Fault]:
    """The faults of a round: one, or two of two processes at nearly the same time."""
    if kind != "two":
        return [draw_fault(rng, kind, size)]
    one = draw_fault(rng, rng.choice(IN_PAIRS), size, but=(size,))
    two = draw_fault(rng, rng.choice(IN_PAIRS), size, but=(one.rank,))
    return [one, replace(two, iteration=one.iteration + rng.randint(0, 1))]


def names_of(text: str, own: int) -> set[int]:
    """The ranks that the first line of an error is about, beside the one that raised it."""
    found = [int(number) for some in NAMED.findall(text.partition("\n")[0]) for number in some.split(", ")]
    return set(found) - {own}
