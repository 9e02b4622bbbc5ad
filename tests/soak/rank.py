"""One process of a round: runs the program, does what it is to do wrong, and reports what it was told."""

import faulthandler
import os
import signal
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

import shardwise as sw
from shardwise import P, Tensor
from tests.layout.oracle import held_box
from tests.prim.cases import part
from tests.soak.census import Sample, take_sample
from tests.soak.deed import Deeds, LeavingError, SkippedError, gather_often, make_large, restore_memory, write_json
from tests.soak.fault import BETWEEN, CALL, GATHERING, Fault
from tests.soak.program import all_of, iterate

SIDE = 64
WARM_UP = 0.2  # of the time of an undisturbed round, in which nothing is counted
SAMPLES = 16


def run(folder: str, seed: int, size: int, iterations: int, seconds: float, faults: list[dict[str, Any]]) -> None:
    """Run so many iterations, or if there are none to be counted, for some seconds."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    me = int(os.environ["RANK"])
    deeds = Deeds([Fault(**fault) for fault in faults if fault["rank"] == me], Path(folder))
    process = _Process(me, seed, size, deeds)
    try:
        process.start()
        if iterations:
            process.repeat(iterations, {fault["iteration"] for fault in faults if fault["moment"] == GATHERING})
        else:
            process.soak(seconds)
    except LeavingError:
        return
    except (sw.ShardwiseError, MemoryError) as error:
        restore_memory()
        process.report |= _describe(error)
    if process.kept is not None and process.report["error"]:
        process.report |= _rescue(process.kept, Path(folder) / f"{me}.npy")
    write_json(Path(folder) / f"report-{me}.json", process.report | process.counts())


class _Process:
    def __init__(self, rank: int, seed: int, size: int, deeds: Deeds) -> None:
        self.rank, self.seed, self.size, self.deeds = rank, seed, size, deeds
        self.report: dict[str, Any] = {"error": "", "text": "", "ranks": [], "at": 0.0, "samples": []}
        self.kept: Tensor | None = None
        self.operations = 0

    def start(self) -> None:
        self.deeds.prepare()
        sw.init("torch")
        self.kept = sw.shard(whole(), all_of(self.size), P("x"))

    def repeat(self, iterations: int, large: set[int]) -> None:
        for number in range(iterations):
            self.deeds.reach(BETWEEN, number)
            if number in large:
                x = make_large(self.size)
                self.deeds.reach(GATHERING, number)
                gather_often(x)
            with suppress(SkippedError), sw.step(number):
                self._iterate(number)

    def _iterate(self, number: int) -> None:
        self.deeds.begin(number)
        for at, _ in enumerate(iterate(self.seed, number, self.size, self.deeds.odd(number))):
            self.operations += 1
            self.deeds.reach(CALL, number, at)

    def soak(self, seconds: float) -> None:
        """Go on until the time of rank 0 is over, which it tells the others now and then."""
        start, number, samples = monotonic(), 0, list[Sample]()
        times = [seconds * (WARM_UP + (1 - WARM_UP) * k / (SAMPLES - 1)) for k in range(SAMPLES)]
        while len(samples) < SAMPLES:
            for _ in range(5):
                with sw.step(number):
                    self._iterate(number)
                number += 1
            if self._hear_of_0(monotonic() - start) >= times[len(samples)]:
                samples.append(take_sample(self._calls()))
        self._hear_of_0(0.0)  # so that nobody leaves before all have counted
        self.report["samples"] = samples

    def _hear_of_0(self, number: float) -> float:
        shares = {self.rank: np.array([number])}
        mesh = all_of(self.size)
        return float(sw.from_shards(shares, mesh, P("x").to_layout(1, mesh), (self.size,)).gather().numpy()[0])

    def counts(self) -> dict[str, Any]:
        return {"calls": self._calls(), "operations": self.operations, "groups": self._groups()}

    def _calls(self) -> int:
        wire: Any = getattr(sw.current_engine(), "wire", None)
        return 0 if wire is None else wire.sequence

    def _groups(self) -> list[str]:
        wire: Any = getattr(sw.current_engine(), "wire", None)
        return [] if wire is None else [str(ranks) for ranks in wire.guard._counts]


def whole() -> np.ndarray:
    """What every process keeps its part of."""
    return np.arange(SIDE * SIDE, dtype="float64").reshape(SIDE, SIDE)


def _describe(error: BaseException) -> dict[str, Any]:
    names = [kind.__name__ for kind in type(error).__mro__ if kind.__module__.startswith("shardwise")]
    out = {"error": type(error).__name__, "kinds": names, "text": str(error), "at": monotonic()}
    return out | ({"ranks": list(error.ranks)} if isinstance(error, sw.CollectiveError) else {})


def _rescue(kept: Tensor, path: Path) -> dict[str, Any]:
    # Save what is held, and compare what was saved; then try to share something, which must fail at once.
    (shard,) = kept.shards
    np.save(path, shard.array)
    box = held_box(kept.layout, kept.shape, shard.index)
    out: dict[str, Any] = {"is_right": bool(np.array_equal(np.load(path), part(whole(), box))), "again": ""}
    start = monotonic()
    try:
        kept.gather()
    except sw.ShardwiseError as error:
        out["again"] = type(error).__name__
    return out | {"again_seconds": monotonic() - start}
