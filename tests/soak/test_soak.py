"""The soak notices what it is for: wrong names, late ones, leaks, what is left behind; and runs, for minutes."""

import gc
import os
import signal
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from tests.forks import fork
from tests.soak.__main__ import main
from tests.soak.census import ALLOWED_MEMORY, Sample, count_now, find_growth, slope
from tests.soak.fault import (
    BEFORE_START,
    BETWEEN,
    IN_PAIRS,
    ITERATIONS,
    KINDS,
    SOON,
    STARTS,
    TIMEOUT,
    Fault,
    draw_faults,
    names_of,
)
from tests.soak.job import Outcome, Result, Round, run_round
from tests.soak.program import MEET, OPERATIONS, Value, check, iterate, make, reshard
from tests.soak.soak import QUIET, draw_rounds, make_round, soak
from tests.soak.tally import Tally
from tests.soak.verdict import find_wrong
from tests.soak.zygote import Zygote

AT = 1000.0
TEXTS = {
    "killed": "rank 2 was lost: rank 0 came to all_gather.\n  rank 2: its connection closed without a goodbye",
    "stopped": "all_gather waited 4 s for rank 2.\n  rank 2: last sequence 3: it is stopped by a signal",
    "differs": "ranks 0 and 2 came to different calls; no data was moved.",
}


def told(fault: Fault, **changes: Any) -> dict[str, Any]:
    """The report of one who was told rightly, but for some changes."""
    kind = KINDS[fault.kind]
    ranks = [0, fault.rank] if kind.error == "CollectiveMismatch" else [fault.rank]
    right = {
        "error": kind.error,
        "kinds": [kind.error, "CollectiveError", "EngineError", "ShardwiseError"],
        "text": TEXTS[fault.kind],
        "ranks": ranks,
        "at": AT + 1.0 + TIMEOUT * kind.is_late,
        "samples": [],
        "is_right": True,
        "again": kind.error,
        "again_seconds": 0.1,
        "calls": 7,
        "operations": 3,
        "groups": ["(0, 1, 2, 3)"],
    }
    return right | changes


def outcome_of(fault: Fault, victim: dict[str, Any] | None = None, code: int = 0, **changes: Any) -> Result:
    """What becomes of a round of four in which rank 0 is told something else than it should be."""
    note = vars(fault) | {"at": AT, "resume": None}
    outcomes = [Outcome(rank, 0, told(fault, **(changes if rank == 0 else {}))) for rank in range(4)]
    outcomes[fault.rank] = Outcome(fault.rank, code, victim, note)
    return Result(outcomes, records=["rank-0.record"], first=(fault.rank,), sentence="rank 2 was first")


def killed(**changes: Any) -> tuple[Round, Result]:
    fault = Fault("killed", 2, BETWEEN, 3)
    return Round("killed", 1, 4, (fault,)), outcome_of(fault, None, -9, **changes)


# -- verdicts ----------------------------------------------------------------------------------------------


def test_what_is_right_is_not_wrong() -> None:
    assert find_wrong(*killed()) == []
    for kind in ("stopped", "differs"):
        fault = Fault(kind, 2, BETWEEN, 3)
        result = outcome_of(fault, told(fault))
        assert find_wrong(Round(kind, 1, 4, (fault,)), result) == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"ranks": [1]}, "rank 0: was told RankLost of ranks [1], but rank 2 killed between iterations"),
        ({"ranks": [1, 2]}, "rank 0: was told RankLost of ranks [1, 2], but rank 2"),
        ({"error": "CollectiveTimeout", "again": "CollectiveTimeout"}, "rank 0: was told CollectiveTimeout of ranks"),
        ({"text": "rank 2 was lost: it sent what cannot be read"}, "rank 0: was told RankLost of ranks [2], but"),
        ({"at": AT + SOON + 0.5}, "rank 0: was told 0.5 s too late"),
        ({"error": ""}, "rank 0: was told nothing"),
        ({"is_right": False}, "rank 0: what it saved is wrong"),
        ({"again": ""}, "rank 0: raised RankLost, and then nothing"),
        ({"again_seconds": 9.0}, "rank 0: took 9.0 s to say that nothing can be shared"),
    ],
)
def test_a_wrong_report_is_noticed(changes: dict[str, Any], says: str) -> None:
    (wrong,) = find_wrong(*killed(**changes))
    assert says in wrong


def test_a_rank_that_hangs_or_crashes_or_says_nothing_is_noticed() -> None:
    for code, report, says in [
        (None, {}, "rank 1 hung"),
        (1, {}, "rank 1: ended with 1, not (0,)"),
        (0, None, "rank 1: ended without a report"),
    ]:
        spec, result = killed()
        result.outcomes[1] = Outcome(1, code, report)
        assert find_wrong(spec, result) == [says]


def test_what_is_left_behind_and_records_that_name_another_are_noticed() -> None:
    spec, result = killed()
    result.left_behind = ["process 77 was left behind"]
    assert find_wrong(spec, result) == ["process 77 was left behind"]
    for first, says in [((1,), "the records name ranks [1]"), ((), "the records name ranks []"), (None, "no records")]:
        spec, result = killed()
        result.first = first
        (wrong,) = find_wrong(spec, result)
        assert wrong.startswith(says)


def test_of_two_that_disagree_the_records_may_name_both() -> None:
    fault = Fault("differs", 2, BETWEEN, 3)
    for first, is_right in [((2,), True), ((1, 2), True), ((1,), False), ((0, 1), False), ((0, 1, 2), False)]:
        result = outcome_of(fault, told(fault))
        result.first = first
        assert (find_wrong(Round("differs", 1, 4, (fault,)), result) == []) == is_right


def test_a_fault_that_did_not_happen_is_noticed() -> None:
    spec, result = killed()
    result.outcomes = [Outcome(rank, 0, told(spec.faults[0], error="")) for rank in range(4)]
    result.records, result.first = [], None
    assert find_wrong(spec, result) == ["nothing happened: the fault was not made"]


def test_where_nothing_is_to_fail_any_error_and_any_record_is_noticed() -> None:
    fault = Fault("late", 2, BETWEEN, 3)
    note = vars(fault) | {"at": AT, "resume": None}
    other = Fault("killed", 1, BETWEEN)
    for changes, records, says in [
        ({"error": ""}, [], []),
        ({"error": ""}, ["rank-1.record"], ["records of a clean job were left behind: ['rank-1.record']"]),
        ({"text": "why"}, [], ["rank 0: raised RankLost though nothing was to fail: why"]),
    ]:
        fine = told(other, error="")
        outcomes = [Outcome(rank, 0, fine, note if rank == 2 else None) for rank in range(4)]
        outcomes[0] = Outcome(0, 0, told(other, **changes))
        assert find_wrong(Round("late", 1, 4, (fault,)), Result(outcomes, records=records)) == says


def test_of_two_faults_either_may_be_named_and_the_sooner_limit_counts() -> None:
    first, second = Fault("killed", 2, BETWEEN, 3), Fault("stopped", 1, BETWEEN, 3)
    spec = Round("two", 1, 4, (first, second))
    result = outcome_of(first, None, -9)
    result.outcomes[1] = Outcome(1, 0, told(second), vars(second) | {"at": AT, "resume": -1.0})
    stopped = "all_gather waited 4 s for rank 1.\n  rank 1: last sequence 3: it is stopped by a signal"
    result.outcomes[3] = Outcome(3, 0, told(second, text=stopped))
    assert find_wrong(spec, result) == []
    result.outcomes[3] = Outcome(3, 0, told(second, text=stopped, ranks=[2]))  # who was not stopped
    assert len(find_wrong(spec, result)) == 1
    result.outcomes[3] = Outcome(3, 0, told(second, text=stopped, at=AT + SOON + 1))
    assert find_wrong(spec, result) == [f"rank 3: was told 1.0 s too late: {stopped}"]


def test_in_the_start_the_first_line_names_who_is_missing() -> None:
    fault = Fault("killed", 2, BEFORE_START)
    for text, is_right in [
        ("ranks 1, 2 of 4 did not come within 8 s.\n  here: rank 0", True),
        ("rank 2 (host:77) ended while others were starting.", True),
        ("rank 3 cannot reach rank 0 at 127.0.0.1:7", False),
    ]:
        start = {"error": "EngineError", "kinds": ["EngineError"], "text": text, "ranks": []}
        reports = [{name: value for name, value in told(fault, **start).items() if name != "is_right"}] * 4
        outcomes = [Outcome(rank, 0, report) for rank, report in enumerate(reports)]
        outcomes[2] = Outcome(2, -9, None, vars(fault) | {"at": AT, "resume": None})
        assert (find_wrong(Round("killed", 1, 4, (fault,)), Result(outcomes)) == []) == is_right
    assert names_of("rank 3 cannot reach rank 0 at 127.0.0.1:7", 3) == {0}


# -- the census --------------------------------------------------------------------------------------------


def samples(**growth: float) -> list[Sample]:
    """A process that grows by so much with every call, beside what moves a little by itself."""
    rng, flat = Random(1), {"memory": 200 << 20, "files": 30, "threads": 9, "sockets": 20}
    out = []
    for calls in range(1000, 9000, 500):
        numbers = {name: int(start + growth.get(name, 0) * calls) for name, start in flat.items()}
        numbers["memory"] += rng.randrange(1 << 19)
        out.append(Sample(calls, **numbers))
    return out


def test_what_is_flat_is_not_growth_though_it_moves() -> None:
    assert find_growth(samples()) == []
    moment = samples()
    moment[9] = moment[9]._replace(threads=12, files=31)
    assert find_growth(moment) == []
    assert abs(slope(samples())) < 50


@pytest.mark.parametrize(
    ("growth", "says"),
    [
        ({"files": 1 / 2000}, "files grew from "),
        ({"threads": 1 / 2000}, "threads grew from "),
        ({"sockets": 1 / 500}, "sockets grew from "),
        ({"memory": 2048}, "memory grew from "),
    ],
)
def test_a_leak_is_noticed(growth: dict[str, float], says: str) -> None:
    (wrong,) = find_growth(samples(**growth))
    assert wrong.startswith(says)
    assert wrong.endswith(" in 7500 calls")


def test_a_small_leak_of_memory_shows_in_a_long_run() -> None:
    short = samples(memory=1024)
    assert find_growth(short) == []
    long = [sample._replace(calls=4 * sample.calls, memory=sample.memory + 3072 * sample.calls) for sample in short]
    assert find_growth(long) != []
    assert slope(long) == pytest.approx(1024, rel=0.1)
    assert ALLOWED_MEMORY < 1024 * 8000


def test_too_few_samples_are_not_called_flat() -> None:
    assert find_growth(samples()[:4]) == ["4 samples are too few to be judged"]


def test_a_census_counts_what_is_opened(tmp_path: Path) -> None:
    def count() -> None:
        before = count_now(1)
        with (tmp_path / "file").open("w"):
            reader, writer = os.pipe()
            after = count_now(2)
        os.close(reader)
        os.close(writer)
        assert (after.files - before.files, after.threads, after.sockets) == (3, 1, before.sockets)
        assert before.memory > 10 << 20

    gc.collect()
    assert fork(count) == ""  # in a process that has no threads of other tests


def test_a_leak_of_one_rank_is_told() -> None:
    leaking = [list(sample) for sample in samples(files=1 / 1000)]
    flat = [list(sample) for sample in samples()]
    report = told(Fault("killed", 2, BETWEEN), error="")
    outcomes = [Outcome(rank, 0, report | {"samples": leaking if rank == 3 else flat}) for rank in range(4)]
    (wrong,) = find_wrong(Round(QUIET, 1, 4, seconds=9.0), Result(outcomes))
    assert wrong.startswith("rank 3: files grew from ")


# -- programs and faults -----------------------------------------------------------------------------------


def test_programs_are_right_on_one_process_and_use_all_operations() -> None:
    names = [name for number in range(30) for name in iterate(1, number, 8)]
    assert set(names) == {MEET, *OPERATIONS}
    assert names == [name for number in range(30) for name in iterate(1, number, 8)]


def test_a_wrong_value_is_noticed() -> None:
    from tests.every.draws import Draws

    draws = Draws("5")
    value = reshard(draws, 4, make(draws, 4))
    check(value)
    wrong = np.array(value.whole)
    wrong.flat[-1] += 1
    with pytest.raises(AssertionError):
        check(Value(value.tensor, wrong))


def test_faults_of_a_round_are_drawn_from_its_seed_and_can_happen() -> None:
    for kind in [*KINDS, "two"]:
        for seed in range(40):
            faults = draw_faults(Random(f"{kind}/{seed}"), kind, 4)
            assert make_round(kind, seed, 4).faults == tuple(faults)
            assert len({fault.rank for fault in faults}) == len(faults) == 1 + (kind == "two")
            for fault in faults:
                row = KINDS[fault.kind]
                assert fault.kind == kind or fault.kind in IN_PAIRS
                assert fault.moment in row.moments
                assert fault.variant in row.variants
                assert 0 < fault.iteration < ITERATIONS // 2
                assert 0 <= fault.rank < 4
                assert kind != "two" or fault.moment not in STARTS
                # Where the timeout must not be waited for, waiting for it is noticed.
                assert fault.moment in STARTS or row.is_late or not row.error or fault.timeout > 2 * fault.limit


def test_rounds_take_all_kinds_in_turn_and_both_sizes() -> None:
    rounds = list(islice(draw_rounds(3, 60.0, [4, 8]), 2 + len(KINDS) + 3))
    assert [(spec.kind, spec.size) for spec in rounds[:2]] == [(QUIET, 4), (QUIET, 8)]
    assert {spec.kind for spec in rounds[2:]} == {*KINDS, "two"}
    assert {spec.size for spec in rounds[2:]} == {4, 8}
    assert len({spec.seed for spec in rounds}) == len(rounds)
    again = rounds[5]
    assert again.command == f"python -m tests.soak --again {again.kind} {again.seed} {again.size}".replace(
        again.kind, f"'{again.kind}'" if " " in again.kind else again.kind
    )


def test_a_tally_has_a_line_for_each_kind_and_remembers_what_is_wrong() -> None:
    tally = Tally()
    spec, result = killed(at=AT + 2.5)
    tally.add(spec, result, [])
    tally.add(spec, result, ["rank 0: was told nothing"])
    text = str(tally)
    assert "2 rounds, 6 operations, 42 calls in processes, 1 groups" in text
    assert "killed              2      2.5  RankLost 6" in text
    assert tally.wrong == [(spec, ["rank 0: was told nothing"])]


# -- real rounds -------------------------------------------------------------------------------------------


def test_rounds_run_and_are_judged_by_what_happens_in_them(only_worker: None, tmp_path: Path) -> None:
    zygote = Zygote()
    try:
        faults = (Fault("killed", 1, BETWEEN, 1),)
        spec = Round("killed", 7, 4, faults)
        result = run_round(zygote, spec, tmp_path)
        assert find_wrong(spec, result) == []
        assert result.outcomes[1].code == -signal.SIGKILL
        assert all(outcome.report["ranks"] == [1] for outcome in result.outcomes if outcome.report is not None)
        # Had it been said that another is killed, all that was told would be wrong.
        (note,) = result.notes.values()
        result.outcomes[1].note = None
        result.outcomes[2].note = note | {"rank": 2}
        assert len(find_wrong(replace(spec, faults=(replace(faults[0], rank=2),)), result)) >= 4
    finally:
        zygote.close()


@pytest.mark.long
def test_ranks_that_do_not_end_are_killed_and_say_where_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.soak.job.HARD", 8.0 - 2 * 600)
    zygote, spec = Zygote(), make_round(QUIET, 3, 4, seconds=600.0)
    try:
        result = run_round(zygote, spec, tmp_path)
    finally:
        zygote.close()
    wrong = find_wrong(spec, result)
    assert [f"rank {rank} hung" for rank in range(4)] == wrong[:4]
    assert all("most recent call first" in outcome.output for outcome in result.outcomes)


@pytest.mark.long
def test_three_minutes() -> None:
    said: list[str] = []
    tally = soak(3.0, 7, [4, 8], say=said.append)
    assert tally.wrong == [], "\n".join(said)
    assert tally.rounds[QUIET] == 2
    assert sum(tally.rounds.values()) > 8
    assert len(tally.groups) > 100


def test_the_command_says_how_it_went(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    spec, result = killed()
    for wrong, code in [([], 0), (["rank 0: was told nothing"], 1)]:
        tally = Tally()
        tally.add(spec, result, wrong)
        monkeypatch.setattr("tests.soak.__main__.soak", lambda *args, tally=tally: tally)
        monkeypatch.setattr("sys.argv", ["soak", "0.1", "3"])
        assert main() == code
        shown = capsys.readouterr().out
        assert f"{code} rounds went wrong" in shown
        assert (f"{spec.command}\nrank 0: was told nothing" in shown) == bool(wrong)
