"""Clocks: contenders take turns, arguments are made anew, and what is too long is stopped."""

import gc

from benchmarks.clock import Case, Effort, first, interleaved, looped, no_collection, timed, within

NONE = Effort("tiny", 0.0, 3, 5)  # no time at all: the fewest rounds


def test_contenders_take_turns_in_every_round():
    calls: list[str] = []
    cases = {name: Case.of(lambda name=name: calls.append(name)) for name in "ab"}
    found = interleaved(cases, NONE)
    assert {name: len(seconds) for name, seconds in found.items()} == {"a": 2, "b": 2}  # without time, at least two
    turns = [name for i, name in enumerate(calls) if i == 0 or calls[i - 1] != name]
    assert turns == ["a", "b"] * (1 + 2)  # once to see how long they take
    assert all(seconds > 0 for some in found.values() for seconds in some)


def test_rounds_end_with_the_allowance_and_never_exceed_the_most():
    found = interleaved({"a": Case.of(lambda: None)}, Effort("full", 60.0, 3, 5))
    assert len(found["a"]) == 5
    short = interleaved({"a": Case.of(lambda: None)}, NONE, short=True)
    assert len(short["a"]) == 3


def test_every_call_gets_an_argument_of_its_own_while_the_last_result_lives():
    made: list[object] = []
    seen: list[object] = []

    def given() -> object:
        made.append(object())
        return made[-1]

    timed(Case(lambda x: seen.append(x) or x, given), 3, warm=2)
    assert seen == made
    assert len(seen) == 5
    assert first(Case(lambda x: x, given))[1] is made[-1]


def test_a_loop_makes_as_many_calls_as_it_is_told():
    calls: list[int] = []
    assert looped(lambda: calls.append(1), 7) > 0
    assert len(calls) == 7


def test_what_is_too_long_is_stopped():
    def forever() -> None:
        while True:
            pass

    assert within(forever, 0.05) == (0.05, None)
    seconds, result = within(lambda: "done", 60.0)
    assert (seconds < 60.0, result) == (True, "done")


def test_nothing_is_collected_meanwhile():
    with no_collection():
        assert not gc.isenabled()
    assert gc.isenabled()
