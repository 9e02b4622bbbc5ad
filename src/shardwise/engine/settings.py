"""Settings: how long processes wait for each other, and whether they are guarded."""

from __future__ import annotations

import os
from dataclasses import dataclass

from shardwise.errors import ArgumentError, seal

TIMES = {"timeout": "SHARDWISE_TIMEOUT", "heartbeat": "SHARDWISE_HEARTBEAT", "start": "SHARDWISE_START_TIMEOUT"}
DEFAULTS = {"timeout": 60.0, "heartbeat": 5.0, "start": 120.0}
YES, NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


@seal
@dataclass(frozen=True, slots=True)
class Settings:
    """What the processes of a program agree about: seconds for an operation, between heartbeats and to start.

    >>> Settings(timeout=5.0, heartbeat=1.0).start
    120.0
    """

    timeout: float = DEFAULTS["timeout"]
    heartbeat: float = DEFAULTS["heartbeat"]
    start: float = DEFAULTS["start"]
    guard: bool = True

    def __post_init__(self) -> None:
        for name in TIMES:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e7:
                raise ArgumentError(f"init: {name} is a positive number of seconds, got {value!r}.")


def settings(timeout: float | None = None, heartbeat: float | None = None, guard: bool | None = None) -> Settings:
    """Return the settings: what is given here, then what the environment says, then the defaults.

    >>> settings(timeout=5, guard=False)
    Settings(timeout=5, heartbeat=5.0, start=120.0, guard=False)
    """
    arguments = {"timeout": timeout, "heartbeat": heartbeat, "start": None}
    times = {name: _seconds(name) if value is None else value for name, value in arguments.items()}
    return Settings(**times, guard=_flag("SHARDWISE_GUARD", "1", guard))


def _seconds(name: str) -> float:
    text = os.environ.get(TIMES[name])
    if text is None:
        return DEFAULTS[name]
    try:
        return float(text)
    except ValueError:
        raise ArgumentError(f"{TIMES[name]} is a number of seconds, got {text!r}.") from None


def is_strict(strict: bool | None = None) -> bool:
    """Whether the local engine refuses what processes would: as is said here, then in the environment.

    >>> is_strict(True)
    True
    """
    return _flag("SHARDWISE_STRICT", "0", strict)


def _flag(name: str, default: str, argument: bool | None) -> bool:
    if argument is not None:
        return bool(argument)
    text = os.environ.get(name, default).lower()
    if text not in YES + NO:
        raise ArgumentError(f"{name} is one of {', '.join(YES + NO)}, got {text!r}.")
    return text in YES
