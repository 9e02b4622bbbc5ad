"""The wire, with groups that only write down what they are asked: the order of things, and who is told of what."""

from typing import Any

import pytest
import torch

from shardwise.engine.call import Call
from shardwise.engine.process.groups import Groups
from shardwise.engine.process.wire import TAG, Pending, Wire
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
        self.seen, self.refuses, self.slot = seen, refuses, 5

    def before(self, sequence: int, call: Call) -> None:
        self.seen.append(("before", sequence, call))
        if self.refuses is not None:
            raise self.refuses

    def wait(self, work: Any, sequence: int, call: Call, rank: int | None = None) -> None:
        self.seen.append(("guarded", work.name, sequence, rank))

    def failure(self, error: Exception, sequence: int, call: Call) -> Exception:
        return EngineError(f"call {sequence} failed: {error}.")

    def explain_unfinished(self, sequence: int) -> Exception:
        return EngineError(f"what call {sequence} brings never came.")

    def give_up(self, error: BaseException) -> None:
        self.seen.append(("give up", error))

    def end(self, slot: int, received: int, sent: int) -> None:
        self.seen.append(("end", slot, received, sent))


@pytest.fixture
def seen() -> list[Any]:
    return []


@pytest.fixture
def wire(seen: list[Any]) -> Any:
    asked: list[Any] = []

    def make(ranks: tuple[int, ...], device: Any) -> Group:
        asked.append((ranks, device))
        return Group(seen)

    out: Any = Wire(2, 3, Group(seen), Groups(make))
    out.asked = asked
    return out


def bytes_(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.uint8)


def test_a_wire_knows_its_rank_and_numbers_its_calls_from_one(wire: Any, seen: list[Any]) -> None:
    assert (wire.rank, wire.size, wire.sequence) == (2, 3, 0)
    assert wire.guard is None
    wire.send(CALL, [], [])
    wire.send(CALL, [], [])
    assert wire.sequence == 2
    assert seen == []


def test_an_exchange_is_messages_to_and_from_those_who_have_some(wire: Any, seen: list[Any]) -> None:
    call = CALL._replace(ranks=(0, 1, 2))
    pending = wire.exchange(call, bytes_(0, 0), (2, 0, 0), bytes_(1, 2, 3), (1, 2, 0))
    assert seen == [("recv", [0, 0], 0, TAG), ("send", [1], 0, TAG), ("send", [2, 3], 1, TAG)]
    assert wire.asked == []  # there is no group but that of all
    pending.arrive()
    assert seen[3:] == [("wait", "recv")]
    pending.wait()
    assert seen[4:] == [("wait", "send")] * 2
    pending.wait()
    assert len(seen) == 6  # nothing is waited for twice


def test_who_gathers_sends_to_all_others_and_keeps_its_own(wire: Any, seen: list[Any]) -> None:
    out = bytes_(0, 0, 0, 0)
    wire.gather(CALL, out, bytes_(7, 8)).wait()
    assert seen == [("recv", [0, 0], 0, TAG), ("send", [7, 8], 0, TAG), ("wait", "recv"), ("wait", "send")]
    assert out.tolist() == [0, 0, 7, 8]


def test_messages_are_received_before_others_are_sent_and_all_is_waited_for_in_time(wire: Any, seen: list[Any]) -> None:
    pending = wire.send(CALL, [(0, bytes_(0)), (1, bytes_(0, 0))], [(1, bytes_(5))])
    assert [s[0] for s in seen] == ["recv", "recv", "send"]
    assert seen[2] == ("send", [5], 1, TAG)
    assert seen[1] == ("recv", [0, 0], 1, TAG)
    pending.arrive()
    assert seen[3:] == [("wait", "recv")] * 2
    pending.wait()
    assert seen[5:] == [("wait", "send")]
    pending.wait()
    assert len(seen) == 6


def test_a_guard_is_told_before_anything_is_started_and_waits_itself_for_known_ranks(
    wire: Any, seen: list[Any]
) -> None:
    wire.guard = Watch(seen)
    wire.exchange(CALL, bytes_(0), (1, 0), bytes_(1), (1, 0)).wait()
    assert seen[:3] == [("before", 1, CALL), ("recv", [0], 0, TAG), ("send", [1], 0, TAG)]
    assert seen[3:] == [("guarded", "recv", 1, 0), ("guarded", "send", 1, 0), ("end", 5, 1, 1)]
    wire.send(CALL, [(0, bytes_(0))], [(0, bytes_(0))]).arrive()
    assert wire.sequence == 2
    assert seen[6] == ("before", 2, CALL)
    assert seen[-1] == ("guarded", "recv", 2, 0)


def test_a_call_is_done_once_with_the_bytes_that_came_and_went_for_others(wire: Any, seen: list[Any]) -> None:
    """What a process keeps for itself is not sent; the place in the records is that of when the call began."""
    wire.guard = Watch(seen)
    calls = [
        (wire.exchange(CALL, bytes_(0, 0), (2, 0), bytes_(1, 2, 3), (3, 0)), (2, 3)),
        (wire.gather(CALL._replace(ranks=(0, 1, 2)), bytes_(*[0] * 6), bytes_(7, 8)), (4, 4)),
        (wire.send(CALL, [(0, bytes_(0))], [(0, bytes_(5, 6)), (1, bytes_(5, 6))]), (1, 4)),
    ]
    wire.guard.slot = 9
    for pending, sizes in calls:
        pending.arrive()
        assert not [s for s in seen if s[0] == "end"]
        pending.wait()
        pending.wait()
        assert [s for s in seen if s[0] == "end"] == [("end", 5, *sizes)]
        seen.clear()


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
    wire.world = Group(seen, fails=True)
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
    works = [(Work("one", seen), 0)], [(Work("two", seen), None)]
    pending = Pending(works, None, 1, CALL, (0, 0), lambda: told.append("come"))
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
    assert wire.asked == [((0, 2), device)]
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


def test_closing_keeps_the_group_of_all(wire: Any) -> None:
    kept: list[Any] = []
    wire.groups.close = lambda keep: kept.extend([keep((0, 1, 2)), keep((0, 2))])
    wire.close()
    assert kept == [True, False]
