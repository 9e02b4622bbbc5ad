"""Every lock of the package is free in a forked child, and none is made in another way."""

import ast
import gc
import os
import subprocess
import sys
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Any
from weakref import ref

import pytest

from shardwise import locks
from shardwise.locks import call_in_child, make_condition, make_lock
from tests.faults.rows import note
from tests.forks import LOCKS, SITUATIONS, fork

SOURCES = Path(locks.__file__).parent
KINDS = {"Lock", "RLock", "Condition", "Event", "Semaphore", "BoundedSemaphore", "Barrier", "allocate_lock"}
KINDS |= {"Queue", "LifoQueue", "PriorityQueue", "ThreadPoolExecutor", "cached_property"}

# What makes a lock in another way, and why a child never waits for it.
KEPT_ELSEWHERE = {
    ("locks.py", "RLock"): "here they are made",
    ("locks.py", "Condition"): "here they are made",
    ("caches.py", "cached_property"): "it is replaced by one without a lock",
    ("engine/threads.py", "ThreadPoolExecutor"): "a child makes one of its own",
    ("engine/meeting/gate.py", "Queue"): "only a process that starts asks for newcomers, not a fork of it",
}


def names_in(path: Path) -> set[str]:
    """What a file imports or reaches by a module that is a kind of lock."""
    out = set[str]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] != "shardwise":
            out |= {alias.name for alias in node.names}
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
            if owner in ("threading", "_thread", "queue", "futures", "functools", "multiprocessing"):
                out.add(node.attr)
    return out & KINDS


def test_no_lock_is_made_in_another_way() -> None:
    files = {str(path.relative_to(SOURCES)): names_in(path) for path in SOURCES.rglob("*.py")}
    assert {(name, kind) for name, kinds in files.items() for kind in kinds} == set(KEPT_ELSEWHERE)


def test_every_file_that_makes_a_lock_has_a_situation() -> None:
    files = set()
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "shardwise.locks":
                files.add(str(path.relative_to(SOURCES)))
    assert files == set(LOCKS)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_children_that_are_forked_while_threads_hold_a_lock_do_their_work() -> None:
    start = monotonic()
    run = [sys.executable, "-m", "tests.forks", *SITUATIONS]
    done = subprocess.run(run, capture_output=True, text=True, timeout=300, cwd=SOURCES.parent.parent)
    assert (done.stdout, done.returncode) == ("", 0), done.stdout + done.stderr
    note("forks", monotonic() - start)


def test_a_lock_that_the_thread_holds_that_forks_stays_held_until_it_gives_it_back() -> None:
    lock: Any = make_lock()

    def work() -> None:
        assert lock._is_owned()
        lock.release()
        with lock:
            pass

    with lock:
        assert fork(work) == ""


def test_a_lock_is_taken_again_by_its_thread_and_no_other() -> None:
    for lock in (make_lock(), make_condition()):
        others: list[bool] = []
        with lock, lock:
            thread = Thread(target=lambda lock=lock, others=others: others.append(lock.acquire(blocking=False)))
            thread.start()
            thread.join()
        assert others == [False]


def test_nothing_is_kept_for_the_sake_of_forks() -> None:
    class Value:
        def forget(self) -> None: ...

    value, lock = Value(), make_condition()
    call_in_child(value.forget)
    rows = [one for one in kept() if one() in (value, lock)]
    assert len(rows) == 2
    del value, lock
    gc.collect()
    assert [one() for one in rows] == [None, None]
    assert not any(one is row for one in kept() for row in rows)


def kept() -> list[ref[Any]]:
    """What is known of all objects that have something to do in a child."""
    return [*locks._methods.keyrefs(), *locks._locks.data]  # type: ignore[attr-defined]


def test_methods_are_called_in_children_only() -> None:
    class Value:
        calls = 0

        def forget(self) -> None:
            self.calls += 1

    value = Value()
    call_in_child(value.forget)

    def work() -> None:
        assert value.calls == 1

    assert fork(work) == ""
    assert value.calls == 0
