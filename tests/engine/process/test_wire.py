"""The wire, with groups that only write down what they are asked: the order of things, and who is told of what."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from shardwise.engine.call import Call
from shardwise.engine.process import wire as module
from shardwise.engine.process.wire import Pending, Wire
from shardwise.errors import CollectiveError, EngineError

CALL = Call("all_gather", (0, 2), (4,), "int8", "[x]", "[-]", None, None, "digest")


class Work:
    def __init__(self, name: str, seen: list[Any]) -> None:
        self.name, self.seen = name, seen

    def wait(self) -> None:
        self.seen.append(("wait", self.name))


class Group:
    """A process group that writes down its calls."""

    def __init__(self, seen: list[Any], fails: bool = False) -> None:
        self.seen, self.fails = seen, fails

    def _work(self, name: str, *args: Any) -> Work:
        if self.fails:
            raise RuntimeError("connection reset")
        self.seen.append((name, *args))
        return Work(name, self.seen)

    def alltoall_base(self, out: Any, given: Any, sizes: Any, splits: Any) -> Work:
        return self._work("alltoall_base", out.tolist(), given.tolist(), sizes, splits)

    def _allgather_base(self, out: Any, given: Any) -> Work:
        return self._work("allgather", out.tolist(), given.tolist())

    def send(self, letters: Any, rank: int, tag: int) -> Work:
        return self._work("send", letters[0].tolist(), rank, tag)

    def recv(self, letters: Any, rank: int, tag: int) -> Work:
        return self._work("recv", letters[0].tolist(), rank, tag)

    def alltoall(self, outs: Any, given: Any) -> Work:
        return self._work("alltoall", [o.tolist() for o in outs], [g.tolist() for g in given])


class Watch:
    """A guard that writes down what it is told, and may refuse."""

    def __init__(self, seen: list[Any], refuses: Exception | None = None) -> None:
        self.seen, self.refuses = seen, refuses

    def before(self, sequence: int, call: Call) -> None:
        self.seen.append(("before", sequence, call))
        if self.refuses is not None:
            raise self.refuses

    def wait(self, work: Any, sequence: int, call: Call) -> None:
        self.seen.append(("guarded", work.name, sequence))

    def failure(self, error: Exception, sequence: int, call: Call) -> Exception:
        return EngineError(f"call {sequence} failed: {error}.")

    def explain_unfinished(self, sequence: int) -> Exception:
        return EngineError(f"what call {sequence} brings never came.")

    def give_up(self, error: BaseException) -> None:
        self.seen.append(("give up", error))


@pytest.fixture
def seen() -> list[Any]:
    return []


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch, seen: list[Any]) -> Any:
    monkeypatch.setattr(dist, "get_rank", lambda: 2)
    monkeypatch.setattr(dist, "get_world_size", lambda: 3)
    monkeypatch.setattr(dist.distributed_c10d, "_get_default_store", lambda: "store")
    monkeypatch.setattr(module, "PrefixStore", lambda name, store: (name, store))
    made: Any = Wire(timeout=7.0)
    made.asked = []

    def group(ranks: tuple[int, ...], device: str) -> Group:
        made.asked.append((ranks, device))
        return Group(seen)

    made.groups._make = group
    return made


def bytes_(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.uint8)


def test_a_wire_knows_its_rank_and_numbers_its_calls_from_one(wire: Any, seen: list[Any]) -> None:
    assert (wire.rank, wire.size, wire.sequence, wire.timeout.total_seconds()) == (2, 3, 0, 7.0)
    assert wire.guard is None
    assert wire.store[1] == "store"
    wire.gather(CALL, bytes_(0, 0), bytes_(1))
    wire.send(CALL, [], [])
    assert wire.sequence == 2
    assert seen == [("allgather", [0, 0], [1])]


def test_an_exchange_is_one_call_of_the_library(wire: Any, seen: list[Any]) -> None:
    pending = wire.exchange(CALL, bytes_(0, 0), (2, 0), bytes_(1, 2, 3), (3, 0))
    assert seen == [("alltoall_base", [0, 0], [1, 2, 3], [2, 0], [3, 0])]
    assert wire.asked == [((0, 2), "cpu")]
    pending.arrive()
    assert seen[1:] == [("wait", "alltoall_base")]
    pending.wait()
    assert len(seen) == 2  # nothing is waited for twice


def test_messages_are_received_before_others_are_sent_and_all_is_waited_for_in_time(wire: Any, seen: list[Any]) -> None:
    pending = wire.send(CALL, [(0, bytes_(0)), (1, bytes_(0, 0))], [(1, bytes_(5))])
    assert [s[0] for s in seen] == ["recv", "recv", "send"]
    assert seen[2] == ("send", [5], 1, 0)
    assert seen[1] == ("recv", [0, 0], 1, 0)
    assert wire.asked == [((0, 1, 2), "cpu")]  # gloo needs no group of its own for that
    pending.arrive()
    assert seen[3:] == [("wait", "recv")] * 2
    pending.wait()
    assert seen[5:] == [("wait", "send")]
    pending.wait()
    assert len(seen) == 6


def test_a_guard_is_told_before_anything_is_started_and_waits_itself(wire: Any, seen: list[Any]) -> None:
    wire.guard = Watch(seen)
    wire.gather(CALL, bytes_(0), bytes_(1)).wait()
    assert seen == [("before", 1, CALL), ("allgather", [0], [1]), ("guarded", "allgather", 1)]
    wire.send(CALL, [(0, bytes_(0))], [(0, bytes_(0))]).arrive()
    assert wire.sequence == 2
    assert seen[3] == ("before", 2, CALL)
    assert seen[-1] == ("guarded", "recv", 2)


@pytest.mark.parametrize(("error", "abandons"), [(CollectiveError("no."), True), (EngineError("no."), False)])
def test_a_guard_that_refuses_stops_it(wire: Any, seen: list[Any], error: Exception, abandons: bool) -> None:
    wire.guard = Watch(seen, error)
    left: list[Any] = []
    wire.groups.abandon = lambda: left.append(True)
    with pytest.raises(type(error), match="no"):
        wire.gather(CALL, bytes_(0), bytes_(1))
    assert seen == [("before", 1, CALL)]
    assert left == ([True] if abandons else [])


def test_what_the_library_cannot_start_is_explained_by_the_guard(wire: Any, seen: list[Any]) -> None:
    wire.groups._make = lambda ranks, device: Group(seen, fails=True)
    with pytest.raises(RuntimeError, match="connection reset"):
        wire.gather(CALL, bytes_(0), bytes_(1))
    wire.guard = Watch(seen)
    with pytest.raises(EngineError, match=r"call 2 failed: connection reset\.") as caught:
        wire.gather(CALL, bytes_(0), bytes_(1))
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_what_may_depend_on_something_that_never_came_is_refused(wire: Any, seen: list[Any]) -> None:
    wire.guard = Watch(seen)
    wire.check(10**9)
    wire.groups.torn = 5
    wire.check(4)
    for sequence in (5, 6):
        with pytest.raises(EngineError, match="what call 5 brings never came"):
            wire.check(sequence)
    wire.guard = None
    wire.check(6)


def test_pending_tells_once_that_all_has_come(seen: list[Any]) -> None:
    told: list[str] = []
    works = [Work("one", seen)], [Work("two", seen)]
    pending = Pending(works, None, 1, CALL, lambda: told.append("come"))
    pending.arrive()
    pending.arrive()
    assert (seen, told) == ([("wait", "one")], ["come"])
    pending.wait()
    assert (seen, told) == ([("wait", "one"), ("wait", "two")], ["come"])


def test_a_call_on_an_accelerator_is_one_of_all_its_group(
    wire: Any, seen: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tracked: list[Any] = []
    settled: list[Any] = []

    class Event:
        def record(self, stream: Any) -> None:
            tracked.append(stream)

    device = torch.device("cpu")  # stands for one: only its tensors are made
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda at: ("stream", at))
    monkeypatch.setattr(torch.cuda, "synchronize", settled.append)
    wire.groups.track = lambda *args: tracked.append(args[:2])
    wire.settle()
    assert settled == []
    wire.guard = Watch(seen)
    pending = wire.send(CALL, [(0, bytes_(7, 7))], [(2, bytes_(8))], device)
    assert seen[1:] == [("alltoall", [[7, 7], []], [[], [8]])]  # in the order of the ranks, empty where nothing goes
    assert wire.asked == [((0, 2), "cuda")]
    assert tracked == []
    pending.arrive()
    assert tracked == [("stream", device), (1, (0, 2))]
    pending.wait()
    assert len(tracked) == 2
    wire.settle()
    assert settled == [device]
    wire.guard = None  # without one nothing is tracked
    wire.send(CALL, [], [], device).arrive()
    assert len(tracked) == 2


def test_the_group_of_all_is_that_of_torch_and_smaller_ones_are_made_by_their_members(
    wire: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    class World:
        def _get_backend(self, device: torch.device) -> str:
            return f"world on {device}"

    def gloo(store: Any, rank: int, size: int, timeout: Any) -> str:
        made.append((rank, size, timeout.total_seconds()))
        return "gloo"

    monkeypatch.setattr(dist, "group", SimpleNamespace(WORLD=World()))
    monkeypatch.setattr(dist, "ProcessGroupGloo", gloo)
    make: Callable[..., Any] = wire._make_group
    assert make((0, 1, 2), "cpu") == "world on cpu"
    assert make((0, 1, 2), "cuda") == "world on cuda"
    assert make((0, 2), "cpu") == "gloo"
    assert make((2,), "cpu") == "gloo"
    assert made == [(1, 2, 7.0), (0, 1, 7.0)]


def test_groups_on_accelerators_are_of_nccl_and_have_the_time_of_the_wire(
    wire: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Nccl:
        class Options: ...

        def __init__(self, store: Any, rank: int, size: int, options: Any) -> None:
            self.made = (store[0], rank, size, options._timeout.total_seconds())

    monkeypatch.setattr(dist, "ProcessGroupNCCL", Nccl, raising=False)
    assert wire._make_group((0, 2), "cuda").made == ("cuda/0_2", 1, 2, 7.0)
    assert wire._make_group((2,), "cuda").made == ("cuda/2", 0, 1, 7.0)


def test_groups_of_some_have_places_of_their_own_in_the_store(wire: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    monkeypatch.setattr(module, "PrefixStore", lambda name, store: names.append(name))
    monkeypatch.setattr(dist, "ProcessGroupGloo", lambda *args: None)
    for ranks in ((0, 2), (1, 2)):
        wire._make_group(ranks, "cpu")
    Wire()
    Wire()
    assert names[:2] == ["cpu/0_2", "cpu/1_2"]
    assert names[2].startswith("shardwise/")
    assert names[2] != names[3]


def test_closing_keeps_the_group_of_all(wire: Any) -> None:
    kept: list[Any] = []
    wire.groups.close = lambda keep: kept.extend([keep((0, 1, 2)), keep((0, 2))])
    wire.close()
    assert kept == [True, False]
