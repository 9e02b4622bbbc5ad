"""Handshakes: both ends of a connection prove that they know the secret of their job, which never travels.

Who answers sends a challenge; who calls sends a greeting, a challenge of its own, and proof that it knows the secret;
who answers proves the same. All of it has one deadline, however slowly bytes come.
"""

from __future__ import annotations

import hmac
import json
import math
import secrets
import socket
import ssl
from collections.abc import Callable
from time import monotonic, time
from typing import Any, cast

from shardwise.engine.meeting.channel import HEAD
from shardwise.engine.meeting.credentials import Credentials
from shardwise.errors import printable

MOST = 1 << 16  # bytes of a message of one whom nobody knows yet
SHOWN = 100  # characters of what a stranger says
VERSION = "shardwise 1"


class StrangerError(Exception):
    """The other end does not belong to this job, or is no process of shardwise."""


def call(
    connection: socket.socket, greeting: dict[str, Any], credentials: Credentials, end: float
) -> tuple[socket.socket, float]:
    """Greet one who answers; return the connection to use from here on, and how far its clock is ahead of ours.

    If it is a stranger, or does not answer in time, the connection is closed.
    """
    try:
        if credentials.calling is not None:
            connection = credentials.calling.wrap_socket(connection, do_handshake_on_connect=False)
        _encrypt(connection, end)
        return connection, _call(connection, json.dumps(greeting), credentials, end)
    except BaseException:
        connection.close()
        raise


def _call(connection: socket.socket, hello: str, credentials: Credentials, end: float) -> float:
    challenge = _take(connection, end)
    if challenge.get("version") != VERSION:
        raise StrangerError(f"something else answers, or another version: {_show(challenge)}")
    nonces, began = (str(challenge.get("nonce")), secrets.token_hex(32)), time()
    _give(connection, end, hello=hello, nonce=nonces[1], proof=_prove(credentials, "calls", nonces, hello))
    reply = _take(connection, end)
    if "denied" in reply:
        raise StrangerError(f"it does not know us: {_show(reply['denied'])}")
    if not _is_equal(reply.get("proof"), _prove(credentials, "answers", nonces, hello)):
        raise StrangerError("who answers does not know the secret of this job")
    there = reply.get("time")
    if not isinstance(there, float) or not math.isfinite(there):
        raise StrangerError("its answer cannot be read")
    return there - (began + time()) / 2


def answer(
    connection: socket.socket, credentials: Credentials, end: float, admit: Callable[[], bool] = lambda: True
) -> dict[str, Any]:
    """Answer one who calls, and return its greeting; it is told that it is admitted if `admit` says so.

    With certificates, the connection is one of those that `Credentials.answering` made.
    """
    _encrypt(connection, end)
    challenge = secrets.token_hex(32)
    _give(connection, end, version=VERSION, nonce=challenge)
    message = _take(connection, end)
    hello, nonces = str(message.get("hello")), (challenge, str(message.get("nonce")))
    if not _is_equal(message.get("proof"), _prove(credentials, "calls", nonces, hello)):
        _give(connection, end, denied="SHARDWISE_SECRET is another there, or this is another job")
        raise StrangerError("it does not know the secret of this job")
    greeting = _read(hello)
    if not admit():
        raise StrangerError("it took too long")
    _give(connection, end, proof=_prove(credentials, "answers", nonces, hello), time=time())
    return greeting


def _encrypt(connection: socket.socket, end: float) -> None:
    connection.settimeout(max(0.01, end - monotonic()))
    if isinstance(connection, ssl.SSLSocket):
        connection.do_handshake()


def _prove(credentials: Credentials, role: str, nonces: tuple[str, str], hello: str) -> str:
    text = json.dumps([role, *nonces, hello])  # which can be taken apart in one way only
    return hmac.new(credentials.secret or b"none", text.encode(), "sha256").hexdigest()


def _is_equal(proof: object, expected: str) -> bool:
    return isinstance(proof, str) and hmac.compare_digest(proof.encode(errors="replace"), expected.encode())


def _show(what: object) -> str:
    return printable(str(what)[:SHOWN], keep="")


def _give(connection: socket.socket, end: float, **message: Any) -> None:
    body = json.dumps(message).encode()
    connection.settimeout(max(0.01, end - monotonic()))
    connection.sendall(HEAD.pack(len(body)) + body)


def _take(connection: socket.socket, end: float) -> dict[str, Any]:
    (size,) = HEAD.unpack(_take_bytes(connection, HEAD.size, end))
    if size > MOST:
        raise StrangerError("what it sends is no message of shardwise")
    return _read(_take_bytes(connection, size, end))


def _read(text: str | bytes) -> dict[str, Any]:
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise StrangerError("what it sends is no message of shardwise")
    return cast("dict[str, Any]", message)


def _take_bytes(connection: socket.socket, size: int, end: float) -> bytes:
    out = b""
    while len(out) < size:
        left = end - monotonic()
        if left <= 0:
            raise TimeoutError("no answer in time")
        connection.settimeout(left)
        try:
            some = connection.recv(size - len(out))
        except ssl.SSLEOFError:
            some = b""
        if not some:
            raise ConnectionError("the connection was closed")
        out += some
    return out
