"""The guard of several ranks in one process: threads that talk over real connections."""

import gc
import os
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from inspect import signature
from time import monotonic, sleep
from types import SimpleNamespace
from typing import Any, cast

import pytest

import shardwise as sw
from shardwise import CollectiveError, CollectiveMismatch, CollectiveTimeout, EngineError, RankLost, errors
from shardwise.engine import farewell
from shardwise.engine.call import Call
from shardwise.engine.guard import guard as guarding
from shardwise.engine.guard import watchdog as watching
from shardwise.engine.guard.fingerprint import Fingerprint, decode, encode
from shardwise.engine.guard.guard import CollectiveGuard
from shardwise.engine.guard.vital_signs import VitalSigns
from shardwise.engine.guard.watchdog import Peer
from shardwise.engine.launch.launcher import launch
from shardwise.engine.meeting.channel import Channel
from shardwise.engine.settings import Settings
from shardwise.engine.steps import Place

CALL = Call("all_gather", (0, 1, 2), (8,), "float32", "[x]", "[-]", None, None, "ab12")
QUICK, PATIENT = Settings(timeout=1.0, heartbeat=2.0), Settings(timeout=20.0, heartbeat=0.1)

Guards = list[CollectiveGuard]


@pytest.fixture
def guards() -> Iterator[Guards]:
    channels: list[dict[str, dict[int, Channel]]] = [{"calls": {}, "beats": {}} for _ in range(3)]
    for a, b in ((0, 1), (0, 2), (1, 2)):
        for kind in ("calls", "beats"):
            one, other = socket.socketpair()
            channels[a][kind][b], channels[b][kind][a] = Channel(one, b), Channel(other, a)
    made = [CollectiveGuard(rank, channels[rank], PATIENT) for rank in range(3)]
    yield made
    for guard in made:
        guard.close()


@pytest.fixture
def at_once(guards: Guards) -> Iterator[Callable[..., list[Any]]]:
    """Run one function per rank, each always in a thread of its own; return what they return or raise."""
    threads = [ThreadPoolExecutor(1) for _ in guards]

    def run(*calls: Callable[[CollectiveGuard], Any]) -> list[Any]:
        asked = [t.submit(c, g) for t, c, g in zip(threads, calls, guards, strict=False)]
        return [a.exception(30) or a.result() for a in asked]

    yield run
    for thread in threads:
        thread.shutdown()


def comes(sequence: int = 1, call: Call = CALL) -> Callable[[CollectiveGuard], None]:
    return lambda guard: guard.before(sequence, call)


def test_those_who_come_to_the_same_call_go_on(at_once: Any) -> None:
    for sequence in range(1, 50):
        assert at_once(*[comes(sequence)] * 3) == [None] * 3


def test_groups_need_only_their_members_and_sequences_may_differ(at_once: Any) -> None:
    pair = CALL._replace(ranks=(0, 1))
    assert at_once(comes(1, pair), comes(1, pair)) == [None] * 2
    assert at_once(comes(2), comes(2), comes(1)) == [None] * 3


def test_those_who_come_to_different_calls_do_not(at_once: Any) -> None:
    found = at_once(comes(), comes(), comes(call=CALL._replace(dtype="int8")))
    assert [type(error) for error in found] == [CollectiveMismatch] * 3
    assert all("different: dtype" in str(error) for error in found)
    again = at_once(*[comes(2)] * 3)
    assert [type(error) for error in again] == [CollectiveMismatch] * 3
    assert all("nothing can be shared with other processes any more" in str(error) for error in again)


def test_an_order_that_differs_is_seen_by_all(at_once: Any) -> None:
    pair = CALL._replace(ranks=(0, 1))
    found = at_once(comes(1), comes(1, pair), comes(1))
    assert [type(error) for error in found] == [CollectiveMismatch] * 3
    assert found[2].ranks == (0, 1)


def soon(check: Callable[[], bool]) -> bool:
    end = monotonic() + 20
    while not check() and monotonic() < end:
        sleep(0.01)
    return check()


def test_who_does_not_come_is_named(guards: Guards, at_once: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "ANSWER", 20.0)  # a busy machine may let nobody answer for a while
    for guard in guards:
        guard.settings, guard.watchdog.heartbeat = QUICK, QUICK.heartbeat
    start = monotonic()
    found = at_once(comes(), comes(), lambda guard: soon(lambda: guard.watchdog.stopped is not None))
    assert found[2] is True
    assert [type(error) for error in found[:2]] == [CollectiveTimeout] * 2
    assert found[0].ranks == (2,)
    assert "waited 1 s for rank 2.\n  rank 2: last sequence 0, heartbeat " in str(found[0])
    assert "busy elsewhere" in str(found[0])
    assert monotonic() - start < 10
    assert isinstance(at_once(comes(), comes(), comes())[2], CollectiveTimeout)


def test_who_leaves_is_named_with_the_reason(at_once: Any) -> None:
    found = at_once(comes(), comes(), lambda guard: guard.close(ValueError("bad luck")))
    assert [type(error) for error in found[:2]] == [RankLost] * 2
    assert all(error.ranks == (2,) for error in found[:2])
    assert "it left with ValueError: bad luck" in str(found[0])
    assert (found[0].step, found[0].sequence) == ("all_gather", 1)


def test_who_gives_up_is_named(at_once: Any) -> None:
    found = at_once(comes(), comes(), lambda guard: guard.give_up(MemoryError("8 GiB")))
    assert [type(error) for error in found[:2]] == [RankLost] * 2
    assert "rank 2 gave up at sequence 0: MemoryError: 8 GiB" in str(found[0])


class Work:
    def __init__(self, text: str) -> None:
        self.text = text

    def wait(self) -> None:
        raise RuntimeError(self.text)


def test_failures_of_the_library_are_explained(at_once: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarding, "NEWS", 0.1)
    assert at_once(*[comes()] * 3) == [None] * 3
    broken = at_once(lambda guard: guard.wait(Work("Connection reset"), 1, CALL), lambda guard: None)
    assert type(broken[0]) is CollectiveError
    assert "all_gather (sequence 1, at " in str(broken[0])
    assert "failed in torch.distributed:\n  Connection reset" in str(broken[0])
    told = at_once(lambda guard: None, comes(2))
    assert "rank 0 stopped, and this is rank 1: all_gather (sequence 1" in str(told[1])


def test_a_timeout_of_the_library_names_who_is_late(at_once: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarding, "NEWS", 0.1)
    late = at_once(lambda guard: guard.wait(Work("Timed out waiting 1000ms"), 1, CALL))
    assert type(late[0]) is CollectiveTimeout
    assert late[0].ranks == (1, 2)


def test_a_second_thread_is_refused_while_the_first_lives(guards: Guards, at_once: Any) -> None:
    assert at_once(*[comes()] * 3) == [None] * 3
    with pytest.raises(EngineError, match="called in thread 'MainThread', but another thread of this process has comm"):
        guards[0].before(2, CALL)
    assert at_once(*[comes(2)] * 3) == [None] * 3


def test_a_fork_is_refused(guards: Guards, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.getpid()
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: real + 1)
        with pytest.raises(EngineError, match="forked from rank 0 after init, and is not one of the processes"):
            guards[0].before(1, CALL)
        guards[0].close()  # which has nothing to say to the others
    assert all(peer.gone is None for guard in guards for peer in guard.watchdog.peers.values())


def test_heartbeats_tell_the_last_sequence(guards: Guards, at_once: Any) -> None:
    pair = CALL._replace(ranks=(0, 1))
    assert at_once(comes(1, pair), comes(1, pair)) == [None] * 2
    assert soon(lambda: guards[2].watchdog.peers[0].sequence == 1)
    assert soon(lambda: not guards[2].watchdog.silent(0))


# -- one guard alone: peers that say what the test says, by a clock that stands still ---------------------


class Line:
    """What stands in for a channel: what comes is what the test put there."""

    def __init__(self, rank: int) -> None:
        self.rank, self.fd, self.closed, self.ended = rank, 1000 + rank, False, False
        self.sent, self.came, self.is_garbled = list[bytes](), list[bytes](), False

    def send(self, body: bytes) -> None:
        self.sent.append(body)

    def receive(self) -> bytes | None:
        return self.came.pop(0) if self.came else None

    def close(self) -> None:
        self.ended = True


class Dog:
    """What stands in for the watchdog: it knows what the test says, and keeps what it is told."""

    def __init__(self, channels: dict[int, Line], heartbeat: float, signs: VitalSigns, listens: bool) -> None:
        self.signs, self.stragglers, self.changed = signs, SimpleNamespace(wait=None), threading.Condition()
        self.waits, self.troubles, self.refused = list[Any](), list[str](), list[int]()
        self.peers = {rank: Peer(rank, 0.0) for rank in channels}
        self.heartbeat, self.sequence, self.owner = heartbeat, 0, 0
        self.stopped: dict[str, Any] | None = None
        self.quiet, self.asked = set[int](), list[tuple[list[int], float]]()
        self.told, self.ends, self.forgot = list[dict[str, Any]](), list[tuple[str, bool]](), 0

    def stop(self, **said: Any) -> None:
        self.told.append(said)

    def end(self, text: str, clean: bool) -> None:
        self.ends.append((text, clean))

    def forget(self) -> None:
        self.forgot += 1

    def find_gone(self, ranks: Any, patience: float) -> list[Peer]:
        self.asked.append((list(ranks), patience))
        return [self.peers[rank] for rank in ranks if self.peers[rank].gone is not None]

    def refuse(self, rank: int) -> None:
        self.peers[rank].gone = watching.UNREADABLE
        self.refused.append(rank)

    def silent(self, rank: int) -> bool:
        return rank in self.quiet

    def state(self, rank: int) -> str:
        return "stopped, or cut off" if rank in self.quiet else "busy elsewhere"

    def tell_trouble(self, text: str) -> None:
        self.troubles.append(text)


class Alone:
    """The guard of rank 0 of four."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.looks = 50.0, list[tuple[list[int], float]]()
        self.lines = {rank: Line(rank) for rank in (1, 2, 3)}
        monkeypatch.setattr(guarding, "Watchdog", Dog)
        monkeypatch.setattr(guarding, "monotonic", lambda: self.now)
        monkeypatch.setattr(watching, "monotonic", lambda: self.now)  # by which peers say when they were heard
        monkeypatch.setattr(guarding, "user_line", lambda: "train.py:3")
        for place, name, value in ((farewell, "notes", farewell.Notes()), (sys, "exit", sys.exit)):
            monkeypatch.setattr(place, name, value)
        monkeypatch.setattr(errors, "on_discard", None)
        channels: Any = {"calls": self.lines, "beats": self.lines}
        self.guard = CollectiveGuard(0, channels, Settings(timeout=4.0, heartbeat=0.25))
        self.dog: Any = self.guard.watchdog
        monkeypatch.setattr(self.guard, "_look", self._look)
        self.steps: list[Callable[[], None]] = []  # what happens while it looks, one after the other

    def _look(self, waiting: Any, seconds: float) -> None:
        self.looks.append(([line.rank for line in waiting], seconds))
        self.dog.waits.append(self.dog.stragglers.wait and list(self.dog.stragglers.wait.ranks))
        self.steps.pop(0)()

    def at(self, now: float, **came: Call) -> Callable[[], None]:
        def happen() -> None:
            self.now = now
            for name, call in came.items():
                self.comes(int(name[1:]), call)

        return happen

    def comes(self, rank: int, call: Call, number: int = 1, sequence: int = 9) -> None:
        self.lines[rank].came.append(encode(Fingerprint(call, number, sequence, "other.py:5")))


FOUR = CALL._replace(ranks=(0, 1, 2, 3))


def test_it_looks_at_one_alone_at_first_and_at_all_later_and_then_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Alone(monkeypatch)
    alone.steps = [alone.at(50.01), alone.at(50.5), alone.at(51.0, r2=FOUR), alone.at(53.9), alone.at(54.0)]
    with pytest.raises(CollectiveTimeout) as found:
        alone.guard.before(7, FOUR)
    assert alone.looks == [
        ([1], 0.02),
        ([1], 0.02),
        ([1, 2, 3], 3.5),
        ([1, 3], 3.0),
        ([1, 3], pytest.approx(0.1)),
    ]
    assert str(found.value) == (
        "all_gather (sequence 7, at train.py:3) waited 4 s for ranks 1, 3.\n"
        f"  {alone.dog.peers[1]}: busy elsewhere\n  {alone.dog.peers[3]}: busy elsewhere\n"
        "  init(timeout=...) or SHARDWISE_TIMEOUT gives more seconds." + guarding.KEPT
    )
    assert (found.value.ranks, found.value.step, found.value.sequence) == ((1, 3), "all_gather", 7)
    assert (alone.dog.peers[2].sequence, alone.dog.peers[2].heard) == (9, 51.0)
    assert (alone.dog.peers[1].sequence, alone.dog.peers[1].heard) == (0, 0.0)
    assert alone.dog.told == [
        {"error": "CollectiveTimeout", "text": str(found.value), "ranks": (1, 3), "step": "all_gather", "sequence": 7}
    ]


def test_the_early_time_is_over_when_it_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarding, "EARLY", 0.25)
    alone = Alone(monkeypatch)
    alone.steps = [alone.at(50.125), alone.at(50.25), alone.at(50.5, r1=FOUR, r2=FOUR, r3=FOUR)]
    alone.guard.before(1, FOUR)
    assert alone.looks == [([1], 0.25), ([1], 0.25), ([1, 2, 3], 3.75)]


def test_each_of_the_group_is_told_once_with_the_number_of_the_call_in_its_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone, pair = Alone(monkeypatch), CALL._replace(ranks=(0, 2))
    assert alone.dog.heartbeat == 0.25
    for sequence, (call, numbers) in enumerate(
        [(FOUR, {1: 1, 2: 1, 3: 1}), (pair, {2: 1}), (FOUR, {1: 2, 2: 2, 3: 2})]
    ):
        for rank, number in numbers.items():
            alone.comes(rank, call, number)
        alone.guard.before(sequence + 1, call)
        for rank, line in alone.lines.items():
            sent = [decode(body) for body in line.sent]
            expected = [Fingerprint(call, numbers[rank], sequence + 1, "train.py:3")] if rank in numbers else []
            assert sent == expected
            line.sent.clear()
        assert alone.dog.sequence == sequence + 1
    assert alone.looks == []
    assert alone.dog.owner == alone.guard._thread == threading.get_ident()


def test_who_went_is_lost_and_the_first_that_went_badly_is_to_blame(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Alone(monkeypatch)
    peers = alone.dog.peers
    peers[1].gone, peers[1].clean = "it left, cleanly", True
    peers[2].gone, peers[2].line, peers[2].sequence = "it crashed", "net.py:8", 5
    peers[3].gone, peers[3].follows = "it left because of rank 2", True
    found = alone.guard.failure(RuntimeError("Connection reset"), 7, FOUR)
    assert str(found) == (
        "rank 2 was lost: rank 0 came to all_gather (sequence 7) at train.py:3.\n"
        "  rank 2: it crashed; its last sequence was 5, at net.py:8.\n"
        "  look at the output of rank 2 first." + guarding.KEPT
    )
    assert isinstance(found, RankLost)
    assert (found.ranks, found.step, found.sequence) == ((2,), "all_gather", 7)
    assert alone.dog.asked == [([1, 2, 3], guarding.NEWS)]


def test_who_left_cleanly_has_no_output_worth_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Alone(monkeypatch)
    alone.dog.peers[1].gone, alone.dog.peers[1].clean = "it left, cleanly", True
    alone.lines[1].closed = True
    with pytest.raises(RankLost) as found:
        alone.guard.before(7, FOUR)
    assert "rank 1: it left, cleanly; its last sequence was 0.\n  this process still has" in str(found.value)
    assert "look at the output" not in str(found.value)


def test_a_connection_that_closes_without_news_is_a_loss_too(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Alone(monkeypatch)
    alone.lines[2].closed = True
    with pytest.raises(RankLost, match=r"rank 2: its connection closed; its last sequence was 0") as found:
        alone.guard.before(7, FOUR)
    assert found.value.ranks == (2,)
    assert alone.dog.asked == [([2], guarding.NEWS)]


def test_what_came_before_the_connection_closed_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Alone(monkeypatch)
    for rank in (1, 2, 3):
        alone.comes(rank, FOUR)
        alone.lines[rank].closed = True
    alone.guard.before(7, FOUR)
    assert alone.dog.told == []


SAID = {"error": "RankLost", "text": "rank 3 was lost", "ranks": (3,), "step": "permute", "sequence": 4}


def test_what_another_said_is_the_cause_unless_it_is_the_loss_of_the_same_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    for by, gone, text in [
        (1, None, "rank 1 stopped, and this is rank 0: rank 3 was lost"),
        (None, None, "rank 0 stopped, and this is rank 0: rank 3 was lost"),
        (1, 2, "rank 1 stopped, and this is rank 0: rank 3 was lost"),
        (1, 3, "rank 3 was lost: rank 0 came to all_gather (sequence 7) at train.py:3."),
    ]:
        alone = Alone(monkeypatch)
        alone.dog.stopped = SAID | ({} if by is None else {"by": by})
        if gone is not None:
            alone.dog.peers[gone].gone = "it crashed"
        found = alone.guard.failure(RuntimeError("Connection reset"), 7, FOUR)
        assert type(found) is RankLost
        assert str(found).splitlines()[0] == text
    alone = Alone(monkeypatch)
    alone.dog.stopped = SAID | {"by": 1, "error": "CollectiveTimeout"}
    alone.dog.peers[3].gone = "it crashed"  # it was late, which is another matter than a loss
    found = alone.guard.failure(RuntimeError("Connection reset"), 7, FOUR)
    assert type(found) is CollectiveTimeout
    assert (found.ranks, found.step, found.sequence) == ((3,), "permute", 4)


def test_an_error_of_a_kind_that_is_not_known_is_a_collective_error(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Alone(monkeypatch)
    alone.dog.stopped = SAID | {"error": "Other"}
    with pytest.raises(CollectiveError, match="rank 3 was lost") as found:
        alone.guard.before(7, FOUR)
    assert type(found.value) is CollectiveError
    assert alone.lines[1].sent == []
    with pytest.raises(CollectiveError, match=r"any more, since:\n  rank 3 was lost"):
        alone.guard.before(8, FOUR)
    assert alone.dog.told == []  # all know it already


def test_news_that_come_while_it_waits_end_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Alone(monkeypatch)
    alone.steps = [lambda: setattr(alone.dog, "stopped", SAID | {"by": 3})]
    with pytest.raises(RankLost, match="rank 3 stopped, and this is rank 0"):
        alone.guard.before(7, FOUR)
    assert len(alone.looks) == 1


def test_a_timeout_of_the_library_blames_the_silent_then_those_behind_then_all(monkeypatch: pytest.MonkeyPatch) -> None:
    for quiet, sequences, ranks in [
        ({3}, (1, 7, 7), (3,)),
        (set[int](), (7, 6, 8), (2,)),
        (set[int](), (7, 8, 9), (1, 2, 3)),
    ]:
        alone = Alone(monkeypatch)
        alone.dog.quiet = quiet
        for rank, sequence in enumerate(sequences, 1):
            alone.dog.peers[rank].sequence = sequence
        found = alone.guard.failure(RuntimeError("Timed out"), 7, FOUR)
        assert isinstance(found, CollectiveTimeout)
        assert found.ranks == ranks
        assert ("stopped, or cut off" in str(found)) == bool(quiet)
        assert ("busy elsewhere" in str(found)) == (not quiet)
        assert f"waited 4 s for rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}.\n" in str(found)


def test_a_timeout_names_the_rank_that_the_work_was_with_and_waits_for_no_news(monkeypatch: pytest.MonkeyPatch) -> None:
    for quiet, state in [(set[int](), "busy elsewhere"), ({2}, "stopped, or cut off")]:
        alone = Alone(monkeypatch)
        alone.dog.quiet = quiet | {3}
        with pytest.raises(CollectiveTimeout) as found:
            alone.guard.wait(Work("Timed out waiting 4000ms for recv"), 7, FOUR, 2)
        assert found.value.ranks == (2,)
        assert str(found.value).splitlines()[:2] == [
            "all_gather (sequence 7, at train.py:3) waited 4 s for rank 2.",
            f"  {alone.dog.peers[2]}: {state}",
        ]
        assert alone.dog.asked == [([1, 2, 3], 0.0)]


@pytest.mark.parametrize(
    ("awaits", "quiet", "blamed"),
    [
        ({1: (3,), 2: (3,)}, set[int](), (3,)),  # one that all others wait for, directly or not
        ({1: (2,), 2: (3,)}, set[int](), (3,)),
        ({1: (3,), 3: (2,)}, {3}, (2, 3)),  # what 3 waited for when it was heard last may have come since
        ({1: (3,), 2: (0,)}, set[int](), (3,)),
        ({1: (2,), 2: (1,)}, set[int](), (1, 2)),  # a circle
        ({2: (1,)}, set[int](), (1,)),
        ({}, set[int](), (1, 2)),
    ],
)
def test_who_is_late_because_of_others_is_not_to_blame(
    monkeypatch: pytest.MonkeyPatch, awaits: dict[int, tuple[int, ...]], quiet: set[int], blamed: tuple[int, ...]
) -> None:
    """Ranks 1 and 2 do not come; rank 3 is of another group."""
    alone, call = Alone(monkeypatch), CALL._replace(ranks=(0, 1, 2))
    alone.steps, alone.dog.quiet = [alone.at(54.1)], quiet
    for rank, others in awaits.items():
        alone.dog.peers[rank].awaits = others
    with pytest.raises(CollectiveTimeout) as found:
        alone.guard.before(7, call)
    lines = str(found.value).splitlines()
    assert tuple(found.value.ranks) == blamed
    assert lines[0].endswith("waited 4 s for ranks 1, 2.")
    shown = sorted({1, 2, *blamed})
    assert [line.partition(":")[0] for line in lines[1 : 1 + len(shown)]] == [f"  rank {rank}" for rank in shown]
    names = f"rank{'s' * (len(blamed) > 1)} {', '.join(map(str, blamed))}"
    assert (f"  in the end all of them wait for {names}." in lines) == (blamed != (1, 2))


def test_a_connection_with_what_is_not_ours_is_of_one_that_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Alone(monkeypatch)
    alone.lines[2].closed = alone.lines[2].is_garbled = True
    with pytest.raises(RankLost, match="rank 2: it sent what cannot be read") as found:
        alone.guard.before(7, FOUR)
    assert found.value.ranks == (2,)
    assert alone.dog.refused == [2]


def test_what_is_known_of_a_late_one_is_of_the_moment_of_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was stopped comes back while the others are asked about."""
    alone = Alone(monkeypatch)
    alone.dog.quiet = {3}
    monkeypatch.setattr(alone.dog, "find_gone", lambda ranks, patience: alone.dog.quiet.clear() or [])
    found = alone.guard.failure(RuntimeError("Timed out"), 7, FOUR)
    assert isinstance(found, CollectiveTimeout)
    assert found.ranks == (3,)
    assert "stopped, or cut off" in str(found)


def test_news_come_sooner_than_a_launcher_ends_those_that_stay() -> None:
    grace = signature(launch).parameters["grace"].default
    assert grace > guarding.NEWS + 0.5


def test_a_failure_names_the_rank_that_the_work_was_with(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Alone(monkeypatch)
    found = alone.guard.failure(RuntimeError("Connection reset"), 7, FOUR, 2)
    assert f"failed in torch.distributed with {alone.dog.peers[2]}:\n  Connection reset" in str(found)
    assert isinstance(found, CollectiveError)
    assert found.ranks == (2,)
    assert alone.dog.asked == [([1, 2, 3], guarding.NEWS)]


def test_other_failures_of_the_library_are_told_with_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Alone(monkeypatch)
    found = alone.guard.failure(RuntimeError("no memory"), 7, FOUR)
    text = "all_gather (sequence 7, at train.py:3) failed in torch.distributed:\n  no memory" + guarding.KEPT
    assert str(found) == text
    assert alone.dog.told == [
        {"error": "CollectiveError", "text": text, "ranks": (0, 1, 2, 3), "step": "all_gather", "sequence": 7}
    ]
    start = Alone(monkeypatch).guard.start_failure(RuntimeError("no memory"), 3)
    assert isinstance(start, CollectiveError)
    assert (start.ranks, start.step, start.sequence) == ((0, 1, 2), "init", 0)


def test_what_never_came_tells_why(monkeypatch: pytest.MonkeyPatch) -> None:
    begins = "a value that was under way at sequence 6, or made of it, never came:\n  "
    alone = Alone(monkeypatch)
    found = alone.guard.explain_unfinished(6)
    assert (type(found), str(found)) == (CollectiveError, begins + "NCCL was stopped.")
    assert (found.ranks, found.step, found.sequence) == ((0,), "", 6)
    assert alone.dog.asked == [([1, 2, 3], guarding.NEWS)]
    alone.dog.peers[2].gone, alone.dog.sequence = "it crashed", 8
    found = alone.guard.explain_unfinished(6)
    assert isinstance(found, RankLost)
    assert (found.ranks, found.step, found.sequence) == ((2,), "reading", 8)
    again = alone.guard.explain_unfinished(6)
    assert str(again) == str(found)
    assert len(alone.dog.asked) == 2  # the error that is known is not asked for again


def test_giving_up_is_told_once_and_not_by_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Alone(monkeypatch)
    alone.dog.sequence = 5
    with monkeypatch.context() as patch:
        patch.setattr(CollectiveGuard, "is_here", False)
        alone.guard.give_up(ValueError("bad"))
        assert alone.dog.told == []
    alone.guard.give_up(ValueError("x" * 501))
    (said,) = alone.dog.told
    assert said["text"] == f"rank 0 gave up at sequence 5: ValueError: {'x' * 500}" + guarding.KEPT
    assert (said["error"], said["ranks"], said["sequence"], said["step"]) == ("RankLost", (0,), 5, "")
    alone.guard.give_up(ValueError("again"))
    assert len(alone.dog.told) == 1


def test_long_texts_are_cut_before_they_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Alone(monkeypatch)
    found = alone.guard.failure(RuntimeError("y" * 5000), 7, FOUR)
    assert len(str(found)) > 5000
    assert alone.dog.told[0]["text"] == str(found)[:4000]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (None, ("it came to the end of its program, or raised SystemExit", True)),
        (KeyboardInterrupt(), ("it left with KeyboardInterrupt", False)),
        (ValueError("bad luck"), ("it left with ValueError: bad luck", False)),
    ],
)
def test_goodbyes_say_why(monkeypatch: pytest.MonkeyPatch, error: BaseException | None, said: tuple[str, bool]) -> None:
    alone = Alone(monkeypatch)
    alone.guard.close(error)
    assert alone.dog.ends == [said]
    assert alone.dog.forgot == 0
    assert all(line.ended for line in alone.lines.values())


def test_a_fork_closes_its_ends_and_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Alone(monkeypatch)
    assert alone.guard.is_here
    monkeypatch.setattr(CollectiveGuard, "is_here", False)
    alone.guard._forget()
    assert alone.dog.forgot == 1
    assert all(line.ended for line in alone.lines.values())
    alone.guard.close()
    assert alone.dog.ends == []


def test_a_fork_forgets_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(os, "register_at_fork", lambda **what: asked.append(what))
    alone = Alone(monkeypatch)
    assert asked == [{"after_in_child": alone.guard._forget}]


def test_different_meshes_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    for meshes, words in [("DeviceMesh(x=4)", True), ("", False)]:
        alone = Alone(monkeypatch)
        alone.comes(1, FOUR._replace(meshes=meshes, dtype="int8"))
        with pytest.raises(CollectiveMismatch) as found:
            alone.guard.before(7, FOUR)
        text = str(found.value)
        assert text.startswith("ranks 0 and 1 came to different calls; no data was moved.\n  rank 0: all_gather of flo")
        assert "\n  rank 1: all_gather of int8[8]" in text
        assert ("init(mesh=...) compares them at the start." in text) == words
        assert ("meshes are the same if their axes, devices and names are." in text) == words
        assert (found.value.ranks, found.value.step, found.value.sequence) == ((0, 1), "all_gather", 7)


def test_a_thread_that_has_ended_leaves_its_place_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Alone(monkeypatch)
    alone.guard._thread = -1  # no thread that runs
    for rank in (1, 2, 3):
        alone.comes(rank, FOUR)
    alone.guard.before(1, FOUR)
    assert alone.dog.owner == threading.get_ident()


def test_a_wait_ends_when_something_comes_or_the_watchdog_wakes_it() -> None:
    one, other = socket.socketpair()
    made = CollectiveGuard(0, {"calls": {}, "beats": {}}, QUICK)
    channel = Channel(one, 1)
    for nudge in (lambda: made.watchdog._nudge(made.watchdog._wakes), lambda: other.send(b"!")):
        nudge()
        start = monotonic()
        made._look([channel], 20.0)
        assert monotonic() - start < 10
        with pytest.raises(BlockingIOError):
            made.watchdog.woken.recv(1)  # what woke it is read
    one.recv(1)
    start = monotonic()
    made._look([channel], 0.03)  # seconds, where poll has milliseconds
    assert 0.02 < monotonic() - start < 5
    made.close()
    channel.close()
    other.close()


# -- who is late, what is recorded, and iterations -------------------------------------------------------------


def test_for_whom_it_waits_is_said_to_the_watchdog_only_when_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Alone(monkeypatch)
    waits: list[Any] = []

    def late() -> None:
        waits.append(alone.dog.stragglers.wait)
        alone.at(51.0, r2=FOUR)()

    alone.steps = [alone.at(50.01), alone.at(50.5, r1=FOUR), late, alone.at(51.5, r3=FOUR)]
    alone.guard.before(7, FOUR)
    assert alone.dog.waits == [None, None, [2, 3], [3]]
    (wait,) = waits
    assert (wait.call, wait.sequence, wait.line, wait.since, wait.due, wait.end) == (
        *(FOUR, 7, "train.py:3", 50.0),
        *(51.0, 54.0),
    )
    assert wait.tells  # of ranks 0 and 1, who wait, it is the first
    assert alone.dog.stragglers.wait is None
    for now in (52.0, 53.0):
        for rank in (1, 2, 3):
            alone.comes(rank, FOUR, number=int(now - 50))
        alone.now = now
        alone.guard.before(int(now), FOUR)
    assert alone.guard._pace.usual("train.py:3", "ab12") == pytest.approx(0.5 + 0.25 * 0.5)


def test_of_those_who_wait_the_first_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Alone(monkeypatch)
    alone.guard.rank = 2
    alone.lines[0] = alone.guard._channels[0] = Line(0)  # type: ignore[assignment]
    alone.dog.peers[0] = Peer(0, 0.0)
    tells: list[bool] = []

    def come(rank: int) -> None:
        tells.append(alone.dog.stragglers.wait.tells)
        alone.comes(rank, FOUR)

    alone.steps = [alone.at(50.5), lambda: come(1), lambda: come(0), lambda: come(3)]
    alone.guard.before(7, FOUR)
    assert tells == [True, False, False]  # until rank 1 has come, which then waits too


def test_a_wait_that_ends_with_an_error_is_no_wait_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Alone(monkeypatch)

    def interrupt() -> None:
        raise KeyboardInterrupt

    alone.steps = [alone.at(50.5), interrupt]
    with pytest.raises(KeyboardInterrupt):
        alone.guard.before(7, FOUR)
    assert alone.dog.stragglers.wait is None


def test_work_with_one_rank_is_a_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Alone(monkeypatch)
    waits: list[Any] = []
    work = SimpleNamespace(wait=lambda: waits.append(alone.dog.stragglers.wait))
    alone.guard.wait(work, 7, FOUR, 2)
    alone.guard.wait(work, 7, FOUR)
    assert (waits[0].ranks, waits[0].since, waits[0].due, waits[0].end, waits[0].tells) == (
        (2,),
        50.0,
        51.0,
        54.0,
        True,
    )
    assert waits[1] is None
    assert alone.dog.stragglers.wait is None


class Book:
    """A recorder that keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def begin(self, *call: Any) -> int:
        self.said.append(("begin", *call))
        return 40 + len(self.said)

    def __getattr__(self, name: str) -> Any:
        return lambda *what: self.said.append((name, *what))


def test_calls_and_events_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    alone, book = Alone(monkeypatch), cast("Any", Book())
    alone.guard.recorder = book
    assert alone.guard.recorder is book
    alone.steps = [alone.at(50.5, r1=FOUR), alone.at(51.0, r2=FOUR), alone.at(51.5, r3=FOUR)]
    alone.guard.before(7, FOUR)
    what = "all_gather of float32[8] [x] -> [-]; plan ab12"
    assert book.said == [
        ("begin", 7, 1, what, "train.py:3", None, (0, 1, 2, 3)),
        ("wait_for", 41, [2, 3]),
        ("wait_for", 41, [3]),
        ("agree", 41),
    ]
    assert alone.guard.slot == 41
    book.said.clear()
    alone.lines[2].closed = True
    alone.dog.peers[2].gone = "it crashed"
    with sw.step(12), pytest.raises(RankLost) as found:
        alone.guard.before(8, FOUR)
    assert book.said == [
        ("begin", 8, 2, what, "train.py:3", 12, (0, 1, 2, 3)),
        ("fail", 41, f"RankLost: {found.value}", (2,)),
        ("dump", "rank 2 was lost: rank 0 came to all_gather (sequence 8) at train.py:3."),
    ]
    alone.dog.on_event("rank 2: it crashed")
    alone.dog.on_beat("train.py:4")
    assert book.said[3:] == [("note", "rank 2: it crashed"), ("beat", "train.py:4")]


def test_what_another_says_is_recorded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    alone, book = Alone(monkeypatch), cast("Any", Book())
    alone.guard.recorder = book
    alone.steps = [lambda: setattr(alone.dog, "stopped", SAID | {"by": 3})]
    with pytest.raises(RankLost):
        alone.guard.before(7, FOUR)
    assert book.said[-2:] == [("fail", 41, "RankLost: rank 3 was lost", (3,)), ("dump", "rank 3 was lost")]


@pytest.mark.parametrize(("clock", "ranks"), [(50.0, (1,)), (50.5, ())], ids=["has just come", "has waited"])
def test_who_waits_in_vain_itself_keeps_for_whom(
    monkeypatch: pytest.MonkeyPatch, clock: float, ranks: tuple[int, ...]
) -> None:
    said = SAID | {"by": 3, "error": "CollectiveTimeout", "text": "waited 5 s for rank 1", "ranks": (1,)}
    alone, book = Alone(monkeypatch), cast("Any", Book())
    alone.guard.recorder = book
    alone.steps = [alone.at(clock, r1=FOUR), lambda: setattr(alone.dog, "stopped", said)]
    with pytest.raises(CollectiveTimeout):
        alone.guard.before(7, FOUR)
    assert book.said[-2] == ("fail", 41, "CollectiveTimeout: waited 5 s for rank 1", ranks)


def test_a_start_is_recorded_as_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    alone, book = Alone(monkeypatch), cast("Any", Book())
    alone.guard.begin_start(3)
    alone.guard.end_start()
    alone.guard.recorder = book
    alone.guard.begin_start(3)
    alone.guard.end_start()
    assert book.said == [("begin", 0, 0, "init", "train.py:3", None, (0, 1, 2)), ("agree", 41), ("end", 41, 0, 0)]


def test_a_call_that_cannot_be_read_is_of_one_that_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    for body in (b"", b"\xff" * 99, b"GET / HTTP/1.1"):
        alone = Alone(monkeypatch)
        alone.lines[2].came.append(body)
        with pytest.raises(RankLost, match="rank 2: it sent what cannot be read; its last sequence was 0") as found:
            alone.guard.before(7, FOUR)
        assert found.value.ranks == (2,)
        assert alone.dog.refused == [2]


def test_calls_of_different_iterations_do_not_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarding, "RUMOUR", 0.01)
    alone = Alone(monkeypatch)
    alone.dog.peers[1].trouble = "ValueError: bad luck at train.py:2, out of iteration 5 (entry 6)"
    gc.collect()  # errors of other tests, which are noted when they go
    farewell.note_error(KeyError("mine"))
    there = Fingerprint(FOUR, 1, 9, "other.py:5", (Place(6, 7),))
    alone.lines[1].came.append(encode(there))
    with sw.step(5), pytest.raises(CollectiveMismatch) as found:
        alone.guard.before(7, FOUR)
    text = str(found.value)
    assert re.search(r"\n  rank 0: all_gather .*; in iteration 5 \(entry \d+\), sequence 7, at train.py:3\n", text)
    assert "; in iteration 6 (entry 7), sequence 9, at other.py:5\n  different: iteration\n" in text
    assert (
        "\n  one of them skipped an iteration, or entered it again."
        "\n  rank 0 had gone on after KeyError: 'mine'"
        "\n  rank 1 had gone on after ValueError: bad luck at train.py:2, out of iteration 5 (entry 6)\n"
    ) in text
    assert text.endswith(guarding.KEPT)
    assert found.value.ranks == (0, 1)


def test_a_call_outside_of_iterations_does_not_pair_with_one_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarding, "RUMOUR", 0.01)
    alone = Alone(monkeypatch)
    alone.comes(1, FOUR)
    with sw.step(5), pytest.raises(CollectiveMismatch, match="different: iteration\n") as found:
        alone.guard.before(7, FOUR)
    assert "\n  one of them is in a step that the other is not in.\n" in str(found.value)


def test_equal_iterations_pair(at_once: Any) -> None:
    def loop(guard: CollectiveGuard) -> None:
        for i in range(1000, 1005):
            with sw.step(i):
                guard.before(i, CALL)

    assert at_once(*[loop] * 3) == [None] * 3


def test_one_that_skips_an_iteration_is_told_from_the_others(at_once: Any) -> None:
    def loop(*numbers: int) -> Callable[[CollectiveGuard], None]:
        def run(guard: CollectiveGuard) -> None:
            for i in numbers:
                with sw.step(i):
                    guard.before(i, CALL)

        return run

    found = at_once(loop(0, 1, 2), loop(0, 2), loop(0, 1, 2))
    assert [type(error) for error in found] == [CollectiveMismatch] * 3
    assert all("different: iteration\n" in str(error) for error in found)
