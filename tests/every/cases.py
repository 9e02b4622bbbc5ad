"""Cases: a function and the choices of one of its calls, which every process can draw again."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.every.calls import MOST, Call
from tests.every.draws import Draws
from tests.every.rows import draw_call
from tests.every.views import Finding, Outcome, check, check_here, compare, merge, run


@dataclass(frozen=True)
class Case:
    """A call of a function, as a seed or as its choices; for processes, how many there are."""

    name: str
    seed: int | None = None
    choices: tuple[int, ...] = ()
    most: int = MOST
    processes: int | None = None

    def draw(self) -> tuple[Call, Draws]:
        """The call, and the draws that it was made by."""
        draws = Draws(None if self.seed is None else f"{self.name} {self.seed}", self.choices)
        return draw_call(self.name, draws, self.most, self.processes), draws


def check_case(case: Case, pool: Any = None) -> None:
    """Check a case in all views of this process and, where there is a pool, between its processes."""
    call, _ = case.draw()
    outcome = check_here(call)
    if pool is None:
        return
    answers = pool.run(run_case, case)
    for answer in answers:
        if isinstance(answer, tuple):
            raise Finding("processes", *answer)
    other = merge(answers, "processes")
    check(call, other, "processes")
    compare(call, outcome, other, "processes")


def run_case(case: Case) -> Outcome | tuple[str, str]:
    """What one process makes of a case, or what it finds wrong."""
    try:
        return run(case.draw()[0], "processes")
    except Finding as finding:
        return finding.kind, finding.what


def shrink(case: Case, fails: Any, tries: int = 600) -> Case:
    """The simplest case that still fails: fewer choices first, then lower ones."""
    _, draws = case.draw()
    best = tuple(draws.made)

    def attempt(choices: Sequence[int]) -> bool:
        nonlocal best, tries
        tries -= 1
        new = Case(case.name, None, tuple(choices), case.most, case.processes)
        if tries < 0 or not fails(new):
            return False
        best = tuple(new.draw()[1].made)
        while best and not best[-1]:
            best = best[:-1]
        return True

    before: tuple[int, ...] = ()
    while before != best and tries > 0:
        before = best
        if attempt(best[: len(best) // 2]):
            continue
        for width in (16, 4, 1):
            at = 0
            while at < len(best) and tries > 0:
                zeroed = any(best[at : at + width]) and attempt((*best[:at], *[0] * width, *best[at + width :]))
                at += 0 if not zeroed and width < 16 and attempt(best[:at] + best[at + width :]) else width
        for at in range(len(best)):
            while at < len(best) and best[at] > 1 and tries > 0:
                lower = [best[at] // 2, best[at] - 1]
                if not any(attempt((*best[:at], number, *best[at + 1 :])) for number in lower):
                    break
        for at in range(len(best) - 1):  # a number in an earlier place, such as that of the first dim
            if at + 1 < len(best) and best[at] < best[at + 1] and tries > 0:
                attempt((*best[:at], best[at + 1], best[at], *best[at + 2 :]))
    return Case(case.name, None, best, case.most, case.processes)
