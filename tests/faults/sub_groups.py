"""Situations of groups: somebody goes when others first use a group of processes, or connect at the start."""

import json
import os
import signal
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
import torch.distributed as dist

import shardwise as sw
from shardwise import CPU, DeviceMesh, P, Tensor, shard
from shardwise.engine.meeting.channel import Channel
from shardwise.engine.process import connection
from tests.faults.situations import SIDE, line, me, meet, report, rows


def rows_on(ranks: Sequence[int], side: int = 12) -> Tensor:
    """A tensor whose rows are spread over the processes of some ranks."""
    mesh = DeviceMesh((len(ranks),), ("x",), [CPU(rank) for rank in ranks])
    return shard(np.arange(side * side, dtype="float32").reshape(side, side), mesh, P("x"))


def others() -> list[int]:
    return list(range(1, int(os.environ["WORLD_SIZE"])))


def vanish(how: str) -> None:
    """Be killed, be stopped, or leave."""
    if how == "left":
        raise SystemExit
    os.kill(os.getpid(), signal.SIGKILL if how == "killed" else signal.SIGSTOP)
    sleep(0.2)  # of several threads this one may go on for a moment


def gone(how: str, first: str) -> None:
    """Rank 0 is gone; the others make groups without it, and with it, for the first time."""
    x = rows()
    if me() == 0:
        vanish(how)
    watchdog = sw.current_engine().wire.guard.watchdog  # type: ignore[attr-defined]
    while watchdog.peers[0].gone is None and "stopped by" not in watchdog.signs.look(0, watchdog._channels[0].socket):
        sleep(0.01)
    if first == "without":
        report(lambda: rows_on(others()).gather())
        meet_others("after the group without rank 0")
        report(lambda: rows_on([0, me()]).gather(), x)
    else:
        report(lambda: rows_on([0, me()]).gather(), x)
        meet_others("after the group with rank 0")
        report(lambda: rows_on(others()).gather())


def meet_others(name: str) -> None:
    (Path(os.environ["FOLDER"]) / f"0 is at {name}").touch()
    meet(name)


def dies(victim: int, moment: str, is_first: bool) -> None:
    """One process is killed in a call of a group that is new; if it is the first of all, nobody has talked before."""
    if is_first:
        sw.init("torch")
        x = shard(np.arange(SIDE * SIDE, dtype="float32").reshape(SIDE, SIDE), line(), P("x"))
        y = x
        meet("the first call")
    else:
        x, y = rows(), rows_on([0, 1, 2], SIDE)
    if me() == victim:
        MOMENTS[moment](sw.current_engine().wire)  # type: ignore[attr-defined]
    if me() == 3 and not is_first:
        report(lambda: x.gather(), x)
    else:
        report(lambda: y.gather(), x)


def _kill_after(call: Callable[..., Any]) -> Callable[..., Any]:
    def act(*given: Any, **named: Any) -> Any:
        call(*given, **named)
        vanish("killed")

    return act


def _die_before(wire: Any) -> None:
    vanish("killed")


def _die_when_one_is_told(wire: Any) -> None:
    Channel.send = _kill_after(Channel.send)


def _die_when_all_agree(wire: Any) -> None:
    wire.guard.before = _kill_after(wire.guard.before)


def _die_when_data_moves(wire: Any) -> None:
    wire._start_letters = _kill_after(wire._start_letters)


MOMENTS = {
    "before": _die_before,
    "told one": _die_when_one_is_told,
    "agreed": _die_when_all_agree,
    "begun": _die_when_data_moves,
}


def vanishes_in_init(victim: int, moment: str, how: str) -> None:
    """One process is killed, or stopped, after all have met, while torch connects them, or when it has."""
    places = {
        "met": (connection, "connect"),
        "torch": (dist, "init_process_group"),
        "connected": (connection, "_share_addresses"),
    }
    if me() == victim:
        module, name = places[moment]
        call = getattr(module, name)

        def act(*given: Any, **named: Any) -> Any:
            vanish(how)
            return call(*given, **named)

        setattr(module, name, act)
    report(lambda: sw.init("torch") and None)


def files() -> tuple[int, int]:
    """How many files, sockets among them, and threads this process has."""
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def settled_files() -> tuple[int, int]:
    """The same, but for what a thread has open for a moment, and threads that are about to end."""
    seen = [files()]
    while len(seen) < 500 and seen[-20:] != [seen[-1]] * 20:
        sleep(0.01)
        seen.append(files())
    return seen[-1]


def all_groups() -> None:
    """Use every group of two or more processes; print how many files and threads there are at first, and at last."""
    rows()
    size, wrong = int(os.environ["WORLD_SIZE"]), list[Any]()
    before, start = settled_files(), monotonic()
    groups = [ranks for count in range(2, size + 1) for ranks in combinations(range(size), count)]
    for ranks in groups:
        x = rows_on(ranks)
        if me() in ranks and not np.array_equal(x.gather().numpy(), np.arange(144, dtype="float32").reshape(12, 12)):
            wrong.append(ranks)
    meet("the last group")
    seconds = monotonic() - start
    said = {"groups": len(groups), "wrong": wrong, "before": before, "after": settled_files(), "seconds": seconds}
    print(json.dumps(said), flush=True)
    meet("the end")


def starts_again() -> None:
    """Use the local engine in between, time and again; print how many files and threads there are before and after."""
    x = rows()
    before, start = settled_files(), monotonic()
    for _ in range(3):
        sw.init("local")
        assert np.array_equal(rows_on([0]).gather().numpy(), np.arange(144, dtype="float32").reshape(12, 12))
        sw.init("torch")
        x.gather()
    seconds = monotonic() - start
    print(json.dumps({"before": before, "after": settled_files(), "seconds": seconds}), flush=True)
    meet("the end")
