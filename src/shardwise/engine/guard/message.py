"""Messages between watchdogs: what they may say, and how what came is read, whoever wrote it."""

from __future__ import annotations

import json
from collections.abc import Container
from typing import Any, cast

from shardwise.errors import printable

CUT = 4000  # characters of a text that is told to others
LIMIT = 1 << 64  # numbers of calls and ranks are less

Message = dict[str, Any]

REPORT = {"error": str, "text": str, "ranks": list, "step": str, "sequence": int}
BEAT = {"sequence": int, "line": str, "awaits": list}
BYE = {"text": str, "clean": bool, "sequence": int}
KINDS: dict[str, dict[str, type]] = {"beat": BEAT, "ask": BEAT, "note": {"text": str}, "stop": REPORT, "bye": BYE}


def write(message: Message) -> bytes:
    """Return the bytes that travel.

    >>> read(write({"kind": "beat", "sequence": 3, "line": "train.py:3", "awaits": [2]}))
    {'kind': 'beat', 'sequence': 3, 'line': 'train.py:3', 'awaits': [2]}
    """
    return json.dumps(message).encode()


def read(body: bytes, more: Container[str] = ()) -> Message:
    """Return what another process said, as it may be shown; raise ValueError if it cannot be read.

    Messages of `more` kinds are returned as they are: others look into them.
    """
    try:
        message = _as_dict(json.loads(body))
    except RecursionError as error:
        raise ValueError(str(error)) from None
    kind = message.get("kind")
    if isinstance(kind, str) and kind in more:
        return message
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError("not a message of a watchdog")
    out: Message = {"kind": kind} | _check(message, KINDS[kind])
    if kind == "bye" and message.get("cause") is not None:
        cause = _as_dict(message["cause"])
        out["cause"] = _check(cause, REPORT | {"by": int} if "by" in cause else REPORT)
    return out


def _as_dict(value: object) -> Message:
    if not isinstance(value, dict):
        raise ValueError(f"not a message: {value!r}")
    return cast("Message", value)


def _check(message: Message, fields: dict[str, type]) -> Message:
    # Only what is expected, and as it is expected.
    return {name: _check_value(name, message.get(name), kind) for name, kind in fields.items()}


def _check_value(name: str, value: Any, kind: type) -> Any:
    if isinstance(value, bool) != (kind is bool) or not isinstance(value, kind):
        raise ValueError(f"{name} is {value!r}")
    if kind is str:
        return printable(value[:CUT], keep="" if name == "line" else "\n\t")
    if kind is int and not 0 <= value < LIMIT:
        raise ValueError(f"{name} is {value!r}")
    return [_check_value(name, number, int) for number in value] if kind is list else value
