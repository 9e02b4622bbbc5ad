"""What a launch refuses, and how ends are put into words; whole launches are tested in tests/faults."""

import sys

import pytest

from shardwise import ArgumentError, EngineError
from shardwise.engine.launch import _cause, launch


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "SHARDWISE_JOB"):
        monkeypatch.delenv(name, raising=False)


def test_no_processes_are_no_program() -> None:
    with pytest.raises(ArgumentError, match="at least one process, got 0"):
        launch([sys.executable], 0)


@pytest.mark.parametrize("variables", [{"RANK": "1", "WORLD_SIZE": "4"}, {"SHARDWISE_JOB": "ab"}])
def test_a_launch_inside_a_launch_is_refused(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(EngineError, match=r"(?s)this is already rank . of . of a launch.*unset RANK and WORLD_SIZE"):
        launch([sys.executable], 2)


def test_a_command_that_is_not_there_is_named() -> None:
    with pytest.raises(EngineError, match="cannot start 'no-such-command': "):
        launch(["no-such-command"], 1)


@pytest.mark.parametrize(
    ("code", "text"),
    [(3, "exit code 3"), (-9, "ended by SIGKILL"), (-11, "ended by SIGSEGV"), (-99, "ended by signal 99")],
)
def test_ends_in_words(code: int, text: str) -> None:
    assert _cause(code) == text


def test_the_code_of_a_program_is_returned(capfd: pytest.CaptureFixture[str]) -> None:
    assert launch([sys.executable, "-c", "print(1)"], 1) == 0
    assert launch([sys.executable, "-c", "raise SystemExit(7)"], 1) == 7
    assert capfd.readouterr().out == "[0] 1\n"
