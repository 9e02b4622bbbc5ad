"""Reading a tensor never communicates: it gives the value where it is, and otherwise says at once what to do."""

from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import CPU, EngineError, P, shard
from tests.engines.pool import Pool
from tests.engines.programs import line, whole


def read_parts() -> None:
    """What is spread or pending cannot be read; in one process alone, too, for nobody waits for the others."""
    mesh = line(4)
    engine = sw.current_engine()
    x = shard(np.arange(1.0), mesh, P(unreduced=["x"]))
    y, rank = shard(np.arange(8.0), mesh, P("x")), engine.addressable(mesh)[0]
    there = sw.to_device([5.0], CPU(2))
    engine.counters.reset()
    sequence = engine.wire.sequence  # type: ignore[attr-defined]
    for read in (lambda x: x.numpy(), np.asarray, lambda x: x.item(), float, bool):
        with pytest.raises(
            EngineError, match=r"(?s)holds a part of float64\[1\] sum\(x\) on \(x=4\) only.*x\.gather\(\)"
        ):
            read(x)
    with pytest.raises(EngineError, match=r"reading never communicates.\n  x.gather\(\).numpy\(\) in all processes"):
        y.numpy()
    assert repr(y) == f"Tensor(float64[8@x] on x=4, of which device {rank} is here)"
    assert repr(x) == f"Tensor(float64[1] sum(x) on x=4, of which device {rank} is here)"
    assert y.local(rank).tolist() == [2 * rank, 2 * rank + 1]
    with pytest.raises(EngineError, match=r"(?s)in another process; here are devices \[\d\].*x.gather\(\)"):
        y.local((rank + 1) % 4)
    assert [s.index for s in y.shards] == [rank]
    if rank == 2:
        assert there.numpy().tolist() == [5.0]
        assert repr(there) == "Tensor([5.], float64[1] on cpu:2)"
    else:
        with pytest.raises(EngineError, match="holds a part of"):
            there.item()
        assert repr(there) == "Tensor(float64[1] on cpu:2, of which device none is here)"
        assert there.shards == ()
        with pytest.raises(EngineError, match=r"in the process of CPU\(2\)"):
            there.arrays[0]
    assert engine.counters.total == engine.counters.bytes_sent == 0
    assert engine.wire.sequence == sequence  # type: ignore[attr-defined]


def read_wholes() -> list[Any]:
    mesh = line(4)
    x = shard(np.arange(3.0), mesh, P())
    total = sw.sum(shard(np.arange(8.0), mesh, P("x"))).gather()
    assert repr(x) == "Tensor([0., 1., 2.], float64[3] on x=4)"
    loss, _ = sw.value_and_grad(sw.sum)(shard(np.arange(8.0), mesh, P("x")))
    assert (float(loss), loss.item(), f"{loss:.1f}", str(loss)) == (28.0, 28.0, "28.0", "Tensor(28., float64[] on x=4)")
    assert loss > 0
    assert float(total) == total.item() == 28.0
    assert not x.numpy().flags.writeable
    assert np.from_dlpack(x.local(sw.current_engine().addressable(mesh)[0])).tolist() == [0, 1, 2]
    return [x.numpy().tolist(), np.asarray(total).tolist(), shard(whole(5), mesh, P("x")).gather().numpy().tolist()]


def test_what_a_process_does_not_hold_cannot_be_read(four: Pool) -> None:
    four.run(read_parts)


def test_what_every_process_holds_can(four: Pool) -> None:
    answers = four.run(read_wholes)
    assert answers == [answers[0]] * 4
    assert answers[0][:2] == [[0, 1, 2], 28.0]


def shards_given() -> None:
    mesh = line(4)
    (rank,) = sw.current_engine().addressable(mesh)
    with pytest.raises(sw.BindingError, match=rf"has 4 devices \(this process has \[{rank}\]\), got 0 shards"):
        sw.from_shards({}, mesh, P("x"), (4,))
    with pytest.raises(sw.BindingError, match=r"got 2 shards"):
        sw.from_shards([[1.0], [2.0]], mesh, P("x"), (4,))
    part = sw.DeviceMesh((2,), ("y",), [CPU(1), CPU(2)])
    mine = {i: [1.0, 2.0] for i in sw.current_engine().addressable(part)}
    if not mine:
        with pytest.raises(
            sw.BindingError, match=r"no device of .* is in this process, so from_shards needs the dtype"
        ):
            sw.from_shards(mine, part, P("y"), (4,))
    x = sw.from_shards(mine, part, P("y"), (4,), dtype="float64")
    assert shard(x, mesh, P()).numpy().tolist() == [1.0, 2.0, 1.0, 2.0]


def test_a_process_gives_its_own_shards(four: Pool) -> None:
    four.run(shards_given)
