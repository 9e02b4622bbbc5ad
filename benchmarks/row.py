"""Rows: one thing measured, ours beside the peers and a floor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any, Literal, get_args

State = Literal["warm", "cold", "count"]
Unit = Literal["seconds", "bytes", "times the bound", "transitions"]
STATES, UNITS = get_args(State), get_args(Unit)
EQUAL = "equal"


@dataclass(frozen=True, slots=True)
class Measure:
    """The median of some values, with their quartiles and how many they are.

    >>> Measure.of([3.0, 1.0, 2.0])
    Measure(median=2.0, low=1.0, high=3.0, count=3)
    >>> Measure.of([5.0]).spread
    0.0
    """

    median: float
    low: float
    high: float
    count: int

    def __post_init__(self) -> None:
        values = (self.low, self.median, self.high)
        if not all(isfinite(v) and v >= 0 for v in values) or list(values) != sorted(values) or self.count < 1:
            raise ValueError(f"a Measure needs 0 <= low <= median <= high of at least one value, got {self}.")

    @classmethod
    def of(cls, values: Sequence[float]) -> Measure:
        """Return the measure of values in any order."""
        if len(values) < 2:
            (value,) = values
            return cls(value, value, value, 1)
        low, middle, high = (_quantile(sorted(values), quarters) for quarters in (1, 2, 3))
        return cls(middle, low, high, len(values))

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles."""
        return (self.high - self.low) / 2


def _quantile(ordered: Sequence[float], quarters: int) -> float:
    # Between two neighbours, of which it never leaves the interval by a rounding: equal values have no spread.
    count = len(ordered)
    steps = (count - 1) * quarters if count > 3 else (count + 1) * quarters - 4  # in quarters of a place
    at, part = divmod(min(max(steps, 0), 4 * (count - 1)), 4)
    if not part:
        return ordered[at]
    first, second = ordered[at : at + 2]
    return min(first + (second - first) * (part / 4), second)


@dataclass(frozen=True, slots=True)
class Floor:
    """What cannot be beaten, or what plain calls of a library take: its name and its measure."""

    name: str
    measure: Measure


@dataclass(frozen=True, slots=True)
class Row:
    """One thing measured: less is better, whatever the unit.

    >>> one, two = Measure.of([1.0]), Measure.of([2.0])
    >>> row = Row("local", "S0 -> S1", "4 MiB", "8", "warm", "seconds", two, {"A": one}, Floor("by hand", one))
    >>> row.ratio, row.versus("A"), row.verdict
    (2.0, 0.5, 'lost')
    """

    area: str
    name: str
    size: str
    mesh: str
    state: State
    unit: Unit
    ours: Measure
    peers: Mapping[str, Measure] = field(default_factory=dict)
    floor: Floor | None = None
    checked: str = EQUAL  # that all contenders gave the same result, or how they did not
    missing: Mapping[str, str] = field(default_factory=dict)  # why a peer has no measure
    note: str = ""
    at: Mapping[str, float] = field(default_factory=dict)  # where the row lies on axes of plots: devices, axes, bytes

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise ValueError(f"a Row is one of {', '.join(STATES)}, got {self.state!r}.")
        if self.unit not in UNITS:
            raise ValueError(f"a Row is in one of {', '.join(UNITS)}, got {self.unit!r}.")
        if self.checked != EQUAL and not self.checked.startswith("failed: "):
            raise ValueError(f"a Row is checked {EQUAL!r} or 'failed: ...', got {self.checked!r}.")
        both = set(self.peers) & set(self.missing)
        if both:
            raise ValueError(f"peers are measured or missing, not both: {', '.join(sorted(both))}.")

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """What tells this row from all others."""
        return self.area, self.name, self.size, self.mesh, self.state

    @property
    def failed(self) -> bool:
        """Whether a contender gave another result."""
        return self.checked != EQUAL

    @property
    def ratio(self) -> float | None:
        """Ours over the floor."""
        if self.floor is None or not self.floor.measure.median:
            return None
        return self.ours.median / self.floor.measure.median

    def versus(self, peer: str) -> float | None:
        """A peer over ours: how many times ours is better."""
        found = self.peers.get(peer)
        return None if found is None or not self.ours.median else found.median / self.ours.median

    @property
    def best_peer(self) -> str | None:
        """The peer with the least median."""
        return min(self.peers, key=lambda name: self.peers[name].median, default=None)

    @property
    def verdict(self) -> str:
        """Ours against the best peer: won, lost, or even where the quartiles overlap; "" without peers."""
        if self.failed:
            return "failed"
        if self.best_peer is None:
            return ""
        best = self.peers[self.best_peer]
        if self.ours.high < best.low:
            return "won"
        return "lost" if self.ours.low > best.high else "even"

    def to_json(self) -> dict[str, Any]:
        """Return the row as JSON, with what follows from it."""
        return asdict(self) | {"ratio": self.ratio, "verdict": self.verdict}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Row:
        """Return the row that was written."""
        fields = {name: value for name, value in given.items() if name not in ("ratio", "verdict")}
        fields["ours"] = Measure(**given["ours"])
        fields["peers"] = {name: Measure(**measure) for name, measure in given["peers"].items()}
        floor = given["floor"]
        fields["floor"] = None if floor is None else Floor(floor["name"], Measure(**floor["measure"]))
        return cls(**fields)


def counted(value: float) -> Measure:
    """Return the measure of what is counted and has no spread."""
    return Measure(value, value, value, 1)
