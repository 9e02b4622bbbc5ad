"""How many Python functions a warm call goes through, counted: what every program does most stays short."""

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest

from shardwise import DeviceMesh, P, shard

MESH = DeviceMesh((2, 4), ("x", "y"))
VALUE = np.arange(64.0).reshape(8, 8)
X, Y = shard(VALUE, MESH, P("x", "y")), shard(VALUE + 1, MESH, P("x", "y"))


def walk(call: Callable[[], Any]) -> list[str]:
    """The functions that a call enters, after it was called before."""
    for _ in range(3):
        call()
    entered: list[str] = []

    def note(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            entered.append(f"{frame.f_code.co_filename}: {frame.f_code.co_qualname}")

    before = sys.getprofile()
    gc.collect()
    gc.disable()  # what others left behind would be counted when it goes
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
        gc.enable()
    return entered[1:]  # the first is the call itself


@pytest.mark.parametrize(
    "call", [lambda: X + Y, lambda: X * 2.0, lambda: shard(VALUE, MESH, P("x", "y"))], ids=["x + y", "2 x", "shard"]
)
def test_a_warm_call_enters_at_most_25_functions(call: Callable[[], Any]) -> None:
    functions = walk(call)
    assert len(functions) <= 25, "\n".join(functions)


def test_one_kernel_does_for_all_tiles_of_a_block() -> None:
    before = X.engine.counters.kernel_calls
    out = X + Y
    assert X.engine.counters.kernel_calls == before + (1 if X.engine.name == "local" else 8)
    assert np.array_equal(out.numpy(), 2 * VALUE + 1)
    assert out.local(3).flags.writeable is False
