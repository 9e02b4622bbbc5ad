"""How long processes wait, by argument, environment and default."""

import pytest

from shardwise import ArgumentError
from shardwise.engine.settings import Settings, settings

NAMES = ("SHARDWISE_TIMEOUT", "SHARDWISE_HEARTBEAT", "SHARDWISE_START_TIMEOUT", "SHARDWISE_GUARD")


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def test_people_get_a_minute_and_a_guard() -> None:
    assert settings() == Settings(timeout=60.0, heartbeat=5.0, start=120.0, guard=True)


def test_arguments_come_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in zip(NAMES, ("7", "0.5", "9", "off"), strict=True):
        monkeypatch.setenv(name, value)
    assert settings() == Settings(7.0, 0.5, 9.0, False)
    assert settings(timeout=3, heartbeat=2, guard=True) == Settings(3, 2, 9.0, True)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("SHARDWISE_TIMEOUT", "soon", "SHARDWISE_TIMEOUT is a number of seconds, got 'soon'"),
        ("SHARDWISE_TIMEOUT", "-1", "timeout is a positive number of seconds, got -1.0"),
        ("SHARDWISE_HEARTBEAT", "nan", "heartbeat is a positive number of seconds, got nan"),
        ("SHARDWISE_GUARD", "maybe", "SHARDWISE_GUARD is one of 1, true, yes, on, 0, false, no, off, got 'maybe'"),
    ],
)
def test_what_is_wrong_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str, text: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ArgumentError, match=text):
        settings()


def test_arguments_are_checked() -> None:
    with pytest.raises(ArgumentError, match="timeout is a positive number of seconds, got True"):
        settings(timeout=True)
