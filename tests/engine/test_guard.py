"""The guard of several ranks in one process: threads that talk over real connections."""

import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from time import monotonic, sleep
from typing import Any

import pytest

from shardwise import CollectiveError, CollectiveMismatch, CollectiveTimeout, EngineError, RankLost
from shardwise.engine.call import Call
from shardwise.engine.channel import Channel
from shardwise.engine.guard import CollectiveGuard
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


def test_failures_of_the_library_are_explained(at_once: Any) -> None:
    assert at_once(*[comes()] * 3) == [None] * 3
    broken = at_once(lambda guard: guard.wait(Work("Connection reset"), 1, CALL), lambda guard: None)
    assert type(broken[0]) is CollectiveError
    assert "all_gather (sequence 1, at " in str(broken[0])
    assert "failed in torch.distributed:\n  Connection reset" in str(broken[0])
    told = at_once(lambda guard: None, comes(2))
    assert "rank 0 stopped, and this is rank 1: all_gather (sequence 1" in str(told[1])


def test_a_timeout_of_the_library_names_who_is_late(at_once: Any) -> None:
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
