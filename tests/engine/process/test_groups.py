"""Process groups: made once, and those of accelerators abandoned when somebody is lost."""

from typing import Any

import pytest

from shardwise.engine.process import groups as module
from shardwise.engine.process.groups import Groups


class Group:
    def __init__(self) -> None:
        self.done: list[str] = []

    def abort(self) -> None:
        self.done.append("abort")

    def shutdown(self) -> None:
        self.done.append("shutdown")


class Event:
    """One that has happened after it has been asked some times."""

    def __init__(self, asked: float = float("inf")) -> None:
        self.asked = asked

    def query(self) -> bool:
        self.asked -= 1
        return self.asked < 0


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Groups:
    monkeypatch.setattr(module, "DRAIN", 0.05)
    return Groups(lambda ranks, device: Group())


def test_groups_are_made_once(groups: Groups) -> None:
    assert not groups.on_accelerators
    assert groups.get((0, 1), "cuda") is groups.get((0, 1), "cuda")
    assert groups.on_accelerators
    assert groups.get((0, 1), "cuda") is not groups.get((0, 2), "cuda")


def test_one_that_could_not_be_made_is_given_up() -> None:
    """Whoever waits for its members in a library waits without end, so that nobody may wait for its end."""

    def fail(ranks: Any, device: Any) -> Any:
        raise RuntimeError("rank 1 was lost")

    groups = Groups(fail)
    with pytest.raises(RuntimeError, match="rank 1 was lost"):
        groups.get((0, 1), "cuda")
    assert (groups.abandoned, groups.on_accelerators) == ({(0, 1)}, False)


def test_a_process_that_runs_out_of_files_says_so(groups: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    said = list[str]()
    monkeypatch.setattr(module, "log", lambda write, text: said.append(text))
    groups.get((0, 1), "cuda")
    assert said == []
    monkeypatch.setattr(module, "keep_room", lambda: "900 files are open")
    groups.get((0, 1), "cuda")
    assert said == []  # nothing was made
    groups.get((0, 2), "cuda")
    assert said == ["900 files are open; each group of NCCL, of which there are 2 now, keeps some until the end"]


def made(groups: Groups) -> dict[str, Any]:
    names = {"pair": ((0, 1), "cuda"), "others": ((0, 2), "cuda")}
    return {name: groups.get(*key) for name, key in names.items()}


def test_those_of_a_lost_rank_are_abandoned_once_and_others_later(groups: Groups) -> None:
    some = made(groups)
    for _ in range(2):
        groups.abandon([1])
        assert [group.done for group in some.values()] == [["abort"], []]
    groups.abandon()
    assert [group.done for group in some.values()] == [["abort"], ["abort"]]
    assert groups.torn == float("inf")  # nothing was under way


def test_what_can_end_does_and_the_first_that_does_not_is_known(groups: Groups) -> None:
    made(groups)
    groups.track(3, (0, 1), Event(2))
    groups.abandon([1])
    assert groups.torn == float("inf")
    for sequence, asked in ((4, 0), (5, float("inf")), (6, 0), (7, float("inf"))):
        groups.track(sequence, (0, 2), Event(asked))
    groups.abandon()
    assert groups.torn == 5


def test_what_was_begun_before_and_comes_after_is_known_too(groups: Groups) -> None:
    made(groups)
    groups.abandon([1])
    groups.track(8, (0, 2), Event(0))
    assert groups.torn == float("inf")
    groups.track(9, (0, 1), Event(0))
    assert groups.torn == 9


def test_what_is_done_is_forgotten(groups: Groups) -> None:
    for sequence in range(100):
        groups.track(sequence, (0, 1), Event(0))
    assert len(groups._flying) == 1


def test_groups_that_were_abandoned_are_not_given_back(groups: Groups) -> None:
    some = made(groups)
    groups.abandon([2])
    groups.close(keep=lambda ranks: False)
    assert [group.done for group in some.values()] == [["shutdown"], ["abort"]]


def test_groups_of_accelerators_are_given_back_except_those_that_others_see_to(groups: Groups) -> None:
    some = made(groups)
    groups.close(keep=lambda ranks: ranks == (0, 2))
    assert [group.done for group in some.values()] == [["shutdown"], []]
    assert groups.get((0, 1), "cuda") is not some["pair"]


@pytest.mark.parametrize(("asked", "pauses"), [(0, 0), (1, 1), (30, 30), (float("inf"), 100)])
def test_what_is_under_way_is_given_a_second(monkeypatch: pytest.MonkeyPatch, asked: float, pauses: int) -> None:
    slept: list[float] = []
    monkeypatch.setattr(module, "monotonic", lambda: round(sum(slept), 6))
    monkeypatch.setattr(module, "sleep", slept.append)
    groups = Groups(lambda ranks, device: Group())
    group = groups.get((0, 1), "cuda")
    groups.track(4, (0, 1), Event(asked))
    groups.abandon([0])
    assert slept == [0.01] * pauses
    assert groups.torn == (4 if pauses == 100 else float("inf"))
    assert (groups.abandoned, group.done) == ({(0, 1)}, ["abort"])
