"""Local shards: what is here, and what is said of what is not."""

import numpy as np
import pytest

from shardwise import CPU, DeviceMesh, EngineError, P
from shardwise.engine.abstract import AbstractArrays
from shardwise.engine.local_shards import LocalShards, sample
from shardwise.engine.storage import storage_of

MESH = DeviceMesh((4,), ("x",))
SPLIT = storage_of(P("x").to_layout(1, MESH), (8,))


def test_what_is_here_is_given_and_the_rest_is_named_with_its_device() -> None:
    held = LocalShards(SPLIT, {2: np.arange(2)}, rank=2)
    assert held[2].tolist() == [0, 1]
    assert len(held) == 4
    assert not held.is_whole
    with pytest.raises(EngineError) as error:
        held[1]
    assert str(error.value) == (
        "a tensor laid out [x] on (x=4) has its array 1 in the process of CPU(1); this is the process with rank 2.\n"
        "  x.gather() brings the value to every process of its mesh; x.shards is what this one holds."
    )
    with pytest.raises(IndexError):
        held[4]
    assert list(LocalShards(storage_of(P().to_layout(1, MESH), (8,)), {0: 7}, rank=1)) == [7]


def test_a_single_device_is_named_too() -> None:
    alone = storage_of(P().to_layout(1, DeviceMesh.single(CPU(3))), (8,))
    with pytest.raises(EngineError, match=r"on \(cpu:3\) has its array 0 in the process of CPU\(3\)"):
        LocalShards(alone, {}, rank=0)[0]


def test_a_sample_has_the_dtype_and_library_of_all() -> None:
    torch = pytest.importorskip("torch")
    assert sample(LocalShards(SPLIT, {1: np.ones(2)}, rank=1)).tolist() == [1, 1]
    assert sample(LocalShards(SPLIT, {}, rank=1, dtype=np.dtype("int8"))).dtype == "int8"
    found = sample(LocalShards(SPLIT, {}, rank=1, dtype=np.dtype("bfloat16"), like=torch.zeros(3)))
    assert found.dtype == torch.bfloat16
    assert found.shape == (1,)
    assert sample(LocalShards(SPLIT, {}, rank=1, like=torch.zeros(3))).dtype == torch.float32
    assert sample([5, 6]) == sample((5, 6)) == 5
    assert sample(AbstractArrays(SPLIT, np.dtype("int8"))).shape == (2,)


def test_arrays_are_given_when_the_check_has_passed() -> None:
    checked: list[int] = []
    held = LocalShards(SPLIT, {2: np.arange(2)}, rank=2, check=lambda: checked.append(1))
    assert held[2].tolist() == [0, 1]
    assert len(checked) == 1

    def fail() -> None:
        raise EngineError("it never came.")

    held = LocalShards(SPLIT, {2: np.arange(2)}, rank=2, check=fail)
    with pytest.raises(EngineError, match="it never came"):
        held[2]
    with pytest.raises(EngineError, match="has its array 1 in the process of"):
        held[1]
