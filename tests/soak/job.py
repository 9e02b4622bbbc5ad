"""Jobs: the processes of one round, from their start to the end of the last; whoever does not end is killed."""

import json
import os
import shlex
import signal
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from shardwise.engine.recording.timeline import read_timeline
from shardwise.engine.recording.verdict import judge
from tests.faults.job import Job, Zygote
from tests.soak.fault import BEFORE_START, HEARTBEAT, IN_START, ITERATIONS, JOINING, START, Fault

HARD = 90.0  # seconds after which a round with faults is over, however busy the machine
LOADED = 60.0  # seconds for which all wait in an undisturbed round
LOOK = 0.03


@dataclass(frozen=True)
class Round:
    """What is to be run: a program by its seed, and faults; without any, it runs for some seconds."""

    kind: str
    seed: int
    size: int
    faults: tuple[Fault, ...] = ()
    seconds: float = 0.0

    @property
    def command(self) -> str:
        """What runs it again."""
        last = [f"{self.seconds:g}"] if self.seconds else []
        return shlex.join(["python", "-m", "tests.soak", "--again", self.kind, str(self.seed), str(self.size), *last])


@dataclass
class Outcome:
    """What became of one process."""

    rank: int
    code: int | None  # None: it did not end
    report: dict[str, Any] | None = None
    note: dict[str, Any] | None = None  # of the fault, if it happened
    output: str = ""  # the end of what it wrote


@dataclass
class Result:
    """What became of a round."""

    outcomes: list[Outcome]
    left_behind: list[str] = field(default_factory=list)
    records: list[str] = field(default_factory=list)
    first: tuple[int, ...] | None = None  # who was first, by the records
    sentence: str = ""
    seconds: float = 0.0

    @property
    def notes(self) -> dict[int, dict[str, Any]]:
        """The faults that happened, by rank."""
        return {outcome.rank: outcome.note for outcome in self.outcomes if outcome.note is not None}


def run_round(zygote: Zygote, spec: Round, folder: Path) -> Result:
    """Run a round in a folder of its own, and return what became of it."""
    job, start = Job(zygote, folder), monotonic()
    records = folder / "records"
    env = {
        "SHARDWISE_TIMEOUT": str(min((fault.timeout for fault in spec.faults), default=LOADED)),
        "SHARDWISE_HEARTBEAT": str(HEARTBEAT if spec.faults else 1.0),
        "SHARDWISE_START_TIMEOUT": str(START if _is_in_start(spec) else LOADED),
        "SHARDWISE_RECORD": str(records),
        "TMPDIR": str(folder),
    }
    iterations = ITERATIONS if spec.faults else 0
    args = (str(folder), spec.seed, spec.size, iterations, spec.seconds, [asdict(fault) for fault in spec.faults])
    try:
        job.start("run", *args, size=spec.size, only=[env | _place(rank, spec.size) for rank in range(spec.size)])
        _wait(job, folder, HARD + 2 * spec.seconds)
    finally:
        hung = {rank.name for rank in job.ranks if rank.code is None}
        left = job.close()
    outcomes = [_outcome(int(rank.name), rank, folder, rank.name in hung) for rank in job.ranks]
    result = Result(outcomes, left, seconds=monotonic() - start)
    if records.is_dir():
        result.records = sorted(path.name for path in records.glob("rank-*.record"))
    if result.records:
        verdict = judge(read_timeline(records))
        result.first, result.sentence = verdict.first, verdict.sentence
    return result


def _is_in_start(spec: Round) -> bool:
    return any(fault.moment in (BEFORE_START, IN_START, JOINING) for fault in spec.faults)


def _place(rank: int, size: int) -> dict[str, str]:
    return {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}


def _wait(job: Job, folder: Path, seconds: float) -> None:
    # Wait for all; who was stopped goes on when its time has come, or when all others have ended.
    end, stopped = monotonic() + seconds, dict[int, float | None]()
    while any(rank.code is None for rank in job.ranks):
        job._look()
        for rank in job.ranks:
            note = _read(folder / f"fault-{rank.name}.json")
            if note is not None and note["resume"] is not None and rank.pid not in stopped:
                stopped[rank.pid] = note["at"] + note["resume"] if note["resume"] > 0 else None
        running = {rank.pid for rank in job.ranks if rank.code is None}
        waiting = {pid for pid in stopped if stopped[pid] != 0.0}
        for pid in waiting & running:
            when = stopped[pid]
            if running <= waiting if when is None else monotonic() >= when:
                stopped[pid] = 0.0
                _signal(pid, signal.SIGCONT)
        if monotonic() > end:
            _ask_for_stacks(running)
            return
        sleep(LOOK)


def _ask_for_stacks(pids: set[int]) -> None:
    for number in (signal.SIGCONT, signal.SIGUSR1):
        for pid in pids:
            _signal(pid, number)
        sleep(0.5)


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _outcome(number: int, rank: Any, folder: Path, is_hung: bool) -> Outcome:
    report = _read(folder / f"report-{number}.json")
    output = "\n".join(text[-6000:] for text in (rank.out, rank.err) if text)
    note = _read(folder / f"fault-{number}.json")
    return Outcome(number, None if is_hung else rank.code, report, note, output)


def _read(path: Path) -> Any:
    return json.loads(path.read_text()) if path.exists() else None
