"""Histories of jobs, made up by a small simulation that knows what went wrong, and written as their ranks would."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from shardwise.engine.recording.record import read_records
from shardwise.engine.recording.recorder import Recorder
from shardwise.engine.recording.timeline import Timeline

START = 1.7e9
STEPS = ("all_gather", "all_reduce", "all_to_all", "permute")
FAULTS = (
    "killed",
    "killed inside",
    "killed waiting",
    "error",
    "exit",
    "memory",
    "late",
    "absent",
    "mismatch",
    "skipped",
)
ODD = ("mismatch", "skipped")  # all come to a call, and one to another than the others
KIND = {"killed": "killed", "killed inside": "killed", "killed waiting": "killed", "error": "failed", "exit": "left"}
KIND |= {"memory": "failed", "late": "late", "absent": "absent", "mismatch": "mismatch", "skipped": "mismatch"}


@dataclass
class Visit:
    """A rank in a call: when it came, when all had, when it was done; what it says of those it waits for."""

    step: int
    group: tuple[int, ...]
    number: int
    what: str
    line: str
    began: float
    agreed: float | None = None
    ended: float | None = None
    waits: tuple[int, ...] = ()
    failed: tuple[float, str, tuple[int, ...]] | None = None
    skipped: int = 0  # iterations


@dataclass
class History:
    """What happened, and who is to be named for it."""

    size: int
    fault: str
    guarded: bool
    first: int = 0
    step: int = 0  # in which it happens
    when: float = 0.0
    place: str = ""  # where the first was, if it said so after its last call
    line: str = ""  # that must be named
    visits: list[list[Visit]] = field(default_factory=list)
    blocked: dict[int, Visit] = field(default_factory=dict)
    ends: dict[int, tuple[float, bool, str]] = field(default_factory=dict)
    processes: dict[int, str] = field(default_factory=dict)

    @property
    def now(self) -> float:
        return START + 1000.0


def make_history(random: Random, fault: str, guarded: bool) -> History:
    """Return a job in which one thing goes wrong."""
    history = History(random.randint(2, 6), fault, guarded)
    history.visits = [[] for _ in range(history.size)]
    program = [_groups(random, history.size) for _ in range(random.randint(1, 12))]
    history.first = random.randrange(history.size)
    in_calls = [k for k, groups in enumerate(program) if any(history.first in g and len(g) > 1 for g in groups)]
    if not in_calls:
        program.append([tuple(range(history.size))])
        in_calls = [len(program) - 1]
    history.step = in_calls[0] if fault == "absent" else random.choice(in_calls)
    _run(random, history, program)
    if guarded:
        _tell(random, history)
    _end(random, history)
    return history


def _groups(random: Random, size: int) -> list[tuple[int, ...]]:
    if random.random() < 0.5:
        return [tuple(range(size))]
    ranks, out = random.sample(range(size), size), []
    while ranks:
        count = random.randint(1, len(ranks))
        out.append(tuple(sorted(ranks[:count])))
        ranks = ranks[count:]
    return out


def _run(random: Random, history: History, program: list[list[tuple[int, ...]]]) -> None:
    clock = [START + random.random() for _ in range(history.size)]
    numbers: dict[tuple[int, ...], int] = {}
    gone: set[int] = set()  # those who come to no more calls
    for step, groups in enumerate(program):
        what, line = f"{random.choice(STEPS)} of float32[{step}]", f"/data/me/train.py:{10 + step}"
        for group in (g for g in groups if len(g) > 1):
            numbers[group] = number = numbers.get(group, 0) + 1
            came: dict[int, Visit] = {}
            faulty = step == history.step and history.first in group
            for rank in group:
                if rank in gone or (faulty and rank == history.first and history.fault in BEFORE):
                    continue
                clock[rank] += random.expovariate(20.0)
                came[rank] = Visit(step, group, number, what, line, clock[rank])
                history.visits[rank].append(came[rank])
            if faulty:
                _go_wrong(random, history, came, clock[history.first])
                gone.add(history.first)
            if len(came) < len(group) or faulty:
                for rank, visit in came.items():
                    if rank != history.first or history.fault in ODD:
                        history.blocked[rank] = visit
                        visit.waits = visit.waits or tuple(r for r in group if r not in came)
                        gone.add(rank)
                continue
            agreed = max(visit.began for visit in came.values())
            for rank, visit in came.items():
                visit.agreed, visit.ended = agreed, agreed + random.random() / 100
                clock[rank] = visit.ended


BEFORE = ("killed", "error", "exit", "late", "absent")


def _go_wrong(random: Random, history: History, came: dict[int, Visit], clock: float) -> None:
    first, last = history.first, history.visits[history.first][-1:]
    history.when = clock + 0.001
    history.line = last[0].line if last else ""
    if history.fault in BEFORE and history.fault != "absent" and random.random() < 0.5:
        history.place = history.line = "/data/me/train.py:99"
    if history.fault in ("killed inside", "memory"):
        agreed = max(visit.began for visit in came.values())
        for visit in came.values():
            visit.agreed = agreed
            visit.waits = (first,) if random.random() < 0.5 and visit is not came[first] else ()
        history.when = agreed + 0.001
    if history.fault == "memory":
        came[first].failed = (history.when, "MemoryError: no room for 5 GiB", ())
    if history.fault == "killed waiting":  # it is the first that comes
        came[first].began = min(visit.began for visit in came.values()) - 0.001
        came[first].waits = tuple(rank for rank in came if rank != first)
        history.when = came[first].began + 0.0005
        for rank, visit in came.items():
            visit.waits = visit.waits if rank == first else (first,)
    if history.fault in ODD:
        mine = came[first]
        if history.fault == "mismatch":
            mine.what, mine.line = f"halo_exchange of float32[{history.step}]", "/data/me/train.py:77"
        mine.skipped = int(history.fault == "skipped")
        for rank, visit in came.items():
            visit.waits = tuple(r for r in came if r != rank) if rank == first else (first,)


def _tell(random: Random, history: History) -> None:
    # The first of those who wait for it notices, and tells all others.
    direct = [v for v in history.blocked.values() if history.first in v.group and v.step == history.step]
    late = 60.0 if history.fault == "late" else 0.01
    noticed = max(history.when, min(visit.began for visit in direct)) + late
    names = {"late": "CollectiveTimeout"} | dict.fromkeys(ODD, "CollectiveMismatch")
    name, blamed = names.get(history.fault, "RankLost"), (history.first,)
    if history.fault in ODD:  # it is noticed when two have come that differ
        others = [rank for rank, visit in history.blocked.items() if rank != history.first and visit in direct]
        other = min(others, key=lambda rank: history.blocked[rank].began)
        noticed = max(history.blocked[rank].began for rank in (history.first, other)) + 0.01
        blamed = tuple(sorted((history.first, other)))
    for rank in range(history.size):
        if rank == history.first and history.fault not in ODD:
            continue
        for place, visit in enumerate(history.visits[rank]):
            if visit.agreed is None or visit.agreed > noticed or visit.ended is None:
                known = max(noticed, visit.began) + 0.001 * (1 + random.random())
                if visit.began > noticed and place and random.random() < 0.5:  # told before it came to another call
                    visit, place = history.visits[rank][place - 1], place - 1
                    visit.failed = (known, f"{name}: what was said of it", blamed)
                    history.blocked[rank] = visit
                    del history.visits[rank][place + 1 :]
                    break
                visit.failed = (known, f"{name}: what was said of it\n  and more", blamed)
                visit.ended = None
                visit.agreed = visit.agreed if visit.agreed is not None and visit.agreed < known else None
                history.blocked[rank] = visit
                del history.visits[rank][place + 1 :]
                break


def _end(random: Random, history: History) -> None:
    over = START + 900.0
    # If all are killed in a call, nobody can know which was the first.
    everything_dies = not history.guarded and history.fault in BEFORE and random.random() < 0.3
    for rank in range(history.size):
        visit = history.blocked.get(rank)
        if rank == history.first and history.fault not in ODD:
            _end_first(random, history)
        elif visit is None:
            history.ends[rank] = (over, True, "")
        elif visit.failed is not None and random.random() < 0.7:
            reason = "" if (rescued := random.random() < 0.3) else "it left with RankLost: as was said"
            history.ends[rank] = (visit.failed[0] + 1.0, rescued, reason)
        else:  # it goes on, or a launcher ended it
            history.processes[rank] = "gone" if everything_dies or visit.failed is not None else "running"


def _end_first(random: Random, history: History) -> None:
    first = history.first
    if history.fault.startswith("killed"):
        history.processes[first] = "gone"
    elif history.fault == "error":
        history.ends[first] = (history.when, False, "it left with ValueError: the loss is nan")
    elif history.fault == "memory":
        history.ends[first] = (history.when + 1.0, False, "it left with MemoryError: no room for 5 GiB")
    elif history.fault == "exit":
        history.ends[first] = (history.when, True, random.choice(("", "it left by sys.exit(0)")))
    elif history.fault == "late":
        history.processes[first] = random.choice(("running", "stopped"))


def write_history(random: Random, history: History, folder: Path) -> Timeline:
    """Write the record of each rank by its own clocks, which differ, and return what can be read of it."""
    ranks = [rank for rank in range(history.size) if history.fault != "absent" or rank != history.first]
    clocks = {rank: [START] for rank in ranks}
    recorders = {rank: _recorder(random, history.size, rank, clocks[rank], folder) for rank in ranks}
    for rank in ranks:
        for sequence, visit in enumerate(history.visits[rank], 1):
            _write_visit(recorders[rank], clocks[rank], sequence, visit)
        if rank == history.first and history.place:
            clocks[rank][0] = history.when
            recorders[rank].beat(history.place)
    for rank in ranks:
        if rank in history.ends:
            clocks[rank][0], clean, reason = history.ends[rank]
            recorders[rank].close(clean, reason)
        else:
            recorders[rank]._detach()
    records = read_records(folder)
    processes = {rank: history.processes.get(rank, "gone") for rank in records}
    alive = any(state != "gone" for state in processes.values())
    return Timeline(records, processes, history.now if alive else max(r.seen for r in records.values()))


def _recorder(random: Random, size: int, rank: int, now: list[float], folder: Path) -> Recorder:
    skew, base = random.uniform(-500.0, 500.0), random.uniform(0.0, 1e6)  # of the wall clock; of the other
    recorder = Recorder(folder, rank, size, 64, clock=lambda: now[0] - START + base, wall=lambda: now[0] + skew)
    recorder.set_offset(-skew)
    return recorder


def _write_visit(recorder: Recorder, now: list[float], sequence: int, visit: Visit) -> None:
    now[0] = visit.began
    slot = recorder.begin(sequence, visit.number, visit.what, visit.line, visit.step + visit.skipped, visit.group)
    if visit.agreed is None:
        recorder.wait_for(slot, visit.waits)
    else:
        now[0] = visit.agreed
        recorder.agree(slot)
        if visit.ended is None and visit.waits:
            recorder.wait_for(slot, visit.waits)
    if visit.ended is not None:
        now[0] = visit.ended
        recorder.end(slot, 64, 64)
    if visit.failed is not None:
        now[0], text, ranks = visit.failed
        recorder.fail(slot, text, ranks)
