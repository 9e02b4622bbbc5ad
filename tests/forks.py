"""Forks of a process whose threads hold a lock as good as always: each child must get it, and do its work.

`python -m tests.forks NAME` prints what went wrong with the lock of that situation, or nothing.
"""

import os
import signal
import sys
import warnings
from collections.abc import Callable
from random import Random
from threading import Thread
from time import sleep
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

import shardwise as sw
from shardwise import DeviceMesh, Layout, P, caches
from shardwise.engine.abstract import AbstractEngine
from shardwise.engine.guard import stragglers
from shardwise.engine.guard.watchdog import Watchdog
from shardwise.engine.launch.sink import Sink
from shardwise.engine.local import strict
from shardwise.engine.local.engine import LocalEngine
from shardwise.engine.meeting.channel import Channel
from shardwise.engine.meeting.gate import Gate
from shardwise.engine.pool import Pool
from shardwise.engine.process.groups import Groups
from shardwise.engine.storage import storage_of
from shardwise.engine.threads import share, take

FORKS = 4  # of each situation
SECONDS = 20  # that a child may take on a busy machine; it takes less than a second
F4 = np.dtype("float32")


class Situation(NamedTuple):
    """What threads do all the time, and what a child does."""

    busy: Callable[[], Any]
    work: Callable[[], Any]


def holding(lock: Any) -> Callable[[], None]:
    """Hold a lock, and let it go."""

    def hold() -> None:
        with lock:
            sleep(0.002)

    return hold


def interning() -> Situation:
    """The lock of values of which equal ones are one object."""

    def work() -> None:
        mesh = DeviceMesh((2, 3), ("of", "child"))
        layout = Layout(mesh, ["of"])
        assert Layout(DeviceMesh((2, 3), ("of", "child")), ["of"]) is layout
        assert storage_of(layout, (4,)).count == 2

    return Situation(holding(caches._lock), work)


def pooling() -> Situation:
    """The lock of a pool, which others use while the fork comes."""
    pool = Pool()
    mine = pool.empty((1 << 16,), F4)
    mine[...] = 7
    rng = Random(1)

    def busy() -> None:
        for _ in range(20):
            some = [pool.empty((rng.choice([1, 2, 3]) << 16,), F4) for _ in range(3)]
            some.pop()
        holding(pool._lock)()

    def work() -> None:
        assert (pool.unused_bytes, pool.blocks) == (0, 0)  # what the parent keeps is not the child's
        arrays = [pool.empty((1 << 16,), F4) for _ in range(20)]
        for k in range(20):
            arrays[k][...] = k
        assert all((array == k).all() for k, array in enumerate(arrays))
        assert (mine == 7).all()
        arrays.clear()
        assert pool.unused_bytes == 20 << 18
        pool.clear()
        assert (pool.unused_bytes, pool.blocks) == (0, 0)

    return Situation(busy, work)


def counting() -> Situation:
    """The lock of an abstract engine's memory, and its counters."""
    engine = AbstractEngine()

    def work() -> None:
        before = engine.counters.total
        with sw.engine_context(engine):
            sw.zeros((4, 4), mesh=DeviceMesh((2,), ("x",)), layout=P("x")).gather()
        assert engine.counters.total > before

    return Situation(holding(engine._lock), work)


def strictness() -> Situation:
    """The lock of the number of processes that a strict engine stands for."""

    def work() -> None:
        engine = strict.StrictEngine()
        assert engine.process(DeviceMesh((4,), ("x",)), lambda devices: len(devices) > 0) == (0, range(4))
        assert engine.size == 4

    return Situation(holding(strict._lock), work)


def grouping() -> Situation:
    """The lock of process groups."""
    groups = Groups(lambda ranks, device: SimpleNamespace(shutdown=list))

    def work() -> None:
        assert groups.get((0, 1), "cpu") is groups.get((0, 1), "cpu")
        groups.abandon([2])
        groups.close(lambda ranks: False)

    return Situation(holding(groups._lock), work)


def watching() -> Situation:
    """The lock that is held to send to the others, and to hear of them."""
    watchdog = Watchdog({}, 0.01)

    def work() -> None:
        watchdog.stop(error="no")
        watchdog.find_gone([], 0.01)
        watchdog.forget()

    return Situation(holding(watchdog.changed), work)


def talking() -> Situation:
    """The lock of a connection."""
    import socket

    ours, theirs = map(Channel, socket.socketpair(), (0, 1))

    def work() -> None:
        ours.send(b"one")
        assert ours.flush()
        assert theirs.receive() == b"one"

    return Situation(holding(ours._lock), work)


def admitting() -> Situation:
    """The lock of newcomers."""
    import socket

    gate = Gate(socket.create_server(("127.0.0.1", 0)), None, 2)  # type: ignore[arg-type] (nobody comes)

    def work() -> None:
        gate._is_open = False
        gate.close()

    return Situation(holding(gate._lock), work)


class Slow:
    """An object with a value that takes a while."""

    @caches.cached_property
    def value(self) -> int:
        """A number."""
        sleep(0.002)
        return 3


def remembering() -> Situation:
    """A property that others work out when the fork comes."""

    def work() -> None:
        assert Slow().value == 3

    return Situation(lambda: Slow().value, work)


def sharing() -> Situation:
    """Threads that share pieces of work, and all that a reshard needs."""
    engine = LocalEngine(threads=2)
    mesh = DeviceMesh((2, 2), ("x", "y"))

    def reshard(size: int) -> None:
        value = np.arange(4.0 * size).reshape(4, size)
        with sw.engine_context(engine), sw.trace_communication() as log:
            x = sw.shard(sw.shard(value, mesh, P("x")), mesh, P(None, ("x", "y")))
            assert np.array_equal((x + x).numpy(), 2 * value)
        assert len(log) == 2
        assert sum(share(lambda left: sum(take(left)), range(10), 2)) == 45

    rng = Random(2)
    return Situation(lambda: reshard(rng.randint(1, 400)), lambda: [reshard(size) for size in (5, 4000, 100_000)])


def logging() -> Situation:
    """The lock of the thread that writes the log."""

    def work() -> None:
        written = list[str]()
        stragglers.log(lambda form, text: written.append(text), "late")
        while written != ["late"]:
            sleep(0.01)

    return Situation(holding(stragglers._writing), work)


def writing() -> Situation:
    """The lock of an output that a thread writes."""
    sink = Sink(os.open(os.devnull, os.O_WRONLY), "nothing")

    def work() -> None:
        sink.put(b"one")  # whose thread is the parent's
        assert not sink.finish(0.01)
        sink.close()

    return Situation(holding(sink._changed), work)


# The file that makes a lock, and the situation in which it is held.
LOCKS = {
    "caches.py": interning,
    "engine/pool.py": pooling,
    "engine/abstract.py": counting,
    "engine/local/strict.py": strictness,
    "engine/process/groups.py": grouping,
    "engine/guard/watchdog.py": watching,
    "engine/guard/stragglers.py": logging,
    "engine/meeting/channel.py": talking,
    "engine/meeting/gate.py": admitting,
    "engine/launch/sink.py": writing,
}
SITUATIONS = {make.__name__: make for make in (*LOCKS.values(), remembering, sharing)}


def fork(work: Callable[[], Any]) -> str:
    """Do something in a child; return what went wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # libraries with threads of their own, which may be imported, warn of it
        child = os.fork()
    if not child:
        signal.alarm(SECONDS)  # which ends it, also where it waits for a lock
        code = 1
        try:
            work()
            code = 0
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", flush=True)
        finally:
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return "" if not status else "it hangs" if status == -signal.SIGALRM else f"it ends with {status}"


def check(name: str) -> None:
    """Fork while threads are busy."""
    situation = SITUATIONS[name]()
    end: list[None] = []

    def loop() -> None:
        while not end:
            situation.busy()

    threads = [Thread(target=loop) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(FORKS):
        sleep(0.003)
        if wrong := fork(situation.work):
            print(f"{name}: {wrong}")
            break
    end.append(None)
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    for each in sys.argv[1:]:
        check(each)
