"""The pool uses memory again, and never while anything still refers to it."""

import gc
import os
import random
import subprocess
import sys
import weakref
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from shardwise import ArgumentError, LocalEngine, clear_caches
from shardwise.engine import pool as pool_module
from shardwise.engine.memory import Share
from shardwise.engine.pool import EVERY, GLANCE, HUGE, IDLE, PAGE, SMALLEST, STEP, Pool
from tests.faults.rows import note

F4 = np.dtype("float32")
U1 = np.dtype("uint8")
SHAPE = (256, 256)  # 256 KiB
SIZE = 256 * 256 * 4


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is not short, whatever other programs of this machine leave of it."""
    monkeypatch.setattr(pool_module, "memory_shares", lambda: [Share(1 << 35, 1 << 35)])


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def memory_of(pool: Pool) -> int:
    """The bytes of all blocks that the pool knows."""
    return sum(size * len(blocks) for size, blocks in pool._blocks.items())


class Holder:
    """An object that refers to others."""

    def __init__(self, *names: Any) -> None:
        self.names = list(names)


KEEPERS: dict[str, Callable[[Any], Any]] = {
    "the array": lambda a: a,
    "a view": lambda a: a.view(),
    "a read-only view": lambda a: np.lib.stride_tricks.as_strided(a, writeable=False),
    "a slice": lambda a: a[3:5, ::7],
    "an element as an array": lambda a: a[2, 2, ...],
    "a slice of a view of a slice": lambda a: a[1:].view(np.int32)[:, 2:][:1],
    "other bytes": lambda a: a.reshape(-1).view(np.uint8)[::3],
    "a transpose": lambda a: a.T,
    "a memoryview": lambda a: memoryview(a),
    "bytes through the buffer protocol": lambda a: memoryview(a).cast("B")[5:9],
    "an array of a memoryview": lambda a: np.frombuffer(memoryview(a), np.uint8),
    "DLPack to NumPy": lambda a: np.from_dlpack(a),
    "DLPack to torch": lambda a: torch.from_dlpack(a),
    "a DLPack capsule": lambda a: a.__dlpack__(),
    "torch.from_numpy": lambda a: torch.from_numpy(a)[1:3].T,
    "torch.asarray": lambda a: torch.asarray(a),
    "a closure": lambda a: lambda: a,
    "a subclass": lambda a: a.view(np.ma.MaskedArray),
    "an iterator": lambda a: a.flat,
    "ctypes": lambda a: a.ctypes,
}


@pytest.mark.parametrize("keep", KEEPERS)
def test_a_block_is_not_used_again_while_anything_refers_to_it(keep: str) -> None:
    pool = Pool()
    array = pool.empty(SHAPE, F4)
    array[...] = 7
    place = address(array)
    kept = KEEPERS[keep](array)
    del array
    others = [pool.empty(SHAPE, F4) for _ in range(3)]
    assert all(address(other) != place for other in others)
    del others, kept
    gc.collect()
    assert place in {address(other) for other in [pool.empty(SHAPE, F4) for _ in range(4)]}


def test_a_reference_cycle_keeps_its_block_until_it_is_collected() -> None:
    pool = Pool()
    gc.disable()
    try:
        array = pool.empty(SHAPE, F4)
        place, holder = address(array), Holder(array[1:])
        holder.names.append(holder)
        gone = weakref.ref(holder)
        del array, holder
        assert address(pool.empty(SHAPE, F4)) != place
        gc.collect()
        assert gone() is None
        assert place in {address(a) for a in [pool.empty(SHAPE, F4) for _ in range(2)]}
    finally:
        gc.enable()


def test_a_finalizer_may_allocate_while_the_pool_does() -> None:
    pool, made = Pool(), []

    class Last:
        def __del__(self) -> None:
            made.append(pool.empty(SHAPE, F4))

    with pool._lock:
        last = Last()
        del last
    assert len(made) == 1


def test_a_dropped_buffer_is_the_next_one_handed_out_whatever_its_dtype_and_shape() -> None:
    pool = Pool()
    first = pool.empty(SHAPE, F4)
    place = address(first)
    del first
    for shape, dtype in (((512, 128), "float32"), ((2, SIZE // 16), "float64"), ((SIZE - 9,), "bool")):
        again = pool.empty(shape, np.dtype(dtype))
        assert (again.shape, again.dtype, address(again)) == (shape, np.dtype(dtype), place)
        assert again.flags.c_contiguous
        assert again.flags.writeable
        del again
    assert address(pool.empty((256, 512), np.dtype(ml_dtypes.bfloat16))) == place
    assert pool.allocated == SIZE


def test_results_that_are_kept_in_turn_need_two_buffers() -> None:
    pool, unused_bytes = Pool(), None
    for _ in range(20):
        unused_bytes = pool.empty(SHAPE, F4)
    assert unused_bytes is not None
    assert pool.blocks == 2


def test_small_arrays_are_left_to_numpy() -> None:
    pool = Pool()
    small = pool.empty((SMALLEST - 1,), np.dtype("uint8"))
    assert small.base is None
    assert pool.blocks == 0
    for shape in ((), (0,), (4, 0, 3)):
        assert pool.empty(shape, F4).shape == shape


def test_large_blocks_begin_where_a_huge_page_does_give_or_take_a_page() -> None:
    pool = Pool()
    large = pool.empty((3 * HUGE,), np.dtype("uint8"))
    assert address(large) % HUGE < PAGE
    large[...] = 1  # all of it is there
    place = address(large)
    del large
    assert address(pool.empty((3 * HUGE,), np.dtype("uint8"))) == place


@pytest.mark.parametrize("size", [SMALLEST, 1 << 20, HUGE, 2 * HUGE, 3 * HUGE + 5])
def test_arrays_that_live_together_begin_at_different_places_in_a_page(size: int) -> None:
    # Else a copy from one to the other waits for its own writes.
    pool = Pool()
    arrays = [pool.empty((size,), np.dtype("uint8")) for _ in range(16)]
    places = sorted(address(array) % PAGE for array in arrays)
    assert places == list(range(0, PAGE, STEP))
    for k, array in enumerate(arrays):
        array[...] = k
    assert all((array == k).all() for k, array in enumerate(arrays))


def test_the_pool_never_knows_more_than_its_limit_and_never_frees_what_is_used() -> None:
    pool, rng, live = Pool(limit=20 * SIZE), random.Random(1), {}
    for step in range(600):
        if live and rng.random() < 0.45:
            del live[rng.choice(list(live))]
        size = rng.choice([1, 1, 2, 3, 5, 8])
        array = pool.empty((size, *SHAPE), F4)
        array[...] = step
        live[step] = array
        assert memory_of(pool) == pool._known <= pool.limit
        assert pool.unused_bytes <= pool.limit
        if len(live) > 30:
            live.clear()
        assert all((kept == at).all() for at, kept in list(live.items())[-3:])
    assert all((kept == at).all() for at, kept in live.items())
    places = sorted((address(kept), kept.nbytes) for kept in live.values())
    assert all(a + size <= b for (a, size), (b, _) in pairwise(places))


def test_what_nobody_uses_goes_before_what_somebody_does() -> None:
    pool = Pool(limit=4 * SIZE)
    used = pool.empty(SHAPE, F4)
    others = [pool.empty(SHAPE, F4) for _ in range(3)]
    del others
    larger = pool.empty((3, *SHAPE), F4)
    place = address(used)
    del used
    assert address(pool.empty(SHAPE, F4)) == place
    assert larger.nbytes == 3 * SIZE


def test_blocks_in_use_beyond_the_limit_are_forgotten_and_freed_with_their_last_user() -> None:
    pool = Pool(limit=2 * SIZE)
    arrays = [pool.empty(SHAPE, F4) for _ in range(5)]
    for i in range(5):
        arrays[i][...] = i
    assert pool.blocks == 2
    assert [int(array[0, 0]) for array in arrays] == [0, 1, 2, 3, 4]
    block = weakref.ref(arrays[0].base)
    del arrays[0]
    assert block() is None
    arrays.clear()
    assert pool.unused_bytes == 2 * SIZE


def test_what_is_larger_than_the_limit_is_never_kept() -> None:
    pool = Pool(limit=SIZE)
    array = pool.empty((2, *SHAPE), F4)
    assert pool.blocks == 0
    del array
    assert pool.unused_bytes == 0


def test_clear_gives_back_what_nobody_uses() -> None:
    pool = Pool()
    used, unused = pool.empty(SHAPE, F4), pool.empty(SHAPE, F4)
    del unused
    assert pool.unused_bytes == SIZE
    pool.clear()
    assert (pool.unused_bytes, pool.blocks) == (0, 1)
    place = address(used)
    del used
    assert pool.unused_bytes == SIZE
    assert address(pool.empty(SHAPE, F4)) == place


def test_threads_never_get_the_same_block() -> None:
    pool, wrong = Pool(limit=64 * SIZE), []

    def work(number: int) -> None:
        rng, unused_bytes = random.Random(number), []
        for step in range(300):
            array = pool.empty((rng.choice([1, 2]), *SHAPE), F4)
            array[...] = mark = number * 1000 + step
            unused_bytes.append((mark, array[:, 3:]))
            if len(unused_bytes) > 4:
                wrong.extend(kept for kept, view in unused_bytes if not (view == kept).all())
                unused_bytes = unused_bytes[rng.randint(1, 4) :]

    threads = [Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert pool.unused_bytes <= pool.limit
    assert pool.blocks <= 4 * 6 * 2


def test_what_a_finalizer_takes_meanwhile_is_not_handed_out_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, asked = Pool(), sys.getrefcount
    taken: list[Any] = []
    shape, dtype = (SMALLEST,), np.dtype("uint8")
    arrays = [pool.empty(shape, dtype) for _ in range(3)]
    del arrays

    def interrupted(block: np.ndarray) -> int:
        count = asked(block) - 1  # this function refers to it too
        if not taken:
            taken.append(None)
            taken[0] = pool.empty(shape, dtype)  # as a finalizer would, which runs before the answer is looked at
        return count

    monkeypatch.setattr(pool_module, "getrefcount", interrupted)
    mine = pool.empty(shape, dtype)
    assert not np.shares_memory(mine, taken[0])
    assert pool.blocks == 3


# -- the limit --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("memory", "limit"),
    [([], 1 << 30), ([Share(64 << 30, 1)], 1 << 30), ([Share(64 << 30, 1), Share(1 << 30, 1 << 30)], 1 << 27)],
)
def test_a_pool_keeps_a_part_of_the_memory_that_there_may_be(
    memory: list[Share], limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHARDWISE_POOL", raising=False)
    monkeypatch.setattr(pool_module, "memory_shares", lambda: memory)
    clear_caches()
    assert Pool().limit == limit
    monkeypatch.undo()
    clear_caches()


def test_the_limit_is_what_is_given_then_what_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDWISE_POOL", "256MiB")
    assert Pool().limit == LocalEngine().pool.limit == 1 << 28
    assert (Pool(limit=5).limit, Pool(limit="1.5KB").limit) == (5, 1500)
    for text in ("a lot", "-1", "1 XB", "nan", "inf", ""):
        monkeypatch.setenv("SHARDWISE_POOL", text)
        want = f"^SHARDWISE_POOL is a number of bytes such as 256MiB, 1GB or 0, got {text!r}.$"
        with pytest.raises(ArgumentError, match=want):
            Pool()
        with pytest.raises(ArgumentError, match=f"^Pool: limit is a number of bytes such as 256MiB.*{text!r}.$"):
            Pool(limit=text)
    for wrong in (-1, True, 1.5):
        with pytest.raises(ArgumentError, match=f"^Pool: limit is a number of bytes such as 1 << 28.*{wrong!r}.$"):
            Pool(limit=wrong)  # type: ignore


def test_a_pool_without_a_limit_to_speak_of_keeps_nothing() -> None:
    pool = Pool(limit=0)
    arrays = [pool.empty(SHAPE, F4) for _ in range(3)]
    assert (pool.blocks, pool.unused_bytes) == (0, 0)
    block = weakref.ref(arrays[0].base)
    arrays.clear()
    assert block() is None


# -- what is given back -----------------------------------------------------------------------------------


class Clock:
    """Seconds that pass when a test says so."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the pool."""
    clock = Clock()
    monkeypatch.setattr(pool_module, "monotonic", clock)
    return clock


def occasions(pool: Pool) -> dict[str, Callable[[], Any]]:
    """When a pool looks at the clock."""
    sizes = iter((16, 20, 24, 28, 32))
    return {
        "fresh": lambda: pool.empty((next(sizes), *SHAPE), F4),
        "often": lambda: [pool.empty(SHAPE, F4) for _ in range(EVERY)],
    }


@pytest.mark.parametrize("occasion", ["fresh", "often"])
def test_blocks_that_nobody_has_used_for_some_time_go_and_others_stay(clock: Clock, occasion: str) -> None:
    pool = Pool(limit=1 << 30)
    look = occasions(pool)[occasion]
    used = pool.empty((2, *SHAPE), F4)
    place, often = address(used), pool.empty((4, *SHAPE), F4)
    again = address(often)
    idle = [pool.empty((8, *SHAPE), F4) for _ in range(3)]
    del idle, often
    for _ in range(2):
        look()
        assert pool.unused_bytes >= 28 * SIZE  # it is too soon
    for _ in range(3):  # rounds
        clock.now += IDLE
        assert address(pool.empty((4, *SHAPE), F4)) == again
        look()
    assert 8 * SIZE not in pool._blocks
    assert memory_of(pool) == pool._known
    del used
    assert address(pool.empty((2, *SHAPE), F4)) == place


def test_no_memory_for_a_block_gives_back_all_that_is_unused(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, real, refused = Pool(), np.empty, []
    used = pool.empty(SHAPE, F4)
    unused = [pool.empty(SHAPE, F4) for _ in range(3)]
    del unused

    def scarce(size: int, dtype: Any) -> np.ndarray:
        if pool.unused_bytes:
            refused.append(size)
            raise MemoryError
        return real(size, dtype)

    monkeypatch.setattr(pool_module.np, "empty", scarce)
    array = pool.empty((3, *SHAPE), F4)
    monkeypatch.undo()
    assert len(refused) == 1
    assert pool.blocks == 2
    assert not np.shares_memory(array, used)

    def never(size: int, dtype: Any) -> np.ndarray:
        raise MemoryError

    monkeypatch.setattr(pool_module.np, "empty", never)
    with pytest.raises(MemoryError):
        pool.empty((5, *SHAPE), F4)


def test_where_memory_is_short_a_fresh_block_comes_after_all_unused_are_gone(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, looks = [100], []

    def shares() -> list[Share]:
        looks.append(clock.now)
        return [Share(1600, 1600), Share(1600, left[0])]

    monkeypatch.setattr(pool_module, "memory_shares", shares)
    pool = Pool(limit=1 << 30)
    for size in (1, 2, 3, 4):
        pool.empty((size, *SHAPE), F4)
    assert pool.unused_bytes == 10 * SIZE
    assert len(looks) == 1
    left[0] = 99  # of 1600
    pool.empty((5, *SHAPE), F4)
    assert pool.unused_bytes == 15 * SIZE  # it does not look all the time
    clock.now += GLANCE
    used = pool.empty((5, *SHAPE), F4)  # not fresh
    pool.empty((6, *SHAPE), F4)
    assert pool.unused_bytes == 6 * SIZE
    assert pool.blocks == 2
    pool.empty((7, *SHAPE), F4)
    assert pool.unused_bytes == 7 * SIZE
    left[0] = 100
    clock.now += GLANCE
    pool.empty((8, *SHAPE), F4)
    assert pool.unused_bytes == 15 * SIZE
    assert len(looks) == 3
    assert used.nbytes == 5 * SIZE


def test_clearing_caches_gives_back_what_nobody_uses() -> None:
    pool = Pool()
    used, unused = pool.empty(SHAPE, F4), pool.empty(SHAPE, F4)
    del unused
    clear_caches()
    assert (pool.unused_bytes, pool.blocks) == (0, 1)
    seen = weakref.ref(pool)
    del pool, used
    gc.collect()
    assert seen() is None


RESIDENT = """
import gc, sys
import numpy as np
import shardwise as sw
from shardwise import DeviceMesh, P, shard

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 >> 20  # MiB

mesh = DeviceMesh((4,), ("x",))
pool = sw.current_engine().pool
value = np.ones((1 << 10, 1 << 12), "float32")  # 16 MiB
x = shard(value, mesh, P("x"))
before = resident()
many = [shard(x, mesh, P(None, "x")) for _ in range(12)]
during = resident()
del many
kept, unused = resident(), pool.unused_bytes >> 20
sw.clear_caches()
print(before, during, kept, unused, resident(), pool.unused_bytes)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="this system does not tell what is resident")
def test_what_is_given_back_is_the_systems_again() -> None:
    seconds = monotonic()
    env = {**os.environ, "SHARDWISE_POOL": "1GiB", "SHARDWISE_STRICT": "0"}
    done = subprocess.run([sys.executable, "-c", RESIDENT], capture_output=True, text=True, check=True, env=env)
    before, during, kept, unused, after, left = map(int, done.stdout.split())
    assert during - before > 150
    assert kept - before > 150
    assert unused > 150
    assert after - before < 50
    assert left == 0
    note("pool", monotonic() - seconds)


SCARCE_ADDRESSES = """
import resource
import numpy as np
from shardwise.engine.pool import Pool

pool = Pool(limit="4GiB")
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (600 << 20),) * 2)
U1 = np.dtype("uint8")
pool.empty((300 << 20,), U1)
assert pool.blocks == 1
pool.empty((500 << 20,), U1)
assert pool.blocks == 1
try:
    pool.empty((700 << 20,), U1)
except MemoryError:
    print("refused")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a limit of addresses is one of Linux")
def test_where_addresses_are_scarce_what_is_unused_makes_room() -> None:
    env = {**os.environ}
    env.pop("SHARDWISE_POOL", None)
    done = subprocess.run([sys.executable, "-c", SCARCE_ADDRESSES], capture_output=True, text=True, env=env)
    assert (done.stdout, done.stderr) == ("refused\n", "")


# -- sizes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "capacity"),
    [
        (1 << 16, 1 << 16),
        ((1 << 16) + 1, (1 << 16) + (1 << 13)),
        ((1 << 20) - 1, 1 << 20),
        (1 << 20, 1 << 20),
        ((1 << 20) + 1, (1 << 20) + (1 << 17)),
        ((1 << 20) + (1 << 17), (1 << 20) + (1 << 17)),
        (5000, 8192),
    ],
)
def test_capacities_are_rounded_up_to_an_eighth(size: int, capacity: int) -> None:
    assert pool_module._capacity(size) == capacity


def test_what_is_allocated_is_counted_by_the_byte_or_the_block() -> None:
    pool = Pool()
    assert pool.take((3, 5), F4)[1] == 60
    assert pool.allocated == 0  # of blocks of its own
    kept, fresh = pool.take((SMALLEST,), U1)
    assert pool.allocated == fresh == SMALLEST
    assert pool.blocks == 1
    assert pool.unused_bytes == 0
    del kept
    assert pool.unused_bytes == SMALLEST
    assert pool.take((SMALLEST,), U1)[1] == 0
    pool.empty((SMALLEST + 1,), U1)
    assert pool.allocated == 2 * SMALLEST + (SMALLEST >> 3)


@pytest.mark.parametrize(("size", "boundary"), [(2 * HUGE, HUGE), (2 * HUGE - 1, HUGE), (HUGE + (HUGE >> 1), PAGE)])
def test_blocks_have_room_for_their_boundary_and_begin_after_it(size: int, boundary: int) -> None:
    pool, kept = Pool(), []
    for k in range(1, 3):
        array = pool.empty((size,), U1)
        kept.append(array)
        (blocks,) = pool._blocks.values()
        block, start = blocks[-1].bytes, blocks[-1].start
        assert block.nbytes == pool_module._capacity(size) + boundary + PAGE
        assert address(array) == address(block) + start
        assert address(array) % boundary == 256 * k
        assert start < boundary + PAGE


def test_only_so_many_blocks_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "LOOKS", 2)
    pool = Pool()
    kept = [pool.empty((SMALLEST,), U1) for _ in range(4)]
    place = address(kept[1])
    kept[1] = kept[2]
    assert pool.unused_bytes == SMALLEST
    fresh = pool.empty((SMALLEST,), U1)  # the one that is free is the third from the last
    assert address(fresh) != place
    assert pool.blocks == 5
    place = address(kept[3])
    kept[3] = fresh
    assert address(pool.empty((SMALLEST,), U1)) == place
    assert pool.blocks == 5


def test_a_block_of_the_limit_is_kept_and_trimmed_for_the_next() -> None:
    pool = Pool(limit=2 * SMALLEST)
    one = pool.empty((2 * SMALLEST,), U1)
    assert (pool.blocks, pool._known) == (1, 2 * SMALLEST)
    other = pool.empty((SMALLEST,), U1)  # the first is forgotten though it is used
    assert (pool.blocks, pool._known) == (1, SMALLEST)
    third = pool.empty((SMALLEST,), U1)
    assert (pool.blocks, pool._known) == (2, 2 * SMALLEST)
    one[...] = 1
    assert len({address(one), address(other), address(third)}) == 3
    del other, third
    pool.clear()
    assert (pool.blocks, pool._known, pool._blocks) == (0, 0, {})


def test_the_oldest_go_first_and_no_more_than_needed() -> None:
    pool = Pool(limit=3 * SMALLEST)
    kept = [pool.empty((SMALLEST,), U1) for _ in range(3)]
    places = [address(array) for array in kept]
    kept.clear()
    pool.empty((2 * SMALLEST,), U1)
    left = [address(block.bytes) + block.start for block in pool._blocks[SMALLEST]]
    assert left == [places[2]]
    assert pool._known == 3 * SMALLEST


@pytest.mark.parametrize(("lock", "again"), [(None, True), (lambda: True, True), (lambda: False, False)])
def test_blocks_are_used_again_only_where_counts_of_references_can_be_trusted(
    monkeypatch: pytest.MonkeyPatch, lock: Any, again: bool
) -> None:
    if lock is None:  # as before Python 3.13, where there is always a global lock
        monkeypatch.delattr(sys, "_is_gil_enabled", raising=False)
    else:
        monkeypatch.setattr(sys, "_is_gil_enabled", lock, raising=False)
    loader: Any = pool_module.__loader__
    names: dict[str, Any] = vars(pool_module) | {"__name__": "another_pool"}
    exec(loader.get_code("shardwise.engine.pool"), names)  # what it says when it is imported under such an interpreter
    pool = names["Pool"]()
    for _ in range(3):
        pool.empty((SMALLEST,), U1)
    assert pool.blocks == (1 if again else 0)


def test_what_was_handed_out_last_is_handed_out_first_when_it_is_dropped() -> None:
    pool = Pool()
    one, two, three = (pool.empty(SHAPE, F4) for _ in range(3))
    first = address(one)
    del one
    one = pool.empty(SHAPE, F4)  # the oldest block, used last
    assert address(one) == first
    del one, two
    again = pool.empty(SHAPE, F4)
    assert address(again) == first
    assert address(three) not in (first, address(pool.empty(SHAPE, F4)))
    assert pool.blocks == 3
