"""What proves that a process belongs to a job: read from the environment whole, or an error says what to do."""

import gc
import os
import select
import socket
import ssl
import struct
import subprocess
from pathlib import Path

import pytest
import torch

from shardwise import EngineError
from shardwise.engine.meeting import credentials as module
from shardwise.engine.meeting.credentials import (
    AUTHORITIES,
    AUTHORITY,
    CERTIFICATE,
    KEY,
    SECRET,
    TLS,
    TRANSPORT,
    Credentials,
    plain_connections,
    read_credentials,
)
from tests.engine.meeting.certificates import openssl


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (SECRET, TLS, TRANSPORT, KEY, CERTIFICATE, AUTHORITY, AUTHORITIES):
        monkeypatch.delenv(name, raising=False)


def name_files(monkeypatch: pytest.MonkeyPatch, files: dict[str, str], **more: str) -> None:
    for name, value in (files | more).items():
        monkeypatch.setenv(name, value)


def test_a_secret_is_as_the_environment_says_and_not_a_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_credentials() == Credentials()
    monkeypatch.setenv(SECRET, "0123456789abcdef")
    assert read_credentials() == Credentials(b"0123456789abcdef")
    monkeypatch.setenv(SECRET, "0123456789abcde")
    with pytest.raises(EngineError) as caught:
        read_credentials()
    assert str(caught.value).startswith(
        "SHARDWISE_SECRET has 15 characters; a secret that nobody guesses has 16 or more"
    )
    assert "0123456789abcde" not in str(caught.value)


def test_files_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TLS, "control")
    with pytest.raises(
        EngineError,
        match=f"^SHARDWISE_TLS=control encrypts connections, which needs {KEY}, {CERTIFICATE}, {AUTHORITY}: ",
    ):
        read_credentials()
    monkeypatch.setenv(KEY, "key")
    monkeypatch.setenv(AUTHORITIES, "folder")  # instead of the file
    with pytest.raises(EngineError, match=f"which needs {CERTIFICATE}: "):
        read_credentials()


@pytest.mark.parametrize("asked", ["yes", "1", "data", "CONTROL"])
def test_what_encryption_does_not_know_is_refused(monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    monkeypatch.setenv(TLS, asked)
    with pytest.raises(
        EngineError, match=f"^SHARDWISE_TLS is 'control' or not set, got '{asked}': it encrypts the conn"
    ):
        read_credentials()


def test_files_that_cannot_be_used_are_named(
    monkeypatch: pytest.MonkeyPatch, certificates: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    good, other = certificates["job"], certificates["other"]
    for wrong in ({KEY: str(tmp_path / "none")}, {KEY: other[KEY]}, {AUTHORITY: good[KEY]}):
        name_files(monkeypatch, good | wrong, **{TLS: "control"})
        with pytest.raises(EngineError, match="the certificates of SHARDWISE_TLS=control cannot be used: ") as caught:
            read_credentials()
        assert all(value in str(caught.value) for value in wrong.values())


def test_nobody_is_asked_for_the_password_of_a_key(
    monkeypatch: pytest.MonkeyPatch, certificates: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    locked = tmp_path / "locked.key"
    openssl("ec", "-in", certificates["job"][KEY], "-aes128", "-passout", "pass:hard to guess", "-out", locked)
    name_files(monkeypatch, certificates["job"] | {KEY: str(locked)}, **{TLS: "control"})
    with pytest.raises(EngineError, match="cannot be used"):
        read_credentials()


def test_an_authority_may_be_in_a_folder_of_them(
    monkeypatch: pytest.MonkeyPatch, certificates: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    files = dict(certificates["job"])
    authority = files.pop(AUTHORITY)
    command = ["openssl", "x509", "-noout", "-hash", "-in", authority]
    name = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    os.symlink(authority, tmp_path / f"{name}.0")
    name_files(monkeypatch, files, **{TLS: "control", AUTHORITIES: str(tmp_path)})
    contexts = read_credentials()
    assert contexts.calling is not None
    assert contexts.calling.verify_mode == ssl.CERT_REQUIRED


def test_both_ends_ask_for_a_certificate_and_old_versions_are_refused(encrypted: dict[str, Credentials]) -> None:
    for context in (encrypted["job"].calling, encrypted["job"].answering):
        assert context is not None
        assert context.verify_mode == ssl.CERT_REQUIRED
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_connection_is_encrypted_where_credentials_say_so(encrypted: dict[str, Credentials]) -> None:
    one, other = socket.socketpair()
    assert Credentials().secure(one) is one
    secured = encrypted["job"].secure(one)
    assert isinstance(secured, ssl.SSLSocket)
    secured.close()
    other.close()


def test_gloo_that_cannot_encrypt_is_found_out_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the torch which is installed is asked in tests/faults, by processes that end then: it asks only once."""

    class Lacks:
        @staticmethod
        def create_device(hostname: str) -> None:
            raise RuntimeError("makeDeviceForHostname(): unsupported gloo device")

    monkeypatch.setattr(torch.distributed, "ProcessGroupGloo", Lacks)
    monkeypatch.setenv(TRANSPORT, "TCP_TLS")
    with pytest.raises(EngineError) as caught:
        read_credentials()
    assert str(caught.value) == (
        "GLOO_DEVICE_TRANSPORT=TCP_TLS asks gloo to encrypt the data of tensors, and the gloo of this torch "
        f"({torch.__version__}) was built without encryption, as that of the usual wheels.\n"
        "  a torch built with USE_GLOO_WITH_OPENSSL=1 can; or let the network encrypt (WireGuard, IPsec).\n"
        "  SHARDWISE_TLS=control instead of it encrypts all but the data."
    )


def test_where_gloo_can_encrypt_its_variables_encrypt_our_connections_too(
    monkeypatch: pytest.MonkeyPatch, certificates: dict[str, dict[str, str]]
) -> None:
    class Encrypts:
        @staticmethod
        def create_device(hostname: str) -> None:
            if KEY not in os.environ:
                raise RuntimeError("TCP_TLS needs a key")

    monkeypatch.setattr(torch.distributed, "ProcessGroupGloo", Encrypts)
    monkeypatch.setenv(TRANSPORT, "TCP_TLS")
    with pytest.raises(EngineError, match=f"^GLOO_DEVICE_TRANSPORT=TCP_TLS encrypts connections, which needs {KEY}, "):
        read_credentials()
    name_files(monkeypatch, certificates["job"])
    credentials = read_credentials()
    assert credentials.calling is not None
    assert plain_connections(credentials, has_nccl=False) == ""
    text = "connections of NCCL, over which the data of tensors travel, are not encrypted; those of shardwise are."
    assert plain_connections(credentials, has_nccl=True) == text


def test_who_does_not_encrypt_is_named(encrypted: dict[str, Credentials]) -> None:
    assert plain_connections(encrypted["job"], has_nccl=False).startswith(
        "connections of gloo, over which the data of t"
    )
    assert plain_connections(encrypted["job"], has_nccl=True).startswith("connections of gloo and NCCL, over which")
    assert plain_connections(Credentials(b"secret"), has_nccl=True) == ""  # nobody asked for it
    assert module.ENCRYPTED == "TCP_TLS"


def test_an_encrypted_connection_whose_other_end_is_gone_already_is_closed(
    monkeypatch: pytest.MonkeyPatch, certificates: dict[str, dict[str, str]]
) -> None:
    """Python itself would leave it open, and warn; warnings are errors here."""
    name_files(monkeypatch, certificates["job"], **{TLS: "control"})
    context = read_credentials().calling
    assert context is not None
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here = socket.create_connection(listener.getsockname())
        there, _ = listener.accept()
        there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        there.close()  # which resets it
        select.select([here], [], [], 20)
        with pytest.raises(ConnectionResetError):
            context.wrap_socket(here, do_handshake_on_connect=False)
        here.close()
    gc.collect()
