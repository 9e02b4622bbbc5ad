"""Tensors as torch's DTensors and back: the same shards, in the same memory."""

from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import (
    ArgumentError,
    BindingError,
    ConversionError,
    Cut,
    DeviceMesh,
    EngineError,
    Layout,
    P,
    from_dtensor,
    from_torch,
    shard,
    to_dtensor,
    to_torch,
)
from shardwise.engine.arrays import torch_of
from shardwise.ops.dtensors import chunk_bounds
from tests.engines.pool import Pool
from tests.engines.programs import grid, line, whole

SHAPES = [(8, 4), (7, 6), (3, 5), (1, 2), (0, 4)]


def _address(array: Any) -> int:
    return array.ctypes.data if isinstance(array, np.ndarray) else array.data_ptr()


# -- run in the processes ----------------------------------------------------------------------------------


def there_and_back(size: int) -> int:
    """Every placement of torch's on two axes is a layout of ours, with the same shards in the same memory."""
    import torch
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.experimental import implicit_replication

    from shardwise.ops.dtensors import torch_mesh

    mesh, count = torch_mesh(grid(size)), 0
    for shape, places in product(SHAPES, product([Shard(0), Shard(1), Replicate()], repeat=2)):
        data = torch.from_numpy(whole(*shape))
        given = distribute_tensor(data, mesh, places)
        x = from_dtensor(given)
        assert x.shape == shape
        assert x.gather().numpy().tolist() == data.tolist()
        assert given.to_local().numel() == 0 or _address(to_torch(x)) == given.to_local().data_ptr()
        back = to_dtensor(x) if _as_torch_cuts(x) else None
        if back is not None:
            assert tuple(back.placements) == places or size < 4  # an axis of one device splits nothing
            assert back.to_local().numel() == 0 or back.to_local().data_ptr() == given.to_local().data_ptr()
            assert torch.equal(back.full_tensor(), data)
            with implicit_replication():
                total: Any = back + data
                assert torch.equal(total.full_tensor(), data + data)
            count += 1
    for op in ("sum", "avg", "max", "min", "product"):
        terms = DTensor.from_local(torch.full((3,), 2.0), mesh, [Replicate(), Partial(op)], run_check=False)
        pending = from_dtensor(terms)
        assert str(pending.layout.reduce_op or op) in (op, "prod", "sum")
        if pending.layout.partial:
            assert torch.equal(to_dtensor(pending).full_tensor(), torch.from_numpy(pending.gather().numpy()))
    return count


def _as_torch_cuts(x: sw.Tensor) -> bool:
    try:
        to_dtensor(x)
    except ConversionError:
        return False
    return True


def ours_to_theirs(size: int) -> None:
    """What we make is what torch thinks it is, bfloat16 included."""
    import torch

    mesh = line(size)
    for dtype in ("float32", "bfloat16", "int64", "bool", "float8_e4m3fn"):
        data = whole(2 * size, 3, dtype=dtype)
        x = shard(data, mesh, P("x"))
        given = to_dtensor(x)
        (mine,) = (s.array for s in x.shards)
        assert given.to_local().data_ptr() == _address(mine)
        assert str(given.dtype) == f"torch.{dtype}"
        assert from_dtensor(given).layout is x.layout
        if dtype != "float8_e4m3fn":
            assert torch.equal(given.full_tensor(), torch_of(data))
    chunked = shard(whole(5, 3), mesh, Layout(mesh, [Cut("x", split="chunk"), None]))
    assert torch.equal(to_dtensor(chunked).full_tensor(), torch.from_numpy(whole(5, 3)))


def plain_torch(size: int) -> None:
    """Torch tensors go in and out as they are."""
    import torch

    mesh, rank = line(size), sw.current_engine().addressable(line(size))[0]
    mine = torch.full((2, 3), float(rank))
    x = from_torch(mine, mesh, P("x"), (2 * size, 3))
    assert to_torch(x).data_ptr() == mine.data_ptr()
    assert (x.gather().numpy()[:, 0] == np.repeat(np.arange(size), 2)).all()
    y = x * 2.0
    assert isinstance(to_torch(y), torch.Tensor)
    n = shard(whole(2 * size), mesh, P("x"))
    assert to_torch(n).data_ptr() == _address(n.shards[0].array)
    if size > 1:
        with pytest.raises(BindingError, match=r"must hold shape \(2, 3\)"):
            from_torch(mine[:1], mesh, P("x"), (2 * size, 3))


def refusals(size: int) -> None:
    mesh = line(size)
    uneven = shard(whole(2 * size + 1), mesh, P("x"))
    if size == 4:  # 9 = 3 + 2 + 2 + 2 here, 3 + 3 + 3 + 0 there
        with pytest.raises(
            ConversionError, match=r"(?s)torch cuts dim 0 of size 9 into chunks.*Cut\('x', split='chunk'\)"
        ):
            to_dtensor(uneven)
        with pytest.raises(ConversionError, match="without a halo"):
            to_dtensor(sw.halo_exchange(shard(whole(8), mesh, P("x")), 0, 1))
    something: Any = np.zeros(2)
    with pytest.raises(ArgumentError, match="from_dtensor needs a DTensor, got ndarray"):
        from_dtensor(something)
    with pytest.raises(ArgumentError, match="from_torch needs a torch tensor, got ndarray"):
        from_torch(something, mesh, P("x"), (2,))
    import torch
    from torch.distributed.tensor import Replicate, distribute_tensor

    from shardwise.ops.dtensors import torch_mesh

    wanted: Any = distribute_tensor(torch.ones(2), torch_mesh(mesh), [Replicate()]).requires_grad_()
    with pytest.raises(ArgumentError, match=r"(?s)a torch DTensor of shape \(2,\) that requires grad.*x.detach\(\)"):
        from_dtensor(wanted)
    assert from_dtensor(wanted.detach()).numpy().tolist() == [1.0, 1.0]


# -- tests -------------------------------------------------------------------------------------------------


def test_dtensors_are_the_same_shards_in_the_same_memory(pool: Pool) -> None:
    assert min(pool.run(there_and_back, pool.size, timeout=300)) > 20


@pytest.mark.parametrize("function", [ours_to_theirs, plain_torch, refusals], ids=lambda f: f.__name__)
def test_torch_tensors_go_in_and_out(pool: Pool, function: Any) -> None:
    pool.run(function, pool.size)


def test_torch_cuts_in_chunks_of_chunks() -> None:
    torch = pytest.importorskip("torch")
    for size, counts in product(range(20), [(2,), (3,), (2, 2), (3, 2), (2, 4)]):
        pieces = [torch.arange(size)]
        for count in counts:
            finer = []
            for piece in pieces:
                some = list(piece.chunk(count))
                finer += [*some, *[piece[:0]] * (count - len(some))]
            pieces = finer
        bounds = chunk_bounds(size, counts)
        assert [b - a for a, b in pairwise(bounds)] == [len(piece) for piece in pieces]


def test_on_the_local_engine_it_says_what_to_do() -> None:
    x = shard(np.zeros(4), DeviceMesh((2,), ("x",)), P("x"))
    with pytest.raises(EngineError, match=r"(?s)to_dtensor needs the torch engine.*init\('torch'\)"):
        to_dtensor(x)
    with pytest.raises(EngineError, match="but 2 of"):
        to_torch(x)
    torch = pytest.importorskip("torch")
    with pytest.raises(EngineError, match="one shard was given, but 2 devices"):
        from_torch(torch.zeros(2), x.mesh, P("x"), (4,))
