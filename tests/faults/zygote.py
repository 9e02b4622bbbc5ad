"""One process that has imported everything and makes ranks by forking, before any of them starts to communicate.

Every line of standard input is a request. When the input closes, all that is left is killed.
"""

import json
import os
import signal
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import numpy  # noqa: F401
import torch

import shardwise  # noqa: F401
from tests.faults import situations, sub_groups  # noqa: F401

torch.set_num_threads(1)


def become(request: dict) -> None:
    os.setsid()
    os.environ.update(request["env"])
    out = Path(request["out"])
    for descriptor, name in ((1, "out"), (2, "err")):
        file = os.open(out / f"{request['name']}.{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(file, descriptor)
        os.close(file)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def codes(pids: list[int], ended: dict[int, int]) -> dict[int, int]:
    for pid in pids:
        with suppress(ChildProcessError):
            found, status = os.waitpid(pid, os.WNOHANG) if pid not in ended else (0, 0)
            if found:
                ended[pid] = os.waitstatus_to_exitcode(status)
    return {pid: ended[pid] for pid in pids if pid in ended}


def serve() -> dict | None:
    """Answer requests; in a fork, return what it is to do."""
    made, ended = set[int](), dict[int, int]()
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "fork":
            pid = os.fork()
            if pid == 0:
                return request
            made.add(pid)
            answer = pid
        else:
            answer = codes(request["pids"], ended)
        print(json.dumps(answer), flush=True)
    for pid in made - set(ended):
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    return None


if __name__ == "__main__":
    task = serve()
    if task is not None:
        # Nothing catches what a rank raises: it ends the rank as it would end any program.
        become(task)
        module, _, name = task["situation"].rpartition(".")
        getattr(import_module(f"tests.faults.{module or 'situations'}"), name)(*task["args"])
