"""How a process is connected with all others, and leaves: two ranks that are threads, and torch as it is asked."""

import os
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Event
from time import monotonic, sleep
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from shardwise.engine.call import Call
from shardwise.engine.farewell import brief
from shardwise.engine.guard.peer_store import KeyTable
from shardwise.engine.meeting.channel import KINDS, Channel
from shardwise.engine.meeting.rendezvous import Card, Meeting
from shardwise.engine.process import connection
from shardwise.engine.process.connection import Connection, connect
from shardwise.engine.recording.timeline import read_timeline
from shardwise.engine.settings import Settings
from shardwise.errors import CollectiveTimeout, RankLost
from tests.engine.guard.watchdogs import close

SOON = 20.0
CALL = Call("permute", (0, 1), (4,), "int8", "[x]", "[x]", None, None, "digest")


@contextmanager
def connected(size: int, guard: bool, timeout: float = SOON) -> Iterator[list[Connection]]:
    """Connections between ranks of this process, with groups of gloo that are not torch's default."""
    channels: list[Any] = [{kind: {} for kind in KINDS} for _ in range(size)]
    for one in range(size):
        for two in range(one):
            for kind in KINDS:
                ends = socket.socketpair()
                channels[one][kind][two], channels[two][kind][one] = Channel(ends[0], two), Channel(ends[1], one)
    cards = {rank: Card(rank, size, "", "", guard, "", f"host:{rank}") for rank in range(size)}
    setup = Settings(timeout=timeout, heartbeat=0.2, guard=guard)

    def make(rank: int) -> Connection:
        return connect(rank, size, setup, Meeting(cards, channels[rank], "job", "127.0.0.1"), True)

    with ThreadPoolExecutor(size) as threads:
        links = list(threads.map(make, range(size)))
    try:
        yield links
    finally:
        for link in links:
            close(link.watchdog)
            if link.guard is not None:
                link.guard._forget()


def bytes_(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.uint8)


@pytest.fixture
def loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(connection.INTERFACE, raising=False)


@pytest.mark.parametrize("guard", [True, False])
def test_ranks_send_each_other_messages(loopback: None, guard: bool) -> None:
    with connected(2, guard) as links:
        assert os.environ[connection.INTERFACE] == "lo"  # so that gloo listens where others reach us, and nowhere else

        def turn(link: Connection) -> list[int]:
            out = bytes_(0, 0)
            other = 1 - link.wire.rank
            link.wire.send(CALL, [(other, out)], [(other, bytes_(link.wire.rank, 7))]).wait()
            return out.tolist()

        with ThreadPoolExecutor(2) as threads:
            assert list(threads.map(turn, links)) == [[1, 7], [0, 7]]


def test_one_that_is_ahead_is_heard_when_it_can_be_answered(loopback: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 1 asks for the keys of rank 0 before rank 0 keeps any."""

    def make_late(watchdog: Any, rank: int) -> KeyTable:
        sleep(0.3 if rank == 0 else 0)
        return KeyTable(watchdog, rank)

    monkeypatch.setattr(connection, "KeyTable", make_late)
    with connected(2, True) as links:
        assert [link.watchdog.peers[1 - rank].gone for rank, link in enumerate(links)] == [None, None]


def test_who_waits_for_data_is_told_when_another_stops(loopback: None) -> None:
    with connected(3, True) as links:

        def wait(link: Connection) -> Any:
            link.wire.guard = None  # all have come to the call, and one of them does not send
            with pytest.raises(RuntimeError, match="closed"):  # in the call, if it begins after the news came
                link.wire.send(CALL, [(0, bytes_(0))], []).wait()
            return monotonic()

        with ThreadPoolExecutor(2) as threads:
            waiting = [threads.submit(wait, link) for link in links[1:]]
            start = monotonic()
            assert links[0].guard is not None
            links[0].guard.give_up(MemoryError("no memory"))
            assert all(one.result() - start < SOON / 2 for one in waiting)


def test_torch_that_cannot_connect_is_explained_by_the_guard(loopback: None, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[Any] = []

    def fail(*told: Any) -> Any:
        raise RuntimeError("Connection closed by peer")

    monkeypatch.setattr(connection, "_make_world", fail)
    monkeypatch.setattr(connection.CollectiveGuard, "close", lambda guard, error: (left.append(error) or False, "left"))
    with pytest.raises(RuntimeError, match="Connection closed by peer"), connected(2, False):
        pass
    with pytest.raises(RuntimeError, match=r"init \(sequence 0.* failed in torch.distributed"), connected(2, True):
        pass
    assert len(left) == 2


def test_one_that_is_interrupted_while_torch_connects_says_so(loopback: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*told: Any) -> Any:
        raise KeyboardInterrupt

    left: list[BaseException] = []
    monkeypatch.setattr(connection, "_make_world", interrupt)
    monkeypatch.setattr(connection.CollectiveGuard, "close", lambda guard, error: (left.append(error) or False, "left"))
    with pytest.raises(KeyboardInterrupt) as caught, connected(1, True):
        pass
    assert left == [caught.value]


@pytest.mark.parametrize("where", ["store", "library"])
@pytest.mark.parametrize("how", ["lost", "silent"])
def test_whoever_is_missing_when_nccl_connects_is_named(
    loopback: None, monkeypatch: pytest.MonkeyPatch, where: str, how: str
) -> None:
    """NCCL waits without end: what stands in for it is waited for by a process whose peer goes, or never comes."""
    asked: list[Any] = []
    never = Event()

    class Nccl:
        class Options: ...

        def __init__(self, store: Any, rank: int, size: int, options: Any) -> None:
            asked.append((rank, size, options._timeout))
            self.store = store

        def eager_connect_single_device(self, device: Any) -> None:
            if where == "store":
                self.store.get("the number that rank 0 of the group sets")
            else:
                never.wait()

    monkeypatch.setattr(dist, "ProcessGroupNCCL", Nccl, raising=False)
    timeout = SOON if how == "lost" else 2.0  # in which they connect, too
    with connected(3, True, timeout) as links, ThreadPoolExecutor(1) as threads:
        guard: Any = links[2].guard
        waiting = threads.submit(links[2].wire.groups.get, (1, 2), torch.device("cuda", 0))
        start = monotonic()
        if how == "lost":
            links[1].watchdog.end("it failed", clean=False)
        with pytest.raises(RuntimeError) as caught:
            waiting.result(SOON)
        assert monotonic() - start < SOON / 2
        if how == "silent":
            monkeypatch.setattr(guard.watchdog, "silent", lambda rank: rank == 1)
        error = guard.failure(caught.value, 1, CALL._replace(ranks=(1, 2)))
        assert type(error) is (RankLost if how == "lost" else CollectiveTimeout)
        assert error.ranks == (1,)
        assert links[2].wire.groups.abandoned == {(1, 2)}
    never.set()
    assert asked == [(1, 2, timedelta(seconds=timeout))]


# -- what is asked of torch, without processes ---------------------------------------------------------------


class Guarding:
    """What stands in for a guard."""

    def __init__(self) -> None:
        self.closed = list[Any]()

    def close(self, error: BaseException | None = None) -> tuple[bool, str]:
        self.closed.append(error)
        return error is None, brief(error) if error else "at its end"


class Recording:
    """What stands in for a recorder."""

    def __init__(self) -> None:
        self.closed = list[Any]()

    def close(self, clean: bool, reason: str) -> None:
        self.closed.append((clean, reason))


class Wiring:
    def __init__(self, abandoned: bool = False) -> None:
        self.settled = self.closed = 0
        self.groups = SimpleNamespace(abandoned=abandoned)

    def settle(self) -> None:
        self.settled += 1

    def close(self) -> None:
        self.closed += 1


def linked(wire: Any, guard: Any, is_of_user: bool = False, fork: bool = False, recorder: Any = None) -> Connection:
    return Connection(wire, cast(Any, None), guard, cast(Any, recorder or Recording()), is_of_user, os.getpid() + fork)


@pytest.fixture
def joining(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    asked: list[Any] = []
    for name in connection.NCCL_OFF:
        monkeypatch.setenv(name, "kept")
        monkeypatch.delenv(name)  # so that it is taken back after the test
    monkeypatch.setattr(dist, "init_process_group", lambda *names, **options: asked.append((names, options)))
    world = SimpleNamespace(_get_backend=lambda device: f"the group of {device}")
    monkeypatch.setattr(dist, "group", SimpleNamespace(WORLD=world))
    return asked


@pytest.mark.parametrize(("cuda", "nccl"), [(True, True), (True, False), (False, True)])
def test_nccl_is_used_where_both_are_there(
    joining: list[Any], monkeypatch: pytest.MonkeyPatch, cuda: bool, nccl: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(dist, "is_nccl_available", lambda: nccl)
    store: Any = HashStore()
    assert connection._join(store, 1, 3, Settings(timeout=7.0, guard=False)) == "the group of cpu"
    (((name,), options),) = joining
    assert name == ("cpu:gloo,cuda:nccl" if cuda and nccl else "gloo")
    assert (options["rank"], options["world_size"], options["timeout"]) == (1, 3, timedelta(seconds=7))
    assert options["store"] is store
    assert not any(name in os.environ for name in connection.NCCL_OFF)


def test_with_a_guard_torch_does_not_end_the_process(joining: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(connection.NCCL_OFF[1], "5")
    connection._join(cast(Any, HashStore()), 1, 3, Settings())
    assert os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "0"
    assert os.environ["TORCH_FR_BUFFER_SIZE"] == "5"  # as the user says


def test_goodbyes_tell_the_error_that_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    guard, wire, recorder = cast(Any, Guarding()), cast(Any, Wiring()), Recording()
    monkeypatch.setattr(sys, "last_value", None, raising=False)
    linked(wire, guard, recorder=recorder).say_goodbye()
    assert (guard.closed, wire.settled) == ([None], 1)  # others still wait for what is under way
    linked(wire, guard, fork=True, recorder=recorder).say_goodbye()
    assert (guard.closed, wire.settled) == ([None], 1)
    error = ValueError("bad")
    monkeypatch.setattr(sys, "last_value", error)
    linked(wire, guard, recorder=recorder).say_goodbye()
    assert (guard.closed, wire.settled) == ([None, error], 1)
    assert recorder.closed == [(True, "at its end"), (False, "ValueError: bad")]


@pytest.mark.parametrize(
    ("fork", "abandoned", "is_of_user", "there", "does"),
    [
        (True, False, False, True, (0, 0, 0)),
        (False, False, False, True, (1, 0, 1)),
        (False, False, True, True, (1, 0, 0)),  # the user sees to its end
        (False, False, False, False, (1, 0, 0)),
        (False, True, False, True, (1, 2, 0)),
    ],
)
def test_leaving_ends_what_was_started(
    monkeypatch: pytest.MonkeyPatch, fork: bool, abandoned: bool, is_of_user: bool, there: bool, does: tuple[int, ...]
) -> None:
    disowned, destroyed, wire = list[Any](), list[int](), cast(Any, Wiring(abandoned))
    monkeypatch.setattr(connection, "disown", lambda *objects: disowned.extend(objects))
    monkeypatch.setattr(dist, "is_initialized", lambda: there)
    monkeypatch.setattr(dist, "destroy_process_group", lambda: destroyed.append(1))
    linked(wire, None, is_of_user, fork).leave()
    assert (wire.closed, len(disowned), len(destroyed)) == does


def test_what_is_disowned_is_never_deleted() -> None:
    value = object()
    before = sys.getrefcount(value)
    connection.disown(value, value)
    assert sys.getrefcount(value) == before + 2


def test_the_start_is_recorded_as_a_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SHARDWISE_RECORD", str(tmp_path))
    with connected(2, True) as links:
        timeline = read_timeline(tmp_path)
        (meeting,) = timeline.meetings
        assert [entry.what for entry in meeting.entries] == ["init", "init"]
        assert all(entry.is_done and entry.group == "0,1" for entry in meeting.entries)
        for link in links:
            link.recorder.close(clean=True)
    assert list(tmp_path.iterdir()) == []


def test_a_clean_end_leaves_no_folder_of_the_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SHARDWISE_RECORD", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with connected(2, True) as links:
        home = tmp_path / f"shardwise-{os.geteuid()}"
        assert [path.name for path in home.iterdir()] == ["job"]
        for link in links:
            link.recorder.close(clean=True)
    assert list(home.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SHARDWISE_RECORD", str(tmp_path / "file"))
    monkeypatch.setattr(connection, "log", lambda write, text: write(text))
    with connected(1, True) as (link,):
        assert link.recorder.path is None
    assert f"what rank 0 does is not recorded: {tmp_path}/file/rank-0.record: [Errno 20] Not a directory" in caplog.text
