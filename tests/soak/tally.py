"""The tally of a soak: rounds, calls, faults and how they were named, and the census, as a table."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from tests.soak.census import Sample, slope
from tests.soak.fault import KINDS
from tests.soak.job import Result, Round
from tests.soak.verdict import seconds_to_be_named


@dataclass
class Tally:
    """What all rounds so far came to."""

    rounds: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    operations: int = 0
    groups: set[str] = field(default_factory=set)
    told: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    seconds: dict[str, float] = field(default_factory=dict)
    census: list[tuple[Round, list[list[Sample]]]] = field(default_factory=list)
    wrong: list[tuple[Round, list[str]]] = field(default_factory=list)

    def add(self, spec: Round, result: Result, wrong: list[str]) -> None:
        """Count a round."""
        self.rounds[spec.kind] += 1
        reports = [outcome.report for outcome in result.outcomes if outcome.report is not None]
        self.calls += sum(report["calls"] for report in reports)
        self.operations += max((report["operations"] for report in reports), default=0)
        self.groups |= {group for report in reports for group in report["groups"]}
        if not spec.faults and not wrong:
            self.census.append((spec, [[Sample(*sample) for sample in report["samples"]] for report in reports]))
        culprits = [rank for rank, note in result.notes.items() if KINDS[note["kind"]].error]
        for outcome in result.outcomes:
            if outcome.report is not None and outcome.rank not in culprits:
                self.told[spec.kind][outcome.report["error"] or "nothing"] += 1
                if outcome.report["error"] and culprits:
                    seconds = seconds_to_be_named(outcome.report, result.notes, culprits)
                    self.seconds[spec.kind] = max(seconds, self.seconds.get(spec.kind, 0.0))
        if wrong:
            self.wrong.append((spec, wrong))

    def __str__(self) -> str:
        lines = [
            f"{sum(self.rounds.values())} rounds, {self.operations} operations, {self.calls} calls in processes, "
            + f"{len(self.groups)} groups",
            f"{'fault':<14}{'rounds':>7}{'seconds':>9}  what others were told",
        ]
        for kind, count in sorted(self.rounds.items()):
            told = ", ".join(f"{error} {times}" for error, times in self.told[kind].most_common())
            seconds = f"{self.seconds[kind]:.1f}" if kind in self.seconds else ""
            lines.append(f"{kind:<14}{count:>7}{seconds:>9}  {told}")
        for spec, samples in self.census:
            lines += [f"census of round {spec.seed}, {spec.size} processes, {spec.seconds:.0f} s"]
            lines += [f"{'rank':>6}{'calls':>9}{'MiB':>15}{'B/call':>9}{'files':>9}{'threads':>9}{'sockets':>9}"]
            lines += [_census_line(rank, some) for rank, some in enumerate(samples)]
        return "\n".join(lines)


def _census_line(rank: int, samples: list[Sample]) -> str:
    first, last = samples[0], samples[-1]
    memory = f"{first.memory / 2**20:.1f}-{last.memory / 2**20:.1f}"
    spans = [f"{a}-{b}" for a, b in zip(first[2:], last[2:], strict=True)]
    return f"{rank:>6}{last.calls:>9}{memory:>15}{slope(samples):>9.1f}" + "".join(f"{span:>9}" for span in spans)
