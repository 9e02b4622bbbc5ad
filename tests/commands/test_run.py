"""The arguments of `shardwise run`; what it then does is tested in tests/faults."""

import sys
from typing import Any

import pytest
from click.testing import CliRunner

from shardwise import EngineError
from shardwise.cli import main
from shardwise.commands import run as command


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    calls: list[Any] = []

    def launch(*given: Any, **options: Any) -> int:
        calls.append((*given, options))
        return 3

    monkeypatch.setattr(command, "launch", launch)
    return calls


def test_what_follows_the_script_is_the_scripts(launched: list[Any]) -> None:
    found = CliRunner().invoke(
        main, ["run", "-n", "4", "--engine", "torch", "train.py", "-n", "7", "--port", "x", "-h"]
    )
    assert found.exit_code == 3
    script = [sys.executable, "train.py", "-n", "7", "--port", "x", "-h"]
    assert launched == [(script, 4, {"port": None, "grace": 2.0, "live": True, "exits": True})]


def test_modules_ports_grace_and_the_live_line(launched: list[Any]) -> None:
    words = ["run", "-n", "2", "-m", "--port", "29500", "--grace", "9", "--no-live", "package.train"]
    CliRunner().invoke(main, words)
    assert launched == [
        ([sys.executable, "-m", "package.train"], 2, {"port": 29500, "grace": 9.0, "live": False, "exits": True})
    ]


@pytest.mark.parametrize("words", [["train.py"], ["-n", "0", "train.py"], ["-n", "2", "--engine", "mpi", "train.py"]])
def test_wrong_arguments_are_refused(launched: list[Any], words: list[str]) -> None:
    assert CliRunner().invoke(main, ["run", *words]).exit_code == 2
    assert launched == []


def test_errors_are_shown_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any, **options: Any) -> int:
        raise EngineError("not here.")

    monkeypatch.setattr(command, "launch", refuse)
    found = CliRunner().invoke(main, ["run", "-n", "2", "train.py"])
    assert (found.exit_code, found.output) == (1, "Error: not here.\n")
