"""The wire: its groups, and what a guard is told before any data moves."""

from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import P, shard
from tests.engines.pool import Pool
from tests.engines.programs import grid, line, spread_terms


class Watch:
    """A guard that writes down what it is told, and may refuse."""

    def __init__(self, refuse: bool = False) -> None:
        self.refuse, self.waited, self.slot = refuse, 0, 0
        self.told: list[Any] = []
        self.done: list[tuple[int, int, int]] = []

    def before(self, sequence: int, call: Any) -> None:
        self.told.append((sequence, call))
        self.slot += 1
        if self.refuse:
            raise sw.EngineError("not this one.")

    def wait(self, work: Any, sequence: int, call: Any, rank: int | None = None) -> None:
        self.waited += 1
        work.wait()

    def end(self, slot: int, received: int, sent: int) -> None:
        self.done.append((slot, received, sent))

    def give_up(self, error: BaseException) -> None:
        raise AssertionError("nobody gives up here")


def watched(refuse: bool) -> list[Any]:
    wire = sw.current_engine().wire  # type: ignore[attr-defined]
    x, pending = shard(np.ones((8, 8)), line(4), P("x")), spread_terms(4)
    watch = wire.guard = Watch(refuse)
    counters = sw.current_engine().counters
    counters.reset()
    start = wire.sequence
    try:
        if refuse:
            for call in (lambda: x.gather(), lambda: shard(x, line(4), P(None, "x")), lambda: sw.shift(x, "x")):
                with pytest.raises(sw.EngineError, match="not this one"):
                    call()
        else:
            x.gather()
            shard(x, line(4), P(None, "x"))
            sw.shift(x, "x")
            sw.all_reduce(pending)
            sw.all_reduce(shard(np.ones((4, 4)), grid(4), P("a", unreduced=["b"])))
            sw.to_device(x, sw.CPU(3))
            sw.add(x, x)  # moves nothing
    finally:
        wire.guard = None
    assert (watch.waited == 0) == refuse
    assert [slot for slot, _, _ in watch.done] == ([] if refuse else list(range(1, len(watch.told) + 1)))
    if not refuse:
        assert sum(received for _, received, _ in watch.done) == counters.total
        assert sum(sent for _, _, sent in watch.done) == counters.bytes_sent
    return [(sequence - start, *call) for sequence, call in watch.told]


def test_a_guard_is_told_of_every_call_and_all_are_told_the_same(four: Pool) -> None:
    answers = four.run(watched, False)
    # Four share out the reducing and hand on the shares, in two rounds; two swap what they have, in one.
    steps = ["all_gather", "all_to_all", "permute", *["all_reduce"] * 2, "all_reduce", "exchange"]
    assert [[call[:2] for call in told] for told in answers] == [list(enumerate(steps, 1))] * 4
    for calls in zip(*answers, strict=True):
        assert len({call[:2] + call[3:] for call in calls}) == 1
    first = answers[0]
    assert first[0][2:] == (
        (0, 1, 2, 3),
        (8, 8),
        "float64",
        "[x|-]",
        "[-|-]",
        None,
        None,
        first[0][-2],
        "DeviceMesh(x=4)",
    )
    assert first[3][7] == "sum"
    assert first[6][8] == 3  # the root
    assert [told[5][2] for told in answers] == [(0, 1), (0, 1), (2, 3), (2, 3)]


def test_a_guard_that_refuses_stops_it_before_any_data_moves(four: Pool) -> None:
    assert [len(told) for told in four.run(watched, True)] == [3] * 4
    four.run(watched, False)  # and the processes go on


def crossed() -> list[float]:
    """Groups that overlap, made and used by their members alone, in an order that differs between processes."""
    engine = sw.current_engine()
    mine = engine.rank  # type: ignore[attr-defined]
    out = []
    for members in ((0, 1), (1, 2), (2, 3), (0, 2, 3), (0, 1, 3)):
        if mine in members:
            mesh = sw.DeviceMesh((len(members),), ("x",), [sw.CPU(i) for i in members])
            x = sw.from_shards({members.index(mine): [float(mine)]}, mesh, P(unreduced=["x"]), (1,))
            out.append(x.gather().item())
            y = sw.from_shards(
                {members.index(mine): np.full((1, len(members)), float(mine))}, mesh, P("x"), (len(members),) * 2
            )
            out.append(float(np.asarray(shard(y, mesh, P(None, "x")).local(members.index(mine))).sum()))
    return out


def test_members_of_a_group_need_nobody_else(four: Pool) -> None:
    assert four.run(crossed) == [
        [1.0, 1.0, 5.0, 5.0, 4.0, 4.0],
        [1.0, 1.0, 3.0, 3.0, 4.0, 4.0],
        [3.0, 3.0, 5.0, 5.0, 5.0, 5.0],
        [5.0, 5.0, 5.0, 5.0, 4.0, 4.0],
    ]


def twice() -> list[bytes]:
    rng = np.random.default_rng(sw.current_engine().rank)  # type: ignore[attr-defined]
    mesh = line(4)
    (rank,) = sw.current_engine().addressable(mesh)
    x = sw.from_shards({rank: rng.standard_normal((37, 41)).astype("float32")}, mesh, P(unreduced=["x"]), (37, 41))
    return [x.gather().numpy().tobytes() for _ in range(3)]


def test_reductions_are_the_same_in_every_process_and_every_time(four: Pool) -> None:
    answers = four.run(twice)
    assert len({value for some in answers for value in some}) == 1
