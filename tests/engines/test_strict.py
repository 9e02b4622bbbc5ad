"""The strict local engine refuses what processes refuse, in the words of the first process that does."""

import operator
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

import shardwise as sw
from shardwise import CPU, DeviceMesh, Layout, P, Tensor, engine_context, shard
from shardwise.engine.local.strict import StrictEngine
from tests.engines.pool import Pool
from tests.engines.programs import line


def tensors() -> dict[str, Tensor]:
    """Tensors that all processes hold, or some of them, or each a part of."""
    mesh, pair = line(4), DeviceMesh((2,), ("y",), [CPU(1), CPU(2)])
    sharded = shard(np.arange(8.0), mesh, P("x"))
    return {
        "sharded": sharded,
        "one element": shard(np.ones(1), mesh, P("x")),
        "pending": shard(np.ones(1), mesh, P(unreduced=["x"])),
        "pending number": sw.sum(sharded),
        "loss": sw.value_and_grad(sw.sum)(sharded)[0],
        "whole": shard(np.ones(1), mesh, P()),
        "whole with halo": sw.halo_exchange(shard(np.arange(8.0), mesh, P("x")), 0, 1),
        "on the default device": sw.asarray([5.0]),
        "on another device": sw.to_device([5.0], CPU(2)),
        "on two devices": shard(np.ones(1), pair, P()),
        "spread over two": shard(np.ones(2), pair, P("y")),
        "on a simulated mesh": shard(np.ones(2), DeviceMesh((2,), ("s",), [CPU(3), CPU(3)]), P("s")),
        "made there": sw.zeros((4,), mesh=mesh, layout=P("x")),
        "gathered": sharded.gather(),
    }


READS: dict[str, Callable[[Any], Any]] = {
    "numpy": lambda x: x.numpy(),
    "asarray": np.asarray,
    "item": lambda x: x.item(),
    "float": float,
    "int": int,
    "bool": bool,
    "complex": complex,
    "truth": lambda x: 1 if x.sum() > 0 else 2,
    "repr": repr,
    "format": lambda x: f"{x:.1f}" if not x.shape else f"{x}",
    "dlpack": np.from_dlpack,
    "memory": lambda x: x.__dlpack_device__(),
    "first": lambda x: x.local(0),
    "last": lambda x: x.local(x.mesh.num_devices - 1),
    "iterate": list,
    "sorted": lambda x: max(x, key=float),
    "index": operator.index,
    "in an index": lambda x: np.arange(9)[np.asarray(x).astype(int)],
    "as an index": lambda x: x[sw.astype(x, "int64").sum()] if x.shape else 0,
    "compare": lambda x: x in [1.0, 2.0],
    "from its shards": lambda x: sw.from_shards({0: np.ones(1)}, x.mesh, Layout.replicated(x.mesh, 1), (1,)),
    "few shards": lambda x: sw.from_shards([np.ones(1)], x.mesh, Layout.replicated(x.mesh, 1), (1,)),
}
LOCAL = {"repr", "format"}  # which say what is here where they cannot say the value


def refusals() -> dict[str, str]:
    """What is said to each way to read each tensor; nothing where it is allowed."""
    out = {}
    for (which, x), (how, read) in product(tensors().items(), READS.items()):
        out[f"{how} of {which}"] = ""
        try:
            shown = read(x)
            if how in LOCAL and "is here" in shown:
                out[f"{how} of {which}"] = shown
        except Exception as error:
            out[f"{how} of {which}"] = f"{type(error).__name__}: {error}"
    return out


def test_it_says_what_the_first_process_says_that_refuses(four: Pool) -> None:
    answers = four.run(refusals)
    with engine_context(StrictEngine()):
        ours = refusals()
    found = {name: next((said[name] for said in answers if said[name]), "") for name in ours}
    assert {name: text for name, text in ours.items() if text != found[name]} == {
        name: text for name, text in found.items() if text != ours[name]
    }
    assert sum("EngineError" in text for text in ours.values()) > 80
    assert sum(not text for text in ours.values()) > 40
    assert ours["float of loss"] == ours["numpy of gathered"] == ours["item of whole"] == ""
    assert ours["float of pending number"].startswith("EngineError: this process holds a part of float64[] sum(x)")
