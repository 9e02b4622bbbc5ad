"""Handshakes: who knows the secret is admitted, nobody else is, and whatever a stranger sends, it ends in time."""

import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic, sleep
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise.engine.meeting import handshake
from shardwise.engine.meeting.credentials import Credentials
from shardwise.engine.meeting.handshake import MOST, VERSION, StrangerError, answer, call
from tests.engine.meeting.meetings import LONG, OTHERS, OURS, SECRET, SOON, nothing_stays, read, write

GREETING = {"card": {"rank": 1, "text": "é\n"}}
REFUSED = (StrangerError, OSError, ValueError)  # what a gate, and a guest, expect


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def begin(
    threads: ThreadPoolExecutor, credentials: Credentials = OURS, seconds: float = LONG
) -> tuple[socket.socket, Future[Any]]:
    """Have a thread answer; return the other end, and what becomes of it."""
    one, other = socket.socketpair()
    other.settimeout(SOON)

    def hear() -> Any:
        connection = credentials.secure(one)
        try:
            return answer(connection, credentials, monotonic() + seconds)
        finally:
            connection.close()

    return other, threads.submit(hear)


def shake(threads: ThreadPoolExecutor, caller: Credentials, answerer: Credentials) -> tuple[Any, Any]:
    """Return what both ends of a handshake come to."""
    other, heard = begin(threads, answerer)
    try:
        connection, offset = call(other, GREETING, caller, monotonic() + SOON)
        connection.close()
        return offset, heard.result()
    except REFUSED as error:
        other.close()
        return error.with_traceback(None), heard.exception(SOON) or heard.result()


def test_who_knows_the_secret_is_admitted_with_its_greeting(threads: ThreadPoolExecutor) -> None:
    offset, greeting = shake(threads, OURS, OURS)
    assert greeting == GREETING
    assert abs(offset) < SOON
    assert shake(threads, Credentials(), Credentials())[1] == GREETING


@pytest.mark.parametrize(("caller", "answerer"), [(OTHERS, OURS), (OURS, OTHERS), (Credentials(), OURS)])
def test_another_secret_is_refused_at_both_ends(
    threads: ThreadPoolExecutor, caller: Credentials, answerer: Credentials
) -> None:
    here, there = shake(threads, caller, answerer)
    assert isinstance(here, StrangerError)
    assert isinstance(there, StrangerError)
    assert str(here) == "it does not know us: SHARDWISE_SECRET is another there, or this is another job"
    assert str(there) == "it does not know the secret of this job"


def answer_falsely(threads: ThreadPoolExecutor, make_reply: Callable[[dict[str, Any]], Any]) -> BaseException:
    """Have one answer who lets everybody in; return what becomes of who calls it."""
    one, other = socket.socketpair()

    def lie() -> None:
        with other:
            other.settimeout(SOON)
            write(other, json.dumps({"version": VERSION, "nonce": "00" * 32}).encode())
            said = json.loads(read(other))
            reply = make_reply(said)
            write(other, reply if isinstance(reply, bytes) else json.dumps(reply).encode())

    liar = threads.submit(lie)
    with pytest.raises(REFUSED) as caught:
        call(one, GREETING, OURS, monotonic() + SOON)
    liar.result(SOON)
    assert one.fileno() == -1
    return caught.value


@pytest.mark.parametrize(
    "make_reply",
    [
        lambda said: {"proof": said["proof"], "time": 1.0},  # its own proof, sent back
        lambda said: {"proof": "0" * 64, "time": 1.0},
        lambda said: {"proof": "é" * 64, "time": 1.0},
        lambda said: {"proof": "\ud800", "time": 1.0},
        lambda said: {"proof": None, "time": 1.0},
        lambda said: {"proof": True},
        lambda said: {},
    ],
)
def test_a_false_host_is_found_out(threads: ThreadPoolExecutor, make_reply: Callable[[Any], Any]) -> None:
    assert str(answer_falsely(threads, make_reply)) == "who answers does not know the secret of this job"


@pytest.mark.parametrize(
    "reply", [b"", b"[]", b"3", b"\xff\xfe", b"[" * 60_000, b"{" * 60_000, b'{"a": ' + b"9" * 5000]
)
def test_an_answer_that_is_none_is_refused(threads: ThreadPoolExecutor, reply: bytes) -> None:
    assert str(answer_falsely(threads, lambda said: reply)) == "what it sends is no message of shardwise"


@pytest.mark.parametrize("there", [None, "now", True, 3, float("nan"), float("inf"), 10**400, [1.0]])
def test_a_time_that_is_none_is_refused(threads: ThreadPoolExecutor, there: Any) -> None:
    def reply(said: dict[str, Any]) -> dict[str, Any]:
        nonces = ("00" * 32, said["nonce"])
        return {"proof": handshake._prove(OURS, "answers", nonces, said["hello"]), "time": there}

    assert str(answer_falsely(threads, reply)) == "its answer cannot be read"


def test_what_a_stranger_says_is_shown_escaped_and_short(threads: ThreadPoolExecutor) -> None:
    error = answer_falsely(threads, lambda said: {"denied": "\x1b[2Jgo away\n" + "x" * 1000})
    assert str(error).startswith("it does not know us: \\x1b[2Jgo away\\nxxx")
    assert len(str(error)) < 150
    assert "\x1b" not in str(answer_falsely(threads, lambda said: {"denied": {"\x1b": "\x1b"}}))
    one, other = socket.socketpair()
    write(other, json.dumps({"version": "\x1b[2J", "more": ["\u202e"]}).encode())
    with pytest.raises(
        StrangerError, match=r"something else answers, or another version: {'version': '\\x1b\[2J', 'mo"
    ):
        call(one, GREETING, OURS, monotonic() + SOON)
    other.close()


def test_neither_what_was_said_before_nor_ones_own_words_open_a_gate(threads: ThreadPoolExecutor) -> None:
    """A greeting with its proof, taken down and said again, proves nothing: the challenge is another."""
    one, heard = begin(threads)
    challenge = json.loads(read(one))
    hello, nonce = json.dumps(GREETING), "11" * 32
    right = handshake._prove(OURS, "calls", (challenge["nonce"], nonce), hello)
    said = json.dumps({"hello": hello, "nonce": nonce, "proof": right}).encode()
    write(one, said)
    reply = read(one)
    assert heard.result(SOON) == GREETING
    one.close()
    for again in (
        said,
        reply,
        json.dumps({"hello": hello, "nonce": nonce, "proof": json.loads(reply)["proof"]}).encode(),
    ):
        two, heard = begin(threads)
        assert json.loads(read(two))["nonce"] != challenge["nonce"]
        write(two, again)
        assert b"denied" in read(two)
        assert isinstance(heard.exception(SOON), StrangerError)
        two.close()


def test_a_proof_is_of_one_way_to_take_it_apart() -> None:
    """Moving the border between what two parts say, or the parts, gives another proof."""
    some = ["", "a", "b", "a b", '"', '", "']
    cases = [(role, (x, y), z) for role in ("calls", "answers") for x in some for y in some for z in some]
    proofs = {handshake._prove(OURS, *case) for case in cases}
    assert len(proofs) == len(cases)
    assert proofs.isdisjoint({handshake._prove(OTHERS, *case) for case in cases})


def proved(hello: Any, nonce: Any = "11" * 32) -> Callable[[str], bytes]:
    """What one who knows the secret says to a challenge."""

    def say(challenge: str) -> bytes:
        proof = handshake._prove(OURS, "calls", (challenge, str(nonce)), str(hello))
        return json.dumps({"hello": hello, "nonce": nonce, "proof": proof}).encode()

    return say


GARBAGE: list[bytes] = [
    b"GET / HTTP/1.1\r\nHost: there\r\n\r\n",
    b"\xff" * 100,
    struct.pack("!I", MOST + 1),
    struct.pack("!I", 1 << 31) + b"x" * 100,
    struct.pack("!I", 0),
    struct.pack("!I", 60_000) + b"[" * 60_000,
    struct.pack("!I", 4) + b"null",
    struct.pack("!I", 2) + b"[]",
    struct.pack("!I", 2) + b"\xff\xfe",
]
TYPES = [None, True, 3, 1.5, "é", "\ud800", "", [], {}, [[1]], {"a": 1}]


@pytest.mark.parametrize("said", GARBAGE)
def test_garbage_is_refused(threads: ThreadPoolExecutor, said: bytes) -> None:
    other, heard = begin(threads)
    other.sendall(said)
    other.shutdown(socket.SHUT_WR)
    assert isinstance(heard.exception(SOON), StrangerError)
    other.close()


def test_words_of_any_type_are_refused(threads: ThreadPoolExecutor) -> None:
    for key in ("hello", "nonce", "proof"):
        for value in TYPES:
            other, heard = begin(threads)
            read(other)
            write(other, json.dumps({"hello": "{}", "nonce": "1", "proof": "2"} | {key: value}).encode())
            assert isinstance(heard.exception(SOON), REFUSED), (key, value)
            other.close()


@pytest.mark.parametrize("hello", ["null", "[1]", "not JSON", "[" * 60_000, 3, None])
def test_a_greeting_is_read_with_care_even_of_one_who_knows_the_secret(threads: ThreadPoolExecutor, hello: Any) -> None:
    other, heard = begin(threads)
    write(other, proved(hello)(json.loads(read(other))["nonce"]))
    assert isinstance(heard.exception(SOON), StrangerError)
    other.close()


@given(st.binary(max_size=60), st.booleans())
def test_whatever_comes_it_is_a_stranger(said: bytes, is_message: bool) -> None:
    one, other = socket.socketpair()
    if is_message:
        write(other, said)
    else:
        other.sendall(said)
    other.shutdown(socket.SHUT_WR)
    with pytest.raises(REFUSED):
        answer(one, OURS, monotonic() + SOON)
    one.close()
    other.close()


@pytest.mark.parametrize("first", [b"", b"\0\0\1", struct.pack("!I", 1000) + b"x" * 10])
def test_who_sends_a_byte_now_and_then_has_no_more_time_than_others(threads: ThreadPoolExecutor, first: bytes) -> None:
    """One byte and another, always before any single wait is over."""
    start = monotonic()
    other, heard = begin(threads, seconds=0.4)
    other.sendall(first)
    done = threading.Event()

    def drip() -> None:
        while not done.is_set() and monotonic() < start + SOON:
            try:
                other.sendall(b"\0" if not first else b"x")
            except OSError:
                return
            sleep(0.02)

    dripping = threads.submit(drip)
    error = heard.exception(SOON)
    assert isinstance(error, StrangerError if not first else TimeoutError), error
    assert monotonic() - start < 0.4 + 2.0
    done.set()
    dripping.result(SOON)
    other.close()


def test_who_calls_waits_no_longer_than_it_wants(threads: ThreadPoolExecutor) -> None:
    one, other = socket.socketpair()
    start = monotonic()
    with pytest.raises(TimeoutError):
        call(one, GREETING, OURS, start + 0.2)
    assert 0.15 < monotonic() - start < 2.0
    assert one.fileno() == -1
    other.close()


def test_the_time_is_over_before_it_began() -> None:
    one, other = socket.socketpair()
    write(other, b"{}")
    with pytest.raises(TimeoutError):
        answer(one, OURS, monotonic() - 1)
    one.close()
    other.close()


def test_who_is_not_wanted_any_more_is_not_told_that_it_is_admitted() -> None:
    one, other = socket.socketpair()
    with ThreadPoolExecutor(1) as pool:
        heard = pool.submit(answer, one, OURS, monotonic() + SOON, lambda: False)
        write(other, proved("{}")(json.loads(read(other))["nonce"]))
        assert isinstance(heard.exception(SOON), StrangerError)
    one.close()
    assert other.recv(1) == b""
    other.close()


# -- encrypted -----------------------------------------------------------------------------------------------


def test_encrypted_connections_carry_the_same_handshake(encrypted: dict[str, Credentials]) -> None:
    with nothing_stays(), ThreadPoolExecutor(1) as threads:
        offset, greeting = shake(threads, encrypted["job"], encrypted["job"])
    assert greeting == GREETING
    assert abs(offset) < SOON


@pytest.mark.parametrize(("caller", "answerer"), [("other", "job"), ("job", "other")])
def test_certificates_of_another_authority_are_refused_at_both_ends(
    encrypted: dict[str, Credentials], caller: str, answerer: str
) -> None:
    with nothing_stays(), ThreadPoolExecutor(1) as threads:
        here, there = shake(threads, encrypted[caller], encrypted[answerer])
    assert isinstance(here, ssl.SSLError)
    assert "certificate verify failed" in str(here)
    assert isinstance(there, OSError)


def test_who_has_no_certificate_is_refused(threads: ThreadPoolExecutor, encrypted: dict[str, Credentials]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    here, there = shake(threads, Credentials(SECRET, context), encrypted["job"])
    assert isinstance(here, OSError)
    assert "peer did not return a certificate" in str(there)


def test_plain_and_encrypted_do_not_understand_each_other(
    threads: ThreadPoolExecutor, encrypted: dict[str, Credentials]
) -> None:
    here, there = shake(threads, encrypted["job"], OURS)
    assert isinstance(here, REFUSED)
    assert isinstance(there, REFUSED)


def test_an_encrypted_handshake_has_the_same_end_however_slow_it_is(
    threads: ThreadPoolExecutor, encrypted: dict[str, Credentials]
) -> None:
    start = monotonic()
    other, heard = begin(threads, encrypted["job"], seconds=0.4)
    other.sendall(b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc")  # the head of a hello of 16 KiB

    def drip() -> None:
        while not heard.done() and monotonic() < start + SOON:
            try:
                other.sendall(b"\x03")
            except OSError:
                return
            sleep(0.02)

    dripping = threads.submit(drip)
    assert isinstance(heard.exception(SOON), OSError)
    assert monotonic() - start < 0.4 + 2.0
    dripping.result(SOON)
    other.close()
