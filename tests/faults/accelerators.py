"""Kill a rank when the others have queued a collective on their accelerators, by hand; what they then read is an error.

    shardwise run -n 3 --grace 60 tests/faults/accelerators.py [fresh]

The last rank kills itself between the guard and NCCL. The others do not know: their call returns, and the host waits
for a device that waits for ever. With `fresh` the group is a new one, which NCCL has yet to connect: the thread that
waits for that in NCCL is left behind, which has been tried with a stand-in only.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from time import monotonic
from typing import Any

import numpy as np

from tests.engines.accelerators import RANK, SIZE, share_accelerators

TIMEOUT = 10.0


def said(call: Callable[[], Any]) -> dict[str, Any]:
    import shardwise

    start = monotonic()
    try:
        found = {"value": float(np.asarray(call()).sum())}
    except shardwise.ShardwiseError as error:
        found = {"error": type(error).__name__, "text": str(error)}
    return found | {"seconds": round(monotonic() - start, 2)}


def main(fresh: bool) -> int:
    share_accelerators()
    import shardwise
    from shardwise import Accelerator, DeviceMesh, P, shard

    engine: Any = shardwise.init("torch", timeout=TIMEOUT, heartbeat=1.0)
    devices = [Accelerator(i) for i in range(SIZE)]
    whole = np.arange(64 * SIZE, dtype="float32").reshape(8 * SIZE, 8)
    x = shard(whole, DeviceMesh((SIZE,), ("x",), devices), P("x"))
    y = x if fresh else x.gather()
    read = said(lambda: x.local(RANK).cpu())
    if RANK == SIZE - 1:
        engine.wire.groups.get = lambda *given: os.kill(os.getpid(), signal.SIGKILL)
    lost = said(lambda: x.gather().numpy())
    again = said(lambda: x.gather())
    kept = said(lambda: y.local(RANK).cpu())
    print(json.dumps({"lost": lost, "again": again, "kept": kept, "read": read}, indent=1), flush=True)
    right = (lost.get("error"), again.get("error"), kept.get("value")) == (
        "RankLost",
        "RankLost",
        float(whole[RANK * 8 : RANK * 8 + 8].sum() if fresh else whole.sum()),
    )
    print("right" if right and lost["seconds"] < 5 else "WRONG", flush=True)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main("fresh" in sys.argv[1:]))
