"""Threads: every piece is done once, by as many threads as there are, and what goes wrong in one comes out."""

import os
import subprocess
import sys
import threading
from collections import deque

import pytest

from shardwise.engine.threads import share, take, thread_count


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize("count", [0, 1, 2, 500])
def test_every_piece_is_taken_once(threads: int, count: int) -> None:
    results = share(lambda left: list(take(left)), range(count), threads)
    assert sorted(piece for taken in results for piece in taken) == list(range(count))


def test_as_many_help_as_there_are_threads_and_pieces() -> None:
    for threads, count, busy in [(3, 10, 3), (3, 2, 2), (3, 1, 1), (1, 5, 1)]:
        together = threading.Barrier(busy)

        def work(left: deque[int], together: threading.Barrier = together) -> int:
            for _ in take(left):
                together.wait(timeout=10)  # broken, if fewer work at a time
                break
            return threading.get_ident()

        assert len({*share(work, range(count), threads)}) == busy


def test_an_error_of_any_thread_is_raised_once_all_have_stopped() -> None:
    done: list[int] = []

    def work(left: deque[int]) -> None:
        for piece in take(left):
            if piece == 3:
                raise ValueError("piece 3")
            done.append(piece)

    for threads in (1, 2, 4):
        done.clear()
        with pytest.raises(ValueError, match="piece 3"):
            share(work, range(100), threads)
        assert len(done) < 100


FORK = """
import os
from shardwise.engine.threads import share, take
total = lambda: sum(share(lambda left: sum(take(left)), range(10), 2))
assert total() == 45
child = os.fork()
if not child:
    os._exit(total())
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_fork_has_threads_of_its_own() -> None:
    # It would wait forever for threads that are not there.
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "45\n"


def test_there_is_a_thread_per_core_but_at_most_eight(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, threads in [(3, 3), (64, 8), (None, 1)]:
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        assert thread_count() == threads
