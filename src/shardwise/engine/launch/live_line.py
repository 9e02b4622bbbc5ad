"""The live line: how far all ranks are, found out by a thread, so that nobody waits for the disk that says it."""

from __future__ import annotations

from threading import Thread
from time import monotonic, sleep

from shardwise.engine.launch.progress import Progress

PAUSE = 0.5  # seconds between looks at the records


class LiveLine:
    """What is said about all ranks, as of a moment ago."""

    def __init__(self, progress: Progress, pause: float = PAUSE) -> None:
        """Look at the progress now and then, until the line is closed."""
        self.text = ""
        self._progress, self._pause, self._ends = progress, pause, False
        Thread(target=self._run, name="shardwise-live", daemon=True).start()

    def close(self) -> None:
        """Look no more."""
        self._ends = True

    def _run(self) -> None:
        while not self._ends:
            self.text = self._progress.look(monotonic())
            sleep(self._pause)
