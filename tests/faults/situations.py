"""Situations: what a rank does when it, or another, does something wrong."""

import ctypes
import json
import logging
import os
import re
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic, sleep
from typing import Any

import numpy as np
import torch.distributed as dist

import shardwise as sw
from shardwise import CPU, DeviceMesh, Layout, P, Tensor, all_reduce, from_shards, shard
from shardwise.engine.execute import program_of
from shardwise.engine.meeting import guest, host
from shardwise.engine.meeting.channel import Channel
from tests.engines.sockets import counts, since

SIDE = 512  # a tensor of 1 MiB


def me() -> int:
    return int(os.environ["RANK"])


def line(size: int | None = None) -> DeviceMesh:
    return DeviceMesh((size or int(os.environ["WORLD_SIZE"]),), ("x",))


def rows(side: int = SIDE) -> Tensor:
    """A tensor whose rows are spread; one call has worked, and processes are connected."""
    sw.init("torch")
    x = shard(np.arange(side * side, dtype="float32").reshape(side, side), line(), P("x"))
    meet("the start")
    x.gather()
    meet("the first call")
    return x


def meet(name: str) -> None:
    """Wait until all ranks have come here, whoever can still talk to whom."""
    place = os.environ.get("FOLDER") or os.environ.get("MARK")
    if place is None:
        return
    folder = Path(place)
    (folder / f"{me()} is at {name}").touch()
    while len(list(folder.glob(f"* is at {name}"))) < int(os.environ["WORLD_SIZE"]):
        sleep(0.005)


def report(call: Callable[[], Any], x: Tensor | None = None, **more: Any) -> None:
    """Run a call that should fail; print what it raised and how long it took, and save what this process holds."""
    said: dict[str, Any] = {"error": None}
    before, start = counts(), monotonic()
    try:
        found = call()
        said["value"] = None if found is None else float(np.asarray(found.numpy()).sum())
    except (sw.ShardwiseError, MemoryError, KeyboardInterrupt) as error:
        said |= {"error": type(error).__name__, "text": str(error)}
        if isinstance(error, sw.CollectiveError):
            said |= {"ranks": list(error.ranks), "step": error.step, "sequence": error.sequence}
    said |= {"seconds": monotonic() - start, "received": since(before)[1]}
    if x is not None:  # after any error
        (kept,) = x.shards
        np.save(Path(os.environ["FOLDER"]) / f"{me()}.npy", kept.array)
        said |= {"again": again(x), "rows": kept.box[0]}
    print(json.dumps(said | more), flush=True)


def again(x: Tensor) -> str:
    """What the next collective raises: nothing can be shared after an error, and it is said at once."""
    try:
        x.gather()
    except sw.ShardwiseError as error:
        return type(error).__name__
    return ""


# -- processes that go, or stop ----------------------------------------------------------------------------


def killed(victim: int, inside: bool, step: str) -> None:
    """One process is killed: before it comes to a call, or when all have come and data should move."""
    x = rows()
    if me() == victim and not inside:
        os.kill(os.getpid(), signal.SIGKILL)
    if me() == victim:
        sw.current_engine().wire._start_letters = lambda *given: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[attr-defined]
    report(lambda: x.gather() if step == "all_gather" else shard(x, line(), P(None, "x")), x)


def stopped(victim: int) -> None:
    """One process is stopped, and goes on when others have given up."""
    x = rows()
    if me() == victim:
        os.kill(os.getpid(), signal.SIGSTOP)
    report(lambda: x.gather(), x)


def asleep(victim: int, seconds: float) -> None:
    x = rows()
    if me() == victim:
        sleep(seconds)
    report(lambda: x.gather(), x)


def asleep_until_told(victim: int) -> None:
    """One process sleeps until a file is there."""
    x = rows()
    if me() == victim:
        while not (Path(os.environ["FOLDER"]) / "wake").exists():
            sleep(0.01)
    report(lambda: x.gather(), x)


def paused(victim: int, inside: bool) -> None:
    """One process is stopped for two seconds."""
    x = rows()

    def pause(*given: Any) -> Any:
        subprocess.Popen(["sh", "-c", f"sleep 2; kill -CONT {os.getpid()}"])
        os.kill(os.getpid(), signal.SIGSTOP)
        return start(*given) if inside else None

    wire = sw.current_engine().wire  # type: ignore[attr-defined]
    start = wire._start_letters
    if me() == victim and inside:
        wire._start_letters = pause
    elif me() == victim:
        pause()
    report(lambda: x.gather())


def raises(victim: int) -> None:
    """One process fails in the user's code; nobody catches anything."""
    x = rows()
    if me() == victim:
        (Path(os.environ.get("MARK", os.environ.get("FOLDER", "."))) / "ready").touch()
        raise ValueError("bad luck")
    x.gather()


def told_of_raise(victim: int) -> None:
    x = rows()
    if me() == victim:
        raise ValueError("bad luck")
    report(lambda: x.gather(), x)


def leaves(victim: int) -> None:
    x = rows()
    if me() != victim:
        report(lambda: x.gather(), x)


# -- processes that disagree -------------------------------------------------------------------------------


def differs(what: str, odd: int) -> None:
    """One process does something else."""
    x = rows()
    mesh, mine = line(), me() == odd
    n = mesh.num_devices

    def pending(reduction: str) -> Tensor:
        layout = Layout(mesh, [None, None], ["x"], reduction)
        return from_shards({me(): np.ones((4, 4), "float32")}, mesh, layout, (4, 4))

    def zeros(shape: tuple[int, ...], dtype: str = "float32", on: DeviceMesh = mesh, by: str = "x") -> Tensor:
        return shard(np.zeros(shape, dtype), on, P(by))

    def reshard(memory_limit: int | None) -> None:
        columns = P(None, "x").to_layout(2, mesh)
        plan = sw.plan_reshard(x.layout, columns, x.shape, x.dtype, memory_limit=memory_limit)
        sw.current_engine().run(program_of(plan), x.arrays)

    turned = DeviceMesh((n,), ("x",), [CPU(i) for i in reversed(range(n))])
    named = DeviceMesh((n,), ("y",))
    some = {
        "function": (
            lambda: x.gather(),
            lambda: shard(x, mesh, P(None, "x")),
        ),
        "shape": (lambda: zeros((4 * n, 4)).gather(), lambda: zeros((4 * n, 5)).gather()),
        "dtype": (lambda: zeros((4 * n, 4)).gather(), lambda: zeros((4 * n, 4), "int32").gather()),
        "layout": (lambda: shard(x, mesh, P(None, "x")), lambda: shard(x, mesh, P(None, None))),
        "reduction": (lambda: all_reduce(pending("sum")), lambda: all_reduce(pending("max"))),
        "root": (lambda: sw.to_device(x, CPU(0)), lambda: sw.to_device(x, CPU(1))),
        "plan": (lambda: reshard(None), lambda: reshard(1 << 10)),
        "mesh": (lambda: zeros((4 * n, 4)).gather(), lambda: zeros((4 * n, 4), on=turned).gather()),
        "axis": (lambda: zeros((4 * n, 4)).gather(), lambda: zeros((4 * n, 4), on=named, by="y").gather()),
    }
    usual, other = some[what]
    report(other if mine else usual, x)


def extra(odd: int) -> None:
    """One process calls once more than the others, who then do something else."""
    x = rows()
    x.gather()
    if me() == odd:
        report(lambda: x.gather(), x)
        return
    report(lambda: shard(x, line(), P(None, "x")), x)


def crossed() -> None:
    """Two meshes that share ranks 0 and 1, used in opposite order."""
    x = rows()
    y = shard(np.ones((6, 6), "float32"), line(2), P("x"))
    report(lambda: y.gather() if me() == 1 else x.gather(), x)


def circle() -> None:
    """Every process waits for the next one, in the group of these two."""
    x = rows()
    pair = sorted({me(), (me() + 1) % int(os.environ["WORLD_SIZE"])})
    y = shard(np.ones((6, 6), "float32"), DeviceMesh((2,), ("x",), [CPU(rank) for rank in pair]), P("x"))
    report(lambda: y.gather(), x)


def hears_late(told_killed: bool) -> None:
    """Ranks 0 and 1 disagree, rank 2 hears it and goes; rank 3 waits for rank 2, and does not hear others before."""
    x = rows()
    guard = sw.current_engine().wire.guard  # type: ignore[attr-defined]
    receive = Channel.receive
    late = [guard.watchdog._channels[rank] for rank in (0, 1)] if me() == 3 else []

    def receive_late(self: Channel) -> bytes | None:
        if self in late and not (told_killed and guard.watchdog._channels[2].closed):
            sleep(0.01)
            return None
        return receive(self)

    Channel.receive = receive_late
    pair = DeviceMesh((2,), ("x",), [CPU(me() // 2 * 2), CPU(me() // 2 * 2 + 1)])
    y = shard(np.zeros((4, 4), "int32" if me() == 1 else "float32"), pair, P("x"))
    while me() == 2 and guard.watchdog.stopped is None:
        sleep(0.01)
    if me() == 2 and told_killed:
        os.kill(os.getpid(), signal.SIGKILL)
    report(lambda: y.gather(), x)


def threads() -> None:
    """A second thread communicates: refused, and the first goes on."""
    x = rows()
    thread = threading.Thread(target=report, args=(lambda: x.gather(),), name="second")
    thread.start()
    thread.join()
    report(lambda: x.gather())


def forks() -> None:
    """A fork communicates: refused, and its parent goes on."""
    x = rows()
    pid = os.fork()
    if pid == 0:
        report(lambda: x.gather())
        sys.exit(0)  # runs what is to be done at exit, which must leave the parent's connections alone
    os.waitpid(pid, 0)
    sleep(0.5)
    report(lambda: x.gather())


def reads_alone(reader: int) -> None:
    """One process alone reads a value: it is told at once, and nobody waits."""
    x = rows()
    if me() == reader:
        report(lambda: x.numpy())
    report(lambda: x.gather())


def gathers_alone(reader: int) -> None:
    """One process alone gathers; the others are done."""
    x = rows()
    if me() == reader:
        report(lambda: x.gather(), x)


def cannot_allocate(victim: int) -> None:
    """One process has no memory for the result of a collective."""
    x = rows(4096)
    if me() == victim:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + (16 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    kept = [x.gather] if me() != victim else []
    report(lambda: _several(x), x, kept=len(kept))


def _several(x: Tensor) -> None:
    # Buffers of calls before may be there to be used again: keep what is made, until there is no memory.
    made = []
    for _ in range(6):
        made.append(x.gather())


# -- starting ----------------------------------------------------------------------------------------------


def starts(change: str = "", changed: int = -1) -> None:
    """Start; a process may have another version, or mesh."""
    mesh = None
    if change == "version" and me() == changed:
        sw.__version__ = "0.0.9"
    if change == "mesh":
        mesh = DeviceMesh((2, 2), ("a", "b")) if me() == changed else DeviceMesh((4,), ("x",))
    guard = not (change == "guard" and me() == changed)
    report(lambda: sw.init("torch", mesh=mesh, guard=guard) and None)


def starts_in_vain(victim: int) -> None:
    """One process is killed when all have met, and torch.distributed connects them."""
    if me() == victim:
        dist.init_process_group = lambda *given, **named: os.kill(os.getpid(), signal.SIGKILL)
    report(lambda: sw.init("torch") and None)


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def dies_while_all_meet(victim: int, moment: str) -> None:
    """One process is killed when the others have come, or when all call each other."""

    dies = Path(os.environ["FOLDER"]) / "dies"

    def die(*told: Any) -> Any:
        dies.with_suffix(".txt").write_text(str(os.getpid()))
        dies.with_suffix(".txt").rename(dies)
        os.kill(os.getpid(), signal.SIGKILL)

    def look(hall: Any, when: str) -> set[int]:
        is_time = len(hall.guests) > 0 if moment == "waits" else when == "while all were connecting"
        return die() if is_time else hear(hall, when)

    hear = host._Hall._hear
    if me() == victim == 0:
        setattr(host._Hall, "_hear", look)  # noqa: B010 (it says `self`)
    elif me() == victim:
        setattr(guest, "_await" if moment == "waits" else "_connect", die)
    elif moment == "waits" and me() == int(os.environ["WORLD_SIZE"]) - 1:
        while not (dies.exists() and has_ended(int(dies.read_text()))):  # it comes when the victim is gone
            sleep(0.01)
    report(lambda: sw.init("torch") and None)


def gathers(seconds: float = 0.0) -> None:
    """Start, the last process so many seconds later, and send each other data."""
    if me() == int(os.environ["WORLD_SIZE"]) - 1:
        sleep(seconds)
    report(lambda: rows(8).gather())


def starts_and_waits(seconds: float) -> None:
    x = rows()
    print(json.dumps({"ready": True}), flush=True)
    sleep(seconds)
    report(lambda: x.gather())


# -- what is known of others -----------------------------------------------------------------------------------


def silent() -> None:
    """Rank 1 is stopped, one long call holds the interpreter of rank 2, rank 3 sleeps; rank 0 waits for them all."""
    x = rows()
    if me() == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    if me() == 2:
        ctypes.PyDLL(None).sleep(4)
    if me() == 3:
        sleep(4)
    report(lambda: x.gather(), x)


def stopped_inside(victim: int, seconds: float) -> None:
    """One process is stopped when all have come and data should move, and goes on after a while."""
    x = rows()
    guard = sw.current_engine().wire.guard  # type: ignore[attr-defined]
    before = guard.before

    def halt(*given: Any) -> None:
        before(*given)
        subprocess.Popen(["sh", "-c", f"sleep {seconds}; kill -CONT {os.getpid()}"])
        os.kill(os.getpid(), signal.SIGSTOP)

    if me() == victim:
        guard.before = halt
    report(lambda: x.gather(), x)


def exits(victim: int, how: str) -> None:
    """One process leaves before it comes to a call."""
    x = rows()
    if me() == victim:
        LEAVE[how]()
        if how == "a caught sys.exit":
            x.gather()
    elif how == "a caught sys.exit":
        x.gather()
        report(lambda: x.gather(), x)
    else:
        report(lambda: x.gather(), x)


def _exit_in_a_step() -> None:
    with sw.step(4):
        raise SystemExit(3)


def _raise_system_exit() -> None:
    raise SystemExit(3)


def _exit_in_a_thread() -> None:
    thread = threading.Thread(target=sys.exit, args=(3,))
    thread.start()
    thread.join()


def _exit_and_go_on() -> None:
    with suppress(SystemExit):
        sys.exit(3)


def _raise_again() -> None:
    try:
        with sw.step(4):
            raise ValueError("bad luck")
    except ValueError as error:
        raise KeyError("worse luck") from error


def _interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    sleep(5)


LEAVE = {
    "sys.exit": lambda: sys.exit(3),
    "sys.exit of a text": lambda: sys.exit("no data"),
    "in a step": _exit_in_a_step,
    "raise": _raise_system_exit,
    "os._exit": lambda: os._exit(3),
    "in a thread": _exit_in_a_thread,
    "a caught sys.exit": _exit_and_go_on,
    "raised again": _raise_again,
    "interrupted": _interrupt,
}


def catches(victim: int, where: str) -> None:
    """One process catches an error that others do not have, and comes to its end."""
    x = rows()
    if me() != victim:
        report(lambda: x.gather(), x)
    elif where == "call":
        with suppress(sw.ShardwiseError):
            shard(x, line(), P("y"))
    else:
        CATCH[where]()


def _catch_out_of_a_step() -> None:
    with suppress(ValueError), sw.step(4):
        raise ValueError("bad luck")


def _catch_an_interrupt() -> None:
    with suppress(KeyboardInterrupt), sw.step(4):
        _interrupt()


def _catch_without_a_step() -> None:
    with suppress(ValueError):
        raise ValueError("bad luck")


def _catch_in_a_step() -> None:
    """What libraries raise and catch all the time."""
    with sw.step(4):
        for _ in iter([1, 2]):
            with suppress(Empty):
                SimpleQueue[int]().get_nowait()
        assert next(iter(()), None) is None
        assert not hasattr(sw, "no such name")


def _catch_and_end() -> None:
    """A loop whose data comes to its end, after an iteration that failed."""
    _catch_out_of_a_step()
    data = iter([1])
    with suppress(StopIteration):
        while True:
            with sw.step():
                next(data)


CATCH = {
    "step": _catch_out_of_a_step,
    "interrupt": _catch_an_interrupt,
    "no step": _catch_without_a_step,
    "inside": _catch_in_a_step,
    "then the end": _catch_and_end,
}


def skips(odd: int) -> None:
    """An error that one process has, and catches, skips an iteration."""
    x = rows()

    def loop() -> None:
        for i in range(1000, 1004):
            with suppress(ValueError), sw.step(i):
                if me() == odd and i == 1001:
                    raise ValueError("no data")
                x.gather()

    report(loop, x)


def disagrees_about_steps(odd: int, how: str) -> None:
    """One process is in other steps than the others."""
    x = rows()
    is_odd = me() == odd

    def batches() -> Iterator[int]:
        for i in range(4):
            if not (is_odd and i == 2):
                with sw.step():
                    yield i

    def run() -> None:
        if how == "one alone":
            with sw.step(7) if is_odd else nullcontext():
                x.gather()
        elif how == "twice":
            for i in (7, 7, 8) if is_odd else (7, 8, 8):
                with sw.step(i):
                    x.gather()
        elif how == "inner":
            for i in range(2):
                with sw.step(i):
                    for j in range(3):
                        if not (is_odd and (i, j) == (1, 1)):
                            with sw.step(j):
                                x.gather()
        else:
            for i in batches():
                if is_odd or i != 1:
                    x.gather()

    report(run, x)


def agrees_about_steps() -> None:
    """Steps in a generator, nested ones, ones that errors leave, and ones that have the same number: all alike."""
    x = rows()

    def batches() -> Iterator[int]:
        for i in range(3):
            with sw.step(5):
                yield i

    def run() -> Tensor:
        y = x.gather()
        for i in batches():
            with suppress(ValueError), sw.step(i):
                y = x.gather()
                raise ValueError("everybody has it")
            with sw.step(), sw.step():
                y = x.gather()
        return y

    report(run)


def late(victim: int, seconds: float) -> None:
    """One process takes much longer than it usually does."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    x = rows()

    def loop() -> Tensor:
        y = x
        for i in range(5):
            if me() == victim and i == 4:
                sleep(seconds)
            y = x.gather()
        sleep(1)  # so that the watchdog sees that it has come, and says so
        return y

    report(loop)


def sends_nonsense(victim: int) -> None:
    x = rows()
    dog = sw.current_engine().wire.guard.watchdog  # type: ignore[attr-defined]
    if me() == victim:
        with dog.changed:
            for channel in dog._channels.values():
                channel.send(b"\x1b[2J")
        sleep(1)
    report(lambda: x.gather(), x)


def rescues(victim: int) -> None:
    """One process is killed while all train; the others do what docs/faults.md says."""
    x = rows()
    page = (Path(__file__).parent.parent.parent / "docs" / "faults.md").read_text(encoding="utf-8")
    (block,) = [text for text in re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S) if "rescued" in text]
    os.chdir(os.environ["FOLDER"])

    def train(weights: dict[str, Tensor]) -> None:
        if me() == victim:
            os.kill(os.getpid(), signal.SIGKILL)
        while True:
            weights["rows"].gather()

    weights = {"rows": x, "all": shard(np.arange(6.0).reshape(2, 3), line(), P())}
    report(lambda: exec(block, {"train": train, "weights": weights, "sw": sw, "np": np}), x)
