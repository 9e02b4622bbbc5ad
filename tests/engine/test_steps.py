"""Steps: where each thread is in the user's loops, whatever leaves them."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardwise as sw
from shardwise import ArgumentError
from shardwise.engine import farewell
from shardwise.engine.steps import Place, current_path, current_text, describe, path_text, read_path, step


def in_new_context(call: Any) -> Any:
    """What a call returns where no step has been entered yet."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(call).result()


def test_steps_are_counted_and_numbered() -> None:
    def run() -> list[Any]:
        out: list[Any] = [current_path(), current_text()]
        for i in (1000, 1001):
            with step(i):
                out.append(current_path())
        with step():
            out.append(current_path())
        return [*out, current_path()]

    assert in_new_context(run) == [
        (),
        b"",
        (Place(1000, 1),),
        (Place(1001, 2),),
        (Place(2, 3),),
        (),
    ]


def test_a_step_that_is_skipped_or_entered_again_is_another() -> None:
    def run(*numbers: int) -> bytes:
        for number in numbers[:-1]:
            with step(number):
                pass
        with step(numbers[-1]):
            return current_text()

    usual, skipped, again, twice = (in_new_context(lambda n=n: run(*n)) for n in ([1, 2, 3], [1, 3], [1, 2], [1, 2, 2]))
    assert len({usual, skipped, again, twice}) == 4


def test_steps_nest_and_inner_ones_are_counted_within_the_outer() -> None:
    def run() -> list[Any]:
        out: list[Any] = []
        for _ in range(2):
            with step():
                for _ in range(2):
                    with step():
                        out.append(current_path())
                out.append(current_path())
        return out

    assert in_new_context(run) == [
        (Place(0, 1), Place(0, 1)),
        (Place(0, 1), Place(1, 2)),
        (Place(0, 1),),
        (Place(1, 2), Place(0, 1)),
        (Place(1, 2), Place(1, 2)),
        (Place(1, 2),),
    ]


def test_one_that_an_error_leaves_is_left() -> None:
    def run() -> Any:
        block = step(7)
        for _ in range(2):
            with pytest.raises(ZeroDivisionError), block:
                print(1 / 0)
        with block, block:
            return current_path()

    assert in_new_context(run) == (Place(7, 3), Place(7, 1))
    assert in_new_context(current_path) == ()


def test_threads_are_in_steps_of_their_own() -> None:
    def run() -> Any:
        with step(3):
            other: list[Any] = []
            thread = threading.Thread(target=lambda: other.append(current_path()))
            thread.start()
            thread.join()
            inherited = copy_context().run(current_path)
            return other, inherited

    assert in_new_context(run) == ([()], (Place(3, 1),))


@pytest.mark.parametrize("number", [np.int64(5), np.array(5), -3, (1 << 63) - 1])
def test_whatever_counts_as_an_int_is_a_number(number: Any) -> None:
    with sw.step(number):
        assert current_path()[-1].number == int(number)


@pytest.mark.parametrize(
    ("number", "kind"), [("5", "an int"), (5.0, "an int"), (True, "an int"), (1 << 63, "an int of 64 bits")]
)
def test_anything_else_is_refused(number: Any, kind: str) -> None:
    with pytest.raises(
        ArgumentError, match=f"step takes the number of an iteration, an int.*{kind}.*got|{kind}, or no"
    ):
        sw.step(number)


@given(st.lists(st.builds(Place, st.integers(-(1 << 63), (1 << 63) - 1), st.integers(1, 1 << 63)), max_size=4))
def test_what_travels_is_what_was_meant(path: list[Place]) -> None:
    assert read_path(path_text(tuple(path))) == tuple(path)


@pytest.mark.parametrize("text", [b"1", b"1 2 3", b"a b", b"\xff"])
def test_what_tells_of_no_steps_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        read_path(text)


def test_an_error_that_passes_is_noted() -> None:
    heard: list[str] = []
    farewell.watch(heard.append)
    try:

        def run() -> None:
            with step(5):
                raise ValueError("bad luck")

        with pytest.raises(ValueError, match="bad luck"):
            in_new_context(run)
        (text,) = heard
        assert text.startswith(f"ValueError: bad luck at {__file__}:")
        assert text.endswith(", out of iteration 5 (entry 1)")
    finally:
        farewell.unwatch(heard.append)


def test_words() -> None:
    assert describe((Place(5, 6),)) == "iteration 5 (entry 6)"
    assert describe((Place(2, 3), Place(17, 18))) == "iteration 2, 17 (entries 3, 18)"
    assert describe(()) == "no iteration"
