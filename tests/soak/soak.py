"""The soak: one round after the other, until the time is over."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from time import monotonic

from tests.soak.fault import KINDS, draw_faults
from tests.soak.job import Round, run_round
from tests.soak.tally import Tally
from tests.soak.verdict import find_wrong
from tests.soak.zygote import Zygote

QUIET = "undisturbed"
DISTURBED = (*KINDS, "two", "two", "two")  # every so often
SHARE = 0.35  # of the time, in which nothing is done to anybody


def make_round(kind: str, seed: int, size: int, seconds: float = 0.0) -> Round:
    """The round of a kind and a seed; `seconds` are those of an undisturbed one."""
    if kind == QUIET:
        return Round(kind, seed, size, seconds=seconds)
    return Round(kind, seed, size, tuple(draw_faults(Random(f"{kind}/{seed}"), kind, size)))


def draw_rounds(seed: int, seconds: float, sizes: Sequence[int], only: Sequence[str] = ()) -> Iterator[Round]:
    """Rounds without end: for every number of processes a long one without faults, and all kinds of faults."""
    rng, number = Random(seed), 100_000 * seed
    kinds = [kind for kind in DISTURBED if not only or kind in only]
    if not only or QUIET in only:
        for size in sizes:
            number += 1
            yield make_round(QUIET, number, size, seconds * SHARE / len(sizes))
    while kinds:
        for kind in rng.sample(kinds, len(kinds)):
            number += 1
            yield make_round(kind, number, sizes[number % len(sizes)])


def soak(
    minutes: float,
    seed: int,
    sizes: Sequence[int],
    only: Sequence[str] = (),
    say: Callable[[str], None] = lambda text: print(text, flush=True),
) -> Tally:
    """Run rounds for some minutes, and say a line about each."""
    end, tally = monotonic() + 60 * minutes, Tally()
    zygote = Zygote()
    try:
        for spec in draw_rounds(seed, 60 * minutes, sizes, only):
            if monotonic() > end:
                break
            add_round(zygote, spec, tally, say)
    finally:
        zygote.close()
    return tally


def run_again(kind: str, seed: int, size: int, seconds: float = 0.0) -> Tally:
    """Run one round."""
    tally, zygote = Tally(), Zygote()
    try:
        add_round(zygote, make_round(kind, seed, size, seconds), tally, lambda text: print(text, flush=True))
    finally:
        zygote.close()
    return tally


def add_round(zygote: Zygote, spec: Round, tally: Tally, say: Callable[[str], None]) -> None:
    """Run a round, say how it went, and add it to the tally."""
    folder = Path(mkdtemp(prefix="shardwise-soak-"))
    result = run_round(zygote, spec, folder)
    wrong = find_wrong(spec, result)
    tally.add(spec, result, wrong)
    what = "; ".join(map(str, spec.faults)) or f"{spec.seconds:.0f} s"
    end = "right" if not wrong else "WRONG"
    say(f"round {spec.seed}, {spec.size} processes, {spec.kind}: {what}: {end} in {result.seconds:.1f} s")
    for text in wrong:
        say(f"  {text}")
    if not wrong:
        shutil.rmtree(folder)
        return
    for outcome in result.outcomes:
        if (outcome.output and outcome.code is None) or outcome.report is None:
            say(
                f"  rank {outcome.rank}, code {outcome.code}, wrote:\n    "
                + outcome.output[-3000:].replace("\n", "\n    ")
            )
    say(f"  all that they wrote is in {folder}\n  {spec.command}")
