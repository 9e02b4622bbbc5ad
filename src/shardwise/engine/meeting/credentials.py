"""Credentials: what proves that a process belongs to a job, from its environment."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from shardwise.errors import EngineError

SECRET = "SHARDWISE_SECRET"
LEAST = 16  # characters of a secret
TLS = "SHARDWISE_TLS"
CONTROL = "control"  # what it says to encrypt what is not data
TRANSPORT = "GLOO_DEVICE_TRANSPORT"  # what gloo reads too, as the rest
ENCRYPTED = "TCP_TLS"
KEY, CERTIFICATE = f"{TRANSPORT}_TCP_TLS_PKEY", f"{TRANSPORT}_TCP_TLS_CERT"
AUTHORITY, AUTHORITIES = f"{TRANSPORT}_TCP_TLS_CA_FILE", f"{TRANSPORT}_TCP_TLS_CA_PATH"


@dataclass(frozen=True)
class Credentials:
    """A secret that all processes of a job know and, if connections are encrypted, the contexts of both ends."""

    secret: bytes = b""  # none: whoever reaches the port of rank 0 may take a seat
    calling: ssl.SSLContext | None = None
    answering: ssl.SSLContext | None = None

    def secure(self, connection: socket.socket) -> socket.socket:
        """Return a connection that came to this process, encrypted if it should be; nothing is sent yet."""
        if self.answering is None:
            return connection
        return self.answering.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)


def read_credentials() -> Credentials:
    """Return the credentials that the environment names."""
    secret = os.environ.get(SECRET, "")
    if secret and len(secret) < LEAST:
        raise EngineError(
            f"{SECRET} has {len(secret)} characters; a secret that nobody guesses has {LEAST} or more.\n"
            '  python -c "import secrets; print(secrets.token_hex(32))" makes one; all processes need the same.'
        )
    reason = _reason_to_encrypt()
    if not reason:
        return Credentials(secret.encode())
    if os.environ.get(TRANSPORT) == ENCRYPTED:
        _check_gloo()
    return Credentials(secret.encode(), *_make_contexts(reason))


def plain_connections(credentials: Credentials, has_nccl: bool) -> str:
    """Return who does not encrypt its connections though ours are, in words; nothing if nobody.

    >>> plain_connections(Credentials(), has_nccl=True)
    ''
    """
    is_gloo_plain = os.environ.get(TRANSPORT) != ENCRYPTED
    names = " and ".join(["gloo"] * is_gloo_plain + ["NCCL"] * has_nccl)
    if credentials.calling is None or not names:
        return ""
    return f"connections of {names}, over which the data of tensors travel, are not encrypted; those of shardwise are."


def _reason_to_encrypt() -> str:
    # What the environment says that asks for it.
    asked = os.environ.get(TLS, "")
    if asked not in ("", CONTROL):
        raise EngineError(
            f"{TLS} is {CONTROL!r} or not set, got {asked!r}: it encrypts the connections that carry no data.\n"
            f"  {TRANSPORT}={ENCRYPTED} encrypts those of gloo too, where torch was built for it."
        )
    if os.environ.get(TRANSPORT) == ENCRYPTED:
        return f"{TRANSPORT}={ENCRYPTED}"
    return f"{TLS}={asked}" if asked else ""


class _Encrypted(ssl.SSLSocket):
    # Python leaves one open, and warns of it, whose other end is gone just when it is made.
    def __del__(self) -> None:
        self.close()


def _make_contexts(reason: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    names = [name for name in (KEY, CERTIFICATE) if not os.environ.get(name)]
    names += [AUTHORITY] * (not os.environ.get(AUTHORITY) and not os.environ.get(AUTHORITIES))
    if names:
        raise EngineError(
            f"{reason} encrypts connections, which needs {', '.join(names)}: the files of this process's private key, "
            "its certificate, and that of the authority which signed those of all."
        )
    calling, answering = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    calling.check_hostname = False  # whoever has a certificate of the job's authority belongs to it, wherever it runs
    for context in (calling, answering):
        context.sslsocket_class = _Encrypted
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_cert_chain(os.environ[CERTIFICATE], os.environ[KEY], _refuse_to_ask)
            context.load_verify_locations(os.environ.get(AUTHORITY) or None, os.environ.get(AUTHORITIES) or None)
        except OSError as error:
            files = ", ".join(os.environ[name] for name in (CERTIFICATE, KEY, AUTHORITY) if os.environ.get(name))
            raise EngineError(f"the certificates of {reason} cannot be used: {error}.\n  files: {files}") from None
    return calling, answering


def _refuse_to_ask() -> str:
    return ""  # instead of a prompt at a terminal that a process of a job does not have


def _check_gloo() -> None:
    import torch
    from torch.distributed import ProcessGroupGloo

    make_device: Callable[..., object] = ProcessGroupGloo.create_device  # pyright: ignore
    try:
        make_device(hostname="127.0.0.1")
    except RuntimeError as error:
        if "unsupported" not in str(error):
            return  # it has what it needs but files, of which more can be said
        raise EngineError(
            f"{TRANSPORT}={ENCRYPTED} asks gloo to encrypt the data of tensors, and the gloo of this torch "
            f"({torch.__version__}) was built without encryption, as that of the usual wheels.\n"
            "  a torch built with USE_GLOO_WITH_OPENSSL=1 can; or let the network encrypt (WireGuard, IPsec).\n"
            f"  {TLS}={CONTROL} instead of it encrypts all but the data."
        ) from None
