"""Certificates of an authority that is made for a test, with the command of OpenSSL."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from shardwise.engine.meeting.credentials import AUTHORITY, CERTIFICATE, KEY
from tests.system_tools import find_tool

CURVE = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


def openssl(*words: object) -> None:
    done = subprocess.run(
        [find_tool("openssl", "openssl"), *map(str, words)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


@dataclass
class Authority:
    """Who signs the certificates of a job."""

    folder: Path
    name: str

    def __post_init__(self) -> None:
        openssl(
            "req", "-x509", *CURVE, "-keyout", self.file("key"), "-out", self.file("pem"), "-subj", f"/CN={self.name}"
        )

    def file(self, end: str) -> Path:
        return self.folder / f"{self.name}.{end}"

    def issue(self, name: str) -> dict[str, str]:
        """Make a key and its certificate; return the environment that names them."""
        key, request, certificate = (self.folder / f"{self.name}-{name}.{end}" for end in ("key", "csr", "pem"))
        openssl("req", *CURVE, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        signer = ["-CA", self.file("pem"), "-CAkey", self.file("key"), "-CAcreateserial"]
        openssl("x509", "-req", "-in", request, *signer, "-out", certificate, "-days", "2")
        return {KEY: str(key), CERTIFICATE: str(certificate), AUTHORITY: str(self.file("pem"))}
