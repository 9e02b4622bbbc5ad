"""The verdict on a round: what is wrong with what became of it, by what had been done to it."""

import re
from collections.abc import Sequence
from typing import Any

from tests.soak.census import Sample, find_growth
from tests.soak.fault import KINDS, STARTS, Fault, names_of
from tests.soak.job import Outcome, Result, Round

RESCUE = 5.0  # seconds in which the next call must say that nothing can be shared any more, on a busy machine


def find_wrong(spec: Round, result: Result) -> list[str]:
    """Say everything that is wrong with a round; nothing, if all is as it must be."""
    done = {rank: _fault_of(note) for rank, note in result.notes.items()}
    culprits = {rank: fault for rank, fault in done.items() if KINDS[fault.kind].error}
    wrong = [f"rank {outcome.rank} hung" for outcome in result.outcomes if outcome.code is None]
    wrong += result.left_behind
    for outcome in result.outcomes:
        if outcome.code is not None:
            wrong += [f"rank {outcome.rank}: {text}" for text in _find_wrong_of_rank(outcome, culprits, result.notes)]
    wrong += _find_wrong_of_records(result, culprits)
    missing = {fault.rank for fault in spec.faults} - set(done)
    if len(missing) == len(spec.faults) > 0:
        wrong.append("nothing happened: the fault was not made")
    return wrong


def _fault_of(note: dict[str, Any]) -> Fault:
    return Fault(**{name: value for name, value in note.items() if name not in ("at", "resume")})


def _find_wrong_of_rank(outcome: Outcome, culprits: dict[int, Fault], notes: dict[int, dict[str, Any]]) -> list[str]:
    own, report = culprits.get(outcome.rank), outcome.report
    codes = (0,) if own is None else KINDS[own.kind].codes
    if outcome.code not in codes:
        return [f"ended with {outcome.code}, not {codes}"]
    if own is not None and not KINDS[own.kind].reports:
        return []
    if report is None:
        return ["ended without a report"]
    if not culprits:
        wrong = [f"raised {report['error']} though nothing was to fail: {report['text']}"] if report["error"] else []
        samples = [Sample(*sample) for sample in report["samples"]]
        return wrong + (find_growth(samples) if samples else [])
    if not report["error"]:
        return ["was told nothing"]
    wrong = _find_wrong_of_rescue(report)
    if own is None:
        wrong += _find_wrong_of_naming(outcome.rank, report, culprits)
        wrong += _find_wrong_of_time(report, culprits, notes)
    return wrong


def _find_wrong_of_naming(rank: int, report: dict[str, Any], culprits: dict[int, Fault]) -> list[str]:
    text = report["text"]
    named = set(report["ranks"]) or names_of(text, rank)
    if any(_is_named(fault, report, named) for fault in culprits.values()):
        return []
    faults = "; ".join(map(str, culprits.values()))
    return [f"was told {report['error']} of ranks {sorted(named)}, but {faults}: {text}"]


def _is_named(fault: Fault, report: dict[str, Any], named: set[int]) -> bool:
    row = KINDS[fault.kind]
    if fault.rank not in named:
        return False
    if fault.moment in STARTS:
        return "EngineError" in report["kinds"]
    others = named - {fault.rank}
    is_alone = not others or row.error == "CollectiveMismatch"
    return is_alone and report["error"] == row.error and re.search(row.says, report["text"]) is not None


def seconds_to_be_named(report: dict[str, Any], notes: dict[int, dict[str, Any]], culprits: Sequence[int]) -> float:
    """Seconds from the first fault to the error that named it."""
    return report["at"] - min(notes[rank]["at"] for rank in culprits)


def _find_wrong_of_time(
    report: dict[str, Any], culprits: dict[int, Fault], notes: dict[int, dict[str, Any]]
) -> list[str]:
    limit = min(notes[rank]["at"] + fault.limit for rank, fault in culprits.items())
    late = report["at"] - limit
    return [f"was told {late:.1f} s too late: {report['text']}"] if late > 0 else []


def _find_wrong_of_rescue(report: dict[str, Any]) -> list[str]:
    if "is_right" not in report:  # it had not started
        return []
    wrong = [] if report["is_right"] else ["what it saved is wrong"]
    if report["error"] != "MemoryError" and report["again"] != report["error"]:
        wrong.append(f"raised {report['error']}, and then {report['again'] or 'nothing'}")
    if report["again_seconds"] > RESCUE:
        wrong.append(f"took {report['again_seconds']:.1f} s to say that nothing can be shared any more")
    return wrong


def _find_wrong_of_records(result: Result, culprits: dict[int, Fault]) -> list[str]:
    if not culprits:
        return [f"records of a clean job were left behind: {result.records}"] if result.records else []
    if any(fault.moment in STARTS for fault in culprits.values()):
        return []  # there are records only of those that had met the others
    if result.first is None:
        return ["no records were left"]
    first = set(result.first)
    odd = {rank for rank, fault in culprits.items() if KINDS[fault.kind].error == "CollectiveMismatch"}
    # Where only two have come to a call, and disagree, nobody can know which of them is odd.
    if (first and first <= set(culprits)) or (first & odd and len(first) == 2):
        return []
    faults = "; ".join(map(str, culprits.values()))
    return [f"the records name ranks {list(result.first)}, but {faults}: {result.sentence}"]
