"""Debian packages that this project needs beside Python's own: installs the missing ones where it may.

    python3 tools/debian_packages.py setup    what `make` needs to create .venv
    python3 tools/debian_packages.py test     what some of the tests need

Runs before .venv exists, so it uses the standard library only. With CI=true in the environment a
package that stays missing is an error; otherwise the tests that need it are left out, and named.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import NamedTuple


class Row(NamedTuple):
    """A package, a command that succeeds once it is installed, and what needs it."""

    stage: str
    package: str
    command: tuple[str, ...]
    needed_by: str
    required: bool


ROWS = [
    #   stage    package          command                                 needed by                required
    Row("setup", "python3-venv", (sys.executable, "-c", "import ensurepip, venv"), "creating .venv", True),
    Row("test", "openssl", ("openssl", "version"), "tests of encrypted connections", False),
    Row("test", "mlir-19-tools", ("mlir-opt-19", "--version"), "tests that compare with mlir-opt-19", False),
]


def works(row: Row) -> bool:
    """Whether the row's command is there and succeeds."""
    if shutil.which(row.command[0]) is None:
        return False
    return subprocess.run(row.command, capture_output=True, check=False).returncode == 0


def privilege() -> list[str] | None:
    """The words to put before apt-get, or None where this user may not install packages."""
    if shutil.which("apt-get") is None:
        return None
    if os.geteuid() == 0:
        return ["env", "DEBIAN_FRONTEND=noninteractive"]
    if shutil.which("sudo") is None:
        return None
    if subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False).returncode != 0:
        return None
    return ["sudo", "-n", "env", "DEBIAN_FRONTEND=noninteractive"]


def install(rows: list[Row]) -> None:
    """Install the rows' packages, one by one so that one unknown name does not stop the others."""
    prefix = privilege()
    if prefix is None:
        return
    subprocess.run([*prefix, "apt-get", "update", "-qq"], stdin=subprocess.DEVNULL, check=False)
    for row in rows:
        print(f"installing Debian package {row.package}, for {row.needed_by}", flush=True)
        command = [*prefix, "apt-get", "install", "-y", "-qq", "--no-install-recommends", row.package]
        # apt's own progress is long and is only of interest when it fails.
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
        if done.returncode != 0:
            print(done.stdout.decode(errors="replace"), file=sys.stderr)


def main(stage: str) -> int:
    """Install what the stage lacks; say what is still missing and return the exit status."""
    rows = [row for row in ROWS if row.stage == stage]
    missing = [row for row in rows if not works(row)]
    if missing:
        install(missing)
        missing = [row for row in missing if not works(row)]
    for row in missing:
        effect = "cannot go on" if row.required else "left out"
        print(f"missing: {row.package}, for {row.needed_by} ({effect})", file=sys.stderr)
        print(f"  install it with: sudo apt-get install {row.package}", file=sys.stderr)
    strict = os.environ.get("CI") == "true"
    return 1 if any(strict or row.required for row in missing) else 0


if __name__ == "__main__":
    STAGES = sorted({row.stage for row in ROWS})
    if len(sys.argv) != 2 or sys.argv[1] not in STAGES:
        sys.exit(f"usage: python3 {sys.argv[0]} {'|'.join(STAGES)}")
    sys.exit(main(sys.argv[1]))
