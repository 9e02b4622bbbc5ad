"""Certificates of two authorities, made once."""

import pytest

from shardwise.engine.meeting.credentials import CONTROL, TLS, Credentials, read_credentials
from tests.engine.meeting.certificates import Authority
from tests.engine.meeting.meetings import SECRET


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """The environments of a process of a job, and of one with a certificate of another authority."""
    folder = tmp_path_factory.mktemp("certificates")
    return {name: Authority(folder, name).issue("rank") for name in ("job", "other")}


@pytest.fixture(scope="session")
def encrypted(certificates: dict[str, dict[str, str]]) -> dict[str, Credentials]:
    """The credentials of the same."""
    out = {}
    for name, files in certificates.items():
        with pytest.MonkeyPatch.context() as patch:
            for variable, value in (files | {TLS: CONTROL, "SHARDWISE_SECRET": SECRET.decode()}).items():
                patch.setenv(variable, value)
            out[name] = read_credentials()
    return out
