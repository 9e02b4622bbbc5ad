"""The bytes on the wire are those of the plan: as the kernel counts them, for every kind of step."""

from time import monotonic, sleep
from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import CPU, Cut, DeviceMesh, Layout, plan_reshard, shard, shift
from tests.engines.pool import Pool
from tests.engines.sockets import counts, since

SHAPE = (1024, 515)
HEADERS = 6000  # bytes that the library adds to the messages of one step: headers, and who is ready for what

LINE, GRID = DeviceMesh((4,), ("x",)), DeviceMesh((2, 2), ("a", "b"))
TURNED = DeviceMesh((4,), ("t",), [CPU(i) for i in (2, 0, 3, 1)])
UNEQUAL = Cut("x", offsets=[0, 10, 10, 700, 1024])
CASES: dict[str, tuple[Layout, Layout]] = {
    "all_gather": (Layout(LINE, ["x", None]), Layout(LINE, [None, None])),
    "all_gather of unequal shards": (Layout(LINE, [UNEQUAL, None]), Layout(LINE, [None, None])),
    "all_gather of columns": (Layout(LINE, [None, "x"]), Layout(LINE, [None, None])),
    "all_to_all": (Layout(LINE, ["x", None]), Layout(LINE, [None, "x"])),
    "all_to_all of unequal shards": (Layout(LINE, [UNEQUAL, None]), Layout(LINE, [None, "x"])),
    "exchange": (Layout(GRID, ["a", "b"]), Layout(GRID, ["b", "a"])),
    "exchange of cuts": (Layout(LINE, ["x", None]), Layout(LINE, [UNEQUAL, None])),
    "exchange between meshes": (Layout(GRID, ["a", "b"]), Layout(TURNED, [None, "t"])),
    "permute": (Layout(GRID, [("a", "b"), None]), Layout(GRID, [("b", "a"), None])),
    "reduce_scatter": (Layout(LINE, [None, None], ["x"]), Layout(LINE, ["x", None])),
    "reduce_scatter of columns": (Layout(LINE, [None, None], ["x"]), Layout(LINE, [None, "x"])),
    "all_reduce": (Layout(LINE, [None, None], ["x"]), Layout(LINE, [None, None])),
    "all_reduce over an axis": (Layout(GRID, ["a", None], ["b"]), Layout(GRID, ["a", None])),
    "reduce and gather": (Layout(GRID, ["b", None], ["a"]), Layout(GRID, ["a", None])),
    "halo_exchange": (Layout(LINE, ["x", None]), Layout(LINE, [Cut("x", halo=(64, 128)), None])),
    "fill": (Layout(GRID, ["a", None]), Layout(GRID, [None, None], ["a"])),
    "slice": (Layout(LINE, [None, None]), Layout(LINE, ["x", None])),
}


def measured(name: str) -> tuple[int, int, int, int]:
    """The bytes that this process sent and received in a reshard, by the kernel and by the engine's counters."""
    import torch.distributed as dist

    src, dst = CASES[name]
    rank = dist.get_rank()
    here = {i: np.ones(src.local_shape(SHAPE, i), "float32") for i in sw.current_engine().addressable(src.mesh)}
    x = sw.from_shards(here, src.mesh, src, SHAPE)
    shard(x, dst.mesh, dst)  # groups are made, and connected, when they are first used
    return _counted(
        lambda: shard(x, dst.mesh, dst), plan_reshard(src, dst, SHAPE, "float32").sent.of(_slot(src, dst, rank))
    )


def _slot(src: Layout, dst: Layout, rank: int) -> Any:
    plan = plan_reshard(src, dst, SHAPE, "float32")
    return rank if plan.search.slots.devices is None else CPU(rank)


def shifted() -> tuple[int, int, int, int]:
    x = shard(np.ones(SHAPE, "float32"), LINE, sw.P("x"))
    shift(x, "x")
    return _counted(lambda: shift(x, "x"), 256 * 515 * 4)


def _counted(call: Any, sent: int) -> tuple[int, int, int, int]:
    import torch.distributed as dist

    counters = sw.current_engine().counters
    dist.barrier()
    counters.reset()
    before = counts()
    call()
    end = monotonic() + 20
    while since(before)[0] < sent and monotonic() < end:  # until the other ends have said that they have it
        sleep(0.01)
    found = since(before)
    dist.barrier()
    return *found, counters.bytes_sent, counters.total


def _check(answers: list[Any], planned: list[tuple[int, int]]) -> None:
    for (sent, received, counted, moved), (out, into) in zip(answers, planned, strict=True):
        assert counted == out
        assert moved == into
        assert out <= sent <= out + HEADERS
        assert into <= received <= into + HEADERS


@pytest.mark.parametrize("name", CASES)
def test_the_sockets_count_what_the_plan_says(four: Pool, name: str) -> None:
    src, dst = CASES[name]
    plan = plan_reshard(src, dst, SHAPE, "float32")
    slots = [_slot(src, dst, rank) for rank in range(4)]
    assert plan.received.max > 10 * HEADERS or name in ("fill", "slice")
    _check(four.run(measured, name), [(plan.sent.of(slot), plan.received.of(slot)) for slot in slots])


def test_a_shift_sends_each_shard_once(four: Pool) -> None:
    size = 256 * 515 * 4
    _check(four.run(shifted), [(size, size)] * 4)


def test_every_kind_of_step_is_among_them() -> None:
    kinds = {step.kind for src, dst in CASES.values() for step in plan_reshard(src, dst, SHAPE, "float32").steps}
    assert kinds == set(
        "slice fill all_gather all_to_all reduce_scatter all_reduce permute halo_exchange exchange".split()
    )
