"""Messages between watchdogs: whatever comes is read as it was meant, or refused with one kind of error."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise.engine.guard.message import CUT, KINDS, read, write

STOP = {"kind": "stop", "error": "RankLost", "text": "rank 3 was lost", "ranks": [3], "step": "permute", "sequence": 4}
BYE = {"kind": "bye", "text": "it left", "clean": False, "sequence": 8}
CAUSE = {name: value for name, value in STOP.items() if name != "kind"}
MESSAGES: list[dict[str, Any]] = [
    {"kind": "beat", "sequence": 3, "line": "train.py:3", "awaits": [1, 2]},
    {"kind": "ask", "sequence": 0, "line": "", "awaits": []},
    {"kind": "note", "text": "ValueError: bad luck"},
    STOP,
    BYE,
    BYE | {"cause": CAUSE},
    BYE | {"cause": CAUSE | {"by": 2}},
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: m["kind"])
def test_what_is_written_is_read(message: dict[str, Any]) -> None:
    assert read(write(message)) == message
    assert read(write(message | {"more": "which nobody asked for"})) == message


def test_no_cause_is_none() -> None:
    assert read(write(BYE | {"cause": None})) == BYE


def wrong() -> list[Any]:
    """Messages with one thing amiss."""
    out: list[Any] = [None, 3, [], "beat", {}, {"kind": "other"}, {"kind": ["beat"]}, {"kind": {}}, {"kind": None}]
    strange = [3.5, None, "x", -1, 1, True, [None], ["a"], [True], [-1], {}, 1 << 64]
    for message in MESSAGES:
        for name in message.keys() - {"cause", "kind"}:
            out.append({other: value for other, value in message.items() if other != name})
            same = type(message[name])
            out += [message | {name: value} for value in strange if type(value) is not same]
            out += [message | {name: value} for value in (-1, 1 << 64) if same is int]
            out += [message | {name: [value]} for value in (None, "a", True, -1) if same is list]
    return out + [BYE | {"cause": cause} for cause in (3, [], {}, CAUSE | {"by": "2"}, CAUSE | {"ranks": 3})]


def test_whatever_is_not_as_it_should_be_is_refused() -> None:
    for message in wrong():
        with pytest.raises(ValueError, match=r"\w"):
            read(json.dumps(message).encode())
    for body in (b"", b"\xff", b"{", b"[" * 100_000, b"9" * 10_000, b'{"kind": NaN}', b"GET / HTTP/1.1"):
        with pytest.raises(ValueError, match=r"\w"):
            read(body)
    with pytest.raises(ValueError, match="sequence is -1"):
        read(write(MESSAGES[0] | {"sequence": -1}))


@given(
    st.binary(max_size=60)
    | st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5) | st.sampled_from(sorted(KINDS)),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["kind", "text", "by"]), inner),
    ).map(lambda value: json.dumps(value).encode())
)
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    try:
        message = read(body)
    except ValueError:
        return
    assert message["kind"] in KINDS


def test_texts_are_shown_without_what_controls_a_terminal() -> None:
    hostile = "a\x1b[2J\nb\r\u202e\ud800"
    assert read(write(STOP | {"text": hostile}))["text"] == "a\\x1b[2J\nb\\r\\u202e\\ud800"
    assert read(write(MESSAGES[0] | {"line": hostile}))["line"] == "a\\x1b[2J\\nb\\r\\u202e\\ud800"
    cause = read(write(BYE | {"cause": CAUSE | {"step": hostile}}))["cause"]
    assert "\x1b" not in cause["step"]
    assert len(read(write(STOP | {"text": "x" * (CUT + 5)}))["text"]) == CUT == 4000
