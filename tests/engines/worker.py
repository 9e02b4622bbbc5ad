"""One process of the pool: runs the functions that it is told to, on the torch engine."""

import faulthandler
import importlib
import os
import signal
import sys
import traceback
from multiprocessing.connection import Connection


def main(connection: Connection) -> None:
    import torch

    import shardwise

    faulthandler.register(signal.SIGUSR1)  # a process that does not answer is asked where it is
    torch.set_num_threads(1)
    shardwise.init()
    connection.send(("ready", os.getpid()))
    while True:
        try:
            module, name, args = connection.recv()
        except EOFError:
            return
        try:
            answer = "done", getattr(importlib.import_module(module), name)(*args)
        except BaseException:
            answer = "failed", traceback.format_exc()
        connection.send(answer)


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])))
