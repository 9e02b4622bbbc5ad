"""Records: steps of plans as they were run."""

from dataclasses import dataclass
from typing import NamedTuple

from shardwise.errors import seal


class StepNote(NamedTuple):
    """What is known of a step before it is run."""

    kind: str
    axes: tuple[str, ...]
    before: str
    after: str
    busiest: int = 0  # bytes that the busiest device receives, as the planner estimates them


@seal
@dataclass(frozen=True, slots=True)
class Record:
    """One step that was run.

    >>> Record("permute", ("x",), "[x]", "[x]", 64, 128, 0.5, "train.py:3").bytes
    128
    """

    kind: str
    axes: tuple[str, ...]
    before: str
    after: str
    busiest: int  # bytes that the busiest device receives, as the planner estimates them
    bytes: int  # between devices
    seconds: float
    line: str  # file and line of the user's call
    start: float = 0.0  # seconds on the clock of `time.perf_counter`
    rank: int = 0  # of the process that ran it
