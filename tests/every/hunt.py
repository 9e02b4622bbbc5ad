"""Hunts for calls that are not the same every way, as long as one likes:

    python -m tests.every.hunt SEED SECONDS [PROCESSES]

Each cause is printed once, with the smallest program that shows it.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from time import monotonic
from typing import Any

from tests.every.cases import Case, check_case, shrink
from tests.every.rows import NAMES
from tests.every.snippets import write_snippet
from tests.every.views import Finding


@dataclass(frozen=True)
class Catch:
    """A smallest case that goes wrong, what is wrong with it, and the program that shows it."""

    case: Case
    finding: Finding
    program: str


def hunt(seed: int, seconds: float, names: Sequence[str] = (), pool: Any = None, say: Any = print) -> Iterator[Catch]:
    """Check cases for some seconds, and yield each cause once."""
    names = names or NAMES
    rng, causes, tried = Random(seed), set[tuple[str, ...]](), 0
    start = shown = monotonic()
    while monotonic() < start + seconds:
        name = rng.choice(names)
        size = None if pool is None else pool.size
        case = Case(
            name, rng.randrange(1 << 32), most=rng.choice([4, 8, 24]) if size is None else 2 * size, processes=size
        )
        finding, tried = find(case, pool), tried + 1
        if finding is not None and cause(case, finding) not in causes:
            causes.add(cause(case, finding))
            catch = catch_of(case, finding, pool)
            if (known := cause(catch.case, catch.finding)) not in causes or known == cause(case, finding):
                yield catch
            causes.add(known)
        if monotonic() > shown + 10:
            shown = monotonic()
            say(f"# {shown - start:.0f} s: {tried} calls, {len(causes)} causes", file=sys.stderr, flush=True)
    say(f"# seed {seed}: {tried} calls of {len(names)} functions, {len(causes)} causes", file=sys.stderr, flush=True)


def find(case: Case, pool: Any = None) -> Finding | None:
    """What is wrong with a case, if anything."""
    try:
        check_case(case, pool)
    except Finding as finding:
        return finding
    except AssertionError as error:  # of the pool: processes that stopped
        return Finding("processes", "stopped", str(error))
    return None


def assert_alike(case: Case, pool: Any = None) -> None:
    """Fail with the smallest program where a case is not the same every way."""
    finding = find(case, pool)
    if finding is not None:
        catch = catch_of(case, finding, pool)
        raise AssertionError(f"{case!r}: {finding}\n\n{catch.program}")


def cause(case: Case, finding: Finding) -> tuple[str, ...]:
    """What tells one cause from another: where an error was raised or what it says, or which function is wrong."""
    if finding.kind.startswith("raw"):
        return finding.kind, (re.findall(r"\((\S+\.py:\d+ .*)\)$", finding.what) or [finding.what])[0]
    if finding.kind.startswith("refus"):
        return finding.kind, " ".join(re.findall(r"[a-z_]{3,}", re.sub(r"^\w+: ", "", finding.what))[:6])
    return case.name, finding.view, finding.kind


def catch_of(case: Case, finding: Finding, pool: Any = None) -> Catch:
    """The smallest case with the same fault."""
    kind = finding.view, finding.kind
    between = pool if finding.view == "processes" else None

    def fails(smaller: Case) -> bool:
        other = find(smaller, between)
        return other is not None and (other.view, other.kind) == kind

    smallest = shrink(case, fails)
    last = find(smallest, between) or finding
    return Catch(smallest, last, write_snippet(smallest, last))


def main(seed: int, seconds: float, processes: int = 0) -> int:
    """Print what a hunt finds, and return how many causes there were."""
    from tests.engines.pool import Pool

    pool, count = Pool(processes) if processes else None, 0
    try:
        for catch in hunt(seed, seconds, pool=pool):
            count += 1
            where = f" between {processes} processes" if catch.finding.view == "processes" else ""
            print(f"\n# ---- {count}. {catch.case.name}{where}: {catch.case!r}\n{catch.program}", flush=True)
    finally:
        if pool is not None:
            pool.close()
    return count


if __name__ == "__main__":
    sys.exit(min(1, main(int(sys.argv[1]), float(sys.argv[2]), *map(int, sys.argv[3:]))))
