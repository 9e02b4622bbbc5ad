"""The live line: found out by a thread, which ends."""

import threading
from pathlib import Path
from time import monotonic, sleep

from shardwise.engine.launch.live_line import LiveLine
from shardwise.engine.launch.progress import Progress


class Told(Progress):
    def __init__(self) -> None:
        super().__init__(Path(), {0: 1})
        self.moments = list[float]()

    def look(self, now: float) -> str:
        self.moments.append(now)
        return f"look {len(self.moments)}"


def test_it_looks_now_and_then_until_it_is_closed() -> None:
    told, start = Told(), monotonic()
    line = LiveLine(told, pause=0.01)
    while len(told.moments) < 5:
        sleep(0.01)
        assert monotonic() < start + 60
    line.close()
    for thread in threading.enumerate():
        if thread.name == "shardwise-live":
            thread.join(60)
    assert line.text == f"look {len(told.moments)}"
    assert all(b - a >= 0.009 for a, b in zip(told.moments, told.moments[1:], strict=False))


def test_nobody_waits_for_a_look_that_takes_long() -> None:
    class Stuck(Told):
        def look(self, now: float) -> str:
            let_go.wait(60)
            return super().look(now)

    let_go = threading.Event()
    line = LiveLine(Stuck())
    assert line.text == ""
    line.close()  # returns at once
    let_go.set()
