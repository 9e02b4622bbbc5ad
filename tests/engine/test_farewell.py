"""Farewells: what is told of the end of a process is what happened, and no more."""

import gc
import sys
import threading
from collections.abc import Iterator
from queue import Empty
from typing import Any

import pytest

import shardwise as sw
from shardwise import errors
from shardwise.engine import farewell
from shardwise.engine.farewell import AT_THE_END, brief, last_words, note_error

PLAIN = sys.exit


@pytest.fixture(autouse=True, scope="module")
def nothing_is_left() -> None:
    gc.collect()  # errors of other tests, which are noted when they go


@pytest.fixture(autouse=True)
def nobody_watches() -> None:
    for tell in list(farewell.notes.watchers):  # of guards that other tests made
        farewell.unwatch(tell)


@pytest.fixture
def heard() -> Iterator[list[str]]:
    out: list[str] = []
    assert sys.exit is PLAIN
    farewell.watch(out.append)
    yield out
    farewell.unwatch(out.append)
    assert sys.exit is PLAIN
    assert errors.on_discard is None
    assert last_words() == (AT_THE_END, True)


def leave(*status: Any) -> None:
    with pytest.raises(SystemExit) as found:
        sys.exit(*status)
    assert found.value.code == (status[0] if status else None)


def test_the_end_of_a_program_claims_no_more_than_is_known(heard: list[str]) -> None:
    assert last_words() == ("it came to the end of its program, or raised SystemExit", True)
    assert heard == []


@pytest.mark.parametrize("status", [(), (None,), (0,), (False,)])
def test_an_exit_as_programs_should_end(heard: list[str], status: tuple[Any, ...]) -> None:
    leave(3)
    leave(*status)  # the last counts
    assert last_words() == (AT_THE_END, True)


@pytest.mark.parametrize("status", [3, 1, "no data", -1])
def test_an_exit_with_a_code(heard: list[str], status: Any) -> None:
    leave(status)
    text, clean = last_words()
    assert text.startswith(f"it ended after sys.exit({status!r}) at {__file__}:")
    assert not clean


def test_an_exit_that_the_user_caught_is_forgotten_at_the_next_call(heard: list[str]) -> None:
    leave(3)
    farewell.note_call()
    assert last_words() == (AT_THE_END, True)


@pytest.mark.parametrize("end", [StopIteration(), StopAsyncIteration(), Empty()])
def test_the_end_of_a_loop_is_told_and_takes_the_place_of_no_error(heard: list[str], end: Exception) -> None:
    note_error(end)
    note_error(ValueError("bad luck"))
    note_error(end)
    assert heard == [type(end).__name__, "ValueError: bad luck"]
    assert last_words()[0].endswith("; it had gone on after ValueError: bad luck")


def test_an_exit_of_a_thread_ends_that_thread_only(heard: list[str]) -> None:
    thread = threading.Thread(target=lambda: leave(3))
    thread.start()
    thread.join()
    assert last_words() == (AT_THE_END, True)


def test_an_exit_that_passes_a_step_is_known_without_sys_exit(heard: list[str]) -> None:
    with pytest.raises(SystemExit), sw.step(5):
        raise SystemExit(4)
    assert last_words()[0].startswith(f"it ended after sys.exit(4) at {__file__}:")


def swallow() -> None:
    try:
        sw.DeviceMesh((2,), ("a b",))
    except sw.ShardwiseError:
        return


def test_an_error_of_ours_that_the_user_caught_is_named(heard: list[str]) -> None:
    swallow()
    text, clean = last_words()
    assert clean
    assert text.startswith(f"{AT_THE_END}; it had gone on after MeshError: 'a b' cannot name a mesh axis: a name has ")
    assert text.endswith(f" at {__file__}:{swallow.__code__.co_firstlineno + 2}")
    assert heard == [text.partition("gone on after ")[2]]
    leave(3)
    text, clean = last_words()
    assert "it ended after sys.exit(3)" in text
    assert "; it had gone on after MeshError" in text
    assert not clean


def test_an_error_that_passes_a_step_keeps_its_iteration(heard: list[str]) -> None:
    try:
        with sw.step(3):
            sw.DeviceMesh((2,), ("a b",))
    except sw.ShardwiseError:
        pass
    gc.collect()
    (text,) = heard
    assert ", out of iteration 3 (entry " in text


def test_errors_that_the_package_catches_itself_are_not_named(heard: list[str]) -> None:
    trace = None
    try:
        sw.DeviceMesh((2,), ("a b",))
    except sw.ShardwiseError as error:
        trace = error.__traceback__
    heard.clear()
    farewell.notes.error = None
    assert trace is not None
    assert trace.tb_next is not None
    farewell._note_discard(sw.MeshError("inside").with_traceback(trace.tb_next))
    farewell._note_discard(sw.MeshError("never raised"))
    assert heard == []


@pytest.mark.parametrize("error", [sw.RankLost("rank 2"), GeneratorExit()])
def test_what_others_know_and_what_is_no_error_is_not_named(heard: list[str], error: BaseException) -> None:
    note_error(error)
    assert heard == []


def test_nothing_is_noted_for_nobody() -> None:
    swallow()
    note_error(ValueError("bad luck"))
    assert farewell.notes.error is None
    assert last_words() == (AT_THE_END, True)


def test_several_watch_and_the_last_puts_back_what_was_there(heard: list[str]) -> None:
    more: list[str] = []
    farewell.watch(more.append)
    note_error(ValueError("bad luck"))
    farewell.unwatch(more.append)
    farewell.unwatch(more.append)  # which is no error
    assert heard == more == ["ValueError: bad luck"]
    assert sys.exit is not PLAIN


def test_an_exit_that_others_replaced_stays_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    def ignore(text: str) -> None: ...

    farewell.watch(ignore)
    ours = sys.exit
    monkeypatch.setattr(sys, "exit", swallow)
    farewell.unwatch(ignore)
    assert sys.exit is swallow
    monkeypatch.undo()
    assert sys.exit is ours
    sys.exit = PLAIN


def test_long_texts_are_cut() -> None:
    assert brief(ValueError("x" * 600)) == f"ValueError: {'x' * 500}"
