"""Launchers that tests start, with outputs of any kind, and what those show."""

import fcntl
import os
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import Any

from tests.faults.job import environment

COMMAND = [sys.executable, "-c", "from shardwise.cli import main; main()", "run"]
BUSY = 10.0  # seconds that a busy machine may add
COLUMNS = 500  # of a terminal on which no line of a test is cut


class Started:
    """A launcher, and all that it started."""

    def __init__(
        self, folder: Path, script: str, args: tuple[str, ...], env: dict[str, str], options: dict[str, Any]
    ) -> None:
        path = folder / "script.py"
        path.write_text(script)
        self.mark = str(folder)
        self.process = subprocess.Popen(
            [*COMMAND, *args[:-1], str(path), *args[-1].split()],
            env=environment(MARK=self.mark, **env),
            start_new_session=True,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options,
        )

    def end(self, seconds: float = 60.0) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=seconds)
        return self.process.returncode, out, err

    def living(self) -> list[int]:
        """The processes whose environment has the mark of this test, the launcher's sentinel among them."""
        out = []
        for name in os.listdir("/proc"):
            try:
                environ = Path(f"/proc/{name}/environ").read_bytes() if name.isdecimal() else b""
            except OSError:
                continue
            if f"MARK={self.mark}".encode() in environ.split(b"\0"):
                out.append(int(name))
        return out

    def wait_for(self, check: Callable[[], bool], seconds: float) -> bool:
        end = monotonic() + seconds
        while not check() and monotonic() < end:
            sleep(0.05)
        return check()


class Terminal:
    """A terminal, and all that was ever written to it, read by a thread if it is read."""

    def __init__(self, is_read: bool = True) -> None:
        self.leader, self.follower = os.openpty()
        fcntl.ioctl(self.follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
        self.data = b""
        self._thread = Thread(target=self._read, daemon=True)
        if is_read:
            self._thread.start()

    @property
    def text(self) -> str:
        return self.data.decode()

    def _read(self) -> None:
        with suppress(OSError):  # when the other end is closed
            while some := os.read(self.leader, 1 << 16):
                self.data += some

    def stop(self) -> None:
        """Press Ctrl-S."""
        os.write(self.leader, b"\x13")

    def close(self) -> None:
        """Read the rest, and close both ends."""
        os.close(self.follower)
        if self._thread.is_alive():
            self._thread.join(BUSY)
        os.close(self.leader)
