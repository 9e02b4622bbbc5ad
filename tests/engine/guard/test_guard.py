"""The guard of several ranks in one process: threads that talk over real connections."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from time import monotonic, sleep
from typing import Any

import pytest

from shardwise import CollectiveError, CollectiveMismatch, CollectiveTimeout, EngineError, RankLost
from shardwise.engine.call import Call
from shardwise.engine.guard import guard as guarding
from shardwise.engine.guard import watchdog as watching
from shardwise.engine.guard.channel import Channel
from shardwise.engine.guard.fingerprint import Fingerprint, decode, encode
from shardwise.engine.guard.guard import CollectiveGuard
from shardwise.engine.guard.watchdog import Peer
from shardwise.engine.settings import Settings

CALL = Call("all_gather", (0, 1, 2), (8,), "float32", "[x]", "[-]", None, None, "ab12")
QUICK = Settings(timeout=1.0, heartbeat=0.1)

Guards = list[CollectiveGuard]


@pytest.fixture
def guards() -> Iterator[Guards]:
    channels: list[dict[str, dict[int, Channel]]] = [{"calls": {}, "beats": {}} for _ in range(3)]
    for a, b in ((0, 1), (0, 2), (1, 2)):
        for kind in ("calls", "beats"):
            one, other = socket.socketpair()
            channels[a][kind][b], channels[b][kind][a] = Channel(one, b), Channel(other, a)
    made = [CollectiveGuard(rank, channels[rank], QUICK) for rank in range(3)]
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


def test_who_does_not_come_is_named(at_once: Any) -> None:
    start = monotonic()
    found = at_once(comes(), comes(), lambda guard: sleep(2))
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
    end = monotonic() + 20
    while guards[2].watchdog.peers[0].sequence != 1 and monotonic() < end:
        sleep(0.01)
    assert guards[2].watchdog.peers[0].sequence == 1
    assert not guards[2].watchdog.silent(0)


# -- one guard alone: peers that say what the test says, by a clock that stands still ---------------------


class Line:
    """What stands in for a channel: what comes is what the test put there."""

    def __init__(self, rank: int) -> None:
        self.rank, self.fd, self.closed, self.ended = rank, 1000 + rank, False, False
        self.sent, self.came = list[bytes](), list[bytes]()

    def send(self, body: bytes) -> None:
        self.sent.append(body)

    def receive(self) -> bytes | None:
        return self.came.pop(0) if self.came else None

    def close(self) -> None:
        self.ended = True


class Dog:
    """What stands in for the watchdog: it knows what the test says, and keeps what it is told."""

    def __init__(self, channels: dict[int, Line], heartbeat: float) -> None:
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

    def silent(self, rank: int) -> bool:
        return rank in self.quiet


class Alone:
    """The guard of rank 0 of four."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.looks = 50.0, list[tuple[list[int], float]]()
        self.lines = {rank: Line(rank) for rank in (1, 2, 3)}
        monkeypatch.setattr(guarding, "Watchdog", Dog)
        monkeypatch.setattr(guarding, "monotonic", lambda: self.now)
        monkeypatch.setattr(watching, "monotonic", lambda: self.now)  # by which peers say when they were heard
        monkeypatch.setattr(guarding, "user_line", lambda: "train.py:3")
        channels: Any = {"calls": self.lines, "beats": self.lines}
        self.guard = CollectiveGuard(0, channels, Settings(timeout=4.0, heartbeat=0.25))
        self.dog: Any = self.guard.watchdog
        monkeypatch.setattr(self.guard, "_look", self._look)
        self.steps: list[Callable[[], None]] = []  # what happens while it looks, one after the other

    def _look(self, waiting: Any, seconds: float) -> None:
        self.looks.append(([line.rank for line in waiting], seconds))
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
    assert guarding.NEWS == 5.0


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
    assert alone.dog.asked == [([2], 5.0)]


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
    assert alone.dog.asked == [([1, 2, 3], 5.0)]
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
        (None, ("it left, cleanly", True)),
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
